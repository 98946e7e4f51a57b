//! The SPIRE agent on every node.

use k8s_openapi::api::apps::v1::DaemonSet;

use super::{Config, Error, Objects, Platform, Settings};
use crate::api::v1alpha1::SpireAgent;

/// The name of the agent's objects.
pub const NAME: &str = "spire-agent";
/// The component of its pods, by the label `app.kubernetes.io/component`.
pub const COMPONENT: &str = "node-agent";
/// The name of the DaemonSet that removes leftover sockets.
pub const CLEANUP: &str = "spire-agent-cleanup";
/// The component of its pods.
pub const CLEANUP_COMPONENT: &str = "node-cleanup";

/// All objects of the agent.
///
/// # Errors
///
/// When an object cannot be rendered.
pub fn objects(
    agent: &SpireAgent,
    config: &Config,
    settings: &Settings,
    platform: &Platform,
) -> Result<Objects, Error> {
    let _ = (agent, config, settings, platform);
    Ok(Objects::default())
}

/// A DaemonSet on the nodes of the agent whose pods are ready once no leftover socket is on their node.
///
/// It has no owner reference: while its owner is deleted in the foreground, Kubernetes would delete it at once. Whoever
/// applies it deletes it.
pub fn cleanup(agent: &SpireAgent, settings: &Settings, platform: &Platform) -> DaemonSet {
    let _ = (agent, settings, platform);
    DaemonSet::default()
}
