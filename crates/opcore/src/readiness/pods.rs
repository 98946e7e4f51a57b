//! Pod and Job: workloads that run, and may end.

use serde_json::Value;

use super::view::{Condition, View, fact, quoted, shortened};
use super::{Case, Readiness};

pub(super) fn job(case: &Case<'_>) -> Readiness {
    let object = case.object;
    if object.holds("Complete") {
        return Readiness::ready("Complete", format!("{object} has completed."));
    }
    if let Some(failed) = object.current("Failed").filter(Condition::is_true) {
        return Readiness::failed(
            failed.reason_or("JobFailed"),
            format!("{object} has failed; a Job does not run again, so delete and recreate it{}", failed.words()),
        );
    }
    // The spec is checked too: right after a resume, the condition is still the old one.
    if object.is("spec.suspend") {
        return if object.holds("Suspended") {
            Readiness::ready("Suspended", format!("{object} is suspended, as requested."))
        } else {
            Readiness::in_progress(
                "Suspending",
                format!("{object} is being suspended; its pods are still terminating."),
            )
        };
    }
    // Both are set while pods are still ending; only Complete and Failed are final.
    for (kind, outcome) in [("SuccessCriteriaMet", "succeed"), ("FailureTarget", "fail")] {
        if object.holds(kind) {
            return Readiness::in_progress(
                kind,
                format!("{object} is about to {outcome}; its pods are still terminating."),
            );
        }
    }
    if object.text("status.startTime").is_none() {
        return Readiness::in_progress("NotStarted", format!("{object} has not started yet."));
    }
    let count = |path| object.int(path).unwrap_or(0);
    Readiness::in_progress(
        "Running",
        format!(
            "{object} is running: {} pods active, {} succeeded, {} failed.",
            count("status.active"),
            count("status.succeeded"),
            count("status.failed")
        ),
    )
}

pub(super) fn pod(case: &Case<'_>) -> Readiness {
    let object = case.object;
    match object.text("status.phase") {
        Some("Succeeded") => Readiness::ready("Succeeded", format!("{object} has completed successfully.")),
        // kstatus reports this phase as current, but the pod will never run again.
        Some("Failed") => Readiness::failed(
            fact(object.text("status.reason"), "PodFailed"),
            format!("{object} has failed{}", quoted(object.text("status.message"))),
        ),
        Some("Running") if object.holds("Ready") => {
            Readiness::ready("PodReady", format!("{object} is running and ready."))
        }
        Some("Running") => waiting_container(case).unwrap_or_else(|| {
            Readiness::in_progress("PodNotReady", format!("{object} is running, but not ready yet."))
        }),
        Some("Pending") => not_scheduled(case)
            .or_else(|| waiting_container(case))
            .unwrap_or_else(|| Readiness::in_progress("PodPending", format!("{object} is about to start."))),
        Some(phase) => Readiness::in_progress(
            "PodPhaseUnknown",
            format!("{object} is in phase {}; its node may be unreachable.", shortened(phase, 64)),
        ),
        None => Readiness::in_progress("PodPending", format!("{object} has no phase yet.")),
    }
}

/// The scheduler found no node. This is tolerated for a while, because a node or a volume may soon be available.
fn not_scheduled(case: &Case<'_>) -> Option<Readiness> {
    let object = case.object;
    let scheduled = object.current("PodScheduled").filter(Condition::is_false)?;
    let words = scheduled.words();
    if scheduled.reason != Some("Unschedulable") {
        return Some(Readiness::in_progress(
            scheduled.reason_or("NotScheduled"),
            format!("{object} has not been scheduled yet{words}"),
        ));
    }
    let waiting = Readiness::in_progress("Unschedulable", format!("{object} does not fit on any node yet{words}"));
    let since = scheduled.changed_at.or_else(|| object.time("metadata.creationTimestamp"));
    let Some(deadline) = since.and_then(|since| since.checked_add(case.options.unschedulable_grace).ok()) else {
        return Some(waiting);
    };
    Some(if case.now < deadline {
        waiting.until(deadline)
    } else {
        Readiness::failed(
            "Unschedulable",
            format!("{object} does not fit on any node; add capacity, or relax its requests and constraints{words}"),
        )
    })
}

/// The first container that waits for a reason such as `ImagePullBackOff`. It counts as in progress: a registry or a
/// dependency may come back, and the caller's timeout decides.
fn waiting_container(case: &Case<'_>) -> Option<Readiness> {
    let object = case.object;
    ["status.initContainerStatuses", "status.containerStatuses"]
        .into_iter()
        .flat_map(|path| object.list(path))
        .find_map(|status: &Value| {
            let status = View::of(status);
            let reason = status.text("state.waiting.reason")?;
            if matches!(reason, "ContainerCreating" | "PodInitializing") {
                return None;
            }
            Some(Readiness::in_progress(
                fact(Some(reason), "ContainerWaiting"),
                format!(
                    "Container {} of {object} waits in {}{}",
                    shortened(status.text("name").unwrap_or("without name"), 64),
                    shortened(reason, 64),
                    quoted(status.text("state.waiting.message"))
                ),
            ))
        })
}
