//! The command-line tool of the operators: `opctl`, or `kubectl opctl` where it is installed as
//! `kubectl-opctl`.
//!
//! Each subject is a module and a subcommand of its own: `waves`, `tf`, `identity`. What they share is how they reach a
//! cluster (`cluster`), find and ask objects (`objects`), read them (`reading`), follow them (`follow`), ask a person
//! (`consent`) and answer (`output`, `phrases`). A subject writes nothing but the objects of its operator: whatever `opctl`
//! does, annotations and `kubectl` can do as well.

pub mod cli;
mod cluster;
mod consent;
mod follow;
mod identity;
mod objects;
mod output;
mod phrases;
mod reading;
mod tf;
mod waves;
