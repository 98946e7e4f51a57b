//! Hands that play kubelet, storage and SPIRE where there is no node: real controllers create the pods, and these hands
//! do with them what a node would.
//!
//! As on a node, a pod with a volume of the CSI driver cannot end while no pod of the driver is there, and a driver is
//! registered as long as its pod runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::CSINode;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use lifecycle_operator::render;
use lifecycle_operator::volume::report::{Outcome, Report};
use opcore_testing::proxy::Answer;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The node that there is not.
pub const NODE: &str = "hands";
/// A storage class that there is not.
pub const MISSING_CLASS: &str = "missing";
/// The name of the CSI driver.
const DRIVER: &str = "csi.spiffe.io";

/// What is on the volumes, and what the server knows: what outlives pods.
#[derive(Debug, Default)]
pub struct World {
    /// The trust domain of the data on the server's volume; none while it is empty.
    pub data: Option<String>,
    /// The backups, by name: the trust domain of each.
    pub backups: BTreeMap<String, String>,
    /// The agents that the server knows.
    pub agents: BTreeSet<String>,
    /// How Jobs on the volume end, instead of well.
    pub fails: Option<String>,
    /// Whether pods of the server stay unready.
    pub unready: bool,
    /// How long a pod takes to end.
    pub slow: Duration,
    /// How long all of them took so far, one after another.
    pub slept: Duration,
    /// What happened, in order, in words.
    pub journal: Vec<String>,
}

/// The hands at work.
pub struct Hands {
    pub world: Arc<Mutex<World>>,
    task: JoinHandle<()>,
}

impl Drop for Hands {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hands {
    /// Brings a node into being, and does its work from now on, for operands in this namespace.
    pub async fn start(client: &Client, namespace: &str) -> Self {
        node(client).await;
        let world = Arc::<Mutex<World>>::default();
        let task = tokio::spawn(work(client.clone(), world.clone(), namespace.to_owned()));
        Self { world, task }
    }

    /// Does what the server does when it is told something.
    pub fn told(&self) -> impl FnMut(&str, &str, &[String]) -> Answer + Send + 'static {
        let world = self.world.clone();
        move |_, _, command| {
            let mut world = world.lock().unwrap();
            let words: Vec<&str> = command.iter().skip(1).map(String::as_str).collect();
            match words.as_slice() {
                ["agent", "list", ..] => {
                    let agents: Vec<Value> = world.agents.iter().map(|id| as_printed(id)).collect();
                    Answer { stdout: json!({ "agents": agents }).to_string(), ..Answer::default() }
                }
                ["agent", "evict", "-spiffeID", id] => {
                    let known = world.agents.remove(*id);
                    world.journal.push(format!("evicted {id}"));
                    Answer { exit: i32::from(!known), ..Answer::default() }
                }
                other => Answer { exit: 1, stderr: format!("{other:?} is unknown"), ..Answer::default() },
            }
        }
    }

    /// What happened, in order.
    pub fn journal(&self) -> Vec<String> {
        self.world.lock().unwrap().journal.clone()
    }
}

/// An agent as SPIRE prints it.
fn as_printed(id: &str) -> Value {
    let (trust_domain, path) = id.trim_start_matches("spiffe://").split_once('/').unwrap();
    json!({ "id": { "trust_domain": trust_domain, "path": format!("/{path}") }, "attestation_type": "k8s_psat" })
}

/// A node that is ready, and stays so.
async fn node(client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
    nodes.patch(NODE, &PatchParams::apply("hands").force(), &Patch::Apply(&node)).await.unwrap();
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap();
    let status = json!({ "status": {
        "capacity": { "cpu": "64", "memory": "64Gi", "pods": "200" },
        "allocatable": { "cpu": "64", "memory": "64Gi", "pods": "200" },
        "conditions": [{ "type": "Ready", "status": "True", "reason": "Hands", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now }],
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
    }});
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let untaint = json!({ "spec": { "taints": null } });
    nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(&untaint)).await.unwrap();
    let csi: Api<CSINode> = Api::all(client.clone());
    let registered = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": NODE }, "spec": { "drivers": [] } });
    csi.patch(NODE, &PatchParams::apply("hands").force(), &Patch::Apply(&registered)).await.unwrap();
}

async fn work(client: Client, world: Arc<Mutex<World>>, namespace: String) {
    let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).touched_objects();
    let claims =
        watcher(Api::<PersistentVolumeClaim>::all(client.clone()), watcher::Config::default()).touched_objects();
    let (mut pods, mut claims) = (std::pin::pin!(pods), std::pin::pin!(claims));
    let mut heart = tokio::time::interval(BEAT);
    loop {
        tokio::select! {
            _ = heart.tick() => {
                beat(&client).await;
                continue;
            }
            Some(Ok(_)) = pods.next() => {}
            Some(Ok(claim)) = claims.next() => bind(&client, &claim).await,
        }
        // What one pod does may let another go on: all are looked at.
        let all = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await.unwrap().items;
        let (left, all): (Vec<_>, Vec<_>) = all.into_iter().partition(|pod| is_left(pod, &namespace));
        for pod in left.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            end(&client, pod).await;
        }
        register(&client, &all).await;
        for pod in &all {
            play(&client, &world, pod, &all).await;
        }
    }
}

