//! Two replicas: one is the leader, the other stands by.

use anyhow::ensure;
use e2e::{PATIENCE, gone, notebook, scenario};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

#[tokio::test]
async fn when_the_leaders_pod_is_deleted_the_other_takes_over_and_nothing_is_missed() -> anyhow::Result<()> {
    scenario("when_the_leaders_pod_is_deleted_the_other_takes_over_and_nothing_is_missed", async |stage| {
        notebook::install(stage, json!({ "replicaCount": 2 })).await?;
        notebook::written(stage, "before", &["monday"]).await?;
        let first = notebook::leader(stage, None, PATIENCE).await?;

        // Without a grace period, so that it cannot release the lease: as when its machine fails.
        stage.api::<Pod>().delete(&first.name_any(), &DeleteParams::default().grace_period(0)).await?;
        notebook::write(stage, "meanwhile", &["monday", "tuesday"]).await?;
        notebook::ready(stage, "meanwhile").await?;
        ensure!(notebook::pages(stage, "meanwhile").await? == ["cover", "monday", "tuesday"]);
        let second = notebook::leader(stage, Some(&first), PATIENCE).await?;

        // Gracefully: the lease is released, so no replica has to wait until it expires.
        stage.api::<Pod>().delete(&second.name_any(), &DeleteParams::default()).await?;
        notebook::written(stage, "after", &["monday"]).await?;
        gone(&stage.api::<Pod>(), &second.name_any(), second.uid().as_deref(), PATIENCE).await?;
        notebook::leader(stage, Some(&second), PATIENCE).await?;
        Ok(())
    })
    .await
}
