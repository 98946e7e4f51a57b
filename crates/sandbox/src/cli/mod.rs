//! The command line of the program `sandbox`.

mod commands;
mod components;
mod diary;
mod doctor;
mod image;
mod lifecycle;
mod parts;
mod style;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::Options;

/// A real Kubernetes on this machine: a control plane, and with `--node` a node that runs pods.
///
/// Built once from pinned sources, then started in seconds. What `sandbox up` starts lives until
/// `sandbox down`; several can run side by side.
#[derive(Debug, Parser)]
#[command(name = "sandbox", version, max_term_width = 100, after_help = ENVIRONMENT)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const ENVIRONMENT: &str = "\
Environment:
  OPCORE_CACHE        where built components are kept  [~/.cache/opcore]
  OPCORE_STATE        where sandboxes live             [~/.local/state/opcore/sandboxes]
  OPCORE_KUBECONFIG   a cluster that `run` and tests use instead of starting one;
                      KUBECONFIG is never used for that: it may be somebody's production
  KUBEBUILDER_ASSETS  a directory with etcd, kube-apiserver and kubectl to use instead of building
  OPCORE_COMPONENTS   the sources of the components    [hack/components of the repository]";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a sandbox that lives until `down`, or add parts to one that runs
    Up(Up),
    /// Stop a sandbox and remove everything that belongs to it
    Down(Down),
    /// Show the sandboxes of this user
    List,
    /// Show the components of a sandbox; fails if one does not run
    Status(Which),
    /// Print the path of a sandbox's kubeconfig
    Kubeconfig(Which),
    /// Run a command with KUBECONFIG set and the components on the PATH
    Exec(Exec),
    /// Run a command with a control plane that exists as long as the command runs
    ///
    /// Sets KUBECONFIG and OPCORE_KUBECONFIG, so that all tests of a run share it, and passes the exit
    /// code on. Where OPCORE_KUBECONFIG is already set, that cluster is used.
    Run(Run),
    /// Print the log of a component
    Logs(Logs),
    /// Build components now rather than on first use
    Build(Build),
    /// Print the path of a component's program, and build it first where that is needed
    Which(Program),
    /// Make images of static programs, and put them into a node
    #[command(subcommand)]
    Image(ImageCommand),
    /// Run an OCI registry in a sandbox, unless it has one, and print how to reach it
    Registry(Registry),
    /// Print what is missing on this machine and how to get it; fails if anything is missing
    Doctor(Doctor),
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
    /// Make an image of a static program: no shell, no root, and the same input gives the same digest
    ///
    /// The program is a layer of its own above everything else, so that a new one does not ship the rest again.
    Build(ImageBuild),
    /// Put an image (an OCI layout, as a tar or a directory) into the node of a sandbox
    Load(ImageLoad),
}

#[derive(Debug, Args)]
struct ImageBuild {
    /// The name of the image with its tag, e.g. my-operator:dev
    #[arg(value_name = "NAME")]
    image: String,
    /// The program that the image runs; it must be linked statically
    #[arg(long, value_name = "PATH")]
    binary: PathBuf,
    /// A file to put into the image, e.g. ./my.conf:/etc/my.conf; may be given several times
    #[arg(long = "file", value_name = "SOURCE:PLACE")]
    files: Vec<String>,
    /// A part to put into the image, ready to be called: opentofu or terraform, with providers and configuration
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    with: Vec<String>,
    /// Do not compress the layers: faster to build and to load into a node, and three times as large
    #[arg(long)]
    uncompressed: bool,
    /// The tar to write [default: the image's name without its tag, here]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ImageLoad {
    #[command(flatten)]
    which: Which,
    /// The tar or directory
    source: PathBuf,
    /// The name that pods use [default: the one that is written in it]
    #[arg(long = "as", value_name = "IMAGE")]
    rename: Option<String>,
}

