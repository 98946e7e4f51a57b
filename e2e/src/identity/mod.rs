//! The lifecycle-operator: its chart, and what its scenarios share. There is one stack in a cluster, in one namespace.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams, PostParams};
use kube::discovery::verbs;
use kube::{Api, Discovery, Resource, ResourceExt};
use lifecycle_operator::api::v1alpha1::{
    Backup, PLUGIN_NAME, SINGLETON, SpireServer, ZeroTrustWorkloadIdentityManager,
};
use lifecycle_operator::render::COMPONENT_LABEL;
use lifecycle_operator::volume::manifest::Manifest;
use opcore::conditions::{self, Condition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::wait::{PATIENCE, gone, until};
use crate::{Release, Stage};

mod svid;

pub use svid::Svid;

/// Its name, also that of its image and of its release.
pub const OPERATOR: &str = "lifecycle-operator";
/// The program that works on the server's volume.
pub const VOLUME: &str = "spire-volume";
/// Where its chart is.
pub const CHART: &str = "charts/lifecycle-operator";
/// The namespace of the operands.
pub const NAMESPACE: &str = "spire";
/// The trust domain of the scenarios.
pub const TRUST_DOMAIN: &str = "example.org";
/// SPIRE's programs start one after another, each with what the one before it signed.
pub const STACK_PATIENCE: Duration = Duration::from_mins(4);

/// The kinds whose objects belong to the stack, and stay when it is deleted: data, and what the operator needs while it runs.
const KEPT: [&str; 4] = [
    "PersistentVolumeClaim spire-backups",
    "PersistentVolumeClaim spire-data-spire-server-0",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// The values of the chart that name SPIRE's images, and the variables by which the sandbox names them.
const IMAGES: [(&str, &str); 6] = [
    ("spireServer", "OPCORE_IMAGE_SPIRE_SERVER"),
    ("spireAgent", "OPCORE_IMAGE_SPIRE_AGENT"),
    ("oidcDiscoveryProvider", "OPCORE_IMAGE_OIDC_PROVIDER"),
    ("spireControllerManager", "OPCORE_IMAGE_CONTROLLER_MANAGER"),
    ("spiffeCsiDriver", "OPCORE_IMAGE_CSI_DRIVER"),
    ("csiNodeDriverRegistrar", "OPCORE_IMAGE_CSI_REGISTRAR"),
];

/// Installs the operator with SPIRE's images in the node, in a cluster without a stack, and waits until it works.
pub async fn install(stage: &Stage) -> anyhow::Result<Release> {
    let names = stage.images_of("spire").await?;
    let mut images = json!({});
    for (value, variable) in IMAGES {
        // A cluster that is no sandbox pulls those of the chart.
        let Some(image) = names.get(variable) else { continue };
        let (repository, tag) = image.rsplit_once(':').context("an image has a tag")?;
        images[value] = json!({ "repository": repository, "tag": tag });
    }
    install_with(stage, images).await
}

/// Installs it alone, where nobody has built SPIRE: its images are not there, so that no server starts.
pub async fn install_without_spire(stage: &Stage) -> anyhow::Result<Release> {
    let mut images = json!({});
    for (value, _) in IMAGES {
        images[value] = json!({ "repository": "localhost/nobody/nothing", "tag": "none" });
    }
    install_with(stage, images).await
}

async fn install_with(stage: &Stage, mut images: Value) -> anyhow::Result<Release> {
    clear(stage).await?;
    stage.plays_also_in(NAMESPACE);
    let volume = stage.image(VOLUME).await?;
    images["spireVolume"] = json!({ "repository": volume.repository, "tag": volume.tag });
    let values = stage.with_image(OPERATOR, json!({ "operands": { "images": images } })).await?;
    stage.install(OPERATOR, CHART, &values).await
}

/// Removes what an earlier scenario left, which nobody takes down any more: its operator and its kinds are gone.
async fn clear(stage: &Stage) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    if let Some(found) = namespaces.get_opt(NAMESPACE).await? {
        // A pod whose driver went before it would never end by itself.
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::background() };
        api::<Pod>(stage).delete_collection(&now, &ListParams::default()).await?;
        namespaces.delete(NAMESPACE, &DeleteParams::background()).await?;
        gone(&namespaces, NAMESPACE, found.uid().as_deref(), PATIENCE).await?;
    }
    for (api, object) in marked(stage).await? {
        api.delete(&object.name_any(), &DeleteParams::background()).await?;
        gone(&api, &object.name_any(), object.uid().as_deref(), PATIENCE).await?;
    }
    Ok(())
}

