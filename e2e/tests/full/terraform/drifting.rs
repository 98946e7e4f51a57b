//! A file on a volume is changed outside of the workspace that created it.

use anyhow::ensure;
use e2e::terraform::{applied, event, inline, install, outputs, workspaces};
use e2e::{PATIENCE, Stage, holds, scenario, until};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::TerraformWorkspace;

const DISK: &str = r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: disk
spec:
  accessModes: [ReadWriteOnce]
  resources:
    requests:
      storage: 1Mi
";

const FILE: &str = r#"
variable "content" {
  type = string
}

resource "local_file" "it" {
  filename = "/disk/it.txt"
  content  = var.content
}
"#;

const READER: &str = r#"
data "local_file" "it" {
  filename = "/disk/it.txt"
}

output "content" {
  value = data.local_file.it.content
}
"#;

#[tokio::test]
async fn a_file_changed_behind_its_back_is_reported_and_then_corrected() -> anyhow::Result<()> {
    scenario("a_file_changed_behind_its_back_is_reported_and_then_corrected", async |stage| {
        install(stage, json!({})).await?;
        stage.write(DISK).await?;
        let made = applied(stage, "file", on_disk(FILE, "as it should be", "Report")).await?;
        meddle(stage, "meddled with").await?;

        let words = event(&stage.api(), "file", "DriftDetected").await?;
        ensure!(words.contains("local_file.it"), "{words}");
        let drifted = until(&workspaces(stage), "file", "drifted", PATIENCE, |file| holds(file, "Drifted")).await?;
        ensure!(holds(&drifted, "Ready"), "what is applied stays ready: {drifted:#?}");
        ensure!(summary(&drifted).as_deref() == Some("1 resource"), "{drifted:#?}");
        ensure!(applies(&drifted) == applies(&made), "nothing is corrected where it is only reported: {drifted:#?}");
        ensure!(content(stage, "reader").await? == "meddled with");

        let correct = json!({ "spec": { "drift": { "action": "Correct" } } });
        workspaces(stage).patch("file", &PatchParams::default(), &Patch::Merge(&correct)).await?;
        let mended = |file: &TerraformWorkspace| !holds(file, "Drifted") && summary(file).as_deref() == Some("None");
        let mended = until(&workspaces(stage), "file", "mended", PATIENCE, mended).await?;
        ensure!(applies(&mended) > applies(&made), "{mended:#?}");
        ensure!(content(stage, "another-reader").await? == "as it should be");
        Ok(())
    })
    .await
}

/// Someone else writes the same file.
async fn meddle(stage: &Stage, content: &str) -> anyhow::Result<()> {
    applied(stage, "meddler", on_disk(FILE, content, "Off")).await.map(drop)
}

/// The content of the file.
async fn content(stage: &Stage, reader: &str) -> anyhow::Result<String> {
    let mut spec = on_disk(READER, "", "Off");
    spec["variables"] = json!({});
    let read = outputs(stage, &applied(stage, reader, spec).await?).await?;
    Ok(read["content"].clone())
}

fn on_disk(module: &str, content: &str, action: &str) -> Value {
    json!({
        "module": inline(module),
        "variables": { "content": content },
        "drift": { "interval": "5s", "action": action },
        "runner": { "podTemplate": { "spec": {
            "volumes": [{ "name": "disk", "persistentVolumeClaim": { "claimName": "disk" } }],
            "volumeMounts": [{ "name": "disk", "mountPath": "/disk" }],
        } } },
    })
}

fn summary(workspace: &TerraformWorkspace) -> Option<String> {
    Some(workspace.status.as_ref()?.drift.as_ref()?.summary.clone())
}

/// When it was last applied.
fn applies(workspace: &TerraformWorkspace) -> Option<(Option<String>, jiff::Timestamp)> {
    Some((workspace.uid(), workspace.status.as_ref()?.last_applied.as_ref()?.time))
}
