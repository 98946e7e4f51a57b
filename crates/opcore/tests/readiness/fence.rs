//! After a write, an object is neither ready nor failed because of its status from before the write.

use std::time::Duration;

use opcore::readiness::{Fence, SETTLE};
use serde_json::Value;

use crate::common::{Subject, at, object, subject, yaml};

const APPLIED: &str = "2026-08-01T12:00:00.5Z";
const SOON: &str = "2026-08-01T12:00:02Z";
const SETTLED: &str = "2026-08-01T12:00:10.5Z";

/// The fixture as the API server returned it for our write, and the fence of that write.
fn written(name: &str) -> (Subject, Fence) {
    let before = object(name);
    let after = before.clone().but(
        "metadata:\n  resourceVersion: '1001'\n  generation: 3\n  managedFields:\n  - {manager: wave-orchestrator, operation: Apply, time: '2026-08-01T12:00:00Z'}\n  - {manager: manager, operation: Update, subresource: status, time: '2026-08-01T08:05:00Z'}",
    );
    let fence = fence(Some(&before.object), &after.object).expect("a write that changed something");
    (after.now(SOON), fence)
}

fn fence(before: Option<&Value>, after: &Value) -> Option<Fence> {
    Fence::after(before, after, at(APPLIED), SETTLE)
}

fn fenced(subject: Subject, fence: &Fence) -> Subject {
    let fence = fence.clone();
    subject.options(|options| options.fence = Some(fence))
}

#[test]
fn without_observed_generation_an_old_ready_does_not_count_until_the_settle_window_ends() {
    let (cluster, fence) = written("cluster");
    let cluster = fenced(cluster, &fence);
    let verdict = cluster.is_in_progress("StatusNotRenewed");
    assert_eq!(verdict.recheck_at, Some(at(SETTLED)));
    assert_eq!(fence.settles_at(), at(SETTLED));
    let settled = cluster.now(SETTLED).is_ready("ClusterIsReady");
    assert_eq!(settled.recheck_at, None);
}

#[test]
fn an_old_failure_does_not_count_either_as_the_write_may_have_fixed_it() {
    let broken = object("cluster").but("status: {phase: Cluster is unrecoverable and needs manual intervention}");
    let corrected = broken.clone().but("metadata: {resourceVersion: '1001', generation: 3}");
    let fence = fence(Some(&broken.object), &corrected.object).expect("a change");
    let corrected = fenced(corrected, &fence);
    corrected.clone().now(SOON).is_in_progress("StatusNotRenewed");
    corrected.now(SETTLED).has_failed("Unrecoverable");
}

#[test]
fn a_status_written_after_ours_counts_at_once() {
    let (cluster, fence) = written("cluster");
    fenced(cluster.but("metadata: {resourceVersion: '1002'}\nstatus: {currentPrimary: orders-2}"), &fence)
        .is_ready("ClusterIsReady");
}

#[test]
fn a_later_write_that_left_the_status_alone_proves_nothing() {
    let (cluster, fence) = written("cluster");
    fenced(cluster.but("metadata: {resourceVersion: '1002', labels: {team: orders}}"), &fence)
        .is_in_progress("StatusNotRenewed");
}

#[test]
fn a_status_mark_later_than_our_write_counts_where_nothing_else_is_known() {
    let (cluster, mut fence) = written("cluster");
    fence.status_digest = None;
    fence.resource_version = None;
    let renewed = |time: &str| {
        cluster.clone().but(&format!(
            "metadata:\n  managedFields:\n  - {{manager: manager, operation: Update, subresource: status, time: '{time}'}}"
        ))
    };
    fenced(renewed("2026-08-01T12:00:01Z"), &fence).is_ready("ClusterIsReady");
    // The same second as our write: the status may be older.
    fenced(renewed("2026-08-01T12:00:00Z"), &fence).is_in_progress("StatusNotRenewed");
}

#[test]
fn a_condition_that_changed_after_our_write_counts_where_nothing_else_is_known() {
    let (cluster, mut fence) = written("cluster");
    fence.status_digest = None;
    let flipped = cluster.but("metadata: {managedFields: null}").full_condition(
        serde_json::json!({"type": "Ready", "status": "True", "reason": "ClusterIsReady", "lastTransitionTime": "2026-08-01T12:00:01Z"}),
    );
    fenced(flipped, &fence).is_ready("ClusterIsReady");
}

#[test]
fn a_controller_whose_clock_is_ahead_does_not_make_an_old_status_look_new() {
    let before = object("cluster").full_condition(
        serde_json::json!({"type": "Ready", "status": "True", "reason": "ClusterIsReady", "lastTransitionTime": "2026-08-01T12:05:00Z"}),
    );
    let after = before.clone().but("metadata: {resourceVersion: '1001', generation: 3}");
    let fence = fence(Some(&before.object), &after.object).expect("a change");
    fenced(after.now(SOON), &fence).is_in_progress("StatusNotRenewed");
}

#[test]
fn a_view_from_before_our_write_counts_for_nothing() {
    for name in ["cluster", "widget", "deployment"] {
        let before = object(name).but("metadata: {uid: a1, resourceVersion: '1000'}");
        let after = before.clone().but("metadata: {resourceVersion: '1001', generation: 9}");
        let fence = fence(Some(&before.object), &after.object).expect("a change");
        let verdict = fenced(before, &fence).is_in_progress("OutdatedView");
        assert_eq!(verdict.recheck_at, None, "an event brings it up to date");
    }
}

