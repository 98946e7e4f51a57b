//! An API that does not respond affects only its own members.

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use opcore::finalizer::FORCE_ANNOTATION;
use opcore_testing::proxy::{Fate, Proxy};
use opcore_testing::wait::install;
use sandbox::{Options, Sandbox};
use serde_json::json;
use wave_orchestrator::api::v1alpha1::{WavePhase, WavePlan, WaveStatus};

use crate::stage::{Stage, eventually, gone, map, start, wave, words};

/// A wave that applies a ConfigMap, a wave behind it that also does, and a third wave with this member.
fn beside(member: &str) -> String {
    format!(
        "waves: [{{name: base, members: [{}]}}, {{name: behind, dependsOn: [{{wave: base}}], members: [{}]}}, \
         {{name: beside, timeout: 2s, members: [{member}]}}]",
        map("a"),
        map("b")
    )
}

/// Why the member is not ready, once its wave has timed out and the others are ready.
async fn reported(stage: &Stage) -> String {
    let is_reported = |plan: &WavePlan| {
        let phase = |name: &str| wave(plan, name).map(|wave: &WaveStatus| wave.phase);
        phase("behind") == Some(WavePhase::Ready) && phase("beside") == Some(WavePhase::TimedOut)
    };
    let plan = stage.until("one of which one wave is late, and the others are ready", is_reported).await;
    assert_eq!(words(&plan).0, "WaveTimedOut");
    wave(&plan, "beside").unwrap().not_ready[0].message.clone()
}

#[tokio::test]
async fn an_aggregated_api_that_does_not_answer_concerns_its_own_members_only() {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "nowhere").await;
    let services: Api<APIService> = Api::all(stage.client.clone());
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1.nowhere.example.io" },
        "spec": {
            "group": "nowhere.example.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": { "namespace": "default", "name": "nowhere" }, "insecureSkipTLSVerify": true,
        },
    });
    let name = "v1.nowhere.example.io";
    services.patch(name, &PatchParams::apply("tests"), &Patch::Apply(&service)).await.unwrap();
    let is_unavailable = |service: &APIService| {
        let conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Available" && condition.status == "False")
    };
    eventually(&services, name, "unavailable", is_unavailable).await;
    let running = start(stage.config.clone());

    stage.plan(&beside("{ref: {apiVersion: nowhere.example.io/v1, kind: Thing, namespace: NS, name: t}}")).await;
    let message = reported(&stage).await;
    assert!(message.contains("cannot determine whether the cluster serves this kind"), "{message}");
    // The plan has not applied the member, so the teardown does not wait for it.
    stage.delete().await;

    let thing =
        "{manifests: {namespace: NS, inline: '{apiVersion: nowhere.example.io/v1, kind: Thing, metadata: {name: t}}'}}";
    let plan = stage.plan(&beside(thing)).await;
    reported(&stage).await;
    stage.plans().delete(&stage.name(), &kube::api::DeleteParams::default()).await.unwrap();
    let is_reported = |plan: &WavePlan| {
        words(plan).1.contains(
            "beside: cannot determine which objects of kind Thing are left: the API of Thing does not respond",
        )
    };
    eventually(&stage.plans(), &stage.name(), "one that says what it waits for", is_reported).await;
    // The other waves are torn down in the meantime, in their order.
    let is_done = |plan: &WavePlan| {
        let teardown = plan.status.as_ref().and_then(|status| status.teardown.as_ref());
        let is_done =
            |wave: &str| teardown.and_then(|teardown| teardown.step(wave)).is_some_and(|step| step.phase.is_over());
        is_done("base") && is_done("behind") && !is_done("beside")
    };
    eventually(&stage.plans(), &stage.name(), "one of which the other waves are gone", is_done).await;
    assert_eq!(stage.applied().await, [""; 0]);
    stage.annotate(FORCE_ANNOTATION, "all").await;
    gone(&stage.plans(), &stage.name(), &plan.uid().unwrap()).await;
    running.stop().await;
}

#[tokio::test]
async fn a_kind_that_cannot_be_listed_for_a_while_concerns_its_own_members_and_is_picked_up_when_it_can() {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "away").await;
    let definition = json!({
        "metadata": { "name": "widgets.example.io" },
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": { "kind": "Widget", "plural": "widgets", "singular": "widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    install(&stage.client, &serde_json::from_value(definition).unwrap()).await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    proxy.rule(|passed| if passed.path.ends_with("/widgets") { Fate::Answer(503) } else { Fate::Pass });
    let running = start(proxy.config());
    let widgets = stage.dynamic("example.io/v1", "Widget", "widgets");
    let widget = json!({ "apiVersion": "example.io/v1", "kind": "Widget", "metadata": { "name": "w" } });
    widgets.patch("w", &PatchParams::apply("tests"), &Patch::Apply(&widget)).await.unwrap();
    stage.plan(&beside("{ref: {apiVersion: example.io/v1, kind: Widget, namespace: NS, name: w}}")).await;
    let message = reported(&stage).await;
    assert!(message.contains("widgets.example.io in away-"), "{message}");
    assert!(message.contains("cannot be listed and watched: made up"), "{message}");
    proxy.rule(|_| Fate::Pass);
    stage.ready().await;
    running.stop().await;
}
