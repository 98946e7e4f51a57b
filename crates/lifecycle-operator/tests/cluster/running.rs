//! A stack comes up in order, and stays.

use lifecycle_operator::api::v1alpha1::{SpireServer, ZeroTrustWorkloadIdentityManager as Ztwim};
use lifecycle_operator::render;

use crate::stage::Scene;

/// Where something stands in the journal.
pub fn at(journal: &[String], entry: &str) -> usize {
    journal.iter().position(|line| line == entry).unwrap_or_else(|| panic!("{entry:?} is not in {journal:#?}"))
}

#[tokio::test]
async fn a_stack_comes_up_in_order_from_a_trust_domain_alone() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    let journal = scene.hands.journal();
    let order = [render::server::COMPONENT, render::agent::COMPONENT, render::csi::COMPONENT, render::oidc::COMPONENT];
    let places: Vec<_> = order.iter().map(|component| at(&journal, &format!("{component} ready"))).collect();
    assert!(places.is_sorted(), "{journal:#?}");
    let server = scene.all::<SpireServer>().get("cluster").await.unwrap();
    assert_eq!(server.spec.trust_domain.as_deref(), Some("example.org"), "an empty operand is filled in by its parent");
    let parent = scene.all::<Ztwim>().get("cluster").await.unwrap();
    let reference = &server.metadata.owner_references.unwrap()[0];
    assert_eq!(Some(&reference.uid), parent.metadata.uid.as_ref());
    assert_eq!((reference.controller, reference.block_owner_deletion), (Some(true), Some(true)));
    let kinds: Vec<_> =
        parent.status.unwrap().operands.into_iter().map(|operand| (operand.kind.as_str(), operand.ready)).collect();
    assert_eq!(kinds.len(), 4);
    assert!(kinds.iter().all(|(_, ready)| ready == "true"), "{kinds:?}");
    operator.stop().await;
}
