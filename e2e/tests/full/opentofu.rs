//! The image in which the terraform-runner-operator runs OpenTofu contains everything that it needs, without further
//! requirements for a node.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use e2e::{PATIENCE, Stage, announce, scenario, until, yaml};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use serde_json::json;

/// The module refers to its providers in both registries: neither is reachable from the node, so both come from the
/// image.
const MODULE: &str = r#"
terraform {
  required_providers {
    random = { source = "registry.terraform.io/hashicorp/random" }
    local  = { source = "registry.opentofu.org/hashicorp/local" }
  }
}

resource "random_string" "it" {
  length  = 12
  special = false
}

resource "local_file" "it" {
  filename = "${path.module}/it.txt"
  content  = "hello ${random_string.it.result}"
}

output "content" {
  value = local_file.it.content
}
"#;

#[tokio::test]
async fn opentofu_applies_a_module_in_a_restricted_pod_without_a_network() -> anyhow::Result<()> {
    scenario("opentofu_applies_a_module_in_a_restricted_pod_without_a_network", async |stage| {
        let image = stage.image("tf-runner").await?;
        let module = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "module" }, "data": { "main.tf": MODULE },
        });
        stage.write(&yaml(&module)).await?;
        let reference = format!("{}:{}", image.repository, image.tag);
        // The first run reads the programs from the disk.
        for name in ["cold", "warm-1", "warm-2"] {
            let took = applied(stage, name, &reference).await?;
            announce(&format!("pod {name}: created, init and apply done in {:.2} s", took.as_secs_f64()));
        }
        Ok(())
    })
    .await
}

/// Runs a pod that applies the module, and returns how long that took.
async fn applied(stage: &Stage, name: &str, image: &str) -> anyhow::Result<Duration> {
    let container = |name: &str, arguments: &[&str]| {
        json!({
            "name": name,
            "image": image,
            "imagePullPolicy": "Never",
            "command": ["tofu"],
            "args": arguments,
            "workingDir": "/run/work",
            "securityContext": {
                "readOnlyRootFilesystem": true,
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
            },
            "volumeMounts": [
                { "name": "work", "mountPath": "/run/work" },
                { "name": "module", "mountPath": "/run/work/main.tf", "subPath": "main.tf" },
                { "name": "tmp", "mountPath": "/tmp" },
            ],
        })
    };
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            // No user is set: that of the image is not root.
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "initContainers": [container("init", &["init", "-no-color", "-input=false"])],
            "containers": [container("apply", &["apply", "-no-color", "-input=false", "-auto-approve"])],
            "volumes": [
                { "name": "work", "emptyDir": {} },
                { "name": "tmp", "emptyDir": {} },
                { "name": "module", "configMap": { "name": "module" } },
            ],
        },
    });
    let started = Instant::now();
    stage.write(&yaml(&pod)).await?;
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let pods = stage.api::<Pod>();
    let done =
        until(&pods, name, "done", PATIENCE, |pod| ["Succeeded", "Failed"].contains(&phase(pod).as_str())).await?;
    let took = started.elapsed();
    ensure!(phase(&done) == "Succeeded", "{}", yaml(&done));
    let log = pods.logs(name, &LogParams { container: Some("apply".into()), ..LogParams::default() }).await?;
    ensure!(log.contains("Apply complete! Resources: 2 added, 0 changed, 0 destroyed."), "{log}");
    let content = log.lines().find_map(|line| line.strip_prefix("content = \"hello ")).context("no output")?;
    ensure!(content.trim_end_matches('"').len() == 12, "{log}");
    Ok(took)
}
