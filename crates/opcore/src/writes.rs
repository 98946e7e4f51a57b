//! Writes as data: what a decision wants to write, in order, for a test to read and for [`crate::act`] to carry out.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{Resource, ResourceExt};
use serde::Serialize;

use crate::object::{GroupKind, ObjectId};

/// Writes in stages. A stage begins when the stage before it is complete; within a stage the order is free.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Writes {
    stages: Vec<Vec<Write>>,
}

impl Writes {
    /// No writes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a write that begins after all writes so far.
    pub fn then(&mut self, write: Write) -> &mut Self {
        self.stages.push(vec![write]);
        self
    }

    /// Adds a write that comes before all writes so far.
    pub fn first(&mut self, write: Write) -> &mut Self {
        self.stages.insert(0, vec![write]);
        self
    }

    /// Adds writes that begin together, after all writes so far.
    pub fn together(&mut self, writes: impl IntoIterator<Item = Write>) -> &mut Self {
        let writes: Vec<_> = writes.into_iter().collect();
        if !writes.is_empty() {
            self.stages.push(writes);
        }
        self
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// All writes, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Write> {
        self.stages.iter().flatten()
    }

    /// The stages.
    pub fn stages(&self) -> &[Vec<Write>] {
        &self.stages
    }
}

impl FromIterator<Write> for Writes {
    fn from_iter<I: IntoIterator<Item = Write>>(writes: I) -> Self {
        Self { stages: writes.into_iter().map(|write| vec![write]).collect() }
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Create or update this object, so that it has these fields.
    Apply(Box<Apply>),
    /// Delete exactly this object.
    Delete(Delete),
    /// Set annotations on exactly this object, or remove those without a value.
    /// Ownership is not checked: this is for annotations that an object's owner documents for others to set, such as a
    /// request to reconcile. Not for the object being reconciled, whose status would then be published onto a version
    /// that is outdated.
    Annotate {
        /// The exact object.
        target: Target,
        /// The annotations to set, or to remove.
        annotations: BTreeMap<String, Option<String>>,
    },
    /// Manage these fields of exactly this object, or manage none of them any more.
    ///
    /// Ownership is not checked, and our marks are not added: this is for fields that an object's owner leaves to
    /// others, such as a switch that suspends it. A field that another manager owns is never taken.
    Claim {
        /// The exact object.
        target: Target,
        /// The fields, as a part of the object. Fields that we managed before and that are missing here are given up.
        fields: serde_json::Value,
    },
    /// Run a command in a container of exactly this pod, and wait until it ends. Ownership is not checked.
    ///
    /// Only for a command that may be repeated and that ends within the deadline of a request: when the process ends or
    /// the result is lost, the command may have run, may still be running, and is run again by the next decision that
    /// wants it.
    Exec(Box<Exec>),
    /// Add a finalizer to the object being reconciled.
    AddFinalizer(String),
    /// Remove a finalizer from the object being reconciled.
    RemoveFinalizer(String),
}

/// An object to apply: its kind and the fields we want to own.
#[derive(Clone, PartialEq)]
pub struct Apply {
    /// Its kind, as the API server addresses it.
    pub resource: ApiResource,
    /// The fields we want, and no others.
    pub object: DynamicObject,
}

/// An object to delete.
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// The exact object.
    pub target: Target,
    /// Delete the object only while it has this version, the one that was observed.
    pub resource_version: Option<String>,
    /// What happens to its dependants.
    pub dependants: Dependants,
}

/// A command to run in a container.
#[derive(Clone, PartialEq)]
pub struct Exec {
    /// The exact pod.
    pub target: Target,
    /// The container.
    pub container: String,
    /// The program and its arguments: there is no shell, and no standard input. They are a part of the request's URL,
    /// which the API server's audit log contains: none of them may be a secret.
    pub command: Vec<String>,
}

