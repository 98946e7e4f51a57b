//! The order of starts: server ready, trust bundle there, agents, CSI driver, OIDC provider.
//!
//! An agent that starts without a trust bundle sits in retries until the kubelet refreshes the ConfigMap, up to a
//! minute; waiting for the bundle is faster. What runs already is never stopped because something before it is not
//! ready; only a newer version waits until the server has been upgraded.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use opcore::Write;
use opcore::readiness;
use serde_json::Value;

use crate::api::v1alpha1::{OperandKind, SINGLETON};
use crate::decide::live;
use crate::observe::Observed;
use crate::render::Settings;

/// Why a workload is not applied yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// A CamelCase reason.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// What a workload waits for before it is applied, if anything.
pub fn wait(
    kind: OperandKind,
    workload: &[Write],
    observed: &Observed,
    settings: &Settings,
    now: Timestamp,
) -> Option<Wait> {
    let running: Vec<_> = workload.iter().map(|write| running_images(write, observed)).collect();
    if running.iter().any(Option::is_none) {
        return before_the_first_start(kind, observed);
    }
    let is_new_version = workload.iter().zip(&running).any(|(write, running)| wanted_images(write) != *running);
    if kind != OperandKind::SpireServer && is_new_version {
        return before_an_upgrade(kind, observed, settings, now);
    }
    None
}

fn before_the_first_start(kind: OperandKind, observed: &Observed) -> Option<Wait> {
    match kind {
        OperandKind::SpireServer => None,
        OperandKind::SpireAgent => {
            after(OperandKind::SpireServer, "WaitingForServer", observed).or_else(|| without_bundle(observed))
        }
        OperandKind::SpiffeCSIDriver => after(OperandKind::SpireAgent, "WaitingForAgent", observed),
        OperandKind::SpireOIDCDiscoveryProvider => after(OperandKind::SpiffeCSIDriver, "WaitingForDriver", observed),
    }
}

fn after(before: OperandKind, reason: &'static str, observed: &Observed) -> Option<Wait> {
    let message = match observed.peer(before) {
        None => format!("{before} {SINGLETON} does not exist; it starts first."),
        Some(peer) if peer.is_deleting() => format!("{before} {SINGLETON} is being deleted; it must be there first."),
        Some(peer) if !peer.is_ready() => format!("{before} {SINGLETON} must be ready first: {}", peer.message()),
        Some(_) => return None,
    };
    Some(Wait { reason, message })
}

/// The server has published its trust bundle.
pub fn has_bundle(observed: &Observed) -> bool {
    let data = observed.bundle.as_ref().and_then(|map| map.data.as_ref());
    data.is_some_and(|data| data.values().any(|value| !value.trim().is_empty()))
}

fn without_bundle(observed: &Observed) -> Option<Wait> {
    if has_bundle(observed) {
        return None;
    }
    let name = observed.bundle.as_ref().and_then(|map| map.metadata.name.as_deref()).unwrap_or("with the trust bundle");
    let message = format!("The server has not yet put its trust bundle into ConfigMap {name}.");
    Some(Wait { reason: "WaitingForBundle", message })
}

/// Server first: an agent may be older than its server, but not newer.
fn before_an_upgrade(kind: OperandKind, observed: &Observed, settings: &Settings, now: Timestamp) -> Option<Wait> {
    let upgraded = observed.server.as_ref().is_none_or(|server| is_upgraded(server, settings, now));
    (!upgraded).then(|| Wait {
        reason: "WaitingForServer",
        message: format!("The server is upgraded first; {kind} follows when it is ready."),
    })
}

fn is_upgraded(server: &StatefulSet, settings: &Settings, now: Timestamp) -> bool {
    let pod = server.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let mut images = pod.iter().flat_map(|pod| &pod.containers).filter_map(|container| container.image.as_deref());
    if !images.any(|image| image == settings.images.server) {
        return false;
    }
    let mut json = serde_json::to_value(server).unwrap_or(Value::Null);
    json["apiVersion"] = "apps/v1".into();
    json["kind"] = "StatefulSet".into();
    readiness::of(&json, now).is_ready()
}

/// The images of a workload's pods; none if it does not exist. What has no pods has no images.
fn running_images(write: &Write, observed: &Observed) -> Option<Vec<String>> {
    let found = live(observed, &write.object()?).filter(|found| !found.is_deleting())?;
    Some(images(&found.json))
}

fn wanted_images(write: &Write) -> Option<Vec<String>> {
    let Write::Apply(apply) = write else { return None };
    Some(images(&apply.object.data))
}

fn images(workload: &Value) -> Vec<String> {
    let containers = workload.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let image = |container: &Value| container["image"].as_str().map(str::to_owned);
    containers.into_iter().flatten().filter_map(image).collect()
}
