//! The companion of the operators on the command line: `opctl`, or `kubectl opctl` where it is installed as
//! `kubectl-opctl`.
//!
//! Each subject is a module and a subcommand of its own: `waves` is the first. What they share is how they reach a
//! cluster (`cluster`) and how they answer (`output`). A subject reads and writes nothing but the objects of its
//! operator: whatever `opctl` does, annotations and `kubectl` can do as well.

pub mod cli;
mod cluster;
mod output;
mod waves;
