//! A kind that wraps a built-in module.
#![allow(unreachable_pub, reason = "the derived schemas repeat each struct where nobody can reach it")]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use opcore::conditions::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::WorkspacePhase;

/// A random value and a file that contains it, made by the built-in module `simple`.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infra.opr8r",
    version = "v1alpha1",
    kind = "SimpleResource",
    plural = "simpleresources",
    shortname = "simple",
    category = "opcore",
    namespaced,
    status = "SimpleResourceStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Value","type":"string","jsonPath":".status.randomValue"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.message"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SimpleResourceSpec {
    /// The length of the random value.
    #[schemars(range(min = 1, max = 4096))]
    pub length: i32,
    /// The text that the file begins with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1_000_000))]
    pub prefix: String,
    /// Settings of the module: `special` and `upper` determine whether such characters may occur; `sleep` is a time to
    /// wait, such as `60s`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<String, String>,
}

/// The observed state of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SimpleResourceStatus {
    /// The phase of the workspace that belongs to the resource.
    pub phase: WorkspacePhase,
    /// A message that describes the phase.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The random value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_value: Option<String>,
    /// The path of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_path: Option<String>,
    /// The digest of the inputs that were last applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied_hash: Option<String>,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions of the resource: `Ready`, and `Reconciling` or `Stalled` while they are true.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

opcore::impl_conditions!(SimpleResourceStatus);
