//! What is read for one decision.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode};
use kube::api::{ApiResource, DynamicObject, ListParams, TypeMeta};
use kube::{Resource, ResourceExt};
use opcore::ownership::OWNER_LABEL;
use opcore::watch::discovery::{Served, WrittenKind};
use opcore::watch::{Discovery, ScopeId};
use opcore::writes::{Delete, Dependants, Target};
use opcore::{Context, Error, ObjectId, Write};
use serde_json::Value;

use crate::api::v1alpha1::{
    OperandKind, SINGLETON, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer,
    ZeroTrustWorkloadIdentityManager,
};
use crate::config::is_owned_by;
use crate::operand::{Operand, Peer, is_active};
use crate::optional::Optional;
use crate::render::{PART_OF, Platform, Settings};

/// An object that carries the marks of an operand.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its kind, as the API server addresses it.
    pub resource: ApiResource,
    /// The object.
    pub object: DynamicObject,
    /// The same as JSON, with its managed fields.
    pub json: Value,
}

impl Found {
    /// An object that was read.
    ///
    /// # Errors
    ///
    /// When it is no JSON, which does not happen.
    pub fn new(resource: &ApiResource, mut object: DynamicObject) -> Result<Self, Error> {
        // Items of a list have neither; the readiness rules need both.
        object.types = Some(TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() });
        let json = serde_json::to_value(&object).map_err(|error| Error::Bug(error.to_string()))?;
        Ok(Self { resource: resource.clone(), object, json })
    }

    /// Which object it is.
    pub fn id(&self) -> ObjectId {
        ObjectId::new(&self.resource, &self.object)
    }

    /// Whether it is of this kind.
    pub fn is<K: Resource<DynamicType = ()>>(&self) -> bool {
        self.resource.kind == K::kind(&()) && self.resource.group == K::group(&())
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// Deletes exactly this object, whatever its version: what it is for is over.
    pub fn delete(&self) -> Write {
        let target = Target::dynamic(&self.resource, &self.object);
        Write::Delete(Delete { target, resource_version: None, dependants: Dependants::Background })
    }
}

/// Everything that was read for an operand.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The parent, if there is one.
    pub parent: Option<ZeroTrustWorkloadIdentityManager>,
    /// All operands that exist, this one included.
    pub peers: Vec<Peer>,
    /// The objects that carry the marks of this operand.
    pub found: Vec<Found>,
    /// The pods of all operands, and of the Jobs on volumes.
    pub pods: Vec<Pod>,
    /// The claims of the server: for its data and for backups.
    pub claims: Vec<PersistentVolumeClaim>,
    /// The ConfigMap with the trust bundle.
    pub bundle: Option<ConfigMap>,
    /// The workload of the server: it is upgraded first.
    pub server: Option<StatefulSet>,
    /// Which optional APIs there are.
    pub platform: Platform,
    /// Whether the namespace of the operands is there to hold anything.
    pub namespace_exists: bool,
    /// Of a CSI driver that is being deleted: the pods that use it.
    pub consumers: Vec<Consumer>,
    /// Of a CSI driver that is being deleted: the nodes whose kubelet still knows it.
    pub registered_on: Vec<String>,
}

impl Observed {
    /// An operand that exists.
    pub fn peer(&self, kind: OperandKind) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.kind == kind)
    }

    /// Whether the workload of the server is there and is to have pods.
    pub fn server_runs(&self) -> bool {
        let replicas = self.server.as_ref().and_then(|server| server.spec.as_ref()?.replicas);
        replicas.is_some_and(|replicas| replicas > 0)
    }

    /// The pods of a component, by the label that all operands' pods have.
    pub fn pods_of<'a>(&'a self, component: &'a str) -> impl Iterator<Item = &'a Pod> {
        let label = crate::render::COMPONENT_LABEL;
        self.pods.iter().filter(move |pod| pod.labels().get(label).is_some_and(|value| value == component))
    }
}

/// How many pods are read at a time when all in the cluster are: no more of them are in memory at once.
const PAGE: u32 = 250;

