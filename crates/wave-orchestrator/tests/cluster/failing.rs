//! Waves that fail, time out, and are retried.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use opcore_testing::proxy::{Fate, Passed, Proxy};
use sandbox::{Options, Sandbox};
use serde_json::json;
use wave_orchestrator::api::v1alpha1::{RETRY_ANNOTATION, SKIP_ANNOTATION, WavePhase};

use crate::stage::{Stage, eventually, is_ready, map, start, words};

/// A Deployment of someone else. Without a node it is ready only with zero replicas.
async fn deployment(stage: &Stage, name: &str) -> Api<Deployment> {
    let api: Api<Deployment> = stage.of();
    let deployment = json!({
        "metadata": { "name": name },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "a": name } }, "template": {
            "metadata": { "labels": { "a": name } }, "spec": { "containers": [{ "name": "c", "image": "none" }] } } }
    });
    api.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    api
}

#[tokio::test]
async fn a_late_wave_blocks_its_descendants_only_and_late_readiness_resumes() {
    let stage = Stage::new("late").await;
    let api = deployment(&stage, "slow").await;
    stage
        .plan(&format!(
            "waves: [{{name: slow, timeout: 1s, members: [{{ref: {{apiVersion: apps/v1, kind: Deployment, namespace: NS, name: slow}}}}]}}, \
             {{name: behind, dependsOn: [{{wave: slow}}], members: [{}]}}, {{name: beside, members: [{}]}}]",
            map("behind"),
            map("beside")
        ))
        .await;
    let late = stage.until_wave("slow", WavePhase::TimedOut).await;
    assert_eq!(late.not_ready[0].object, format!("Deployment {}/slow", stage.namespace));
    stage.until_wave("behind", WavePhase::Blocked).await;
    stage.until_wave("beside", WavePhase::Ready).await;
    let stalled = stage.until("stalled", |plan| words(plan).0 == "WaveTimedOut").await;
    assert!(words(&stalled).1.contains("Wave slow was not ready by"), "{:?}", words(&stalled));
    assert_eq!(stage.applied().await, ["beside"]);
    let reported = stage.event("WaveTimedOut", "slow").await;
    assert_eq!(reported.len(), 1, "each Event is emitted once: {reported:#?}");
    let none = json!({ "spec": { "replicas": 0 } });
    api.patch("slow", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    stage.ready().await;
    assert_eq!(stage.applied().await, ["behind", "beside"]);
}

#[tokio::test]
async fn a_manifest_with_a_name_that_no_object_can_have_is_reported_and_holds_up_no_other() {
    let stage = Stage::new("misnamed").await;
    stage
        .plan(&format!(
            "waves: [{{name: beside, members: [{}]}}, {{name: behind, dependsOn: [{{wave: beside}}], members: [{}]}}, \
             {{name: misnamed, members: [{}, {}]}}]",
            map("a"),
            map("b"),
            map("\"ü ü\""),
            map("c")
        ))
        .await;
    stage.until_wave("behind", WavePhase::Ready).await;
    let stalled = stage.until("stalled", |plan| words(plan).0 == "Invalid").await;
    assert!(words(&stalled).1.contains("metadata.name: \"ü ü\" cannot be"), "{:?}", words(&stalled));
    assert_eq!(stage.applied().await, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_source_with_a_name_that_no_object_can_have_is_reported_and_holds_up_no_other() {
    let stage = Stage::new("source").await;
    let source = |name: &str| format!("{{manifests: {{configMapRef: {{namespace: NS, name: \"{name}\"}}}}}}");
    stage
        .plan(&format!(
            "waves: [{{name: beside, members: [{}]}}, {{name: odd, members: [{}]}}, {{name: sly, members: [{}]}}]",
            map("a"),
            source("ü ü"),
            source("../configmaps/a")
        ))
        .await;
    stage.until_wave("beside", WavePhase::Ready).await;
    for (wave, name) in [("odd", "ü ü"), ("sly", "../configmaps/a")] {
        let failed = stage.until_wave(wave, WavePhase::Failed).await;
        let missing = format!("ConfigMap {}/{name} does not exist", stage.namespace);
        assert!(failed.not_ready[0].message.contains(&missing), "{:?}", failed.not_ready);
    }
}

#[tokio::test]
async fn timeouts_that_add_up_to_centuries_hold_up_nothing() {
    let stage = Stage::new("centuries").await;
    stage
        .plan(&format!(
            "profile: patient
profiles: {{patient: {{timeoutScale: 1000}}}}
waves: [{{name: first, timeout: 999999h, members: [{}]}}, \
        {{name: second, timeout: 999999h999999m, dependsOn: [{{wave: first}}], members: [{}]}}]",
            map("a"),
            map("b")
        ))
        .await;
    stage.ready().await;
    assert_eq!(stage.applied().await, ["a", "b"]);
}

#[tokio::test]
async fn a_failed_job_fails_its_wave_at_once_and_a_retry_recreates_it() {
    let stage = Stage::new("job").await;
    // Without a node no pod of it ever runs, and its deadline is one second.
    let job = "{apiVersion: batch/v1, kind: Job, metadata: {name: migrate}, spec: {activeDeadlineSeconds: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: none}]}}}}";
    stage
        .plan(&format!(
            "waves: [{{name: migrate, timeout: 5m, members: [{{manifests: {{namespace: NS, inline: '{job}'}}}}]}}, \
             {{name: behind, dependsOn: [{{wave: migrate}}], members: [{}]}}]",
            map("behind")
        ))
        .await;
    let failed = stage.until_wave("migrate", WavePhase::Failed).await;
    assert!(failed.not_ready[0].failed && failed.not_ready[0].reason == "DeadlineExceeded", "{failed:?}");
    stage.until_wave("behind", WavePhase::Blocked).await;
    let jobs: Api<Job> = stage.of();
    let first = jobs.get("migrate").await.unwrap();
    stage.annotate(RETRY_ANNOTATION, "migrate@1").await;
    eventually(&jobs, "migrate", "recreated", |job: &Job| job.uid() != first.uid()).await;
    let again = stage.until_wave("migrate", WavePhase::Failed).await;
    assert_eq!(again.attempts, 1);
    // A user decides to skip it.
    stage.annotate(SKIP_ANNOTATION, "migrate").await;
    stage.ready().await;
}

#[tokio::test]
async fn an_endpoint_must_answer_before_its_wave_is_ready() {
    let stage = Stage::new("probe").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    stage
        .plan(&format!("waves: [{{name: one, members: [{}], probes: [{{http: {{url: \"http://127.0.0.1:{port}/health\", expectStatus: 204}}}}]}}]", map("a")))
        .await;
    let lacking = stage
        .until("one whose probe fails", |plan| {
            crate::stage::wave(plan, "one")
                .is_some_and(|wave| wave.not_ready.iter().any(|entry| entry.message.contains("cannot connect")))
        })
        .await;
    let one = crate::stage::wave(&lacking, "one").unwrap();
    assert_eq!((one.ready, one.total), (1, 2));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let answering = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut request).await;
            let answer = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
        }
    });
    stage.ready().await;
    answering.abort();
}

