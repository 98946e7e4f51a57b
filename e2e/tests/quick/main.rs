//! What `make test` plays, too: each chart alone installs and does its job, a command runs in a container, a failure explains
//! itself, and images are built wherever a clone lies.

mod building;
mod executing;
mod explaining;
mod installing;
