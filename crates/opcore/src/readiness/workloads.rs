//! Deployment, StatefulSet, DaemonSet, ReplicaSet: counting replicas.

use super::view::View;
use super::{Case, Readiness};

/// One count that must reach another, in the order in which users want to read them.
struct Count {
    reason: &'static str,
    what: &'static str,
    have: i64,
    want: i64,
}

pub(super) fn deployment(case: &Case<'_>) -> Readiness {
    let object = case.object;
    let progressing = object.current("Progressing");
    if let Some(condition) = &progressing
        && condition.reason == Some("ProgressDeadlineExceeded")
    {
        return Readiness::failed(
            "ProgressDeadlineExceeded",
            format!(
                "{object} made no progress within its progressDeadlineSeconds; check the events of its newest ReplicaSet and pods{}",
                condition.words()
            ),
        );
    }
    if let Some(unseen) = not_observed(case) {
        return unseen;
    }

    let wanted = wanted_replicas(object);
    let have = |path| object.int(path).unwrap_or(0);
    let total = have("status.replicas");
    let updated = have("status.updatedReplicas");
    let paused = object.is("spec.paused");
    if paused && updated < wanted {
        return Readiness::in_progress(
            "Paused",
            format!("{object} is paused with {updated} of {wanted} replicas updated; resume it."),
        );
    }
    let available = have("status.availableReplicas");
    let rolled_out = progressing
        .as_ref()
        .is_some_and(|condition| condition.is_true() && condition.reason == Some("NewReplicaSetAvailable"));
    if !rolled_out && total > wanted && total > updated && total > available && available >= wanted {
        return replica_failure(case).unwrap_or_else(|| stuck(case, total, updated, available));
    }
    let counts = [
        count("TooFewReplicas", "created", total, wanted),
        count("TooFewUpdated", "updated", updated, wanted),
        count("TooFewAvailable", "available", available, wanted),
        count("TooFewReady", "ready", have("status.readyReplicas"), wanted),
    ];
    if let Some(lacking) = lacking(case, &counts).or_else(|| surplus(case, total, wanted)) {
        return lacking;
    }

    // Without a deadline the controller does not report progress; while paused it reports the pause.
    let deadline = object.int("spec.progressDeadlineSeconds");
    let reports_progress = deadline.is_some_and(|seconds| seconds < i64::from(i32::MAX)) && !paused;
    if reports_progress && !rolled_out {
        return Readiness::in_progress(
            "RolloutNotFinished",
            format!("{object} has all replicas, but its newest ReplicaSet is not reported as available yet."),
        );
    }
    if !object.holds("Available") {
        return Readiness::in_progress(
            "NotAvailable",
            format!("{object} has all replicas, but does not report Available yet."),
        );
    }
    Readiness::ready("Available", format!("{object} has all {wanted} replicas updated and available."))
}

pub(super) fn stateful_set(case: &Case<'_>) -> Readiness {
    let object = case.object;
    if let Some(unseen) = not_observed(case) {
        return unseen;
    }
    let wanted = wanted_replicas(object);
    let have = |path| object.int(path).unwrap_or(0);
    let total = have("status.replicas");
    let counts = [
        count("TooFewReplicas", "created", total, wanted),
        count("TooFewReady", "ready", have("status.readyReplicas"), wanted),
        count("TooFewAvailable", "available", object.int("status.availableReplicas").unwrap_or(wanted), wanted),
    ];
    if let Some(lacking) = lacking(case, &counts).or_else(|| surplus(case, total, wanted)) {
        return lacking;
    }

    // kstatus reports such a set as ready without checking it; its pods must still run.
    if updates_on_delete(object) {
        return Readiness::ready(
            "UpdatesOnDelete",
            format!(
                "{object} has all {wanted} replicas ready; pods of an older revision remain until they are deleted."
            ),
        );
    }
    let partition = object.int("spec.updateStrategy.rollingUpdate.partition").unwrap_or(0);
    if partition > 0 {
        let above = wanted.saturating_sub(partition).max(0);
        let updated = [count("TooFewUpdated", "updated above the partition", have("status.updatedReplicas"), above)];
        return lacking(case, &updated).unwrap_or_else(|| {
            Readiness::ready(
                "PartitionUpdated",
                format!(
                    "{object} has all {wanted} replicas ready, {above} of them updated, as its partition requires."
                ),
            )
        });
    }
    let newest = object.text("status.updateRevision");
    if newest.is_none() || newest != object.text("status.currentRevision") {
        return Readiness::in_progress(
            "RolloutNotFinished",
            format!("{object} still has pods of more than one revision."),
        );
    }
    Readiness::ready("RolloutFinished", format!("{object} has all {wanted} replicas ready at one revision."))
}

