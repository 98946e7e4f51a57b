//! A chart installs where the restricted Pod Security Standard is enforced, and its operator does its job.

use anyhow::ensure;
use e2e::{PATIENCE, gone, notebook, scenario};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

#[tokio::test]
async fn the_notebook_operator_installs_in_a_restricted_namespace_and_does_its_job() -> anyhow::Result<()> {
    scenario("the_notebook_operator_installs_in_a_restricted_namespace_and_does_its_job", async |stage| {
        let careless: Pod = serde_json::from_value(json!({
            "metadata": { "name": "careless" },
            "spec": { "containers": [{ "name": "careless", "image": "careless:v1" }] },
        }))?;
        let refused = stage.api::<Pod>().create(&PostParams::default(), &careless).await;
        let words = refused.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(words.contains("violates PodSecurity \"restricted"), "the namespace lets everything in: {words}");

        notebook::install(stage, json!({})).await?;
        let diary = notebook::written(stage, "diary", &["monday", "tuesday"]).await?;
        ensure!(notebook::pages(stage, "diary").await? == ["cover", "monday", "tuesday"]);

        notebook::notebooks(stage).delete("diary", &DeleteParams::default()).await?;
        gone(&notebook::notebooks(stage), "diary", diary.uid().as_deref(), PATIENCE).await?;
        ensure!(notebook::pages(stage, "diary").await?.is_empty(), "pages outlive their notebook");
        Ok(())
    })
    .await
}
