//! What can prevent a run: its dependencies, the lock of the state, and other workspaces that have all turns.

use jiff::Timestamp;
use opcore::Write;
use opcore::annotations;
use opcore::conditions::Summary;
use opcore::writes::{Delete, Dependants};

use super::next_run::{Assessment, NextRun};
use crate::api::v1alpha1::{Action, LockStatus, TerraformWorkspace, UNLOCK_ANNOTATION, WorkspacePhase};
use crate::observe::{Observed, ObservedLock};

/// Something that prevents a run.
pub(super) struct Obstacle {
    /// How it is reported.
    pub assessment: Assessment,
    /// The holder of the lock, if that is the obstacle.
    pub lock: Option<LockStatus>,
    /// The request that removes the lock.
    pub unlocked: Option<String>,
    /// The write that removes the obstacle.
    pub write: Option<Write>,
    /// Whether the obstacle is that other workspaces have all turns.
    pub queued: bool,
}

impl Obstacle {
    fn new(assessment: Assessment) -> Self {
        Self { assessment, lock: None, unlocked: None, write: None, queued: false }
    }
}

/// The obstacle to a run, if there is one.
pub(super) fn obstacle(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    next_run: &NextRun,
    now: Timestamp,
) -> Option<Obstacle> {
    // What is applied stays ready, and can be compared and destroyed, whatever happens to its dependencies.
    if !observed.waits_for.is_empty() && matches!(next_run.action, Action::Plan | Action::Apply) {
        return Some(Obstacle::new(Assessment::waiting(observed)));
    }
    // A comparison does not take the lock.
    if let Some(lock) = observed.lock.as_ref().filter(|_| next_run.action != Action::Check) {
        return Some(locked(workspace, lock, now));
    }
    (!observed.turn).then(|| {
        let summary = Summary::reconciling(
            "WaitingForTurn",
            "The maximum number of runs is in progress, in all namespaces or in this one. The run of this workspace is queued.",
        );
        Obstacle { queued: true, ..Obstacle::new(Assessment::new(WorkspacePhase::Pending, summary)) }
    })
}

/// A lock is removed when its holder is gone and it has expired, or when a person requests it.
fn locked(workspace: &TerraformWorkspace, lock: &ObservedLock, now: Timestamp) -> Obstacle {
    let handled = workspace.status.as_ref().and_then(|status| status.handled.unlock.as_deref());
    // A request names exactly this lock, or its holder; the holder's next lock then needs another request.
    let request = annotations::value(workspace, UNLOCK_ANNOTATION);
    let names_lock = lock.since.is_some() && request == Some(&lock.words());
    let asked = names_lock || (request == Some(&lock.holder) && request != handled);
    let expired = lock.expires_at.is_some_and(|at| at <= now);
    let abandoned = expired && !lock.is_alive;
    let delete = || Delete {
        target: lock.target.clone(),
        // If a pod renews or takes the lock at this moment, it keeps it.
        resource_version: lock.version.clone(),
        dependants: Dependants::Background,
    };
    let message = if lock.is_alive || !expired {
        format!(
            "{} holds the lock of the state. If it is no longer in use, remove it: opctl tf unlock {}.",
            lock.holder,
            kube::ResourceExt::name_any(workspace)
        )
    } else {
        format!("{} held the lock of the state and no longer exists. The lock is being removed.", lock.holder)
    };
    Obstacle {
        assessment: Assessment::new(WorkspacePhase::Pending, Summary::reconciling("StateLocked", message))
            .until(lock.expires_at.filter(|at| *at > now)),
        lock: Some(LockStatus { holder: lock.holder.clone(), since: lock.since }),
        unlocked: request.filter(|_| asked).map(str::to_owned),
        write: (asked || abandoned).then(|| Write::Delete(delete())),
        queued: false,
    }
}
