//! The SPIRE server with its controller manager.
//!
//! | Subject | File |
//! |---|---|
//! | SPIRE's configuration | `config` and, by section, `datastore`, `upstream`, `federation` |
//! | the configuration of the controller manager, and the webhook that it serves | `controller_manager` |
//! | what both may do in the cluster | `rights` |
//! | the pod | `workload` |
//! | how it is reached | `service`, `federation` |
//! | what is refused, and what is accepted with a warning | `check` |

mod check;
mod config;
mod controller_manager;
mod datastore;
mod federation;
mod rights;
mod service;
#[cfg(test)]
mod tests;
mod upstream;
mod workload;

use k8s_openapi::api::core::v1::{ConfigMap, EnvVar, Volume, VolumeMount};
use serde_json::json;

use super::common::{Part, config_hash};
use super::{Config, Error, Objects, Platform, Settings, in_order, owned};
use crate::api::v1alpha1::SpireServer;

pub use check::{prerequisites, warnings};

/// The name of the server's objects.
pub const NAME: &str = "spire-server";
/// The container of its pod that runs the server.
pub const CONTAINER: &str = "spire-server";
/// The component of its pod, by the label `app.kubernetes.io/component`.
pub const COMPONENT: &str = "control-plane";
/// The ClusterSPIFFEID that gives workloads their default identity.
pub const DEFAULT_IDENTITY: &str = "zero-trust-workload-identity-manager-spire-default";
/// The directory of the volume with the datastore and the keys.
pub const DATA_DIRECTORY: &str = "/run/spire/data";

/// What a section of the configuration needs in the server's container.
#[derive(Default)]
struct Needs {
    env: Vec<EnvVar>,
    volumes: Vec<Volume>,
    mounts: Vec<VolumeMount>,
}

impl Needs {
    fn add(&mut self, other: Self) {
        self.env.extend(other.env);
        self.volumes.extend(other.volumes);
        self.mounts.extend(other.mounts);
    }
}

/// The server, as its objects name it.
pub(super) fn part<'a>(server: &'a SpireServer, settings: &'a Settings, platform: &'a Platform) -> Part<'a> {
    Part { name: NAME, component: COMPONENT, placement: &server.spec.placement, settings, platform }
}

/// All objects of a server, which has no pod unless it is `running`. Its volumes are made by [`super::volume`].
///
/// # Errors
///
/// When the spec asks for what cannot be: the error names the field and the remedy.
pub fn objects(
    server: &SpireServer,
    config: &Config,
    settings: &Settings,
    platform: &Platform,
    running: bool,
) -> Result<Objects, Error> {
    check::usable(server, config, *platform)?;
    let part = part(server, settings, platform);
    let conf = config::text(server, config, settings);
    let manager = controller_manager::text(server, config, settings);
    let hash = config_hash(&[&conf, &manager]);

    let mut support = vec![
        owned(server, part.service_account(NAME))?,
        owned(server, part.config_map(NAME, [(config::FILE, conf)]))?,
        owned(server, part.config_map(controller_manager::NAME, [(controller_manager::FILE, manager)]))?,
        // Without data: the server writes the trust bundle into it, and we must never own that.
        owned(server, ConfigMap { metadata: part.meta(&config.bundle_config_map), ..ConfigMap::default() })?,
        owned(server, service::server(server, &part))?,
        owned(server, service::webhook(&part))?,
        owned(server, controller_manager::webhook(&part))?,
    ];
    support.extend(rights::all(server, config, &part)?);
    if platform.spiffe_ids {
        support.push(default_identity(server, &part)?);
    }
    let workload = vec![in_order(&workload::stateful_set(server, &part, hash, running))?];
    let routes = federation::route(server, config, &part)?.into_iter().collect();
    Ok(Objects { support, workload, routes })
}

/// What every pod is that no other ClusterSPIFFEID names: its namespace and its account.
fn default_identity(server: &SpireServer, part: &Part<'_>) -> Result<opcore::Write, Error> {
    let elsewhere = json!({
        "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [part.settings.namespace],
    });
    let spec = json!({
        "fallback": true,
        "hint": "default",
        "spiffeIDTemplate":
            "spiffe://{{ .TrustDomain }}/ns/{{ .PodMeta.Namespace }}/sa/{{ .PodSpec.ServiceAccountName }}",
        "namespaceSelector": { "matchExpressions": [elsewhere] },
    });
    part.cluster_spiffe_id(server, DEFAULT_IDENTITY, spec)
}
