//! What the tests share: a control plane of their own, hands that do the work of a node, and the operator at work.
//!
//! There is one stack in a cluster, so the tests take turns.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PropagationPolicy};
use kube::{Api, Client, Config, CustomResourceExt, Resource, ResourceExt};
use lifecycle_operator::api::v1alpha1::{
    SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer, ZeroTrustWorkloadIdentityManager,
};
use lifecycle_operator::controller::{Operands, Shared, Stack};
use lifecycle_operator::policies;
use lifecycle_operator::render::{Images, Settings};
use opcore::Context;
use opcore::conditions::{Conditions, find, is_true};
use opcore_testing::PATIENCE;
use opcore_testing::proxy::Proxy;
use opcore_testing::running;
pub use opcore_testing::wait::{eventually, gone};
use sandbox::{Options, Sandbox};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell, watch};
use tokio::task::JoinHandle;

use crate::hands::Hands;

/// The operator's name.
pub const NAME: &str = "lifecycle-operator";
/// The namespace of the operands.
pub const NAMESPACE: &str = "spire";

static SANDBOX: OnceCell<Sandbox> = OnceCell::const_new();
static TURN: Mutex<()> = Mutex::const_new(());

/// A cluster without a stack.
pub struct Scene {
    pub client: Client,
    pub proxy: Proxy,
    pub hands: Hands,
    _turn: MutexGuard<'static, ()>,
}

/// The settings of an operator in a test.
pub fn settings() -> Settings {
    let image = |name: &str| format!("example.com/{name}:v1");
    Settings {
        namespace: NAMESPACE.to_owned(),
        images: Images {
            server: image("server"),
            controller_manager: image("controller-manager"),
            agent: image("agent"),
            csi_driver: image("csi-driver"),
            csi_registrar: image("csi-registrar"),
            oidc: image("oidc"),
            volume: image("volume"),
        },
        pull_policy: "IfNotPresent".to_owned(),
        pull_secrets: Vec::new(),
        class_name: "tests".to_owned(),
    }
}

/// An operator at work, with all its kinds.
pub struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    pub context: Context,
}

impl Running {
    /// Starts it.
    pub fn start(config: Config, settings: Settings) -> Self {
        let (stop, stopping) = watch::channel(false);
        let context = running::context(NAME, config, &[NAMESPACE], running::Settings::default(), stopping);
        let task = tokio::spawn(run(context.clone(), settings));
        Self { stop, task, context }
    }

    /// Ends it in good order.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        tokio::time::timeout(PATIENCE, self.task).await.expect("it stops when asked").unwrap();
    }

    /// Ends it as a crash would.
    pub async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn run(context: Context, settings: Settings) {
    let shared = Shared::new(&context, settings.clone());
    let policies = policies::all(true, &settings.namespace);
    futures::try_join!(
        context.controller(Stack::new(&shared)),
        context.controller(Operands::<SpireServer>::new(&shared)),
        context.controller(Operands::<SpireAgent>::new(&shared)),
        context.controller(Operands::<SpiffeCSIDriver>::new(&shared)),
        context.controller(Operands::<SpireOIDCDiscoveryProvider>::new(&shared)),
        shared.summary().keep(&context, &settings.namespace),
        opcore::admission::keep(&context, &policies),
    )
    .unwrap();
}

impl Scene {
    /// Waits for its turn, and removes what an earlier test left.
    pub async fn new() -> Self {
        let turn = TURN.lock().await;
        opcore::client::install_crypto_provider();
        let sandbox =
            SANDBOX.get_or_init(|| async { Sandbox::start(Options::default()).await.expect("a control plane") }).await;
        let client = sandbox.client().await.unwrap();
        for definition in [
            ZeroTrustWorkloadIdentityManager::crd(),
            SpireServer::crd(),
            SpireAgent::crd(),
            SpiffeCSIDriver::crd(),
            SpireOIDCDiscoveryProvider::crd(),
        ] {
            opcore_testing::wait::install(&client, &definition).await;
        }
        opcore_testing::wait::install(&client, &cluster_spiffe_ids()).await;
        let proxy = Proxy::start(client.clone()).await.unwrap();
        let hands = Hands::start(&client).await;
        proxy.answers_exec(hands.told());
        let scene = Self { client, proxy, hands, _turn: turn };
        scene.wipe().await;
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        let namespaces: Api<Namespace> = Api::all(scene.client.clone());
        namespaces.patch(NAMESPACE, &PatchParams::apply("tests"), &Patch::Apply(&namespace)).await.unwrap();
        scene
    }

    /// Starts an operator, by way of the proxy.
    pub fn operator(&self) -> Running {
        Running::start(self.proxy.config(), settings())
    }

