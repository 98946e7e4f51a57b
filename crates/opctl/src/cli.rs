//! The command line of the program `opctl`.

use std::io::{ErrorKind, stderr};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::cluster::Connection;
use crate::output::{self, Paint};
use crate::{identity, tf, waves};

/// The companion of the Opcore operators.
///
/// Installed as `kubectl-opctl` it is also a command of kubectl: `kubectl opctl waves status`.
#[derive(Debug, Parser)]
#[command(name = "opctl", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done, or all is well
  1  something failed, or is not well; a sentence says what, and what to do about it
  2  the command line is not understood

Colours are used on a terminal only, and not where NO_COLOR is set.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Rollouts in waves: show, check and control them
    #[command(subcommand)]
    Waves(waves::Command),
    /// Terraform workspaces: show them, read and approve plans, control runs
    #[command(subcommand)]
    Tf(tf::Command),
    /// A SPIRE stack: show it, back it up, restore it, follow its deletion
    #[command(subcommand)]
    Identity(identity::Command),
    /// Print a script that completes commands in a shell, e.g. source <(opctl completion bash)
    Completion {
        /// The shell
        shell: Shell,
    },
}

/// The command line as data: what the reference page is made from.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command that this process was called with.
pub fn main() -> ExitCode {
    let matches = command().bin_name(called_as()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(dispatch(cli)));
    match result {
        Ok(code) => code,
        // The reader has closed the pipe.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{} {error:#}", Paint::detect(&stderr()).error("opctl:"));
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Waves(command) => waves::run(command, &cli.connection).await,
        Command::Tf(command) => Box::pin(tf::run(command, &cli.connection)).await,
        Command::Identity(command) => Box::pin(identity::run(command, &cli.connection)).await,
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "opctl", &mut script);
            output::print(&String::from_utf8_lossy(&script))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// How people call this program: help shall show what they type.
fn called_as() -> &'static str {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default();
    if name.to_string_lossy().starts_with("kubectl-") { "kubectl opctl" } else { "opctl" }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        command().debug_assert();
    }
}
