//! What the tests share: a control plane, an operator at work on it, and plans with names of their own.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Config, CustomResourceExt, Resource, ResourceExt};
use opcore::Context;
use opcore::client::Shield;
use opcore::controller::{Limits, Parts};
use opcore::election::Leadership;
use opcore::health::Health;
use opcore::metrics::Metrics;
use sandbox::Sandbox;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinHandle;
use wave_orchestrator::api::v1alpha1::{WavePhase, WavePlan, WaveStatus};
use wave_orchestrator::controller::WavePlans;

pub const PATIENCE: Duration = Duration::from_secs(60);
pub const NAME: &str = "wave-orchestrator";

/// A fresh namespace on a control plane.
pub struct Stage {
    pub client: Client,
    pub config: Config,
    pub namespace: String,
}

impl Stage {
    /// On the shared control plane, where one operator works for all tests of this program.
    pub async fn new(prefix: &str) -> Self {
        let sandbox = Sandbox::shared().await.expect("a control plane");
        let stage = Self::on(sandbox, prefix).await;
        static OPERATOR: OnceCell<()> = OnceCell::const_new();
        OPERATOR
            .get_or_init(|| async {
                let config = stage.config.clone();
                // It outlives the runtime of the test that happens to come first.
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
                    runtime.unwrap().block_on(async move {
                        let running = Running::start(config);
                        running.task.await.unwrap();
                    });
                });
            })
            .await;
        stage
    }

    /// On a control plane without an operator.
    pub async fn on(sandbox: &Sandbox, prefix: &str) -> Self {
        opcore::client::install_crypto_provider();
        let client = sandbox.client().await.unwrap();
        install(&client).await;
        let namespace = sandbox.namespace(prefix).await.unwrap();
        Self { client, config: sandbox.config().await.unwrap(), namespace }
    }

    pub fn plans(&self) -> Api<WavePlan> {
        Api::all(self.client.clone())
    }

    pub fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn of<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Objects of a kind that only the test knows.
    pub fn dynamic(&self, api_version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// The name of this test's plan: plans are in no namespace.
    pub fn name(&self) -> String {
        self.namespace.clone()
    }

    /// Writes this test's plan. `NS` in the YAML stands for its namespace.
    pub async fn plan(&self, spec: &str) -> WavePlan {
        self.try_plan(spec).await.unwrap()
    }

    pub async fn try_plan(&self, spec: &str) -> kube::Result<WavePlan> {
        let spec: Value = serde_yaml::from_str(&spec.replace("NS", &self.namespace)).unwrap();
        let plan = json!({
            "apiVersion": "waves.opcore.dev/v1alpha1",
            "kind": "WavePlan",
            "metadata": { "name": self.name() },
            "spec": spec,
        });
        let params = PatchParams::apply("tests").force();
        self.plans().patch(&self.name(), &params, &Patch::Apply(&plan)).await
    }

    pub async fn annotate(&self, key: &str, value: &str) {
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        self.plans().patch(&self.name(), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub async fn ready(&self) -> WavePlan {
        self.until("ready", |plan| is_ready(plan)).await
    }

    /// Waits until this test's plan is as it should be, for its present spec.
    pub async fn until(&self, what: &str, condition: impl Fn(&WavePlan) -> bool) -> WavePlan {
        let current = |plan: &WavePlan| {
            plan.status.as_ref().is_some_and(|status| status.observed_generation == plan.metadata.generation)
        };
        eventually(&self.plans(), &self.name(), what, |plan| current(plan) && condition(plan)).await
    }

    pub async fn until_wave(&self, name: &str, phase: WavePhase) -> WaveStatus {
        let is_there = |plan: &WavePlan| wave(plan, name).is_some_and(|wave| wave.phase == phase);
        let plan = self.until(&format!("one whose wave {name} is {phase}"), is_there).await;
        wave(&plan, name).unwrap().clone()
    }

    /// Deletes this test's plan and waits until it is gone.
    pub async fn delete(&self) {
        let uid = self.plans().get(&self.name()).await.unwrap().uid().unwrap();
        self.plans().delete(&self.name(), &DeleteParams::default()).await.unwrap();
        gone(&self.plans(), &self.name(), &uid).await;
    }

    pub async fn create_map(&self, map: Value) -> ConfigMap {
        self.maps().create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap()
    }

    /// The names of the ConfigMaps that the plan applied, sorted.
    pub async fn applied(&self) -> Vec<String> {
        let ours = kube::api::ListParams::default().labels(&format!("opcore.dev/operator={NAME}"));
        let mut names: Vec<_> = self.maps().list(&ours).await.unwrap().iter().map(ResourceExt::name_any).collect();
        names.sort();
        names
    }
}

pub fn is_ready(plan: &WavePlan) -> bool {
    plan.status.as_ref().is_some_and(|status| opcore::conditions::is_true(&status.conditions, "Ready"))
}

pub fn wave<'a>(plan: &'a WavePlan, name: &str) -> Option<&'a WaveStatus> {
    plan.status.as_ref()?.wave(name)
}

