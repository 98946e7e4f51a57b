//! `waves.opcore.dev/v1alpha1`: types only. Their doc comments become the API reference.

mod spec;
mod status;

pub use spec::*;
pub use status::*;

/// Retries waves that failed or timed out: `WAVE@TOKEN`, or `*@TOKEN` for all of them. A new token is a new request.
pub const RETRY_ANNOTATION: &str = "waves.opcore.dev/retry";
/// Starts a wave now, without waiting for its dependencies: `WAVE@TOKEN`. A new token is a new request.
pub const FORCE_ANNOTATION: &str = "waves.opcore.dev/force";
/// Names the waves to skip, separated by commas. They are skipped as long as the annotation is set.
pub const SKIP_ANNOTATION: &str = "waves.opcore.dev/skip";
/// `"true"`: no further wave starts as long as the annotation is set.
pub const PAUSE_ANNOTATION: &str = "waves.opcore.dev/paused";
/// Resumes the plan after a failure that paused it (`onFailure: Pause`). A new value is a new request.
pub const RESUME_ANNOTATION: &str = "waves.opcore.dev/resume";
/// On an object of a protected kind: `"true"` allows the operator to delete it when it is pruned or torn down.
pub const CONFIRM_ANNOTATION: &str = "waves.opcore.dev/confirm-delete";
/// On every object that a plan applies: the name of its wave.
pub const WAVE_LABEL: &str = "waves.opcore.dev/wave";
/// The finalizer that the operator sets on plans.
pub const FINALIZER: &str = "waves.opcore.dev/teardown";
