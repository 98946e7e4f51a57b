//! opcore against a real API server and a real controller manager: one file per guarantee.
#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

#[path = "../../examples/notebook/operator.rs"]
mod notebook;
mod process;
mod stage;

mod acting;
mod admission;
mod contracts;
mod converging;
mod crashing;
mod emitting;
mod executing;
mod failing;
mod faults;
mod leading;
mod registry;
mod secrecy;
mod serving;
mod shielding;
mod teardown;
