//! Waves over objects of others: their readiness counts as soon as it changes.

use kube::api::{Patch, PatchParams, PostParams};
use opcore_testing::running::{Settings, context};
use serde_json::json;
use wave_orchestrator::api::v1alpha1::WavePhase;
use wave_orchestrator::index::PlanName;
use wave_orchestrator::live::Live;
use wave_orchestrator::subscription::config_maps;

use crate::stage::{NAME, Stage, map};

#[tokio::test]
async fn a_choice_by_labels_is_ready_when_all_its_objects_are_and_there_is_one() {
    let stage = Stage::new("select").await;
    stage
        .plan(&format!(
            "waves: [{{name: chosen, members: [], healthChecks: [{{target: {{apiVersion: v1, kind: ConfigMap, namespace: NS, selector: {{matchLabels: {{team: shop}}}}}}, ready: \"data.state == 'up'\"}}]}}, \
             {{name: behind, dependsOn: [{{wave: chosen}}], members: [{}]}}]",
            map("behind")
        ))
        .await;
    let waiting = stage.until_wave("chosen", WavePhase::Running).await;
    assert_eq!(waiting.total, 1);
    for (name, state) in [("one", "up"), ("two", "down")] {
        stage
            .create_map(
                json!({ "metadata": { "name": name, "labels": { "team": "shop" } }, "data": { "state": state } }),
            )
            .await;
    }
    // Objects of others do not matter.
    stage.create_map(json!({ "metadata": { "name": "three", "labels": { "team": "bank" } } })).await;
    let up = json!({ "data": { "state": "up" } });
    stage.maps().patch("two", &PatchParams::default(), &Patch::Merge(&up)).await.unwrap();
    stage.ready().await;
}

#[tokio::test]
async fn two_plans_that_watch_the_same_object_are_both_notified_of_it() {
    let (one, two) = (Stage::new("both").await, Stage::new("both").await);
    let spec = format!(
        "waves: [{{name: watched, members: [{{ref: {{apiVersion: v1, kind: ConfigMap, namespace: {}, name: shared}}}}]}}]",
        one.namespace
    );
    one.plan(&spec).await;
    one.until_wave("watched", WavePhase::Running).await;
    let shared = json!({ "metadata": { "name": "shared" } });
    one.maps().create(&PostParams::default(), &serde_json::from_value(shared).unwrap()).await.unwrap();
    one.ready().await;
    // Its watch is already open, and has reported the object before this plan existed.
    two.plan(&spec).await;
    two.ready().await;
}

#[tokio::test]
async fn a_watch_is_open_as_long_as_a_plan_wants_it() {
    let stage = Stage::new("closing").await;
    let (_stop, stopping) = tokio::sync::watch::channel(false);
    let live = Live::new(&context(NAME, stage.config.clone(), &[], Settings::default(), stopping));
    let (one, two): (PlanName, PlanName) = ("one".into(), "two".into());
    let scopes = |namespaces: &[&str]| namespaces.iter().map(|name| config_maps(name)).collect();
    live.watch(&one, &scopes(&["a", "b"]), None);
    live.watch(&two, &scopes(&["b"]), None);
    assert_eq!(live.watching(), scopes(&["a", "b"]));
    live.watch(&one, &scopes(&["c"]), None);
    assert_eq!(live.watching(), scopes(&["b", "c"]), "nobody wants a, and one still wants b");
    live.forget(&two);
    live.forget(&one);
    assert_eq!(live.watching(), scopes(&[]));
}
