//! The scenarios that `make test` plays, too: each chart alone installs and does its job, and a failure explains itself.

mod explaining;
mod installing;
