//! The shared runtime of the Opcore operators.
//!
//! An operator reads ([`Operator::observe`]), decides ([`Operator::decide`], pure), and leaves the rest to this crate:
//! watching, queueing, writing, publishing, leading, stopping. It has no kinds of its own and no global state; a thing
//! belongs here when two operators need it and its documentation names neither.
//!
//! | To learn about | read |
//! |---|---|
//! | the way of an object through an operator | [`operator`], then [`controller`] |
//! | taking things down in order, without loss | [`finalizer`] |
//! | who owns an object, and who may write it | [`ownership`] |
//! | what a write is, and how it is done | [`plan`], [`act`] |
//! | when another object is ready | [`readiness`] |
//! | what people see of an object | [`conditions`], [`events`], [`metrics`], [`duration`] |
//! | how much of something there may be at a time, and for whom | [`slots`] |
//! | what keeps an operator alive and alone | [`runtime`], [`election`], [`client`], [`watch`] |
//!
//! `examples/notebook` is a whole operator in a page or two.

pub mod act;
pub mod admission;
pub mod backoff;
pub mod client;
pub mod conditions;
pub mod controller;
pub mod duration;
pub mod election;
pub mod error;
pub mod events;
pub mod finalizer;
pub mod graph;
pub mod health;
mod lock;
mod memory;
pub mod metrics;
pub mod operator;
pub mod ownership;
pub mod plan;
pub mod queue;
pub mod readiness;
pub mod runtime;
mod server;
pub mod slots;
pub mod watch;

pub use controller::Context;
pub use error::Error;
pub use lock::lock;
pub use operator::{Decision, Next, Note, Operator};
pub use plan::{Plan, Write};
