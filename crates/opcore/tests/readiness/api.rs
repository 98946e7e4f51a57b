//! CustomResourceDefinition, APIService, Namespace, PodDisruptionBudget, HorizontalPodAutoscaler.

use serde_json::json;

use crate::common::object;

#[test]
fn a_definition_is_ready_when_established() {
    object("customresourcedefinition").is_ready("InitialNamesAccepted");
    object("customresourcedefinition").but("status: null").is_in_progress("EstablishedNotReported");
    object("customresourcedefinition").condition("Established", "False", "Installing").is_in_progress("Installing");
}

#[test]
fn a_definition_whose_names_are_taken_has_failed_even_if_it_was_established_before() {
    let verdict = object("customresourcedefinition")
        .full_condition(json!({"type": "NamesAccepted", "status": "False", "reason": "ShortNamesConflict", "message": "\"wd\" is already in use"}))
        .has_failed("ShortNamesConflict");
    assert!(verdict.message.contains("already in use"), "{verdict:?}");
}

#[test]
fn a_definition_that_cannot_be_established_has_failed() {
    object("customresourcedefinition").condition("Established", "False", "SchemaBroken").has_failed("SchemaBroken");
}

#[test]
fn a_definition_with_new_names_is_in_progress_until_they_are_accepted() {
    object("customresourcedefinition").but("spec: {names: {shortNames: [wd, wdg]}}").is_in_progress("NamesPending");
}

#[test]
fn an_api_service_is_ready_when_available() {
    object("apiservice").is_ready("Passed");
    object("apiservice").condition("Available", "False", "MissingEndpoints").is_in_progress("MissingEndpoints");
    object("apiservice").but("status: null").is_in_progress("AvailableNotReported");
}

#[test]
fn a_namespace_is_ready_by_existing_and_terminating_by_its_phase() {
    object("namespace").is_ready("Active");
    object("namespace").but("status: null").is_ready("Active");
    object("namespace").but("status: {phase: Terminating}").is_terminating();
}

#[test]
fn a_disruption_budget_is_ready_once_computed_even_if_it_allows_no_disruption() {
    object("poddisruptionbudget").is_ready("Computed");
    object("poddisruptionbudget").but("status: null").is_in_progress("GenerationNotObserved");
    object("poddisruptionbudget").condition("DisruptionAllowed", "False", "SyncFailed").is_in_progress("SyncFailed");
}

#[test]
fn an_autoscaler_is_ready_without_metrics_but_not_without_a_target() {
    object("horizontalpodautoscaler").is_ready("Exists");
    object("horizontalpodautoscaler")
        .condition("AbleToScale", "False", "FailedGetScale")
        .is_in_progress("FailedGetScale");
}
