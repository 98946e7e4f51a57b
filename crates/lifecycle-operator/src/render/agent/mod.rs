//! The SPIRE agent on every node.

mod config;
#[cfg(test)]
mod tests;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, HostPathVolumeSource, ObjectFieldSelector, PodSpec, ProjectedVolumeSource,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};

use super::common::{
    Part, config_hash, config_volume, container_port, empty_volume, http_probe, mount, owned_dynamic, read_only, rule,
    words,
};
use super::constraints::{self, Powers};
use super::{Config, Error, Objects, Platform, Settings, in_order, owned};
use crate::api::v1alpha1::SpireAgent;
use config::Kubelet;

/// The name of the agent's objects.
pub const NAME: &str = "spire-agent";
/// The component of its pods, by the label `app.kubernetes.io/component`.
pub const COMPONENT: &str = "node-agent";
/// The name of the DaemonSet that removes leftover sockets.
pub const CLEANUP: &str = "spire-agent-cleanup";
/// The component of its pods.
pub const CLEANUP_COMPONENT: &str = "node-cleanup";

/// The agent's socket, in the directory that the CSI driver gives to pods.
pub(crate) const SOCKET: &str = "spire-agent.sock";
/// The file with the agent's configuration, in its ConfigMap.
const CONFIG_FILE: &str = "agent.conf";
/// Where its container finds the configuration.
const CONFIG_DIRECTORY: &str = "/opt/spire/conf/agent";
/// Where it keeps what it need not know again after a restart of its container.
const DATA_DIRECTORY: &str = "/var/lib/spire";
/// Where it finds the trust bundle.
const BUNDLE_DIRECTORY: &str = "/run/spire/bundle";
/// Where it puts its socket.
const SOCKET_DIRECTORY: &str = "/tmp/spire-agent/public";
/// Where it finds the token with which it proves on which node it runs: where SPIRE looks for it by default.
const TOKEN_DIRECTORY: &str = "/var/run/secrets/tokens";
/// Where it finds the CA certificate of the kubelet, if that is a file on the node.
const KUBELET_CA_DIRECTORY: &str = "/run/spire/kubelet-ca";
/// The variable that says how the kubelet of its node is reached.
const KUBELET_VARIABLE: &str = "KUBELET_HOST";
/// The port on which it says whether it is healthy.
const HEALTH_PORT: i32 = 9982;
/// How long the token is valid; the kubelet renews it before.
const TOKEN_SECONDS: i64 = 7200;

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
    let part = part(agent, settings, platform);
    let kubelet = Kubelet::of(agent, *platform);
    let content = config::render(agent, config, settings, &kubelet)?;
    // The agent asks the kubelet of its node for its pods, and nobody else for anything. `nodes/proxy` would do as well,
    // and would let it run commands in every pod of the cluster.
    let (role, binding) = part.cluster_rights(NAME, NAME, vec![rule("", &["nodes/pods"], &["get"])]);
    let hash = config_hash(&[&content]);
    let mut support = vec![
        owned(agent, part.service_account(NAME))?,
        owned(agent, role)?,
        owned(agent, binding)?,
        owned(agent, part.config_map(NAME, [(CONFIG_FILE, content)]))?,
    ];
    if platform.security_context_constraints {
        let powers = Powers { host_pid: true, privileged: false };
        let (resource, metadata, data) = constraints::of(&part, NAME, powers);
        support.push(owned_dynamic(agent, resource, metadata, data)?);
    }
    let template = part.template(Some(hash), pod(agent, config, &part, &kubelet));
    let workload = DaemonSet {
        metadata: part.meta(NAME),
        spec: Some(DaemonSetSpec { selector: part.label_selector(), template, ..DaemonSetSpec::default() }),
        ..DaemonSet::default()
    };
    Ok(Objects { support, workload: vec![in_order(&workload)?], routes: Vec::new() })
}

fn part<'a>(agent: &'a SpireAgent, settings: &'a Settings, platform: &'a Platform) -> Part<'a> {
    Part { name: NAME, component: COMPONENT, placement: &agent.spec.placement, settings, platform }
}

