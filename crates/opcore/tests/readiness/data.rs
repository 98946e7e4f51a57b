//! CloudNativePG Cluster and ExternalSecret.

use serde_json::json;

use crate::common::object;

#[test]
fn a_postgres_cluster_is_ready_when_ready_and_in_healthy_phase() {
    object("cluster").is_ready("ClusterIsReady");
}

#[test]
fn neither_the_phase_nor_the_condition_alone_makes_a_postgres_cluster_ready() {
    object("cluster").but("status: {phase: Setting up primary}").is_in_progress("NotHealthy");
    object("cluster").condition("Ready", "False", "ClusterIsNotReady").is_in_progress("ClusterIsNotReady");
    object("cluster").without_condition("Ready").is_in_progress("ReadyNotReported");
    object("cluster").but("status: null").is_in_progress("NotHealthy");
}

#[test]
fn an_unrecoverable_postgres_cluster_has_failed() {
    for phase in [
        "Cluster is unrecoverable and needs manual intervention",
        "Cluster is in an unrecoverable state, needs manual intervention",
        "Cluster cannot execute instance online upgrade due to missing architecture binary",
    ] {
        object("cluster")
            .but(&format!("status: {{phase: \"{phase}\", phaseReason: initdb job failed}}"))
            .condition("Ready", "False", "ClusterIsNotReady")
            .has_failed("Unrecoverable");
    }
}

#[test]
fn a_postgres_cluster_that_lacks_a_plugin_or_an_image_is_slow_not_failed() {
    for phase in [
        "Cluster cannot proceed to reconciliation due to an unknown plugin being required",
        "Cluster has incomplete or invalid image catalog",
        "Unable to create required cluster objects",
        "Failing over",
    ] {
        let verdict = object("cluster").but(&format!("status: {{phase: {phase}}}")).is_in_progress("NotHealthy");
        assert!(verdict.message.contains(phase), "{verdict:?}");
    }
    object("cluster").but("status: {phase: Waiting for user action}").is_in_progress("WaitingForUser");
}

#[test]
fn a_hibernated_postgres_cluster_is_ready_as_that_is_what_was_asked() {
    let asleep = object("cluster")
        .but("metadata: {annotations: {cnpg.io/hibernation: 'on'}}\nstatus: {readyInstances: 0}")
        .condition("Ready", "False", "ClusterIsNotReady");
    asleep.clone().condition("cnpg.io/hibernation", "True", "Hibernated").is_ready("Hibernated");
    asleep.is_in_progress("Hibernating");
    asleep.condition("cnpg.io/hibernation", "False", "DeletingPods").is_in_progress("Hibernating");
}

#[test]
fn a_postgres_cluster_waking_up_is_not_ready_by_its_old_status() {
    object("cluster")
        .but("metadata: {annotations: {cnpg.io/hibernation: 'off'}}")
        .condition("cnpg.io/hibernation", "True", "Rehydration")
        .is_in_progress("WakingUp");
    object("cluster")
        .but("metadata: {annotations: {cnpg.io/hibernation: wrong}}")
        .condition("cnpg.io/hibernation", "False", "WrongAnnotationValue")
        .is_ready("ClusterIsReady");
}

#[test]
fn a_postgres_cluster_scaled_up_a_moment_ago_is_not_ready_by_its_old_status() {
    object("cluster").but("spec: {instances: 5}").is_in_progress("TooFewInstances");
}

#[test]
fn an_external_secret_is_ready_when_synced_at_this_generation() {
    object("externalsecret").is_ready("SecretSynced");
}

#[test]
fn an_external_secret_synced_for_an_older_generation_is_not_ready() {
    object("externalsecret").but("metadata: {generation: 3}").is_in_progress("NotSyncedYet");
    // Only the whole number before the dash counts, not its first digits.
    object("externalsecret").but("metadata: {generation: 22}").is_in_progress("NotSyncedYet");
    for version in ["null", "'2'", "'x-7e1c'", "7"] {
        object("externalsecret")
            .but(&format!("status: {{syncedResourceVersion: {version}}}"))
            .is_in_progress("NotSyncedYet");
    }
}

#[test]
fn an_external_secret_that_cannot_be_synced_is_in_progress_with_its_reason() {
    object("externalsecret")
        .full_condition(json!({"type": "Ready", "status": "False", "reason": "SecretSyncedError", "message": "could not get secret data from provider"}))
        .is_in_progress("SecretSyncedError");
    object("externalsecret").but("status: null").is_in_progress("ReadyNotReported");
}

#[test]
fn an_external_secret_that_syncs_only_once_is_ready_whatever_its_generation() {
    for spec in ["refreshPolicy: CreatedOnce", "refreshInterval: '0'", "refreshInterval: 0h0m0s"] {
        let once = object("externalsecret").but(&format!("metadata: {{generation: 9}}\nspec: {{{spec}}}"));
        once.is_ready("SecretSynced");
    }
    object("externalsecret")
        .but("metadata: {generation: 9}\nspec: {refreshPolicy: OnChange, refreshInterval: '0'}")
        .is_in_progress("NotSyncedYet");
}
