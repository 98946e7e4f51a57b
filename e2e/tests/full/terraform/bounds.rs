//! What a run may access, and where: in any namespace, its own Secrets and its own Lease, and nothing else.

use anyhow::{Context, ensure};
use e2e::terraform::{inline, install, names, ready_in, texts};
use e2e::{PATIENCE, Stage, scenario};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding, Subject};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::TerraformWorkspace;

/// The module checks for a token in the two places where there could be one.
const MODULE: &str = r#"
output "token" {
  value = fileexists("/var/run/secrets/kubernetes.io/serviceaccount/token") || fileexists("/run/secrets/kubernetes.io/serviceaccount/token")
}

resource "random_string" "it" {
  length = 8
}
"#;

#[tokio::test]
async fn a_run_in_any_namespace_may_touch_its_own_and_nothing_else() -> anyhow::Result<()> {
    scenario("a_run_in_any_namespace_may_touch_its_own_and_nothing_else", async |stage| {
        install(stage, json!({})).await?;
        let namespace = another_namespace(stage).await?;
        let result = in_namespace(stage, &namespace).await;
        if result.is_ok() {
            Api::<Namespace>::all(stage.client.clone()).delete(&namespace, &DeleteParams::background()).await?;
        }
        result
    })
    .await
}

async fn in_namespace(stage: &Stage, namespace: &str) -> anyhow::Result<()> {
    let client = &stage.client;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let other =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "other" }, "stringData": { "a": "b" } });
    secrets.patch("other", &PatchParams::apply("e2e"), &Patch::Apply(&other)).await?;
    let workspaces: Api<TerraformWorkspace> = Api::namespaced(client.clone(), namespace);
    let workspace = json!({
        "apiVersion": "infra.opr8r/v1alpha1",
        "kind": "TerraformWorkspace",
        "metadata": { "name": "elsewhere" },
        "spec": { "module": inline(MODULE), "drift": { "action": "Off" } },
    });
    workspaces.patch("elsewhere", &PatchParams::apply("e2e"), &Patch::Apply(&workspace)).await?;
    let ready = ready_in(&workspaces, "elsewhere", PATIENCE).await?;
    ensure!(texts(&secrets, "elsewhere-outputs").await?["token"] == "false", "Terraform has a token");
    its_role_names_its_own(client, namespace, &ready).await?;
    nothing_is_bound_cluster_wide(client, namespace).await?;
    one_container_has_the_token(client, namespace).await?;

    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    for event in events.list(&ListParams::default()).await? {
        let message = event.message.unwrap_or_default();
        ensure!(!message.contains("refused"), "not all went well at once: {message}");
    }

    let account = stage.client_of(namespace, names(&ready).stem()).await?;
    let as_pod: Api<Secret> = Api::namespaced(account.clone(), namespace);
    as_pod.get(&names(&ready).state()).await.context("its own state")?;
    let all = ListParams::default();
    refused(as_pod.get("other").await, "read another Secret")?;
    refused(as_pod.get("elsewhere-outputs").await, "read the outputs")?;
    refused(as_pod.list(&all).await, "list Secrets")?;
    refused(as_pod.delete(&names(&ready).state(), &DeleteParams::default()).await, "delete its state")?;
    refused(as_pod.patch("new", &PatchParams::apply("e2e"), &Patch::Apply(&other)).await, "make another Secret")?;
    refused(Api::<Lease>::namespaced(account.clone(), namespace).list(&all).await, "list Leases")?;
    refused(Api::<Pod>::namespaced(account.clone(), namespace).list(&all).await, "list pods")?;
    refused(Api::<Secret>::namespaced(account, "kube-system").list(&all).await, "look into another namespace")?;

    workspaces.delete("elsewhere", &DeleteParams::default()).await?;
    e2e::gone(&workspaces, "elsewhere", ready.uid().as_deref(), PATIENCE).await
}

async fn another_namespace(stage: &Stage) -> anyhow::Result<String> {
    let name = format!("{}-b", stage.namespace);
    let namespace = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": name, "labels": { "pod-security.kubernetes.io/enforce": "restricted" } },
    });
    let all: Api<Namespace> = Api::all(stage.client.clone());
    all.patch(&name, &PatchParams::apply("e2e"), &Patch::Apply(&namespace)).await?;
    Ok(name)
}

async fn its_role_names_its_own(
    client: &Client,
    namespace: &str,
    workspace: &TerraformWorkspace,
) -> anyhow::Result<()> {
    let names = names(workspace);
    let role = Api::<Role>::namespaced(client.clone(), namespace).get(names.stem()).await?;
    for rule in role.rules.iter().flatten() {
        let resources = rule.resources.clone().unwrap_or_default();
        ensure!(resources == ["secrets"] || resources == ["leases"], "{rule:?}");
        let may = rule.resource_names.clone().unwrap_or_default();
        ensure!(!may.is_empty() && may.iter().all(|name| name.starts_with(names.stem())), "{rule:?}");
        ensure!(!rule.verbs.iter().any(|verb| ["*", "list", "watch", "delete"].contains(&verb.as_str())), "{rule:?}");
    }
    Ok(())
}

async fn nothing_is_bound_cluster_wide(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let is_of = |subject: &Subject| subject.namespace.as_deref() == Some(namespace);
    let all: Api<ClusterRoleBinding> = Api::all(client.clone());
    for binding in all.list(&ListParams::default()).await? {
        ensure!(!binding.subjects.iter().flatten().any(is_of), "{binding:?}");
    }
    let all: Api<RoleBinding> = Api::all(client.clone());
    for binding in all.list(&ListParams::default()).await? {
        let here = binding.namespace().as_deref() == Some(namespace);
        ensure!(here || !binding.subjects.iter().flatten().any(is_of), "{binding:?}");
    }
    Ok(())
}

/// The pod was accepted by a namespace that enforces the restricted standard.
async fn one_container_has_the_token(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let pods =
        Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default().labels("app=terraform")).await?;
    let spec = pods.items.first().and_then(|pod| pod.spec.clone()).context("its pod is still there")?;
    ensure!(spec.automount_service_account_token == Some(false), "{spec:#?}");
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let with_token: Vec<&str> = containers
        .filter(|container| container.volume_mounts.iter().flatten().any(|mount| mount.name == "token"))
        .map(|container| container.name.as_str())
        .collect();
    ensure!(with_token == ["store"], "{with_token:?}");
    Ok(())
}

fn refused<T>(answer: Result<T, kube::Error>, what: &str) -> anyhow::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("to {what} is answered otherwise than by a refusal")),
        Ok(_) => anyhow::bail!("the pod may {what}"),
    }
}
