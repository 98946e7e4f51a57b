//! What is deleted and what remains: pruning, and the deletion of a plan.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use opcore_testing::wait::install;
use sandbox::{Options, Sandbox};
use serde_json::json;
use wave_orchestrator::api::v1alpha1::{WavePhase, WavePlan};

use crate::stage::{Stage, eventually, gone, map, start, wave};

const CLAIM: &str = "{manifests: {namespace: NS, inline: '{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Mi}}}}'}}";

fn one_wave(members: &[String]) -> String {
    format!("waves: [{{name: one, timeout: 1s, members: [{}]}}]", members.join(", "))
}

#[tokio::test]
async fn what_a_plan_no_longer_has_goes_once_every_wave_has_passed_and_not_before() {
    let stage = Stage::new("prune").await;
    stage.plan(&one_wave(&[map("stays"), map("goes")])).await;
    stage.ready().await;
    let uid = stage.maps().get("goes").await.unwrap().uid().unwrap();
    // An invalid wave: nothing is pruned because of it.
    let broken = "{manifests: {inline: 'a: [1'}}".to_owned();
    stage.plan(&one_wave(&[map("stays"), broken])).await;
    stage.until_wave("one", WavePhase::Failed).await;
    assert_eq!(stage.applied().await, ["goes", "stays"]);
    stage.plan(&one_wave(&[map("stays")])).await;
    gone(&stage.maps(), "goes", &uid).await;
    assert_eq!(stage.applied().await, ["stays"]);
}

#[tokio::test]
async fn more_than_the_limit_is_never_pruned_at_once() {
    let stage = Stage::new("cap").await;
    let maps: Vec<String> = (0..4).map(|n| map(&format!("m{n}"))).collect();
    stage.plan(&one_wave(&maps)).await;
    stage.ready().await;
    stage.plan(&format!("prune: {{limit: 2}}\n{}", one_wave(&maps[..1]))).await;
    let held =
        stage.until("one that says what is held", |plan| plan.status.as_ref().unwrap().prune_held.is_some()).await;
    let words = held.status.unwrap().prune_held.unwrap();
    assert!(words.contains("3 objects") && words.contains("prune.limit (2)"), "{words}");
    assert_eq!(stage.applied().await.len(), 4);
    stage.plan(&format!("prune: {{limit: 3}}\n{}", one_wave(&maps[..1]))).await;
    let rest = async {
        while stage.applied().await.len() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::stage::PATIENCE, rest).await.expect("three go");
}

#[tokio::test]
async fn claims_stay_until_someone_confirms_and_a_copy_of_ours_is_never_touched() {
    let stage = Stage::new("claims").await;
    stage.plan(&one_wave(&[map("stays"), CLAIM.to_owned()])).await;
    let claims: Api<PersistentVolumeClaim> = stage.of();
    let claim = eventually(&claims, "data", "applied", |_| true).await;
    // A user copies an object of the plan with all its labels.
    let ours = eventually(&stage.maps(), "stays", "applied", |_| true).await;
    let copy = json!({ "metadata": { "name": "copy", "labels": ours.labels(), "annotations": ours.annotations() } });
    stage.create_map(copy).await;
    stage.plan(&one_wave(&[map("stays")])).await;
    let held =
        stage.until("one that says what is held", |plan| plan.status.as_ref().unwrap().prune_held.is_some()).await;
    let words = held.status.unwrap().prune_held.unwrap();
    assert!(words.contains("PersistentVolumeClaim") && words.contains("confirm-delete=true"), "{words}");
    let confirm = json!({ "metadata": { "annotations": { "waves.opcore.dev/confirm-delete": "true" } } });
    claims.patch("data", &PatchParams::default(), &Patch::Merge(&confirm)).await.unwrap();
    gone(&claims, "data", &claim.uid().unwrap()).await;
    stage.delete().await;
    assert!(stage.maps().get_opt("stays").await.unwrap().is_none());
    assert!(stage.maps().get_opt("copy").await.unwrap().is_some(), "it is not ours");
}

#[tokio::test]
async fn a_plan_is_taken_down_in_reverse_order() {
    let stage = Stage::new("reverse").await;
    stage
        .plan(&format!(
            "waves: [{{name: first, members: [{}]}}, {{name: last, dependsOn: [{{wave: first}}], members: [{}]}}]",
            map("a"),
            map("b")
        ))
        .await;
    let plan = stage.ready().await;
    // A finalizer of someone else holds the last object.
    let hold = |finalizers: serde_json::Value| json!({ "metadata": { "finalizers": finalizers } });
    stage.maps().patch("b", &PatchParams::default(), &Patch::Merge(&hold(json!(["example.io/held"])))).await.unwrap();
    stage.plans().delete(&stage.name(), &DeleteParams::default()).await.unwrap();
    eventually(&stage.maps(), "b", "on its way out", |map| map.metadata.deletion_timestamp.is_some()).await;
    let waiting = stage
        .until("one that waits", |plan| {
            let teardown = plan.status.as_ref().and_then(|status| status.teardown.as_ref());
            teardown.and_then(|teardown| teardown.step("last")).is_some_and(|step| step.message.is_some())
        })
        .await;
    let message = waiting.status.unwrap().teardown.unwrap().step("last").unwrap().message.clone().unwrap();
    assert!(message.contains("b still exists"), "{message}");
    assert!(stage.maps().get("a").await.unwrap().metadata.deletion_timestamp.is_none(), "its turn has not come");
    stage.maps().patch("b", &PatchParams::default(), &Patch::Merge(&hold(json!(null)))).await.unwrap();
    gone(&stage.plans(), &stage.name(), &plan.uid().unwrap()).await;
    assert_eq!(stage.applied().await, [""; 0]);
}

