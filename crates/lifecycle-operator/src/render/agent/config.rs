//! The agent's configuration, as SPIRE reads it. It refuses keys that it does not know.

use serde_json::{Value, json};

use super::{BUNDLE_DIRECTORY, DATA_DIRECTORY, HEALTH_PORT, KUBELET_CA_DIRECTORY, KUBELET_VARIABLE};
use super::{SOCKET, SOCKET_DIRECTORY};
use crate::api::v1alpha1::{KubeletVerificationKind, SpireAgent, Switch};
use crate::render::{Config, Error, Platform, Settings, server};

/// The port of the server's Service.
const SERVER_PORT: u16 = 443;
/// How long a server whose certificate the trust bundle does not explain is taken for a mistake that passes. Then the
/// agent starts anew from the bundle in the ConfigMap, as any new agent does. It must be longer than the kubelet takes to
/// bring a changed ConfigMap to the pod.
const REBOOTSTRAP_DELAY: &str = "2m";
/// The directory and the file with the CA certificate of the kubelet on each node of OpenShift.
const OPENSHIFT_KUBELET_CA: (&str, &str) = ("/etc/kubernetes", "kubelet-ca.crt");

/// How the kubelet of a node is reached, and verified.
pub(super) struct Kubelet {
    /// Whether it is verified at all.
    verified: bool,
    /// The directory and the file on the node with the CA certificate that verifies it, instead of that of the cluster.
    pub(super) ca_file: Option<(String, String)>,
}

impl Kubelet {
    pub(super) fn of(agent: &SpireAgent, platform: Platform) -> Self {
        let attestors = agent.spec.workload_attestors.as_ref();
        let verification = attestors.and_then(|attestors| attestors.workload_attestors_verification.as_ref());
        let Some(verification) = verification.filter(|it| it.kind != KubeletVerificationKind::Skip) else {
            return Self { verified: false, ca_file: None };
        };
        let (directory, file) = (&verification.host_cert_base_path, &verification.host_cert_file_name);
        let set = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        let named = set(directory).zip(set(file));
        // OpenShift has a CA of its own for kubelets.
        let (directory, file) = OPENSHIFT_KUBELET_CA;
        let of_platform = platform.security_context_constraints.then(|| (directory.to_owned(), file.to_owned()));
        Self { verified: true, ca_file: named.or(of_platform) }
    }

    /// The field of a pod that says by which name or address the kubelet is reached. Names of nodes seldom resolve in
    /// pods, addresses are always there, and certificates that the cluster signs for kubelets have both. One that the
    /// kubelet made for itself, which only a file on the node can verify, has the name alone.
    pub(super) fn host_field(&self) -> &'static str {
        if self.ca_file.is_some() { "spec.nodeName" } else { "status.hostIP" }
    }
}

/// The content of the configuration file.
pub(super) fn render(
    agent: &SpireAgent,
    config: &Config,
    settings: &Settings,
    kubelet: &Kubelet,
) -> Result<String, Error> {
    let spec = &agent.spec;
    let file = json!({
        "agent": {
            "data_dir": DATA_DIRECTORY,
            "log_level": spec.log_level.as_str(),
            "log_format": spec.log_format.as_str(),
            "server_address": format!("{}.{}", server::NAME, settings.namespace),
            "server_port": SERVER_PORT,
            "socket_path": format!("{SOCKET_DIRECTORY}/{SOCKET}"),
            "trust_bundle_path": format!("{BUNDLE_DIRECTORY}/bundle.crt"),
            "trust_bundle_format": "pem",
            "trust_domain": config.trust_domain,
            // A server that lost its CA, or was restored too late, is followed without anyone deleting pods.
            "rebootstrap_mode": "auto",
            "rebootstrap_delay": REBOOTSTRAP_DELAY,
        },
        "health_checks": {
            "listener_enabled": true,
            "bind_address": "0.0.0.0",
            "bind_port": HEALTH_PORT.to_string(),
            "live_path": "/live",
            "ready_path": "/ready",
        },
        "plugins": {
            // Its keys end with it: after a restart it proves again on which node it runs.
            "KeyManager": [{ "memory": { "plugin_data": {} } }],
            "NodeAttestor": [{ "k8s_psat": { "plugin_data": { "cluster": config.cluster_name } } }],
            "WorkloadAttestor": [workload_attestor(agent, kubelet)],
        },
    });
    serde_json::to_string_pretty(&file).map_err(|error| error.to_string())
}

fn workload_attestor(agent: &SpireAgent, kubelet: &Kubelet) -> Value {
    let attestors = agent.spec.workload_attestors.as_ref();
    if attestors.is_some_and(|attestors| !attestors.k8s_enabled.is_on()) {
        // An agent needs at least one. This one tells workloads apart by their users only.
        return json!({ "unix": { "plugin_data": {} } });
    }
    let mut data = json!({
        "node_name_env": KUBELET_VARIABLE,
        "skip_kubelet_verification": !kubelet.verified,
        "disable_container_selectors": attestors.is_some_and(|it| it.disable_container_selectors.is_on()),
        "use_new_container_locator": attestors.map_or(Switch::True, |it| it.use_new_container_locator).is_on(),
    });
    if let Some((_, file)) = &kubelet.ca_file {
        data["kubelet_ca_path"] = json!(format!("{KUBELET_CA_DIRECTORY}/{file}"));
    }
    json!({ "k8s": { "plugin_data": data } })
}
