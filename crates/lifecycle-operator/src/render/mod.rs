//! Kubernetes objects from specs: pure functions, one file per operand.

pub mod agent;
pub(crate) mod common;
pub(crate) mod constraints;
pub mod csi;
pub mod oidc;
pub mod server;
#[cfg(test)]
mod testing;
pub mod volume;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::ObjectMeta;
use opcore::Write;
use opcore::ownership::owner_reference;
use serde::Serialize;

/// What the operator itself was told: by flags, not by objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The namespace in which the operands run.
    pub namespace: String,
    /// The images of the operands.
    pub images: Images,
    /// When images are pulled: `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: String,
    /// The names of Secrets with which images are pulled.
    pub pull_secrets: Vec<String>,
    /// The class that the controller manager serves; other ClusterSPIFFEIDs are left to others.
    pub class_name: String,
}

/// The images of the operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// The SPIRE server.
    pub server: String,
    /// Its controller manager.
    pub controller_manager: String,
    /// The SPIRE agent.
    pub agent: String,
    /// The SPIFFE CSI driver.
    pub csi_driver: String,
    /// What registers the driver with the kubelet.
    pub csi_registrar: String,
    /// The OIDC discovery provider.
    pub oidc: String,
    /// `spire-volume`, which works on volumes.
    pub volume: String,
}

/// The central config as it is in effect for an operand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The trust domain.
    pub trust_domain: String,
    /// The name of the cluster.
    pub cluster_name: String,
    /// The ConfigMap with the trust bundle.
    pub bundle_config_map: String,
    /// The issuer of JWT-SVIDs.
    pub jwt_issuer: String,
}

/// Which optional APIs the cluster has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each API is there or not, whatever the others are")]
pub struct Platform {
    /// OpenShift's Routes.
    pub routes: bool,
    /// OpenShift's SecurityContextConstraints.
    pub security_context_constraints: bool,
    /// The HTTPRoutes of the Gateway API.
    pub http_routes: bool,
    /// The ClusterSPIFFEIDs of SPIRE's controller manager.
    pub spiffe_ids: bool,
}

/// The objects of an operand. Each part is applied after the one before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    /// What the workload needs: accounts, rights, configuration, volumes, Services.
    pub support: Vec<Write>,
    /// The workload.
    pub workload: Vec<Write>,
    /// What makes it reachable from outside.
    pub routes: Vec<Write>,
}

impl Objects {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Write> {
        self.support.iter().chain(&self.workload).chain(&self.routes)
    }
}

/// Why an object cannot be rendered: a bug, since specs are checked at admission.
pub type Error = String;

/// The labels by which the pods of an operand are selected.
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// The value of `app.kubernetes.io/part-of` on all objects of the stack.
pub const PART_OF: &str = "spire";

/// The write of an object that must not go before its turn: a workload, what makes it reachable, a CSIDriver.
///
/// It has no owner reference, and is found by our marks. With a reference, `kubectl delete --cascade=foreground` would
/// have Kubernetes delete all workloads of the stack at once: the driver before the pods that need it to end.
pub(crate) fn in_order<K>(object: &K) -> Result<Write, Error>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    Write::apply(object).map_err(|error| error.to_string())
}

/// The write of an object that belongs to an operand and may go at any time: with a controller reference, so that
/// Kubernetes knows, too.
pub(crate) fn owned<O, K>(owner: &O, mut object: K) -> Result<Write, Error>
where
    O: Resource<DynamicType = ()>,
    K: Resource<DynamicType = ()> + Serialize,
{
    let references = owner_of(owner, object.meta().namespace.as_deref())?;
    let meta: &mut ObjectMeta = object.meta_mut();
    meta.owner_references = references;
    Write::apply(&object).map_err(|error| error.to_string())
}

/// The owner references of an object in this namespace.
fn owner_of<O>(owner: &O, namespace: Option<&str>) -> Result<Option<Vec<OwnerReference>>, Error>
where
    O: Resource<DynamicType = ()>,
{
    let reference = owner_reference(owner, namespace).map_err(|error| error.to_string())?;
    Ok(Some(vec![reference]))
}
