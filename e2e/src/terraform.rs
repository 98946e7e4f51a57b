//! The terraform-runner-operator: its chart, and what its scenarios share.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use kube::api::{DeleteParams, ListParams, LogParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use opcore::conditions::{self, Condition};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{SimpleResource, TerraformWorkspace, WORKSPACE_LABEL};
use terraform_runner_operator::run::names::Names;

use crate::wait::{PATIENCE, first, gone, until, yaml};
use crate::{Release, Stage};

/// The name of the operator, of its image and of its release.
pub const OPERATOR: &str = "terraform-runner-operator";
/// The image in which it runs OpenTofu.
pub const RUNNER: &str = "tf-runner";
/// The path of its chart.
pub const CHART: &str = "charts/terraform-runner-operator";

/// Installs it with these values in addition to those for its images, and waits until it is ready. Authors may use
/// their own modules, unless the values say otherwise.
pub async fn install(stage: &Stage, mut values: Value) -> anyhow::Result<Release> {
    let runner = stage.image(RUNNER).await?;
    if values["authors"]["modules"].is_null() {
        values["authors"]["modules"] = json!("Any");
    }
    install_with(stage, values, &runner.repository, &runner.tag).await
}

/// Installs it without a build of OpenTofu: the image of its runner does not exist, so no run starts.
pub async fn install_without_runner(stage: &Stage) -> anyhow::Result<Release> {
    install_with(stage, json!({}), "localhost/nobody/tf-runner", "none").await
}

async fn install_with(stage: &Stage, values: Value, runner: &str, tag: &str) -> anyhow::Result<Release> {
    let mut values = stage.with_image(OPERATOR, values).await?;
    values["runner"]["image"] = json!({ "repository": runner, "tag": tag, "pullPolicy": "Never" });
    stage.install(OPERATOR, CHART, &values).await
}

/// The workspaces of the stage.
pub fn workspaces(stage: &Stage) -> Api<TerraformWorkspace> {
    stage.api()
}

/// The resources of the stage.
pub fn resources(stage: &Stage) -> Api<SimpleResource> {
    stage.api()
}

/// Creates or updates a workspace with this spec.
pub async fn write(stage: &Stage, name: &str, spec: Value) -> anyhow::Result<TerraformWorkspace> {
    let workspace = json!({
        "apiVersion": "infra.opr8r/v1alpha1",
        "kind": "TerraformWorkspace",
        "metadata": { "name": name },
        "spec": spec,
    });
    let params = PatchParams::apply("e2e").force();
    let written = workspaces(stage).patch(name, &params, &Patch::Apply(&workspace)).await;
    written.with_context(|| format!("cannot write workspace {name}"))
}

/// A module of one file.
pub fn inline(main: &str) -> Value {
    json!({ "inline": { "files": { "main.tf": main } } })
}