/// How often a node says that it lives.
const BEAT: Duration = Duration::from_secs(10);

/// Without it the node counts as lost, and its pods as not ready.
async fn beat(client: &Client) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": NODE },
        "spec": { "holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": now },
    });
    let _ = leases.patch(NODE, &PatchParams::apply("hands").force(), &Patch::Apply(&lease)).await;
}

/// Whether a pod was left by an earlier test: an operand's, in another namespace.
fn is_left(pod: &Pod, namespace: &str) -> bool {
    !component(pod).is_empty() && pod.namespace().is_some_and(|its| its != namespace)
}

async fn end(client: &Client, pod: &Pod) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
    let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
}

/// Storage: each claim gets a volume.
async fn bind(client: &Client, claim: &PersistentVolumeClaim) {
    let spec = claim.spec.as_ref().unwrap();
    let is_provisioned = spec.storage_class_name.as_deref() != Some(MISSING_CLASS);
    if spec.volume_name.is_some() || claim.metadata.deletion_timestamp.is_some() || !is_provisioned {
        return;
    }
    let name = format!("pv-{}", claim.uid().unwrap());
    let volume = json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": spec.resources.as_ref().unwrap().requests,
            "accessModes": spec.access_modes,
            "storageClassName": spec.storage_class_name.clone().unwrap_or_default(),
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": { "path": "/nowhere" },
            "claimRef": { "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid() },
        },
    });
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let _ = volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await;
}

fn component(pod: &Pod) -> &str {
    pod.labels().get(render::COMPONENT_LABEL).map_or("", String::as_str)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn uses_driver(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| volume.csi.as_ref()).any(|csi| csi.driver == DRIVER)
}

