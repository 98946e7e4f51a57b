//! Day 2: changes reach exactly what they concern, and what is running stays as its specs ask.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, PodTemplateSpec, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PropagationPolicy};
use lifecycle_operator::api::v1alpha1::{
    CONFIG_HASH_ANNOTATION, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer,
    ZeroTrustWorkloadIdentityManager as Ztwim,
};
use lifecycle_operator::render;
use opcore_testing::wait::eventually;
use serde_json::{Value, json};

use crate::stage::{Scene, is_ready};

/// The four workloads: what their pods are rolled by, and the number of their spec.
async fn workloads(scene: &Scene) -> BTreeMap<&'static str, (Option<String>, Option<i64>)> {
    let hash = |template: &PodTemplateSpec| {
        template.metadata.as_ref()?.annotations.as_ref()?.get(CONFIG_HASH_ANNOTATION).cloned()
    };
    let server = scene.of::<StatefulSet>().get(render::server::NAME).await.unwrap();
    let agent = scene.of::<DaemonSet>().get(render::agent::NAME).await.unwrap();
    let driver = scene.of::<DaemonSet>().get(render::csi::NAME).await.unwrap();
    let provider = scene.of::<Deployment>().get(render::oidc::NAME).await.unwrap();
    BTreeMap::from([
        ("server", (hash(&server.spec.unwrap().template), server.metadata.generation)),
        ("agent", (hash(&agent.spec.unwrap().template), agent.metadata.generation)),
        ("driver", (hash(&driver.spec.unwrap().template), driver.metadata.generation)),
        ("provider", (hash(&provider.spec.unwrap().template), provider.metadata.generation)),
    ])
}

/// Which of them differ.
fn rolled<T: PartialEq>(before: &BTreeMap<&'static str, T>, after: &BTreeMap<&'static str, T>) -> Vec<&'static str> {
    before.keys().filter(|name| before[*name] != after[*name]).copied().collect()
}

#[tokio::test]
async fn a_change_of_the_parent_rolls_exactly_the_workloads_whose_configuration_it_changes() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    let before = workloads(&scene).await;
    let driver = scene.all::<SpiffeCSIDriver>().get("cluster").await.unwrap();
    let agent = scene.all::<SpireAgent>().get("cluster").await.unwrap();

    scene.patch::<Ztwim>(json!({ "spec": { "jwtIssuer": "https://issuer.example.org" } })).await.unwrap();
    let has = |issuer: Option<&String>| issuer.is_some_and(|issuer| issuer == "https://issuer.example.org");
    scene.until("told", |it: &SpireServer| has(it.spec.jwt_issuer.as_ref()) && is_ready(it)).await;
    scene.until("told", |it: &SpireOIDCDiscoveryProvider| has(it.spec.jwt_issuer.as_ref()) && is_ready(it)).await;
    scene.ready::<Ztwim>().await;
    assert_eq!(rolled(&before, &workloads(&scene).await), ["provider", "server"]);
    // What it does not concern was not touched at all.
    assert_eq!(
        scene.all::<SpiffeCSIDriver>().get("cluster").await.unwrap().metadata.generation,
        driver.metadata.generation
    );
    assert_eq!(scene.all::<SpireAgent>().get("cluster").await.unwrap().metadata.generation, agent.metadata.generation);

    // A change that changes nothing that is rendered rolls nothing.
    let before = workloads(&scene).await;
    scene.patch::<Ztwim>(json!({ "spec": { "teardown": { "operandTimeout": "45s" } } })).await.unwrap();
    scene.ready::<Ztwim>().await;
    assert_eq!(rolled(&before, &workloads(&scene).await), [""; 0]);
    operator.stop().await;
}

