//! The chart grants what a plan needs; a missing right is named.

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use opcore_testing::chart::{as_account, grant};
use sandbox::{Options, Sandbox};
use serde_json::json;
use wave_orchestrator::api::v1alpha1::{WavePhase, WavePlan};

use crate::stage::{NAME, PATIENCE, Stage, eventually, gone, start, wave, words};

#[tokio::test]
async fn a_plan_can_do_what_the_chart_grants_and_names_what_it_does_not() {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "rights").await;
    // The operator may keep its own data in the namespace where it is installed; plans use other namespaces.
    let home = sandbox.namespace("home").await.unwrap();
    let granted = grant(&stage.client, NAME, &home, &[]).await;
    let is_own = |object: &&DynamicObject| {
        object.types.as_ref().is_some_and(|types| types.kind == "ClusterRole") && !object.name_any().ends_with("-view")
    };
    let role = granted.iter().rfind(is_own).map(ResourceExt::name_any).unwrap();
    let mut config = as_account(&stage.config, NAME, &home);
    config.default_namespace.clone_from(&home);
    let as_operator = Client::try_from(config.clone()).unwrap();
    let running = start(config);

    // It applies, observes, prunes, and deletes.
    let service = "{manifests: {namespace: NS, inline: '{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}'}}";
    let observed = "{ref: {apiVersion: v1, kind: Namespace, name: NS}}";
    stage.plan(&format!("waves: [{{name: one, members: [{}, {service}, {observed}]}}]", crate::stage::map("a"))).await;
    stage.ready().await;
    let waves = format!("opcore_waveplan_waves{{name=\"{}\",phase=\"Ready\"}} 1", stage.name());
    running.until("its wave is counted", |text| text.contains(&waves)).await;
    let web = stage.of::<Service>().get("web").await.unwrap();
    stage.plan(&format!("waves: [{{name: one, members: [{}, {observed}]}}]", crate::stage::map("a"))).await;
    gone(&stage.of::<Service>(), "web", &web.uid().unwrap()).await;
    let map: ConfigMap = stage.maps().get("a").await.unwrap();
    stage.delete().await;
    gone(&stage.maps(), "a", &map.uid().unwrap()).await;
    let named = format!("name=\"{}\"", stage.name());
    running.until("nothing is measured of a plan that is gone", |text| !text.contains(&named)).await;

    // It may neither read nor write Secrets.
    let lacks = |right: &'static str| move |plan: &WavePlan| plan.status.is_some() && words(plan).1.contains(right);
    stage
        .plan("waves: [{name: one, members: [{ref: {apiVersion: v1, kind: Secret, namespace: NS, name: key}}]}]")
        .await;
    stage.until("one that lacks a right", lacks("list and watch secrets in rights-")).await;
    let reported =
        stage.until("one that names the value", lacks("the value rbac.read of the chart grants this right")).await;
    assert_eq!(words(&reported).0, "Forbidden");
    // To delete a plan that applied nothing, it needs no right.
    stage.delete().await;
    let secret = "{manifests: {namespace: NS, inline: '{apiVersion: v1, kind: Secret, metadata: {name: key}}'}}";
    stage.plan(&format!("waves: [{{name: one, members: [{secret}]}}]")).await;
    stage
        .until(
            "one that names the value",
            lacks("list and watch secrets; the value rbac.apply of the chart grants this right"),
        )
        .await;

    // Half of the required rights are granted, which the operator detects by itself: a refusal names the rest.
    let roles: Api<ClusterRole> = Api::all(stage.client.clone());
    let grant = async |verbs: &[&str]| {
        let more = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": verbs });
        let patch = json!([{ "op": "add", "path": "/rules/-", "value": more }]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
        roles.patch(&role, &PatchParams::default(), &patch).await.unwrap();
    };
    grant(&["list", "watch"]).await;
    let reported = stage
        .until("one whose write is refused", |plan| {
            wave(plan, "one")
                .is_some_and(|wave| wave.not_ready.iter().any(|entry| entry.message.contains("rbac.apply")))
        })
        .await;
    let entry = &wave(&reported, "one").unwrap().not_ready[0];
    assert!(entry.message.contains("cannot get resource \"secrets\""), "{entry:?}");
    assert_eq!(wave(&reported, "one").unwrap().phase, WavePhase::Running);
    let (reason, message) = words(&reported);
    assert_eq!(reason, "Forbidden");
    for part in ["cannot get resource \"secrets\"", "Set the value rbac.apply of the chart to grant it."] {
        assert!(message.contains(part), "{message}");
    }
    grant(&["get", "create", "patch", "delete"]).await;
    let holds = async {
        let secrets: Api<Secret> = Api::namespaced(as_operator, &stage.namespace);
        while secrets.get_opt("key").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, holds).await.expect("the API server knows the right");
    // A refused write is retried after a growing delay, or on request.
    stage.annotate("opcore.dev/requestedAt", "1").await;
    eventually(&stage.of::<Secret>(), "key", "applied", |_| true).await;
    stage.ready().await;
    running.stop().await;
}
