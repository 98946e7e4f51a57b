//! What the tests share: a control plane, an operator that runs on it, and plans with unique names.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config, CustomResourceExt, Resource, ResourceExt};
use opcore_testing::running::{Running, Settings};
use sandbox::Sandbox;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use wave_orchestrator::api::v1alpha1::{WavePhase, WavePlan, WaveStatus};
use wave_orchestrator::controller::WavePlans;

pub use opcore_testing::PATIENCE;
pub use opcore_testing::wait::{eventually, gone};

pub const NAME: &str = "wave-orchestrator";

/// An operator that runs in this process.
pub fn start(config: Config) -> Running {
    Running::start(NAME, config, &[], Settings::default(), WavePlans::new)
}

/// The one operator for all tests of this program.
static OPERATOR: OnceCell<()> = OnceCell::const_new();

/// A fresh namespace on a control plane.
pub struct Stage {
    pub client: Client,
    pub config: Config,
    pub namespace: String,
}

impl Stage {
    /// On the shared control plane, where one operator serves all tests of this program.
    pub async fn new(prefix: &str) -> Self {
        let sandbox = Sandbox::shared().await.expect("a control plane");
        let stage = Self::on(sandbox, prefix).await;
        OPERATOR
            .get_or_init(|| async {
                let config = stage.config.clone();
                // It outlives the runtime of the test that happens to come first.
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
                    runtime.unwrap().block_on(async move {
                        start(config).ended().await;
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
        opcore_testing::wait::install(&client, &WavePlan::crd()).await;
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

    /// Kustomizations, on a control plane without Flux: the test acts as Flux.
    pub async fn kustomizations(&self) -> Api<DynamicObject> {
        let (group, kind) = ("kustomize.toolkit.fluxcd.io", "Kustomization");
        let suspend = json!({ "suspend": { "type": "boolean" } });
        let fields = json!({ "type": "object", "properties": suspend, "x-kubernetes-preserve-unknown-fields": true });
        let status = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let schema = json!({ "type": "object", "properties": { "spec": fields, "status": status } });
        let definition = json!({
            "metadata": { "name": format!("kustomizations.{group}") },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "kind": kind, "plural": "kustomizations", "singular": "kustomization" },
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                    "schema": { "openAPIV3Schema": schema },
                }],
            },
        });
        opcore_testing::wait::install(&self.client, &serde_json::from_value(definition).unwrap()).await;
        self.dynamic(&format!("{group}/v1"), kind, "kustomizations")
    }

    /// The name of this test's plan; plans are cluster-scoped.
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

    /// The output of `kubectl` for a user who creates this plan.
    pub async fn kubectl_create(&self, spec: &str) -> String {
        let sandbox = Sandbox::shared().await.unwrap();
        let spec: Value = serde_yaml::from_str(&spec.replace("NS", &self.namespace)).unwrap();
        let plan = json!({
            "apiVersion": "waves.opcore.dev/v1alpha1", "kind": "WavePlan", "metadata": { "name": self.name() }, "spec": spec,
        });
        let mut kubectl = tokio::process::Command::new(sandbox.bin("kubectl").expect("kubectl"))
            .args(["create", "--dry-run=server", "-f", "-", "--kubeconfig"])
            .arg(sandbox.kubeconfig())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = kubectl.stdin.take().unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut input, plan.to_string().as_bytes()).await.unwrap();
        drop(input);
        let said = kubectl.wait_with_output().await.unwrap();
        String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned()
    }

    pub async fn annotate(&self, key: &str, value: &str) {
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        self.plans().patch(&self.name(), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// The Events with this reason about this test's plan, once there is one about this wave.
    pub async fn event(&self, reason: &str, wave: &str) -> Vec<Event> {
        let api: Api<Event> = Api::all(self.client.clone());
        let fields = format!("regarding.kind=WavePlan,regarding.name={},reason={reason}", self.name());
        let config = watcher::Config::default().fields(&fields);
        let reported = async {
            let mut events = pin!(watcher(api.clone(), config).default_backoff().applied_objects());
            while events.next().await.unwrap().is_ok_and(|event| event.action.as_deref() != Some(wave)) {}
        };
        tokio::time::timeout(PATIENCE, reported).await.unwrap_or_else(|_| panic!("no Event {reason} about {wave}"));
        api.list(&kube::api::ListParams::default().fields(&fields)).await.unwrap().items
    }

    pub async fn ready(&self) -> WavePlan {
        self.until("ready", is_ready).await
    }

    /// Waits until this test's plan meets a condition, for its current spec.
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

/// A Kustomization that Flux has reconciled.
pub async fn reconciled(api: &Api<DynamicObject>, name: &str) -> DynamicObject {
    let (api_version, kind) = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
    let object = json!({
        "apiVersion": api_version, "kind": kind, "metadata": { "name": name }, "spec": { "path": "./" },
    });
    let params = PatchParams::apply("tests");
    let made = api.patch(name, &params, &Patch::Apply(&object)).await.unwrap();
    let ready = json!({ "type": "Ready", "status": "True", "reason": "ReconciliationSucceeded" });
    let status = json!({ "status": { "observedGeneration": made.metadata.generation, "conditions": [ready] } });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap()
}

/// Whether it is suspended.
pub fn is_held(kustomization: &DynamicObject) -> bool {
    kustomization.data["spec"]["suspend"] == true
}

/// A member that applies one ConfigMap.
pub fn map(name: &str) -> String {
    format!(
        "{{manifests: {{namespace: NS, inline: '{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{a: \"1\"}}}}'}}}}"
    )
}
