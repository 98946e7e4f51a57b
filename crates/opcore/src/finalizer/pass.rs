//! An object's way through the state machine: the same for every operator.

use jiff::Timestamp;
use kube::core::object::HasStatus;

use super::{GraphError, Phase, Progress, StepStatus, Teardown, TeardownRecord, TeardownState};
use crate::conditions::{Conditions, Summary, whole_milliseconds};
use crate::operator::{Decision, Reconciled};
use crate::writes::Write;

/// What is decided for an object on its way through the state machine: nothing is written for it before its finalizer is
/// there, and the finalizer goes when nothing is left. None: it is on its way out, and is held by others only.
///
/// `active` decides for an object that is to be kept as its spec asks, `terminating` for one that is being deleted.
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
            // What nothing is written for needs nothing taken down, and can be deleted while this operator is away.
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

/// A status that records how far a teardown is.
pub trait TakenDown: Conditions {
    /// How far it was published to be.
    fn teardown(&self) -> Option<&TeardownRecord>;
    /// Records how far it is.
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

/// Takes the teardown of an object one pass further: advances its steps, records and tells how far they are, and releases
/// the object when all are over. What is to be written for the steps that act is the operator's to add, as is whatever
/// else its status says.
///
/// `status` is what is to be published; what was published before is read from the object.
///
/// # Guarantees
///
/// Those of [`Teardown::advance`]. A graph that is none is told in the status, and nothing is released.
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
