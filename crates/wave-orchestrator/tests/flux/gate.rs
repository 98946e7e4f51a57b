//! A gated member is suspended until its wave starts, only by us, and given back.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::{Api, ResourceExt};
use opcore_testing::wait::{eventually, gone};
use serde_json::{Value, json};

use crate::fleet;
use crate::fleet::{Fleet, is_ready, reference};
use crate::operator::{self, NAME, plan};

/// The manager that applies a Kustomization from Git.
const PARENT: &str = "kustomize-controller";

/// A wave with a gated Kustomization, after one that waits for a ConfigMap that does not exist yet.
fn gated(namespace: &str) -> Value {
    let signal = json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": "signal" });
    json!({ "waves": [
        { "name": "signal", "members": [{ "ref": signal }] },
        { "name": "apps", "dependsOn": [{ "wave": "signal" }], "members": [{ "ref": reference(namespace, 1), "mode": "Gate" }] },
    ]})
}

async fn signal(fleet: &Fleet) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(fleet.client.clone(), &fleet.namespace);
    maps.create(&PostParams::default(), &serde_json::from_value(json!({ "metadata": { "name": "signal" } }))?).await?;
    Ok(())
}

/// Whether this manager owns `spec.suspend`.
fn suspended_by(object: &DynamicObject, manager: &str) -> bool {
    object.managed_fields().iter().any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        entry.manager.as_deref() == Some(manager)
            && fields.is_some_and(|fields| fields.pointer("/f:spec/f:suspend").is_some())
    })
}

fn is_held(kustomization: &DynamicObject) -> bool {
    kustomization.data["spec"]["suspend"] == true && suspended_by(kustomization, NAME)
}

fn is_free(kustomization: &DynamicObject) -> bool {
    kustomization.data["spec"]["suspend"] != true && !suspended_by(kustomization, NAME)
}

#[tokio::test]
async fn a_kustomization_is_suspended_until_its_wave_starts() -> anyhow::Result<()> {
    let fleet = fleet("gate").await?;
    let namespace = fleet.namespace.clone();
    let plans = plan(&fleet.client, &namespace, &gated(&namespace)).await?;
    fleet.kustomize(1, "tests", json!({})).await?;
    let kustomizations = fleet.kustomizations();
    eventually(&kustomizations, "k1", "suspended", is_held).await;

    signal(&fleet).await?;
    eventually(&plans, &namespace, "Ready", operator::is_ready).await;
    let kustomization = kustomizations.get("k1").await?;
    assert!(is_free(&kustomization) && is_ready(&kustomization), "{kustomization:#?}");
    let maps: Api<ConfigMap> = Api::namespaced(fleet.client.clone(), &namespace);
    assert!(maps.get_opt("k1").await?.is_some(), "Flux has applied what is in Git");
    Ok(())
}

#[tokio::test]
async fn a_plan_that_is_deleted_gives_back_what_it_suspended() -> anyhow::Result<()> {
    let fleet = fleet("give-back").await?;
    let namespace = fleet.namespace.clone();
    let plans = plan(&fleet.client, &namespace, &gated(&namespace)).await?;
    fleet.kustomize(1, "tests", json!({})).await?;
    let kustomizations = fleet.kustomizations();
    eventually(&kustomizations, "k1", "suspended", is_held).await;

    let uid = plans.get(&namespace).await?.metadata.uid.unwrap_or_default();
    plans.delete(&namespace, &DeleteParams::default()).await?;
    gone(&plans, &namespace, &uid).await;
    eventually(&kustomizations, "k1", "free and reconciled", |k| is_free(k) && is_ready(k)).await;
    Ok(())
}

#[tokio::test]
async fn a_kustomization_whose_suspension_is_in_git_is_not_fought_over() -> anyhow::Result<()> {
    let fleet = fleet("in-git").await?;
    let namespace = fleet.namespace.clone();
    fleet.kustomize(1, PARENT, json!({ "suspend": false })).await?;
    let plans = plan(&fleet.client, &namespace, &gated(&namespace)).await?;
    let words = format!(
        "Kustomization {namespace}/k1 was not changed: other field managers own .spec.suspend ({PARENT}). \
         Remove the fields from this object, or have their managers release them."
    );
    let says_so = |plan: &wave_orchestrator::api::v1alpha1::WavePlan| {
        let conditions = plan.status.iter().flat_map(|status| &status.conditions);
        let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
        ready.any(|ready| ready.reason == "FieldConflict" && ready.message.contains(&words))
    };
    eventually(&plans, &namespace, &format!("saying: {words}"), says_so).await;
    let kustomization = fleet.kustomizations().get("k1").await?;
    assert!(is_free(&kustomization), "{kustomization:#?}");
    assert!(suspended_by(&kustomization, PARENT), "{kustomization:#?}");

    // An object that is not suspended does not need to be released: the rollout continues.
    signal(&fleet).await?;
    eventually(&plans, &namespace, "Ready", operator::is_ready).await;
    Ok(())
}

#[tokio::test]
async fn a_kustomization_that_is_suspended_in_git_stays_so_and_its_wave_says_by_whom() -> anyhow::Result<()> {
    let fleet = fleet("git-holds").await?;
    let namespace = fleet.namespace.clone();
    fleet.kustomize(1, PARENT, json!({ "suspend": true })).await?;
    let plans = plan(&fleet.client, &namespace, &gated(&namespace)).await?;
    let kustomizations = fleet.kustomizations();
    let held_by_both = |k: &DynamicObject| is_held(k) && suspended_by(k, PARENT);
    eventually(&kustomizations, "k1", "suspended by both", held_by_both).await;

    signal(&fleet).await?;
    let words = format!(
        "Kustomization {namespace}/k1 is suspended, but not by this plan: {PARENT} manages spec.suspend. \
         Remove the field from the source of {PARENT}, for example from the manifest in Git."
    );
    let says_so = |plan: &wave_orchestrator::api::v1alpha1::WavePlan| {
        let wave = plan.status.as_ref().and_then(|status| status.wave("apps"));
        let mut lacks = wave.into_iter().flat_map(|wave| &wave.not_ready);
        lacks.any(|entry| entry.reason == "SuspendedByAnother" && entry.message == words)
    };
    eventually(&plans, &namespace, &format!("saying: {words}"), says_so).await;
    let kustomization = kustomizations.get("k1").await?;
    assert!(!suspended_by(&kustomization, NAME), "the wave has started: {kustomization:#?}");
    assert!(suspended_by(&kustomization, PARENT) && kustomization.data["spec"]["suspend"] == true);

    // The field is removed from Git.
    fleet.kustomize(1, PARENT, json!({})).await?;
    eventually(&plans, &namespace, "Ready", operator::is_ready).await;
    Ok(())
}
