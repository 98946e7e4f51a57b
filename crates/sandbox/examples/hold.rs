//! Starts a sandbox, prints what belongs to it, and holds it until this process ends.
//!
//! The first line of its output is the directory, the others are the numbers of the processes.

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let sandbox = sandbox::Sandbox::shared().await?;
    if let Some(dir) = sandbox.kubeconfig().parent() {
        println!("{}", dir.display());
    }
    for pid in sandbox.pids().values() {
        println!("{pid}");
    }
    println!("ready");
    std::future::pending().await
}