/// All objects that carry the operator's marks, of all kinds.
async fn marked(stage: &Stage) -> anyhow::Result<Vec<(Api<DynamicObject>, DynamicObject)>> {
    let mine = ListParams::default().labels(&format!("opcore.dev/operator={OPERATOR}"));
    let mut found = Vec::new();
    let discovery = Discovery::new(stage.client.clone()).run_aggregated().await?;
    let resources = discovery.groups().flat_map(kube::discovery::ApiGroup::recommended_resources);
    for (resource, can) in resources.filter(|(_, can)| can.supports_operation(verbs::DELETE)) {
        if !can.supports_operation(verbs::LIST) {
            continue;
        }
        let all: Api<DynamicObject> = Api::all_with(stage.client.clone(), &resource);
        for object in all.list(&mine).await.with_context(|| format!("cannot list {}", resource.plural))? {
            let api = match object.namespace() {
                Some(namespace) => Api::namespaced_with(stage.client.clone(), &namespace, &resource),
                None => all.clone(),
            };
            let types = object.types.clone().unwrap_or_else(|| kube::api::TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            });
            found.push((api, DynamicObject { types: Some(types), ..object }));
        }
    }
    Ok(found)
}

/// What is left of a stack that was deleted, beside what is meant to stay.
pub async fn orphans(stage: &Stage) -> anyhow::Result<Vec<String>> {
    let names = marked(stage).await?.into_iter().map(|(_, object)| {
        let kind = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
        (format!("{kind} {}", object.name_any()), kind)
    });
    Ok(names
        .filter(|(name, kind)| !KEPT.contains(&name.as_str()) && !KEPT.contains(&kind.as_str()))
        .map(|it| it.0)
        .collect())
}

/// The objects of the stack that are in its namespace.
pub fn api<K>(stage: &Stage) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(stage.client.clone(), NAMESPACE)
}

/// One of the five kinds.
pub fn all<K>(stage: &Stage) -> Api<K>
where
    K: Resource,
    K::DynamicType: Default,
{
    Api::all(stage.client.clone())
}

/// Writes the one object of a kind, as a user applies it.
pub async fn write<K>(stage: &Stage, spec: Value) -> anyhow::Result<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let object = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": SINGLETON },
        "spec": spec,
    });
    let params = PatchParams::apply("e2e").force();
    let written = all::<K>(stage).patch(SINGLETON, &params, &Patch::Apply(&object)).await;
    written.with_context(|| format!("cannot write {} {spec}", K::kind(&())))
}

/// Writes the central config, and waits until the whole stack is ready.
pub async fn stack(stage: &Stage) -> anyhow::Result<ZeroTrustWorkloadIdentityManager> {
    write::<ZeroTrustWorkloadIdentityManager>(stage, json!({ "trustDomain": TRUST_DOMAIN, "clusterName": "e2e" }))
        .await?;
    ready(stage).await
}

/// Waits until an object is ready for its present spec.
pub async fn ready<K>(stage: &Stage) -> anyhow::Result<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
{
    until(&all::<K>(stage), SINGLETON, "Ready", STACK_PATIENCE, |object| {
        standing(object).is_some_and(|ready| ready.status == "True")
    })
    .await
}

/// Waits until an object says that it is not ready in words that hold all of these, and returns what it says.
pub async fn complains<K>(stage: &Stage, words: &[&str]) -> anyhow::Result<String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
{
    let says = |object: &K| {
        let ready = standing(object).filter(|ready| ready.status == "False");
        ready.is_some_and(|ready| words.iter().all(|word| ready.message.contains(word)))
    };
    let object = until(&all::<K>(stage), SINGLETON, &format!("complaining of {words:?}"), STACK_PATIENCE, says).await?;
    Ok(standing(&object).map(|ready| ready.message).unwrap_or_default())
}

/// The condition `Ready` of an object, unless it speaks of an older spec.
fn standing<K: Serialize>(object: &K) -> Option<Condition> {
    let seen = serde_json::to_value(object).ok()?;
    let conditions: Vec<Condition> = serde_json::from_value(seen["status"]["conditions"].clone()).ok()?;
    let of_now = seen["status"]["observedGeneration"] == seen["metadata"]["generation"];
    conditions::find(&conditions, conditions::READY).filter(|_| of_now).cloned()
}

/// The trust bundle, as everybody may read it.
pub async fn bundle(stage: &Stage) -> anyhow::Result<String> {
    let map = api::<ConfigMap>(stage).get("spire-bundle").await?;
    map.data.and_then(|mut data| data.remove("bundle.crt")).context("the ConfigMap has no bundle.crt")
}

/// Makes a pod in the namespace of the scenario that mounts the Workload API and runs SPIRE's own client with these words.
pub async fn workload(stage: &Stage, name: &str, words: &[&str]) -> anyhow::Result<Pod> {
    let images = stage.images_of("spire").await?;
    let (client, socket) = (["/opt/spire/bin/spire-agent", "api"], "/spiffe-workload-api/spire-agent.sock");
    let command = [&client, words, &["-socketPath", socket]].concat();
    let pod = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            // Who asks before the server has made its entry is told that it has no identity yet.
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "workload",
                "image": images.get("OPCORE_IMAGE_SPIRE_AGENT").map_or("ghcr.io/spiffe/spire-agent:1.15.3", String::as_str),
                "command": command,
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                "volumeMounts": [{ "name": "identity", "mountPath": "/spiffe-workload-api", "readOnly": true }],
            }],
            "volumes": [{ "name": "identity", "csi": { "driver": PLUGIN_NAME, "readOnly": true } }],
        },
    }))?;
    Ok(stage.api::<Pod>().create(&PostParams::default(), &pod).await?)
}

