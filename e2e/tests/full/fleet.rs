//! The fleet in small: seven waves of real pods, each started as soon as the waves before it are ready.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use e2e::{PATIENCE, gone, scenario, waves};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::json;

const FLEET: &str = include_str!("../../../docs/samples/fleet-small.yaml");

#[tokio::test]
async fn the_fleet_rolls_out_in_the_order_of_its_graph_and_goes_in_reverse() -> anyhow::Result<()> {
    scenario("the_fleet_rolls_out_in_the_order_of_its_graph_and_goes_in_reverse", async |stage| {
        waves::install(stage, json!({})).await?;
        stage.load_component(waves::ECHO, "echo").await?;
        waves::write(stage, FLEET).await?;
        let plan = waves::ready(stage, "fleet").await?;
        let status = plan.status.as_ref().context("it has a status")?;
        let wave: BTreeMap<&str, _> = status.waves.iter().map(|wave| (wave.name.as_str(), wave)).collect();
        ensure!(wave.len() == 7 && opcore::conditions::is_true(&status.conditions, "StartedInOrder"), "{status:#?}");

        // At the time when the last dependency is ready, and not before: it is one decision.
        for (first, then) in [
            ("infrastructure-core", "infrastructure-operators"),
            ("infrastructure-core", "infrastructure-monitoring"),
            ("infrastructure-operators", "infrastructure-config"),
            ("infrastructure-operators", "database-workloads"),
            ("database-workloads", "services"),
            ("database-workloads", "database-ui"),
        ] {
            ensure!(wave[first].ready_at == wave[then].started_at, "{first} → {then}: {:#?}", status.waves);
        }
        let at = |name: &str| wave[name].ready_at.context("it was ready");
        ensure!(
            at("infrastructure-config")? < at("database-workloads")?,
            "config gates nothing, and nobody waits for it"
        );
        let path = status.critical_path.as_ref().context("it has a critical path")?;
        ensure!(
            path.waves[..3] == ["infrastructure-core", "infrastructure-operators", "database-workloads"],
            "{path:?}"
        );
        let rollout = status.rollout.as_ref().context("it has a rollout")?;
        let took = rollout.finished_at.context("it is through")?.duration_since(rollout.started_at);
        ensure!(took < SignedDuration::from_mins(2), "it took {took}");

        let uid = plan.uid();
        waves::plans(stage).delete("fleet", &DeleteParams::default()).await?;
        gone(&waves::plans(stage), "fleet", uid.as_deref(), PATIENCE).await?;
        let namespaces: Api<Namespace> = Api::all(stage.client.clone());
        ensure!(namespaces.get_opt("fleet").await?.is_none(), "its namespace was confirmed to go");
        Ok(())
    })
    .await
}
