//! Crashes at the writes of a start, of a teardown, of a migration: what was begun is ended, once.
//!
//! A crash at every write means some hundred starts of the operator, which take minutes: `make e2e` asks for them by
//! `OPCORE_CRASH_AT_EVERY_WRITE`. Otherwise only every third or fourth write is hit.

use std::time::Duration;

use kube::api::PropagationPolicy;
use lifecycle_operator::api::v1alpha1::ZeroTrustWorkloadIdentityManager as Ztwim;
use opcore_testing::proxy::Fate;
use serde_json::json;

use crate::leaving::assert_taken_down_in_order;
use crate::migrating::{assert_migrated, is_migrated};
use crate::stage::Scene;

/// Each crash is followed by a start.
const PATIENCE: Duration = Duration::from_mins(10);

/// At which write of its own an operator crashes.
fn nth(quick: usize) -> usize {
    if std::env::var_os("OPCORE_CRASH_AT_EVERY_WRITE").is_some() { 1 } else { quick }
}

/// Starts a stack and takes it down, with operators that crash at their n-th write.
async fn lives_and_goes(n: usize, cut: Fate) {
    let scene = Scene::new().await.patient(PATIENCE);
    let starts = scene.crashing(n, cut, async { drop(scene.stack("example.org").await) }).await;
    assert!(starts > 20 / n, "only {starts} crashes while it started");
    let ready = scene.hands.journal();
    for component in ["control-plane", "node-agent", "csi", "discovery"] {
        let times = ready.iter().filter(|line| **line == format!("{component} ready")).count();
        assert_eq!(times, 1, "{component} is started once: {ready:#?}");
    }
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    let goes = scene.crashing(n, cut, scene.all_gone()).await;
    assert!(goes > 20 / n, "only {goes} crashes while it went");
    assert_taken_down_in_order(&scene).await;
    let backups = scene.hands.journal().iter().filter(|line| *line == "BackedUp").count();
    assert_eq!(backups, 1, "{:#?}", scene.hands.journal());
}

#[tokio::test]
async fn crashes_after_writes_of_a_start_and_of_a_teardown_end_in_the_same_state() {
    lives_and_goes(nth(3), Fate::LoseAnswer).await;
}

#[tokio::test]
async fn crashes_before_writes_of_a_start_and_of_a_teardown_end_in_the_same_state() {
    // Before the first write of all nothing would ever get through.
    lives_and_goes(nth(4).max(2), Fate::LoseRequest).await;
}

#[tokio::test]
async fn crashes_after_writes_of_a_migration_end_in_the_new_trust_domain_with_a_backup_of_the_old() {
    let scene = Scene::new().await.patient(PATIENCE);
    let operator = scene.operator();
    scene.stack("old.org").await;
    operator.stop().await;
    let change = json!({ "spec": { "trustDomain": "new.org", "allowTrustDomainMigration": true } });
    scene.patch::<Ztwim>(change).await.unwrap();
    let crashes =
        scene.crashing(nth(3), Fate::LoseAnswer, async { drop(scene.until("migrated", is_migrated).await) }).await;
    assert!(crashes > 20 / nth(3), "only {crashes} crashes");
    assert_migrated(&scene).await;
}
