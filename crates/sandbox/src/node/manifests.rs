//! Objects written in YAML, and waiting for what they describe.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client};
use serde::Deserialize;

/// How long a Deployment may take to be available.
const PATIENCE: Duration = Duration::from_mins(2);

/// Applies all objects of a text, in which the first word of each pair stands for the second.
pub(crate) async fn apply(client: &Client, text: &str, words: &[(&str, &str)]) -> anyhow::Result<()> {
    let text = words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value));
    for document in serde_yaml::Deserializer::from_str(&text) {
        apply_one(client, DynamicObject::deserialize(document)?).await?;
    }
    Ok(())
}

async fn apply_one(client: &Client, object: DynamicObject) -> anyhow::Result<()> {
    let kind = object.types.as_ref().context("an object has no kind")?;
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

/// Waits until a Deployment is available, or fails with the state of its pods.
pub(crate) async fn available(client: &Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if is_available(&deployments.get(name).await?) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(anyhow!(
                "{name} is not ready after {} s: {}",
                PATIENCE.as_secs(),
                story(client, namespace).await.unwrap_or_else(|error| format!("{error:#}"))
            ));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn is_available(deployment: &Deployment) -> bool {
    deployment.status.as_ref().and_then(|s| s.available_replicas).is_some_and(|n| n > 0)
}

/// The conditions and Events of the pods of a namespace.
async fn story(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
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