/// The driver is registered as long as its pod runs.
async fn register(client: &Client, pods: &[Pod]) {
    let runs = pods.iter().any(|pod| component(pod) == render::csi::COMPONENT && is_ready(pod));
    let csi: Api<CSINode> = Api::all(client.clone());
    let node = csi.get(NODE).await.unwrap();
    if runs != node.spec.drivers.iter().any(|driver| driver.name == DRIVER) {
        let drivers = if runs { json!([{ "name": DRIVER, "nodeID": NODE }]) } else { json!([]) };
        let patch = json!({ "spec": { "drivers": drivers } });
        csi.patch(NODE, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
}

/// Does with a pod what a node would.
async fn play(client: &Client, world: &Arc<Mutex<World>>, pod: &Pod, all: &[Pod]) {
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap());
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    if pod.metadata.deletion_timestamp.is_some() {
        let driver_is_there = all.iter().any(|other| component(other) == render::csi::COMPONENT && is_ready(other));
        if uses_driver(pod) && !driver_is_there {
            return;
        }
        let slow = world.lock().unwrap().slow;
        if !slow.is_zero() {
            tokio::time::sleep(slow).await;
            world.lock().unwrap().slept += slow;
        }
        // First the journal: whoever sees that it is gone must find it there.
        world.lock().unwrap().journal.push(format!("{} ended", called(pod)));
        end(client, pod).await;
        return;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).is_none()
        || matches!(phase, Some("Succeeded" | "Failed"))
    {
        return;
    }
    if component(pod) == render::volume::COMPONENT {
        let report = volume(world, pod);
        let failed = report.result.exit_code() != 0;
        let _ =
            patch(&pods, &name, if failed { "Failed" } else { "Succeeded" }, &containers(pod, Some((&report, failed))))
                .await;
        return;
    }
    let is_server = component(pod) == render::server::COMPONENT;
    if is_ready(pod) || (is_server && world.lock().unwrap().unready) {
        return;
    }
    if is_server {
        publish_bundle(client, world, &namespace).await;
    }
    if component(pod) == render::agent::COMPONENT {
        let mut world = world.lock().unwrap();
        if let Some(domain) = world.data.clone() {
            world.agents.insert(format!("spiffe://{domain}/spire/agent/k8s_psat/c/{}", pod.uid().unwrap()));
        }
    }
    if patch(&pods, &name, "Running", &containers(pod, None)).await {
        world.lock().unwrap().journal.push(format!("{} ready", called(pod)));
    }
}

/// What the journal calls a pod.
fn called(pod: &Pod) -> String {
    if component(pod).is_empty() { pod.name_any() } else { component(pod).to_owned() }
}

async fn patch(pods: &Api<Pod>, name: &str, phase: &str, containers: &Value) -> bool {
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap();
    let ready = if phase == "Running" { "True" } else { "False" };
    let condition = |kind: &str| json!({ "type": kind, "status": ready, "lastTransitionTime": now });
    let status = json!({ "status": {
        "phase": phase, "podIP": "127.0.0.1", "hostIP": "127.0.0.1",
        "conditions": [condition("Ready"), condition("ContainersReady"), json!({ "type": "Initialized", "status": "True", "lastTransitionTime": now })],
        "containerStatuses": containers,
    }});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.is_ok()
}

fn containers(pod: &Pod, ended: Option<(&Report, bool)>) -> Value {
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap();
    let state = match ended {
        None => json!({ "running": { "startedAt": now } }),
        Some((report, failed)) => json!({ "terminated": {
            "exitCode": i32::from(failed), "startedAt": now, "finishedAt": now, "message": report.to_json(),
            "reason": if failed { "Error" } else { "Completed" },
        }}),
    };
    let all = pod.spec.iter().flat_map(|spec| &spec.containers);
    all.map(|container| {
        json!({
            "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
            "ready": ended.is_none(), "started": ended.is_none(), "state": state,
        })
    })
    .collect()
}

/// The server publishes its trust bundle, and writes its data.
async fn publish_bundle(client: &Client, world: &Arc<Mutex<World>>, namespace: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let all = maps.list(&ListParams::default()).await.unwrap();
    let config = all.iter().find_map(|map| map.data.as_ref()?.get("server.conf").cloned()).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    let domain = config["server"]["trust_domain"].as_str().unwrap().to_owned();
    let bundle = find(&config, "config_map").or_else(|| find(&config, "configmap_name")).unwrap();
    world.lock().unwrap().data = Some(domain.clone());
    let patch = json!({ "data": { "bundle.crt": format!("the bundle of {domain}") } });
    let _ = maps.patch(&bundle, &PatchParams::default(), &Patch::Merge(&patch)).await;
}

/// The first value of a key, however deep.
fn find(value: &Value, key: &str) -> Option<String> {
    match value {
        Value::Object(fields) => match fields.get(key).and_then(Value::as_str) {
            Some(found) => Some(found.to_owned()),
            None => fields.values().find_map(|value| find(value, key)),
        },
        Value::Array(values) => values.iter().find_map(|value| find(value, key)),
        _ => None,
    }
}

/// `spire-volume`, on a volume that is a word.
fn volume(world: &Arc<Mutex<World>>, pod: &Pod) -> Report {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let words: Vec<&str> =
        container.command.iter().flatten().chain(container.args.iter().flatten()).map(String::as_str).collect();
    let after = |flag: &str| {
        let at = words.iter().position(|word| *word == flag).unwrap_or_else(|| panic!("{flag} is not among {words:?}"));
        words[at + 1].to_owned()
    };
    let mut world = world.lock().unwrap();
    if let Some(why) = &world.fails {
        return Report::new(Outcome::Failed, why);
    }
    let report = |outcome, name: &str, domain: &str| Report {
        name: Some(name.to_owned()),
        files: Some(2),
        bytes: Some(4096),
        manifest_sha256: Some("5".repeat(64)),
        taken_at: Some(jiff::Timestamp::now()),
        about: BTreeMap::from([("trustDomain".to_owned(), domain.to_owned())]),
        ..Report::new(outcome, format!("{outcome:?} {name}."))
    };
    let done = if words.contains(&"backup") {
        let name = after("--name");
        match world.data.clone() {
            None => report(Outcome::Empty, &name, ""),
            Some(domain) => {
                world.backups.insert(name.clone(), domain.clone());
                report(Outcome::BackedUp, &name, &domain)
            }
        }
    } else if words.contains(&"restore") {
        let asked = after("--name");
        let name = if asked == "latest" { world.backups.keys().next_back().cloned().unwrap() } else { asked };
        match (world.data.clone(), world.backups.get(&name).cloned()) {
            (_, None) => Report::new(Outcome::Failed, format!("There is no backup {name}.")),
            (Some(_), _) => Report::new(Outcome::Occupied, "The volume holds data."),
            (None, Some(domain)) => {
                world.data = Some(domain.clone());
                report(Outcome::Restored, &name, &domain)
            }
        }
    } else if words.contains(&"clear") {
        let name = after("--backup");
        assert!(world.backups.contains_key(&name), "what is not backed up is not cleared");
        world.data = None;
        report(Outcome::Cleared, &name, "")
    } else {
        panic!("{words:?} is no command of spire-volume")
    };
    let line = format!("{:?}", done.result);
    world.journal.push(line);
    done
}
