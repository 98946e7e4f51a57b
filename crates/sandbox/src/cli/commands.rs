//! `exec`, `run`, `logs`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::{Exec, Logs, Run, interruptible, lifecycle, style};
use crate::binaries::Binaries;
use crate::home::Home;
use crate::node::{Network, remains};
use crate::parts::{self, Pods};
use crate::progress::{Progress, human};
use crate::state::Existing;
use crate::{Component, Sandbox};

pub(super) fn exec(args: &Exec) -> anyhow::Result<ExitCode> {
    let existing = lifecycle::usable(&args.which.name)?;
    let mut command = prepared(&args.command, &existing.home.kubeconfig(), &Binaries::from(existing.state.programs))?;
    announce(&mut command, &existing.home, existing.state.audit);
    // Only a failure comes back: the command takes the place of this process.
    let error = command.exec();
    Ok(not_started(&args.command, &error))
}

pub(super) async fn run(args: Run) -> anyhow::Result<ExitCode> {
    let given = crate::env_path("OPCORE_KUBECONFIG");
    let (command, sandbox) = if let Some(kubeconfig) = given {
        (prepared(&args.command, &kubeconfig, &Binaries::at_hand())?, None)
    } else {
        let progress = Progress::detect();
        let options = args.settings.options()?;
        let start = async {
            let binaries = Binaries::for_sandbox(&options, progress).await?;
            let started = std::time::Instant::now();
            let sandbox = Sandbox::start_with(options, binaries.clone()).await?;
            eprintln!("Control plane ready after {}.", human(started.elapsed()));
            anyhow::Ok((sandbox, binaries))
        };
        let (sandbox, binaries) = interruptible(start).await?;
        let mut command = prepared(&args.command, sandbox.kubeconfig(), &binaries)?;
        announce(&mut command, sandbox.plane()?.home(), args.settings.audit);
        (command, Some(sandbox))
    };

    // From here on signals are the command's business: we stay until it has ended, to end the rest.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut child = match tokio::process::Command::from(command).spawn() {
        Ok(child) => child,
        Err(error) => return Ok(not_started(&args.command, &error)),
    };
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let forward = |signal| {
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    };
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            // Ctrl-C in a terminal reaches the command by itself; it must not get it twice.
            _ = interrupt.recv() => if !at_a_terminal() { forward(Signal::INT) },
            _ = terminate.recv() => forward(Signal::TERM),
            _ = hangup.recv() => forward(Signal::HUP),
        }
    };
    drop(sandbox);
    Ok(exit_code(status))
}

