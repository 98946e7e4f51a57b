//! Pod, Job, CronJob.

use serde_json::json;

use crate::common::{at, object};

#[test]
fn a_job_is_ready_when_complete() {
    object("job").is_ready("Complete");
}

#[test]
fn a_job_that_merely_started_is_in_progress() {
    object("job").but("status: {conditions: [], succeeded: 0, active: 1}").is_in_progress("Running");
    object("job").but("status: {}").but("status: null").is_in_progress("NotStarted");
}

#[test]
fn a_job_that_met_its_success_criteria_is_in_progress_until_its_pods_have_ended() {
    object("job").without_condition("Complete").is_in_progress("SuccessCriteriaMet");
}

#[test]
fn a_failed_job_has_failed_and_names_why() {
    object("job")
        .but("status: {conditions: []}")
        .full_condition(json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}))
        .has_failed("BackoffLimitExceeded");
}

#[test]
fn a_job_with_failed_pods_that_still_retries_has_not_failed() {
    object("job").but("status: {conditions: [], succeeded: 0, active: 1, failed: 3}").is_in_progress("Running");
    object("job")
        .but("status: {conditions: []}")
        .condition("FailureTarget", "True", "BackoffLimitExceeded")
        .is_in_progress("FailureTarget");
}

#[test]
fn a_suspended_job_is_ready_as_that_is_what_was_asked() {
    object("job")
        .but("spec: {suspend: true}\nstatus: {conditions: [], startTime: null}")
        .condition("Suspended", "True", "JobSuspended")
        .is_ready("Suspended");
}

#[test]
fn a_job_just_resumed_is_not_ready_by_its_old_suspension() {
    object("job")
        .but("status: {conditions: []}")
        .condition("Suspended", "True", "JobSuspended")
        .is_in_progress("Running");
}

#[test]
fn a_job_just_suspended_is_in_progress_until_its_controller_says_so() {
    object("job").but("spec: {suspend: true}\nstatus: {conditions: []}").is_in_progress("Suspending");
}

#[test]
fn a_cron_job_is_ready_by_existing() {
    object("cronjob").is_ready("Exists");
}

#[test]
fn a_pod_is_ready_when_running_and_ready() {
    object("pod").is_ready("PodReady");
}

#[test]
fn a_pod_that_succeeded_is_ready() {
    object("pod").but("status: {phase: Succeeded}").condition("Ready", "False", "PodCompleted").is_ready("Succeeded");
}

#[test]
fn a_pod_in_phase_failed_has_failed_although_kstatus_calls_it_current() {
    object("pod").but("status: {phase: Failed}").has_failed("PodFailed");
    let verdict = object("pod")
        .but("status: {phase: Failed, reason: Evicted, message: 'The node was low on resource: memory.'}")
        .has_failed("Evicted");
    assert!(verdict.message.contains("low on resource"), "{verdict:?}");
}

#[test]
fn a_running_pod_that_is_not_ready_is_in_progress() {
    object("pod").condition("Ready", "False", "ContainersNotReady").is_in_progress("PodNotReady");
}

#[test]
fn a_crash_looping_container_is_named_and_in_progress() {
    let verdict = object("pod")
        .condition("Ready", "False", "ContainersNotReady")
        .but("status: {containerStatuses: [{name: app, state: {waiting: {reason: CrashLoopBackOff, message: back-off 40s}}}]}")
        .is_in_progress("CrashLoopBackOff");
    assert!(verdict.message.contains("Container app"), "{verdict:?}");
}

#[test]
fn an_image_that_cannot_be_pulled_is_named_and_in_progress() {
    object("pod")
        .but("status: {phase: Pending, containerStatuses: [{name: app, state: {waiting: {reason: ImagePullBackOff}}}]}")
        .condition("Ready", "False", "ContainersNotReady")
        .is_in_progress("ImagePullBackOff");
}

#[test]
fn a_waiting_init_container_is_named_before_the_containers_that_wait_for_it() {
    object("pod")
        .but("status:\n  phase: Pending\n  initContainerStatuses: [{name: init, state: {waiting: {reason: ErrImagePull}}}]\n  containerStatuses: [{name: app, state: {waiting: {reason: PodInitializing}}}]")
        .is_in_progress("ErrImagePull");
}

#[test]
fn a_pod_whose_containers_are_being_created_is_merely_pending() {
    object("pod")
        .but(
            "status: {phase: Pending, containerStatuses: [{name: app, state: {waiting: {reason: ContainerCreating}}}]}",
        )
        .is_in_progress("PodPending");
    object("pod").but("status: null").is_in_progress("PodPending");
}

#[test]
fn an_unschedulable_pod_fails_after_fifteen_seconds_and_says_when() {
    let pod =
        object("pod").but("status: {phase: Pending, containerStatuses: null, conditions: []}").full_condition(json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient cpu.",
            "lastTransitionTime": "2026-08-01T12:00:00Z",
        }));
    let waiting = pod.clone().now("2026-08-01T12:00:14Z").is_in_progress("Unschedulable");
    assert_eq!(waiting.recheck_at, Some(at("2026-08-01T12:00:15Z")));
    let failed = pod.clone().now("2026-08-01T12:00:15Z").has_failed("Unschedulable");
    assert_eq!(failed.recheck_at, None);
    assert!(failed.message.contains("Insufficient cpu"), "{failed:?}");
    pod.options(|options| options.unschedulable_grace = std::time::Duration::from_mins(5))
        .now("2026-08-01T12:00:15Z")
        .is_in_progress("Unschedulable");
}

#[test]
fn the_grace_of_an_unschedulable_pod_starts_with_its_creation_if_nothing_else_is_known() {
    let pod = object("pod").but("status: {phase: Pending, containerStatuses: null, conditions: []}").condition(
        "PodScheduled",
        "False",
        "Unschedulable",
    );
    pod.has_failed("Unschedulable");
    let timeless = pod.but("metadata: {creationTimestamp: null}").is_in_progress("Unschedulable");
    assert_eq!(timeless.recheck_at, None);
}

#[test]
fn a_pod_behind_a_scheduling_gate_is_in_progress() {
    object("pod")
        .but("status: {phase: Pending, containerStatuses: null}")
        .condition("PodScheduled", "False", "SchedulingGated")
        .is_in_progress("SchedulingGated");
}

#[test]
fn a_pod_on_an_unreachable_node_is_in_progress() {
    object("pod").but("status: {phase: Unknown}").is_in_progress("PodPhaseUnknown");
}
