//! `opctl identity`: a SPIRE stack.
//!
//! | To learn about | read |
//! |---|---|
//! | the stack in the cluster, and how it is watched | [`stack`] |
//! | a teardown that is under way | [`progress`] |
//! | the commands | [`status`], [`plan`], [`force`], [`backup`], [`restore`] |

mod backup;
mod force;
mod plan;
mod progress;
mod restore;
mod stack;
mod status;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::Subcommand;

use crate::cluster::Connection;
use stack::Kinds;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the stack: operands, config, conflicts, migration, teardown and backup
    Status(status::Flags),
    /// The deletion of the stack
    #[command(subcommand)]
    Teardown(TeardownCommand),
    /// Give up a step of a teardown that is stuck, after saying what may be left behind
    Force(force::Flags),
    /// Back up the volume of the server; it stops for seconds
    Backup(backup::Flags),
    /// Start a new server from a backup, or print what has to be done first; nothing is ever overwritten
    Restore(restore::Flags),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TeardownCommand {
    /// Show what a deletion would do, in order, what would block it and what stays; nothing is changed
    Plan(plan::Flags),
}

/// Runs a command of this subject.
pub(crate) async fn run(command: Command, connection: &Connection) -> anyhow::Result<ExitCode> {
    let kinds = Kinds::of(connection.cluster().await?);
    match command {
        Command::Status(flags) => status::status(&kinds, &flags).await,
        Command::Teardown(TeardownCommand::Plan(flags)) => plan::plan(&kinds, &flags).await,
        Command::Force(flags) => force::force(&kinds, &flags).await,
        Command::Backup(flags) => Box::pin(backup::backup(&kinds, &flags)).await,
        Command::Restore(flags) => restore::restore(&kinds, &flags).await,
    }
}
