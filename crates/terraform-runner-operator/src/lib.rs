//! Keeps Terraform and OpenTofu configurations applied.
//!
//! A [`TerraformWorkspace`](api::v1alpha1::TerraformWorkspace) names a module and its variables. Each run is a Job
//! whose name is derived from the workspace, so that a restarted process finds it again. The state is kept in Secrets
//! that are deleted only after a destroy that left nothing.
//!
//! | To learn about | read |
//! |---|---|
//! | what users write and read | [`api`] |
//! | what is read | [`observe`] |
//! | what is decided | [`decide`] |
//! | what becomes of a decision: inputs, rights, Jobs, outputs | [`render`] |
//! | how the parts fit together, and whose turn it is | [`controller`], [`slots`] |
//! | what is measured | [`metrics`] |
//! | what operator and runner exchange | [`run`] |
//! | what happens in a pod | [`runner`] |
//! | how data too large for one Secret is kept | [`store`] |
//! | kinds with their own spec on top of a built-in module | [`typed`] |

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod api;
pub mod controller;
pub mod decide;
pub mod metrics;
pub mod observe;
pub mod render;
pub mod run;
#[allow(clippy::disallowed_methods, reason = "it runs in a pod, where it waits for programs and clocks")]
pub mod runner;
pub mod slots;
#[allow(clippy::disallowed_methods, reason = "it runs in a pod, and is what keeps states and reports")]
pub mod store;
pub mod typed;
