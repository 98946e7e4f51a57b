//! CloudNativePG and External Secrets: kinds whose status contains no generation.

use super::view::{Condition, View, quoted, shortened};
use super::{Case, Readiness, says_ready};

const HIBERNATION: &str = "cnpg.io/hibernation";
const HEALTHY: &str = "Cluster in healthy state";
const WAITING_FOR_USER: &str = "Waiting for user action";
/// CloudNativePG cannot recover from these by itself. Other problems, such as a missing plugin or image catalog, end
/// when the missing thing arrives.
const UNRECOVERABLE: &[&str] = &[
    "Cluster is unrecoverable and needs manual intervention",
    "Cluster is in an unrecoverable state, needs manual intervention",
    "Cluster cannot execute instance online upgrade due to missing architecture binary",
];

pub(super) fn postgres_cluster(case: &Case<'_>) -> Readiness {
    let object = case.object;
    let phase = object.text("status.phase");
    let why = || quoted(object.text("status.phaseReason"));
    if let Some(phase) = phase.filter(|phase| UNRECOVERABLE.contains(phase)) {
        return Readiness::failed("Unrecoverable", format!("{object} needs manual intervention: {phase}{}", why()));
    }
    if let Some(verdict) = hibernation(case) {
        return verdict;
    }
    match phase {
        Some(HEALTHY) => {}
        Some(WAITING_FOR_USER) => {
            return Readiness::in_progress(
                "WaitingForUser",
                format!("{object} has a supervised update and waits for the switchover; promote a replica{}", why()),
            );
        }
        phase => {
            return Readiness::in_progress(
                "NotHealthy",
                format!("{object} is in phase \"{}\"{}", shortened(phase.unwrap_or("not reported"), 128), why()),
            );
        }
    }
    // A status from before a scale-up can be recognized by its number of instances.
    let wanted = object.int("spec.instances").unwrap_or(1);
    let ready = object.int("status.readyInstances").unwrap_or(wanted);
    if ready < wanted {
        return Readiness::in_progress("TooFewInstances", format!("{object} has {ready} of {wanted} instances ready."));
    }
    says_ready(case)
}

/// Hibernation was asked for, like zero replicas of a Deployment. Both the annotation and the condition must say so:
/// only one of them means that the cluster is entering or leaving hibernation.
fn hibernation(case: &Case<'_>) -> Option<Readiness> {
    let object = case.object;
    let asked = object.annotation(HIBERNATION) == Some("on");
    let condition = object.current(HIBERNATION);
    let asleep = condition.as_ref().is_some_and(Condition::is_true);
    match (asked, asleep) {
        (false, false) => None,
        (true, true) => Some(Readiness::ready(
            "Hibernated",
            format!("{object} is hibernated, as requested; it serves no connections."),
        )),
        (true, false) => Some(Readiness::in_progress(
            "Hibernating",
            format!("{object} is being hibernated{}", quoted(condition.and_then(|found| found.message))),
        )),
        (false, true) => Some(Readiness::in_progress("WakingUp", format!("{object} is waking up from hibernation."))),
    }
}

pub(super) fn external_secret(case: &Case<'_>) -> Readiness {
    let object = case.object;
    let verdict = says_ready(case);
    if !verdict.is_ready() || syncs_once(object) {
        return verdict;
    }
    match (synced_generation(object), object.generation()) {
        (_, None) => verdict,
        (Some(synced), Some(generation)) if synced == generation => verdict,
        _ => Readiness::in_progress(
            "NotSyncedYet",
            format!("{object} was synced for an older spec, and its condition Ready still describes that spec."),
        ),
    }
}

/// The generation in `status.syncedResourceVersion`, which reads `GENERATION-HASH`.
pub(super) fn synced_generation(object: View<'_>) -> Option<i64> {
    if object.group() != Some("external-secrets.io") {
        return None;
    }
    let (generation, _) = object.text("status.syncedResourceVersion")?.split_once('-')?;
    generation.parse().ok()
}

/// Whether the secret is synced once and never again, whatever happens to the spec: waiting for it would never end.
fn syncs_once(object: View<'_>) -> bool {
    if object.text("status.syncedResourceVersion").is_none() {
        return false;
    }
    match object.text("spec.refreshPolicy") {
        Some("CreatedOnce") => true,
        Some("OnChange") => false,
        _ => object.text("spec.refreshInterval").is_some_and(|interval| !interval.contains(|c| matches!(c, '1'..='9'))),
    }
}
