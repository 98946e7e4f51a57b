//! Taking it down: in order, whatever is deleted first and how; nothing is lost, and nothing is left.

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, PostParams, PropagationPolicy};
use kube::{Api, ResourceExt};
use lifecycle_operator::api::v1alpha1::{
    SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer, ZeroTrustWorkloadIdentityManager as Ztwim,
};
use lifecycle_operator::render;
use lifecycle_operator::render::volume::DATA_CLAIM;
use opcore::finalizer::{StepPhase, TeardownRecord};
use serde_json::json;

use crate::running::at;
use crate::stage::{Scene, is_ready};

/// What outlives every teardown: the volumes.
const VOLUMES: [&str; 2] = ["PersistentVolumeClaim spire-backups", "PersistentVolumeClaim spire-data-spire-server-0"];

/// That everything ended in the order of the specification, and that only the volumes are left.
pub async fn assert_taken_down_in_order(scene: &Scene) {
    let journal = scene.hands.journal();
    let ended = |component: &str| at(&journal, &format!("{component} ended"));
    let evicted = journal.iter().position(|line| line.starts_with("evicted ")).expect("agents are evicted");
    let backed_up = at(&journal, "BackedUp");
    let order = [
        ended(render::oidc::COMPONENT),
        ended(render::csi::COMPONENT),
        ended(render::agent::COMPONENT),
        evicted,
        ended(render::server::COMPONENT),
        backed_up,
    ];
    assert!(order.is_sorted(), "{journal:#?}");
    assert!(at(&journal, "node-cleanup ready") > ended(render::agent::COMPONENT), "{journal:#?}");
    nothing_is_left_but(scene, &VOLUMES).await;
    let world = scene.hands.world.lock().unwrap();
    assert!(world.agents.is_empty(), "no certificate can be renewed");
    assert_eq!(world.backups.values().next().map(String::as_str), world.data.as_deref());
}

pub async fn nothing_is_left_but(scene: &Scene, wanted: &[&str]) {
    // Dependants go a moment after their owner.
    let what = format!("nothing is left but {wanted:?}");
    scene
        .comes(&what, async || {
            let mut left = scene.left().await;
            left.sort();
            left == wanted
        })
        .await;
}

#[tokio::test]
async fn deleting_the_parent_takes_the_stack_down_in_order() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    scene.all_gone().await;
    assert_taken_down_in_order(&scene).await;
    operator.stop().await;
}

#[tokio::test]
async fn deleting_it_in_the_foreground_keeps_to_the_same_order() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    scene.delete::<Ztwim>(PropagationPolicy::Foreground).await;
    scene.all_gone().await;
    assert_taken_down_in_order(&scene).await;
    operator.stop().await;
}

#[tokio::test]
async fn deleting_all_five_at_once_in_the_order_of_their_start_keeps_to_the_same_order() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    scene.delete::<SpireServer>(PropagationPolicy::Background).await;
    scene.delete::<SpireAgent>(PropagationPolicy::Foreground).await;
    scene.delete::<SpiffeCSIDriver>(PropagationPolicy::Background).await;
    scene.delete::<SpireOIDCDiscoveryProvider>(PropagationPolicy::Foreground).await;
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    scene.all_gone().await;
    assert_taken_down_in_order(&scene).await;
    operator.stop().await;
}

#[tokio::test]
async fn what_is_deleted_with_orphan_leaves_everything_running_for_a_new_parent() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    let server = scene.all::<SpireServer>().get("cluster").await.unwrap();
    scene.delete::<Ztwim>(PropagationPolicy::Orphan).await;
    scene.gone::<Ztwim>().await;
    let released = scene.until("released", |it: &SpireServer| it.owner_references().is_empty()).await;
    assert_eq!(released.uid(), server.uid());
    assert!(!scene.hands.journal().iter().any(|line| line.ends_with("ended")), "{:#?}", scene.hands.journal());
    // A parent without a trust domain takes over what the last one left.
    scene.write::<Ztwim>(json!({})).await.unwrap();
    let parent = scene.ready::<Ztwim>().await;
    assert_eq!(parent.spec.trust_domain.as_deref(), Some("example.org"));
    assert!(!scene.hands.journal().iter().any(|line| line.ends_with("ended")), "{:#?}", scene.hands.journal());

    // The same for one operand: its objects stay.
    scene.delete::<SpireAgent>(PropagationPolicy::Orphan).await;
    scene.until("there again", |it: &SpireAgent| is_ready(it)).await;
    assert!(!scene.hands.journal().iter().any(|line| line.ends_with("ended")), "{:#?}", scene.hands.journal());
    operator.stop().await;
}

