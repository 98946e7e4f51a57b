//! A chart installs where the restricted Pod Security Standard is enforced, and its operator works.

use anyhow::ensure;
use e2e::{PATIENCE, gone, identity, notebook, scenario, terraform, until, waves};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use lifecycle_operator::api::v1alpha1::{SpireAgent, ZeroTrustWorkloadIdentityManager as Ztwim};
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

#[tokio::test]
async fn the_wave_orchestrator_installs_alone_and_rolls_out_a_plan() -> anyhow::Result<()> {
    scenario("the_wave_orchestrator_installs_alone_and_rolls_out_a_plan", async |stage| {
        waves::install(stage, json!({})).await?;
        let name = format!("{}-plan", stage.namespace);
        waves::write(stage, &waves::one_map(stage, &name, "settings")).await?;
        let plan = waves::ready(stage, &name).await?;
        until(&stage.api::<ConfigMap>(), "settings", "applied", PATIENCE, |_| true).await?;
        waves::plans(stage).delete(&name, &DeleteParams::default()).await?;
        gone(&waves::plans(stage), &name, plan.uid().as_deref(), PATIENCE).await?;
        ensure!(stage.api::<ConfigMap>().get_opt("settings").await?.is_none(), "what it applied outlives its plan");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_terraform_runner_operator_installs_alone_and_reports_a_run_that_cannot_start() -> anyhow::Result<()> {
    scenario("the_terraform_runner_operator_installs_alone_and_reports_a_run_that_cannot_start", async |stage| {
        terraform::install_without_runner(stage).await?;
        let spec = json!({ "module": { "builtin": "simple" }, "variables": { "length": 8 } });
        let workspace = terraform::write(stage, "network", spec).await?;
        let words = terraform::complains(stage, "network", "PodNotStarting").await?;
        ensure!(words.contains("ErrImageNeverPull"), "{words}");
        // By default authors may use only modules that are part of the operator.
        let own = json!({ "module": terraform::inline("") });
        let refused = terraform::write(stage, "own", own).await.err().map(|error| format!("{error:#}"));
        let refused = refused.unwrap_or_default();
        ensure!(refused.contains("spec.module: ") && refused.contains("authors.modules to Any"), "{refused}");
        // A workspace without a run needs no destroy.
        let left = terraform::deleted(stage, &workspace).await?;
        ensure!(left.is_empty(), "it leaves {left:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_lifecycle_operator_installs_alone_and_reports_a_server_that_cannot_start() -> anyhow::Result<()> {
    scenario("the_lifecycle_operator_installs_alone_and_reports_a_server_that_cannot_start", async |stage| {
        identity::install_without_spire(stage).await?;
        identity::write::<Ztwim>(stage, json!({ "trustDomain": identity::TRUST_DOMAIN })).await?;
        // The parent repeats what the server says, and nothing that needs the server is started.
        let words = ["SpireServer cluster", "Pod spire-server-0 does not run", "localhost/nobody/nothing:none"];
        identity::complains::<Ztwim>(stage, &words).await?;
        identity::complains::<SpireAgent>(stage, &["SpireServer cluster must be ready first"]).await?;
        // What never ran is taken down in order, too.
        identity::delete(stage).await?;
        let left = identity::orphans(stage).await?;
        ensure!(left.is_empty(), "it leaves {left:?}");
        Ok(())
    })
    .await
}