#[tokio::test]
async fn every_operand_takes_a_change_of_its_spec_without_a_restart() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    let placed = json!({
        "labels": { "team": "identity" }, "tolerations": [{ "operator": "Exists" }],
        "resources": { "requests": { "cpu": "1m" } }, "nodeSelector": { "kubernetes.io/hostname": "hands" },
    });
    let node = json!({ "metadata": { "labels": { "kubernetes.io/hostname": "hands" } } });
    scene
        .all::<k8s_openapi::api::core::v1::Node>()
        .patch("hands", &PatchParams::default(), &Patch::Merge(&node))
        .await
        .unwrap();
    let before = workloads(&scene).await;
    scene.patch::<SpireServer>(json!({ "spec": placed })).await.unwrap();
    scene.patch::<SpireAgent>(json!({ "spec": placed })).await.unwrap();
    scene.patch::<SpiffeCSIDriver>(json!({ "spec": placed })).await.unwrap();
    scene.patch::<SpireOIDCDiscoveryProvider>(json!({ "spec": placed })).await.unwrap();
    everything_is_ready(&scene).await;
    let after = workloads(&scene).await;
    assert_eq!(rolled(&before, &after), ["agent", "driver", "provider", "server"]);
    let pods = scene.of::<Pod>().list(&ListParams::default().labels("team=identity")).await.unwrap();
    let tolerates = |pod: &Pod| {
        let tolerations = pod.spec.as_ref().unwrap().tolerations.as_deref().unwrap_or_default();
        tolerations.iter().any(|it| it.key.is_none() && it.operator.as_deref() == Some("Exists"))
    };
    assert_eq!(pods.iter().filter(|pod| tolerates(pod)).count(), 4);

    // Fields that only one has, and that are in its configuration.
    for server in [
        json!({ "logLevel": "debug" }),
        json!({ "logFormat": "json" }),
        json!({ "caValidity": "48h" }),
        json!({ "defaultX509Validity": "2h" }),
        json!({ "defaultJWTValidity": "6m" }),
        json!({ "caKeyType": "ec-p256" }),
        json!({ "jwtKeyType": "ec-p384" }),
        json!({ "caSubject": { "country": "US" } }),
        json!({ "datastore": { "maxOpenConns": 7 } }),
    ] {
        changes::<SpireServer>(&scene, "server", server).await;
    }
    for agent in [
        json!({ "logLevel": "debug" }),
        json!({ "logFormat": "json" }),
        json!({ "workloadAttestors": { "disableContainerSelectors": "true" } }),
    ] {
        changes::<SpireAgent>(&scene, "agent", agent).await;
    }
    for provider in [json!({ "logLevel": "debug" }), json!({ "logFormat": "json" })] {
        changes::<SpireOIDCDiscoveryProvider>(&scene, "provider", provider).await;
    }
    scene.patch::<SpireOIDCDiscoveryProvider>(json!({ "spec": { "replicaCount": 2 } })).await.unwrap();
    let two = |it: &Deployment| it.status.as_ref().is_some_and(|status| status.ready_replicas == Some(2));
    eventually(&scene.of::<Deployment>(), render::oidc::NAME, "two pods", two).await;
    everything_is_ready(&scene).await;
    operator.stop().await;
}

async fn everything_is_ready(scene: &Scene) {
    scene.ready::<SpireServer>().await;
    scene.ready::<SpireAgent>().await;
    scene.ready::<SpiffeCSIDriver>().await;
    scene.ready::<SpireOIDCDiscoveryProvider>().await;
    scene.ready::<Ztwim>().await;
}

/// Changes a field, and waits until exactly this workload has been rolled by it.
async fn changes<K: opcore::operator::Reconciled>(scene: &Scene, name: &'static str, spec: Value) {
    let before = workloads(scene).await;
    scene.patch::<K>(json!({ "spec": spec })).await.unwrap();
    let what = format!("exactly the {name} is rolled by {spec}");
    scene.comes(&what, async || rolled(&before, &workloads(scene).await) == [name]).await;
}

#[tokio::test]
async fn what_is_edited_or_deleted_by_hand_is_as_it_should_be_again() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    let by_hand = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };

    let maps = scene.of::<ConfigMap>();
    let before = maps.get(render::server::NAME).await.unwrap();
    let edit = json!({ "data": { "server.conf": "{}" } });
    maps.patch(render::server::NAME, &by_hand, &Patch::Merge(&edit)).await.unwrap();
    eventually(&maps, render::server::NAME, "set back", |map: &ConfigMap| map.data == before.data).await;

    let edit = json!({ "spec": { "replicas": 0 } });
    scene.of::<StatefulSet>().patch(render::server::NAME, &by_hand, &Patch::Merge(&edit)).await.unwrap();
    let one = |it: &StatefulSet| it.spec.as_ref().unwrap().replicas == Some(1);
    eventually(&scene.of::<StatefulSet>(), render::server::NAME, "set back", one).await;
    scene.ready::<Ztwim>().await;

    // The bundle is the server's to fill, and it is not taken away.
    assert!(maps.get("spire-bundle").await.unwrap().data.is_some_and(|data| !data.is_empty()));

    let services = scene.of::<Service>();
    let service = services.get(render::server::NAME).await.unwrap();
    services.delete(render::server::NAME, &DeleteParams::default()).await.unwrap();
    eventually(&services, render::server::NAME, "there again", |it: &Service| it.uid() != service.uid()).await;
    let ours = ListParams::default().labels("opcore.dev/operator=lifecycle-operator");
    for role in scene.all::<ClusterRole>().list(&ours).await.unwrap() {
        scene.all::<ClusterRole>().delete(&role.name_any(), &DeleteParams::default()).await.unwrap();
        let again = |it: &ClusterRole| it.uid() != role.uid();
        eventually(&scene.all::<ClusterRole>(), &role.name_any(), "there again", again).await;
    }
    let identities = crate::stage::identities(&scene.client);
    for identity in identities.list(&ours).await.unwrap() {
        identities.delete(&identity.name_any(), &DeleteParams::default()).await.unwrap();
        let api = identities.clone();
        scene
            .comes("the identity is there again", async || api.get_opt(&identity.name_any()).await.unwrap().is_some())
            .await;
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_field_that_another_tool_manages_is_left_alone_and_reported_with_the_tool() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    let replicas = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "replicas": 3 } });
    let tool = PatchParams::apply("autoscaler").force();
    scene.of::<Deployment>().patch(render::oidc::NAME, &tool, &Patch::Apply(&replicas)).await.unwrap();
    let words = scene.says::<SpireOIDCDiscoveryProvider>("Stalled", "FieldConflict").await;
    assert!(words.contains(".spec.replicas") && words.contains("autoscaler"), "{words}");
    let words = scene.says::<Ztwim>("Degraded", "OperandStalled").await;
    assert!(words.contains("autoscaler"), "the parent repeats it: {words}");
    let left_alone = scene.of::<Deployment>().get(render::oidc::NAME).await.unwrap();
    assert_eq!(left_alone.spec.unwrap().replicas, Some(3));

    operator.stop().await;
}

