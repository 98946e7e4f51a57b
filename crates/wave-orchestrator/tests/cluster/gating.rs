//! What a plan holds suspended is given back, even if its spec changes.

use crate::stage::{Stage, eventually, is_held, reconciled};

/// A wave with these members, after a wave that waits for an object that nobody creates.
fn waves(members: &str) -> String {
    let never = "{ref: {apiVersion: v1, kind: ConfigMap, namespace: NS, name: never}}";
    format!(
        "waves: [{{name: never, members: [{never}]}}, {{name: apps, dependsOn: [{{wave: never}}], members: [{members}]}}]"
    )
}

fn member(name: &str, mode: &str) -> String {
    format!(
        "{{ref: {{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, namespace: NS, name: {name}}}, mode: {mode}}}"
    )
}

#[tokio::test]
async fn a_member_that_is_no_longer_gated_is_given_back() {
    let stage = Stage::new("ungated").await;
    let kustomizations = stage.kustomizations().await;
    let gated = ["removed", "nudged", "stays"].map(|name| member(name, "Gate")).join(", ");
    stage.plan(&waves(&gated)).await;
    for name in ["removed", "nudged", "stays"] {
        reconciled(&kustomizations, name).await;
        eventually(&kustomizations, name, "suspended", is_held).await;
    }
    stage.plan(&waves(&format!("{}, {}", member("nudged", "Nudge"), member("stays", "Gate")))).await;
    for name in ["removed", "nudged"] {
        eventually(&kustomizations, name, "given back", |kustomization| !is_held(kustomization)).await;
    }
    let is_alone = |plan: &wave_orchestrator::api::v1alpha1::WavePlan| {
        let held = &plan.status.as_ref().unwrap().held;
        held.len() == 1 && held[0].name == "stays"
    };
    stage.until("one that holds what is left", is_alone).await;
    assert!(is_held(&kustomizations.get("stays").await.unwrap()));
    stage.delete().await;
    assert!(!is_held(&kustomizations.get("stays").await.unwrap()));
}

#[tokio::test]
async fn a_gate_of_a_wave_that_cannot_be_carried_out_stays_closed_and_is_given_back_with_the_plan() {
    let stage = Stage::new("broken-gate").await;
    let kustomizations = stage.kustomizations().await;
    stage.plan(&waves(&member("k", "Gate"))).await;
    reconciled(&kustomizations, "k").await;
    eventually(&kustomizations, "k", "suspended", is_held).await;
    stage.plan(&waves(&format!("{}, {{manifests: {{inline: 'a: [1'}}}}", member("k", "Gate")))).await;
    stage.until_wave("apps", wave_orchestrator::api::v1alpha1::WavePhase::Failed).await;
    assert!(is_held(&kustomizations.get("k").await.unwrap()));
    stage.delete().await;
    assert!(!is_held(&kustomizations.get("k").await.unwrap()));
}
