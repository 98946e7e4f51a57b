//! Runs a SPIRE identity stack from one central config, and takes it down in order, losing nothing.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod api;
pub mod render;
