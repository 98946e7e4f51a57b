//! A canary: the values of a Secret appear only in Secrets.

use anyhow::{Context, ensure};
use e2e::terraform::{applied, complains, event, inline, install, names, outputs, workspaces, write};
use e2e::{PATIENCE, Release, Stage, first, gone, scenario, until};
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams, LogParams};
use kube::discovery::{ApiGroup, Discovery, Scope, verbs};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{Action, TerraformWorkspace};

const CANARY: &str = "canary-7Jq2x\"<&>$9wZ";

/// The module prints the token wherever a module can print something; the variable is not declared as sensitive.
const TALKATIVE: &str = r#"
variable "token" {
  type = string
}

resource "random_string" "it" {
  length  = 8
  keepers = { token = var.token }
}

resource "terraform_data" "it" {
  input = "token ${var.token}"
}

check "said" {
  assert {
    condition     = var.token == ""
    error_message = "A warning about ${var.token}."
  }
}

output "token" {
  value     = var.token
  sensitive = true
}
"#;
/// The same, and an error that contains it.
const FAILING: &str = r#"
resource "random_string" "that" {
  length = 4
  lifecycle {
    precondition {
      condition     = var.token == ""
      error_message = "The token ${var.token} is of no use."
    }
  }
}
"#;
/// The same, and a resource whose destroy prints it.
const CLINGING: &str = r#"
resource "terraform_data" "clinging" {
  input = var.token
  provisioner "local-exec" {
    when        = destroy
    interpreter = ["tf-runner", "sleep"]
    command     = self.input
  }
}
"#;
/// The same, and a program that prints it: its duration is invalid.
const BABBLING: &str = r#"
resource "terraform_data" "that" {
  provisioner "local-exec" {
    interpreter = ["tf-runner", "sleep"]
    command     = var.token
  }
}
"#;

#[tokio::test]
async fn what_is_in_a_secret_appears_nowhere_else() -> anyhow::Result<()> {
    scenario("what_is_in_a_secret_appears_nowhere_else", async |stage| {
        let release = install(stage, json!({ "log": { "level": "debug" } })).await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "creds" }, "stringData": { "token": CANARY },
        });
        stage.write(&secret.to_string()).await?;
        let (kept, (), ()) = futures::try_join!(
            async { applied(stage, "kept", spec(TALKATIVE, "Auto")).await },
            fails(stage, "failing", FAILING, "of no use"),
            fails(stage, "babbling", BABBLING, "local-exec"),
        )?;
        write(stage, "waiting", spec(TALKATIVE, "Manual")).await?;
        complains(stage, "waiting", "AwaitingApproval").await?;
        ensure!(outputs(stage, &kept).await?["token"] == CANARY, "what is sensitive is put out as well, into a Secret");
        is_compared(stage, "kept").await?;
        is_destroyed_in_vain(stage).await?;
        let reported = kept.status.context("it has a status")?.outputs;
        ensure!(reported.iter().all(|output| output.sensitive), "{reported:?}");

        let observed = everything(stage, &release).await?;
        for (place, text) in &observed {
            for form in forms()? {
                ensure!(!text.contains(&form), "the canary is in {place}:\n{text}");
            }
        }
        let mut let_go = spec(&format!("{TALKATIVE}{CLINGING}"), "Auto");
        let_go["deletionPolicy"] = json!("Retain");
        write(stage, "clinging", let_go).await?;
        // The right places were searched.
        for place in ["Event", "Job", "Pod", "TerraformWorkspace", "log of", "metrics"] {
            ensure!(observed.iter().any(|(found, _)| found.starts_with(place)), "nothing was read of {place}");
        }
        Ok(())
    })
    .await
}

/// The infrastructure is compared once, and then no more.
async fn is_compared(stage: &Stage, name: &str) -> anyhow::Result<()> {
    let compared = |workspace: &TerraformWorkspace| {
        let run = workspace.status.as_ref().and_then(|status| status.run.as_ref());
        run.is_some_and(|run| run.action == Action::Check && run.is_over())
    };
    let mut often = spec(TALKATIVE, "Auto");
    often["drift"] = json!({ "interval": "1s" });
    write(stage, name, often).await?;
    until(&workspaces(stage), name, "compared", PATIENCE, compared).await?;
    write(stage, name, spec(TALKATIVE, "Auto")).await.map(drop)
}

