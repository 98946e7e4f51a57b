//! What runs on every node: CoreDNS as a pod, and a class of volumes.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client};
use serde::Deserialize;

use super::{COREDNS_IMAGE, NAME, Network};

const MANIFESTS: &str = include_str!("addons.yaml");

/// How long a node may take to be ready, and CoreDNS on it.
const PATIENCE: Duration = Duration::from_mins(2);

/// Installs them, and returns when the node is ready and names are answered.
pub(crate) async fn install(client: &Client, network: Network) -> anyhow::Result<()> {
    let text = MANIFESTS
        .replace("{node-ip}", &network.node().to_string())
        .replace("{node-name}", NAME)
        .replace("{coredns-image}", COREDNS_IMAGE)
        .replace("{dns-ip}", &network.dns_service().to_string());
    for document in serde_yaml::Deserializer::from_str(&text) {
        apply(client, DynamicObject::deserialize(document)?).await?;
    }
    node_ready(client).await?;
    names_answered(client).await
}

async fn apply(client: &Client, object: DynamicObject) -> anyhow::Result<()> {
    let kind = object.types.as_ref().context("an add-on has no kind")?;
    let (group, version) = kind.api_version.split_once('/').unwrap_or(("", &kind.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind.kind));
    let name = object.metadata.name.clone().unwrap_or_default();
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply("opcore-sandbox").force();
    api.patch(&name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("Cannot install {} {name}", resource.kind))?;
    Ok(())
}

async fn node_ready(client: &Client) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let node = nodes.get_opt(NAME).await?;
        let ready =
            node.as_ref().and_then(|n| n.status.as_ref()?.conditions.as_ref()?.iter().find(|c| c.type_ == "Ready"));
        if ready.is_some_and(|c| c.status == "True") {
            return Ok(());
        }
        if Instant::now() > deadline {
            let why = match (&node, ready.and_then(|c| c.message.as_deref())) {
                (None, _) => "the kubelet did not register it",
                (Some(_), message) => message.unwrap_or("the kubelet does not say why"),
            };
            bail!("The node is not ready after {} s: {why}.", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn names_answered(client: &Client) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let coredns = deployments.get("coredns").await?;
        if coredns.status.and_then(|s| s.available_replicas).is_some_and(|n| n > 0) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(anyhow!(
                "CoreDNS is not ready after {} s: {}",
                PATIENCE.as_secs(),
                story(client).await.unwrap_or_else(|error| format!("{error:#}"))
            ));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What the cluster says about the pods of CoreDNS.
async fn story(client: &Client) -> anyhow::Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let events: Api<Event> = Api::namespaced(client.clone(), "kube-system");
    let mut lines = Vec::new();
    for pod in pods.list(&ListParams::default()).await? {
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("unknown");
        lines.push(format!("pod {} is {phase}", pod.metadata.name.unwrap_or_default()));
    }
    for event in events.list(&ListParams::default()).await? {
        lines.push(format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default()));
    }
    Ok(lines.join("\n  "))
}
