//! An operator that runs in this process, and the plans that it rolls out.
#![allow(dead_code, reason = "tests and benchmarks use different parts of it")]

use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, Client, Config, CustomResourceExt};
use opcore_testing::running::{Running, Settings};
use sandbox::results;
use serde_json::{Value, json};
use wave_orchestrator::api::v1alpha1::WavePlan;
use wave_orchestrator::controller::WavePlans;

pub const NAME: &str = "wave-orchestrator";

/// Installs the kind `WavePlan`.
pub async fn install(client: &Client) {
    opcore_testing::wait::install(client, &WavePlan::crd()).await;
}

/// Creates a plan of these waves.
pub async fn plan(client: &Client, name: &str, spec: &Value) -> anyhow::Result<Api<WavePlan>> {
    let plans: Api<WavePlan> = Api::all(client.clone());
    let plan: WavePlan = serde_json::from_value(json!({
        "apiVersion": "waves.opcore.dev/v1alpha1", "kind": "WavePlan", "metadata": { "name": name }, "spec": spec,
    }))?;
    plans.create(&PostParams::default(), &plan).await?;
    Ok(plans)
}

/// Whether all waves of a plan are ready.
pub fn is_ready(plan: &WavePlan) -> bool {
    plan.status.as_ref().is_some_and(|status| opcore::conditions::is_true(&status.conditions, "Ready"))
}

/// An operator that runs in this process.
pub struct Operator(Running);

impl Operator {
    pub fn start(config: &Config) -> Self {
        let settings = Settings { request_deadline: Duration::from_secs(30), ..Settings::default() };
        Self(Running::start(NAME, config.clone(), &[], settings, WavePlans::new))
    }

    /// The number of reconciles without a refused write.
    pub fn reconciles(&self) -> usize {
        results::count(&self.0.metrics.text(), "opcore_reconciles_total", |line| line.contains("\"ok\""))
    }

    /// The number of writes so far, to this kind of object or to all, without Events.
    pub fn writes(&self, resource: Option<&str>) -> usize {
        results::count(&self.0.metrics.text(), "opcore_api_requests_total", |line| {
            let reads = ["\"get\"", "\"list\"", "\"watch\"", "events"].iter().any(|word| line.contains(word));
            !reads && resource.is_none_or(|resource| line.contains(&format!("resource=\"{resource}")))
        })
    }

    /// Runs it until it ends.
    pub async fn run(self) {
        self.0.ended().await;
    }

    /// Stops it gracefully.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}