pub(super) fn daemon_set(case: &Case<'_>) -> Readiness {
    let object = case.object;
    if object.generation().is_none() {
        return Readiness::in_progress(
            "NoGeneration",
            format!("{object} has no generation, so its status cannot be matched to its spec."),
        );
    }
    if let Some(unseen) = not_observed(case) {
        return unseen;
    }
    let Some(wanted) = object.int("status.desiredNumberScheduled") else {
        return Readiness::in_progress(
            "NoDesiredNumber",
            format!("{object} has no desiredNumberScheduled in its status yet."),
        );
    };
    let have = |path| object.int(path).unwrap_or(0);
    let updated = if updates_on_delete(object) { wanted } else { have("status.updatedNumberScheduled") };
    let counts = [
        count("TooFewScheduled", "scheduled", have("status.currentNumberScheduled"), wanted),
        count("TooFewUpdated", "updated", updated, wanted),
        count("TooFewAvailable", "available", have("status.numberAvailable"), wanted),
        count("TooFewReady", "ready", have("status.numberReady"), wanted),
    ];
    lacking(case, &counts).unwrap_or_else(|| {
        Readiness::ready("Available", format!("{object} has a ready pod on all {wanted} nodes it selects."))
    })
}

pub(super) fn replica_set(case: &Case<'_>) -> Readiness {
    let object = case.object;
    if let Some(unseen) = not_observed(case) {
        return unseen;
    }
    let wanted = wanted_replicas(object);
    let have = |path| object.int(path).unwrap_or(0);
    let counts = [
        count("TooFewLabelled", "labelled", have("status.fullyLabeledReplicas"), wanted),
        count("TooFewAvailable", "available", have("status.availableReplicas"), wanted),
        count("TooFewReady", "ready", have("status.readyReplicas"), wanted),
    ];
    lacking(case, &counts)
        .or_else(|| surplus(case, have("status.replicas"), wanted))
        .or_else(|| replica_failure(case))
        .unwrap_or_else(|| Readiness::ready("Available", format!("{object} has all {wanted} replicas available.")))
}

/// Their controllers always write `observedGeneration`. Without this rule, a set with zero replicas would be ready
/// before its controller had seen it.
fn not_observed(case: &Case<'_>) -> Option<Readiness> {
    case.object.observed_generation().is_none().then(|| {
        Readiness::in_progress(
            "GenerationNotObserved",
            format!("{} has not been observed by its controller yet.", case.object),
        )
    })
}

fn wanted_replicas(object: View<'_>) -> i64 {
    object.int("spec.replicas").unwrap_or(1)
}

fn updates_on_delete(object: View<'_>) -> bool {
    object.text("spec.updateStrategy.type") == Some("OnDelete")
}

fn count(reason: &'static str, what: &'static str, have: i64, want: i64) -> Count {
    Count { reason, what, have, want }
}

/// The first count that falls short. If pods cannot even be created, that is the reason to report.
fn lacking(case: &Case<'_>, counts: &[Count]) -> Option<Readiness> {
    let short = counts.iter().find(|count| count.have < count.want)?;
    Some(replica_failure(case).unwrap_or_else(|| {
        Readiness::in_progress(
            short.reason,
            format!("{} has {} of {} replicas {}.", case.object, short.have, short.want, short.what),
        )
    }))
}

/// Old pods are removed as new ones become available: if the new ones do not, a rolling update has more pods than it
/// should.
fn stuck(case: &Case<'_>, total: i64, updated: i64, available: i64) -> Readiness {
    let object = case.object;
    let (old, missing) = (total - updated, total - available);
    let are = if missing == 1 { "is" } else { "are" };
    let words = object.current("Progressing").map_or_else(|| ".".to_owned(), |condition| condition.words());
    Readiness::in_progress(
        "NewReplicasNotAvailable",
        format!(
            "{object} still has {old} of its {total} replicas from before its last change, because {missing} {are} not available; check its newest pods{words}"
        ),
    )
}

fn surplus(case: &Case<'_>, total: i64, wanted: i64) -> Option<Readiness> {
    (total > wanted).then(|| {
        replica_failure(case).unwrap_or_else(|| {
            Readiness::in_progress(
                "TooManyReplicas",
                format!(
                    "{} has {total} replicas, but only {wanted} are desired; the others are being removed.",
                    case.object
                ),
            )
        })
    })
}

/// A quota or an admission rule rejects pods. The controller keeps trying, so this is not a failure yet.
fn replica_failure(case: &Case<'_>) -> Option<Readiness> {
    let condition = case.object.current("ReplicaFailure")?;
    condition.is_true().then(|| {
        Readiness::in_progress(
            condition.reason_or("ReplicaFailure"),
            format!("{} cannot create its pods{}", case.object, condition.words()),
        )
    })
}
