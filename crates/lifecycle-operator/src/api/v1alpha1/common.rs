//! What the specs of several kinds have in common.
#![allow(unreachable_pub, reason = "the derived schemas repeat each struct where nobody can reach it")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A SPIFFE trust domain.
pub(super) const TRUST_DOMAIN: &str = r"^[a-z0-9]([a-z0-9\-\.]*[a-z0-9])?$";
/// The name of a Kubernetes object.
pub(super) const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// An absolute path without surprises.
pub(super) const PATH: &str = r"^/[a-zA-Z0-9._/\-]*$";
/// The issuer of JWT-SVIDs.
pub(super) const ISSUER: &str = r"^(?i)https?://[^\s?#]+$";

/// A switch, written as a string: `"true"` or `"false"`. The kinds of the upstream operator use strings here, and their
/// manifests apply unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Switch {
    /// On.
    #[serde(rename = "true")]
    True,
    /// Off.
    #[serde(rename = "false")]
    False,
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Self::True
    }

    /// On, as a default.
    pub(super) fn on() -> Self {
        Self::True
    }

    /// Off, as a default.
    pub(super) fn off() -> Self {
        Self::False
    }
}

/// How much a program logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// What it does.
    #[default]
    Info,
    /// What may be wrong.
    Warn,
    /// What is wrong.
    Error,
}

impl LogLevel {
    /// The level as SPIRE's configuration spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// The format as SPIRE's configuration spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// Where the pods of an operand run and what they may use. Every operand has these fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Labels for all objects of the operand.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,

    /// Resources of the operand's main container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Affinity of the operand's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// Tolerations of the operand's pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "atomic"))]
    pub tolerations: Vec<Toleration>,

    /// Labels of the nodes on which the operand's pods run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50, "x-kubernetes-map-type" = "atomic"))]
    pub node_selector: BTreeMap<String, String>,
}

/// A key of a Secret in the namespace of the operands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub name: String,
    /// The key in the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}