#[derive(Debug, Args)]
struct Registry {
    #[command(flatten)]
    which: Which,
    /// A registry with a password
    #[arg(long)]
    auth: bool,
}

#[derive(Debug, Args)]
struct Doctor {
    /// Check what a node needs, too
    #[arg(long)]
    node: bool,
}

#[derive(Debug, Args)]
struct Which {
    /// The name of the sandbox
    #[arg(long, default_value = "default")]
    name: String,
}

#[derive(Debug, Args)]
struct Up {
    #[command(flatten)]
    which: Which,
    /// The port of the API server [default: a free one]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Args)]
struct Settings {
    /// Log every request as a line of JSON
    #[arg(long)]
    audit: bool,
    /// Let etcd wait for the disk, as in production: slower, for honest benchmarks
    #[arg(long)]
    durable: bool,
    /// Run a node too, on which pods run; needs root
    #[arg(long)]
    node: bool,
    /// Parts to run beside Kubernetes: git, kustomize-controller, opentofu, prometheus, registry, registry-auth,
    /// source-controller, spire, terraform, traefik
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    with: Vec<String>,
}

impl Settings {
    fn options(&self) -> anyhow::Result<Options> {
        let with = crate::parts::named(&self.with)?;
        Ok(Options { audit: self.audit, durable: self.durable, node: self.node, with, ..Options::default() })
    }
}

#[derive(Debug, Args)]
struct Down {
    #[command(flatten)]
    which: Which,
    /// Stop all sandboxes of this user
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

#[derive(Debug, Args)]
struct Exec {
    #[command(flatten)]
    which: Which,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    settings: Settings,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct Logs {
    #[command(flatten)]
    which: Which,
    /// etcd, apiserver, controller-manager, scheduler, audit (after `up --audit`); with a node also
    /// containerd, kubelet, proxy, node-init; and the parts that were added
    component: String,
    /// Keep printing new lines, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
}

#[derive(Debug, Args)]
struct Build {
    /// Which ones, e.g. kubernetes, traefik, opentofu [default: all]
    #[arg(value_name = "COMPONENT")]
    components: Vec<String>,
}

#[derive(Debug, Args)]
struct Program {
    /// The name of the program, e.g. kubectl or helm
    program: String,
}

/// Runs the command that this process was called with.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(dispatch(cli.command)));
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{} {error:#}", style::error("sandbox:"));
            let interrupted = error.downcast_ref::<Interrupted>();
            interrupted.map_or(ExitCode::FAILURE, |i| ExitCode::from(128 + i.number))
        }
    }
}

async fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(args) => interruptible(lifecycle::up(args)).await,
        Command::Down(args) => lifecycle::down(&args),
        Command::List => lifecycle::list(),
        Command::Status(which) => lifecycle::status(&which.name).await,
        Command::Kubeconfig(which) => lifecycle::kubeconfig(&which.name),
        Command::Exec(args) => commands::exec(&args),
        Command::Run(args) => commands::run(args).await,
        Command::Logs(args) => commands::logs(&args),
        Command::Build(args) => interruptible(components::build(&args.components)).await,
        Command::Which(args) => interruptible(components::which(&args.program)).await,
        Command::Image(ImageCommand::Build(args)) => interruptible(image::build(&args)).await,
        Command::Image(ImageCommand::Load(args)) => interruptible(image::load(&args)).await,
        Command::Registry(args) => interruptible(parts::registry(&args)).await,
        Command::Doctor(args) => doctor::doctor(args.node).await,
    }
}

/// The work was ended by a signal, after everything it had begun was undone.
#[derive(Debug)]
struct Interrupted {
    number: u8,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupted; what was begun is undone.")
    }
}

impl std::error::Error for Interrupted {}

/// Does the work, unless a signal says to stop: then the work is dropped, which undoes what it began.
async fn interruptible<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let number = tokio::select! {
        result = work => return result,
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
        _ = hangup.recv() => 1,
    };
    Err(Interrupted { number }.into())
}
