//! Where Terraform runs and with which identity: an image, a ServiceAccount and a token that the workspace selects.

use anyhow::ensure;
use e2e::scenario;
use e2e::terraform::{RUNNER, applied, deleted, inline, install, outputs};
use serde_json::json;

/// The module outputs what it finds.
const MODULE: &str = r#"
output "identity" {
  value = fileexists("/var/run/identity/token")
}

output "cluster_token" {
  value = fileexists("/var/run/secrets/kubernetes.io/serviceaccount/token")
}

output "licences" {
  value = fileexists("/usr/share/licenses/tf-runner/licences.txt")
}

resource "terraform_data" "it" {}
"#;

#[tokio::test]
async fn terraform_runs_in_the_image_and_with_the_account_that_it_is_given() -> anyhow::Result<()> {
    scenario("terraform_runs_in_the_image_and_with_the_account_that_it_is_given", async |stage| {
        let image = stage.image(RUNNER).await?;
        // By default authors may use none of these.
        let authors = json!({
            "images": [format!("{}:*", image.repository)], "serviceAccounts": ["cloud"], "volumeTypes": ["projected"],
        });
        install(stage, json!({ "authors": authors })).await?;
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "cloud" } });
        stage.write(&account.to_string()).await?;
        let token = json!({ "serviceAccountToken": { "audience": "sts.example.com", "path": "token" } });
        let spec = json!({
            "module": inline(MODULE),
            "drift": { "action": "Off" },
            // Another image does not contain the runner: it is copied there.
            "engine": { "image": format!("{}:{}", image.repository, image.tag) },
            "runner": { "podTemplate": {
                "metadata": { "labels": { "team": "network" } },
                "spec": {
                    "serviceAccountName": "cloud",
                    "nodeSelector": { "kubernetes.io/os": "linux" },
                    "resources": { "limits": { "memory": "512Mi" } },
                    "volumes": [{ "name": "identity", "projected": { "sources": [token] } }],
                    "volumeMounts": [{ "name": "identity", "mountPath": "/var/run/identity", "readOnly": true }],
                },
            } },
        });
        let workspace = applied(stage, "network", spec).await?;
        let found = outputs(stage, &workspace).await?;
        ensure!(found["identity"] == "true", "the token for the cloud is there: {found:?}");
        ensure!(found["cluster_token"] == "false", "that of the cluster is not: {found:?}");
        ensure!(found["licences"] == "true", "nobody may hand on OpenTofu without them: {found:?}");
        let left = deleted(stage, &workspace).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
}
