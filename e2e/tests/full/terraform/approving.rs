//! Plans that wait for approval: readable, redacted, and approved only for the inputs they were made from.

use anyhow::{Context, ensure};
use e2e::terraform::{
    self, annotate, applied, complains, deleted, inline, install, names, outputs, ready, workspaces, write,
};
use e2e::{PATIENCE, Stage, gone, scenario, until};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{
    APPROVE_ANNOTATION, Action, DISCARD_ANNOTATION, Outcome, PlanStatus, REPLAN_ANNOTATION, TerraformWorkspace,
    WorkspacePhase,
};
use terraform_runner_operator::store::{self, Store};

/// Its plan would show the password: the variable is not declared as sensitive.
const MODULE: &str = r#"
variable "length" {
  type = number
}

variable "password" {
  default = "none"
}

resource "random_string" "it" {
  length  = var.length
  special = false
  keepers = { password = var.password }
}

output "value" {
  value = random_string.it.result
}
"#;

const PASSWORD: &str = "correct-horse-battery-staple";

#[tokio::test]
async fn a_plan_waits_is_read_is_approved_and_counts_for_nothing_else() -> anyhow::Result<()> {
    scenario("a_plan_waits_is_read_is_approved_and_counts_for_nothing_else", async |stage| {
        install(stage, json!({})).await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "creds" }, "stringData": { "password": PASSWORD },
        });
        stage.write(&secret.to_string()).await?;
        futures::try_join!(manual(stage), unless_it_destroys(stage))?;
        Ok(())
    })
    .await
}

async fn manual(stage: &Stage) -> anyhow::Result<()> {
    let spec = |length: u32| {
        json!({
            "module": inline(MODULE),
            "variables": { "length": length },
            "variablesFrom": [{ "secretRef": { "name": "creds" } }],
            "approval": "Manual",
        })
    };
    let workspace = write(stage, "manual", spec(10)).await?;
    let plan = waiting(stage, "manual", None).await?;
    ensure!(plan.summary == "+1 ~0 -0", "{plan:?}");
    let words = complains(stage, "manual", "AwaitingApproval").await?;
    ensure!(words.contains(&plan.id) && words.contains("opctl tf approve manual"), "{words}");
    let text = text(stage, &workspace).await?;
    ensure!(text.contains("random_string.it will be created"), "it cannot be read:\n{text}");
    ensure!(text.contains("(redacted)") && !text.contains(PASSWORD), "it contains the password:\n{text}");
    let secrets: Api<Secret> = stage.api();
    ensure!(secrets.get_opt(&names(&workspace).state()).await?.is_none(), "something was applied");

    annotate(stage, "manual", APPROVE_ANNOTATION, &plan.id).await?;
    let ready_now = ready(stage, "manual").await?;
    let first = outputs(stage, &ready_now).await?;
    ensure!(first["value"].len() == 10, "{first:?}");
    let history: Vec<_> = past(&ready_now).collect();
    ensure!(history == [(Action::Apply, Outcome::Applied), (Action::Plan, Outcome::Planned)], "{history:?}");
    // The Secret contains everything in plain text.
    gone(&secrets, &names(&workspace).plan(), None, PATIENCE).await?;

    write(stage, "manual", spec(11)).await?;
    let second = waiting(stage, "manual", Some(&plan.id)).await?;
    // Approved at the moment in which the inputs change.
    let late = json!({
        "metadata": { "annotations": { APPROVE_ANNOTATION: second.id } },
        "spec": { "variables": { "length": 12 } },
    });
    workspaces(stage).patch("manual", &PatchParams::default(), &Patch::Merge(&late)).await?;
    let third = waiting(stage, "manual", Some(&second.id)).await?;
    ensure!(third.inputs != second.inputs && third.summary == "+1 ~0 -1", "{third:?}");
    ensure!(outputs(stage, &ready_now).await? == first, "the approval of another plan was enough");

    annotate(stage, "manual", DISCARD_ANNOTATION, &third.id).await?;
    let words = complains(stage, "manual", "PlanDiscarded").await?;
    ensure!(words.contains(&third.id) && words.contains("opctl tf replan manual"), "{words}");
    annotate(stage, "manual", REPLAN_ANNOTATION, "now").await?;
    let fourth = waiting(stage, "manual", Some(&third.id)).await?;
    annotate(stage, "manual", APPROVE_ANNOTATION, &fourth.id).await?;
    let last = outputs(stage, &ready(stage, "manual").await?).await?;
    ensure!(last["value"].len() == 12, "{last:?}");
    // A deletion does not require another approval.
    ensure!(deleted(stage, &workspace).await?.is_empty(), "something is left");
    Ok(())
}

async fn unless_it_destroys(stage: &Stage) -> anyhow::Result<()> {
    let spec = |length: u32| json!({ "module": inline(MODULE), "variables": { "length": length }, "approval": "AutoUnlessDestroy" });
    let made = applied(stage, "careful", spec(10)).await?;
    ensure!(past(&made).collect::<Vec<_>>() == [(Action::Apply, Outcome::Applied)], "{:#?}", made.status);
    let first = outputs(stage, &made).await?;

    write(stage, "careful", spec(20)).await?;
    let plan = waiting(stage, "careful", None).await?;
    ensure!(plan.destroy == 1, "{plan:?}");
    ensure!(outputs(stage, &made).await? == first, "it was replaced without a question");
    annotate(stage, "careful", APPROVE_ANNOTATION, &plan.id).await?;
    let replaced = outputs(stage, &ready(stage, "careful").await?).await?;
    ensure!(replaced["value"].len() == 20, "{replaced:?}");
    ensure!(deleted(stage, &made).await?.is_empty(), "something is left");
    Ok(())
}

/// Waits until a plan other than this one waits for approval.
async fn waiting(stage: &Stage, name: &str, but: Option<&str>) -> anyhow::Result<PlanStatus> {
    let plan = |workspace: &TerraformWorkspace| {
        let status = workspace.status.as_ref().filter(|status| status.phase == WorkspacePhase::AwaitingApproval)?;
        let of_now = status.observed_generation == workspace.metadata.generation;
        status.plan.clone().filter(|plan| of_now && plan.needs_approval && Some(plan.id.as_str()) != but)
    };
    let found =
        until(&workspaces(stage), name, "awaiting approval", PATIENCE, |workspace| plan(workspace).is_some()).await?;
    plan(&found).context("it waits")
}

/// The plan as text for users.
async fn text(stage: &Stage, workspace: &TerraformWorkspace) -> anyhow::Result<String> {
    let store = Store::new(stage.client.clone(), &stage.namespace, terraform::names(workspace));
    store::plan::text(&store).await?.context("there is a plan")
}

fn past(workspace: &TerraformWorkspace) -> impl Iterator<Item = (Action, Outcome)> {
    workspace.status.iter().flat_map(|status| &status.history).map(|run| (run.action, run.outcome))
}