/// What happens to the dependants of a deleted object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dependants {
    /// They are deleted after it.
    #[default]
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// One specific object from its creation to its deletion, and never a later object of the same name.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its kind, as the API server addresses it.
    pub resource: ApiResource,
    /// Its namespace, unless it is cluster-scoped.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Target {
    /// Exactly this object, as it was read.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self::dynamic(&ApiResource::erase::<K>(&()), object)
    }

    /// Exactly this object, of a kind that is known only at run time.
    pub fn dynamic(resource: &ApiResource, object: &impl Resource) -> Self {
        Self {
            resource: resource.clone(),
            namespace: object.namespace(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
        }
    }

    /// The object's kind, namespace and name, without the UID that distinguishes it from a later object of the same
    /// name.
    pub fn id(&self) -> ObjectId {
        let kind = GroupKind::of(&self.resource);
        ObjectId { kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl Write {
    /// Creates or updates `object`. Its status is left out: it belongs to the controller that reconciles it.
    ///
    /// # Errors
    ///
    /// When the object cannot be represented as JSON. Every Kubernetes type can.
    pub fn apply<K>(object: &K) -> Result<Self, serde_json::Error>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let resource = ApiResource::erase::<K>(&());
        let mut value = serde_json::to_value(object)?;
        if let Some(fields) = value.as_object_mut() {
            fields.insert("apiVersion".to_owned(), resource.api_version.clone().into());
            fields.insert("kind".to_owned(), resource.kind.clone().into());
            fields.remove("status");
        }
        Ok(Self::apply_dynamic(resource, serde_json::from_value(value)?))
    }

    /// Creates or updates `object`, of a kind that is known only at run time.
    pub fn apply_dynamic(resource: ApiResource, object: DynamicObject) -> Self {
        Self::Apply(Box::new(Apply { resource, object }))
    }

    /// Runs a command in a container of exactly this pod: see [`Write::Exec`].
    pub fn exec(pod: &Pod, container: impl Into<String>, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::Exec(Box::new(Exec {
            target: Target::of(pod),
            container: container.into(),
            command: command.into_iter().map(Into::into).collect(),
        }))
    }

    /// Deletes exactly this object, as it was read: not a later object of the same name, and not if it has changed
    /// since.
    pub fn delete<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self::Delete(Delete {
            target: Target::of(object),
            resource_version: object.resource_version(),
            dependants: Dependants::default(),
        })
    }
}

impl Write {
    /// The object to write; none for a write to the object being reconciled.
    pub fn object(&self) -> Option<ObjectId> {
        match self {
            Self::Apply(apply) => Some(apply.id()),
            Self::Delete(delete) => Some(delete.target.id()),
            Self::Annotate { target, .. } | Self::Claim { target, .. } => Some(target.id()),
            Self::Exec(exec) => Some(exec.target.id()),
            Self::AddFinalizer(_) | Self::RemoveFinalizer(_) => None,
        }
    }
}

impl fmt::Display for Write {
    /// One line for logs and failing tests, such as "apply ConfigMap shop/front".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(apply) => write!(f, "apply {}", apply.id()),
            Self::Delete(delete) => write!(f, "delete {}", delete.target),
            Self::Annotate { target, .. } => write!(f, "annotate {target}"),
            Self::Claim { target, .. } => write!(f, "claim fields of {target}"),
            Self::Exec(exec) => write!(f, "run {exec}"),
            Self::AddFinalizer(name) => write!(f, "add finalizer {name}"),
            Self::RemoveFinalizer(name) => write!(f, "remove finalizer {name}"),
        }
    }
}

impl Apply {
    /// The object.
    pub fn id(&self) -> ObjectId {
        ObjectId::new(&self.resource, &self.object)
    }
}

impl fmt::Debug for Apply {
    /// Without the fields: they may be a Secret's, and this may end up in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Apply({})", self.id())
    }
}

impl Exec {
    /// The program, without its directory.
    fn program(&self) -> &str {
        let path = self.command.first().map_or("nothing", String::as_str);
        path.rsplit('/').next().unwrap_or(path)
    }
}

impl fmt::Display for Exec {
    /// Without the arguments, which may be long: "spire-server in Pod spire/spire-server-0".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.program(), self.target)
    }
}

impl fmt::Debug for Exec {
    /// Without the arguments, as everywhere in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exec({self})")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_described_by_its_program_and_pod_and_without_its_arguments() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "spire-server-0", "namespace": "spire", "uid": "uid"},
        }))
        .unwrap();
        let write =
            Write::exec(&pod, "spire-server", ["/opt/spire/bin/spire-server", "agent", "evict", "-token", "4711"]);
        assert_eq!(write.to_string(), "run spire-server in Pod spire/spire-server-0");
        assert_eq!(write.object().unwrap().to_string(), "Pod spire/spire-server-0");
        let debug = format!("{write:?}");
        assert!(debug.contains("spire-server-0") && !debug.contains("4711"), "{debug}");
        let bare = Write::exec(&pod, "spire-server", ["ls"]);
        assert_eq!(bare.to_string(), "run ls in Pod spire/spire-server-0");
    }
}
