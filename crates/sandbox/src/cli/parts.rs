//! Parts that are added to a sandbox which runs: `up --with`, `registry`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::diary::{Diary, watched};
use super::style::say;
use super::{Registry, lifecycle, style};
use crate::binaries::Binaries;
use crate::control_plane::ControlPlane;
use crate::home::Home;
use crate::parts::{self, Work};
use crate::process::{self, ProcessId};
use crate::progress::{Progress, human};
use crate::state::{self, Existing, Health, Sandboxes, State};
use crate::{Component, Options, Part};

pub(super) async fn registry(args: &Registry) -> anyhow::Result<ExitCode> {
    let part: Part = if args.auth { "registry-auth" } else { "registry" }.parse()?;
    let existing = lifecycle::usable(&args.which.name)?;
    if existing.health == Health::Running {
        add(&existing, &[part]).await?;
    } else if !existing.state.parts.contains(&part) {
        bail!("Sandbox {} is broken: look at it with `sandbox status`.", existing.name);
    }
    for (variable, value) in parts::facts_of(&existing.home, part)? {
        say!("{variable}={value}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds those that a running sandbox does not have.
pub(super) async fn add(existing: &Existing, wanted: &[Part]) -> anyhow::Result<()> {
    let name = &existing.name;
    let sandboxes = Sandboxes::from_env()?;
    let new = |state: &State| wanted.iter().copied().filter(|part| !state.parts.contains(part)).collect::<Vec<_>>();
    if new(&existing.state).is_empty() {
        return Ok(());
    }
    let progress = Progress::detect();
    let node = existing.state.node;
    let options = Options { node, with: new(&existing.state), ..Options::default() };
    if let Some(part) = options.with.iter().find(|part| part.definition().needs_node && !node) {
        bail!(
            "{part} runs in pods, and sandbox {name} has no node: start one beside it with `sandbox up --node --with \
             {part} --name NAME`."
        );
    }
    let binaries = Binaries::for_parts(&options.with, node, progress).await?;

    let started = Instant::now();
    let _lock = existing.hold()?;
    // Somebody else may have added some while these were built, or the sandbox may have gone.
    let existing = sandboxes.get(name)?;
    let added = new(&existing.state);
    let mut state = existing.state.clone();
    // What an attempt that was killed has started, and had no time to finish.
    let begun = added.iter().filter_map(|part| state.components.remove(&Component::Part(*part)));
    let begun: Vec<ProcessId> = begun.map(|record| record.process).collect();
    process::end(&begun, Duration::ZERO)?;
    state.programs.extend(binaries.files().clone());
    let diary = Diary::new(existing.home.clone(), state);
    let undo = Undo { home: existing.home.clone(), before: Some(existing.state), added: added.clone() };
    let plane = ControlPlane::attach(existing.home.clone(), binaries, options)?;
    let start = async {
        for part in &added {
            Box::pin(plane.add(*part, &diary)).await?;
        }
        Ok(())
    };
    watched(start, &diary, progress.step(name)).await?;
    state::write(&existing.home, &diary.state())?;
    undo.not();
    plane.detach();
    // Not among what scripts read.
    eprintln!("Sandbox {name} has more parts after {} ({}).", human(started.elapsed()), diary.breakdown());
    Ok(())
}

/// Removes the files of parts that were to be added and writes the state back, unless they were added.
struct Undo {
    home: Home,
    before: Option<State>,
    added: Vec<Part>,
}

impl Undo {
    fn not(mut self) {
        self.before = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            for part in &self.added {
                let _ = std::fs::remove_dir_all(self.home.part(part.name()));
            }
            let _ = state::write(&self.home, before);
        }
    }
}

/// Prints how each part of a sandbox is reached.
pub(super) fn print_facts(home: &Home, state: &State) -> anyhow::Result<()> {
    for part in &state.parts {
        for (variable, value) in parts::facts_of(home, *part)?.into_iter().take(1) {
            say!("  {part:<13} {value} {}", style::faint(format!("({variable})")));
        }
    }
    Ok(())
}

/// A line of `status` for each part that is not a process: whether all of them do their work.
pub(super) async fn status(existing: &Existing) -> bool {
    let mut all_run = true;
    for part in &existing.state.parts {
        let state = match &part.definition().work {
            Work::Process { .. } => continue,
            Work::Images(_) | Work::Files { .. } => style::good("ready"),
            Work::Pods(pods) => match parts::pods_run(pods, &existing.home).await {
                Ok(true) => style::good("running"),
                Ok(false) => {
                    all_run = false;
                    style::bad("dead")
                }
                Err(_) => {
                    all_run = false;
                    style::bad("unknown: the API server does not say")
                }
            },
        };
        say!("{part:<24} {state}");
    }
    all_run
}
