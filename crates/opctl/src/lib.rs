//! The companion of the operators on the command line: `opctl`, or `kubectl opctl` where it is installed as
//! `kubectl-opctl`.
//!
//! Each subject is a module and a subcommand of its own: `waves`, `tf`. What they share is how they reach a cluster
//! (`cluster`), find, follow and ask objects (`objects`), read them (`reading`) and answer (`output`). A subject reads and
//! writes nothing but the objects of its operator: whatever `opctl` does, annotations and `kubectl` can do as well.

pub mod cli;
mod cluster;
mod objects;
mod output;
mod reading;
mod tf;
mod waves;
