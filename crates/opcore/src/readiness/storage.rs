//! PersistentVolumeClaim and PersistentVolume.

use super::view::{fact, quoted, shortened};
use super::{Case, Readiness};

/// Set once a pod that uses the claim has a node: from then on, the claim will be bound.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

pub(super) fn claim(case: &Case<'_>) -> Readiness {
    let object = case.object;
    match object.text("status.phase") {
        Some("Bound") => Readiness::ready("Bound", format!("{object} is bound.")),
        Some("Lost") => Readiness::failed(
            "Lost",
            format!("{object} has lost its volume with the data on it; restore the data from a backup."),
        ),
        _ if case.options.claim_waits_for_consumer && object.annotation(SELECTED_NODE).is_none() => {
            Readiness::ready("WaitsForFirstConsumer", format!("{object} binds as soon as a pod uses it."))
        }
        _ => Readiness::in_progress(
            "NotBound",
            format!(
                "{object} is not bound yet; if its StorageClass binds on first consumer, a pod that uses it must start first."
            ),
        ),
    }
}

pub(super) fn volume(case: &Case<'_>) -> Readiness {
    let object = case.object;
    match object.text("status.phase") {
        Some(phase @ ("Available" | "Bound" | "Released")) => {
            Readiness::ready(phase, format!("{object} is {}.", phase.to_lowercase()))
        }
        Some("Failed") => Readiness::failed(
            fact(object.text("status.reason"), "VolumeFailed"),
            format!("{object} could not be reclaimed{}", quoted(object.text("status.message"))),
        ),
        phase => Readiness::in_progress(
            "VolumePending",
            format!("{object} is not available yet; its phase is {}.", shortened(phase.unwrap_or("not reported"), 64)),
        ),
    }
}
