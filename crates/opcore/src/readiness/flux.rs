//! Flux: Kustomization, HelmRelease and the sources they are made from.

use super::view::{Condition, View};
use super::{Case, Readiness, says_ready};

/// Asks a Flux controller to reconcile at once; it confirms in `status.lastHandledReconcileAt`.
const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// A Helm repository of type `oci` is only an address: no controller ever writes its status.
pub(super) fn never_reconciled(case: &Case<'_>) -> Option<Readiness> {
    let object = case.object;
    is_mere_address(object).then(|| {
        Readiness::ready(
            "Exists",
            format!("{object} exists; an OCI repository is not reconciled and reports no readiness."),
        )
    })
}

pub(super) fn is_mere_address(object: View<'_>) -> bool {
    object.group() == Some("source.toolkit.fluxcd.io")
        && object.kind() == Some("HelmRepository")
        && object.text("spec.type") == Some("oci")
}

/// While an object is suspended, only a person or a gate moves it on; if it was ready, it stays ready.
pub(super) fn suspended(case: &Case<'_>) -> Option<Readiness> {
    let object = case.object;
    if !object.group()?.ends_with(".toolkit.fluxcd.io") || !object.is("spec.suspend") {
        return None;
    }
    let decided = object.holds("Stalled") || (object.holds("Ready") && is_observed(object));
    (!decided).then(|| Readiness::in_progress("Suspended", format!("{object} is suspended and not ready; resume it.")))
}

/// A reconcile was requested, and the status is still that of the one before.
pub(super) fn reconcile_requested(case: &Case<'_>) -> Option<Readiness> {
    let object = case.object;
    if !is_applier(object) || object.is("spec.suspend") {
        return None;
    }
    let requested = object.annotation(REQUESTED_AT)?;
    (object.text("status.lastHandledReconcileAt") != Some(requested)).then(|| {
        Readiness::in_progress(
            "ReconcileRequested",
            format!("{object} was requested to reconcile and has not done so yet."),
        )
    })
}

/// At each interval a Kustomization changes to `Ready=Unknown` and `Reconciling` while it applies again what already
/// exists. It counts as ready during that: otherwise everything that depends on it would stop and start at each
/// interval.
pub(super) fn periodic_run(case: &Case<'_>) -> Option<Readiness> {
    let object = case.object;
    if object.kind()? != "Kustomization" || !is_applier(object) {
        return None;
    }
    let ready = object.current("Ready")?;
    if ready.is_true() || ready.is_false() {
        return None;
    }
    let applied = object.text("status.lastAppliedRevision")?;
    let holds = object.text("status.lastAttemptedRevision") == Some(applied)
        && is_observed(object)
        && runs_only(object, applied)
        && was_healthy(object);
    holds.then(|| Readiness::ready("AppliedRevisionHolds", format!("{object} is applying its current revision again.")))
}

/// `lastAttemptedRevision` is set only after the fetch; until then, only the message of `Reconciling` names a new
/// revision.
fn runs_only(object: View<'_>, applied: &str) -> bool {
    object
        .current("Reconciling")
        .and_then(|condition| condition.message)
        .and_then(|message| message.split_once(" revision "))
        .is_none_or(|(_, named)| named.split_whitespace().next() == Some(applied))
}

/// `lastAppliedRevision` stays when the same revision fails later. The history (since Flux 2.7) says how the last run
/// ended, the condition `Healthy` how the last health check ended.
fn was_healthy(object: View<'_>) -> bool {
    let ended_well = object
        .list("status.history")
        .first()
        .and_then(|last| View::of(last).text("lastReconciledStatus"))
        .is_none_or(|status| status == "ReconciliationSucceeded");
    let healthy = !object.current("Healthy").as_ref().is_some_and(Condition::is_false);
    ended_well && healthy
}

pub(super) fn reconciled(case: &Case<'_>) -> Readiness {
    let object = case.object;
    // The CRDs default it to -1, so without it no controller has created the status yet.
    if object.observed_generation().is_none() {
        return Readiness::in_progress(
            "GenerationNotObserved",
            format!("{object} has not been observed by its controller yet."),
        );
    }
    says_ready(case)
}

fn is_observed(object: View<'_>) -> bool {
    let observed = object.observed_generation();
    observed.is_some() && observed == object.generation()
}

fn is_applier(object: View<'_>) -> bool {
    matches!(
        (object.group(), object.kind()),
        (Some("kustomize.toolkit.fluxcd.io"), Some("Kustomization"))
            | (Some("helm.toolkit.fluxcd.io"), Some("HelmRelease"))
    )
}
