//! How long it takes from a resource to its outputs beyond what Terraform takes, and what it costs to keep many:
//! `cargo bench -p terraform-runner-operator`.
//!
//! Times are told beside those of the same Job made by hand, on the same node in the same run; where no node can run, the
//! benchmark says so and measures the rest. It is the released program that is measured, as a process of its own.
#![allow(unreachable_pub, reason = "a program has no outside; what it shares with a test has")]

mod by_hand;
mod crowd;
#[path = "../../tests/support/hands.rs"]
#[allow(clippy::unwrap_used, reason = "as in the tests that it belongs to")]
mod hands;
mod moments;
mod node;
mod program;
mod rest;
mod sample;
mod scene;
#[allow(dead_code, reason = "compiled for itself, and here for the lints")]
mod tofu;

use std::time::Duration;

use crowd::Crowd;
use kube::CustomResourceExt;
use rest::Rest;
use sandbox::{Options, Sandbox, results};
use scene::Scene;
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{SimpleResource, TerraformWorkspace};

/// What is promised.
const SAMPLE: f64 = 4.0;
const OVERHEAD: f64 = 1.0;
const RECONCILE: Duration = Duration::from_secs(1);
/// Sixteen workers look at workspaces at once, and ten runs begin at once: among these there is no order.
const DISPLACED: usize = 16 + 10;
const IDLE_MIB: f64 = 20.0;
const FULL_MIB: f64 = 60.0;

/// The one that the operators choose: memory is measured here.
#[global_allocator]
static ALLOCATOR: opcore::Allocator = opcore::Allocator;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    opcore::client::install_crypto_provider();
    let parts: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let crowd = if wanted("crowd") { Some(many().await?) } else { None };
    let node = match sandbox::can_run_node() {
        _ if !wanted("node") => None,
        Err(why) => {
            println!("No pod was measured: {why:#}");
            None
        }
        Ok(()) => Some(Box::pin(node::measure()).await?),
    };
    if let Some(node) = &node {
        println!("{node}");
    }
    let all = json!({ "crowd": crowd.as_ref().map(Many::json), "node": node.as_ref().map(node::Node::json) });
    results::write("runs", &all)?;
    crowd.map_or(Ok(()), |crowd| crowd.check())?;
    node.map_or(Ok(()), |node| node.check())
}

/// What is measured without a node.
struct Many {
    idle: f64,
    crowd: Crowd,
    rest: Rest,
}

async fn many() -> anyhow::Result<Many> {
    let sandbox = Sandbox::start(Options::default()).await?;
    install(&sandbox).await?;
    let idle = idle(&sandbox).await?;
    println!("memory without a workspace      {idle:>8.1} MiB  (promised: {IDLE_MIB} MiB)");
    let mut scene = Scene::new(&sandbox, "crowd").await?;
    let crowd = crowd::measure(&sandbox, &mut scene).await?;
    println!("{crowd}");
    let rest = rest::measure(&sandbox, &mut scene).await?;
    println!("{rest}");
    Ok(Many { idle, crowd, rest })
}

impl Many {
    fn json(&self) -> Value {
        json!({ "idleMiB": self.idle, "atOnce": self.crowd.json(), "ready": self.rest.json() })
    }

    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.idle < IDLE_MIB, "it takes more memory than promised");
        self.crowd.check()?;
        self.rest.check()
    }
}

/// Installs the kinds.
async fn install(sandbox: &Sandbox) -> anyhow::Result<()> {
    let client = sandbox.client().await?;
    for definition in [TerraformWorkspace::crd(), SimpleResource::crd()] {
        opcore_testing::wait::install(&client, &definition).await;
    }
    Ok(())
}

/// What the program holds in memory while nothing is asked of it.
async fn idle(sandbox: &Sandbox) -> anyhow::Result<f64> {
    let program = program::Program::start(sandbox, &[]).await?;
    // What the start left over is given back.
    tokio::time::sleep(Duration::from_secs(3)).await;
    program.resident()
}
