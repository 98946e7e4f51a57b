//! What the four operands have in common, and how one is seen by the others.

use std::collections::BTreeSet;

use kube::ResourceExt;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::ClusterResourceScope;
use kube::core::object::{HasSpec, HasStatus};
use opcore::conditions::{Condition, Conditions, READY, find, is_true};
use opcore::operator::Reconciled;
use opcore::writes::{Delete, Dependants, Target};
use opcore::{Error, Write};
use serde::Serialize;
use serde_json::Value;

use crate::api::v1alpha1::{
    OperandKind, OperandStatus, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer,
};
use crate::config::{Field, OperandConfig, PARENT, is_owned_by, managed_alone};

/// A kind of operand.
pub trait Operand:
    Reconciled<Scope = ClusterResourceScope> + HasStatus<Status = OperandStatus> + HasSpec<Spec: Serialize>
{
    /// The kind.
    const KIND: OperandKind;
    /// What a teardown is guarded by.
    const FINALIZER: &'static str;

    /// Whether everything is to be left as it is.
    fn is_suspended(&self) -> bool;
}

impl Operand for SpireServer {
    const KIND: OperandKind = OperandKind::SpireServer;
    const FINALIZER: &'static str = "ztwim.io/spire-server-cleanup";

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }
}

impl Operand for SpireAgent {
    const KIND: OperandKind = OperandKind::SpireAgent;
    const FINALIZER: &'static str = "ztwim.io/spire-agent-cleanup";

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }
}

impl Operand for SpiffeCSIDriver {
    const KIND: OperandKind = OperandKind::SpiffeCSIDriver;
    const FINALIZER: &'static str = "ztwim.io/spiffe-csi-cleanup";

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }
}

impl Operand for SpireOIDCDiscoveryProvider {
    const KIND: OperandKind = OperandKind::SpireOIDCDiscoveryProvider;
    const FINALIZER: &'static str = "ztwim.io/oidc-cleanup";

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }
}

/// The values of the central config in an operand's spec.
pub fn config_of<K: Operand>(operand: &K) -> OperandConfig {
    let spec = serde_json::to_value(operand.spec()).unwrap_or(Value::Null);
    OperandConfig::of(K::KIND, &spec, operand.meta())
}

/// An operand, as its parent and the other operands see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Its kind.
    pub kind: OperandKind,
    /// How it is addressed.
    pub resource: ApiResource,
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Its spec, as JSON.
    pub spec: Value,
    /// Its status.
    pub status: OperandStatus,
    /// The values of the central config in its spec.
    pub config: OperandConfig,
}

impl Peer {
    /// This operand, as others see it.
    ///
    /// # Errors
    ///
    /// When its spec is no JSON, which does not happen.
    pub fn of<K: Operand>(operand: &K) -> Result<Self, Error> {
        let spec = serde_json::to_value(operand.spec()).map_err(|error| Error::Bug(error.to_string()))?;
        Ok(Self {
            kind: K::KIND,
            resource: ApiResource::erase::<K>(&()),
            config: OperandConfig::of(K::KIND, &spec, operand.meta()),
            meta: operand.meta().clone(),
            spec,
            status: operand.status().cloned().unwrap_or_default(),
        })
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    /// Whether it says that it is ready, for the spec that it has now.
    pub fn is_ready(&self) -> bool {
        self.status.observed_generation() == self.meta.generation && is_true(&self.status.conditions, READY)
    }

    /// Its condition `Ready`, if it has one.
    pub fn ready(&self) -> Option<&Condition> {
        find(&self.status.conditions, READY)
    }

    /// What it says about itself, for the message of another.
    pub fn message(&self) -> String {
        self.ready().map_or_else(|| "it has no status yet".to_owned(), |ready| ready.message.clone())
    }

    /// Whether it belongs to this parent.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        is_owned_by(&self.meta, uid)
    }

    /// The values that a parent without its own may take over: those that were set on this operand; and, if no parent
    /// has it, also those that its last parent left.
    pub fn offered(&self) -> OperandConfig {
        let mut owners = self.meta.owner_references.iter().flatten();
        let inherited =
            if owners.any(|owner| owner.kind == PARENT) { self.config.inherited.clone() } else { BTreeSet::new() };
        OperandConfig { values: self.config.values.clone(), inherited }
    }

    /// The fields of its spec that only `manager` manages: what it has from its parent.
    pub fn managed_alone(&self, manager: &str) -> BTreeSet<Field> {
        managed_alone(self.kind, &self.meta, manager)
    }

    /// Exactly this object.
    pub fn target(&self) -> Target {
        Target {
            resource: self.resource.clone(),
            namespace: None,
            name: self.meta.name.clone().unwrap_or_default(),
            uid: self.meta.uid.clone().unwrap_or_default(),
        }
    }

    /// Deletes exactly this object.
    pub fn delete(&self) -> Write {
        Write::Delete(Delete { target: self.target(), resource_version: None, dependants: Dependants::Background })
    }
}

/// How a kind of operand is addressed.
pub fn resource_of(kind: OperandKind) -> ApiResource {
    match kind {
        OperandKind::SpireServer => ApiResource::erase::<SpireServer>(&()),
        OperandKind::SpireAgent => ApiResource::erase::<SpireAgent>(&()),
        OperandKind::SpiffeCSIDriver => ApiResource::erase::<SpiffeCSIDriver>(&()),
        OperandKind::SpireOIDCDiscoveryProvider => ApiResource::erase::<SpireOIDCDiscoveryProvider>(&()),
    }
}

/// Whether an object is not being deleted.
pub fn is_active(object: &impl ResourceExt) -> bool {
    object.meta().deletion_timestamp.is_none()
}
