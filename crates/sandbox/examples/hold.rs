//! Starts a sandbox, with a node if called with `node`, prints what belongs to it, and holds it until this
//! process ends.
//!
//! The first line of its output is the directory, the others are the numbers of the processes.

use sandbox::{Options, Sandbox};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let node = std::env::args().any(|argument| argument == "node");
    let sandbox = Sandbox::start(Options { node, ..Options::default() }).await?;
    if let Some(dir) = sandbox.kubeconfig().parent() {
        println!("{}", dir.display());
    }
    for pid in sandbox.pids().values() {
        println!("{pid}");
    }
    println!("ready");
    std::future::pending().await
}
