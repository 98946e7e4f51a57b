//! `waves.opcore.dev/v1alpha1`: types only. Their comments are the API reference.

mod spec;
mod status;

pub use spec::*;
pub use status::*;

/// Asks to try failed or timed-out waves again: `WAVE@TOKEN`, or `*@TOKEN` for all. A new token is a new request.
pub const RETRY_ANNOTATION: &str = "waves.opcore.dev/retry";
/// Asks to start a wave now, whatever it depends on: `WAVE@TOKEN`. A new token is a new request.
pub const FORCE_ANNOTATION: &str = "waves.opcore.dev/force";
/// Names waves to pass over, separated by commas, as long as it is there.
pub const SKIP_ANNOTATION: &str = "waves.opcore.dev/skip";
/// `"true"`: start no further wave, as long as it is there.
pub const PAUSE_ANNOTATION: &str = "waves.opcore.dev/paused";
/// Asks to go on after a failure that paused the plan (`onFailure: Pause`). A new value is a new request.
pub const RESUME_ANNOTATION: &str = "waves.opcore.dev/resume";
/// On an object of a protected kind: `"true"` allows to delete it when it is pruned or torn down.
pub const CONFIRM_ANNOTATION: &str = "waves.opcore.dev/confirm-delete";
/// On everything that a plan applies: the wave it belongs to.
pub const WAVE_LABEL: &str = "waves.opcore.dev/wave";
/// What a teardown is guarded by.
pub const FINALIZER: &str = "waves.opcore.dev/teardown";
