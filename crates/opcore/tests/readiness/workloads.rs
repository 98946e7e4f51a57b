//! Deployment, StatefulSet, DaemonSet, ReplicaSet.

use serde_json::json;

use crate::common::{broken, object};

#[test]
fn a_deployment_is_ready_when_replicas_updated_available_and_ready_equal_its_spec() {
    object("deployment").is_ready("Available");
}

#[test]
fn a_deployment_with_any_count_short_is_in_progress() {
    for (field, reason) in [
        ("replicas", "TooFewReplicas"),
        ("updatedReplicas", "TooFewUpdated"),
        ("availableReplicas", "TooFewAvailable"),
        ("readyReplicas", "TooFewReady"),
    ] {
        object("deployment").but(&format!("status: {{{field}: 2}}")).is_in_progress(reason);
        object("deployment").but(&format!("status: {{{field}: null}}")).is_in_progress(reason);
    }
}

#[test]
fn a_deployment_with_old_pods_left_is_in_progress() {
    object("deployment").but("status: {replicas: 4}").is_in_progress("TooManyReplicas");
}

#[test]
fn a_deployment_whose_new_pods_do_not_come_up_says_so_and_not_that_old_ones_are_leaving() {
    let verdict = broken("deployment-of-one").is_in_progress("NewReplicasNotAvailable");
    assert_eq!(
        verdict.message,
        "Deployment shop/web still has 1 of its 2 replicas from before its last change, because 1 is not available; \
         check its newest pods: ReplicaSet \"web-7cf5645bc9\" is progressing."
    );
    let verdict = broken("deployment-of-three").is_in_progress("NewReplicasNotAvailable");
    assert!(verdict.message.contains("still has 3 of its 4 replicas"), "{verdict:?}");
    // It has too few available replicas, which matters more.
    broken("deployment-of-three").but("status: {availableReplicas: 2}").is_in_progress("TooFewUpdated");
    // The new pods are available: the old ones are about to be removed.
    let verdict = broken("deployment-of-one")
        .but("status: {availableReplicas: 2, readyReplicas: 2, unavailableReplicas: null}")
        .is_in_progress("TooManyReplicas");
    assert!(verdict.message.ends_with("the others are being removed."), "{verdict:?}");
    // The pods may not even be created.
    broken("deployment-of-one").condition("ReplicaFailure", "True", "FailedCreate").is_in_progress("FailedCreate");
}

#[test]
fn a_deployment_is_in_progress_until_its_new_replica_set_is_reported_available() {
    object("deployment").condition("Progressing", "True", "ReplicaSetUpdated").is_in_progress("RolloutNotFinished");
}

#[test]
fn a_deployment_without_a_progress_deadline_reports_no_progress_and_needs_none() {
    for deadline in ["null", "2147483647"] {
        object("deployment")
            .but(&format!("spec: {{progressDeadlineSeconds: {deadline}}}"))
            .without_condition("Progressing")
            .is_ready("Available");
    }
}

#[test]
fn a_deployment_that_does_not_report_available_is_in_progress() {
    object("deployment").condition("Available", "False", "MinimumReplicasUnavailable").is_in_progress("NotAvailable");
}

#[test]
fn a_deployment_past_its_progress_deadline_has_failed() {
    object("deployment")
        .but("status: {updatedReplicas: 1, readyReplicas: 2, availableReplicas: 2}")
        .condition("Progressing", "False", "ProgressDeadlineExceeded")
        .has_failed("ProgressDeadlineExceeded");
}

#[test]
fn a_deadline_exceeded_by_the_former_spec_does_not_fail_the_new_one() {
    object("deployment")
        .but("metadata: {generation: 5}")
        .condition("Progressing", "False", "ProgressDeadlineExceeded")
        .is_in_progress("GenerationNotObserved");
}