/// A pod of somebody that uses the driver.
async fn consumer(scene: &Scene) -> Api<Pod> {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "default");
    let pod = json!({
        "metadata": { "name": "shop" },
        "spec": {
            "nodeName": crate::hands::NODE,
            "containers": [{ "name": "shop", "image": "example.com/shop:v1" }],
            "volumes": [{ "name": "identity", "csi": { "driver": "csi.spiffe.io", "readOnly": true } }],
        },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    pods
}

#[tokio::test]
async fn pods_that_still_use_the_driver_are_named_and_the_teardown_goes_on_once_they_end() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    let pods = consumer(&scene).await;
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    let words = scene.says::<SpiffeCSIDriver>("DeletionBlocked", "InUse").await;
    assert!(words.contains("Pod default/shop"), "{words}");
    let words = scene.says::<Ztwim>("DeletionBlocked", "InUse").await;
    assert!(words.contains("Pod default/shop"), "{words}");
    scene
        .comes("an Event names the pod", async || {
            scene.events().await.iter().any(|it| it.starts_with("SpiffeCSIDriver") && it.contains("Pod default/shop"))
        })
        .await;
    assert!(!scene.hands.journal().contains(&"csi ended".to_owned()), "the driver waits for the pod");
    pods.delete("shop", &DeleteParams::default()).await.unwrap();
    scene.all_gone().await;
    let journal = scene.hands.journal();
    assert!(at(&journal, "shop ended") < at(&journal, "csi ended"), "{journal:#?}");
    assert_taken_down_in_order(&scene).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_volume_is_deleted_only_after_a_verified_backup_of_it() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    let parent = json!({ "trustDomain": "example.org", "teardown": { "operandTimeout": "1s" } });
    scene.stack_with(parent, json!({ "persistence": { "deletionPolicy": "Delete" } })).await;
    scene.hands.world.lock().unwrap().fails = Some("The disk is full.".to_owned());
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    let failed = |server: &SpireServer| {
        let step = record(server.status.as_ref().and_then(|it| it.teardown.as_ref()), "backup");
        step.is_some_and(|(_, words, overdue)| words.contains("The disk is full.") && overdue)
    };
    let server = scene.until("failing to back up", failed).await;
    let (_, words, _) = record(server.status.unwrap().teardown.as_ref(), "backup").unwrap();
    let job = words.split("delete Job ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let claims = scene.of::<PersistentVolumeClaim>();
    assert!(claims.get(DATA_CLAIM).await.unwrap().metadata.deletion_timestamp.is_none());

    // Mended, as the words say.
    scene.hands.world.lock().unwrap().fails = None;
    scene.of::<k8s_openapi::api::batch::v1::Job>().delete(&job, &DeleteParams::background()).await.unwrap();
    scene.all_gone().await;
    nothing_is_left_but(&scene, &VOLUMES[..1]).await;
    at(&scene.hands.journal(), "BackedUp");
    operator.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_kept_is_used_again_by_the_next_server() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    let claim = scene.of::<PersistentVolumeClaim>().get(DATA_CLAIM).await.unwrap();
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    scene.all_gone().await;
    // Not by one of another trust domain: SPIRE would not start.
    scene.write::<Ztwim>(json!({ "trustDomain": "other.org" })).await.unwrap();
    scene.write::<SpireServer>(json!({})).await.unwrap();
    let words = scene.says::<SpireServer>("Stalled", "VolumeOfAnotherTrustDomain").await;
    assert!(words.contains("example.org") && words.contains("other.org"), "{words}");
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    scene.all_gone().await;
    scene.stack("example.org").await;
    assert_eq!(scene.of::<PersistentVolumeClaim>().get(DATA_CLAIM).await.unwrap().uid(), claim.uid());
    operator.stop().await;
}

/// A step of a teardown: how far it is, what it says, and whether its time is up.
fn record(teardown: Option<&TeardownRecord>, step: &str) -> Option<(StepPhase, String, bool)> {
    let step = teardown?.step(step)?;
    Some((step.phase, step.message.clone().unwrap_or_default(), step.overdue))
}

fn of_driver(driver: &SpiffeCSIDriver) -> Option<(StepPhase, String, bool)> {
    record(driver.status.as_ref()?.teardown.as_ref(), "volumes")
}

/// A stack whose driver cannot go, because a pod uses it, and whose time is short.
async fn stuck(scene: &Scene, policy: &str) -> Api<Pod> {
    let teardown = json!({ "operandTimeout": "1s", "timeout": "1s", "onExpiry": policy });
    // Without a provider the driver goes first: no other step comes before the one that is stuck.
    let operands = ["SpireServer", "SpireAgent", "SpiffeCSIDriver"];
    let parent = json!({ "trustDomain": "example.org", "operands": operands, "teardown": teardown });
    scene.write::<Ztwim>(parent).await.unwrap();
    scene.ready::<Ztwim>().await;
    let pods = consumer(scene).await;
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    pods
}

#[tokio::test]
async fn when_the_time_is_up_wait_keeps_waiting_and_says_so() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    let pods = stuck(&scene, "Wait").await;
    let overdue = |driver: &SpiffeCSIDriver| of_driver(driver).is_some_and(|(.., overdue)| overdue);
    scene.until("overdue", overdue).await;
    let of_stack = |parent: &Ztwim| {
        let step = record(parent.status.as_ref().unwrap().teardown.as_ref(), "csi");
        step.is_some_and(|(phase, words, overdue)| {
            overdue && phase == StepPhase::Running && words.contains("Pod default/shop")
        })
    };
    scene.until("overdue, too", of_stack).await;
    assert!(scene.all::<SpireServer>().get("cluster").await.unwrap().metadata.deletion_timestamp.is_none());
    pods.delete("shop", &DeleteParams::default()).await.unwrap();
    scene.all_gone().await;
    let journal = scene.hands.journal();
    let ended = ["shop", render::csi::COMPONENT, render::agent::COMPONENT, render::server::COMPONENT]
        .map(|pod| at(&journal, &format!("{pod} ended")));
    assert!(ended.is_sorted(), "{journal:#?}");
    operator.stop().await;
}

