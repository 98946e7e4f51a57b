//! Killed at any time: at each stage of a run, and at each write of its store. What was recorded is kept, and the next
//! run converges.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use opcore_testing::crashing::CUTS;
use opcore_testing::proxy::{Fate, Proxy};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{Action, Outcome};
use terraform_runner_operator::run::bundle::Bundle;
use terraform_runner_operator::store::{lock, state};

use crate::pod::Workspace;
use crate::{simple, workspace};

/// The process to kill.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    /// Terraform: its runner reports it.
    Terraform,
    /// The runner, and with it its container.
    Runner,
    /// The store, which the kubelet restarts.
    Store,
    /// Everything at once.
    Pod,
}

/// When to kill it.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// The runner prints this.
    Says(&'static str),
    /// The store sends its n-th write, which is cut off.
    Write(usize, Fate),
}

#[tokio::test]
async fn terraform_may_be_killed_at_any_stage() {
    at_any_stage(Victim::Terraform).await;
}

#[tokio::test]
async fn the_runner_may_be_killed_at_any_stage() {
    at_any_stage(Victim::Runner).await;
}

#[tokio::test]
async fn the_store_may_be_killed_at_any_stage() {
    at_any_stage(Victim::Store).await;
}

#[tokio::test]
async fn the_pod_may_be_killed_at_any_stage() {
    at_any_stage(Victim::Pod).await;
}

#[tokio::test]
async fn the_store_may_be_killed_at_any_of_its_writes() {
    at_any_write(Victim::Store).await;
}

#[tokio::test]
async fn the_pod_may_be_killed_at_any_write_of_its_store() {
    at_any_write(Victim::Pod).await;
}

async fn at_any_stage(victim: Victim) {
    // When each step starts, when a resource is created, and when everything is.
    for words in ["── tofu init", "── tofu plan", "── tofu apply", "local_file.value: Creating", "Apply complete!"]
    {
        assert!(killed(victim, Moment::Says(words)).await);
    }
}

async fn at_any_write(victim: Victim) {
    for cut in CUTS {
        let mut writes = 0;
        while killed(victim, Moment::Write(writes + 1, cut)).await {
            writes += 1;
        }
        assert!(writes >= 8, "locks, states and the report are more than {writes} writes");
    }
}

/// Runs an apply in which `victim` is killed at this time, and then another one. Returns whether there was such a time.
async fn killed(victim: Victim, moment: Moment) -> bool {
    let what = format!("{victim:?} at {moment:?}");
    let workspace = workspace("killed").await;
    let bundle = simple(&workspace, json!({}));
    let pod = workspace.pod(1);
    let proxy = Proxy::start(workspace.client.clone()).await.unwrap();
    let observed = Arc::new(AtomicUsize::new(0));
    let serve = match moment {
        Moment::Says(_) => pod.serve().await,
        Moment::Write(n, cut) => {
            let observed = observed.clone();
            proxy.rule(move |passed| match observed.fetch_add(usize::from(passed.writes()), Ordering::SeqCst) + 1 {
                now if now < n => Fate::Pass,
                now if now == n && passed.writes() => cut,
                now if now == n => Fate::Pass,
                // The process counts as dead: no further request gets out.
                _ => Fate::LoseRequest,
            });
            pod.serve_through(&proxy).await
        }
    };
    let mut run = pod.run(&pod.order(Action::Apply, &bundle), &bundle);
    match moment {
        Moment::Says(words) => run.until_says(words).await,
        Moment::Write(n, _) => {
            let passed =
                |passed: &[_]| passed.iter().filter(|one: &&opcore_testing::proxy::Passed| one.writes()).count();
            tokio::select! {
                () = proxy.until("the write that is cut", |all| passed(all) >= n) => {}
                () = run.over() => {}
            }
            if observed.load(Ordering::SeqCst) < n {
                serve.stopped().await;
                return false;
            }
        }
    }
    match victim {
        Victim::Terraform => {
            // It may just have ended.
            let _ = run.child().map(|terraform| kill_process(terraform, Signal::KILL));
            run.ended().await;
            serve.stopped().await;
        }
        Victim::Runner => {
            run.container_killed().await;
            serve.stopped().await;
        }
        Victim::Store => {
            serve.killed().await;
            let serve = pod.serve().await;
            let (code, printed) = run.ended().await;
            assert_eq!(code, Some(0), "{what}: the run goes on as if nothing had happened:\n{printed}");
            assert_eq!(workspace.report().await.outcome, Outcome::Applied, "{what}");
            assert_eq!(lock::read(&workspace.store()).await.unwrap(), None, "{what}: it is given back");
            serve.stopped().await;
        }
        Victim::Pod => {
            run.container_killed().await;
            serve.killed().await;
        }
    }
    converges(&workspace, &bundle, &what).await;
    true
}

/// Once the pod is gone, another one creates the requested resources, and keeps what was recorded.
async fn converges(workspace: &Workspace, bundle: &Bundle, what: &str) {
    // As the operator does when the pod is gone and its lock has expired.
    let _ = workspace.api::<Lease>().delete(&workspace.names.lease(), &DeleteParams::default()).await;
    let before = value(workspace).await;
    let pod = workspace.pod(2);
    let (printed, report) = pod.run_to_end(&pod.order(Action::Apply, bundle), bundle).await;
    assert!(matches!(report.outcome, Outcome::Applied | Outcome::Unchanged), "{what}: {printed}");
    assert_eq!(report.state.unwrap().resources, 2, "{what}");
    let after = value(workspace).await;
    assert!(before.is_none() || before == after, "{what}: {before:?} was recorded, and became {after:?}");
    assert_eq!(Some(workspace.outputs().await["random_value"].text()), after, "{what}");
    assert_eq!(lock::read(&workspace.store()).await.unwrap(), None, "{what}");
}

/// The random value in the state, if there is one.
async fn value(workspace: &Workspace) -> Option<String> {
    let state = state::current(&workspace.store()).await.unwrap()?;
    let state: Value = serde_json::from_slice(&state).unwrap();
    let made = state["resources"].as_array()?.iter().find(|resource| resource["type"] == "random_string")?;
    made["instances"][0]["attributes"]["result"].as_str().map(str::to_owned)
}