/// Sets an annotation of a workspace, as `opctl tf` does.
pub async fn annotate(stage: &Stage, name: &str, key: &str, value: &str) -> anyhow::Result<()> {
    let patch = json!({ "metadata": { "annotations": { key: value } } });
    workspaces(stage).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

/// Waits until a workspace is ready for its current spec.
pub async fn ready(stage: &Stage, name: &str) -> anyhow::Result<TerraformWorkspace> {
    ready_in(&workspaces(stage), name, PATIENCE).await
}

/// Waits until a workspace in any namespace is ready for its current spec.
pub async fn ready_in(
    workspaces: &Api<TerraformWorkspace>,
    name: &str,
    deadline: Duration,
) -> anyhow::Result<TerraformWorkspace> {
    until(workspaces, name, "Ready", deadline, |workspace| {
        ready_condition(workspace).is_some_and(|ready| ready.status == "True")
    })
    .await
}

/// Waits until a workspace is not ready with this reason, and returns the message.
pub async fn complains(stage: &Stage, name: &str, reason: &str) -> anyhow::Result<String> {
    let fits = |workspace: &TerraformWorkspace| {
        ready_condition(workspace).is_some_and(|ready| ready.status == "False" && ready.reason == reason)
    };
    let workspace = until(&workspaces(stage), name, reason, PATIENCE, fits).await?;
    Ok(ready_condition(&workspace).context("it has one")?.message.clone())
}

/// The condition `Ready` of a workspace, unless it is about an older spec.
fn ready_condition(workspace: &TerraformWorkspace) -> Option<&Condition> {
    let status = workspace.status.as_ref()?;
    let of_now = status.observed_generation == workspace.metadata.generation;
    conditions::find(&status.conditions, conditions::READY).filter(|_| of_now)
}

/// Creates or updates a workspace and waits until it is ready.
pub async fn applied(stage: &Stage, name: &str, spec: Value) -> anyhow::Result<TerraformWorkspace> {
    write(stage, name, spec).await?;
    ready(stage, name).await
}

/// The outputs of a workspace.
pub async fn outputs(stage: &Stage, workspace: &TerraformWorkspace) -> anyhow::Result<BTreeMap<String, String>> {
    let name = workspace.status.as_ref().and_then(|status| status.outputs_secret.clone());
    let name = name.with_context(|| format!("{} names no Secret with outputs", workspace.name_any()))?;
    texts(&stage.api(), &name).await
}

/// The values of a Secret.
pub async fn texts(secrets: &Api<Secret>, name: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let data = secrets.get(name).await?.data.unwrap_or_default();
    data.into_iter().map(|(key, value)| Ok((key, String::from_utf8(value.0)?))).collect()
}

/// The names of all objects that belong to a workspace.
pub fn names(workspace: &TerraformWorkspace) -> Names {
    Names::of(&workspace.name_any(), &workspace.uid().unwrap_or_default())
}

/// A label selector for the objects that were created for a workspace.
pub fn selector(workspace: &str) -> String {
    format!("{WORKSPACE_LABEL}={workspace}")
}

/// Waits for the pod of a Job in which Terraform has started.
pub async fn running_pod(stage: &Stage, job: &str) -> anyhow::Result<Pod> {
    let which = watcher::Config::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    let runs = |pod: &Pod| {
        let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let mut states = containers.filter(|container| container.name == "terraform").filter_map(|c| c.state.as_ref());
        states.any(|state| state.running.is_some()) && pod.metadata.deletion_timestamp.is_none()
    };
    first(&stage.api(), which, &format!("running pod of Job {job}"), PATIENCE, runs).await
}

/// Waits until Terraform has printed this in a pod.
pub async fn says(stage: &Stage, pod: &Pod, words: &str) -> anyhow::Result<()> {
    let params = LogParams { container: Some("terraform".to_owned()), follow: true, ..LogParams::default() };
    let mut said = Vec::new();
    let follow = async {
        let mut lines = stage.api::<Pod>().log_stream(&pod.name_any(), &params).await?.lines();
        while let Some(line) = lines.try_next().await? {
            if line.contains(words) {
                return anyhow::Ok(true);
            }
            said.push(line);
        }
        Ok(false)
    };
    let found = tokio::time::timeout(PATIENCE, follow).await.unwrap_or(Ok(false))?;
    ensure!(found, "{} did not say {words:?}; it said:\n{}", pod.name_any(), said.join("\n"));
    Ok(())
}

/// Waits for an Event with this reason about an object, and returns its message.
pub async fn event(events: &Api<Event>, about: &str, reason: &str) -> anyhow::Result<String> {
    let fits =
        |event: &Event| event.involved_object.name.as_deref() == Some(about) && event.reason.as_deref() == Some(reason);
    let found =
        first(events, watcher::Config::default(), &format!("Event {reason} about {about}"), PATIENCE, fits).await?;
    Ok(found.message.unwrap_or_default())
}

/// Deletes a workspace, waits until it is gone, and returns the kinds and names of the remaining objects.
pub async fn deleted(stage: &Stage, workspace: &TerraformWorkspace) -> anyhow::Result<BTreeSet<String>> {
    let name = workspace.name_any();
    workspaces(stage).delete(&name, &DeleteParams::default()).await?;
    gone(&workspaces(stage), &name, workspace.uid().as_deref(), PATIENCE).await?;
    Box::pin(left_of(&stage.client, &stage.namespace, &name)).await
}

/// The remaining objects of a workspace that is gone. Owned objects are given the time that garbage collection takes.
pub async fn left_of(client: &kube::Client, namespace: &str, workspace: &str) -> anyhow::Result<BTreeSet<String>> {
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    let mut left = BTreeSet::new();
    left.extend(left_of_kind::<Secret>(client, namespace, workspace).await?);
    left.extend(left_of_kind::<ConfigMap>(client, namespace, workspace).await?);
    left.extend(left_of_kind::<Lease>(client, namespace, workspace).await?);
    left.extend(Box::pin(left_of_kind::<Job>(client, namespace, workspace)).await?);
    left.extend(left_of_kind::<Pod>(client, namespace, workspace).await?);
    left.extend(left_of_kind::<ServiceAccount>(client, namespace, workspace).await?);
    left.extend(left_of_kind::<Role>(client, namespace, workspace).await?);
    left.extend(left_of_kind::<RoleBinding>(client, namespace, workspace).await?);
    Ok(left)
}

async fn left_of_kind<K>(client: &kube::Client, namespace: &str, workspace: &str) -> anyhow::Result<Vec<String>>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let mut left = Vec::new();
    for object in api.list(&ListParams::default().labels(&selector(workspace))).await? {
        let owned = !object.owner_references().is_empty();
        if owned {
            let collected = gone(&api, &object.name_any(), object.uid().as_deref(), PATIENCE).await;
            collected.with_context(|| format!("{} outlives its owner: {}", object.name_any(), yaml(&object)))?;
        } else {
            left.push(format!("{} {}", K::kind(&()), object.name_any()));
        }
    }
    Ok(left)
}
