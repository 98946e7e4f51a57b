//! A nudged member reconciles when its wave starts, not at the next interval of Flux.

use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use opcore_testing::wait::{eventually, within};
use serde_json::json;
use wave_orchestrator::api::v1alpha1::{WavePlan, WavePlanStatus};

use crate::fleet;
use crate::fleet::{LENGTH, name, reference, waves};
use crate::operator::{is_ready, plan};

const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// The interval of Flux is 30 s: two minutes for the chain. Waiting for a single interval would exceed this limit.
const LIMIT: Duration = Duration::from_secs(25);

#[tokio::test]
async fn a_chain_of_kustomizations_does_not_wait_for_the_interval_of_flux() -> anyhow::Result<()> {
    let fleet = fleet("nudge").await?;
    let namespace = fleet.namespace.clone();
    let started = Instant::now();
    fleet.chain().await?;
    let plans = plan(&fleet.client, &namespace, &waves(&namespace)).await?;
    within(LIMIT, &plans, &namespace, "Ready", is_ready).await;
    println!("{LENGTH} Kustomizations took {:.1} s", started.elapsed().as_secs_f64());

    for number in 1..=LENGTH {
        let kustomization = fleet.kustomizations().get(&name(number)).await?;
        let asked = kustomization.annotations().get(REQUESTED_AT);
        assert!(asked.is_some(), "{} was not asked", name(number));
        let answered = kustomization.data["status"]["lastHandledReconcileAt"].as_str();
        assert_eq!(answered, asked.map(String::as_str), "{} was ready before it had answered", name(number));
    }
    Ok(())
}

#[tokio::test]
async fn two_plans_and_a_person_ask_for_the_same_kustomization_and_all_come_to_rest() -> anyhow::Result<()> {
    let fleet = fleet("shared").await?;
    let namespace = fleet.namespace.clone();
    fleet.kustomize(1, "tests", json!({})).await?;
    let wave = json!({ "name": "k1", "members": [{ "ref": reference(&namespace, 1) }] });
    let spec = json!({ "waves": [wave] });
    let names = [namespace.clone(), format!("{namespace}-too")];
    let plans = plan(&fleet.client, &names[0], &spec).await?;
    plan(&fleet.client, &names[1], &spec).await?;
    let mut before = Vec::new();
    for name in &names {
        before.push(eventually(&plans, name, "Ready", is_ready).await.status);
    }

    // As `flux reconcile kustomization` does.
    let asked = jiff::Timestamp::now().to_string();
    let patch = json!({ "metadata": { "annotations": { REQUESTED_AT: asked } } });
    let kustomizations = fleet.kustomizations();
    kustomizations.patch("k1", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let has_answered = |k: &DynamicObject| k.data["status"]["lastHandledReconcileAt"] == *asked;
    eventually(&kustomizations, "k1", "reconciled, as the person asked", has_answered).await;
    // The plans are notified of it before they are requested to reconcile, and report that they did.
    for (name, before) in names.iter().zip(before) {
        let snapshot = json!({ "metadata": { "annotations": { "opcore.dev/requestedAt": asked } } });
        plans.patch(name, &PatchParams::default(), &Patch::Merge(&snapshot)).await?;
        let has_reconciled = |plan: &WavePlan| {
            plan.status.as_ref().is_some_and(|status| status.handled.requested_at.as_ref() == Some(&asked))
        };
        let after = eventually(&plans, name, "reconciled", has_reconciled).await.status;
        let started = |status: Option<WavePlanStatus>| status.and_then(|status| status.waves[0].started_at);
        assert_eq!(started(after), started(before), "its wave was ready all the time");
    }
    let k1 = kustomizations.get("k1").await?;
    assert_eq!(k1.annotations().get(REQUESTED_AT), Some(&asked), "it was not requested again");
    Ok(())
}
