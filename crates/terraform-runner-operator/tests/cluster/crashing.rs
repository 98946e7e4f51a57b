//! Restarts and crashes of the operator: nothing is done twice, and nothing is left undone.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::DeleteParams;
use opcore_testing::crashing::CUTS;
use serde_json::json;
use terraform_runner_operator::store::{self, Store};

use crate::stage::{Stage, gone};

#[tokio::test]
async fn what_is_ready_needs_no_write_and_no_job_also_after_a_restart() {
    let stage = Stage::new("restart").await;
    let running = stage.start();
    for name in ["a", "b", "c"] {
        stage.write(name, json!({ "variables": { "size": 3 } })).await;
    }
    let mut before = Vec::new();
    for name in ["a", "b", "c"] {
        before.push(stage.ready(name).await.resource_version());
    }
    running.stop().await;
    let running = stage.start();
    // It has reconciled all of them at least twice: once after the start, once on request.
    for name in ["a", "b", "c"] {
        stage.annotate(name, "opcore.dev/requestedAt", "now").await;
    }
    let reconciles = |text: &str| -> f64 {
        let lines = text
            .lines()
            .filter(|line| line.starts_with("opcore_reconcile_total") || line.starts_with("opcore_reconciles_total"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    running.until("six reconciles", |text| reconciles(text) >= 6.0).await;
    assert_eq!(running.writes(), [""; 0]);
    assert_eq!(stage.names::<Job>().await.len(), 3);
    running.stop().await;
}

#[tokio::test]
async fn a_crash_at_any_write_of_an_apply_a_change_and_a_deletion_ends_in_the_same_state() {
    for cut in CUTS {
        let mut cuts = 0;
        for n in 1.. {
            let stage = Stage::new("crash").await;
            let uid = stage.write("net", json!({ "variables": { "size": 1 } })).await.uid().unwrap();
            let first = stage.crash(n, cut, async { drop(stage.ready("net").await) }).await;
            let running = stage.start();
            let status = stage.ready("net").await.status.unwrap();
            assert_eq!(status.run.unwrap().number, 1, "{cut:?} {n}: a Job is found again and not made twice");
            running.stop().await;

            stage.write("net", json!({ "variables": { "size": 2 } })).await;
            let second = stage.crash(n, cut, async { drop(stage.ready("net").await) }).await;
            let running = stage.start();
            let status = stage.ready("net").await.status.unwrap();
            assert_eq!((status.run.unwrap().number, status.state.unwrap().serial), (2, 2), "{cut:?} {n}");
            let size = |secret: &Secret| secret.data.as_ref().is_some_and(|data| data["size"].0 == b"2");
            crate::stage::eventually(&stage.of::<Secret>(), "net-outputs", "of the second run", size).await;
            let store = Store::new(
                stage.client.clone(),
                &stage.namespace,
                terraform_runner_operator::run::names::Names::of("net", &uid),
            );
            assert_eq!(store::state::read_index(&store).await.unwrap().index.versions.len(), 2);
            running.stop().await;

            stage.workspaces().delete("net", &DeleteParams::default()).await.unwrap();
            let workspaces = stage.workspaces();
            let third = stage.crash(n, cut, gone(&workspaces, "net", &uid)).await;
            let running = stage.start();
            gone(&workspaces, "net", &uid).await;
            let left = async {
                while !(stage.names::<Secret>().await.is_empty() && stage.names::<Job>().await.is_empty()) {
                    tokio::task::yield_now().await;
                }
            };
            let left = tokio::time::timeout(crate::stage::PATIENCE, left).await;
            assert!(left.is_ok(), "{cut:?} {n}: {:?} {:?}", stage.names::<Secret>().await, stage.names::<Job>().await);
            running.stop().await;
            if !(first || second || third) {
                break;
            }
            cuts += [first, second, third].into_iter().filter(|cut| *cut).count();
        }
        assert!(cuts > 15, "only {cuts} writes were cut");
    }
}
