//! Rolls out a dependency graph of waves.
//!
//! A [`WavePlan`](api::v1alpha1::WavePlan) names waves and the waves that each depends on. A wave starts on the same
//! event that makes its last dependency ready. Nothing is polled: watches are open on the kinds that plans mention, and
//! each event is turned into a verdict at once, so that the cost of a plan does not grow with the number of its
//! objects.
//!
//! | To learn about | read |
//! |---|---|
//! | what users write and read | [`api`] |
//! | what is read, and how it is stored | [`observe`], [`index`], [`live`] |
//! | what is decided | [`decide`] |
//! | how claims are granted | [`admit`] |
//! | what becomes of manifests | [`render`] |
//! | what is measured | [`metrics`] |
//! | how the parts fit together | [`controller`] |

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
