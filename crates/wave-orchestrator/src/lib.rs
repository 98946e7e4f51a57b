//! Rolls out a dependency graph of waves.
//!
//! A [`WavePlan`](api::v1alpha1::WavePlan) names waves and what each depends on. A wave starts on the very event that
//! makes its last dependency ready. Nothing polls: watches are open on the kinds that plans mention, and each event is
//! turned into a verdict at once, so that what a plan costs does not grow with the number of its objects.
//!
//! | To learn about | read |
//! |---|---|
//! | what people write and read | [`api`] |
//! | what is read, and how it is kept | [`observe`], [`index`], [`live`] |
//! | what is decided | [`decide`] |
//! | how what is claimed is granted | [`admit`] |
//! | what manifests turn into | [`render`] |
//! | what is measured | [`metrics`] |
//! | how it is put together | [`controller`] |

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod admit;
pub mod api;
pub mod controller;
pub mod decide;
pub mod expression;
pub mod index;
pub mod live;
pub mod metrics;
pub mod observe;
pub mod probes;
pub mod render;
pub mod subscription;
