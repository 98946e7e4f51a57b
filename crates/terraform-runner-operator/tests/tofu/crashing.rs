//! Any process may be killed at any time: nothing that was created is lost, and the next run converges.

use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use rustix::process::{Signal, kill_process};
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{Action, Binary, Outcome};
use terraform_runner_operator::run::bundle::{BackendBundle, Bundle};
use terraform_runner_operator::run::order::Order;
use terraform_runner_operator::store::lock;
use terraform_runner_operator::store::state as states;

use crate::{EXPECTED, module, simple, workspace, workspace_of};
use opcore_testing::PATIENCE;

with_both_engines!(
    terraform_killed_in_mid_apply_is_reported_and_the_next_run_converges,
    a_state_that_cannot_be_saved_is_rescued,
    a_state_that_its_own_backend_did_not_take_is_pushed_there,
);

async fn terraform_killed_in_mid_apply_is_reported_and_the_next_run_converges(engine: Binary) {
    let workspace = workspace_of(engine, "killed").await;
    let bundle = simple(&workspace, json!({ "sleep": "10m" }));
    let pod = workspace.pod(1);
    let serve = pod.serve().await;
    let run = pod.run(&pod.order(Action::Apply, &bundle), &bundle);
    run.until_says("terraform_data.sleep[0]: Creating").await;
    kill_process(run.child().unwrap(), Signal::KILL).unwrap();
    let (code, printed) = run.ended().await;
    assert_eq!(code, Some(1), "{printed}");
    let report = workspace.report().await;
    assert_eq!(report.outcome, Outcome::Failed);
    assert!(report.diagnostics[0].summary.contains("signal: 9"), "{:?}", report.diagnostics);
    assert!(report.unrecorded.contains(&"terraform_data.sleep[0]".to_owned()), "{:?}", report.unrecorded);
    serve.stopped().await;
    let holder = lock::read(&workspace.store()).await.unwrap().unwrap();
    assert_eq!(holder.pod, "pod-1", "it was not given back, and the operator sees whose it is");

    // A restarted container of the same pod may continue; for another pod, the operator removes the lock.
    let quick = simple(&workspace, json!({}));
    let again = workspace.pod(1);
    let (_, report) = again.run_to_end(&again.order(Action::Apply, &quick), &quick).await;
    assert_eq!(report.outcome, Outcome::Applied);
}

#[tokio::test]
async fn a_store_killed_in_mid_apply_and_started_again_is_not_noticed() {
    let workspace = workspace("restarted").await;
    let bundle = simple(&workspace, json!({ "sleep": "2s" }));
    let pod = workspace.pod(1);
    let serve = pod.serve().await;
    let run = pod.run(&pod.order(Action::Apply, &bundle), &bundle);
    run.until_says("terraform_data.sleep[0]: Creating").await;
    serve.killed().await;
    let _serve = pod.serve().await;
    let (code, printed) = run.ended().await;
    assert_eq!(code, Some(0), "{printed}");
    let report = workspace.report().await;
    assert_eq!((report.outcome, report.state.unwrap().resources), (Outcome::Applied, 3));
    assert_eq!(lock::read(&workspace.store()).await.unwrap(), None);
}

#[tokio::test]
async fn a_pod_killed_in_mid_apply_leaves_a_lock_and_the_next_run_converges() {
    let workspace = workspace("pods").await;
    let bundle = simple(&workspace, json!({ "sleep": "10m" }));
    let pod = workspace.pod(1);
    let serve = pod.serve().await;
    let run = pod.run(&pod.order(Action::Apply, &bundle), &bundle);
    run.until_says("terraform_data.sleep[0]: Creating").await;
    let noted = async {
        while !workspace.noted().await.contains("terraform_data.sleep[0]") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, noted).await.expect("what it begins to make is noted");
    run.container_killed().await;
    serve.killed().await;
    assert!(workspace.noted().await.contains("terraform_data.sleep[0]"), "and outlives its pod");
    let quick = simple(&workspace, json!({}));
    let next = workspace.pod(2);
    let (_, report) = next.run_to_end(&next.order(Action::Apply, &quick), &quick).await;
    assert_eq!(report.outcome, Outcome::Locked, "nobody takes a lock from a pod that may still be there");
    // The operator detects that the pod is gone.
    lock::release(&workspace.store(), "pod-1", lock::read(&workspace.store()).await.unwrap().unwrap().id().unwrap())
        .await
        .unwrap()
        .unwrap();
    let next = workspace.pod(3);
    let (_, report) = next.run_to_end(&next.order(Action::Apply, &quick), &quick).await;
    assert_eq!((report.outcome, report.state.unwrap().resources), (Outcome::Applied, 2));
}

