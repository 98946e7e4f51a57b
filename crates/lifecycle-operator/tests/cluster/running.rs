//! A stack comes up in order, and stays as its specs ask.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use lifecycle_operator::api::v1alpha1::{SpireAgent, SpireServer, ZeroTrustWorkloadIdentityManager as Ztwim};
use lifecycle_operator::render;
use serde_json::json;

use crate::hands::MISSING_CLASS;
use crate::stage::Scene;

/// Where something stands in the journal.
pub fn at(journal: &[String], entry: &str) -> usize {
    journal.iter().position(|line| line == entry).unwrap_or_else(|| panic!("{entry:?} is not in {journal:#?}"))
}

#[tokio::test]
async fn a_stack_comes_up_in_order_from_a_trust_domain_alone() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.write::<Ztwim>(json!({ "trustDomain": "example.org" })).await.unwrap();
    scene.ready::<Ztwim>().await;
    let journal = scene.hands.journal();
    let order = [render::server::COMPONENT, render::agent::COMPONENT, render::csi::COMPONENT, render::oidc::COMPONENT];
    let places: Vec<_> = order.iter().map(|component| at(&journal, &format!("{component} ready"))).collect();
    assert!(places.is_sorted(), "{journal:#?}");
    let server = scene.all::<SpireServer>().get("cluster").await.unwrap();
    assert_eq!(server.spec.trust_domain.as_deref(), Some("example.org"), "an empty operand is filled in by its parent");
    assert_eq!(server.metadata.finalizers.unwrap(), ["ztwim.io/spire-server-cleanup"]);
    let parent = scene.all::<Ztwim>().get("cluster").await.unwrap();
    assert_eq!(parent.metadata.finalizers.unwrap(), ["ztwim.io/operand-lifecycle"]);
    let reference = &server.metadata.owner_references.unwrap()[0];
    assert_eq!(Some(&reference.uid), parent.metadata.uid.as_ref());
    assert_eq!((reference.controller, reference.block_owner_deletion), (Some(true), Some(true)));
    let operands = parent.status.unwrap().operands;
    let kinds: Vec<_> = operands.iter().map(|operand| (operand.kind.as_str(), operand.ready.as_str())).collect();
    assert_eq!(kinds.len(), 4);
    assert!(kinds.iter().all(|(_, ready)| *ready == "true"), "{kinds:?}");

    // One can be listed by the word that the specification uses, and the parent by its short name.
    let listed = scene.kubectl(&["get", "operands"]).await;
    for kind in ["spireserver", "spireagent", "spiffecsidriver", "spireoidcdiscoveryprovider"] {
        let line = listed.lines().find(|line| line.starts_with(&format!("{kind}.operator.openshift.io/cluster")));
        assert!(line.is_some_and(|line| line.contains("True") && line.contains("Running")), "{listed}");
    }
    let listed = scene.kubectl(&["get", "ztwim"]).await;
    assert!(listed.contains("example.org") && listed.contains("True"), "{listed}");
    operator.stop().await;
}

#[tokio::test]
async fn a_storage_class_that_is_not_there_is_said_and_agents_wait() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.write::<Ztwim>(json!({ "trustDomain": "example.org" })).await.unwrap();
    scene.write::<SpireServer>(json!({ "persistence": { "storageClass": MISSING_CLASS } })).await.unwrap();
    let names_it = |server: &SpireServer| {
        let conditions = server.status.as_ref().map_or(&[][..], |status| &status.conditions);
        opcore::conditions::find(conditions, "Ready").is_some_and(|ready| ready.message.contains(MISSING_CLASS))
    };
    scene.until("complaining about its storage class", names_it).await;
    let words = scene.says::<SpireAgent>("Ready", "WaitingForServer").await;
    assert!(words.contains(MISSING_CLASS), "{words}");
    let claim = scene.of::<PersistentVolumeClaim>().get(render::volume::DATA_CLAIM).await.unwrap();
    assert_eq!(claim.spec.unwrap().storage_class_name.as_deref(), Some(MISSING_CLASS));
    operator.stop().await;
}