    /// Removes a stack by hand, as nobody should.
    async fn wipe(&self) {
        self.drop_all::<ZeroTrustWorkloadIdentityManager>().await;
        self.drop_all::<SpireServer>().await;
        self.drop_all::<SpireAgent>().await;
        self.drop_all::<SpiffeCSIDriver>().await;
        self.drop_all::<SpireOIDCDiscoveryProvider>().await;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        if let Some(old) = namespaces.get_opt(NAMESPACE).await.unwrap() {
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), NAMESPACE);
            claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
            namespaces.delete(NAMESPACE, &DeleteParams::default()).await.unwrap();
            gone(&namespaces, NAMESPACE, &old.uid().unwrap()).await;
        }
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        volumes.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        let ours = ListParams::default().labels("app.kubernetes.io/part-of=spire");
        let drivers: Api<k8s_openapi::api::storage::v1::CSIDriver> = Api::all(self.client.clone());
        drivers.delete_collection(&DeleteParams::default(), &ours).await.unwrap();
        *self.hands.world.lock().unwrap() = crate::hands::World::default();
    }

    async fn drop_all<K>(&self)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let all: Api<K> = Api::all(self.client.clone());
        for object in all.list(&ListParams::default()).await.unwrap() {
            let free = json!({ "metadata": { "finalizers": null } });
            let _ = all.delete(&object.name_any(), &DeleteParams::default()).await;
            let _ = all.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&free)).await;
            gone(&all, &object.name_any(), &object.uid().unwrap()).await;
        }
    }

    /// The one object of a kind.
    pub fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Objects in the namespace of the operands.
    pub fn of<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Writes the one object of a kind, as a person does with kubectl.
    pub async fn write<K>(&self, spec: Value) -> Result<K, kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let object = json!({ "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": { "name": "cluster" }, "spec": spec });
        self.all::<K>().patch("cluster", &PatchParams::apply("kubectl"), &Patch::Apply(&object)).await
    }

    /// Changes fields of the one object of a kind, as `kubectl patch` does.
    pub async fn patch<K>(&self, patch: Value) -> Result<K, kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.all::<K>()
            .patch(
                "cluster",
                &PatchParams { field_manager: Some("kubectl-patch".to_owned()), ..PatchParams::default() },
                &Patch::Merge(&patch),
            )
            .await
    }

    /// Deletes the one object of a kind.
    pub async fn delete<K>(&self, policy: PropagationPolicy)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.all::<K>().delete("cluster", &parameters).await.unwrap();
    }

    /// A stack that is ready, of this trust domain.
    pub async fn stack(&self, trust_domain: &str) -> ZeroTrustWorkloadIdentityManager {
        self.write::<ZeroTrustWorkloadIdentityManager>(json!({ "trustDomain": trust_domain, "clusterName": "test" }))
            .await
            .unwrap();
        self.ready::<ZeroTrustWorkloadIdentityManager>().await
    }

    /// Waits until the one object of a kind is ready, for the spec that it has.
    pub async fn ready<K>(&self) -> K
    where
        K: opcore::operator::Reconciled,
    {
        eventually(&self.all::<K>(), "cluster", "ready", |object: &K| {
            let status = object.status();
            status.is_some_and(|status| {
                is_true(status.conditions(), "Ready") && status.observed_generation() == object.meta().generation
            })
        })
        .await
    }

    /// Waits until a condition of the one object of a kind has this reason; returns its message.
    pub async fn says<K>(&self, condition: &str, reason: &str) -> String
    where
        K: opcore::operator::Reconciled,
    {
        let says = |object: &K| {
            let found = find(object.status()?.conditions(), condition)?;
            (found.reason == reason).then(|| found.message.clone())
        };
        let object = eventually(&self.all::<K>(), "cluster", reason, |object: &K| says(object).is_some()).await;
        says(&object).unwrap()
    }

    /// Waits until the one object of a kind is gone.
    pub async fn gone<K>(&self)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        if let Some(object) = self.all::<K>().get_opt("cluster").await.unwrap() {
            gone(&self.all::<K>(), "cluster", &object.uid().unwrap()).await;
        }
    }
}

/// The kind of the controller manager, without its schema.
fn cluster_spiffe_ids() -> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition
{
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "clusterspiffeids.spire.spiffe.io" },
        "spec": {
            "group": "spire.spiffe.io", "scope": "Cluster",
            "names": { "kind": "ClusterSPIFFEID", "plural": "clusterspiffeids", "singular": "clusterspiffeid" },
            "versions": [{ "name": "v1alpha1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema } }],
        },
    }))
    .unwrap()
}