#[test]
fn a_view_from_before_our_write_is_detected_by_generation_where_versions_do_not_compare() {
    let before = object("cluster").but("metadata: {resourceVersion: abc}");
    let after = before.clone().but("metadata: {resourceVersion: abd, generation: 3}");
    let fence = fence(Some(&before.object), &after.object).expect("a change");
    fenced(before.now(SETTLED), &fence).is_in_progress("OutdatedView");
}

#[test]
fn a_view_of_the_object_we_replaced_is_outdated_even_if_it_says_terminating() {
    let old = object("cluster").but("metadata: {deletionTimestamp: '2026-08-01T11:59:00Z'}");
    let new = object("cluster").but("metadata: {uid: 77aa, resourceVersion: '1001'}\nstatus: null");
    let fence = fence(Some(&old.object), &new.object).expect("another object");
    fenced(old, &fence).is_in_progress("OutdatedView");
}

#[test]
fn an_object_recreated_after_our_write_is_judged_by_its_own_status() {
    let (cluster, fence) = written("cluster");
    fenced(cluster.but("metadata: {uid: 77aa, resourceVersion: '1002'}"), &fence).is_ready("ClusterIsReady");
}

#[test]
fn a_created_object_is_ready_with_its_first_status() {
    let created = object("cluster").but("status: null\nmetadata: {managedFields: null}");
    let fence = fence(None, &created.object).expect("a new object");
    fenced(created, &fence).now(SOON).is_in_progress("NotHealthy");
    let observed = object("cluster").but("metadata: {resourceVersion: '1002'}");
    fenced(observed, &fence).now(SOON).is_ready("ClusterIsReady");
}

#[test]
fn a_write_that_changed_nothing_makes_no_fence() {
    let cluster = object("cluster");
    assert_eq!(fence(Some(&cluster.object), &cluster.object), None);
}

#[test]
fn kinds_that_report_their_generation_need_not_settle() {
    for name in ["widget", "deployment", "kustomization", "certificate", "externalsecret"] {
        let subject = object(name).but("metadata: {uid: a1, resourceVersion: '1001'}");
        let fence = fence(None, &subject.object).expect("a change");
        let verdict = fenced(subject, &fence).now(SOON).verdict();
        assert!(verdict.is_ready(), "{name}: {verdict:?}");
    }
}

#[test]
fn an_external_secret_that_syncs_only_once_is_fenced_like_the_others() {
    let secret = object("externalsecret")
        .but("metadata: {uid: a1, resourceVersion: '1001', generation: 9}\nspec: {refreshPolicy: CreatedOnce}");
    let fence = fence(None, &secret.object).expect("a change");
    fenced(secret, &fence).now(SOON).is_in_progress("StatusNotRenewed");
}

#[test]
fn kinds_without_a_controller_need_not_settle() {
    for name in ["configmap", "service", "ingress", "namespace", "persistentvolumeclaim", "pod"] {
        let subject = object(name).but("metadata: {uid: a1, resourceVersion: '1001'}");
        let fence = fence(None, &subject.object).expect("a change");
        let verdict = fenced(subject, &fence).now(SOON).verdict();
        assert!(verdict.is_ready(), "{name}: {verdict:?}");
    }
    let plain = object("widget").but("metadata: {resourceVersion: '1001'}\nstatus: null");
    let fence = fence(None, &plain.object).expect("a change");
    fenced(plain, &fence).options(|options| options.status_expected = false).now(SOON).is_ready("Exists");
}

#[test]
fn an_api_service_reports_no_generation_and_is_fenced() {
    let service = object("apiservice").but("metadata: {resourceVersion: '1001'}");
    let fence = fence(None, &service.object).expect("a change");
    fenced(service, &fence).now(SOON).is_in_progress("StatusNotRenewed");
}

#[test]
fn a_fence_keeps_the_verdicts_that_are_not_about_to_let_anyone_go_on() {
    let (cluster, fence) = written("cluster");
    let verdict = fenced(cluster.but("status: {phase: Failing over}"), &fence).is_in_progress("NotHealthy");
    assert_eq!(verdict.recheck_at, None);
}

#[test]
fn a_settle_window_beyond_the_end_of_time_is_no_accident() {
    let cluster = object("cluster");
    let fence = Fence::after(None, &cluster.object, at(APPLIED), Duration::MAX).expect("a fence");
    assert_eq!(fence.settles_at(), jiff::Timestamp::MAX);
    fenced(cluster, &fence).is_in_progress("StatusNotRenewed");
}

#[test]
fn an_oci_helm_repository_need_not_settle_as_nobody_writes_its_status() {
    let repository = subject(yaml(
        "{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmRepository, metadata: {name: charts, generation: 1, resourceVersion: '7'}, spec: {type: oci}, status: {observedGeneration: -1}}",
    ));
    let fence = fence(None, &repository.object).expect("a change");
    fenced(repository, &fence).now(SOON).is_ready("Exists");
}

#[test]
fn another_status_proves_nothing_where_it_may_be_an_older_one() {
    let before = object("cluster").but("metadata: {resourceVersion: abc, generation: null}");
    let after = before.clone().but("metadata: {resourceVersion: abd}\nstatus: {currentPrimary: orders-3}");
    let fence = fence(Some(&before.object), &after.object).expect("a change");
    fenced(before.now(SOON), &fence).is_in_progress("StatusNotRenewed");
}
