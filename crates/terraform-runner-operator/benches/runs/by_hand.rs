//! The same Job without an operator: the pod that the operator created for the sample, with the same image, containers
//! and volumes, in which only init, plan and apply run.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use terraform_runner_operator::typed::Typed;

use crate::moments::Moments;
use crate::sample::Sample;

const MODULE: &str = include_str!("../../modules/simple/main.tf.tpl");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/runs/tofu.rs");
const PATIENCE: Duration = Duration::from_mins(3);
const NAME: &str = "by-hand";

/// The program that runs in the pod of this Job.
pub struct Tools(TempDir);

impl Tools {
    /// Compiles it.
    pub fn new() -> anyhow::Result<Self> {
        // A node has its own /tmp, but it can read the directory of this program.
        let own = std::env::current_exe()?;
        let folder = tempfile::tempdir_in(own.parent().context("this program is in a folder")?)?;
        // The user of the pod is not the owner of the folder.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition=2024", "-Copt-level=2", "-Ctarget-feature=+crt-static", "-o"]);
        let compiled = rustc.arg(folder.path().join(NAME)).arg(PROGRAM).status().context("Cannot run rustc")?;
        anyhow::ensure!(compiled.success(), "rustc cannot compile {PROGRAM}");
        Ok(Self(folder))
    }
}

/// Creates such a Job, and waits until its pod is gone.
pub async fn measure(client: &Client, sample: &Sample, tools: &Tools) -> anyhow::Result<Moments> {
    let namespace = sample.object.namespace().unwrap_or_default();
    let job = serde_json::from_value(job(sample, tools.0.path())?)?;
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
    let mut moments = Moments::begin();
    jobs.create(&PostParams::default(), &job).await?;
    let complete = |job: Option<&Job>| {
        let status = job.and_then(|job| job.status.as_ref());
        status.is_some_and(|status| status.completion_time.is_some() || status.failed.is_some_and(|failed| failed > 0))
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let through = async {
        let pod = ended(&pods).await?;
        moments.note("ended", Timestamp::now());
        await_condition(jobs, NAME, complete).await?;
        anyhow::Ok(pod)
    };
    let pod = tokio::time::timeout(PATIENCE, through).await.context("the Job by hand does not end")??;
    moments.read(&pods, &pod).await?;
    anyhow::ensure!(moments.has("done"), "the Job by hand failed: {:?}", pods.get(&pod).await?.status);
    Ok(moments)
}

/// The Job of the sample, but with the program of this benchmark.
fn job(sample: &Sample, tools: &Path) -> anyhow::Result<Value> {
    let mut pod = serde_json::to_value(&sample.job.spec.as_ref().context("a Job has a spec")?.template.spec)?;
    // Nothing is stopped gracefully here, so there is no need to wait long.
    pod["terminationGracePeriodSeconds"] = json!(1);
    pod["initContainers"][0]["command"] = json!(["/tf-runner", "sleep", "10m"]);
    pod["containers"][0]["command"] = json!([format!("/{NAME}/{NAME}")]);
    pod["containers"][0]["env"] = json!([
        { "name": "MODULE", "value": MODULE },
        { "name": "VARIABLES", "value": json!(sample.object.workspace().variables).to_string() },
    ]);
    let put = |list: &mut Value, item: Value| list.as_array_mut().context("it is a list").map(|list| list.push(item));
    put(&mut pod["volumes"], json!({ "name": NAME, "hostPath": { "path": tools } }))?;
    put(&mut pod["containers"][0]["volumeMounts"], json!({ "name": NAME, "mountPath": format!("/{NAME}") }))?;
    Ok(json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": NAME },
        "spec": { "backoffLimit": 0, "template": { "spec": pod } },
    }))
}

/// Waits until the container of its pod has terminated, and returns the name of the pod.
async fn ended(pods: &Api<Pod>) -> anyhow::Result<String> {
    let config = watcher::Config::default().labels(&format!("job-name={NAME}"));
    let mut observed = pin!(watcher(pods.clone(), config).applied_objects());
    while let Some(pod) = observed.next().await {
        let pod = pod?;
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let is_over = |c: &ContainerStatus| c.state.as_ref().is_some_and(|state| state.terminated.is_some());
        if containers.is_some_and(|all| all.iter().all(is_over)) {
            return Ok(pod.name_any());
        }
    }
    anyhow::bail!("nothing is watched any more")
}
