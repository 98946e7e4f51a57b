//! Plans on a real API server, with the controllers of Kubernetes.
#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod admitting;
mod answering;
mod applying;
mod crashing;
mod failing;
mod gating;
mod leaving;
mod measuring;
mod permitting;
mod stage;
mod watching;