pub(super) fn logs(args: &Logs) -> anyhow::Result<ExitCode> {
    let existing = lifecycle::usable(&args.which.name)?;
    let component = args.component.parse::<Component>();
    if let Ok(Component::Part(part)) = &component {
        if !existing.state.parts.contains(part) {
            bail!("Sandbox {} has no {part}: add it with `sandbox up --with {part}`.", existing.name);
        }
        if let Some(pods) = part.pods() {
            return logs_of_pods(pods, &existing, args);
        }
        if part.is_images() {
            bail!("{part} is images for pods, which keep their own logs: `sandbox exec -- kubectl logs`.");
        }
        if !part.is_process() {
            bail!("{part} is a program to be called, and keeps no log.");
        }
    }
    let path = if args.component == "audit" {
        if !existing.state.audit {
            bail!("Sandbox {} keeps no audit log: start one with `sandbox up --audit`.", existing.name);
        }
        existing.home.audit_log()
    } else {
        existing.home.log(component?)
    };
    match print(&path, args) {
        // The reader has closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error).with_context(|| format!("Cannot read {}", path.display())),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

/// Those that the node keeps, as kubectl prints them.
fn logs_of_pods(pods: &Pods, existing: &Existing, args: &Logs) -> anyhow::Result<ExitCode> {
    let binaries = Binaries::from(existing.state.programs.clone());
    let mut command = Command::new(binaries.get("kubectl")?);
    command.arg("--kubeconfig").arg(existing.home.kubeconfig()).args(["logs", "--namespace", pods.namespace]);
    command.arg(format!("deployment/{}", pods.deployment)).arg(format!("--follow={}", args.follow));
    command.args(args.lines.map(|lines| format!("--tail={lines}")));
    announce(&mut command, &existing.home, false);
    Err(command.exec()).context("Cannot run kubectl")
}

fn print(path: &Path, args: &Logs) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut file = File::open(path)?;
    if let Some(lines) = args.lines {
        let start = start_of_last(lines, &mut file)?;
        file.seek(SeekFrom::Start(start))?;
    }
    loop {
        io::copy(&mut file, &mut out)?;
        out.flush()?;
        if !args.follow || !path.exists() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Where the last lines of a file begin.
fn start_of_last(lines: usize, file: &mut File) -> io::Result<u64> {
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    let body = content.strip_suffix(b"\n").unwrap_or(&content);
    let start = body
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, byte)| **byte == b'\n')
        .nth(lines.saturating_sub(1))
        .map_or(0, |(at, _)| at + 1);
    let start = if lines == 0 { content.len() } else { start };
    Ok(start as u64)
}

/// A command that finds the cluster and the programs.
fn prepared(command: &[OsString], kubeconfig: &Path, binaries: &Binaries) -> anyhow::Result<Command> {
    let (program, arguments) = command.split_first().context("There is no command to run.")?;
    let search_path = binaries.search_path()?;
    // Found here rather than by the operating system, which would look on our own path.
    let program = match Path::new(program).components().count() {
        1 => std::env::split_paths(&search_path)
            .map(|dir| dir.join(program))
            .find(|file| file.is_file())
            .unwrap_or_else(|| PathBuf::from(program)),
        _ => PathBuf::from(program),
    };
    let mut command = Command::new(program);
    command.args(arguments).env("KUBECONFIG", kubeconfig).env("OPCORE_KUBECONFIG", kubeconfig).env("PATH", search_path);
    // `cargo run` tells its program which package it belongs to. To a cargo inside, that would be news: some build
    // scripts ask for it, and half of the dependencies would be built anew.
    let of_cargo = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for name in std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_str().is_some_and(of_cargo)) {
        command.env_remove(name);
    }
    Ok(command)
}

/// Sets the variables from which tests inside know that the cluster is a sandbox, and where its logs are.
fn announce(command: &mut Command, home: &Home, audit: bool) {
    command.env("OPCORE_SANDBOX_HOME", home.dir());
    if audit {
        command.env("OPCORE_SANDBOX_AUDIT", "1");
    }
    if home.srv().is_dir() {
        command.env("OPCORE_SRV", home.srv());
    }
    let facts = parts::facts_of_all(home);
    if !facts.is_empty() || remains::network(home).is_some() {
        // They are on this machine, whatever proxy leads elsewhere. kubectl knows that of loopback, git does not.
        for variable in ["NO_PROXY", "no_proxy"] {
            let others = std::env::var(variable).ok().filter(|others| !others.is_empty());
            let own = format!("127.0.0.1,{}", Network::ALL);
            command.env(variable, others.map_or(own.clone(), |others| format!("{others},{own}")));
        }
    }
    command.envs(facts);
}

/// As a shell reports it.
fn not_started(command: &[OsString], error: &io::Error) -> ExitCode {
    let name = command.first().map(|c| c.to_string_lossy()).unwrap_or_default();
    eprintln!("{} Cannot run {name}: {error}", style::error("sandbox:"));
    match error.kind() {
        ErrorKind::NotFound => ExitCode::from(127),
        _ => ExitCode::from(126),
    }
}

/// As a shell reports it: 128 and the signal for a command that was ended by one.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

fn at_a_terminal() -> bool {
    io::IsTerminal::is_terminal(&io::stdin())
}