fn pod(agent: &SpireAgent, config: &Config, part: &Part<'_>, kubelet: &Kubelet) -> PodSpec {
    let mut mounts = vec![
        read_only("config", CONFIG_DIRECTORY),
        mount("data", DATA_DIRECTORY),
        read_only("bundle", BUNDLE_DIRECTORY),
        mount("sockets", SOCKET_DIRECTORY),
        read_only("token", TOKEN_DIRECTORY),
    ];
    let mut volumes = vec![
        config_volume("config", NAME),
        empty_volume("data"),
        config_volume("bundle", &config.bundle_config_map),
        host_directory("sockets", &agent.spec.socket_path, "DirectoryOrCreate"),
        token_volume("token"),
    ];
    if let Some((directory, _)) = &kubelet.ca_file {
        mounts.push(read_only("kubelet-ca", KUBELET_CA_DIRECTORY));
        volumes.push(host_directory("kubelet-ca", directory, "Directory"));
    }
    let field = ObjectFieldSelector { field_path: kubelet.host_field().to_owned(), ..ObjectFieldSelector::default() };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    let mut live = http_probe("/live", "health");
    // Nobody answers for a while after the start. Then it is alive even if it is not attested yet: it tries again itself.
    live.initial_delay_seconds = Some(15);
    live.period_seconds = Some(60);
    let mut ready = http_probe("/ready", "health");
    ready.period_seconds = Some(3);
    let container = Container {
        args: words(["-config", &format!("{CONFIG_DIRECTORY}/{CONFIG_FILE}")]),
        env: Some(vec![EnvVar { name: KUBELET_VARIABLE.to_owned(), value_from: Some(source), ..EnvVar::default() }]),
        ports: Some(vec![container_port("health", HEALTH_PORT)]),
        liveness_probe: Some(live),
        readiness_probe: Some(ready),
        resources: part.resources(),
        volume_mounts: Some(mounts),
        ..part.container(NAME, &part.settings.images.agent)
    };
    // It sees the processes of all pods on its node, to tell which workload asks.
    PodSpec { host_pid: Some(true), ..as_root(part.pod(Some(NAME), vec![container], volumes)) }
}

/// A pod whose containers run as root: what is shared with the node belongs to root.
pub(super) fn as_root(mut pod: PodSpec) -> PodSpec {
    if let Some(security) = &mut pod.security_context {
        security.run_as_non_root = Some(false);
        security.run_as_user = Some(0);
        security.run_as_group = Some(0);
        security.fs_group = None;
        security.fs_group_change_policy = None;
    }
    pod
}

/// A volume that is a directory of the node.
pub(super) fn host_directory(name: &str, path: &str, kind: &str) -> Volume {
    let source = HostPathVolumeSource { path: path.to_owned(), type_: Some(kind.to_owned()) };
    Volume { name: name.to_owned(), host_path: Some(source), ..Volume::default() }
}

/// A token of the pod's account that is meant for the SPIRE server alone.
fn token_volume(name: &str) -> Volume {
    let token = ServiceAccountTokenProjection {
        path: NAME.to_owned(),
        audience: Some("spire-server".to_owned()),
        expiration_seconds: Some(TOKEN_SECONDS),
    };
    let source = VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() };
    let projected = ProjectedVolumeSource { sources: Some(vec![source]), ..ProjectedVolumeSource::default() };
    Volume { name: name.to_owned(), projected: Some(projected), ..Volume::default() }
}

/// A DaemonSet on the nodes of the agent whose pods are ready once no leftover socket is on their node.
///
/// It has no owner reference: while its owner is deleted in the foreground, Kubernetes would delete it at once. Whoever
/// applies it deletes it.
pub fn cleanup(agent: &SpireAgent, settings: &Settings, platform: &Platform) -> DaemonSet {
    let part = Part { name: CLEANUP, component: CLEANUP_COMPONENT, ..part(agent, settings, platform) };
    let clean = ["sockets", "--directory", SOCKET_DIRECTORY];
    let container = |name: &str, arguments: Vec<&str>| Container {
        args: words(arguments),
        volume_mounts: Some(vec![mount("sockets", SOCKET_DIRECTORY)]),
        ..part.container(name, &settings.images.volume)
    };
    // A pod is ready as soon as its containers run, and they run only after the first one has done its work.
    let first = container("clean", clean.to_vec());
    let then = container("wait", [clean.as_slice(), &["--then-wait"]].concat());
    let sockets = host_directory("sockets", &agent.spec.socket_path, "DirectoryOrCreate");
    // Where nothing restricts who may mount what, it needs no account: that of the agent may be gone.
    let account = platform.security_context_constraints.then_some(NAME);
    let mut pod = as_root(part.pod(account, vec![then], vec![sockets]));
    pod.init_containers = Some(vec![first]);
    pod.automount_service_account_token = Some(false);
    DaemonSet {
        metadata: part.meta(CLEANUP),
        spec: Some(DaemonSetSpec {
            selector: part.label_selector(),
            template: part.template(None, pod),
            ..DaemonSetSpec::default()
        }),
        ..DaemonSet::default()
    }
}
