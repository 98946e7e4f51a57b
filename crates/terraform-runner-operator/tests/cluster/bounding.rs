//! What one workspace can make the operator read and store is bounded, whoever wrote it.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use opcore_testing::proxy::Proxy;
use sandbox::results;
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::TerraformWorkspaceStatus;
use terraform_runner_operator::render;
use terraform_runner_operator::run::report::OUTPUTS_KEY;
use terraform_runner_operator::slots::Limits;
use terraform_runner_operator::store::pack::gzip;

use crate::stage::{Stage, eventually};

#[tokio::test]
async fn outputs_that_somebody_made_to_burst_the_operator_are_reported_and_not_read() {
    let stage = Stage::new("bombs").await;
    let running = stage.start();
    stage.write("net", json!({})).await;
    let names = render::names(&stage.ready("net").await);
    let bomb = json!({ "zeros": { "value": "0".repeat(120 << 20) } }).to_string();
    let bomb = json!({ "data": { OUTPUTS_KEY: ByteString(gzip(bomb.as_bytes())) } });
    let secrets = stage.of::<Secret>();
    secrets.patch(&names.report(), &PatchParams::default(), &Patch::Merge(&bomb)).await.unwrap();
    let message = stage.says("net", "OutputsTooLarge").await;
    assert!(message.contains("more than 2097152 bytes") && message.contains("net-outputs"), "{message}");
    secrets.get("net-outputs").await.expect("the outputs that there were");
    running.stop().await;
}

#[tokio::test]
async fn what_was_reported_is_read_again_only_when_it_or_its_secret_changes() {
    let stage = Stage::new("quiet").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let running = stage.start_on(proxy.config(), Limits::default());
    stage.write("net", json!({})).await;
    let ready = stage.ready("net").await;
    let report = render::names(&ready).report();
    let secrets = stage.of::<Secret>();
    let old = secrets.get("net-outputs").await.unwrap();
    let version = old.resource_version();
    let written = |status: &TerraformWorkspaceStatus| {
        status.outputs_written.as_ref().map(|written| written.secret.clone()) == version
    };
    stage.until("net", "written", written).await;
    let reconciles = |text: &str| results::count(text, "opcore_reconciles_total", |line| line.contains("\"ok\""));
    let another = async |before: usize| running.until("a reconcile", |text| reconciles(text) > before).await;
    proxy.take();
    for value in ["one", "two", "three"] {
        let before = reconciles(&running.metrics.text());
        stage.annotate("net", "opcore.dev/requestedAt", value).await;
        another(before).await;
    }
    let asked = || proxy.take().into_iter().filter(|passed| passed.path.ends_with(&report)).count();
    assert_eq!(asked(), 0, "nothing has changed");
    secrets.delete("net-outputs", &DeleteParams::default()).await.unwrap();
    eventually(&secrets, "net-outputs", "back", |new| new.uid() != old.uid()).await;
    assert!(asked() > 0);
    running.stop().await;
}

#[tokio::test]
async fn what_a_spec_refers_to_is_read_no_further_than_inputs_may_go() {
    let stage = Stage::new("hoards").await;
    let running = stage.start();
    let maps = stage.of::<ConfigMap>();
    let mut from = Vec::new();
    for number in 0..10 {
        let name = format!("hoard-{number}");
        let data = json!({ format!("v{number}"): "x".repeat(1_000_000), "small": "1" });
        let map = json!({ "metadata": { "name": name }, "data": data });
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
        from.push(json!({ "configMapRef": { "name": name } }));
    }
    stage.write("net", json!({ "variablesFrom": from })).await;
    let message = stage.says("net", "InputNotFound").await;
    assert!(message.contains("more than 8192 KiB in total, counted up to ConfigMap hoard-8"), "{message}");
    for from in &mut from {
        from["keys"] = json!(["small"]);
    }
    stage.write("net", json!({ "variablesFrom": from })).await;
    stage.ready("net").await;
    running.stop().await;
}
