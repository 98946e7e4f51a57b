//! The shared runtime of the Opcore operators.
//!
//! An operator reads ([`Operator::observe`]) and decides ([`Operator::decide`], a pure function). This crate does the
//! rest: watches, the queue, writes, status, metrics, leader election and shutdown. It has no kinds of its own and no
//! global state. Code belongs here when two operators need it and its documentation names neither of them.
//!
//! | To learn about | read |
//! |---|---|
//! | how an object passes through an operator | [`operator`], then [`controller`] |
//! | taking things down in order, without loss | [`finalizer`] |
//! | who owns an object, and who may write it | [`ownership`] |
//! | what a write is, and how it is carried out | [`writes`], [`act`] |
//! | when another object is ready | [`readiness`] |
//! | what users see of an object | [`conditions`], [`events`], [`metrics`], [`duration`] |
//! | polling sources outside the cluster | [`poll`] |
//! | limiting how many of something run at a time, and who is next | [`slots`] |
//! | watching kinds that are known only from objects | [`watch::registry`], [`watch::discovery`] |
//! | what keeps an operator running, and as the only instance | [`runtime`], [`election`], [`client`], [`watch`] |
//!
//! `examples/notebook` is a complete operator in a page or two.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

#[allow(clippy::disallowed_methods, reason = "the only place that writes")]
pub mod act;
pub mod admission;
pub mod annotations;
pub mod backoff;
#[allow(clippy::disallowed_methods, reason = "deadlines of requests")]
pub mod client;
pub mod conditions;
#[allow(clippy::disallowed_methods, reason = "the clock of the loop, and the one status write")]
pub mod controller;
pub mod digest;
pub mod duration;
#[allow(clippy::disallowed_methods, reason = "the lease")]
pub mod election;
pub mod error;
#[allow(clippy::disallowed_methods, reason = "Events are written as they are emitted")]
pub mod events;
pub mod finalizer;
pub mod graph;
pub mod health;
pub mod history;
mod lock;
pub mod metrics;
pub mod object;
pub mod operator;
pub mod ownership;
#[allow(clippy::disallowed_methods, reason = "the age of answers")]
pub mod poll;
pub mod queue;
pub mod reader;
pub mod readiness;
#[allow(clippy::disallowed_methods, reason = "where the clock comes from")]
pub mod runtime;
mod server;
pub mod slots;
#[allow(clippy::disallowed_methods, reason = "when to check again, and that a watch is in trouble")]
pub mod watch;
pub mod writes;

pub use controller::Context;
pub use error::Error;
pub use lock::lock;
/// The allocator that operator programs use. A process that lists and inspects a thousand objects briefly needs a
/// multiple of the memory that it keeps. glibc's allocator did not return that memory: of 104 MiB with a thousand
/// objects, 69 were free. This allocator returns it.
pub use mimalloc::MiMalloc as Allocator;
pub use object::{GroupKind, ObjectId};
pub use operator::{Admission, Decision, DecisionOf, Next, Note, Operator};
pub use reader::Reader;
pub use writes::{Write, Writes};
