//! The SPIRE server with its controller manager.

use super::{Config, Error, Objects, Platform, Settings};
use crate::api::v1alpha1::SpireServer;

/// The name of the server's objects.
pub const NAME: &str = "spire-server";
/// The container of its pod that runs the server.
pub const CONTAINER: &str = "spire-server";
/// The component of its pod, by the label `app.kubernetes.io/component`.
pub const COMPONENT: &str = "control-plane";
/// The ClusterSPIFFEID that gives workloads their default identity.
pub const DEFAULT_IDENTITY: &str = "zero-trust-workload-identity-manager-spire-default";

/// All objects of a server, which has no pod unless it is `running`. Its volumes are made by [`super::volume`].
///
/// # Errors
///
/// When an object cannot be rendered.
pub fn objects(
    server: &SpireServer,
    config: &Config,
    settings: &Settings,
    platform: &Platform,
    running: bool,
) -> Result<Objects, Error> {
    let _ = (server, config, settings, platform, running);
    Ok(Objects::default())
}

/// What works, and should be changed nevertheless: each names the field and the remedy.
pub fn warnings(server: &SpireServer) -> Vec<String> {
    let _ = server;
    Vec::new()
}
