//! The finalizer state machine: an object is released only when everything that depends on it is gone.
//!
//! ```text
//!            deletionTimestamp            every step recorded as Done or Leaked
//!   Active ────────────────────▶ Terminating ────────────────────────────────▶ Released
//!                                 │   ▲
//!                                 └───┘ one pass: observe the running steps, record, act
//! ```
//!
//! A teardown is a graph of named steps. A step starts when all steps that it comes `after` are over. Steps without an
//! edge between them run in parallel. The operator defines what a step means: it inspects the current state and returns
//! a [`StepStatus`]; it never waits.
//!
//! # Guarantees
//!
//! - The finalizer is removed only when the *published* status says of every step that it is `Done`, or `Leaked` with a
//!   message that says what was left behind.
//! - A step acts only after the published status says that it is `Running`, and therefore only after all steps before
//!   it are published as over. Each decision is recorded before it is acted on. After a crash between any two writes
//!   the teardown resumes where it was, and evidence that a later step destroys is never needed again.
//! - Deadlines count from times in the status, not in memory: a restart does not extend them.
//! - The state machine is a pure function of the graph, the published record, what was observed, and the time.
//!
//! # Assumptions
//!
//! - The record is published with the object's resourceVersion as a precondition (as [`crate::controller`]
//!   does), so that two processes cannot both advance it.
//! - Deletes are fenced by UID (as [`crate::act`] does), so that a recreated object of the same name is never touched.
//!
//! kube's own `finalizer` helper releases the object on any `Ok`, including a requeue, and removes the entry without
//! comparing UIDs. Neither is safe for a teardown that takes longer than one reconcile.

mod pass;
mod record;
mod teardown;

pub use pass::{TakenDown, decide, pass};
pub use record::{StepPhase, StepRecord, TeardownRecord};
pub use teardown::{Force, GraphError, OnExpiry, Progress, Step, StepStatus, Teardown, TeardownState, step};

use kube::{Resource, ResourceExt};

/// Set this annotation to the name of a step to give it up, or to `all` to give up every step that is not over. What
/// was left behind is recorded and reported.
pub const FORCE_ANNOTATION: &str = "opcore.dev/force-teardown";

/// The phase of an object in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not marked for deletion; `guarded` says whether the finalizer is in place.
    Active {
        /// Whether the finalizer is in place. Nothing may be created before it is.
        guarded: bool,
    },
    /// Marked for deletion, and our finalizer still holds it.
    Terminating,
    /// Marked for deletion, and no longer held by our finalizer: nothing is left for us to do.
    Released,
}

/// The phase of `object`, with regard to the finalizer called `name`.
pub fn phase(object: &impl Resource, name: &str) -> Phase {
    let held = object.finalizers().iter().any(|finalizer| finalizer == name);
    match (object.meta().deletion_timestamp.is_some(), held) {
        (false, guarded) => Phase::Active { guarded },
        (true, true) => Phase::Terminating,
        (true, false) => Phase::Released,
    }
}

/// Which steps a user asked to give up, with [`FORCE_ANNOTATION`].
pub fn force(object: &impl Resource) -> Force {
    match object.annotations().get(FORCE_ANNOTATION).map(String::as_str) {
        None | Some("") => Force::None,
        Some("all") => Force::All,
        Some(name) => Force::Step(name.to_owned()),
    }
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