/// A pod that uses the CSI driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Consumer {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pod {}/{}", self.namespace, self.name)
    }
}

/// A kind of which an operand has objects.
struct OwnedKind {
    resource: ApiResource,
    namespaced: bool,
}

fn namespaced<K: Resource<DynamicType = ()>>() -> OwnedKind {
    OwnedKind { resource: ApiResource::erase::<K>(&()), namespaced: true }
}

fn clustered<K: Resource<DynamicType = ()>>() -> OwnedKind {
    OwnedKind { resource: ApiResource::erase::<K>(&()), namespaced: false }
}

/// The ClusterSPIFFEIDs of the controller manager.
pub fn cluster_spiffe_ids() -> ApiResource {
    resource("spire.spiffe.io", "v1alpha1", "ClusterSPIFFEID", "clusterspiffeids")
}

/// OpenShift's Routes.
pub fn routes() -> ApiResource {
    resource("route.openshift.io", "v1", "Route", "routes")
}

/// OpenShift's SecurityContextConstraints.
pub fn security_context_constraints() -> ApiResource {
    resource("security.openshift.io", "v1", "SecurityContextConstraints", "securitycontextconstraints")
}

/// The HTTPRoutes of the Gateway API.
pub fn http_routes() -> ApiResource {
    resource("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// The kinds of which an operand may have objects: what is no longer wanted is found among them.
fn owned_kinds(kind: OperandKind, platform: Platform) -> Vec<OwnedKind> {
    let optional =
        |has: bool, resource: ApiResource, namespaced: bool| has.then_some(OwnedKind { resource, namespaced });
    let route = || optional(platform.routes, routes(), true);
    let constraints = || optional(platform.security_context_constraints, security_context_constraints(), false);
    let spiffe_ids = || optional(platform.spiffe_ids, cluster_spiffe_ids(), false);
    match kind {
        OperandKind::SpireServer => [
            namespaced::<ServiceAccount>(),
            namespaced::<ConfigMap>(),
            namespaced::<Service>(),
            namespaced::<Role>(),
            namespaced::<RoleBinding>(),
            clustered::<ClusterRole>(),
            clustered::<ClusterRoleBinding>(),
            clustered::<ValidatingWebhookConfiguration>(),
            namespaced::<StatefulSet>(),
            namespaced::<Ingress>(),
            namespaced::<Job>(),
            namespaced::<PersistentVolumeClaim>(),
        ]
        .into_iter()
        .chain(spiffe_ids())
        .chain(route())
        .collect(),
        OperandKind::SpireAgent => [
            namespaced::<ServiceAccount>(),
            namespaced::<ConfigMap>(),
            clustered::<ClusterRole>(),
            clustered::<ClusterRoleBinding>(),
            namespaced::<DaemonSet>(),
        ]
        .into_iter()
        .chain(constraints())
        .collect(),
        OperandKind::SpiffeCSIDriver => {
            [namespaced::<ServiceAccount>(), namespaced::<DaemonSet>(), clustered::<CSIDriver>()]
                .into_iter()
                .chain(constraints())
                .collect()
        }
        OperandKind::SpireOIDCDiscoveryProvider => [
            namespaced::<ServiceAccount>(),
            namespaced::<ConfigMap>(),
            namespaced::<Service>(),
            namespaced::<Role>(),
            namespaced::<RoleBinding>(),
            namespaced::<Deployment>(),
            namespaced::<Ingress>(),
        ]
        .into_iter()
        .chain(spiffe_ids())
        .chain(route())
        .chain(optional(platform.http_routes, http_routes(), true))
        .collect(),
    }
}

/// Reads what the operands' decisions need.
pub struct Eyes {
    settings: Settings,
    discovery: Arc<Discovery>,
    optional: Arc<Optional>,
}

impl Eyes {
    /// Creates it.
    pub fn new(settings: &Settings, discovery: Arc<Discovery>, optional: Arc<Optional>) -> Self {
        Self { settings: settings.clone(), discovery, optional }
    }

    /// Reads everything for an operand.
    ///
    /// # Errors
    ///
    /// When the API server could not be reached, or did not allow it.
    pub async fn of_operand<K: Operand>(&self, operand: &K, context: &Context) -> Result<Observed, Error> {
        let reader = context.reader();
        let namespace = self.settings.namespace.as_str();
        let platform = self.platform().await;
        let parent = reader.all::<ZeroTrustWorkloadIdentityManager>().get_opt(SINGLETON).await?;
        let mut observed = Observed { parent, peers: peers(context).await?, platform, ..Observed::default() };

        let namespaces = reader.all::<Namespace>().get_metadata_opt(namespace).await?;
        observed.namespace_exists = namespaces.is_some_and(|found| found.metadata.deletion_timestamp.is_none());

        let ours = ListParams::default().labels(&format!("{OWNER_LABEL}={}", operand.uid().unwrap_or_default()));
        for kind in owned_kinds(K::KIND, platform) {
            let objects = reader.dynamic(&kind.resource, kind.namespaced.then_some(namespace));
            for object in objects.list(&ours).await? {
                observed.found.push(Found::new(&kind.resource, object)?);
            }
        }

        let of_stack = ListParams::default().labels(&format!("app.kubernetes.io/part-of={PART_OF}"));
        observed.pods = reader.namespaced::<Pod>(namespace).list(&of_stack).await?.items;
        match K::KIND {
            OperandKind::SpireServer => {
                observed.claims = reader.namespaced::<PersistentVolumeClaim>(namespace).list(&of_stack).await?.items;
                observed.bundle = self.bundle(&observed, context).await?;
            }
            OperandKind::SpireAgent => {
                observed.bundle = self.bundle(&observed, context).await?;
                observed.server = self.server(context).await?;
            }
            OperandKind::SpireOIDCDiscoveryProvider => observed.server = self.server(context).await?,
            OperandKind::SpiffeCSIDriver => {
                observed.server = self.server(context).await?;
                if operand.meta().deletion_timestamp.is_some() {
                    self.users_of_driver(&mut observed, context).await?;
                }
            }
        }
        not_being_released(operand, &observed, context).await?;
        Ok(observed)
    }

    /// Reads everything for the parent, beside its operands.
    ///
    /// # Errors
    ///
    /// When the API server could not be reached, or did not allow it.
    pub async fn of_stack(&self, context: &Context, peers: Vec<Peer>) -> Result<Observed, Error> {
        let reader = context.reader();
        let of_stack = ListParams::default().labels(&format!("app.kubernetes.io/part-of={PART_OF}"));
        Ok(Observed {
            // With the managed fields, which the watch leaves out.
            parent: reader.all::<ZeroTrustWorkloadIdentityManager>().get_opt(SINGLETON).await?,
            peers,
            pods: reader.namespaced::<Pod>(&self.settings.namespace).list(&of_stack).await?.items,
            ..Observed::default()
        })
    }

    async fn server(&self, context: &Context) -> Result<Option<StatefulSet>, Error> {
        context.reader().namespaced(&self.settings.namespace).get_opt(crate::render::server::NAME).await
    }

    /// The ConfigMap with the trust bundle, by the name that the server has in effect.
    async fn bundle(&self, observed: &Observed, context: &Context) -> Result<Option<ConfigMap>, Error> {
        let server = observed.peer(OperandKind::SpireServer);
        let values = server.map_or(&[][..], |server| &server.status.config);
        let Some(name) = values.iter().find(|value| value.name == "bundleConfigMap") else { return Ok(None) };
        context.reader().namespaced(&self.settings.namespace).get_opt(&name.value).await
    }

    /// Who still uses the CSI driver: pods by their volumes, in all namespaces, and kubelets.
    async fn users_of_driver(&self, observed: &mut Observed, context: &Context) -> Result<(), Error> {
        let names: BTreeSet<String> = observed
            .found
            .iter()
            .filter(|found| found.is::<CSIDriver>())
            .map(|found| found.object.name_any())
            .collect();
        let driver = observed.peer(OperandKind::SpiffeCSIDriver).and_then(|peer| peer.spec["pluginName"].as_str());
        let is_ours = |name: &str| names.contains(name) || driver == Some(name);
        let mut consumers = Vec::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let pods = context.reader().all::<Pod>().list(&page).await?;
            let users = pods.iter().filter(|pod| uses_driver(pod, is_ours));
            consumers.extend(
                users.map(|pod| Consumer { namespace: pod.namespace().unwrap_or_default(), name: pod.name_any() }),
            );
            match pods.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
        consumers.sort();
        let nodes = context.reader().all::<CSINode>().list(&ListParams::default()).await?;
        let knows = |node: &&CSINode| node.spec.drivers.iter().any(|driver| is_ours(&driver.name));
        observed.registered_on = nodes.iter().filter(knows).map(ResourceExt::name_any).collect();
        observed.consumers = consumers;
        Ok(())
    }

    /// Which optional APIs there are. One that does not answer counts as not there: nothing of it is written then, and
    /// nothing is deleted.
    async fn platform(&self) -> Platform {
        let written = |resource: &ApiResource| (resource.api_version.clone(), resource.kind.clone());
        let all = [routes(), security_context_constraints(), http_routes(), cluster_spiffe_ids()];
        let kinds: BTreeSet<WrittenKind> = all.iter().map(written).collect();
        let served = self.discovery.served(&kinds).await;
        let is_served = |resource: &ApiResource| matches!(served.get(&written(resource)), Some(Served::Yes { .. }));
        let ours = |resource: &ApiResource| {
            let namespaced = [routes(), http_routes()].contains(resource);
            let namespace = namespaced.then(|| self.settings.namespace.clone());
            ScopeId::new(resource, namespace).labelled(format!("app.kubernetes.io/part-of={PART_OF}"))
        };
        self.optional.watch(all.iter().filter(|resource| is_served(resource)).map(ours).collect());
        let [route, constraints, http_route, spiffe_id] = all;
        Platform {
            routes: is_served(&route),
            security_context_constraints: is_served(&constraints),
            http_routes: is_served(&http_route),
            spiffe_ids: is_served(&spiffe_id),
        }
    }
}

/// Whether a pod that is not over has a volume of a driver that is ours.
pub fn uses_driver(pod: &Pod, is_ours: impl Fn(&str) -> bool) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_over = matches!(phase, Some("Succeeded" | "Failed"));
    !is_over && volumes.filter_map(|volume| volume.csi.as_ref()).any(|csi| is_ours(&csi.driver))
}

/// Refuses to go on with an operand that was deleted meanwhile with `--cascade=orphan`: its objects have lost their owner
/// references already, and whoever restored them would have the objects taken down.
async fn not_being_released<K: Operand>(operand: &K, observed: &Observed, context: &Context) -> Result<(), Error> {
    let uid = operand.uid().unwrap_or_default();
    let is_released = |found: &Found| found.is::<ServiceAccount>() && !is_owned_by(&found.object.metadata, &uid);
    if !is_active(operand) || !observed.found.iter().any(is_released) {
        return Ok(());
    }
    let now = context.reader().all::<K>().get_opt(SINGLETON).await?;
    if now.is_some_and(|now| now.uid().as_ref() == Some(&uid) && is_active(&now)) {
        return Ok(());
    }
    Err(Error::Stale(format!("{} {SINGLETON} was deleted meanwhile", K::KIND)))
}

/// All operands that exist.
///
/// # Errors
///
/// When the API server could not be reached, or did not allow it.
pub async fn peers(context: &Context) -> Result<Vec<Peer>, Error> {
    async fn peer<K: Operand>(context: &Context) -> Result<Option<Peer>, Error> {
        let found = context.reader().all::<K>().get_opt(SINGLETON).await?;
        found.as_ref().map(Peer::of).transpose()
    }
    let all = [
        peer::<SpireServer>(context).await?,
        peer::<SpireAgent>(context).await?,
        peer::<SpiffeCSIDriver>(context).await?,
        peer::<SpireOIDCDiscoveryProvider>(context).await?,
    ];
    Ok(all.into_iter().flatten().collect())
}
