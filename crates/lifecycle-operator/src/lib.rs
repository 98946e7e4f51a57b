//! Runs a SPIRE identity stack from one central config, and takes it down in order, losing nothing.
//!
//! A [`ZeroTrustWorkloadIdentityManager`](api::v1alpha1::ZeroTrustWorkloadIdentityManager) holds the central config and
//! is the parent of four operands: server, agent, CSI driver, OIDC provider. Each operand starts when those before it
//! are ready, and goes when those after it are gone. What the server knows is backed up before it goes.
//!
//! | To learn about | read |
//! |---|---|
//! | what users write and read | [`api`] |
//! | the central config: inheritance, provenance, conflicts | [`config`], [`policies`] |
//! | what operands have in common | [`operand`] |
//! | what is read | [`observe`], [`optional`] |
//! | what is decided: order of starts, teardown, backups, migration | [`decide`] |
//! | what becomes of a spec: SPIRE's configuration, and Kubernetes objects | [`render`] |
//! | what happens on the server's volume | [`volume`] |
//! | what is measured | [`metrics`] |
//! | how the parts fit together | [`controller`] |

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod api;
pub mod config;
pub mod controller;
pub mod decide;
pub mod metrics;
pub mod observe;
pub mod operand;
pub mod optional;
pub mod policies;
pub mod render;
#[allow(clippy::disallowed_methods, reason = "it runs in a pod, where it has files and clocks")]
pub mod volume;
