//! `opctl tf`: Terraform workspaces.
//!
//! | To learn about | read |
//! |---|---|
//! | how a workspace is found, and what is kept for it read | [`workspaces`] |
//! | the state of a plan, and how it is shown | [`plan`] |
//! | the commands | [`list`], [`show`], [`plan`], [`verbs`], [`unlock`], [`outputs`], [`logs`], [`state`] |

mod list;
mod logs;
mod outputs;
mod plan;
mod show;
mod state;
#[cfg(test)]
mod tests;
mod unlock;
mod verbs;
mod workspaces;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::cluster::Connection;
use workspaces::Workspaces;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List workspaces
    List(list::Flags),
    /// Show a workspace: its phase, plan, drift, outputs, diagnostics and runs
    Show(show::Flags),
    /// Plans that are kept for a person
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Approve the plan that waits: exactly what was shown is applied
    Approve(verbs::Decide),
    /// Discard the plan that waits for approval
    Discard(verbs::Decide),
    /// Ask for a new plan, whatever was decided about the last one
    Replan(verbs::Flags),
    /// Ask for a plan with the newest versions of providers that the module allows
    Upgrade(verbs::Flags),
    /// Release the lock of the state, whoever holds it
    Unlock(unlock::Flags),
    /// Print outputs; sensitive ones only on request
    Outputs(outputs::Flags),
    /// Print the log of Terraform in the current run, or in the last one
    Logs(logs::Flags),
    /// The state
    #[command(subcommand)]
    State(StateCommand),
    /// Start no more runs
    Suspend(verbs::Flags),
    /// Start runs again
    Resume(verbs::Flags),
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Show the plan that is kept: what would be created, changed and destroyed, without confidential values
    Show(plan::Flags),
}

#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// List the versions of the state that are kept, or the resources of the current one
    List(state::Flags),
}

/// The namespace that a command is about.
#[derive(Debug, Args)]
pub(crate) struct Namespace {
    /// The namespace [default: the one of the context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
}

/// The workspace that a command is about.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The workspace
    name: String,
    #[command(flatten)]
    namespace: Namespace,
}

impl Which {
    /// The workspaces beside which it is.
    async fn workspaces(&self, connection: &Connection) -> anyhow::Result<Workspaces> {
        Ok(Workspaces::within(connection.cluster().await?, &self.namespace))
    }
}

/// Runs a command of this subject.
pub(crate) async fn run(command: Command, connection: &Connection) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(flags) => list::list(connection.cluster().await?, &flags).await,
        Command::Show(flags) => show::show(&flags.which.workspaces(connection).await?, &flags).await,
        Command::Plan(PlanCommand::Show(flags)) => plan::show(&flags.which.workspaces(connection).await?, &flags).await,
        Command::Approve(flags) => verbs::approve(&flags.which.workspaces(connection).await?, &flags).await,
        Command::Discard(flags) => verbs::discard(&flags.which.workspaces(connection).await?, &flags).await,
        Command::Replan(flags) => verbs::replan(&flags.which.workspaces(connection).await?, &flags).await,
        Command::Upgrade(flags) => verbs::upgrade(&flags.which.workspaces(connection).await?, &flags).await,
        Command::Unlock(flags) => Box::pin(unlock::unlock(&flags.which.workspaces(connection).await?, &flags)).await,
        Command::Outputs(flags) => outputs::outputs(&flags.which.workspaces(connection).await?, &flags).await,
        Command::Logs(flags) => Box::pin(logs::logs(&flags.which.workspaces(connection).await?, &flags)).await,
        Command::State(StateCommand::List(flags)) => {
            state::list(&flags.which.workspaces(connection).await?, &flags).await
        }
        Command::Suspend(flags) => verbs::suspend(&flags.which.workspaces(connection).await?, &flags).await,
        Command::Resume(flags) => verbs::resume(&flags.which.workspaces(connection).await?, &flags).await,
    }
}
