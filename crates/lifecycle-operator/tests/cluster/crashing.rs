//! Crashes at every write of a start, of a teardown, of a migration: what was begun is ended, once.

use kube::api::PropagationPolicy;
use lifecycle_operator::api::v1alpha1::ZeroTrustWorkloadIdentityManager as Ztwim;
use opcore_testing::proxy::Fate;
use serde_json::json;

use crate::leaving::assert_taken_down_in_order;
use crate::migrating::{assert_migrated, is_migrated};
use crate::stage::Scene;

/// Starts a stack and takes it down, with operators that crash at their n-th write.
async fn lives_and_goes(n: usize, cut: Fate) {
    let scene = Scene::new().await;
    let starts = scene.crashing(n, cut, async { drop(scene.stack("example.org").await) }).await;
    assert!(starts > 20, "only {starts} crashes while it started");
    let ready = scene.hands.journal();
    for component in ["control-plane", "node-agent", "csi", "discovery"] {
        let times = ready.iter().filter(|line| **line == format!("{component} ready")).count();
        assert_eq!(times, 1, "{component} is started once: {ready:#?}");
    }
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    let goes = scene.crashing(n, cut, scene.all_gone()).await;
    assert!(goes > 20, "only {goes} crashes while it went");
    assert_taken_down_in_order(&scene).await;
    let backups = scene.hands.journal().iter().filter(|line| *line == "BackedUp").count();
    assert_eq!(backups, 1, "{:#?}", scene.hands.journal());
}

#[tokio::test]
async fn a_crash_after_every_write_of_a_start_and_of_a_teardown_ends_in_the_same_state() {
    lives_and_goes(1, Fate::LoseAnswer).await;
}

#[tokio::test]
async fn a_crash_before_every_other_write_of_a_start_and_of_a_teardown_ends_in_the_same_state() {
    lives_and_goes(2, Fate::LoseRequest).await;
}

#[tokio::test]
async fn a_crash_after_every_write_of_a_migration_ends_in_the_new_trust_domain_with_a_backup_of_the_old() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("old.org").await;
    operator.stop().await;
    let change = json!({ "spec": { "trustDomain": "new.org", "allowTrustDomainMigration": true } });
    scene.patch::<Ztwim>(change).await.unwrap();
    let crashes = scene.crashing(1, Fate::LoseAnswer, async { drop(scene.until("migrated", is_migrated).await) }).await;
    assert!(crashes > 20, "only {crashes} crashes");
    assert_migrated(&scene).await;
}
