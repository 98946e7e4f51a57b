//! The scenarios that are also part of `make test`: each chart alone installs and works, a command runs in a container,
//! a failure explains itself, and images are built wherever a clone is located.

mod building;
mod executing;
mod explaining;
mod installing;
