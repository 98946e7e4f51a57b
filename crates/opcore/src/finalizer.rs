//! The finalizer state machine: an object goes only when everything that depends on it has gone.
//!
//! ```text
//!            deletionTimestamp            every step recorded as Done or Leaked
//!   Active ────────────────────▶ Terminating ────────────────────────────────▶ Released
//!                                 │   ▲
//!                                 └───┘ one pass: observe the running steps, record, act
//! ```
//!
//! A teardown is a graph of named steps. A step starts when all steps it comes `after` are over;
//! steps without an edge between them run side by side. What a step means is the operator's business:
//! it looks at the world and answers with a [`StepStatus`]; it never waits.
//!
//! # Guarantees
//!
//! - The finalizer is released only when the *published* status says of every step that it is `Done`, or
//!   `Leaked` with words for what was left behind.
//! - A step acts only after the published status says that it is `Running`, and so only after everything
//!   it comes after is published as over. Each decision is written down before it is acted on: a crash
//!   between any two writes resumes where it was, and evidence that a later step destroys is never needed again.
//! - Deadlines count from times in the status, not in memory: a restart does not prolong them.
//! - The whole machine is a pure function of (graph, published record, what was observed, time).
//!
//! # Assumptions
//!
//! - The record is published with the object's resourceVersion as a precondition (as [`crate::controller`]
//!   does), so that two processes cannot both advance it.
//! - Deletes are fenced by UID (as [`crate::act`] does), so that an object recreated under the same name is
//!   never touched.
//!
//! kube's own `finalizer` helper releases on any `Ok`, a requeue included, and removes the entry without
//! comparing UIDs; neither is safe for a teardown that takes longer than one reconcile.

mod pass;
mod record;
mod teardown;

pub use pass::{TakenDown, decide, pass};
pub use record::{StepPhase, StepRecord, TeardownRecord};
pub use teardown::{Force, GraphError, OnExpiry, Progress, Step, StepStatus, Teardown, TeardownState, step};

use kube::{Resource, ResourceExt};

/// Set this annotation to the name of a step to give it up, or to `all` to give up every step that is
/// not over. What was left behind is recorded and reported.
pub const FORCE_ANNOTATION: &str = "opcore.dev/force-teardown";

/// Where an object is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not marked for deletion; `guarded` says whether the finalizer is in place.
    Active {
        /// Whether the finalizer is in place. Nothing may be created before it is.
        guarded: bool,
    },
    /// Marked for deletion, and our finalizer still holds it.
    Terminating,
    /// Marked for deletion, and no longer held by us: there is nothing left for us to do.
    Released,
}

/// Where `object` is on its way, seen from the finalizer called `name`.
pub fn phase(object: &impl Resource, name: &str) -> Phase {
    let held = object.finalizers().iter().any(|finalizer| finalizer == name);
    match (object.meta().deletion_timestamp.is_some(), held) {
        (false, guarded) => Phase::Active { guarded },
        (true, true) => Phase::Terminating,
        (true, false) => Phase::Released,
    }
}

/// Which steps someone asked to give up, by [`FORCE_ANNOTATION`].
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
