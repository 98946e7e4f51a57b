//! Keeps Terraform and OpenTofu configurations applied.
//!
//! A [`TerraformWorkspace`](api::v1alpha1::TerraformWorkspace) names a module and its variables. Each run is a Job with a
//! name that follows from the workspace: a process that starts anew finds it again. The state is kept in Secrets that
//! outlive everything but a destroy that left nothing.
//!
//! | To learn about | read |
//! |---|---|
//! | what people write and read | [`api`] |
//! | what is read | [`observe`] |
//! | what is decided | [`decide`] |
//! | what a decision turns into: inputs, rights, Jobs, outputs | [`render`] |
//! | how it is put together, and whose turn it is | [`controller`], [`slots`] |
//! | what is measured | [`metrics`] |
//! | what operator and runner tell each other | [`run`] |
//! | what happens in a pod | [`runner`] |
//! | how things too large for one Secret are kept | [`store`] |
//! | kinds with a spec of their own over a built-in module | [`typed`] |

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
