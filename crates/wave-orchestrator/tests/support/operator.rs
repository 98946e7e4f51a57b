//! The operator at work in this process, and what it is asked to roll out.
#![allow(dead_code, reason = "tests and benchmarks use different parts of it")]

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Config, CustomResourceExt, Resource};
use opcore_testing::running::{Running, Settings};
use sandbox::results;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wave_orchestrator::api::v1alpha1::WavePlan;
use wave_orchestrator::controller::WavePlans;

pub const NAME: &str = "wave-orchestrator";

/// Installs the kind `WavePlan`.
pub async fn install(client: &Client) -> anyhow::Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = WavePlan::crd_name();
    crds.patch(name, &PatchParams::apply("tests").force(), &Patch::Apply(&WavePlan::crd())).await?;
    let established = await_condition(crds, name, conditions::is_crd_established());
    tokio::time::timeout(Duration::from_secs(30), established).await.context("the CRD is not established")??;
    Ok(())
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

/// Waits, by watch, until an object is so; fails with the object as it was last.
pub async fn until<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    patience: Duration,
    is_so: impl Fn(&K) -> bool,
) -> anyhow::Result<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let wait = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&is_so));
    match tokio::time::timeout(patience, wait).await {
        Ok(found) => found?.context("the condition wants an object"),
        Err(_) => Err(anyhow!("{name} is not {what} after {patience:?}; it is {:#?}", api.get_opt(name).await?)),
    }
}

/// An operator at work.
pub struct Operator(Running);

impl Operator {
    pub fn start(config: &Config) -> Self {
        let settings = Settings { request_deadline: Duration::from_secs(30), ..Settings::default() };
        Self(Running::start(NAME, config.clone(), &[], settings, WavePlans::new))
    }

    /// How often it has looked at a plan without being refused anything.
    pub fn looks(&self) -> usize {
        results::count(&self.0.metrics.text(), "opcore_reconciles_total", |line| line.contains("\"ok\""))
    }

    /// The writes that it sent so far, to this kind of object or to all; Events are no objects of anyone.
    pub fn writes(&self, resource: Option<&str>) -> usize {
        results::count(&self.0.metrics.text(), "opcore_api_requests_total", |line| {
            let reads = ["\"get\"", "\"list\"", "\"watch\"", "events"].iter().any(|word| line.contains(word));
            !reads && resource.is_none_or(|resource| line.contains(&format!("resource=\"{resource}")))
        })
    }

    /// Lets it work until it ends.
    pub async fn run(self) {
        self.0.ended().await;
    }

    /// Ends it in good order.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}
