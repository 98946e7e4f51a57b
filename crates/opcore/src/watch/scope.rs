//! The scope of a watch, as a value that can be compared and sorted.

use std::fmt;
use std::time::Duration;

use kube::Resource;
use kube::api::ApiResource;

use super::Scope;
use crate::object::GroupKind;

/// Identifies a watch by its scope: a kind, in one namespace or in all, all objects or only those with certain labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeId {
    /// The kind's group.
    pub group: String,
    /// The kind's version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The kind, as the API server addresses it.
    pub plural: String,
    /// None: all namespaces.
    pub namespace: Option<String>,
    /// A label selector. None: all objects.
    pub labels: Option<String>,
}

impl ScopeId {
    /// All objects of a kind, in one namespace or in all.
    pub fn new(resource: &ApiResource, namespace: Option<String>) -> Self {
        Self {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            plural: resource.plural.clone(),
            namespace,
            labels: None,
        }
    }

    /// All objects of a kind that is known at compile time.
    pub fn of<K: Resource<DynamicType = ()>>(namespace: Option<String>) -> Self {
        Self::new(&ApiResource::erase::<K>(&()), namespace)
    }

    /// The same scope, restricted to objects with these labels.
    #[must_use]
    pub fn labelled(self, selector: impl Into<String>) -> Self {
        Self { labels: Some(selector.into()), ..self }
    }

    /// The kind, as the API server addresses it.
    pub fn resource(&self) -> ApiResource {
        let api_version = match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        };
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version,
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }

    /// The kind without its version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }

    /// Whether the scope is on objects of this kind.
    pub fn is_on(&self, kind: &GroupKind) -> bool {
        self.kind == kind.kind && self.group == kind.group
    }

    /// What to watch, with this lifetime per connection.
    pub(super) fn scope(&self, lives: Duration) -> Scope {
        Scope { resource: self.resource(), namespace: self.namespace.clone(), labels: self.labels.clone(), lives }
    }
}

impl fmt::Display for ScopeId {
    /// The kind, as users type it after `kubectl get`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}
