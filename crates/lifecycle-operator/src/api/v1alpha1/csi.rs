//! The SPIFFE CSI driver.
#![allow(unreachable_pub, reason = "the derived schemas repeat each struct where nobody can reach it")]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::OperandStatus;
use super::agent::SOCKET_DIRECTORY;
use super::common::{PATH, Placement};

/// The name of the driver in pods' volumes, by default.
pub const PLUGIN_NAME: &str = "csi.spiffe.io";

/// The driver that gives pods the Workload API as a volume.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "operator.openshift.io",
    version = "v1alpha1",
    kind = "SpiffeCSIDriver",
    plural = "spiffecsidrivers",
    category = "opcore",
    category = "operands",
    status = "OperandStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'cluster'")
        .message("there is one SpiffeCSIDriver in a cluster: metadata.name must be 'cluster'"),
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SpiffeCSIDriverSpec {
    /// The directory on each node in which the agent's socket is. It must be the agent's `socketPath`.
    #[serde(default = "socket_directory")]
    #[schemars(length(max = 256), regex(pattern = PATH))]
    pub agent_socket_path: String,

    /// The name of the driver, as pods name it in their volumes.
    #[serde(default = "plugin_name")]
    #[schemars(length(max = 127), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub plugin_name: String,

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

fn plugin_name() -> String {
    PLUGIN_NAME.to_owned()
}
