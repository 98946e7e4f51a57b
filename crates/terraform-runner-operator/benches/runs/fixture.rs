//! Many workspaces on a control plane without a node, where runs are simulated and everything is watched.

use std::collections::HashSet;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use sandbox::Sandbox;
use serde::de::DeserializeOwned;
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{TerraformWorkspace, WORKSPACE_LABEL, WorkspacePhase};
use terraform_runner_operator::render::PART_LABEL;
use tokio::task::JoinHandle;

use crate::simulated_runs;

const PATIENCE: Duration = Duration::from_mins(15);

/// A namespace with many workspaces.
pub struct Fixture {
    client: Client,
    namespace: String,
    record: Arc<Mutex<Record>>,
    watching: Vec<JoinHandle<()>>,
}

/// What was observed of Jobs.
#[derive(Default)]
pub struct Record {
    /// The workspaces for which they were created, in the order of creation.
    pub order: Vec<String>,
    /// The largest number of concurrent runs: created, and without a report.
    pub most: usize,
    at_work: HashSet<String>,
}

impl Fixture {
    pub async fn new(sandbox: &Sandbox, prefix: &str) -> anyhow::Result<Self> {
        let (client, namespace) = (sandbox.client().await?, sandbox.namespace(prefix).await?);
        Ok(Self { client, namespace, record: Arc::default(), watching: Vec::new() })
    }

    /// From now on runs are simulated, and each takes this long.
    pub fn simulate_runs(&mut self, run: Duration) {
        self.rest();
        let (client, record) = (self.client.clone(), self.record.clone());
        self.watching.push(tokio::spawn(each_new(self.of::<Job>(), watcher::Config::default(), move |job: Job| {
            let mut record = lock(&record);
            record.at_work.insert(job.name_any());
            record.most = record.most.max(record.at_work.len());
            record.order.extend(job.labels().get(WORKSPACE_LABEL).cloned());
        })));
        let (pods, record) = (self.of::<Pod>(), self.record.clone());
        let ours = watcher::Config::default().labels(&format!("{PART_LABEL}=run"));
        self.watching.push(tokio::spawn(each_new(pods.clone(), ours, move |pod: Pod| {
            tokio::spawn(be(pod, run, client.clone(), pods.clone(), record.clone()));
        })));
    }

    /// Stops the simulation of runs.
    pub fn rest(&mut self) {
        for task in self.watching.drain(..) {
            task.abort();
        }
    }

    pub fn of<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }

    /// Creates workspaces, with this concurrency.
    pub async fn create(&self, which: Range<usize>, at_once: usize) -> anyhow::Result<()> {
        let workspaces = self.of::<TerraformWorkspace>();
        let create = |number: usize| {
            let workspaces = workspaces.clone();
            async move {
                let workspace = serde_json::from_value(json!({
                    "apiVersion": "infra.opr8r/v1alpha1", "kind": "TerraformWorkspace",
                    "metadata": { "name": name(number) },
                    "spec": { "module": { "inline": { "files": { "main.tf": "" } } }, "variables": { "size": number } },
                }))?;
                workspaces.create(&PostParams::default(), &workspace).await?;
                anyhow::Ok(())
            }
        };
        stream::iter(which).map(create).buffered(at_once).try_collect().await
    }

    /// Waits until this many workspaces are ready.
    pub async fn ready(&self, count: usize) -> anyhow::Result<()> {
        let mut ready = HashSet::new();
        let mut observed = pin!(watcher(self.of::<TerraformWorkspace>(), watcher::Config::default()).applied_objects());
        let all = async {
            while ready.len() < count {
                let Some(Ok(workspace)) = observed.next().await else { continue };
                if workspace.status.as_ref().is_some_and(|status| status.phase == WorkspacePhase::Ready) {
                    ready.insert(workspace.name_any());
                }
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, all).await;
        anyhow::ensure!(in_time.is_ok(), "{} of {count} workspaces are ready after {PATIENCE:?}", ready.len());
        Ok(())
    }

    /// Changes an annotation of this many workspaces.
    pub async fn annotate(&self, count: usize, key: &str, value: &str) -> anyhow::Result<()> {
        let workspaces = self.of::<TerraformWorkspace>();
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { key: value } } }));
        let annotate = |number: usize| {
            let (workspaces, patch) = (workspaces.clone(), &patch);
            async move { workspaces.patch_metadata(&name(number), &PatchParams::default(), patch).await.map(drop) }
        };
        stream::iter(0..count).map(annotate).buffered(8).try_collect::<()>().await?;
        Ok(())
    }
}

/// The workspace with this number, in the order of creation.
pub fn name(number: usize) -> String {
    format!("w{number:04}")
}

/// Does something with each new object.
async fn each_new<K>(api: Api<K>, config: watcher::Config, mut with: impl FnMut(K))
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let mut known = HashSet::new();
    let mut observed = pin!(watcher(api, config).default_backoff().applied_objects());
    while let Some(object) = observed.next().await {
        if let Ok(object) = object
            && known.insert(object.meta().uid.clone())
        {
            with(object);
        }
    }
}

/// Simulates the run of this pod, unless that was done before.
async fn be(pod: Pod, run: Duration, client: Client, pods: Api<Pod>, record: Arc<Mutex<Record>>) {
    let is_over = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded");
    let Some(spec) = pod.spec.as_ref().filter(|_| !is_over) else { return };
    tokio::time::sleep(run).await;
    let reported = simulated_runs::run(&client, spec).await;
    // Before the report: after it, another run may start.
    lock(&record).at_work.remove(&pod.labels()["job-name"]);
    if let Some(reported) = reported {
        reported.file().await;
    }
    let done = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    let _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &done).await;
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}
