//! Leader election with real processes: killed, stopped, terminated, and through a restart of the API server.

use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use kube_runtime::{WatchStreamExt, watcher};
use rustix::process::Signal;
use sandbox::{Component, Options, Sandbox};
use serde_json::json;

use crate::process::Process;
use crate::stage::{PATIENCE, Stage, eventually};

const LEASE: &str = "notebook-operator";
/// The shortest lease that can be kept on a busy machine.
const BRIEF: Duration = Duration::from_secs(5);

fn leases(client: &Client, namespace: &str) -> Api<Lease> {
    Api::namespaced(client.clone(), namespace)
}

/// The HOSTNAME of the process that holds the lease.
fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()?.split('_').next()
}

pub async fn led_by(client: &Client, namespace: &str, name: &str) -> Lease {
    eventually(&leases(client, namespace), LEASE, &format!("held by {name}"), |lease| holder(lease) == Some(name)).await
}

pub async fn kubeconfig() -> PathBuf {
    Sandbox::shared().await.unwrap().kubeconfig().to_owned()
}

#[tokio::test]
async fn when_the_leader_is_killed_another_takes_over() {
    let stage = Stage::new("lead").await;
    let kubeconfig = kubeconfig().await;
    let first = Process::start(&kubeconfig, &stage.namespace, "first", BRIEF);
    led_by(&stage.client, &stage.namespace, "first").await;
    let _second = Process::start(&kubeconfig, &stage.namespace, "second", BRIEF);
    stage.write("before", &[("monday", "rain")]).await;
    stage.ready("before").await;
    first.signal(Signal::KILL);
    stage.write("after", &[("monday", "rain")]).await;
    stage.ready("after").await;
    let lease = led_by(&stage.client, &stage.namespace, "second").await;
    assert_eq!(lease.spec.unwrap().lease_transitions, Some(2));
}

#[tokio::test]
async fn a_leader_that_was_stopped_past_its_lease_ends_before_it_acts_again() {
    let stage = Stage::new("lead").await;
    let kubeconfig = kubeconfig().await;
    let mut first = Process::start(&kubeconfig, &stage.namespace, "first", BRIEF);
    led_by(&stage.client, &stage.namespace, "first").await;
    let _second = Process::start(&kubeconfig, &stage.namespace, "second", BRIEF);
    first.signal(Signal::STOP);
    stage.write("diary", &[("monday", "rain")]).await;
    led_by(&stage.client, &stage.namespace, "second").await;
    let ready = stage.ready("diary").await;
    // The new leader waits for the old one, in case the old one still considers itself the leader.
    let versions: Vec<_> = stage.maps().list(&ListParams::default()).await.unwrap().items;
    first.signal(Signal::CONT);
    let status = first.end().await;
    assert_eq!(status.code(), Some(1), "{}", first.said());
    assert!(first.said().contains("lost the leadership"), "{}", first.said());
    assert_eq!(stage.notebooks().get("diary").await.unwrap().resource_version(), ready.resource_version());
    let now: Vec<_> = stage.maps().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(now, versions, "the old leader wrote after it had lost");
}

#[tokio::test]
async fn a_leader_that_is_asked_to_stop_hands_over_at_once() {
    let stage = Stage::new("lead").await;
    let kubeconfig = kubeconfig().await;
    let mut first = Process::start(&kubeconfig, &stage.namespace, "first", BRIEF);
    led_by(&stage.client, &stage.namespace, "first").await;
    first.signal(Signal::TERM);
    assert!(first.end().await.success(), "{}", first.said());
    let lease = leases(&stage.client, &stage.namespace).get(LEASE).await.unwrap();
    assert_eq!(holder(&lease), None, "the lease was not released");
    let _second = Process::start(&kubeconfig, &stage.namespace, "second", BRIEF);
    led_by(&stage.client, &stage.namespace, "second").await;
}

#[tokio::test]
async fn a_restart_of_the_api_server_changes_no_leader() {
    opcore::client::install_crypto_provider();
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let client = sandbox.client().await.unwrap();
    let namespace = sandbox.namespace("lead").await.unwrap();
    crate::stage::install(&client).await;
    let _first = Process::start(sandbox.kubeconfig(), &namespace, "first", Duration::from_secs(15));
    led_by(&client, &namespace, "first").await;
    let _second = Process::start(sandbox.kubeconfig(), &namespace, "second", Duration::from_secs(15));
    sandbox.restart(Component::ApiServer).await.unwrap();
    let client = sandbox.client().await.unwrap();
    let before = leases(&client, &namespace).get(LEASE).await.unwrap();
    // Renewed after the restart, by the same holder.
    let renewed = eventually(&leases(&client, &namespace), LEASE, "renewed", |lease| {
        lease.resource_version() != before.resource_version()
    })
    .await;
    assert_eq!(holder(&renewed), Some("first"));
    assert_eq!(renewed.spec.unwrap().lease_transitions, Some(1));
}

#[tokio::test]
async fn a_lease_taken_by_force_ends_the_leader() {
    let stage = Stage::new("lead").await;
    let mut first = Process::start(&kubeconfig().await, &stage.namespace, "first", BRIEF);
    led_by(&stage.client, &stage.namespace, "first").await;
    // The leader may renew the lease between our read and our patch; the last writer holds it.
    let steal = json!({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 60}});
    leases(&stage.client, &stage.namespace).patch(LEASE, &PatchParams::default(), &Patch::Merge(&steal)).await.unwrap();
    assert_eq!(first.end().await.code(), Some(1), "{}", first.said());
}

#[tokio::test]
async fn a_standby_writes_nothing_but_watches_the_lease() {
    let stage = Stage::new("lead").await;
    let kubeconfig = kubeconfig().await;
    let _first = Process::start(&kubeconfig, &stage.namespace, "first", BRIEF);
    led_by(&stage.client, &stage.namespace, "first").await;
    let second = Process::start(&kubeconfig, &stage.namespace, "second", BRIEF);
    let changes = watcher(leases(&stage.client, &stage.namespace), watcher::Config::default()).applied_objects();
    let mut changes = std::pin::pin!(changes);
    // Several renewals, all by the first holder.
    for _ in 0..6 {
        let lease = tokio::time::timeout(PATIENCE, changes.next()).await.expect("renewals").unwrap().unwrap();
        assert_eq!(holder(&lease), Some("first"));
    }
    assert!(second.said().contains("standing by") && !second.said().contains("leading"), "{}", second.said());
}