#[tokio::test]
async fn a_wave_that_fails_is_reverted_to_what_it_was_when_it_was_last_ready() {
    let stage = Stage::new("rollback").await;
    let plan = |version: &str| {
        format!(
            "waves: [{{name: app, onFailure: Rollback, members: [{{manifests: {{namespace: NS, inline: '{{apiVersion: v1, kind: ConfigMap, metadata: {{name: app}}, data: {{version: \"{version}\"}}}}'}}}}], \
             healthChecks: [{{target: {{apiVersion: v1, kind: ConfigMap, namespace: NS, name: app}}, ready: \"data.version != 'bad'\", failed: \"data.version == 'bad'\"}}]}}, \
             {{name: behind, dependsOn: [{{wave: app}}], members: [{}]}}]",
            map("behind")
        )
    };
    stage.plan(&plan("1")).await;
    stage.ready().await;
    let version = async || stage.maps().get("app").await.unwrap().data.unwrap()["version"].clone();
    // The manifests are stored before anything can fail.
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(stage.client.clone());
    let uid = stage.plans().get(&stage.name()).await.unwrap().uid().unwrap();
    let kept = format!("app.{uid}");
    eventually(&secrets, &kept, "kept", |_| true).await;
    stage.plan(&plan("bad")).await;
    let back = stage
        .until("one whose failed wave was rolled back", |plan| {
            let app = crate::stage::wave(plan, "app");
            app.is_some_and(|app| app.phase == WavePhase::Failed && app.rolled_back)
        })
        .await;
    let reported = &crate::stage::wave(&back, "app").unwrap().not_ready[0];
    assert_eq!(reported.reason, "RolledBack");
    assert_eq!(version().await, "1");
    stage.until_wave("behind", WavePhase::Blocked).await;
    // A correction continues normally, and becomes the version to roll back to.
    stage.plan(&plan("2")).await;
    stage.ready().await;
    assert_eq!(version().await, "2");
    let kept_two = |secret: &k8s_openapi::api::core::v1::Secret| {
        let text = secret.data.as_ref().and_then(|data| String::from_utf8(data["manifests"].0.clone()).ok());
        text.is_some_and(|text| text.contains("\"version\":\"2\""))
    };
    eventually(&secrets, &kept, "kept again", kept_two).await;
}

#[tokio::test]
async fn a_write_that_is_forbidden_for_a_moment_is_not_reported_as_if_someone_had_to_act() {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "moment").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    // An API server that has just started, or that does not know a new role yet.
    let refusals = |mut left: usize| {
        move |passed: &Passed| {
            if passed.writes() && passed.path.contains("/configmaps/") && left > 0 {
                left -= 1;
                return Fate::Answer(403);
            }
            Fate::Pass
        }
    };
    proxy.rule(refusals(2));
    let running = start(proxy.config());
    // Everything that is published until the plan is ready.
    let reported = {
        let plans = stage.plans();
        tokio::spawn(async move {
            let mut reported = Vec::new();
            let mut observed = pin!(watcher(plans, watcher::Config::default()).default_backoff().applied_objects());
            while let Some(observed) = observed.next().await {
                let Ok(plan) = observed else { continue };
                if is_ready(&plan) {
                    break;
                }
                if plan.status.as_ref().is_some_and(|status| !status.conditions.is_empty()) {
                    reported.push(words(&plan).0);
                }
            }
            reported
        })
    };
    stage.plan(&format!("waves: [{{name: one, members: [{}]}}]", map("a"))).await;
    stage.ready().await;
    let reported = reported.await.unwrap();
    assert!(!reported.contains(&"Forbidden".to_owned()), "{reported:?}");
    // A right that remains missing is reported.
    proxy.rule(refusals(usize::MAX));
    stage.plan(&format!("waves: [{{name: one, members: [{}]}}]", map("b"))).await;
    stage.until("one that says that it is forbidden", |plan| words(plan).0 == "Forbidden").await;
    running.stop().await;
}
