//! How long it takes to take a stack down beyond what its pods take, and what it costs to keep one:
//! `cargo bench -p lifecycle-operator`.
//!
//! On a control plane without a node, where hands do what a node would: each pod takes a while to end, and the rest is
//! the operator and Kubernetes.
#![allow(unreachable_pub, reason = "a program has no outside; what it shares with a test has")]

#[path = "../../tests/cluster/hands.rs"]
#[allow(clippy::unwrap_used, clippy::panic, dead_code, reason = "as in the tests that it belongs to")]
mod hands;
#[path = "../../tests/cluster/operator.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "as in the tests that it belongs to")]
mod operator;
mod program;
#[path = "../../tests/cluster/stage.rs"]
#[allow(clippy::unwrap_used, clippy::panic, dead_code, reason = "as in the tests that it belongs to")]
mod stage;

use std::time::{Duration, Instant};

use kube::api::PropagationPolicy;
use lifecycle_operator::api::v1alpha1::{SpireServer, ZeroTrustWorkloadIdentityManager as Ztwim};
use sandbox::results;
use serde_json::json;
use stage::Scene;

/// What is promised.
const OVERHEAD: Duration = Duration::from_secs(1);
const IDLE_MIB: f64 = 20.0;
/// So long each pod takes to end.
const POD: Duration = Duration::from_secs(2);
/// So often someone asks for a look at a stack that is ready.
const LOOKS: usize = 20;

/// The one that the operators choose: memory is measured here.
#[global_allocator]
static ALLOCATOR: opcore::Allocator = opcore::Allocator;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    opcore::client::install_crypto_provider();
    let scene = Scene::new().await;
    let idle = idle(&scene).await?;
    println!("memory without a stack          {idle:>8.1} MiB  (promised: {IDLE_MIB} MiB)");

    let operator = scene.operator();
    let began = Instant::now();
    scene.stack("example.org").await;
    let start = began.elapsed();
    println!("a stack is ready after          {:>8.1} s", start.as_secs_f64());
    looks(&scene).await?;
    scene.proxy.take();
    looks(&scene).await?;
    let at_rest = writes(&scene);
    operator.stop().await;
    let operator = scene.operator();
    looks(&scene).await?;
    let after_a_restart = writes(&scene);
    println!("writes at rest                  {at_rest:>8}      (promised: 0)");
    println!("writes after a restart          {after_a_restart:>8}      (promised: 0)");

    lock(&scene).slow = POD;
    let began = Instant::now();
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    scene.all_gone().await;
    let (whole, pods) = (began.elapsed(), lock(&scene).slept);
    let overhead = whole.saturating_sub(pods);
    println!("a stack is gone after           {:>8.1} s", whole.as_secs_f64());
    println!(
        "  of which its pods do not take {:>8.2} s    (promised: {} s)",
        overhead.as_secs_f64(),
        OVERHEAD.as_secs_f64()
    );
    operator.stop().await;
    let all = json!({
        "idleMiB": idle, "startSeconds": start.as_secs_f64(), "writesAtRest": at_rest,
        "writesAfterRestart": after_a_restart, "teardownSeconds": whole.as_secs_f64(),
        "teardownOverheadSeconds": overhead.as_secs_f64(),
    });
    results::write("stack", &all)?;
    anyhow::ensure!(idle < IDLE_MIB, "it takes more memory than promised");
    anyhow::ensure!(at_rest == 0, "a stack at rest was written to {at_rest} times");
    anyhow::ensure!(after_a_restart == 0, "a restart wrote {after_a_restart} times");
    anyhow::ensure!(overhead < OVERHEAD, "a teardown takes longer than promised");
    Ok(())
}

fn lock(scene: &Scene) -> std::sync::MutexGuard<'_, hands::World> {
    scene.hands.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What the program holds in memory while nothing is asked of it.
async fn idle(scene: &Scene) -> anyhow::Result<f64> {
    let program = program::Program::start(scene.kubeconfig(), &scene.namespace).await?;
    // What the start left over is given back.
    tokio::time::sleep(Duration::from_secs(3)).await;
    program.resident()
}

/// Asks for looks at the server and the parent, and waits until the last one is over: nothing happens for a while.
async fn looks(scene: &Scene) -> anyhow::Result<()> {
    for look in 0..LOOKS {
        let annotation = json!({ "metadata": { "annotations": { "opcore.dev/requestedAt": look.to_string() } } });
        scene.patch::<Ztwim>(annotation.clone()).await?;
        scene.patch::<SpireServer>(annotation).await?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    Ok(())
}

fn writes(scene: &Scene) -> usize {
    scene.proxy.take().iter().filter(|passed| passed.writes() && !passed.path.contains("/events")).count()
}
