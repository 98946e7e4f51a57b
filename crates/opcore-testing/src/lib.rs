//! What the tests of all operators share.
//!
//! | For | read |
//! |---|---|
//! | an operator at work in the test's own process | [`running`] |
//! | waiting by watch, with a deadline that fails with the object's state | [`wait`] |
//! | an API server that loses requests and answers, and cuts watches | [`proxy`] |
//! | a kubelet that runs commands by hand | [`kubelet`], [`proxy`] |
//! | something that happens at the worst moment | [`meddling`] |
//! | an operator that crashes at its n-th write | [`crashing`] |
//! | an operator with the rights that its chart grants | [`chart`] |
//! | the kind of ownership contracts | [`contract`] |
//! | an operator and a Prometheus that is asked what its chart asks | [`monitored`] |
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking, in its helpers too"
)]

pub mod chart;
pub mod contract;
pub mod crashing;
pub mod kubelet;
pub mod meddling;
pub mod monitored;
pub mod proxy;
pub mod running;
pub mod wait;

use std::time::Duration;

/// How long a test waits for anything: far longer than it takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(1);
