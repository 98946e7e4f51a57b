//! Kustomization, HelmRelease and Flux sources.

use serde_json::json;

use crate::common::{Subject, object, subject, yaml};

/// A Kustomization during the reconciliation that happens at each interval.
fn in_its_interval() -> Subject {
    object("kustomization")
        .full_condition(json!({"type": "Ready", "status": "Unknown", "observedGeneration": 3, "reason": "Progressing", "message": "Reconciliation in progress"}))
        .full_condition(json!({"type": "Reconciling", "status": "True", "observedGeneration": 3, "reason": "Progressing", "message": "Detecting drift for revision main@sha1:aaaa with a timeout of 9m30s"}))
}

#[test]
fn a_kustomization_and_a_helm_release_are_ready_by_their_condition() {
    object("kustomization").is_ready("ReconciliationSucceeded");
    object("helmrelease").is_ready("UpgradeSucceeded");
}

#[test]
fn the_default_observed_generation_of_minus_one_is_in_progress() {
    for name in ["kustomization", "helmrelease"] {
        object(name)
            .but("status: null")
            .but("status: {observedGeneration: -1}")
            .is_in_progress("GenerationNotObserved");
    }
}

#[test]
fn a_kustomization_or_helm_release_without_observed_generation_is_in_progress() {
    for name in ["kustomization", "helmrelease"] {
        object(name).but("status: {observedGeneration: null}").is_in_progress("GenerationNotObserved");
        object(name).but("status: null").is_in_progress("GenerationNotObserved");
    }
}

#[test]
fn a_helm_release_after_a_change_is_not_ready_by_its_old_status() {
    object("helmrelease").but("metadata: {generation: 6}").is_in_progress("GenerationNotObserved");
}

#[test]
fn a_helm_release_that_is_being_upgraded_is_in_progress() {
    object("helmrelease")
        .condition("Reconciling", "True", "Progressing")
        .condition("Ready", "Unknown", "Progressing")
        .is_in_progress("Progressing");
}

#[test]
fn a_helm_release_that_failed_and_retries_is_in_progress_and_one_out_of_retries_has_failed() {
    let failed = object("helmrelease").condition("Ready", "False", "UpgradeFailed");
    failed.is_in_progress("UpgradeFailed");
    failed.condition("Stalled", "True", "RetriesExceeded").has_failed("RetriesExceeded");
}

#[test]
fn a_kustomization_stays_ready_through_the_run_of_each_interval() {
    in_its_interval().is_ready("AppliedRevisionHolds");
}

#[test]
fn a_kustomization_that_attempts_another_revision_is_in_progress() {
    in_its_interval().but("status: {lastAttemptedRevision: 'main@sha1:bbbb'}").is_in_progress("Progressing");
}

#[test]
fn a_kustomization_that_fetches_another_revision_is_in_progress() {
    in_its_interval()
        .full_condition(json!({"type": "Reconciling", "status": "True", "reason": "Progressing", "message": "Fetching manifests for revision main@sha1:bbbb with a timeout of 9m30s"}))
        .is_in_progress("Progressing");
}

#[test]
fn a_kustomization_whose_last_run_failed_is_not_held_ready() {
    in_its_interval()
        .but("status: {history: [{lastReconciledStatus: HealthCheckFailed}]}")
        .is_in_progress("Progressing");
    in_its_interval()
        .but("status: {history: null}")
        .condition("Healthy", "False", "HealthCheckFailed")
        .is_in_progress("Progressing");
}

#[test]
fn a_kustomization_that_never_applied_anything_is_not_held_ready() {
    in_its_interval().but("status: {lastAppliedRevision: null}").is_in_progress("Progressing");
}

#[test]
fn a_changed_or_never_observed_kustomization_is_not_held_ready() {
    in_its_interval().but("status: {observedGeneration: null}").is_in_progress("Progressing");
    in_its_interval().but("metadata: {generation: 4}").is_in_progress("GenerationNotObserved");
}

#[test]
fn a_kustomization_that_waits_for_a_dependency_is_in_progress_with_that_reason() {
    object("kustomization").condition("Ready", "False", "DependencyNotReady").is_in_progress("DependencyNotReady");
}

#[test]
fn a_requested_reconcile_is_in_progress_until_it_is_handled() {
    for name in ["kustomization", "helmrelease"] {
        let asked =
            object(name).but("metadata: {annotations: {reconcile.fluxcd.io/requestedAt: '2026-08-01T11:59:59Z'}}");
        asked.is_in_progress("ReconcileRequested");
        let handled = asked.but("status: {lastHandledReconcileAt: '2026-08-01T11:59:59Z'}");
        assert!(handled.verdict().is_ready(), "{:?}", handled.verdict());
    }
}

#[test]
fn a_suspended_kustomization_keeps_being_ready_and_otherwise_asks_to_be_resumed() {
    object("kustomization").but("spec: {suspend: true}").is_ready("ReconciliationSucceeded");
    object("kustomization")
        .but("metadata: {generation: 4}\nspec: {suspend: true}")
        .condition("Ready", "True", "ReconciliationSucceeded")
        .is_in_progress("Suspended");
    let gated = object("kustomization").but("spec: {suspend: true}\nstatus: null");
    gated.is_in_progress("Suspended");
    gated.but("status: {observedGeneration: -1}").is_in_progress("Suspended");
}

#[test]
fn a_source_is_ready_only_once_it_says_so() {
    let source = yaml(
        "{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: flux-system, generation: 1}, status: {observedGeneration: 1}}",
    );
    subject(source.clone()).is_in_progress("ReadyNotReported");
    subject(source).condition("Ready", "True", "Succeeded").is_ready("Succeeded");
}

#[test]
fn an_oci_helm_repository_is_ready_by_existing_as_nobody_writes_its_status() {
    subject(yaml("{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmRepository, metadata: {name: charts, generation: 1}, spec: {type: oci, url: 'oci://ghcr.io/charts'}, status: {observedGeneration: -1}}"))
        .is_ready("Exists");
}
