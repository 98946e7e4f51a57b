//! What the tests share: a control plane, hands that do the work of a node, and the operator at work.
//!
//! There is one stack in a cluster, so that a test has a control plane for itself while it runs, and then leaves it to
//! the next one. Each has a namespace of its own for the operands.

use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, Service, ServiceAccount,
};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PropagationPolicy, ValidationDirective,
};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, CustomResourceExt, Resource, ResourceExt};
use lifecycle_operator::api::v1alpha1::{
    SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer, ZeroTrustWorkloadIdentityManager as Ztwim,
};
use lifecycle_operator::observe;
use opcore::conditions::{Conditions, find, is_true};
use opcore_testing::PATIENCE;
use opcore_testing::proxy::{Fate, Passed, Proxy};
use opcore_testing::wait::gone;
use sandbox::{Options, Sandbox};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::hands::Hands;
use crate::operator::{NAME, Running, settings};

/// How the namespaces of the operands begin.
const NAMESPACES: &str = "spire-";

/// The control planes that no test has for itself.
static IDLE: Mutex<Vec<&'static Sandbox>> = Mutex::new(Vec::new());
static SCENES: AtomicUsize = AtomicUsize::new(0);

/// Has a control plane for itself, and gives it back.
struct Turn(&'static Sandbox);

impl Turn {
    async fn take() -> Self {
        let idle = IDLE.lock().unwrap().pop();
        if let Some(sandbox) = idle {
            return Self(sandbox);
        }
        let sandbox = Sandbox::start(Options::default()).await.expect("a control plane");
        // It ends with this process.
        Self(Box::leak(Box::new(sandbox)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        IDLE.lock().unwrap().push(self.0);
    }
}

/// A cluster without a stack.
pub struct Scene {
    pub client: Client,
    pub proxy: Proxy,
    pub hands: Hands,
    /// That of the operands.
    pub namespace: String,
    turn: Turn,
}

impl Scene {
    /// Waits for its turn, and removes what an earlier test left.
    pub async fn new() -> Self {
        opcore::client::install_crypto_provider();
        let turn = Turn::take().await;
        let client = turn.0.client().await.unwrap();
        for definition in [
            Ztwim::crd(),
            SpireServer::crd(),
            SpireAgent::crd(),
            SpiffeCSIDriver::crd(),
            SpireOIDCDiscoveryProvider::crd(),
            cluster_spiffe_ids(),
        ] {
            opcore_testing::wait::install(&client, &definition).await;
        }
        let namespace = format!("{NAMESPACES}{}", SCENES.fetch_add(1, Ordering::Relaxed));
        wipe(&client).await;
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.patch(&namespace, &PatchParams::apply("tests"), &Patch::Apply(&object)).await.unwrap();
        let hands = Hands::start(&client, &namespace).await;
        let proxy = Proxy::start(client.clone()).await.unwrap();
        proxy.answers_exec(hands.told());
        Self { client, proxy, hands, namespace, turn }
    }

    /// The way to the API server for a program.
    pub fn kubeconfig(&self) -> &std::path::Path {
        self.turn.0.kubeconfig()
    }

    /// What `kubectl` prints.
    pub async fn kubectl(&self, words: &[&str]) -> String {
        let kubectl = self.turn.0.bin("kubectl").expect("kubectl is built with Kubernetes");
        let mut command = tokio::process::Command::new(kubectl);
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(words);
        let done = command.output().await.unwrap();
        assert!(done.status.success(), "kubectl {words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    /// Starts an operator, by way of the proxy.
    pub fn operator(&self) -> Running {
        Running::start(self.proxy.config(), settings(&self.namespace), true)
    }

    /// Starts an operator that leaves the policies out.
    pub fn operator_without_policies(&self) -> Running {
        Running::start(self.proxy.config(), settings(&self.namespace), false)
    }

    /// Runs operators one after another, each of which crashes at its n-th write, until `done` resolves. Answers how many
    /// crashed.
    pub async fn crashing(&self, n: usize, cut: Fate, done: impl Future<Output = ()>) -> usize {
        let counts = |passed: &Passed| passed.writes() && !passed.path.contains("/events");
        let mut done = Box::pin(done);
        let mut crashes = 0;
        loop {
            let proxy = Proxy::start(self.client.clone()).await.unwrap();
            proxy.answers_exec(self.hands.told());
            let mut seen = 0;
            proxy.rule(move |passed| {
                if !counts(passed) {
                    return Fate::Pass;
                }
                seen += 1;
                match seen {
                    now if now < n => Fate::Pass,
                    now if now == n => cut,
                    // The process is as good as dead: nothing more gets out.
                    _ => Fate::LoseRequest,
                }
            });
            let operator = Running::start(proxy.config(), settings(&self.namespace), true);
            let cut = async {
                // Nothing to do takes long only if a node is at work, or time has to pass.
                let reached = |passed: &[Passed]| passed.iter().filter(|it| counts(it)).count() >= n;
                proxy.until("the write at which it crashes", reached).await;
            };
            let is_over = tokio::select! {
                biased;
                () = &mut done => true,
                () = cut => false,
            };
            operator.crash().await;
            if is_over {
                return crashes;
            }
            crashes += 1;
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
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Writes the one object of a kind, as a person does with kubectl.
    pub async fn write<K>(&self, spec: Value) -> Result<K, kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.write_with(&PatchParams::apply("kubectl"), spec).await
    }

    /// The same, without storing it.
    pub async fn try_out<K>(&self, spec: Value) -> Result<K, kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.write_with(&PatchParams { dry_run: true, ..PatchParams::apply("kubectl") }, spec).await
    }

    async fn write_with<K>(&self, params: &PatchParams, spec: Value) -> Result<K, kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let object = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": { "name": "cluster" }, "spec": spec,
        });
        let params = PatchParams { field_validation: Some(ValidationDirective::Strict), ..params.clone() };
        self.all::<K>().patch("cluster", &params, &Patch::Apply(&object)).await
    }

    /// Changes fields of the one object of a kind, as `kubectl patch` does.
    pub async fn patch<K>(&self, patch: Value) -> Result<K, kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let params = PatchParams { field_manager: Some("kubectl-patch".to_owned()), ..PatchParams::default() };
        self.all::<K>().patch("cluster", &params, &Patch::Merge(&patch)).await
    }

    /// Deletes the one object of a kind.
    pub async fn delete<K>(&self, policy: PropagationPolicy)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.all::<K>().delete("cluster", &parameters).await.unwrap();
    }

    /// A stack that is ready, of this trust domain: all its manifests were applied together.
    pub async fn stack(&self, trust_domain: &str) -> Ztwim {
        self.stack_with(json!({ "trustDomain": trust_domain, "clusterName": "test" }), json!({})).await
    }

    /// A stack that is ready, with these specs of the parent and of the server.
    pub async fn stack_with(&self, parent: Value, server: Value) -> Ztwim {
        self.write::<Ztwim>(parent).await.unwrap();
        self.write::<SpireServer>(server).await.unwrap();
        self.write::<SpireAgent>(json!({})).await.unwrap();
        self.write::<SpiffeCSIDriver>(json!({})).await.unwrap();
        self.write::<SpireOIDCDiscoveryProvider>(json!({})).await.unwrap();
        self.ready::<Ztwim>().await
    }

    /// Waits until the one object of a kind is as it should be.
    pub async fn until<K>(&self, what: &str, condition: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
    {
        let all = self.all::<K>();
        let seen = await_condition(all.clone(), "cluster", |object: Option<&K>| object.is_some_and(&condition));
        let Ok(found) = tokio::time::timeout(PATIENCE, seen).await else {
            let now = all
                .get_opt("cluster")
                .await
                .unwrap()
                .map(|object| serde_json::to_value(object).unwrap()["status"].take());
            panic!(
                "{} is not {what}; its status is {now:#?}, and the journal {:#?}",
                K::kind(&()),
                self.hands.journal()
            );
        };
        found.unwrap().expect("the condition wants an object")
    }

    /// Waits until the one object of a kind is ready, for the spec that it has.
    pub async fn ready<K>(&self) -> K
    where
        K: opcore::operator::Reconciled,
    {
        self.until("ready", is_ready).await
    }

    /// Waits until a condition of the one object of a kind has this reason; returns its message.
    pub async fn says<K>(&self, condition: &str, reason: &str) -> String
    where
        K: opcore::operator::Reconciled,
    {
        let says = |object: &K| {
            let status = object.status().filter(|it| it.observed_generation() == object.meta().generation)?;
            let found = find(status.conditions(), condition)?;
            (found.reason == reason).then(|| found.message.clone())
        };
        let object = self.until(reason, |object: &K| says(object).is_some()).await;
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

    /// Waits until the parent and all operands are gone.
    pub async fn all_gone(&self) {
        let gone = async {
            self.gone::<SpireOIDCDiscoveryProvider>().await;
            self.gone::<SpiffeCSIDriver>().await;
            self.gone::<SpireAgent>().await;
            self.gone::<SpireServer>().await;
            self.gone::<Ztwim>().await;
        };
        gone.await;
    }

    /// What carries the marks of the operator, as `Kind name`: nothing of it may be left after a teardown, but for what
    /// the tests say.
    pub async fn left(&self) -> Vec<String> {
        async fn marked<K>(api: Api<K>) -> Vec<String>
        where
            K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
        {
            let ours = ListParams::default().labels("opcore.dev/owner-uid");
            let all = api.list_metadata(&ours).await.unwrap();
            all.iter().map(|object| format!("{} {}", K::kind(&()), object.name_any())).collect()
        }
        let mut all = [
            marked(self.of::<ServiceAccount>()).await,
            marked(self.of::<ConfigMap>()).await,
            marked(self.of::<Service>()).await,
            marked(self.of::<Role>()).await,
            marked(self.of::<RoleBinding>()).await,
            marked(self.of::<Ingress>()).await,
            marked(self.of::<Job>()).await,
            marked(self.of::<PersistentVolumeClaim>()).await,
            marked(self.of::<StatefulSet>()).await,
            marked(self.of::<DaemonSet>()).await,
            marked(self.of::<Deployment>()).await,
            marked(self.all::<ClusterRole>()).await,
            marked(self.all::<ClusterRoleBinding>()).await,
            marked(self.all::<CSIDriver>()).await,
            marked(self.all::<ValidatingWebhookConfiguration>()).await,
        ]
        .concat();
        let ours = ListParams::default().labels("opcore.dev/owner-uid");
        let identities = identities(&self.client).list_metadata(&ours).await.unwrap();
        all.extend(identities.iter().map(|object| format!("ClusterSPIFFEID {}", object.name_any())));
        let pods = self.of::<Pod>().list_metadata(&ListParams::default()).await.unwrap();
        all.extend(pods.iter().map(|object| format!("Pod {}", object.name_any())));
        all
    }

    /// Waits until something is so that no one object shows.
    pub async fn comes(&self, what: &str, so: impl AsyncFn() -> bool) {
        let mut pause = tokio::time::interval(std::time::Duration::from_millis(50));
        let comes = async {
            while !so().await {
                pause.tick().await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, comes).await.is_ok(), "it never comes that {what}");
    }

    /// The Events about our objects, as `Kind reason message`.
    pub async fn events(&self) -> Vec<String> {
        let all = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let text = |event: &Event| {
            let about = event.regarding.clone().unwrap_or_default().kind.unwrap_or_default();
            format!("{about} {} {}", event.reason.clone().unwrap_or_default(), event.note.clone().unwrap_or_default())
        };
        all.iter().map(text).collect()
    }
}

/// Whether an object is ready, for the spec that it has.
pub fn is_ready<K: opcore::operator::Reconciled>(object: &K) -> bool {
    object.status().is_some_and(|status| {
        is_true(status.conditions(), "Ready") && status.observed_generation() == object.meta().generation
    })
}

/// Removes a stack by hand, as nobody should.
async fn wipe(client: &Client) {
    drop_all::<Ztwim>(client).await;
    drop_all::<SpireServer>(client).await;
    drop_all::<SpireAgent>(client).await;
    drop_all::<SpiffeCSIDriver>(client).await;
    drop_all::<SpireOIDCDiscoveryProvider>(client).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for old in namespaces.list(&ListParams::default()).await.unwrap() {
        if old.name_any().starts_with(NAMESPACES) {
            let _ = namespaces.delete(&old.name_any(), &DeleteParams::default()).await;
        }
    }
    // Those of users of the driver.
    let at_once = DeleteParams::default().grace_period(0);
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.delete_collection(&at_once, &ListParams::default()).await.unwrap();
    let ours = ListParams::default().labels(&format!("opcore.dev/operator={NAME}"));
    let background = DeleteParams::background();
    Api::<ClusterRole>::all(client.clone()).delete_collection(&background, &ours).await.unwrap();
    Api::<ClusterRoleBinding>::all(client.clone()).delete_collection(&background, &ours).await.unwrap();
    Api::<ValidatingWebhookConfiguration>::all(client.clone()).delete_collection(&background, &ours).await.unwrap();
    Api::<CSIDriver>::all(client.clone()).delete_collection(&background, &ours).await.unwrap();
    Api::<ValidatingAdmissionPolicyBinding>::all(client.clone()).delete_collection(&background, &ours).await.unwrap();
    Api::<ValidatingAdmissionPolicy>::all(client.clone()).delete_collection(&background, &ours).await.unwrap();
    identities(client).delete_collection(&background, &ours).await.unwrap();
    let all = ListParams::default();
    Api::<PersistentVolume>::all(client.clone()).delete_collection(&background, &all).await.unwrap();
}

async fn drop_all<K>(client: &Client)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let all: Api<K> = Api::all(client.clone());
    for object in all.list(&ListParams::default()).await.unwrap() {
        let free = json!({ "metadata": { "finalizers": null } });
        let _ = all.delete(&object.name_any(), &DeleteParams::background()).await;
        let _ = all.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&free)).await;
        gone(&all, &object.name_any(), &object.uid().unwrap()).await;
    }
}

/// The ClusterSPIFFEIDs.
pub fn identities(client: &Client) -> Api<DynamicObject> {
    let resource: ApiResource = observe::cluster_spiffe_ids();
    Api::all_with(client.clone(), &resource)
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
