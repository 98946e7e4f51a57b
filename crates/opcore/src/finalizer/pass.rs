//! How an object passes through the state machine: the same for every operator.

use jiff::Timestamp;
use kube::core::object::HasStatus;

use super::{GraphError, Phase, Progress, StepStatus, Teardown, TeardownRecord, TeardownState};
use crate::conditions::{Conditions, Summary, whole_milliseconds};
use crate::operator::{Decision, Reconciled};
use crate::writes::Write;

/// Decides for an object according to its phase in the state machine: nothing is written for it before it has its
/// finalizer, and the finalizer is removed when nothing is left. None: it is being deleted, and only finalizers of
/// others hold it.
///
/// `active` decides for an object that is not being deleted, `terminating` for one that is.
pub fn decide<K: Reconciled, C>(
    object: &K,
    finalizer: &str,
    now: Timestamp,
    active: impl FnOnce(Timestamp) -> Decision<K, C>,
    terminating: impl FnOnce(Timestamp) -> Decision<K, C>,
) -> Option<Decision<K, C>> {
    let now = whole_milliseconds(now);
    match super::phase(object, finalizer) {
        Phase::Active { guarded } => {
            let mut decision = active(now);
            // An object for which nothing is written needs no teardown, and can be deleted while this operator is not
            // running.
            if !guarded && !decision.writes.is_empty() {
                decision.writes.first(Write::AddFinalizer(finalizer.to_owned()));
            }
            Some(decision)
        }
        Phase::Terminating => {
            let mut decision = terminating(now);
            if decision.release {
                decision.writes.then(Write::RemoveFinalizer(finalizer.to_owned()));
            }
            Some(decision)
        }
        Phase::Released => None,
    }
}

/// A status that records the progress of a teardown.
pub trait TakenDown: Conditions {
    /// The published progress.
    fn teardown(&self) -> Option<&TeardownRecord>;
    /// Records the progress.
    fn set_teardown(&mut self, record: TeardownRecord);
}

/// Implements [`TakenDown`] for a status with the field `teardown`.
#[macro_export]
macro_rules! impl_taken_down {
    ($status:ty) => {
        impl $crate::finalizer::TakenDown for $status {
            fn teardown(&self) -> Option<&$crate::finalizer::TeardownRecord> {
                self.teardown.as_ref()
            }
            fn set_teardown(&mut self, record: $crate::finalizer::TeardownRecord) {
                self.teardown = Some(record);
            }
        }
    };
}

/// Takes the teardown of an object one pass further: advances its steps, records and reports their progress, and
/// releases the object when all are over. The operator adds the writes for the steps that act, and everything else in
/// its status.
///
/// `status` is the status to publish. The status that was published before is read from the object.
///
/// # Guarantees
///
/// Those of [`Teardown::advance`]. An invalid graph is reported in the status, and nothing is released.
pub fn pass<K, C>(
    object: &K,
    status: K::Status,
    steps: Result<Teardown, GraphError>,
    observe: impl FnMut(&str) -> StepStatus,
    now: Timestamp,
) -> (Decision<K, C>, Progress)
where
    K: Reconciled + HasStatus<Status: TakenDown>,
    C: Default,
{
    let mut decision = Decision::say(status);
    let published = object.status().and_then(TakenDown::teardown);
    let generation = object.meta().generation;
    let progress = match steps {
        Ok(teardown) => teardown.advance(published, observe, &super::force(object), now),
        Err(error) => {
            Summary::stalled("TeardownGraph", error.to_string()).write(&mut decision.status, generation, now);
            return (decision, Progress::stuck(published, now));
        }
    };
    let (reason, message) = progress.words();
    Summary::reconciling(reason, message).write(&mut decision.status, generation, now);
    decision.status.set_teardown(progress.record.clone());
    decision.notes = progress.notes();
    decision.next = progress.next.into();
    decision.release = progress.state == TeardownState::Released;
    (decision, progress)
}
