//! What the tests of the operator share: a control plane, an operator that runs on it, and simulated runs.
//!
//! There is no node here, so no pod runs: what happens between a Job and its report is tested with real pods elsewhere.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config, CustomResourceExt, ResourceExt};
use opcore_testing::crashing::crash_at;
use opcore_testing::proxy::Fate;
use opcore_testing::running::{Running, Settings};
use sandbox::Sandbox;
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{
    SimpleResource, TerraformWorkspace, TerraformWorkspaceStatus, WorkspacePhase,
};
use terraform_runner_operator::controller::Workspaces;
use terraform_runner_operator::render;
use terraform_runner_operator::slots::Limits;
use tokio::task::JoinHandle;

use crate::simulated_runs;

pub use opcore_testing::PATIENCE;
pub use opcore_testing::wait::{eventually, gone};

/// A fresh namespace on the shared control plane, in which runs are simulated.
pub struct Stage {
    pub client: Client,
    pub config: Config,
    pub namespace: String,
    pods: JoinHandle<()>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.pods.abort();
    }
}

impl Stage {
    pub async fn new(prefix: &str) -> Self {
        Self::on(Sandbox::shared().await.expect("a control plane"), prefix).await
    }

    /// A stage on another control plane.
    pub async fn on(sandbox: &Sandbox, prefix: &str) -> Self {
        opcore::client::install_crypto_provider();
        let client = sandbox.client().await.unwrap();
        opcore_testing::wait::install(&client, &TerraformWorkspace::crd()).await;
        opcore_testing::wait::install(&client, &SimpleResource::crd()).await;
        let namespace = sandbox.namespace(prefix).await.unwrap();
        let pods = tokio::spawn(simulate_pods(client.clone(), namespace.clone()));
        Self { client, config: sandbox.config().await.unwrap(), namespace, pods }
    }

    /// An operator that runs in this process, for this namespace.
    pub fn start(&self) -> Running {
        self.start_on(self.config.clone(), Limits::default())
    }

    /// The same, with these restrictions for authors.
    pub fn start_for(&self, authors: render::Authors) -> Running {
        start_with(&[self.namespace.as_str()], self.config.clone(), Limits::default(), authors)
    }

    /// The same, with another configuration and other limits.
    pub fn start_on(&self, config: Config, limits: Limits) -> Running {
        start_in(&[self.namespace.as_str()], config, limits)
    }

    /// Crashes an operator at its n-th write. Returns whether there was one.
    pub async fn crash(&self, n: usize, cut: Fate, done: impl Future<Output = ()>) -> bool {
        let start = |config| self.start_on(config, Limits::default());
        Box::pin(crash_at(&self.client, n, cut, start, Box::pin(done))).await
    }

    pub fn of<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn workspaces(&self) -> Api<TerraformWorkspace> {
        self.of()
    }

    /// Creates or updates a workspace with an empty module, whose runs are simulated as `variables.outcome` says.
    pub async fn write(&self, name: &str, more: Value) -> TerraformWorkspace {
        self.try_write(name, more).await.unwrap()
    }

    pub async fn try_write(&self, name: &str, more: Value) -> kube::Result<TerraformWorkspace> {
        let mut spec = json!({ "module": { "inline": { "files": { "main.tf": "" } } }, "drift": { "action": "Off" } });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let workspace = json!({
            "apiVersion": "infra.opr8r/v1alpha1", "kind": "TerraformWorkspace", "metadata": { "name": name }, "spec": spec,
        });
        self.workspaces().patch(name, &PatchParams::apply("tests").force(), &Patch::Apply(&workspace)).await
    }

    pub async fn annotate(&self, name: &str, key: &str, value: &str) {
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        self.workspaces().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Waits until a workspace meets a condition, for its current spec.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        condition: impl Fn(&TerraformWorkspaceStatus) -> bool,
    ) -> TerraformWorkspace {
        let current = |workspace: &TerraformWorkspace| {
            let status = workspace.status.as_ref();
            status
                .is_some_and(|status| status.observed_generation == workspace.metadata.generation && condition(status))
        };
        eventually(&self.workspaces(), name, what, current).await
    }

    pub async fn ready(&self, name: &str) -> TerraformWorkspace {
        self.until(name, "ready", |status| status.phase == WorkspacePhase::Ready).await
    }

    /// Waits until a workspace has a condition with this reason. Returns its message.
    pub async fn says(&self, name: &str, reason: &str) -> String {
        let report = |status: &TerraformWorkspaceStatus| status.conditions.iter().any(|c| c.reason == reason);
        let workspace = self.until(name, reason, report).await;
        let conditions = workspace.status.unwrap().conditions;
        conditions.into_iter().find(|condition| condition.reason == reason).unwrap().message
    }

    pub async fn delete(&self, name: &str) {
        let uid = self.workspaces().get(name).await.unwrap().uid().unwrap();
        self.workspaces().delete(name, &DeleteParams::default()).await.unwrap();
        gone(&self.workspaces(), name, &uid).await;
    }

    /// The names of the objects of a kind, without those of the namespace itself.
    pub async fn names<K>(&self) -> Vec<String>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let all = self.of::<K>().list_metadata(&ListParams::default()).await.unwrap();
        all.items
            .iter()
            .filter(|object| object.metadata.deletion_timestamp.is_none())
            .map(ResourceExt::name_any)
            .collect()
    }
}

/// Waits until a workspace that is being deleted is gone.
pub async fn gone_by_name(stage: &Stage, name: &str) {
    let uid = stage.workspaces().get_opt(name).await.unwrap().and_then(|workspace| workspace.uid());
    gone(&stage.workspaces(), name, &uid.unwrap_or_default()).await;
}

/// An operator that runs in this process, for these namespaces.
pub fn start_in(namespaces: &[&str], config: Config, limits: Limits) -> Running {
    let images = vec!["mine".to_owned()];
    start_with(namespaces, config, limits, render::Authors { images, own_modules: true, ..render::Authors::default() })
}

fn start_with(namespaces: &[&str], config: Config, limits: Limits, authors: render::Authors) -> Running {
    // The image does not exist: no pod runs here.
    let settings = render::Settings { authors, ..render::Settings::new("runner", "Never") };
    Running::start(render::OPERATOR, config, namespaces, Settings::default(), |_| Workspaces::new(settings, limits))
}

/// Simulates the run of each Job.
async fn simulate_pods(client: Client, namespace: String) {
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
    let mut simulated = std::collections::BTreeSet::new();
    let mut observed = pin!(watcher(jobs, watcher::Config::default()).default_backoff().applied_objects());
    while let Some(job) = observed.next().await {
        let Ok(job) = job else { continue };
        if job.metadata.deletion_timestamp.is_none() && simulated.insert(job.uid().unwrap()) {
            let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
            if let Some(report) = simulated_runs::run(&client, pod).await {
                report.file().await;
            }
        }
    }
}
