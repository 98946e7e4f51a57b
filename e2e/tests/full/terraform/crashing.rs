//! Whatever is killed, and whenever: what was recorded is kept, the lock is free again, and the workspace becomes
//! ready.

use anyhow::{Context, ensure};
use e2e::terraform::{self, applied, event, inline, install, names, outputs, ready, running_pod, says, write};
use e2e::{PATIENCE, Release, Stage, first, gone, not_run, processes, scenario, scenario_on_own_node, until};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use sandbox::{Component, Signal};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{Outcome, TerraformWorkspace};

/// One value is created first, and another one after a sleep: long enough to kill something.
const MODULE: &str = r#"
variable "nap" {
  type = string
}

resource "random_string" "kept" {
  length  = 16
  special = false
}

resource "random_string" "next" {
  count   = var.nap == "0s" ? 0 : 1
  length  = 16
  special = false
}

resource "terraform_data" "nap" {
  count = var.nap == "0s" ? 0 : 1
  input = random_string.next[0].result
  provisioner "local-exec" {
    interpreter = ["tf-runner", "sleep"]
    command     = var.nap
  }
}

output "kept" {
  value = random_string.kept.result
}

output "next" {
  value = join("", random_string.next[*].result)
}
"#;
const NAPS: &str = "terraform_data.nap[0]: Provisioning";
const NAME: &str = "whatever_is_killed_nothing_is_lost_and_the_workspace_becomes_ready";

#[tokio::test]
async fn whatever_is_killed_nothing_is_lost_and_the_workspace_becomes_ready() -> anyhow::Result<()> {
    scenario(NAME, async |stage| {
        let release = install(stage, json!({})).await?;
        if processes::of(&operator(stage, &release).await?).is_empty() {
            not_run(NAME, "the processes of pods can be killed where they are processes of this machine");
            return Ok(());
        }
        futures::try_join!(
            terraform_is_killed(stage),
            the_runner_is_killed(stage),
            the_store_is_killed(stage),
            the_pod_is_deleted(stage),
        )?;
        Box::pin(the_operator_is_killed(stage, &release)).await
    })
    .await
}

