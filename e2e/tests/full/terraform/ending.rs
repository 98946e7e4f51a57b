//! The deletion of a workspace: its resources are destroyed, even when little else is left; and what is left is
//! reported.

use anyhow::ensure;
use e2e::terraform::{applied, complains, deleted, event, inline, install, left_of, names, outputs, workspaces, write};
use e2e::{PATIENCE, Stage, gone, scenario};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{Action, Outcome, TerraformWorkspace};

const MODULE: &str = r#"
variable "token" {
  default = ""
}

resource "random_string" "it" {
  length  = 8
  keepers = { token = var.token }
}

output "value" {
  value = random_string.it.result
}
"#;

/// It cannot be destroyed: the value of the sleep is invalid.
const STUBBORN: &str = r#"
resource "terraform_data" "it" {
  provisioner "local-exec" {
    when        = destroy
    interpreter = ["tf-runner", "sleep"]
    command     = "never"
  }
}
"#;

#[tokio::test]
async fn what_was_made_is_destroyed_or_it_is_said_what_is_left() -> anyhow::Result<()> {
    scenario("what_was_made_is_destroyed_or_it_is_said_what_is_left", async |stage| {
        // One of them refers to an image that does not exist.
        install(stage, json!({ "authors": { "images": ["localhost/nobody/nothing:v1"] } })).await?;
        futures::try_join!(
            its_inputs_are_gone(stage),
            it_is_retained(stage),
            it_is_forced(stage),
            its_state_is_gone(stage),
            it_never_started(stage),
        )?;
        Ok(())
    })
    .await
}

/// An image that does not exist is reported; after a correction the run starts again; and a workspace without a run
/// needs no destroy.
async fn it_never_started(stage: &Stage) -> anyhow::Result<()> {
    let spec = json!({ "module": inline(MODULE), "engine": { "image": "localhost/nobody/nothing:v1" } });
    for name in ["hopeless", "mended"] {
        write(stage, name, spec.clone()).await?;
        let words = complains(stage, name, "PodNotStarting").await?;
        ensure!(words.contains("ErrImage") || words.contains("ImagePullBackOff"), "{words}");
    }
    let hopeless = workspaces(stage).get("hopeless").await?;
    ensure!(deleted(stage, &hopeless).await?.is_empty(), "something is left");
    let mended = applied(stage, "mended", json!({ "module": inline(MODULE) })).await?;
    ensure!(outputs(stage, &mended).await?["value"].len() == 8, "{mended:#?}");
    Ok(())
}

async fn its_inputs_are_gone(stage: &Stage) -> anyhow::Result<()> {
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "module" }, "data": { "main.tf": MODULE } });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "creds" }, "stringData": { "token": "abc123" } });
    stage.write(&map.to_string()).await?;
    stage.write(&secret.to_string()).await?;
    let spec = json!({
        "module": { "configMapRef": { "name": "module" } },
        "variablesFrom": [{ "secretRef": { "name": "creds" } }],
        "env": [{ "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "creds", "key": "token" } } }],
    });
    let workspace = applied(stage, "orphaned", spec).await?;
    stage.api::<ConfigMap>().delete("module", &DeleteParams::default()).await?;
    stage.api::<Secret>().delete("creds", &DeleteParams::default()).await?;
    complains(stage, "orphaned", "InputNotFound").await?;
    let left = deleted(stage, &workspace).await?;
    ensure!(left.is_empty(), "it left {left:?}");
    Ok(())
}

async fn it_is_retained(stage: &Stage) -> anyhow::Result<()> {
    let spec = json!({ "module": inline(MODULE), "deletionPolicy": "Retain" });
    let workspace = applied(stage, "retained", spec).await?;
    let value = outputs(stage, &workspace).await?["value"].clone();
    let index = names(&workspace).state();
    let left = deleted(stage, &workspace).await?;
    let words = event(&stage.api(), "retained", "Retained").await?;
    ensure!(words.contains("leaves one resource") && words.contains(&index), "{words}");
    ensure!(left.contains(&format!("Secret {index}")), "its state is gone: {left:?}");
    ensure!(left.iter().all(|name| name.starts_with("Secret ")), "{left:?}");
    let kept = format!("Secret {}-in-", names(&workspace).stem());
    ensure!(left.iter().any(|name| name.starts_with(&kept)) && words.contains(&kept), "{left:?}: {words}");

    // The remaining state is adopted as it is, and destroyed with the workspace that adopted it.
    let adopt = json!({ "managed": { "adopt": { "secretRef": { "name": index } } } });
    let heir = applied(stage, "heir", json!({ "module": inline(MODULE), "backend": adopt })).await?;
    ensure!(outputs(stage, &heir).await?["value"] == value, "it was created again");
    let runs: Vec<_> = heir.status.iter().flat_map(|status| &status.history).map(|run| run.outcome).collect();
    ensure!(runs == [Outcome::Unchanged], "{runs:?}");
    let left = deleted(stage, &heir).await?;
    ensure!(left.is_empty(), "{left:?}");
    let copies = left_of(&stage.client, &stage.namespace, "retained").await?;
    ensure!(copies.contains(&format!("Secret {index}")), "what was adopted was taken along: {copies:?}");
    Ok(())
}

async fn it_is_forced(stage: &Stage) -> anyhow::Result<()> {
    let spec = json!({ "module": inline(STUBBORN), "deletionPolicy": "Force" });
    let workspace = applied(stage, "forced", spec).await?;
    let index = names(&workspace).state();
    let left = deleted(stage, &workspace).await?;
    let words = event(&stage.api(), "forced", "Retained").await?;
    ensure!(words.contains("deletionPolicy Force") && words.contains("leaves one resource"), "{words}");
    ensure!(left.contains(&format!("Secret {index}")), "its state is gone: {left:?}");
    Ok(())
}

async fn its_state_is_gone(stage: &Stage) -> anyhow::Result<()> {
    let workspace = applied(stage, "stateless", json!({ "module": inline(MODULE) })).await?;
    let value = outputs(stage, &workspace).await?;
    let secrets: Api<Secret> = stage.api();
    let index = names(&workspace).state();
    for secret in
        secrets.list(&ListParams::default()).await?.iter().filter(|secret| secret.name_any().starts_with(&index))
    {
        secrets.delete(&secret.name_any(), &DeleteParams::default()).await?;
    }
    workspaces(stage).delete("stateless", &DeleteParams::default()).await?;
    let words = complains(stage, "stateless", "DestroyBlocked").await?;
    ensure!(words.contains("there is no state") && words.contains("spec.deletionPolicy to Retain"), "{words}");
    ensure!(outputs(stage, &workspace).await? == value, "it is taken for destroyed");
    let destroys = |workspace: &TerraformWorkspace| {
        let past = workspace.status.iter().flat_map(|status| &status.history);
        past.filter(|run| run.action == Action::Destroy && run.outcome == Outcome::Destroyed).count()
    };
    ensure!(destroys(&workspaces(stage).get("stateless").await?) == 0, "what is not known was destroyed");

    let retain = json!({ "spec": { "deletionPolicy": "Retain" } });
    workspaces(stage).patch("stateless", &PatchParams::default(), &Patch::Merge(&retain)).await?;
    gone(&workspaces(stage), "stateless", workspace.uid().as_deref(), PATIENCE).await?;
    let words = event(&stage.api(), "stateless", "Retained").await?;
    ensure!(words.contains("The cluster contains no state of it"), "{words}");
    left_of(&stage.client, &stage.namespace, "stateless").await.map(drop)
}
