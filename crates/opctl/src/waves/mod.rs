//! `opctl waves`: rollouts in waves.
//!
//! | To learn about | read |
//! |---|---|
//! | the plans of a cluster | [`plans`]; how one is found, followed and asked for something: [`objects`](crate::objects) |
//! | the state of a plan at a moment, and how it is drawn | [`picture`], [`tree`] |
//! | the commands | [`list`], [`status`], [`graph`], [`verify`], [`verbs`] |

mod graph;
mod list;
mod picture;
mod plans;
mod status;
#[cfg(test)]
mod tests;
mod tree;
mod verbs;
mod verify;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::cluster::Connection;
use crate::output::Output;
use plans::plans_of;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the plans of the cluster
    List(Output),
    /// Show a plan as a tree of its waves, with what they wait for, critical path and ETA
    Status(status::Flags),
    /// Show the graph of a plan, or check one in a file
    Graph(graph::Flags),
    /// Check that the waves started in the order of the graph, and run every probe once
    VerifyStartup(verify::Flags),
    /// Retry waves that failed or timed out
    Retry(verbs::Retry),
    /// Skip waves: those that depend on them start as if they were ready
    Skip(verbs::Skip),
    /// Skip waves no longer
    Unskip(verbs::Skip),
    /// Start no more waves
    Pause(verbs::Plan),
    /// Continue after a pause, whether a person or a failure caused it
    Resume(verbs::Plan),
    /// Start a wave now, whatever it depends on
    Force(verbs::Force),
}

/// The plan that a command is about.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The plan; where there is only one it may be left out
    name: Option<String>,
}

/// Runs a command of this subject.
pub(crate) async fn run(command: Command, connection: &Connection) -> anyhow::Result<ExitCode> {
    if let Command::Graph(flags) = &command
        && let Some(file) = &flags.file
    {
        return graph::of_file(file, flags);
    }
    let plans = plans_of(connection.cluster().await?);
    match command {
        Command::List(output) => list::list(&plans, output).await,
        Command::Status(flags) => status::status(&plans, &flags).await,
        Command::Graph(flags) => graph::of_cluster(&plans, &flags).await,
        Command::VerifyStartup(flags) => verify::verify(&plans, &flags).await,
        Command::Retry(flags) => verbs::retry(&plans, &flags).await,
        Command::Skip(flags) => verbs::skip(&plans, &flags).await,
        Command::Unskip(flags) => verbs::unskip(&plans, &flags).await,
        Command::Pause(flags) => verbs::pause(&plans, &flags).await,
        Command::Resume(flags) => verbs::resume(&plans, &flags).await,
        Command::Force(flags) => verbs::force(&plans, &flags).await,
    }
}