#[tokio::test]
async fn when_the_time_is_up_force_gives_the_step_up_and_records_what_leaked() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    let pods = stuck(&scene, "Force").await;
    scene.all_gone().await;
    scene
        .comes("Events record what leaked", async || {
            let events = scene.events().await;
            let leaked = |kind: &str, step: &str| {
                let start = format!("{kind} TeardownLeaked {step}: given up when its deadline passed");
                events.iter().any(|event| event.starts_with(&start))
            };
            leaked("SpiffeCSIDriver", "volumes")
        })
        .await;
    let events = scene.events().await;
    assert!(events.iter().any(|event| event.contains("TeardownLeaked") && event.contains("Pod default/shop")));
    pods.delete("shop", &DeleteParams::default().grace_period(0)).await.unwrap();
    operator.stop().await;
}

#[tokio::test]
async fn when_the_time_is_up_manual_stops_and_says_which_command_goes_on() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    let pods = stuck(&scene, "Manual").await;
    let words = scene.says::<SpiffeCSIDriver>("Ready", "TeardownStopped").await;
    assert!(words.contains("opcore.dev/force-teardown") && words.contains("Pod default/shop"), "{words}");
    scene.says::<Ztwim>("Ready", "TeardownStopped").await;
    // As they say.
    scene.kubectl(&["annotate", "spiffecsidriver", "cluster", "opcore.dev/force-teardown=all"]).await;
    scene.kubectl(&["annotate", "ztwim", "cluster", "opcore.dev/force-teardown=all"]).await;
    scene.gone::<SpiffeCSIDriver>().await;
    scene.gone::<Ztwim>().await;
    pods.delete("shop", &DeleteParams::default().grace_period(0)).await.unwrap();
    // What belonged to the parent goes with it, each in its own time.
    scene.gone::<SpireAgent>().await;
    scene.gone::<SpireServer>().await;
    operator.stop().await;
}

#[tokio::test]
async fn a_namespace_that_was_deleted_under_the_stack_does_not_keep_it_from_going() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    let namespaces = scene.all::<Namespace>();
    namespaces.delete(&scene.namespace, &DeleteParams::background()).await.unwrap();
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    scene.all_gone().await;
    operator.stop().await;
}
