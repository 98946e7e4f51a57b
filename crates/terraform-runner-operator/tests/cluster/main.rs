//! On a real API server, without Terraform: what the operator does, what is kept, and the lock.
#![allow(unreachable_pub, reason = "a program has no outside; what its programs share has")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod admitting;
mod crashing;
#[path = "../support/hands.rs"]
mod hands;
mod keeping;
mod locking;
mod permitting;
#[path = "../support/pod.rs"]
mod pod;
mod running;
mod stage;
mod typing;

use hands::state;
use pod::Workspace;
use sandbox::Sandbox;

/// A workspace on the shared control plane.
async fn workspace(prefix: &str) -> Workspace {
    let sandbox = Sandbox::shared().await.expect("a control plane");
    Workspace::new(sandbox, prefix).await
}

/// Text that does not compress well.
fn noise(bytes: usize) -> String {
    let mut word = 1_u64;
    let next = || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + u8::try_from((word >> 33) % 43).unwrap())
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