#[test]
fn a_slow_deployment_is_not_a_failed_one_and_names_what_keeps_it() {
    let verdict = object("deployment")
        .but("status: {replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}")
        .full_condition(json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: compute"}))
        .is_in_progress("FailedCreate");
    assert!(verdict.message.contains("exceeded quota"), "{verdict:?}");
}

#[test]
fn a_paused_deployment_with_its_newest_pods_in_place_is_ready() {
    object("deployment")
        .but("spec: {paused: true}")
        .condition("Progressing", "Unknown", "DeploymentPaused")
        .is_ready("Available");
}

#[test]
fn a_deployment_paused_before_its_update_waits_for_someone_to_resume_it() {
    let verdict = object("deployment")
        .but("spec: {paused: true}\nstatus: {updatedReplicas: 0}")
        .condition("Progressing", "Unknown", "DeploymentPaused")
        .is_in_progress("Paused");
    assert!(verdict.message.contains("resume"), "{verdict:?}");
}

#[test]
fn a_deployment_of_no_replicas_is_ready_once_its_controller_has_observed_it() {
    let none = object("deployment")
        .but("spec: {replicas: 0}\nstatus: {replicas: 0, updatedReplicas: 0, readyReplicas: 0, availableReplicas: 0}");
    none.is_ready("Available");
    none.but("status: null").is_in_progress("GenerationNotObserved");
}

#[test]
fn a_deployment_without_replicas_in_its_spec_wants_one() {
    object("deployment")
        .but(
            "spec: {replicas: null}\nstatus: {replicas: 0, updatedReplicas: 0, readyReplicas: 0, availableReplicas: 0}",
        )
        .is_in_progress("TooFewReplicas");
}

#[test]
fn a_stateful_set_is_ready_when_all_its_pods_are_ready_at_one_revision() {
    object("statefulset").is_ready("RolloutFinished");
    object("statefulset").but("spec: {updateStrategy: null}").is_ready("RolloutFinished");
}

#[test]
fn a_stateful_set_with_too_few_ready_pods_is_in_progress() {
    object("statefulset").but("status: {readyReplicas: 2}").is_in_progress("TooFewReady");
    object("statefulset").but("status: {replicas: 1, readyReplicas: 1}").is_in_progress("TooFewReplicas");
    object("statefulset").but("status: {availableReplicas: 2}").is_in_progress("TooFewAvailable");
    object("statefulset").but("status: {replicas: 4}").is_in_progress("TooManyReplicas");
}

#[test]
fn a_stateful_set_between_two_revisions_is_in_progress() {
    object("statefulset")
        .but("status: {updateRevision: queue-9a9a, updatedReplicas: 2}")
        .is_in_progress("RolloutNotFinished");
}

#[test]
fn a_stateful_set_with_a_partition_needs_only_the_pods_above_it_updated() {
    let partitioned = object("statefulset").but(
        "spec: {updateStrategy: {rollingUpdate: {partition: 2}}}\nstatus: {updateRevision: queue-9a9a, updatedReplicas: 1}",
    );
    partitioned.is_ready("PartitionUpdated");
    partitioned.but("status: {updatedReplicas: 0}").is_in_progress("TooFewUpdated");
}

#[test]
fn a_partition_beyond_all_replicas_asks_for_no_update() {
    let verdict = object("statefulset")
        .but("spec: {updateStrategy: {rollingUpdate: {partition: 100}}}\nstatus: {updateRevision: queue-9a9a, updatedReplicas: 0}")
        .is_ready("PartitionUpdated");
    assert!(verdict.message.contains("0 of them"), "{verdict:?}");
}

#[test]
fn a_stateful_set_updated_on_delete_is_ready_with_old_pods_but_not_without_ready_ones() {
    let on_delete = object("statefulset").but(
        "spec: {updateStrategy: {type: OnDelete, rollingUpdate: null}}\nstatus: {updateRevision: queue-9a9a, updatedReplicas: 0}",
    );
    on_delete.is_ready("UpdatesOnDelete");
    on_delete.but("status: {readyReplicas: 0}").is_in_progress("TooFewReady");
}

#[test]
fn a_stateful_set_of_no_replicas_is_not_ready_before_its_controller_has_observed_it() {
    object("statefulset").but("spec: {replicas: 0}\nstatus: null").is_in_progress("GenerationNotObserved");
}

#[test]
fn a_daemon_set_is_ready_when_updated_available_and_ready_reach_the_desired_number() {
    object("daemonset").is_ready("Available");
    for (field, reason) in [
        ("currentNumberScheduled", "TooFewScheduled"),
        ("updatedNumberScheduled", "TooFewUpdated"),
        ("numberAvailable", "TooFewAvailable"),
        ("numberReady", "TooFewReady"),
    ] {
        object("daemonset").but(&format!("status: {{{field}: 4}}")).is_in_progress(reason);
    }
}

#[test]
fn a_daemon_set_needs_both_generations() {
    object("daemonset").but("metadata: {generation: null}").is_in_progress("NoGeneration");
    object("daemonset").but("status: {observedGeneration: null}").is_in_progress("GenerationNotObserved");
}

#[test]
fn a_daemon_set_that_has_not_counted_its_nodes_is_in_progress() {
    object("daemonset").but("status: {desiredNumberScheduled: null}").is_in_progress("NoDesiredNumber");
}

#[test]
fn a_daemon_set_that_no_node_matches_is_ready() {
    object("daemonset")
        .but("status: {desiredNumberScheduled: 0, currentNumberScheduled: 0, updatedNumberScheduled: null, numberAvailable: null, numberReady: 0}")
        .is_ready("Available");
}

#[test]
fn a_daemon_set_updated_on_delete_does_not_wait_for_old_pods_to_go() {
    object("daemonset")
        .but("spec: {updateStrategy: {type: OnDelete}}\nstatus: {updatedNumberScheduled: 1}")
        .is_ready("Available");
}

#[test]
fn a_replica_set_is_ready_when_labelled_available_and_ready_equal_its_spec() {
    object("replicaset").is_ready("Available");
    for (field, reason) in [
        ("fullyLabeledReplicas", "TooFewLabelled"),
        ("availableReplicas", "TooFewAvailable"),
        ("readyReplicas", "TooFewReady"),
    ] {
        object("replicaset").but(&format!("status: {{{field}: 1}}")).is_in_progress(reason);
    }
    object("replicaset").but("status: {replicas: 3}").is_in_progress("TooManyReplicas");
    object("replicaset").condition("ReplicaFailure", "True", "FailedDelete").is_in_progress("FailedDelete");
}

#[test]
fn a_replication_controller_follows_the_rules_of_a_replica_set() {
    object("replicaset")
        .but("{apiVersion: v1, kind: ReplicationController, status: {readyReplicas: 1}}")
        .is_in_progress("TooFewReady");
}