/// A failed destroy reports the error.
async fn is_destroyed_in_vain(stage: &Stage) -> anyhow::Result<()> {
    let made = applied(stage, "clinging", spec(&format!("{TALKATIVE}{CLINGING}"), "Auto")).await?;
    workspaces(stage).delete("clinging", &DeleteParams::default()).await?;
    complains(stage, "clinging", "DestroyFailed").await?;
    // The Job of the first run is deleted when its result is recorded.
    gone(&stage.api::<Job>(), &names(&made).job(1), None, PATIENCE).await
}

/// A run fails, and the message does not contain the token.
async fn fails(stage: &Stage, name: &str, more: &str, words: &str) -> anyhow::Result<()> {
    write(stage, name, spec(&format!("{TALKATIVE}{more}"), "Auto")).await?;
    let reported = complains(stage, name, "RunFailed").await?;
    ensure!(reported.contains(words) && reported.contains("(redacted)"), "{reported}");
    event(&stage.api(), name, "RunFailed").await.map(drop)
}

fn spec(module: &str, approval: &str) -> Value {
    json!({
        "module": inline(module),
        "variablesFrom": [{ "secretRef": { "name": "creds" } }],
        "env": [{ "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "creds", "key": "token" } } }],
        "approval": approval,
        "drift": { "action": "Off" },
    })
}

/// The forms in which the canary could be written.
fn forms() -> anyhow::Result<Vec<String>> {
    let base64 = serde_json::to_value(ByteString(CANARY.as_bytes().to_vec()))?;
    let base64 = base64.as_str().context("it is text")?.trim_end_matches('=').to_owned();
    let json = serde_json::to_string(CANARY)?.trim_matches('"').to_owned();
    // The part that is the same in every form.
    Ok(vec![CANARY.to_owned(), base64, json, "canary-7Jq2x".to_owned()])
}

/// Everything in the namespace that can be read without reading Secrets: place and text.
async fn everything(stage: &Stage, release: &Release) -> anyhow::Result<Vec<(String, String)>> {
    let mut observed = objects(stage).await?;
    let pods: Api<Pod> = stage.api();
    // A report may exist before the kubelet reports that its pod has started.
    for pod in pods.list(&ListParams::default().labels("infra.opr8r/part=run")).await? {
        let is_over = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        let (name, uid) = (pod.name_any(), pod.uid());
        tokio::select! {
            over = until(&pods, &name, "over", PATIENCE, is_over) => drop(over?),
            // Its Job is deleted in the meantime.
            gone = gone(&pods, &name, uid.as_deref(), PATIENCE) => gone?,
        }
    }
    for pod in pods.list(&ListParams::default()).await? {
        let status = pod.status.clone().unwrap_or_default();
        for container in status.init_container_statuses.iter().chain(&status.container_statuses).flatten() {
            let params = LogParams { container: Some(container.name.clone()), ..LogParams::default() };
            let log = pods.logs(&pod.name_any(), &params).await?;
            observed.push((format!("log of {}, {}", pod.name_any(), container.name), log));
        }
    }
    let which = watcher::Config::default().labels(&release.selector());
    let operator = first(&pods, which, "pod of the operator", PATIENCE, |_| true).await?;
    let ask = format!("/api/v1/namespaces/{}/pods/{}:8080/proxy/metrics", stage.namespace, operator.name_any());
    let metrics = stage.client.request_text(http::Request::get(ask).body(Vec::new())?).await?;
    ensure!(metrics.contains("opcore_build_info"), "{metrics}");
    observed.push(("metrics".to_owned(), metrics));
    Ok(observed)
}

async fn objects(stage: &Stage) -> anyhow::Result<Vec<(String, String)>> {
    let mut observed = Vec::new();
    let kinds = Discovery::new(stage.client.clone()).run().await?;
    for (resource, capabilities) in kinds.groups().flat_map(ApiGroup::recommended_resources) {
        let is_read = capabilities.scope == Scope::Namespaced && capabilities.supports_operation(verbs::LIST);
        if !is_read || ["Secret", "PodMetrics"].contains(&resource.kind.as_str()) {
            continue;
        }
        let api: Api<DynamicObject> = Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource);
        for object in api.list(&ListParams::default()).await? {
            let place = format!("{} {}", resource.kind, object.name_any());
            observed.push((place, serde_json::to_string(&object)?));
        }
    }
    Ok(observed)
}
