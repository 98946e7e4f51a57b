//! The SPIRE agent.
#![allow(unreachable_pub, reason = "the derived schemas repeat each struct where nobody can reach it")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OperandStatus;
use super::common::{LogFormat, LogLevel, NAME, PATH, Placement, Switch, TRUST_DOMAIN};

/// The directory on each node in which the agent's socket is, by default.
pub const SOCKET_DIRECTORY: &str = "/run/spire/agent-sockets";

/// The SPIRE agent, which runs on every node and gives workloads their identities.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "operator.openshift.io",
    version = "v1alpha1",
    kind = "SpireAgent",
    plural = "spireagents",
    category = "opcore",
    category = "operands",
    status = "OperandStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'cluster'")
        .message("there is one SpireAgent in a cluster: metadata.name must be 'cluster'"),
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SpireAgentSpec {
    /// The trust domain. If it is empty, it comes from the ZeroTrustWorkloadIdentityManager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = TRUST_DOMAIN))]
    pub trust_domain: Option<String>,

    /// The name of this cluster. If it is empty, it comes from the ZeroTrustWorkloadIdentityManager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = NAME))]
    pub cluster_name: Option<String>,

    /// The ConfigMap with the trust bundle. If it is empty, it comes from the ZeroTrustWorkloadIdentityManager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub bundle_config_map: Option<String>,

    /// The directory on each node in which the agent's socket is. The CSI driver must use the same.
    #[serde(default = "socket_directory")]
    #[schemars(length(max = 256), regex(pattern = PATH))]
    pub socket_path: String,

    /// How much the agent logs.
    #[serde(default)]
    pub log_level: LogLevel,

    /// The form of its log lines.
    #[serde(default)]
    pub log_format: LogFormat,

    /// How a node proves to the server which node it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_attestor: Option<NodeAttestor>,

    /// How the agent finds out which workload asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_attestors: Option<WorkloadAttestors>,

    /// Leave everything as it is, while this is true. A teardown goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,

    /// Where its pods run.
    #[serde(flatten)]
    pub placement: Placement,
}

fn socket_directory() -> String {
    SOCKET_DIRECTORY.to_owned()
}

/// How a node proves to the server which node it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.k8sPSATEnabled == 'true'")
    .message("k8sPSATEnabled must be \"true\": agents have no other way to prove on which node they run"))]
pub struct NodeAttestor {
    /// With a token of its ServiceAccount, projected into its pod.
    #[serde(default = "Switch::on", rename = "k8sPSATEnabled")]
    pub k8s_psat_enabled: Switch,
}

/// How the agent finds out which workload asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAttestors {
    /// By the pod that it runs in.
    #[serde(default = "Switch::on")]
    pub k8s_enabled: Switch,
    /// How the agent verifies the kubelet that it asks about pods. Without this block it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_attestors_verification: Option<KubeletVerification>,
    /// Leave out selectors of containers, for example with Istio's `holdApplicationUntilProxyStarts`.
    #[serde(default = "Switch::off")]
    pub disable_container_selectors: Switch,
    /// Use the way of finding a container that also knows cgroups v2.
    #[serde(default = "Switch::on")]
    pub use_new_container_locator: Switch,
}

/// How the agent verifies the kubelet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.type != 'hostCert' || (has(self.hostCertBasePath) && self.hostCertBasePath != '')")
    .message("hostCertBasePath is required when type is 'hostCert'"))]
#[x_kube(validation = Rule::new("self.type != 'hostCert' || (has(self.hostCertFileName) && self.hostCertFileName != '')")
    .message("hostCertFileName is required when type is 'hostCert'"))]
pub struct KubeletVerification {
    /// `skip`: not at all. `auto`: by the CA of the cluster, or by the file named below. `hostCert`: by a file on the
    /// node.
    #[serde(default, rename = "type")]
    pub kind: KubeletVerificationKind,
    /// The directory on each node with the CA certificate of the kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = PATH))]
    pub host_cert_base_path: Option<String>,
    /// The file in that directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    pub host_cert_file_name: Option<String>,
}

/// A way of verifying the kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum KubeletVerificationKind {
    /// By the CA of the cluster, or by the file that is named.
    #[default]
    Auto,
    /// By a file on the node.
    HostCert,
    /// Not at all.
    Skip,
}
