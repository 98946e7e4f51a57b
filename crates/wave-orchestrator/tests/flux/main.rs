//! Members that Flux reconciles, with Flux's own controllers: `make e2e`, or `cargo test -p wave-orchestrator --test
//! flux`.
//!
//! Not among the tests of `make test`, because a first build of Flux takes minutes.
#![allow(unreachable_pub, reason = "a program has no outside; what it shares with a benchmark has")]

#[path = "../support/fleet.rs"]
mod fleet;
mod gate;
mod nudge;
#[path = "../support/operator.rs"]
mod operator;

use sandbox::Sandbox;
use tokio::sync::OnceCell;

use fleet::Fleet;
use operator::Operator;

/// A namespace in which Flux and the operator run.
async fn fleet(prefix: &str) -> anyhow::Result<Fleet> {
    static SHARED: OnceCell<Sandbox> = OnceCell::const_new();
    let sandbox = SHARED.get_or_try_init(start).await?;
    Fleet::new(sandbox, prefix).await
}

/// Flux, and one operator for all plans, on its own runtime: the runtime of a test ends with the test.
async fn start() -> anyhow::Result<Sandbox> {
    let sandbox = fleet::start().await?;
    let config = sandbox.config().await?;
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async { Operator::start(&config).run().await });
        anyhow::Ok(())
    });
    Ok(sandbox)
}
