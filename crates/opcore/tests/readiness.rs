//! The specification of `opcore::readiness`, one file per group of kinds.
//!
//! Fixtures are whole objects as `kubectl get -o yaml` prints them, trimmed, in the state in which their controller
//! leaves them when they are ready. A test states a difference and its consequence.

#[path = "readiness/common.rs"]
mod common;

#[path = "readiness/api.rs"]
mod api;
#[path = "readiness/data.rs"]
mod data;
#[path = "readiness/fence.rs"]
mod fence;
#[path = "readiness/flux.rs"]
mod flux;
#[path = "readiness/order.rs"]
mod order;
#[path = "readiness/pods.rs"]
mod pods;
#[path = "readiness/storage_and_network.rs"]
mod storage_and_network;
#[path = "readiness/total.rs"]
mod total;
#[path = "readiness/workloads.rs"]
mod workloads;
