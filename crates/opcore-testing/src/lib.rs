//! What the tests of all operators share.
//!
//! | For | read |
//! |---|---|
//! | an operator that runs in the process of the test | [`running`] |
//! | waiting with a watch and a deadline; a timeout prints the state of the object | [`wait`] |
//! | an API server that loses requests and responses, and cuts off watches | [`proxy`] |
//! | a simulated kubelet that runs commands | [`kubelet`], [`proxy`] |
//! | a change at the worst moment | [`meddling`] |
//! | an operator that crashes at its n-th write | [`crashing`] |
//! | an operator with the rights that its chart grants | [`chart`] |
//! | the kind of ownership contracts | [`contract`] |
//! | an operator and a Prometheus that evaluates the queries of its chart | [`monitored`] |
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

/// How long a test waits for anything: much longer than it takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(1);
