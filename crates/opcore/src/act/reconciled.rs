//! Finalizers of the object being reconciled.

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{Resource, ResourceExt};
use serde_json::json;

use super::{Actor, Outcome};
use crate::error::Error;
use crate::writes::{Target, Write};

/// The object being reconciled, as it was read.
#[derive(Clone, Debug)]
pub struct ReconciledObject {
    target: Target,
    finalizers: Vec<String>,
    resource_version: String,
}

impl ReconciledObject {
    /// The object being reconciled, as it was read.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            target: Target::of(object),
            finalizers: object.finalizers().to_vec(),
            resource_version: object.resource_version().unwrap_or_default(),
        }
    }

    /// Its version, as far as this process knows.
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// Whether no finalizer holds it.
    pub(super) fn is_free(&self) -> bool {
        self.finalizers.is_empty()
    }

    /// Changes the finalizers, on condition that the object is exactly the one that was read and that nothing has
    /// changed it since: the list is replaced as a whole, and a finalizer that was added in the meantime must not get
    /// lost.
    pub(super) async fn write(&mut self, actor: &Actor<'_>, write: &Write) -> Result<Outcome, Error> {
        let mut finalizers = self.finalizers.clone();
        match write {
            Write::AddFinalizer(name) if !finalizers.contains(name) => finalizers.push(name.clone()),
            Write::RemoveFinalizer(name) => finalizers.retain(|finalizer| finalizer != name),
            _ => {}
        }
        if finalizers == self.finalizers {
            return Ok(Outcome::Unchanged);
        }
        let patch = json!({ "metadata": {
            "uid": self.target.uid,
            "resourceVersion": self.resource_version,
            "finalizers": finalizers,
        }});
        let params = PatchParams { field_manager: Some(actor.claimant.operator.clone()), ..PatchParams::default() };
        let api = actor.target_api(&self.target)?;
        let answer: Result<DynamicObject, _> = api.patch(&self.target.name, &params, &Patch::Merge(&patch)).await;
        match answer {
            Ok(object) => {
                self.resource_version = object.resource_version().unwrap_or_default();
                self.finalizers = finalizers;
                Ok(Outcome::Changed)
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Outcome::Gone),
            Err(kube::Error::Api(status)) if status.code == 409 => Err(Error::Stale(self.target.to_string())),
            Err(error) => Err(error.into()),
        }
    }
}
