//! The rules that apply to every kind, and their order.

use serde_json::json;

use crate::common::{object, subject, yaml};

#[test]
fn an_object_being_deleted_is_terminating_whatever_else_its_status_says() {
    let verdict = object("widget")
        .but("metadata: {deletionTimestamp: '2026-08-01T11:59:00Z', generation: 9, finalizers: [example.com/cleanup]}")
        .condition("Stalled", "True", "Broken")
        .is_terminating();
    assert!(verdict.message.contains("example.com/cleanup"), "{verdict:?}");
}

#[test]
fn a_generation_that_was_not_observed_is_in_progress_even_if_ready_and_stalled() {
    object("widget")
        .but("metadata: {generation: 3}")
        .condition("Stalled", "True", "Broken")
        .is_in_progress("GenerationNotObserved");
}

#[test]
fn a_kind_without_observed_generation_skips_that_rule() {
    object("widget").but("status: {observedGeneration: null}").is_ready("WidgetReady");
}

#[test]
fn reconciling_comes_before_stalled_and_ready() {
    object("widget")
        .condition("Reconciling", "True", "NewSpec")
        .condition("Stalled", "True", "Broken")
        .is_in_progress("NewSpec");
}

#[test]
fn stalled_is_failed_even_if_ready_still_says_true() {
    let verdict = object("widget")
        .full_condition(
            json!({"type": "Stalled", "status": "True", "reason": "InvalidSize", "message": "size must be even"}),
        )
        .has_failed("InvalidSize");
    assert!(verdict.message.contains("Widget shop/small"), "{verdict:?}");
    assert!(verdict.message.contains("size must be even"), "{verdict:?}");
}

#[test]
fn stalled_and_reconciling_count_only_when_true() {
    object("widget")
        .condition("Reconciling", "False", "Done")
        .condition("Stalled", "Unknown", "Whatever")
        .is_ready("WidgetReady");
}

#[test]
fn ready_false_is_in_progress_with_its_own_reason_because_controllers_retry() {
    object("widget").condition("Ready", "False", "WaitingForDisk").is_in_progress("WaitingForDisk");
}

#[test]
fn ready_unknown_is_in_progress() {
    object("widget").condition("Ready", "Unknown", "Progressing").is_in_progress("Progressing");
}

#[test]
fn a_ready_condition_whose_own_observed_generation_lags_does_not_count() {
    object("widget")
        .but("status: {observedGeneration: null}")
        .full_condition(json!({"type": "Ready", "status": "True", "observedGeneration": 1}))
        .is_in_progress("ConditionOutdated");
    object("widget")
        .full_condition(json!({"type": "Ready", "status": "True", "observedGeneration": 2}))
        .is_ready("Ready");
}

#[test]
fn a_stalled_condition_whose_own_observed_generation_lags_does_not_count() {
    object("widget")
        .full_condition(json!({"type": "Stalled", "status": "True", "observedGeneration": 1}))
        .is_ready("WidgetReady");
}

#[test]
fn a_custom_resource_without_status_is_not_ready() {
    let verdict = object("widget").but("status: null").is_in_progress("NoStatusYet");
    assert!(verdict.message.contains("controller"), "{verdict:?}");
    assert_eq!(verdict.recheck_at, None);
}

#[test]
fn an_empty_status_says_as_little_as_none() {
    object("widget").but("status: null").but("status: {}").is_in_progress("NoStatusYet");
    object("widget").but("status: {observedGeneration: null, conditions: []}").is_in_progress("NoStatusYet");
}

#[test]
fn a_custom_resource_whose_kind_has_no_status_is_ready_by_existing() {
    object("widget").but("status: null").options(|options| options.status_expected = false).is_ready("Exists");
}

#[test]
fn a_custom_resource_under_k8s_io_is_still_a_custom_resource() {
    subject(yaml("{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge}}"))
        .is_in_progress("NoStatusYet");
}

#[test]
fn a_custom_resource_with_a_status_but_no_ready_condition_is_ready_as_in_kstatus() {
    object("widget").but("status: {conditions: [], colour: red}").is_ready("NoReadyCondition");
}

#[test]
fn a_certificate_is_not_ready_before_its_first_ready_condition() {
    object("certificate").is_ready("Ready");
    object("certificate")
        .without_condition("Ready")
        .condition("Issuing", "True", "DoesNotExist")
        .is_in_progress("ReadyNotReported");
}

#[test]
fn built_in_kinds_without_a_readiness_of_their_own_are_ready_by_existing() {
    object("configmap").is_ready("Exists");
    for (version, kind) in [
        ("v1", "Secret"),
        ("v1", "ServiceAccount"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("storage.k8s.io/v1", "StorageClass"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ] {
        subject(json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}})).is_ready("Exists");
    }
}

#[test]
fn a_built_in_kind_with_a_ready_condition_is_judged_by_it() {
    let node = yaml(
        "{apiVersion: v1, kind: Node, metadata: {name: worker-1}, status: {conditions: [{type: Ready, status: 'False', reason: KubeletNotReady}]}}",
    );
    subject(node).is_in_progress("KubeletNotReady");
}

#[test]
fn an_object_without_api_version_or_kind_is_never_ready() {
    subject(json!({})).is_in_progress("UnknownKind");
    object("configmap").but("kind: null").is_in_progress("UnknownKind");
    object("configmap").but("apiVersion: null").is_in_progress("UnknownKind");
}

#[test]
fn a_reason_that_no_condition_may_carry_is_replaced() {
    for reason in ["still waiting!", "Waiting:", "2Late", ""] {
        object("widget").condition("Ready", "False", reason).is_in_progress("NotReady");
    }
}

#[test]
fn a_long_message_of_a_controller_is_shortened() {
    let verdict = object("widget")
        .full_condition(json!({"type": "Ready", "status": "False", "message": "ä".repeat(100_000)}))
        .is_in_progress("NotReady");
    assert!(verdict.message.chars().count() < 1200, "{}", verdict.message.len());
}
