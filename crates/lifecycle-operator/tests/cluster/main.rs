//! The identity stack on a real API server, with the controllers of Kubernetes at work, and hands in place of a node.
#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking, in its helpers too"
)]

mod admitting;
mod agreeing;
mod crashing;
mod hands;
mod keeping;
mod leaving;
mod migrating;
mod operator;
mod permitting;
mod resting;
mod running;
mod stage;
