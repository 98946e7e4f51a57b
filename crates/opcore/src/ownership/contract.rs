//! The ownership contract as data: which layer of tools owns which objects.
//!
//! The types are defined here because every operator checks the contract before it writes. The object that carries it
//! in a cluster is reconciled elsewhere.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Subject;

/// Which tool owns which objects, and what happens to writes that break this contract.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contract {
    /// The layers, lowest first: what a layer owns, higher layers build on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// The tools, and how each of them is recognized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<OwnerSpec>,
    /// Which objects belong to which tool; the first rule that matches applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Writes that no tool may make.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guardrails: Vec<Guardrail>,
    /// What happens to a write that breaks the contract.
    #[serde(default)]
    pub enforcement: Enforcement,
}

/// A tool, and how it is recognized. One matching field is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnerSpec {
    /// The name that rules refer to.
    pub name: String,
    /// The layer of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// User names, as the API server sees them; `*` matches any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Field managers; `*` matches any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub field_managers: Vec<String>,
    /// Labels that the tool sets; an empty value matches any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations that the tool sets; an empty value matches any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Names of Helm releases that the tool creates; `*` matches any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub helm_releases: Vec<String>,
}

/// A set of objects, and their owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// The name of the rule, used in messages.
    pub name: String,
    /// The objects that the rule applies to. An empty list or map matches everything.
    #[serde(default)]
    pub select: Selector,
    /// The name of the owner.
    pub owner: String,
}

/// Selects objects. Every field must match; an empty field matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// API groups; the core group is `""`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Namespaces; `*` matches any characters. Cluster-scoped objects match only if this is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Names; `*` matches any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Labels; an empty value matches any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations; an empty value matches any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A condition that every write must meet, whoever owns the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Guardrail {
    /// The name of the guardrail, used in messages.
    pub name: String,
    /// The objects that the guardrail applies to.
    #[serde(default)]
    pub select: Selector,
    /// A CEL expression over `object` and `request` that must be true.
    pub expression: String,
    /// The message for a refused write. It should name the remedy.
    pub message: String,
}

/// What happens to a write that breaks the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Enforcement {
    /// The write is reported.
    #[default]
    Report,
    /// The write is reported, and the writer gets a warning.
    Warn,
    /// The write is refused.
    Deny,
}

/// The owner that the contract names for an object.
pub(super) struct NamedOwner<'a> {
    pub(super) name: String,
    pub(super) rule: String,
    spec: Option<&'a OwnerSpec>,
}

impl NamedOwner<'_> {
    /// Whether the operator writing as `manager` is this owner.
    pub(super) fn speaks_for(&self, manager: &str) -> bool {
        let managers = self.spec.into_iter().flat_map(|spec| &spec.field_managers);
        self.name == manager || managers.into_iter().any(|pattern| matches(pattern, manager))
    }
}

impl Contract {
    /// The owner that the first matching rule names.
    pub(super) fn owner_of(&self, subject: Subject<'_>) -> Option<NamedOwner<'_>> {
        let rule = self.rules.iter().find(|rule| rule.select.matches(subject))?;
        let spec = self.owners.iter().find(|owner| owner.name == rule.owner);
        Some(NamedOwner { name: rule.owner.clone(), rule: rule.name.clone(), spec })
    }
}

impl Selector {
    /// Whether an object is selected.
    pub fn matches(&self, subject: Subject<'_>) -> bool {
        let plain = |list: &[String], value: &str| list.is_empty() || list.iter().any(|item| item == value);
        let pattern = |list: &[String], value: Option<&str>| {
            list.is_empty() || value.is_some_and(|value| list.iter().any(|pattern| matches(pattern, value)))
        };
        plain(&self.groups, subject.group)
            && plain(&self.kinds, subject.kind)
            && pattern(&self.namespaces, subject.meta.namespace.as_deref())
            && pattern(&self.names, subject.meta.name.as_deref())
            && has_all(&self.labels, subject.meta.labels.as_ref())
            && has_all(&self.annotations, subject.meta.annotations.as_ref())
    }
}

fn has_all(wanted: &BTreeMap<String, String>, found: Option<&BTreeMap<String, String>>) -> bool {
    wanted.iter().all(|(key, value)| {
        found.and_then(|found| found.get(key)).is_some_and(|found| value.is_empty() || found == value)
    })
}

/// Whether `text` matches `pattern`, in which `*` matches any characters, and every other character only itself.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        // The leftmost occurrence leaves the most for the parts that follow.
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    true
}
