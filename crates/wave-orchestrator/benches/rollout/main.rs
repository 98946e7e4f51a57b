//! How long a rollout takes in addition to the needed writes, and what it costs: `cargo bench -p wave-orchestrator`.
//!
//! Times are compared with those of a client that knows in advance which writes are needed, on the same control plane;
//! requests are counted. With `OPCORE_BENCH_FLUX=1`, which `make bench` sets, Flux's own controllers are measured in
//! the same run: this takes minutes, and longer if they have to be built.
#![allow(unreachable_pub, reason = "a program has no outside; what it shares with a test has")]

mod chain;
mod crowd;
mod event;
#[path = "../../tests/support/fleet.rs"]
mod fleet;
mod flux;
mod memory;
#[path = "../../tests/support/operator.rs"]
mod operator;

use std::time::Duration;

use sandbox::{Options, Sandbox, results};
use serde_json::json;

/// The limits.
const CHAIN: Duration = Duration::from_secs(1);
const NUDGED: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(250);
const GROWTH: f64 = 1.2;
const IDLE_MIB: f64 = 20.0;

/// The allocator of the operators, because memory is measured here.
#[global_allocator]
static ALLOCATOR: opcore::Allocator = opcore::Allocator;

fn main() -> anyhow::Result<()> {
    if let Some(task) = std::env::var_os(event::TASK) {
        return event::replay(&task.to_string_lossy());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(bench())
}

async fn bench() -> anyhow::Result<()> {
    opcore::client::install_crypto_provider();
    let sandbox = Sandbox::start(Options { audit: true, ..Options::default() }).await?;
    operator::install(&sandbox.client().await?).await;

    let idle = memory::of(&sandbox).await?;
    println!("memory without a plan           {idle:>8.1} MiB  (promised: {IDLE_MIB} MiB)");
    let chain = chain::measure(&sandbox).await?;
    println!("{chain}");
    let crowd = crowd::measure(&sandbox).await?;
    println!("{crowd}");
    let full = memory::of(&sandbox).await?;
    println!("memory with 1,000 members       {full:>8.1} MiB");
    let events = event::measure()?;
    println!("{events}");
    let flux = if std::env::var_os("OPCORE_BENCH_FLUX").is_some_and(|value| !value.is_empty() && value != "0") {
        Some(flux::measure().await?)
    } else {
        println!("Flux was not measured: set OPCORE_BENCH_FLUX=1.");
        None
    };
    if let Some(flux) = &flux {
        println!("{flux}");
    }
    let memory = json!({ "idleMiB": idle, "thousandMembersMiB": full });
    let flux_json = flux.as_ref().map(flux::Flux::json);
    let all = json!({
        "chain": chain.json(), "crowd": crowd.json(), "events": events.json(), "memory": memory, "flux": flux_json,
    });
    results::write("rollout", &all)?;

    anyhow::ensure!(idle < IDLE_MIB, "it takes more memory than promised");
    chain.check()?;
    crowd.check()?;
    events.check()?;
    flux.map_or(Ok(()), |flux| flux.check())
}
