//! `helm uninstall`: the objects of users remain unless the values say otherwise, and nothing is stuck.

use anyhow::{Context, ensure};
use e2e::{PATIENCE, gone, notebook, scenario};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::json;

#[tokio::test]
async fn what_is_kept_is_picked_up_again_by_the_next_installation() -> anyhow::Result<()> {
    scenario("what_is_kept_is_picked_up_again_by_the_next_installation", async |stage| {
        let release = notebook::install(stage, json!({ "crds": { "keep": true } })).await?;
        let diary = notebook::written(stage, "diary", &["monday"]).await?;
        release.uninstall(stage).await?;

        let kept = notebook::notebooks(stage).get("diary").await.context("the notebook went with the release")?;
        ensure!(kept.uid() == diary.uid(), "the notebook is another one");
        ensure!(notebook::pages(stage, "diary").await? == ["cover", "monday"]);
        let roles: Api<ClusterRole> = Api::all(stage.client.clone());
        let roles = roles.list(&ListParams::default().labels(&release.selector())).await?;
        ensure!(roles.items.is_empty(), "rights outlive the release: {:?}", names(&roles.items));

        notebook::install(stage, json!({ "crds": { "keep": true } })).await?;
        notebook::written(stage, "diary", &["tuesday"]).await?;
        ensure!(notebook::pages(stage, "diary").await? == ["cover", "tuesday"]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn notebooks_that_are_deleted_first_leave_nothing_stuck() -> anyhow::Result<()> {
    scenario("notebooks_that_are_deleted_first_leave_nothing_stuck", async |stage| {
        let release = notebook::install(stage, json!({ "crds": { "keep": false } })).await?;
        let diary = notebook::written(stage, "diary", &["monday", "tuesday"]).await?;
        ensure!(!diary.finalizers().is_empty(), "nothing guards the order of its end");
        notebook::notebooks(stage).delete("diary", &DeleteParams::default()).await?;
        gone(&notebook::notebooks(stage), "diary", diary.uid().as_deref(), PATIENCE).await?;
        ensure!(notebook::pages(stage, "diary").await?.is_empty(), "pages outlive their notebook");

        release.uninstall(stage).await?;
        let crds: Api<CustomResourceDefinition> = Api::all(stage.client.clone());
        gone(&crds, notebook::CRD, None, PATIENCE).await
    })
    .await
}

fn names(roles: &[ClusterRole]) -> Vec<String> {
    roles.iter().map(ResourceExt::name_any).collect()
}
