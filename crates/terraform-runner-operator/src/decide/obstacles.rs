//! What stands in the way of a run: what it depends on, the lock of the state, and others whose turn it is.

use jiff::Timestamp;
use opcore::Write;
use opcore::annotations;
use opcore::conditions::Summary;
use opcore::writes::{Delete, Dependants};

use super::next_run::{Assessment, NextRun};
use crate::api::v1alpha1::{Action, LockStatus, TerraformWorkspace, UNLOCK_ANNOTATION, WorkspacePhase};
use crate::observe::{LockSeen, Observed};

/// Something that stands in the way of a run.
pub(super) struct Obstacle {
    /// What is told of it.
    pub assessment: Assessment,
    /// Who holds the lock, if that is it.
    pub lock: Option<LockStatus>,
    /// The request by which the lock is taken away.
    pub unlocked: Option<String>,
    /// What helps against it.
    pub write: Option<Write>,
    /// Whether it is that others have all turns.
    pub queued: bool,
}

impl Obstacle {
    fn new(assessment: Assessment) -> Self {
        Self { assessment, lock: None, unlocked: None, write: None, queued: false }
    }
}

/// What stands in the way of a run, if anything does.
pub(super) fn obstacle(
    workspace: &TerraformWorkspace,
    seen: &Observed,
    next_run: &NextRun,
    now: Timestamp,
) -> Option<Obstacle> {
    // What is applied stays ready, and can be compared and destroyed, whatever becomes of what it depends on.
    if !seen.waits_for.is_empty() && matches!(next_run.action, Action::Plan | Action::Apply) {
        return Some(Obstacle::new(Assessment::waiting(seen)));
    }
    // A comparison takes no lock.
    if let Some(lock) = seen.lock.as_ref().filter(|_| next_run.action != Action::Check) {
        return Some(locked(workspace, lock, now));
    }
    (!seen.turn).then(|| {
        let summary = Summary::reconciling(
            "WaitingForTurn",
            "As many runs as may are under way, in all namespaces or in this one; this one is queued.",
        );
        Obstacle { queued: true, ..Obstacle::new(Assessment::new(WorkspacePhase::Pending, summary)) }
    })
}

/// A lock is taken away when its holder is gone and its time is up, or when a person says so.
fn locked(workspace: &TerraformWorkspace, lock: &LockSeen, now: Timestamp) -> Obstacle {
    let handled = workspace.status.as_ref().and_then(|status| status.handled.unlock.as_deref());
    // A request names the very lock, or its holder, whose next lock then needs another request.
    let request = annotations::value(workspace, UNLOCK_ANNOTATION);
    let names_lock = lock.since.is_some() && request == Some(&lock.words());
    let asked = names_lock || (request == Some(&lock.holder) && request != handled);
    let expired = lock.expires_at.is_some_and(|at| at <= now);
    let abandoned = expired && !lock.is_alive;
    let delete = || Delete {
        target: lock.target.clone(),
        // Whoever renews or takes it in this moment keeps it.
        resource_version: lock.version.clone(),
        dependants: Dependants::Background,
    };
    let message = if lock.is_alive || !expired {
        format!(
            "{} holds the lock of the state. If nobody works on it any more, take it away: opctl tf unlock {}.",
            lock.holder,
            kube::ResourceExt::name_any(workspace)
        )
    } else {
        format!("{} held the lock of the state and is gone: it is taken away.", lock.holder)
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
