//! What the first version of this operator could not do, by the names under which the limitations were listed.

use std::collections::BTreeMap;
use std::pin::pin;

use anyhow::{Context, ensure};
use e2e::terraform::{
    annotate, applied, complains, event, inline, install, names, outputs, ready, selector, workspaces, write,
};
use e2e::{PATIENCE, Stage, gone, scenario, until};
use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{
    Outcome, REPLAN_ANNOTATION, TerraformWorkspace, TerraformWorkspaceStatus, WorkspacePhase,
};
use terraform_runner_operator::store::{self, Store};

const RANDOM: &str = r#"
variable "length" {
  default = 8
}

resource "random_string" "it" {
  length = var.length
}

output "value" {
  value = random_string.it.result
}
"#;

/// The file is in the pod, where it does not last.
const FILE: &str = r#"
resource "local_file" "it" {
  filename = "/tmp/it.txt"
  content  = "it"
}
"#;

#[tokio::test]
async fn limitation_1_ephemeral_state_files() -> anyhow::Result<()> {
    scenario("limitation_1_ephemeral_state_files", async |stage| {
        install(stage, json!({})).await?;
        let first = applied(stage, "net", json!({ "module": inline(RANDOM) })).await?;
        let value = outputs(stage, &first).await?["value"].clone();
        // The pod and its emptyDir are gone, and a new plan is made: there is nothing to do.
        let job = status(&first)?.run.clone().context("it ran")?.job;
        let jobs = stage.api::<Job>();
        let uid = jobs.get(&job).await?.uid();
        jobs.delete(&job, &DeleteParams::background()).await?;
        gone(&jobs, &job, uid.as_deref(), PATIENCE).await?;
        annotate(stage, "net", REPLAN_ANNOTATION, "now").await?;
        let again = until(&workspaces(stage), "net", "planned again", PATIENCE, |net| last(net, 2).is_some()).await?;
        ensure!(last(&again, 2) == Some(Outcome::Unchanged), "{again:#?}");
        ensure!(outputs(stage, &again).await?["value"] == value);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn limitation_2_no_drift_detection() -> anyhow::Result<()> {
    scenario("limitation_2_no_drift_detection", async |stage| {
        install(stage, json!({})).await?;
        applied(stage, "net", json!({ "module": inline(FILE), "drift": { "interval": "2s" } })).await?;
        let words = event(&stage.api(), "net", "DriftDetected").await?;
        ensure!(words.contains("local_file.it"), "{words}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn limitation_3_job_cleanup() -> anyhow::Result<()> {
    scenario("limitation_3_job_cleanup", async |stage| {
        install(stage, json!({})).await?;
        let spec = |length: Value| {
            json!({ "module": inline(RANDOM), "variables": { "length": length }, "history": { "failedJobs": 1 } })
        };
        for (number, length) in ["none", "nothing", "nil"].into_iter().enumerate() {
            write(stage, "net", spec(length.into())).await?;
            let number = i64::try_from(number)? + 1;
            until(&workspaces(stage), "net", "failed", PATIENCE, |net| last(net, number).is_some()).await?;
        }
        applied(stage, "net", spec(9.into())).await?;
        // Of the failed Jobs one is kept, and the last of all Jobs.
        let tidy = |jobs: &[Job]| jobs.len() == 2;
        let jobs = stage.api::<Job>();
        let settled = async {
            loop {
                let all = jobs.list(&ListParams::default()).await?.items;
                if tidy(&all) {
                    return anyhow::Ok(());
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, settled).await.context("Jobs are left")??;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn limitation_4_limited_error_handling() -> anyhow::Result<()> {
    scenario("limitation_4_limited_error_handling", async |stage| {
        install(stage, json!({})).await?;
        let module = RANDOM.replace("length = var.length", "lenght = var.length");
        write(stage, "net", json!({ "module": inline(&module) })).await?;
        let words = complains(stage, "net", "RunFailed").await?;
        ensure!(words.contains("main.tf:") && words.contains("argument"), "{words}");
        ensure!(event(&stage.api(), "net", "RunFailed").await? == words);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn limitation_5_sequential_job_execution() -> anyhow::Result<()> {
    scenario("limitation_5_sequential_job_execution", async |stage| {
        install(stage, json!({})).await?;
        let mut times = BTreeMap::new();
        let changed = async {
            let spec = json!({ "module": inline(RANDOM), "variables": { "length": 7 } });
            applied(stage, "net", spec).await?;
            // As fast as the API server accepts them: no change starts a second concurrent run.
            for length in 8..16 {
                write(stage, "net", json!({ "module": inline(RANDOM), "variables": { "length": length } })).await?;
            }
            let last = ready(stage, "net").await?;
            ensure!(outputs(stage, &last).await?["value"].len() == 15);
            let history = &status(&last)?.history;
            ensure!(history.len() < 8, "a change that was never observed needs no run: {history:#?}");
            // The status of a kubelet is later than the run itself.
            let job = status(&last)?.run.as_ref().context("it ran")?.job.clone();
            let is_done = |job: &Job| job.status.as_ref().is_some_and(|status| status.succeeded == Some(1));
            until(&stage.api(), &job, "done", PATIENCE, is_done).await.map(drop)
        };
        tokio::select! {
            changed = changed => changed?,
            watched = note_times(stage, &mut times) => watched?,
        }
        // As recorded by the kubelet, in whole seconds.
        let mut times: Vec<_> = times.into_values().collect();
        times.sort();
        ensure!(times.len() > 1, "{times:?}");
        for (earlier, later) in times.iter().zip(times.iter().skip(1)) {
            ensure!(earlier.1.is_none_or(|ended| ended <= later.0), "two ran at once: {times:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn limitation_6_no_terraform_plan_preview() -> anyhow::Result<()> {
    scenario("limitation_6_no_terraform_plan_preview", async |stage| {
        install(stage, json!({})).await?;
        let workspace = write(stage, "net", json!({ "module": inline(RANDOM), "approval": "Manual" })).await?;
        complains(stage, "net", "AwaitingApproval").await?;
        let store = Store::new(stage.client.clone(), &stage.namespace, names(&workspace));
        let text = store::plan::text(&store).await?.context("a plan is kept")?;
        ensure!(text.contains("random_string.it will be created"), "{text}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn limitation_7_hard_coded_timeouts() -> anyhow::Result<()> {
    scenario("limitation_7_hard_coded_timeouts", async |stage| {
        install(stage, json!({})).await?;
        let module = r#"
resource "terraform_data" "slow" {
  provisioner "local-exec" {
    interpreter = ["tf-runner", "sleep"]
    command     = "10m"
  }
}
"#;
        let spec = json!({ "module": inline(module), "timeouts": { "apply": "2s" } });
        write(stage, "net", spec).await?;
        let words = complains(stage, "net", "RunTimedOut").await?;
        ensure!(words.contains("spec.timeouts"), "{words}");
        Ok(())
    })
    .await
}

/// Records when Terraform ran in which pod, until it is aborted.
async fn note_times(stage: &Stage, times: &mut BTreeMap<String, (Timestamp, Option<Timestamp>)>) -> anyhow::Result<()> {
    let which = watcher::Config::default().labels(&selector("net"));
    let mut pods = pin!(watcher::watcher(stage.api::<Pod>(), which).applied_objects());
    while let Some(pod) = pods.try_next().await? {
        let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let mut states = containers.filter(|container| container.name == "terraform").filter_map(|c| c.state.as_ref());
        let time = states.find_map(|state| match (&state.running, &state.terminated) {
            (Some(running), _) => Some((running.started_at.as_ref()?.0, None)),
            (_, Some(over)) => Some((over.started_at.as_ref()?.0, over.finished_at.as_ref().map(|time| time.0))),
            _ => None,
        });
        times.extend(time.map(|time| (pod.name_any(), time)));
    }
    Ok(())
}

fn status(workspace: &TerraformWorkspace) -> anyhow::Result<&TerraformWorkspaceStatus> {
    workspace.status.as_ref().context("it has a status")
}

/// The outcome of the run with this number, once no run is in progress.
fn last(workspace: &TerraformWorkspace, number: i64) -> Option<Outcome> {
    let status = workspace.status.as_ref()?;
    let run = status.run.as_ref().filter(|run| run.number == number)?;
    run.outcome.filter(|_| status.phase != WorkspacePhase::Applying)
}
