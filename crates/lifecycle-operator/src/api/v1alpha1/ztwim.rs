//! The central config.
#![allow(unreachable_pub, reason = "the derived schemas repeat each struct where nobody can reach it")]

use jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use opcore::conditions::Condition;
use opcore::duration::Span;
use opcore::finalizer::{OnExpiry, TeardownRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{ISSUER, NAME, TRUST_DOMAIN};

/// The central config of a SPIRE stack, and its parent: what is set here reaches every operand, and deleting it takes
/// the whole stack down in order.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "operator.openshift.io",
    version = "v1alpha1",
    kind = "ZeroTrustWorkloadIdentityManager",
    plural = "zerotrustworkloadidentitymanagers",
    shortname = "ztwim",
    category = "opcore",
    status = "ZeroTrustWorkloadIdentityManagerStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'cluster'")
        .message("there is one ZeroTrustWorkloadIdentityManager in a cluster: metadata.name must be 'cluster'"),
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Trust-Domain","type":"string","jsonPath":".status.trustDomain"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "!has(oldSelf.trustDomain) || (has(self.trustDomain) && (self.trustDomain == oldSelf.trustDomain || (has(self.allowTrustDomainMigration) && self.allowTrustDomainMigration)))"
).message("spec.trustDomain cannot be changed: SPIRE does not start on data of another trust domain. To migrate, set spec.allowTrustDomainMigration: true with the new trust domain; every workload gets a new identity"))]
#[x_kube(validation = Rule::new("!has(oldSelf.clusterName) || (has(self.clusterName) && self.clusterName == oldSelf.clusterName)")
    .message("spec.clusterName cannot be changed once it is set: agents attested under it would be unknown"))]
#[x_kube(validation = Rule::new("!has(oldSelf.bundleConfigMap) || (has(self.bundleConfigMap) && self.bundleConfigMap == oldSelf.bundleConfigMap)")
    .message("spec.bundleConfigMap cannot be changed once it is set: workloads read the trust bundle from it"))]
pub struct ZeroTrustWorkloadIdentityManagerSpec {
    /// The trust domain of all SPIFFE IDs. If it is empty, it is taken once from an operand that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = TRUST_DOMAIN))]
    pub trust_domain: Option<String>,

    /// The name of this cluster in the trust domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = NAME))]
    pub cluster_name: Option<String>,

    /// The ConfigMap with the trust bundle, `spire-bundle` by default. The server keeps it up to date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub bundle_config_map: Option<String>,

    /// The issuer of JWT-SVIDs, which the OIDC discovery provider serves. By default `https://oidc-discovery.` and the
    /// trust domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = ISSUER))]
    pub jwt_issuer: Option<String>,

    /// The operands to create when they do not exist; all by default. An operand that exists belongs to the stack in
    /// any case.
    #[serde(default = "all_operands")]
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "set"))]
    pub operands: Vec<OperandKind>,

    /// Allow changing `trustDomain`. The data of the old trust domain is backed up and removed, and every workload gets
    /// an identity in the new one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_trust_domain_migration: bool,

    /// How the stack is taken down.
    #[serde(default)]
    pub teardown: TeardownPolicy,

    /// Leave everything as it is, while this is true. A teardown goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

/// A kind of operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OperandKind {
    /// The SPIRE server with its controller manager.
    SpireServer,
    /// The SPIRE agent on every node.
    SpireAgent,
    /// The driver that gives pods the Workload API as a volume.
    SpiffeCSIDriver,
    /// The provider of OIDC discovery documents.
    SpireOIDCDiscoveryProvider,
}

impl OperandKind {
    /// All, in the order in which they start.
    pub const ALL: [Self; 4] =
        [Self::SpireServer, Self::SpireAgent, Self::SpiffeCSIDriver, Self::SpireOIDCDiscoveryProvider];

    /// The name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SpireServer => "SpireServer",
            Self::SpireAgent => "SpireAgent",
            Self::SpiffeCSIDriver => "SpiffeCSIDriver",
            Self::SpireOIDCDiscoveryProvider => "SpireOIDCDiscoveryProvider",
        }
    }
}

impl std::fmt::Display for OperandKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

fn all_operands() -> Vec<OperandKind> {
    OperandKind::ALL.to_vec()
}

/// How a stack is taken down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeardownPolicy {
    /// How long each step of an operand may take.
    #[serde(default = "half_a_minute")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s')").message("operandTimeout must be at least 1s"))]
    pub operand_timeout: Span,
    /// How long the whole may take.
    #[serde(default = "two_minutes")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s')").message("timeout must be at least 1s"))]
    pub timeout: Span,
    /// What happens when the time is up: `Wait` keeps trying and warns, `Force` gives the step up and records what was
    /// left behind, `Manual` stops and says which command goes on.
    #[serde(default)]
    pub on_expiry: OnExpiry,
}

impl Default for TeardownPolicy {
    fn default() -> Self {
        Self { operand_timeout: half_a_minute(), timeout: two_minutes(), on_expiry: OnExpiry::default() }
    }
}

fn half_a_minute() -> Span {
    Span::from_secs(30)
}

fn two_minutes() -> Span {
    Span::from_secs(120)
}

/// The observed state of the stack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZeroTrustWorkloadIdentityManagerStatus {
    /// The conditions: Ready always; Reconciling, Stalled, Progressing, Degraded, Deleting and OperandsAvailable while
    /// they say something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The trust domain in effect. While it differs from the one in the spec, a migration is under way or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_domain: Option<String>,
    /// The state of each operand that exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind"]))]
    pub operands: Vec<OperandSummary>,
    /// The migration to another trust domain that is under way, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<Migration>,
    /// The steps of the teardown, once the object is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teardown: Option<TeardownRecord>,
}
opcore::impl_conditions!(ZeroTrustWorkloadIdentityManagerStatus);
opcore::impl_taken_down!(ZeroTrustWorkloadIdentityManagerStatus);

/// The state of one operand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperandSummary {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: OperandKind,
    /// Whether it is ready: `"true"` or `"false"`.
    #[schemars(regex(pattern = r"^(true|false)$"))]
    pub ready: String,
    /// Why it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Its conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A migration to another trust domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    /// The trust domain before.
    pub from: String,
    /// The trust domain after.
    pub to: String,
    /// How far it is.
    pub phase: MigrationPhase,
    /// The backup of the data of the old trust domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When the whole stack was ready in the new trust domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum MigrationPhase {
    /// Agents and server are being stopped.
    Draining,
    /// The data of the old trust domain is being backed up.
    BackingUp,
    /// Entries, agents and keys of the old trust domain are being removed from the volume.
    Clearing,
    /// The operands are being switched to the new trust domain.
    Switching,
    /// Server, agents and providers are starting in the new trust domain.
    Restarting,
    /// The whole stack is ready in the new trust domain.
    Done,
}
