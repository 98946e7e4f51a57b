//! The lock: one pod at a time, whatever happens to the pod.

use std::sync::Mutex;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use opcore_testing::proxy::{Fate, Passed, Proxy};
use opcore_testing::wait::eventually;
use rustix::process::Signal;
use serde_json::json;
use terraform_runner_operator::store::{lock, state as states};

use crate::{state, workspace};

#[tokio::test]
async fn a_lock_that_another_pod_holds_is_refused_with_its_holder() {
    let workspace = workspace("locks").await;
    let first = workspace.pod(1).serve().await;
    assert_eq!(workspace.lock("one").await.0, 200);
    assert_eq!(workspace.lock("one").await.0, 200, "its answer was lost, and it asks once more");
    first.killed().await;
    let _second = workspace.pod(2).serve().await;
    let (code, holder) = workspace.lock("two").await;
    assert_eq!((code, holder["ID"].as_str(), holder["Who"].as_str()), (423, Some("one"), Some("pod pod-1")));
    assert_eq!(workspace.unlock("one").await, 423, "nobody unlocks for another");
    assert_eq!(workspace.ask("UNLOCK", "/state", "").await.unwrap().0, 400, "a lock is not broken from in here");
    assert_eq!(workspace.save(&state(1, "l", 1), "one").await.0, 409);
}

#[tokio::test]
async fn a_store_that_restarts_goes_on_with_the_lock_of_its_pod() {
    let workspace = workspace("restarts").await;
    let pod = workspace.pod(1);
    let first = pod.serve().await;
    assert_eq!(workspace.lock("one").await.0, 200);
    first.killed().await;
    let second = pod.serve().await;
    assert_eq!(workspace.save(&state(1, "l", 1), "one").await.0, 204);
    let leases = workspace.api::<Lease>();
    let before = leases.get(&workspace.names.lease()).await.unwrap().spec.unwrap().renew_time;
    eventually(&leases, &workspace.names.lease(), "renewed", |lease| {
        lease.spec.as_ref().is_some_and(|spec| spec.renew_time > before)
    })
    .await;
    assert_eq!(second.stopped().await.0, Some(0));
    let holder = lock::read(&workspace.store()).await.unwrap().unwrap();
    assert_eq!((holder.pod.as_str(), holder.id()), ("pod-1", Some("one")), "Terraform has not given it back");
    let _third = pod.serve().await;
    assert_eq!(workspace.unlock("one").await, 200);
    assert_eq!(lock::read(&workspace.store()).await.unwrap(), None);
}

#[tokio::test]
async fn a_pod_whose_lock_was_taken_away_saves_nothing() {
    let workspace = workspace("taken").await;
    let _serve = workspace.pod(1).serve().await;
    workspace.lock("one").await;
    assert_eq!(workspace.save(&state(1, "l", 1), "one").await.0, 204);
    let cleared = json!({ "spec": { "holderIdentity": null } });
    let leases = workspace.api::<Lease>();
    leases.patch(&workspace.names.lease(), &PatchParams::default(), &Patch::Merge(&cleared)).await.unwrap();
    let (code, words) = workspace.save(&state(2, "l", 1), "one").await;
    assert_eq!((code, words.as_str()), (409, "the lock of the state is no longer held by this pod"));
}

#[tokio::test]
async fn of_two_pods_that_ask_at_once_one_gets_the_lock() {
    let workspace = workspace("races").await;
    for round in 0..10 {
        let store = workspace.store();
        let info = json!({ "ID": "x" });
        let (one, two) = tokio::join!(lock::take(&store, "one", &info), lock::take(&store, "two", &info),);
        let got = [one, two].into_iter().filter(|taken| matches!(taken, Ok(Ok(())))).count();
        assert_eq!(got, 1, "round {round}");
        for pod in ["one", "two"] {
            let _ = lock::release(&store, pod, "x").await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_store_that_is_asked_to_stop_answers_what_is_in_progress() {
    let workspace = workspace("stops").await;
    let proxy = Proxy::start(workspace.client.clone()).await.unwrap();
    let serve = workspace.pod(1).serve_through(&proxy).await;
    workspace.lock("one").await;
    proxy.rule(|passed| if passed.method == "PATCH" { Fate::Hold } else { Fate::Pass });
    let first = state(1, "l", 1);
    let stop = async {
        proxy.until_held(1).await;
        serve.signal(Signal::TERM);
        proxy.release(100);
    };
    let (saved, ()) = tokio::join!(workspace.save(&first, "one"), stop);
    assert_eq!(saved.0, 204);
    assert_eq!(serve.ended().await.0, Some(0));
}

#[tokio::test]
async fn a_save_waits_for_an_api_server_that_is_away() {
    let workspace = workspace("away").await;
    let proxy = Proxy::start(workspace.client.clone()).await.unwrap();
    let _serve = workspace.pod(1).serve_through(&proxy).await;
    workspace.lock("one").await;
    let fates = Mutex::new(vec![Fate::LoseAnswer, Fate::Answer(403), Fate::Answer(503), Fate::LoseRequest]);
    let writes = |passed: &Passed| passed.method == "PATCH" || passed.path.ends_with("-state");
    proxy.rule(
        move |passed| if writes(passed) { fates.lock().unwrap().pop().unwrap_or(Fate::Pass) } else { Fate::Pass },
    );
    assert_eq!(workspace.save(&state(1, "l", 1), "one").await.0, 204);
    assert_eq!(states::summary(&workspace.store()).await.unwrap().unwrap().serial, 1);
}
