//! `helm upgrade` with another value: the pods are replaced, and the work continues.

use anyhow::ensure;
use e2e::{PATIENCE, gone, notebook, scenario};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

#[tokio::test]
async fn an_upgrade_replaces_the_pods_and_keeps_the_notebooks() -> anyhow::Result<()> {
    scenario("an_upgrade_replaces_the_pods_and_keeps_the_notebooks", async |stage| {
        let release = notebook::install(stage, json!({ "log": { "level": "info" } })).await?;
        let diary = notebook::written(stage, "diary", &["monday"]).await?;
        let old = notebook::leader(stage, None, PATIENCE).await?;

        let values = stage.with_image(notebook::OPERATOR, json!({ "log": { "level": "info,opcore=debug" } })).await?;
        release.upgrade(stage, &values).await?;
        gone(&stage.api::<Pod>(), &old.name_any(), old.uid().as_deref(), PATIENCE).await?;
        let new = notebook::leader(stage, Some(&old), PATIENCE).await?;
        let variables = new.spec.iter().flat_map(|spec| &spec.containers).flat_map(|c| c.env.iter().flatten());
        let level = variables.clone().find(|variable| variable.name == "OPCORE_LOG_LEVEL");
        ensure!(level.is_some_and(|level| level.value.as_deref() == Some("info,opcore=debug")), "{new:#?}");

        ensure!(notebook::ready(stage, "diary").await?.uid() == diary.uid(), "the notebook is another one");
        notebook::written(stage, "diary", &["monday", "tuesday"]).await?;
        ensure!(notebook::pages(stage, "diary").await? == ["cover", "monday", "tuesday"]);
        Ok(())
    })
    .await
}