/// The reason and message of a plan's condition `Ready`.
pub fn words(plan: &WavePlan) -> (String, String) {
    let status = plan.status.as_ref().unwrap();
    let ready = opcore::conditions::find(&status.conditions, "Ready").unwrap();
    (ready.reason.clone(), ready.message.clone())
}

/// A member that applies one ConfigMap.
pub fn map(name: &str) -> String {
    format!(
        "{{manifests: {{namespace: NS, inline: '{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{a: \"1\"}}}}'}}}}"
    )
}

async fn install(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = WavePlan::crd_name();
    api.patch(name, &PatchParams::apply("tests").force(), &Patch::Apply(&WavePlan::crd())).await.unwrap();
    let established = await_condition(api, name, conditions::is_crd_established());
    tokio::time::timeout(PATIENCE, established).await.expect("the CRD is established").unwrap();
}

/// Waits, by watch, until an object fulfils a condition; fails with the object as it was last.
pub async fn eventually<K>(api: &Api<K>, name: &str, what: &str, condition: impl Fn(&K) -> bool) -> K
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let wait = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&condition));
    let Ok(found) = tokio::time::timeout(PATIENCE, wait).await else {
        panic!("{name} is not {what}; it is {:#?}", api.get_opt(name).await)
    };
    found.unwrap().expect("the condition wants an object")
}

pub async fn gone<K>(api: &Api<K>, name: &str, uid: &str)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let wait = await_condition(api.clone(), name, conditions::is_deleted(uid));
    let left = tokio::time::timeout(PATIENCE, wait).await;
    assert!(left.is_ok(), "{name} is not gone; it is {:#?}", api.get_opt(name).await);
}

/// An operator at work in this process.
pub struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    pub metrics: Metrics,
}

impl Running {
    pub fn start(config: Config) -> Self {
        let (stop, stopping) = watch::channel(false);
        let metrics = Metrics::new(opcore::build_info!()).unwrap();
        let deadline = Duration::from_secs(10);
        let shield = Shield { leadership: Leadership::unquestioned(), metrics: metrics.clone(), deadline };
        let context = Context::new(Parts {
            client: shield.client(config).unwrap(),
            operator: NAME.to_owned(),
            namespaces: Vec::new(),
            limits: Limits::default(),
            metrics: metrics.clone(),
            health: Health::default(),
            stopping,
        });
        let task = tokio::spawn(async move {
            let plans = WavePlans::new(&context);
            context.controller(plans).await.unwrap();
        });
        Self { stop, task, metrics }
    }

    /// Ends it in good order.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        tokio::time::timeout(PATIENCE, self.task).await.expect("it stops when asked").unwrap();
    }

    /// Ends it as a crash would: nothing more is written, not even what was begun.
    pub async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}