/// Makes a pod that asks for its identity, and returns what it gets.
pub async fn identity(stage: &Stage, name: &str) -> anyhow::Result<Svid> {
    let pods = stage.api::<Pod>();
    let pod = workload(stage, name, &["fetch", "x509", "-output", "json"]).await?;
    until(&pods, name, "answered by the agent", PATIENCE, |pod| phase(pod) == "Succeeded").await?;
    let printed = pods.logs(name, &LogParams::default()).await?;
    pods.delete(name, &DeleteParams::background()).await?;
    gone(&pods, name, pod.uid().as_deref(), PATIENCE).await?;
    Svid::read(&printed)
}

/// The phase of a pod.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Deletes the stack, and waits until it is gone.
pub async fn delete(stage: &Stage) -> anyhow::Result<()> {
    let parents = all::<ZeroTrustWorkloadIdentityManager>(stage);
    let parent = parents.get(SINGLETON).await?;
    parents.delete(SINGLETON, &DeleteParams::background()).await?;
    gone(&parents, SINGLETON, parent.uid().as_deref(), STACK_PATIENCE).await
}

/// Deletes the server alone, and writes another one in its place, which has its volume.
pub async fn recreate_server(stage: &Stage, spec: Value) -> anyhow::Result<()> {
    let servers = all::<SpireServer>(stage);
    let old = servers.get(SINGLETON).await?;
    servers.delete(SINGLETON, &DeleteParams::background()).await?;
    gone(&servers, SINGLETON, old.uid().as_deref(), STACK_PATIENCE).await?;
    write::<SpireServer>(stage, spec).await?;
    Ok(())
}

/// Asks the first pod of a component for JSON, by the name of a host.
pub async fn get(stage: &Stage, component: &str, port: u16, host: &str, path: &str) -> anyhow::Result<Value> {
    let pods = api::<Pod>(stage);
    let labels = ListParams::default().labels(&format!("{COMPONENT_LABEL}={component}"));
    let pod = pods.list(&labels).await?.items.into_iter().next().context("there is no such pod")?.name_any();
    let body = fetch(&pods, &pod, port, host, path).await?;
    serde_json::from_slice(&body).with_context(|| format!("{path} is {}", String::from_utf8_lossy(&body)))
}

/// Asks a web server in a pod, through the API server: that works wherever the pod is.
async fn fetch(pods: &Api<Pod>, pod: &str, port: u16, host: &str, path: &str) -> anyhow::Result<Vec<u8>> {
    let mut forwarder = pods.portforward(pod, &[port]).await?;
    let mut stream = forwarder.take_stream(port).context("a port that was asked for is forwarded")?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.with_context(|| format!("{pod} does not answer {path}"))??;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").context("there is no answer")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    ensure!(head.lines().next().is_some_and(|line| line.contains(" 200 ")), "{path}: {head}");
    Ok(answer.split_off(end + 4))
}

/// Reads a backup as anybody could who has its volume, and compares all of it with its checksums. Returns its files.
pub async fn checked_backup(stage: &Stage, backup: &Backup) -> anyhow::Result<Vec<String>> {
    stage.load_component("sandbox.opcore.dev/echo:v1", "echo").await?;
    let reader = |name: &str, port: u16, dir: &str| {
        json!({
            "name": name,
            "image": "sandbox.opcore.dev/echo:v1",
            "args": [format!("-listen=:{port}"), format!("-files=/backups/{}{dir}", backup.name)],
            "volumeMounts": [{ "name": "backups", "mountPath": "/backups", "readOnly": true }],
        })
    };
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "reader" },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            // As the server, whose files these are.
            "securityContext": { "runAsUser": 1000 },
            "containers": [reader("manifest", 8080, ""), reader("data", 8081, "/data")],
            "volumes": [{ "name": "backups", "persistentVolumeClaim": { "claimName": backup.claim } }],
        },
    }))?;
    let pods = api::<Pod>(stage);
    pods.create(&PostParams::default(), &pod).await?;
    until(&pods, "reader", "running", PATIENCE, |pod| phase(pod) == "Running").await?;
    let read = async |port: u16, file: &str| fetch(&pods, "reader", port, "reader", &format!("/files/{file}")).await;

    let manifest = read(8080, "manifest.json").await?;
    ensure!(sum(&manifest) == backup.manifest_sha256, "the list of files is not the one that the server told of");
    let checked = String::from_utf8(read(8080, "manifest.json.sha256").await?)?;
    ensure!(checked.starts_with(&backup.manifest_sha256), "`sha256sum -c` would not accept {checked}");
    let manifest: Manifest = serde_json::from_slice(&manifest)?;
    for held in &manifest.files {
        ensure!(sum(&read(8081, &held.path).await?) == held.sha256, "{} is damaged", held.path);
    }
    pods.delete("reader", &DeleteParams::default()).await?;
    Ok(manifest.files.into_iter().map(|held| held.path).collect())
}

fn sum(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
