//! PersistentVolumeClaim and PersistentVolume.

use super::view::{fact, quoted, shortened};
use super::{Case, Verdict};

/// Set once a pod that uses the claim has a node: from then on, the claim is going to bind.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

pub(super) fn claim(case: &Case<'_>) -> Verdict {
    let object = case.object;
    match object.text("status.phase") {
        Some("Bound") => Verdict::ready("Bound", format!("{object} is bound.")),
        Some("Lost") => Verdict::failed(
            "Lost",
            format!("{object} has lost its volume, and with it its data; restore it from a backup."),
        ),
        _ if case.options.claim_waits_for_consumer && object.annotation(SELECTED_NODE).is_none() => {
            Verdict::ready("WaitsForFirstConsumer", format!("{object} binds as soon as a pod uses it."))
        }
        _ => Verdict::in_progress(
            "NotBound",
            format!(
                "{object} is not bound yet; if its StorageClass binds on first consumer, a pod that uses it must start first."
            ),
        ),
    }
}

pub(super) fn volume(case: &Case<'_>) -> Verdict {
    let object = case.object;
    match object.text("status.phase") {
        Some(phase @ ("Available" | "Bound" | "Released")) => {
            Verdict::ready(phase, format!("{object} is {}.", phase.to_lowercase()))
        }
        Some("Failed") => Verdict::failed(
            fact(object.text("status.reason"), "VolumeFailed"),
            format!("{object} could not be reclaimed{}", quoted(object.text("status.message"))),
        ),
        phase => Verdict::in_progress(
            "VolumePending",
            format!("{object} is not available yet; its phase is {}.", shortened(phase.unwrap_or("not reported"), 64)),
        ),
    }
}