async fn a_state_that_cannot_be_saved_is_rescued(engine: Binary) {
    let workspace = workspace_of(engine, "rescue").await;
    let bundle = simple(&workspace, json!({ "sleep": "2s" }));
    let pod = workspace.pod(1);
    let serve = pod.serve().await;
    let run = pod.run(&pod.order(Action::Apply, &bundle), &bundle);
    run.until_says("terraform_data.sleep[0]: Creating").await;
    serve.killed().await;
    // It retries for almost a minute.
    run.until_says("Failed to persist state").await;
    let serve = pod.serve().await;
    let (code, printed) = run.ended().await;
    assert_eq!(code, Some(1), "{printed}");
    let report = workspace.report().await;
    assert_eq!((report.outcome, report.state.unwrap().resources), (Outcome::Failed, 3), "{:?}", report.diagnostics);
    assert!(report.diagnostics.iter().any(|said| said.summary == "The state was rescued"), "{:?}", report.diagnostics);
    assert_eq!(report.unrecorded, [""; 0]);
    serve.stopped().await;
    let next = workspace.pod(2);
    let (_, report) = next.run_to_end(&next.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Unchanged, "nothing was lost: {:?}", report.diagnostics);
    let longer = simple(&workspace, json!({ "length": 20 }));
    let next = workspace.pod(3);
    let (_, report) = next.run_to_end(&next.order(Action::Apply, &longer), &longer).await;
    assert_eq!(report.outcome, Outcome::Applied, "it can be changed as any other: {:?}", report.diagnostics);
}

#[tokio::test]
async fn no_state_is_not_taken_for_an_empty_state() {
    let workspace = workspace("halved").await;
    let bundle = simple(&workspace, json!({}));
    let refused = async |number| {
        let pod = workspace.pod(number);
        let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &bundle), &bundle).await;
        assert_eq!((report.outcome, report.empty), (Outcome::Failed, false));
        assert_eq!(report.diagnostics[0].summary, "It could not be determined whether resources are left");
    };
    refused(1).await;
    // The pod was killed after it had written the state, and before it recorded the place.
    for (number, name) in [(2, workspace.names.state_chunk(0, 0)), (3, workspace.names.state())] {
        let secret = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        workspace.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
        refused(number).await;
    }
}

async fn a_state_that_its_own_backend_did_not_take_is_pushed_there(engine: Binary) {
    let workspace = workspace_of(engine, "pushed").await;
    // Another store, which Terraform accesses like any backend of this type.
    let elsewhere = workspace_of(engine, "elsewhere").await;
    let backend = elsewhere.pod(1);
    let served = backend.serve().await;
    let address = format!("http://{}/state", elsewhere.address);
    let mut bundle = simple(&workspace, json!({ "sleep": "2s" }));
    let settings = json!({ "address": address, "lock_address": address, "unlock_address": address, "retry_max": 1 });
    bundle.backend = Some(BackendBundle { kind: "http".to_owned(), config: serde_json::from_value(settings).unwrap() });
    // Nothing exists yet, but a state is expected.
    let pod = workspace.pod(9);
    let expecting = Order { state: EXPECTED, ..pod.order(Action::Apply, &bundle) };
    let (_, report) = pod.run_to_end(&expecting, &bundle).await;
    assert_eq!((report.outcome, report.diagnostics[0].summary.as_str()), (Outcome::Failed, "The state is missing"));

    let pod = workspace.pod(1);
    let serve = pod.serve().await;
    let run = pod.run(&pod.order(Action::Apply, &bundle), &bundle);
    run.until_says("terraform_data.sleep[0]: Creating").await;
    served.killed().await;
    run.until_says("Failed to persist state").await;
    let served = backend.serve().await;
    let (code, printed) = run.ended().await;
    assert_eq!(code, Some(1), "{printed}");
    let report = workspace.report().await;
    assert!(report.diagnostics.iter().any(|said| said.summary == "The state was rescued"), "{:?}", report.diagnostics);
    assert_eq!(states::summary(&elsewhere.store()).await.unwrap().unwrap().resources, 3);
    serve.stopped().await;
    let next = workspace.pod(2);
    let (_, report) = next.run_to_end(&next.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Unchanged, "nothing was lost: {:?}", report.diagnostics);

    // The backend is not available until the pod is gone: the state that is stored in the cluster is pushed by the next
    // run.
    let more = simple(&workspace, json!({ "sleep": "3s", "length": 20 }));
    let more = Bundle { backend: bundle.backend.clone(), ..more };
    let pod = workspace.pod(3);
    let serve = pod.serve().await;
    let run = pod.run(&pod.order(Action::Apply, &more), &more);
    run.until_says("terraform_data.sleep[0]: Creating").await;
    served.killed().await;
    run.until_says("Failed to persist state").await;
    run.signal(Signal::TERM);
    let (_, printed) = run.ended().await;
    assert!(printed.contains("The next run pushes it"), "{printed}");
    serve.stopped().await;
    let served = backend.serve().await;
    let next = workspace.pod(4);
    let (printed, report) = next.run_to_end(&next.order(Action::Apply, &more), &more).await;
    assert_eq!(report.outcome, Outcome::Unchanged, "nothing is made once more: {printed}");
    served.stopped().await;
}

#[tokio::test]
async fn a_state_of_hundreds_of_large_resources_survives() {
    let workspace = workspace("large").await;
    let text = r#"
resource "terraform_data" "large" {
  count = 200
  input = join("", [for part in range(1000) : sha256("${count.index}-${part}")])
}
"#;
    let bundle = module(text, [].into());
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied, "{:?}", report.diagnostics);
    let state = report.state.unwrap();
    assert!(state.resources == 200 && state.bytes > 20_000_000, "{state:?}");
    let observed = states::read_index(&workspace.store()).await.unwrap();
    assert!(observed.index.current().unwrap().sums.chunks.len() > 5);
    let pod = workspace.pod(2);
    let (_, report) = pod.run_to_end(&pod.order(Action::Check, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.drift.count), (Outcome::Checked, 0));
}
