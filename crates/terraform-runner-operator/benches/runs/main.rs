//! How long it takes from a resource to its outputs in addition to the time of Terraform, and what it costs to manage
//! many workspaces: `cargo bench -p terraform-runner-operator`.
//!
//! Times are compared with those of the same Job without the operator, on the same node in the same run; where no node
//! can run, the benchmark says so and measures the rest. The release build is measured, in its own process.
#![allow(unreachable_pub, reason = "a program has no outside; what it shares with a test has")]

mod by_hand;
mod crowd;
mod fixture;
mod moments;
mod node;
mod program;
mod rest;
mod sample;
#[path = "../../tests/support/simulated_runs.rs"]
#[allow(clippy::unwrap_used, reason = "as in the tests that it belongs to")]
mod simulated_runs;
#[allow(dead_code, reason = "compiled for itself, and here for the lints")]
mod tofu;

use std::time::Duration;

use crowd::Crowd;
use fixture::Fixture;
use kube::CustomResourceExt;
use rest::Rest;
use sandbox::{Options, Sandbox, results};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{SimpleResource, TerraformWorkspace};

/// The limits.
const SAMPLE: f64 = 4.0;
const OVERHEAD: f64 = 1.0;
const RECONCILE: Duration = Duration::from_secs(1);
/// Sixteen workers reconcile concurrently, and ten runs start concurrently: among these there is no order.
const DISPLACED: usize = 16 + 10;
const IDLE_MIB: f64 = 20.0;
const FULL_MIB: f64 = 60.0;

/// The allocator of the operators, because memory is measured here.
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
    let mut fixture = Fixture::new(&sandbox, "crowd").await?;
    let crowd = crowd::measure(&sandbox, &mut fixture).await?;
    println!("{crowd}");
    let rest = rest::measure(&sandbox, &mut fixture).await?;
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

/// The memory of the program while it is idle.
async fn idle(sandbox: &Sandbox) -> anyhow::Result<f64> {
    let program = program::Program::start(sandbox, &[]).await?;
    // Memory that the start no longer needs is returned to the system.
    tokio::time::sleep(Duration::from_secs(3)).await;
    program.resident()
}
