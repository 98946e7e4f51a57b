//! The OIDC discovery provider.
#![allow(unreachable_pub, reason = "the derived schemas repeat each struct where nobody can reach it")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OperandStatus;
use super::common::{ISSUER, LogFormat, LogLevel, NAME, Placement, Switch, TRUST_DOMAIN};
use super::csi::PLUGIN_NAME;

/// The provider of OIDC discovery documents, with which JWT-SVIDs can be verified outside SPIFFE.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "operator.openshift.io",
    version = "v1alpha1",
    kind = "SpireOIDCDiscoveryProvider",
    plural = "spireoidcdiscoveryproviders",
    category = "opcore",
    category = "operands",
    status = "OperandStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'cluster'")
        .message("there is one SpireOIDCDiscoveryProvider in a cluster: metadata.name must be 'cluster'"),
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SpireOIDCDiscoveryProviderSpec {
    /// The trust domain. If it is empty, it comes from the ZeroTrustWorkloadIdentityManager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = TRUST_DOMAIN))]
    pub trust_domain: Option<String>,

    /// The issuer of JWT-SVIDs. If it is empty, it comes from the ZeroTrustWorkloadIdentityManager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = ISSUER))]
    pub jwt_issuer: Option<String>,

    /// How much the provider logs.
    #[serde(default)]
    pub log_level: LogLevel,

    /// The form of its log lines.
    #[serde(default)]
    pub log_format: LogFormat,

    /// The CSI driver through which it gets its identity. It must be the driver's `pluginName`.
    #[serde(default = "plugin_name", rename = "csiDriverName")]
    #[schemars(length(max = 127), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub csi_driver_name: String,

    /// How many pods it has.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 5))]
    pub replica_count: i32,

    /// Whether it is made reachable from outside: by a Route on OpenShift, elsewhere by an Ingress, or by an HTTPRoute
    /// if `gateway` is set.
    #[serde(default = "Switch::on")]
    pub managed_route: Switch,

    /// A Secret in the namespace of the operands with the certificate of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = NAME))]
    pub external_secret_ref: Option<String>,

    /// The class of the Ingress; the default class of the cluster if this is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ingress_class_name: Option<String>,

    /// The Gateway for an HTTPRoute, which is then made instead of an Ingress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayRef>,

    /// Leave everything as it is, while this is true. A teardown goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,

    /// Where its pods run.
    #[serde(flatten)]
    pub placement: Placement,
}

fn plugin_name() -> String {
    PLUGIN_NAME.to_owned()
}

fn one() -> i32 {
    1
}

/// A Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub name: String,
    /// Its namespace; that of the operands if this is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The listener of the Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub section_name: Option<String>,
}
