//! The program as a person uses it, on a real control plane: one file per subject.
#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod infra;
mod user;

mod checking;
mod helping;
mod identity;
mod identity_operator;
mod looking;
mod refusing;
mod tf_deciding;
mod tf_looking;
