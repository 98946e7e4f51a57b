//! The wave-orchestrator: its chart, and what its scenarios share.

use anyhow::Context;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use wave_orchestrator::api::v1alpha1::WavePlan;

use crate::wait::{PATIENCE, until};
use crate::{Release, Stage};

/// The name of the operator, of its image and of its release.
pub const OPERATOR: &str = "wave-orchestrator";
/// The path of its chart.
pub const CHART: &str = "charts/wave-orchestrator";
/// The small web server that plans of scenarios roll out.
pub const ECHO: &str = "opcore.dev/echo:v1";

/// Installs it with these values in addition to those for its image, and waits until it is ready.
pub async fn install(stage: &Stage, values: Value) -> anyhow::Result<Release> {
    let values = stage.with_image(OPERATOR, values).await?;
    stage.install(OPERATOR, CHART, &values).await
}

/// All plans.
pub fn plans(stage: &Stage) -> Api<WavePlan> {
    Api::all(stage.client.clone())
}

/// Creates or updates a plan, written as by a user.
pub async fn write(stage: &Stage, yaml: &str) -> anyhow::Result<WavePlan> {
    let plan: WavePlan = serde_yaml::from_str(yaml).context("it is a plan")?;
    let applied = plans(stage).patch(&plan.name_any(), &PatchParams::apply("e2e"), &Patch::Apply(&plan)).await?;
    Ok(applied)
}

/// Waits until a plan is ready for its current spec.
pub async fn ready(stage: &Stage, name: &str) -> anyhow::Result<WavePlan> {
    let is_ready = |plan: &WavePlan| {
        let status = plan.status.as_ref();
        status.is_some_and(|status| {
            status.observed_generation == plan.metadata.generation
                && opcore::conditions::is_true(&status.conditions, "Ready")
        })
    };
    until(&plans(stage), name, "Ready", PATIENCE, is_ready).await
}

/// A plan that applies one ConfigMap to the namespace of the stage.
pub fn one_map(stage: &Stage, plan: &str, map: &str) -> String {
    let manifest =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": map, "namespace": stage.namespace } });
    let wave = json!({ "name": "only", "members": [{ "manifests": { "inline": manifest.to_string() } }] });
    json!({
        "apiVersion": "waves.opcore.dev/v1alpha1",
        "kind": "WavePlan",
        "metadata": { "name": plan },
        "spec": { "waves": [wave] },
    })
    .to_string()
}
