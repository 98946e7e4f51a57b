//! From `main` to the first reconcile, and from SIGTERM to the end.
//!
//! ```no_run
//! # use opcore::{build_info, Context, Error};
//! # async fn controller(_: &Context) -> Result<(), Error> { Ok(()) }
//! fn main() -> std::process::ExitCode {
//!     opcore::runtime::run(build_info!(), |context| async move { controller(&context).await })
//! }
//! ```

mod flags;

pub use flags::{Flags, LogFormat, duration};

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::client::Shield;
use crate::controller::{Context, Limits, Parts};
use crate::election::{Election, Leadership, LeadershipLost, Timing};
use crate::health::Health;
use crate::metrics::{BuildInfo, Metrics};
use crate::ownership::InForce;
use crate::server;

/// Why an operator ended without being asked to.
#[derive(Debug, Error)]
pub enum Failure {
    /// The lease was lost. Another process leads; this one must stop.
    #[error(transparent)]
    LeadershipLost(#[from] LeadershipLost),
    /// No cluster is configured.
    #[error("no cluster is configured: {0}. Run this in a pod, or set --kubeconfig")]
    NoCluster(String),
    /// The address for probes and metrics is in use.
    #[error("cannot listen on {address}: {source}. Choose another address with --listen")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// A flag's value cannot be used.
    #[error("--{flag}: {reason}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// The cause.
        reason: String,
    },
    /// The process could not be set up.
    #[error("cannot start: {0}")]
    Start(String),
    /// The operator itself ended with an error.
    #[error(transparent)]
    Operator(#[from] crate::Error),
}

/// An operator's flags when it has none of its own.
#[derive(Args, Clone, Copy, Debug)]
pub struct NoFlags {}

#[derive(Parser)]
struct Cli<F: Args> {
    #[command(flatten)]
    common: Flags,
    #[command(flatten)]
    own: F,
}

/// Runs an operator that has no flags of its own: see [`run_with`].
pub fn run<M, R>(build: BuildInfo, main: M) -> ExitCode
where
    M: FnOnce(Context) -> R + Send + 'static,
    R: Future<Output = Result<(), crate::Error>> + Send,
{
    run_with(build, |context, _: NoFlags| main(context))
}

/// Runs an operator: reads flags, sets up logs, client, probes and metrics, takes part in the leader election, and
/// calls `main` once this process leads.
///
/// # Guarantees
///
/// - `main` runs only while this process leads. When the lease is lost the process ends with a failure, at once. The
///   client refuses writes even before that.
/// - On SIGTERM and SIGINT, running reconciles may finish, the lease is released, and the process ends with success.
pub fn run_with<F, M, R>(build: BuildInfo, main: M) -> ExitCode
where
    F: Args,
    M: FnOnce(Context, F) -> R,
    R: Future<Output = Result<(), crate::Error>> + Send,
{
    let command = Cli::<F>::command().name(build.name).version(build.version);
    let cli = command.try_get_matches().and_then(|matches| Cli::<F>::from_arg_matches(&matches));
    let cli = cli.unwrap_or_else(|error| error.exit());
    match start(build, cli, main) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn start<F, M, R>(build: BuildInfo, cli: Cli<F>, main: M) -> Result<(), Failure>
where
    F: Args,
    M: FnOnce(Context, F) -> R,
    R: Future<Output = Result<(), crate::Error>> + Send,
{
    set_up_logs(&cli.common)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Start(error.to_string()))?;
    let ended = runtime.block_on(lead(build, cli, main));
    // A request that hangs must not keep a process alive that has nothing left to do.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

async fn lead<F, M, R>(build: BuildInfo, cli: Cli<F>, main: M) -> Result<(), Failure>
where
    F: Args,
    M: FnOnce(Context, F) -> R,
    R: Future<Output = Result<(), crate::Error>> + Send,
{
    let Cli { common: flags, own } = cli;
    let stopping = on_signal()?;
    let config = cluster(&flags).await?;
    let metrics = Metrics::new(build).map_err(|error| Failure::Start(error.to_string()))?;
    let health = Health::default();
    let listener = server::listen(flags.listen).await;
    let listener = listener.map_err(|source| Failure::Listen { address: flags.listen, source })?;
    // With port 0 the operating system chooses a port.
    let listen = listener.local_addr().unwrap_or(flags.listen);
    tokio::spawn(server::serve(listener, metrics.clone(), health.clone()));
    tracing::info!(version = build.version, revision = build.revision, %listen, "{} starts", build.name);

    let shield =
        Shield { leadership: Leadership::unquestioned(), metrics: metrics.clone(), deadline: flags.request_timeout };
    let client = |shield: &Shield| -> Result<Client, Failure> {
        shield.client(config.clone()).map_err(|error| Failure::NoCluster(error.to_string()))
    };
    let parts = |client| Parts {
        client,
        operator: build.name.to_owned(),
        namespaces: flags.watch_namespaces.clone(),
        limits: Limits { concurrency: flags.concurrency, reconcile: flags.reconcile_timeout, ..Limits::default() },
        metrics: metrics.clone(),
        health: health.clone(),
        contract: if flags.ownership_contract { InForce::default() } else { InForce::Absent },
        stopping: stopping.clone(),
    };
    if !flags.leader_elect {
        metrics.leads(true);
        main(Context::new(parts(client(&shield)?)), own).await?;
        return Ok(());
    }
    let namespace = flags.lease_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let name = flags.lease_name.as_deref().unwrap_or(build.name);
    let mut election = Election::new(client(&shield)?, &namespace, name, Timing::lasting(flags.lease_duration));
    tracing::info!(lease = %format!("{namespace}/{name}"), identity = election.identity(), "standing by");
    tokio::select! {
        () = election.win() => {}
        () = asked(stopping.clone()) => {
            // The lease may have been won at this very moment.
            election.resign().await;
            return Ok(());
        }
    }
    metrics.leads(true);
    tracing::info!("leading");
    let guarded = Shield { leadership: election.leadership(), ..shield };
    let context = Context::new(parts(client(&guarded)?));
    let ended = tokio::select! {
        ended = main(context, own) => ended.map_err(Failure::from),
        lost = election.keep() => Err(lost.into()),
    };
    metrics.leads(false);
    if ended.is_ok() {
        election.resign().await;
        tracing::info!("stopped");
    }
    ended
}

async fn cluster(flags: &Flags) -> Result<Config, Failure> {
    let config = match &flags.kubeconfig {
        None => Config::infer().await.map_err(|error| error.to_string()),
        Some(path) => match Kubeconfig::read_from(path) {
            Ok(read) => Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        },
    };
    config.map_err(Failure::NoCluster)
}

/// Becomes true on SIGTERM or SIGINT.
fn on_signal() -> Result<watch::Receiver<bool>, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::Start(format!("signals: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("received a signal to stop");
        sender.send_replace(true);
        // The receivers only need the value; the sender may be dropped.
    });
    Ok(receiver)
}

async fn asked(mut stopping: watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

fn set_up_logs(flags: &Flags) -> Result<(), Failure> {
    let filter =
        log_filter(&flags.log_level).map_err(|error| Failure::Flag { flag: "log-level", reason: error.to_string() });
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter.as_ref().map_or_else(|_| EnvFilter::new("info"), Clone::clone))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match flags.log_format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    filter.map(|_| ())
}

/// The log filter. kube logs complete responses that it cannot parse, including Secrets, and its WebSockets log what
/// commands write: each of the two is logged only if the level names it.
///
/// # Errors
///
/// When the level is invalid.
pub fn log_filter(level: &str) -> Result<EnvFilter, ParseError> {
    let mut filter = level.to_owned();
    for (named, quiet) in [("kube_client", "kube_client::client=error"), ("tungstenite", "tungstenite=info")] {
        if !level.contains(named) {
            filter = format!("{filter},{quiet}");
        }
    }
    EnvFilter::try_new(filter)
}

#[cfg(test)]
mod tests;