#[tokio::test]
async fn a_run_outlives_the_kubelet_of_its_node() -> anyhow::Result<()> {
    scenario_on_own_node("a_run_outlives_the_kubelet_of_its_node", async |stage, node| {
        install(stage, json!({})).await?;
        let nap = Nap::begin(stage, "kubelet-killed", "6s").await?;
        node.stop(Component::Kubelet, Signal::Kill).await?;
        let job = nap.job.clone();
        // Its containers continue, and the store reports the result.
        nap.ends_well(stage, &[&[Outcome::Applied]]).await?;
        node.restart(Component::Kubelet).await?;
        let done = |job: &Job| job.status.as_ref().is_some_and(|status| status.succeeded == Some(1));
        until(&stage.api(), &job, "done", PATIENCE, done).await?;
        // The node works as before.
        applied(stage, "afterwards", spec("0s")).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_run_is_lost_with_its_node_and_the_next_one_goes_on() -> anyhow::Result<()> {
    scenario_on_own_node("a_run_is_lost_with_its_node_and_the_next_one_goes_on", async |stage, node| {
        install(stage, json!({})).await?;
        let nap = Nap::begin(stage, "node-lost", "6s").await?;
        node.stop(Component::Kubelet, Signal::Kill).await?;
        processes::kill_all(&nap.pod)?;
        // An administrator knows that it is gone for good, and taints it; Kubernetes then removes its pods.
        let nodes: Api<Node> = Api::all(stage.client.clone());
        let which = nap.pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).context("it has a node")?;
        nodes.delete(&which, &DeleteParams::default()).await?;
        gone(&stage.api::<Pod>(), &nap.pod.name_any(), nap.pod.uid().as_deref(), PATIENCE).await?;
        node.restart(Component::Kubelet).await?;
        nap.ends_well(stage, &[&[Outcome::Lost, Outcome::Applied]]).await
    })
    .await
}

async fn terraform_is_killed(stage: &Stage) -> anyhow::Result<()> {
    let nap = Nap::begin(stage, "terraform-killed", "6s").await?;
    processes::kill(&nap.pod, |words| {
        words.first().is_some_and(|word| word.ends_with("tofu")) && words.contains(&"apply")
    })?;
    let words = event(&stage.api(), nap.name, "ResourcesNotRecorded").await?;
    ensure!(words.contains("random_string.next[0]"), "what may be made twice is not named: {words}");
    nap.ends_well(stage, &[&[Outcome::Failed, Outcome::Applied]]).await
}

async fn the_runner_is_killed(stage: &Stage) -> anyhow::Result<()> {
    let nap = Nap::begin(stage, "runner-killed", "6s").await?;
    // When the first process of a container is killed, all others end.
    processes::kill(&nap.pod, |words| words.ends_with(&["run"]))?;
    // There is no runner left to report; its journal remains.
    let words = event(&stage.api(), nap.name, "ResourcesNotRecorded").await?;
    ensure!(words.contains("random_string.next[0]"), "what may be made twice is not named: {words}");
    nap.ends_well(stage, &[&[Outcome::Lost, Outcome::Applied]]).await
}

async fn the_store_is_killed(stage: &Stage) -> anyhow::Result<()> {
    let nap = Nap::begin(stage, "store-killed", "6s").await?;
    processes::kill(&nap.pod, |words| words.ends_with(&["serve"]))?;
    // It restarts, and the run continues.
    nap.ends_well(stage, &[&[Outcome::Applied]]).await
}

async fn the_pod_is_deleted(stage: &Stage) -> anyhow::Result<()> {
    let nap = Nap::begin(stage, "pod-deleted", "6s").await?;
    let at_once = DeleteParams::default().grace_period(0);
    stage.api::<Pod>().delete(&nap.pod.name_any(), &at_once).await?;
    // It is not defined whether the runner has time for a report.
    nap.ends_well(stage, &[&[Outcome::Lost, Outcome::Applied], &[Outcome::Interrupted, Outcome::Applied]]).await
}

async fn the_operator_is_killed(stage: &Stage, release: &Release) -> anyhow::Result<()> {
    let nap = Nap::begin(stage, "operator-killed", "6s").await?;
    let jobs: Api<Job> = stage.api();
    let which = ListParams::default().labels(&format!("{},action=apply", terraform::selector(nap.name)));
    let before: Vec<_> = jobs.list(&which).await?.items.iter().map(ResourceExt::name_any).collect();
    processes::kill(&operator(stage, release).await?, |words| {
        words.first().is_some_and(|word| word.ends_with(terraform::OPERATOR))
    })?;
    let job = nap.job.clone();
    nap.ends_well(stage, &[&[Outcome::Applied]]).await?;
    let after: Vec<_> = jobs.list(&which).await?.items.iter().map(ResourceExt::name_any).collect();
    ensure!(
        after.iter().all(|job| before.contains(job)),
        "it was not adopted, another one ran: {before:?} → {after:?}"
    );
    ensure!(after.contains(&job), "{after:?}");
    Ok(())
}

/// The pod of the operator.
async fn operator(stage: &Stage, release: &Release) -> anyhow::Result<Pod> {
    let which = watcher::Config::default().labels(&release.selector());
    let runs = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
    first(&stage.api(), which, "pod of the operator", PATIENCE, runs).await
}

/// A workspace that was applied once, and whose second run is in the middle of its apply.
struct Nap {
    name: &'static str,
    before: TerraformWorkspace,
    kept: String,
    pod: Pod,
    job: String,
}

impl Nap {
    async fn begin(stage: &Stage, name: &'static str, nap: &str) -> anyhow::Result<Self> {
        let before = applied(stage, name, spec("0s")).await?;
        let kept = outputs(stage, &before).await?["kept"].clone();
        let first_job = before.status.as_ref().and_then(|status| status.run.clone()).context("it ran")?.job;
        write(stage, name, spec(nap)).await?;
        let next = |workspace: &TerraformWorkspace| {
            let run = workspace.status.as_ref().and_then(|status| status.run.as_ref());
            run.is_some_and(|run| run.job != first_job && run.job_uid.is_some())
        };
        let begun = until(&terraform::workspaces(stage), name, "run again", PATIENCE, next).await?;
        let job = begun.status.and_then(|status| status.run).context("it runs")?.job;
        let pod = running_pod(stage, &job).await?;
        says(stage, &pod, NAPS).await?;
        Ok(Self { name, before, kept, pod, job })
    }

    /// It becomes ready after runs with one of these sequences of outcomes, and what was recorded still exists.
    async fn ends_well(self, stage: &Stage, expected: &[&[Outcome]]) -> anyhow::Result<()> {
        let after = ready(stage, self.name).await.with_context(|| self.name)?;
        let made = outputs(stage, &after).await?;
        ensure!(made["kept"] == self.kept, "{}: {} was made again: {made:?}", self.name, self.kept);
        ensure!(made["next"].len() == 16, "{}: {made:?}", self.name);
        let status = after.status.as_ref().context("it has a status")?;
        let since = self.before.status.as_ref().and_then(|status| status.run.as_ref()).map_or(0, |run| run.number);
        let mut outcomes: Vec<_> =
            status.history.iter().filter(|run| run.number > since).map(|run| run.outcome).collect();
        outcomes.reverse();
        ensure!(expected.contains(&outcomes.as_slice()), "{}: {outcomes:?}", self.name);
        let leases: Api<Lease> = stage.api();
        let is_free = |lease: &Lease| lease.spec.as_ref().is_none_or(|spec| spec.holder_identity.is_none());
        until(&leases, &names(&after).lease(), "free", PATIENCE, is_free).await?;
        Ok(())
    }
}

fn spec(nap: &str) -> Value {
    json!({ "module": inline(MODULE), "variables": { "nap": nap }, "drift": { "action": "Off" } })
}
