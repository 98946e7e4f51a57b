//! Installs and removes charts with Helm, as a user does.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use crate::image::repository;
use crate::stage::Stage;
use crate::wait::{PATIENCE, gone, ready};

/// A chart that is installed in the namespace of a stage.
#[derive(Clone, Debug)]
pub struct Release {
    /// The name of the release.
    pub name: String,
    chart: PathBuf,
    objects: Vec<Object>,
}

/// The fields of an object of a chart that are needed to wait for it.
#[derive(Clone, Debug, Deserialize)]
struct Object {
    kind: String,
    metadata: Metadata,
}

#[derive(Clone, Debug, Deserialize)]
struct Metadata {
    name: String,
}

impl Release {
    /// Installs or upgrades the chart without waiting.
    pub(crate) async fn apply(stage: &Stage, name: &str, chart: &str, values: &Value) -> anyhow::Result<Self> {
        let chart = repository().join(chart);
        let package = package(stage, &chart).await?;
        let file = stage.scratch().join("values.json");
        tokio::fs::write(&file, serde_json::to_vec(values)?).await?;
        let words = [OsStr::new("upgrade"), "--install".as_ref(), name.as_ref(), package.as_ref()];
        helm(stage, words.into_iter().chain(["--values".as_ref(), file.as_ref()])).await?;
        let manifest = helm(stage, ["get", "manifest", name]).await?;
        let documents = serde_yaml::Deserializer::from_str(&manifest).map(Option::<Object>::deserialize);
        let objects = documents.collect::<Result<Vec<_>, _>>().context("what Helm installed is not understood")?;
        Ok(Self { name: name.to_owned(), chart, objects: objects.into_iter().flatten().collect() })
    }

    /// Waits until its CRDs are established and its Deployments are available at their current generation.
    ///
    /// # Errors
    /// When this takes longer than the deadline.
    pub async fn ready(&self, stage: &Stage, deadline: Duration) -> anyhow::Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(stage.client.clone());
        for name in self.crds() {
            ready(&crds, name, deadline).await.with_context(|| format!("CustomResourceDefinition of {}", self.name))?;
        }
        let deployments: Api<Deployment> = stage.api();
        for name in self.deployments() {
            ready(&deployments, name, deadline).await.with_context(|| format!("Deployment of {}", self.name))?;
        }
        Ok(())
    }

    /// Upgrades it to these values, which replace all others, and waits until the upgrade is rolled out.
    pub async fn upgrade(&self, stage: &Stage, values: &Value) -> anyhow::Result<()> {
        let chart = self.chart.to_string_lossy();
        Self::apply(stage, &self.name, &chart, values).await?.ready(stage, PATIENCE).await
    }

    /// Waits for a pod of it, in any state, and returns it.
    ///
    /// # Errors
    /// When there is none before the deadline, for example because the namespace rejects it.
    pub async fn first_pod(&self, stage: &Stage, deadline: Duration) -> anyhow::Result<Pod> {
        let own = watcher::Config::default().labels(&self.selector());
        let mut pods = pin!(watcher(stage.api::<Pod>(), own).default_backoff().applied_objects());
        let first = async {
            loop {
                match pods.next().await {
                    Some(Ok(pod)) => return Some(pod),
                    Some(Err(_)) => {}
                    None => return None,
                }
            }
        };
        let first = tokio::time::timeout(deadline, first).await.ok().flatten();
        first.with_context(|| format!("{} had no pod within {} s", self.name, deadline.as_secs()))
    }

    /// Uninstalls it, and waits until its last pod is gone.
    pub async fn uninstall(&self, stage: &Stage) -> anyhow::Result<()> {
        helm(stage, ["uninstall", &self.name, "--ignore-not-found"]).await?;
        let pods: Api<Pod> = stage.api();
        for pod in pods.list(&ListParams::default().labels(&self.selector())).await? {
            gone(&pods, &pod.name_any(), pod.uid().as_deref(), PATIENCE).await?;
        }
        Ok(())
    }

    /// A label selector for its objects.
    pub fn selector(&self) -> String {
        format!("app.kubernetes.io/instance={}", self.name)
    }

    /// The names of its CRDs.
    pub fn crds(&self) -> impl Iterator<Item = &str> {
        self.of_kind("CustomResourceDefinition")
    }

    /// The names of its Deployments.
    pub fn deployments(&self) -> impl Iterator<Item = &str> {
        self.of_kind("Deployment")
    }

    fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &str> {
        self.objects.iter().filter(move |object| object.kind == kind).map(|object| object.metadata.name.as_str())
    }
}

/// Packages a chart with its dependencies, as a release does.
async fn package(stage: &Stage, chart: &Path) -> anyhow::Result<PathBuf> {
    let words = [OsStr::new("package"), "--dependency-update".as_ref(), chart.as_ref()];
    let said = helm(stage, words.into_iter().chain(["--destination".as_ref(), stage.scratch().as_ref()])).await?;
    // The end of the output names the file.
    let file = said.trim().rsplit(": ").next().map(PathBuf::from).filter(|file| file.is_file());
    file.with_context(|| format!("helm package said {said:?}, which names no file"))
}

/// Runs Helm in the namespace of a stage, and returns its output.
///
/// # Errors
/// When Helm fails; with its message.
async fn helm(stage: &Stage, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> anyhow::Result<String> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let done = Command::new(stage.helm())
        .args(&arguments)
        .arg("--namespace")
        .arg(&stage.namespace)
        .env("KUBECONFIG", stage.kubeconfig())
        // Without the plugins and repositories of the user who runs this.
        .envs(["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"].map(|place| (place, stage.scratch())))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("Cannot run helm")?;
    if !done.status.success() {
        let what: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        bail!("helm {} failed: {}", what.join(" "), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8(done.stdout)?)
}