/// The CustomResourceDefinition of a kind that is served in these versions.
fn definition(group: &str, versions: &[&str]) -> CustomResourceDefinition {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version = |name: &&str| {
        let served = versions.contains(name);
        json!({ "name": name, "served": served, "storage": *name == "v1", "schema": schema })
    };
    let versions: Vec<_> = ["v1beta1", "v1"].iter().map(version).collect();
    serde_json::from_value(json!({
        "metadata": { "name": format!("things.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": "Thing", "plural": "things", "singular": "thing" },
            "versions": versions,
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn what_was_applied_in_a_version_that_is_served_no_more_goes_with_its_plan() {
    let stage = Stage::new("versions").await;
    let group = format!("{}.example.io", stage.namespace);
    install(&stage.client, &definition(&group, &["v1beta1", "v1"])).await;
    let thing = |version: &str, name: &str| {
        format!(
            "{{manifests: {{namespace: NS, inline: '{{apiVersion: {group}/{version}, kind: Thing, metadata: {{name: {name}}}}}'}}}}"
        )
    };
    stage.plan(&one_wave(&[thing("v1beta1", "moved"), thing("v1beta1", "stayed")])).await;
    stage.ready().await;
    // One of the objects moves to the new version, and the old version is no longer served.
    stage.plan(&one_wave(&[thing("v1", "moved"), thing("v1beta1", "stayed")])).await;
    stage.ready().await;
    install(&stage.client, &definition(&group, &["v1"])).await;
    let lost = |plan: &WavePlan| {
        wave(plan, "one").is_some_and(|wave| wave.not_ready.iter().any(|entry| entry.reason == "KindNotServed"))
    };
    stage.until("one that misses the old version", lost).await;
    stage.delete().await;
    let things = stage.dynamic(&format!("{group}/v1"), "Thing", "things");
    let left: Vec<String> =
        things.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, [""; 0]);
}

#[tokio::test]
async fn with_the_policy_orphan_everything_stays() {
    let stage = Stage::new("orphan").await;
    stage.plan(&format!("deletionPolicy: Orphan\n{}", one_wave(&[map("stays")]))).await;
    stage.ready().await;
    stage.delete().await;
    assert_eq!(stage.applied().await, ["stays"]);
}

#[tokio::test]
async fn a_plan_from_before_there_was_a_minimum_of_resync_lists_no_more_than_another_and_goes() {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "zero").await;
    let mut before: CustomResourceDefinition = WavePlan::crd();
    let spec = before.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
    let spec = spec.properties.as_mut().unwrap().get_mut("spec").unwrap();
    let resync = spec.properties.as_mut().unwrap().get_mut("resync").unwrap();
    assert!(resync.x_kubernetes_validations.take().is_some());
    install(&stage.client, &before).await;
    let spec = format!("resync: 0s\n{}", one_wave(&[map("a")]));
    // The API server takes a moment to apply its own CustomResourceDefinitions.
    let made = async { while stage.try_plan(&spec).await.is_err() {} };
    tokio::time::timeout(crate::stage::PATIENCE, made).await.expect("the old schema takes it");
    install(&stage.client, &WavePlan::crd()).await;
    let running = start(stage.config.clone());
    stage.ready().await;
    let map = stage.maps().get("a").await.unwrap();
    stage.delete().await;
    gone(&stage.maps(), "a", &map.uid().unwrap()).await;
    let text = running.metrics.text();
    let lists = sandbox::results::count(&text, "opcore_api_requests_total", |line| {
        line.contains("resource=\"configmaps\"") && line.contains("\"list\"")
    });
    assert!(lists <= 4, "{lists} lists");
    running.stop().await;
}

#[tokio::test]
async fn what_a_plan_applied_goes_with_it_even_when_someone_wiped_its_status() {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "wiped").await;
    let source = json!({
        "metadata": { "name": "source" },
        "data": { "b": "{apiVersion: v1, kind: ServiceAccount, metadata: {name: b}}" },
    });
    stage.create_map(source).await;
    let running = start(stage.config.clone());
    stage
        .plan(&format!(
            "waves: [{{name: one, members: [{}]}}, \
             {{name: two, dependsOn: [{{wave: one}}], members: [{{manifests: {{namespace: NS, configMapRef: {{namespace: NS, name: source}}}}}}]}}]",
            map("a")
        ))
        .await;
    let plan = stage.ready().await;
    running.stop().await;
    let wiped = json!([{ "op": "replace", "path": "/status", "value": {} }]);
    let wiped = Patch::<()>::Json(serde_json::from_value(wiped).unwrap());
    stage.plans().patch_status(&stage.name(), &PatchParams::default(), &wiped).await.unwrap();
    stage.plans().delete(&stage.name(), &DeleteParams::default()).await.unwrap();
    let running = start(stage.config.clone());
    gone(&stage.plans(), &stage.name(), &plan.uid().unwrap()).await;
    assert_eq!(stage.applied().await, [""; 0]);
    let accounts = stage.of::<k8s_openapi::api::core::v1::ServiceAccount>();
    assert!(accounts.get_opt("b").await.unwrap().is_none(), "nor what was in a ConfigMap");
    running.stop().await;
}
