//! `up`, `down`, `list`, `status`, `kubeconfig`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use jiff::Timestamp;

use super::diary::{Diary, watched};
use super::style::say;
use super::{Down, Up, parts, style};
use crate::binaries::Binaries;
use crate::control_plane::ControlPlane;
use crate::home::Home;
use crate::launch::Lifetime;
use crate::node::{Network, remains};
use crate::progress::{Progress, human};
use crate::state::{Existing, Health, Phase, Sandboxes, State};
use crate::{Component, Options};

pub(super) async fn up(args: Up) -> anyhow::Result<ExitCode> {
    let name = &args.which.name;
    let sandboxes = Sandboxes::from_env()?;
    sweep(&sandboxes);
    if let Some(existing) = sandboxes.find(name)? {
        return already_there(&existing, &args.settings.options()?).await;
    }
    let options = Options { port: args.port, ..args.settings.options()? };
    let progress = Progress::detect();
    let binaries = Binaries::for_sandbox(&options, progress).await?;

    let started = Instant::now();
    let state = State {
        phase: Phase::Starting,
        created: Timestamp::now(),
        owner: std::process::id(),
        audit: options.audit,
        node: options.node,
        components: BTreeMap::new(),
        parts: BTreeSet::new(),
        programs: binaries.files().clone(),
    };
    let reservation = sandboxes.reserve(name, &state)?;
    let diary = Diary::new(reservation.home().clone(), state);
    let home = reservation.home().clone();
    let start = ControlPlane::start(home, binaries, options, Lifetime::UntilDown, &diary);
    let plane = watched(start, &diary, progress.step(name)).await?;
    let mut state = diary.state();
    state.phase = Phase::Running;
    reservation.complete(&state)?;
    let home = plane.home().clone();
    plane.detach();

    let option = which_option(name);
    say!(
        "{} after {} {}",
        style::good(format!("Sandbox {name} is ready")),
        human(started.elapsed()),
        style::faint(format!("({})", diary.breakdown()))
    );
    say!("  kubeconfig    {}", home.kubeconfig().display());
    if state.node {
        say!("  /srv          {}", home.srv().display());
    }
    parts::print_facts(&home, &state)?;
    say!("  use it        sandbox exec{option} -- kubectl get namespaces");
    say!("  stop it       sandbox down{option}");
    Ok(ExitCode::SUCCESS)
}

async fn already_there(existing: &Existing, options: &Options) -> anyhow::Result<ExitCode> {
    let name = &existing.name;
    let option = which_option(name);
    match &existing.health {
        Health::Running if options.node && !existing.state.node => bail!(
            "Sandbox {name} is running without a node: start one beside it under another --name, or remove it \
             with `sandbox down{option}` first."
        ),
        Health::Running => {
            parts::add(existing, &options.with).await?;
            say!("Sandbox {name} is already running.");
            say!("  kubeconfig    {}", existing.home.kubeconfig().display());
            parts::print_facts(&existing.home, &Sandboxes::from_env()?.get(name)?.state)?;
            Ok(ExitCode::SUCCESS)
        }
        Health::Starting | Health::HalfStarted => {
            bail!("Sandbox {name} is being started by process {}.", existing.state.owner)
        }
        Health::Broken(dead) => bail!(
            "Sandbox {name} exists, but {}: look at it with `sandbox status{option}`, or remove it \
             with `sandbox down{option}` and start again.",
            does_not_run(dead)
        ),
    }
}

