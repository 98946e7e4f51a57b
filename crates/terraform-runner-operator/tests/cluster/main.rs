//! Tests on a real API server, without Terraform: what the operator does, what is stored, and the lock.
#![allow(unreachable_pub, reason = "a program has no outside; what its programs share has")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod admitting;
mod authoring;
mod bounding;
mod crashing;
mod keeping;
mod keying;
mod locking;
mod measuring;
mod permitting;
#[path = "../support/pod.rs"]
mod pod;
mod running;
#[path = "../support/simulated_runs.rs"]
mod simulated_runs;
mod stage;
mod typing;

use pod::{Workspace, noise};
use sandbox::Sandbox;
use simulated_runs::state;

/// A workspace on the shared control plane.
async fn workspace(prefix: &str) -> Workspace {
    let sandbox = Sandbox::shared().await.expect("a control plane");
    Workspace::new(sandbox, prefix).await
}