#[tokio::test]
async fn an_object_of_somebody_else_with_our_name_is_neither_changed_nor_deleted() {
    let scene = Scene::new().await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": render::agent::NAME },
        "data": { "agent.conf": "theirs" },
    });
    let tool = PatchParams::apply("another-operator");
    scene.of::<ConfigMap>().patch(render::agent::NAME, &tool, &Patch::Apply(&theirs)).await.unwrap();
    let operator = scene.operator();
    scene.write::<Ztwim>(json!({ "trustDomain": "example.org" })).await.unwrap();
    scene.write::<SpireServer>(json!({})).await.unwrap();
    scene.write::<SpireAgent>(json!({})).await.unwrap();
    let words = scene.says::<SpireAgent>("Stalled", "OwnedByAnother").await;
    assert!(words.contains(render::agent::NAME) && words.contains("another-operator"), "{words}");
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    scene.all_gone().await;
    let map = scene.of::<ConfigMap>().get(render::agent::NAME).await.unwrap();
    assert_eq!(map.data.unwrap()["agent.conf"], "theirs");
    operator.stop().await;
}

#[tokio::test]
async fn an_operand_that_is_suspended_is_left_as_it_is_until_it_is_resumed() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    scene.patch::<SpireAgent>(json!({ "spec": { "suspend": true } })).await.unwrap();
    scene.says::<SpireAgent>("Ready", "Suspended").await;
    let before = workloads(&scene).await;
    scene.patch::<SpireAgent>(json!({ "spec": { "logLevel": "debug" } })).await.unwrap();
    let words = scene.says::<SpireAgent>("Reconciling", "Suspended").await;
    assert!(words.contains("wait to be applied"), "{words}");
    assert_eq!(rolled(&before, &workloads(&scene).await), [""; 0]);
    scene.patch::<SpireAgent>(json!({ "spec": { "suspend": false } })).await.unwrap();
    scene.ready::<SpireAgent>().await;
    assert_eq!(rolled(&before, &workloads(&scene).await), ["agent"]);

    // The same for the whole: what the parent would hand down waits.
    scene
        .patch::<Ztwim>(json!({ "spec": { "suspend": true, "jwtIssuer": "https://later.example.org" } }))
        .await
        .unwrap();
    scene.says::<Ztwim>("Reconciling", "Suspended").await;
    assert_eq!(scene.all::<SpireServer>().get("cluster").await.unwrap().spec.jwt_issuer, None);
    scene.patch::<Ztwim>(json!({ "spec": { "suspend": false } })).await.unwrap();
    scene.until("told", |it: &SpireServer| it.spec.jwt_issuer.is_some()).await;
    operator.stop().await;
}

#[tokio::test]
async fn an_operand_that_is_deleted_behind_the_parents_back_goes_in_order_and_comes_again() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    let claim = scene.of::<PersistentVolumeClaim>().get(render::volume::DATA_CLAIM).await.unwrap();
    again::<SpireServer>(&scene).await;
    again::<SpireAgent>(&scene).await;
    again::<SpiffeCSIDriver>(&scene).await;
    again::<SpireOIDCDiscoveryProvider>(&scene).await;
    let kept = scene.of::<PersistentVolumeClaim>().get(render::volume::DATA_CLAIM).await.unwrap();
    assert_eq!(kept.uid(), claim.uid(), "the volume of the server stays");
    operator.stop().await;
    let world = scene.hands.world.lock().unwrap();
    assert_eq!(world.data.as_deref(), Some("example.org"));
    assert_eq!(world.backups.len(), 1);
}

async fn again<K: opcore::operator::Reconciled>(scene: &Scene) {
    let before = scene.all::<K>().get("cluster").await.unwrap().meta().uid.clone();
    scene.delete::<K>(PropagationPolicy::Background).await;
    scene.until("there again", |it: &K| it.meta().uid != before && is_ready(it)).await;
    scene.ready::<Ztwim>().await;
}