pub(super) fn down(args: &Down) -> anyhow::Result<ExitCode> {
    let sandboxes = Sandboxes::from_env()?;
    let swept = sweep(&sandboxes);
    let names = if args.all {
        sandboxes.names()
    } else if swept.contains(&args.which.name) {
        Vec::new()
    } else {
        vec![args.which.name.clone()]
    };
    if args.all && names.is_empty() && swept.is_empty() {
        say!("There is no sandbox to stop.");
    }
    // One that cannot be stopped must not keep the others.
    let mut failures = Vec::new();
    for name in names {
        match sandboxes.get(&name).and_then(|sandbox| sandboxes.remove(&sandbox)) {
            Ok(()) => say!("Sandbox {name} is gone."),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    if failures.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(anyhow!("{}", failures.join("\n"))) }
}

pub(super) fn list() -> anyhow::Result<ExitCode> {
    let sandboxes = Sandboxes::from_env()?;
    sweep(&sandboxes);
    let names = sandboxes.names();
    if names.is_empty() {
        say!("There is no sandbox. Start one with: sandbox up");
        return Ok(ExitCode::SUCCESS);
    }
    let width = names.iter().map(String::len).max().unwrap_or(0).max(4);
    say!("{}", style::faint(format!("{:<width$}  {:<10} {:<8} SERVER", "NAME", "STATE", "AGE")));
    for name in names {
        // One that is damaged or just went must not hide the others.
        let existing = match sandboxes.find(&name) {
            Ok(Some(existing)) => existing,
            Ok(None) => continue,
            Err(error) => {
                say!("{name:<width$}  {}", style::bad(format!("{error:#}")));
                continue;
            }
        };
        let server = existing
            .state
            .components
            .get(&Component::ApiServer)
            .map_or_else(|| "-".to_owned(), |r| format!("https://{}:{}", api_address(&existing.home), r.port));
        let (state, note) = match &existing.health {
            Health::Running => (style::good(format!("{:<10}", "running")), String::new()),
            Health::Starting | Health::HalfStarted => (format!("{:<10}", "starting"), String::new()),
            Health::Broken(dead) => (style::bad(format!("{:<10}", "broken")), format!("  {}", does_not_run(dead))),
        };
        let age = age(existing.state.created);
        say!("{name:<width$}  {state} {age:<8} {server}{note}");
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn status(name: &str) -> anyhow::Result<ExitCode> {
    let sandboxes = Sandboxes::from_env()?;
    sweep(&sandboxes);
    let existing = sandboxes.get(name)?;
    let header = format!("{:<24} {:<8} {:>8} {:>6} {:>8}  UPTIME", "COMPONENT", "STATE", "PID", "PORT", "MEMORY");
    say!("{}", style::faint(header));
    let mut all_run = true;
    for component in existing.state.expected() {
        let Some(record) = existing.state.components.get(&component) else {
            say!("{component:<24} {:<8}", "-");
            all_run = false;
            continue;
        };
        let alive = record.process.is_alive();
        all_run &= alive;
        let (state, memory, uptime) = if alive {
            let memory = record.process.memory().map_or(0, |bytes| bytes >> 20);
            let state = style::good(format!("{:<8}", "running"));
            (state, format!("{memory} MiB"), age(record.started))
        } else {
            let state = style::bad(format!("{:<8}", "dead"));
            (state, "-".to_owned(), "-".to_owned())
        };
        let port = if record.port == 0 { "-".to_owned() } else { record.port.to_string() };
        say!("{component:<24} {state} {:>8} {port:>6} {memory:>8}  {uptime}", record.process.pid);
    }
    all_run &= parts::status(&existing).await;
    say!("kubeconfig: {}", existing.home.kubeconfig().display());
    parts::print_facts(&existing.home, &existing.state)?;
    if all_run {
        return Ok(ExitCode::SUCCESS);
    }
    if existing.health != Health::Starting {
        let option = which_option(name);
        say!("The logs of those that ended: sandbox logs{option} COMPONENT. Remove everything: sandbox down{option}");
    }
    Ok(ExitCode::FAILURE)
}

pub(super) fn kubeconfig(name: &str) -> anyhow::Result<ExitCode> {
    let existing = usable(name)?;
    say!("{}", existing.home.kubeconfig().display());
    Ok(ExitCode::SUCCESS)
}

/// A sandbox that has started.
pub(super) fn usable(name: &str) -> anyhow::Result<Existing> {
    let sandboxes = Sandboxes::from_env()?;
    sweep(&sandboxes);
    let existing = sandboxes.get(name)?;
    if existing.health == Health::Starting {
        bail!("Sandbox {name} is still being started: try again when it is ready.");
    }
    Ok(existing)
}

/// Removes what killed commands left, and reports it.
fn sweep(sandboxes: &Sandboxes) -> Vec<String> {
    let mut removed = Vec::new();
    for (name, result) in sandboxes.sweep() {
        match result {
            Ok(()) => {
                eprintln!("Sandbox {name} was started only in part, by a command that was killed: it is removed.");
                removed.push(name);
            }
            Err(error) => eprintln!("Sandbox {name} was started only in part, and cannot be removed: {error:#}"),
        }
    }
    removed
}

fn does_not_run(dead: &[Component]) -> String {
    let names: Vec<&str> = dead.iter().map(|c| c.name()).collect();
    let verb = if names.len() == 1 { "does" } else { "do" };
    format!("{} {verb} not run", names.join(", "))
}

fn which_option(name: &str) -> String {
    if name == "default" { String::new() } else { format!(" --name {name}") }
}

/// Where the API server of a sandbox listens.
fn api_address(home: &Home) -> Ipv4Addr {
    remains::network(home).map_or(Ipv4Addr::LOCALHOST, Network::host)
}

fn age(since: Timestamp) -> String {
    human(Duration::try_from(Timestamp::now().duration_since(since)).unwrap_or_default())
}
