//! The program `tf-runner`, which runs in the pod of a run.
//!
//! | To learn about | read |
//! |---|---|
//! | the steps of a run | [`execute`] |
//! | Terraform as a process, its signals and its deadline | [`engine`] |
//! | its output | [`stream`] |
//! | the versions of providers | [`providers`] |
//! | the files and the environment that it receives | [`layout`], [`hcl`] |
//! | confidential values | [`redact`] |
//! | the state, the lock and everything that is kept | [`serve`], [`wire`] |

pub mod engine;
pub mod execute;
pub mod hcl;
pub mod layout;
pub mod providers;
pub mod redact;
pub mod serve;
pub mod settings;
pub mod stream;
pub mod wire;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use opcore::duration::Span;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::run::order::{POD_VARIABLE, STORE_VARIABLE, StoreOrder};
use crate::store::Store;

/// Runs Terraform in a pod of the terraform-runner-operator.
#[derive(Debug, Parser)]
#[command(name = "tf-runner", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Plan, apply, check or destroy, as TF_RUNNER_ORDER says
    Run,
    /// Serve the state on the pod's loopback, as TF_RUNNER_STORE says
    Serve,
    /// Wait, as in `sleep 30s`
    Sleep {
        /// How long
        duration: Span,
    },
    /// Copy this program into a folder
    Install {
        /// The folder
        folder: PathBuf,
    },
    /// Say which version this is
    Version,
}

/// Executes the command line.
pub fn main(cli: &Cli) -> ExitCode {
    let done = match &cli.command {
        Command::Sleep { duration } => {
            std::thread::sleep(duration.as_duration());
            Ok(ExitCode::SUCCESS)
        }
        Command::Install { folder } => install(folder).map(|()| ExitCode::SUCCESS),
        Command::Version => {
            println!("tf-runner {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
        Command::Run => in_runtime(execute::run),
        Command::Serve => in_runtime(serve_here),
    };
    done.unwrap_or_else(|error| {
        eprintln!("tf-runner: {error}");
        ExitCode::FAILURE
    })
}

fn in_runtime<F: Future<Output = Result<ExitCode, String>>>(
    work: impl FnOnce(watch::Receiver<bool>) -> F,
) -> Result<ExitCode, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let done = runtime.block_on(async {
        let stop = stopping().map_err(|error| format!("Signals cannot be handled: {error}"))?;
        work(stop).await
    });
    runtime.shutdown_background();
    done
}

/// Becomes true with the first SIGTERM or SIGINT. The first process of a container would otherwise ignore them.
fn stopping() -> std::io::Result<watch::Receiver<bool>> {
    let (sender, stop) = watch::channel(false);
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            sender.send_replace(true);
        }
    });
    Ok(stop)
}

async fn serve_here(stop: watch::Receiver<bool>) -> Result<ExitCode, String> {
    let filter = opcore::runtime::log_filter("info").map_err(|error| error.to_string())?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    let _ = log.try_init();
    let order: StoreOrder = settings::from_env(STORE_VARIABLE)?;
    let pod =
        std::env::var(POD_VARIABLE).map_err(|_| format!("{POD_VARIABLE} is not set; the operator must set it"))?;
    let store = Store::of(serve::client().await?, &order);
    let address = settings::address();
    serve::serve(store, order, pod, &address, stop)
        .await
        .map_err(|error| format!("Cannot serve on {address}: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Copies this program into an image of a user, which does not contain it.
fn install(folder: &Path) -> Result<(), String> {
    let (own, to) = (std::env::current_exe().map_err(|error| error.to_string())?, folder.join("tf-runner"));
    std::fs::copy(own, &to)
        .and_then(|_| std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)))
        .map_err(|error| format!("Cannot write {}: {error}", to.display()))
}
