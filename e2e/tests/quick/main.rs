//! What `make test` plays, too: each chart alone installs and does its job, a failure explains itself, and images are built
//! wherever a clone lies.

mod building;
mod explaining;
mod installing;
