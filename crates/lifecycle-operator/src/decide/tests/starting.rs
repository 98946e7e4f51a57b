//! Critical path 1: server ready, trust bundle there, agents, CSI driver, OIDC provider.

use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use opcore::Write;
use serde_json::json;

use super::{BUNDLE, at, cluster, decider, deleting, ready, said};
use crate::api::v1alpha1::OperandKind::{self, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer};
use crate::decide::gate;

/// The workload of an operand other than the server, with this image.
fn workload(image: &str) -> Vec<Write> {
    let workload = json!({
        "metadata": { "name": "w", "namespace": "spire" },
        "spec": { "selector": {}, "template": { "spec": { "containers": [{ "name": "c", "image": image }] } } },
    });
    let workload: DaemonSet = serde_json::from_value(workload).unwrap();
    vec![Write::apply(&workload).unwrap()]
}

/// The same in the cluster.
fn running(image: &str) -> String {
    format!(
        "---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{ name: w, namespace: spire }}
spec: {{ selector: {{}}, template: {{ spec: {{ containers: [{{ name: c, image: '{image}' }}] }} }} }}
"
    )
}

/// The reason why an operand does not start.
fn waits(kind: OperandKind, yaml: &str) -> Option<&'static str> {
    let decider = decider();
    gate::wait(kind, &workload("v1"), &cluster(yaml), &decider.settings, at(0)).map(|wait| wait.reason)
}

#[test]
fn the_server_waits_for_nothing() {
    let server: StatefulSet = serde_json::from_value(json!({ "metadata": { "name": "spire-server" } })).unwrap();
    let server = [Write::apply(&server).unwrap()];
    assert_eq!(gate::wait(SpireServer, &server, &cluster(""), &decider().settings, at(0)), None);
}

#[test]
fn an_agent_waits_for_the_server_then_for_the_trust_bundle_and_then_starts() {
    assert_eq!(waits(SpireAgent, BUNDLE), Some("WaitingForServer"));
    let starting = said(SpireServer, "False", "InProgress", "It starts.");
    assert_eq!(waits(SpireAgent, &(starting + BUNDLE)), Some("WaitingForServer"));
    assert_eq!(waits(SpireAgent, &(deleting(SpireServer) + BUNDLE)), Some("WaitingForServer"));
    assert_eq!(waits(SpireAgent, &ready(&[SpireServer])), Some("WaitingForBundle"));
    let empty = BUNDLE.replace("a certificate", "' '");
    assert_eq!(waits(SpireAgent, &(ready(&[SpireServer]) + &empty)), Some("WaitingForBundle"));
    assert_eq!(waits(SpireAgent, &(ready(&[SpireServer]) + BUNDLE)), None);
}

#[test]
fn the_driver_waits_for_the_agents_and_the_provider_for_the_driver() {
    assert_eq!(waits(SpiffeCSIDriver, &ready(&[SpireServer])), Some("WaitingForAgent"));
    assert_eq!(waits(SpiffeCSIDriver, &ready(&[SpireAgent])), None);
    assert_eq!(waits(SpireOIDCDiscoveryProvider, &ready(&[SpireServer, SpireAgent])), Some("WaitingForDriver"));
    assert_eq!(waits(SpireOIDCDiscoveryProvider, &ready(&[SpiffeCSIDriver])), None);
}

#[test]
fn a_server_that_was_ready_for_an_earlier_spec_is_not_ready() {
    let stale = ready(&[SpireServer]).replace("  generation: 1", "  generation: 2");
    assert_eq!(waits(SpireAgent, &(stale + BUNDLE)), Some("WaitingForServer"));
}

#[test]
fn the_message_says_what_is_waited_for_and_why() {
    let starting = said(SpireServer, "False", "InProgress", "It starts.");
    let wait = gate::wait(SpireAgent, &workload("v1"), &cluster(&starting), &decider().settings, at(0)).unwrap();
    assert_eq!(wait.message, "SpireServer cluster must be ready first: It starts.");
}

#[test]
fn what_runs_is_never_stopped_because_something_before_it_is_not_ready() {
    let unready = said(SpireServer, "False", "InProgress", "It starts.");
    for kind in [SpireAgent, SpiffeCSIDriver, SpireOIDCDiscoveryProvider] {
        assert_eq!(waits(kind, &(unready.clone() + &running("v1"))), None, "{kind}");
        assert_eq!(waits(kind, &running("v1")), None, "{kind}");
    }
}

#[test]
fn a_workload_that_is_being_deleted_starts_anew_in_its_turn() {
    let going = running("v1").replace("{ name: w,", "{ name: w, deletionTimestamp: '2027-01-15T08:00:00Z',");
    assert_eq!(waits(SpireAgent, &going), Some("WaitingForServer"));
}

/// The server with this image, and whether its pod is ready.
fn server(image: &str, ready: u8) -> String {
    format!(
        "---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{ name: spire-server, namespace: spire, generation: 2 }}
spec: {{ replicas: 1, serviceName: x, selector: {{}}, template: {{ spec: {{ containers: [{{ name: spire-server, image: '{image}' }}] }} }} }}
status: {{ observedGeneration: 2, replicas: 1, readyReplicas: {ready}, updatedReplicas: {ready}, currentReplicas: {ready}, availableReplicas: {ready}, currentRevision: a, updateRevision: a }}
"
    )
}

#[test]
fn a_new_version_waits_until_the_server_has_been_upgraded_and_is_ready() {
    let all = ready(&[SpireServer, SpireAgent]) + &running("v0") + BUNDLE;
    let upgraded = decider().settings.images.server;
    assert_eq!(waits(SpireAgent, &(all.clone() + &server("example.com/server:v0", 1))), Some("WaitingForServer"));
    assert_eq!(waits(SpireAgent, &(all.clone() + &server(&upgraded, 0))), Some("WaitingForServer"));
    assert_eq!(waits(SpireAgent, &(all.clone() + &server(&upgraded, 1))), None);
    assert_eq!(waits(SpiffeCSIDriver, &(all + &server("example.com/server:v0", 1))), Some("WaitingForServer"));
}
