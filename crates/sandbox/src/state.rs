//! Sandboxes that live until they are removed: one directory each, in the user's state directory.
//!
//! A directory appears under its name in one step, with its lock held and its state written. Whoever
//! starts it holds the lock until it is ready. So one that is "starting" while its lock is free was left
//! behind by a start that was killed, and can be removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::home::Home;
use crate::node::remains;
use crate::pki::write_private;
use crate::process::{self, ProcessId};
use crate::{Component, Part, dirlock};

/// How long components may take to end by themselves. Their data is removed, so it need not be long.
const GRACE: Duration = Duration::from_secs(2);

/// What is written down about a sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) created: Timestamp,
    /// Who starts it, or did.
    pub(crate) owner: u32,
    pub(crate) audit: bool,
    /// Whether it has a node.
    #[serde(default)]
    pub(crate) node: bool,
    pub(crate) components: BTreeMap<Component, Record>,
    /// What was added to it, processes or not.
    #[serde(default)]
    pub(crate) parts: BTreeSet<Part>,
    /// The files of its programs.
    pub(crate) programs: BTreeMap<String, PathBuf>,
}

impl State {
    /// The processes that it consists of.
    pub(crate) fn expected(&self) -> impl Iterator<Item = Component> {
        let parts = self.parts.iter().copied().filter(|part| part.is_process());
        Component::of_sandbox(self.node).chain(parts.map(Component::Part))
    }

    fn unreadable() -> Self {
        Self {
            phase: Phase::Running,
            created: Timestamp::UNIX_EPOCH,
            owner: 0,
            audit: false,
            node: false,
            components: BTreeMap::new(),
            parts: BTreeSet::new(),
            programs: BTreeMap::new(),
        }
    }
}

/// How far its start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    Starting,
    Running,
}

/// A component of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) process: ProcessId,
    pub(crate) port: u16,
    pub(crate) started: Timestamp,
}

/// All sandboxes of this user.
#[derive(Clone, Debug)]
pub(crate) struct Sandboxes {
    dir: PathBuf,
}

/// One that exists.
#[derive(Debug)]
pub(crate) struct Existing {
    pub(crate) name: String,
    pub(crate) home: Home,
    pub(crate) state: State,
    pub(crate) health: Health,
}

impl Existing {
    /// Takes its lock: while it is held no other process adds to it or removes it.
    ///
    /// # Errors
    /// Another process holds it.
    pub(crate) fn hold(&self) -> anyhow::Result<File> {
        let name = &self.name;
        // One that lost its lock gets a new one: whoever starts one has it from the beginning.
        let lock = File::options().create(true).append(true).open(self.home.lock());
        let lock = lock.with_context(|| format!("Cannot lock sandbox {name}"))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => bail!(
                "Sandbox {name} is being started, changed or stopped by another process (it was started by {}): \
                 wait for it, or interrupt it.",
                self.state.owner
            ),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }
}

/// What has become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Another process starts it now.
    Starting,
    Running,
    /// These components have ended.
    Broken(Vec<Component>),
    /// Its start was killed.
    HalfStarted,
}

/// A name that is taken, and the directory to fill. Removed again when dropped, unless it is completed.
#[derive(Debug)]
pub(crate) struct Reservation {
    home: Home,
    lock: File,
    kept: bool,
}

impl Sandboxes {
    /// `OPCORE_STATE`, else `opcore/sandboxes` in the user's state directory.
    pub(crate) fn from_env() -> anyhow::Result<Self> {
        let dir = crate::env_path("OPCORE_STATE")
            .or_else(|| Some(crate::user_dir("XDG_STATE_HOME", ".local/state")?.join("sandboxes")))
            .context("There is no place for sandboxes: set OPCORE_STATE or HOME.")?;
        Ok(Self { dir })
    }

    #[cfg(test)]
    fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub(crate) fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// Takes a name.
    ///
    /// # Errors
    /// The name cannot be used or is taken.
    pub(crate) fn reserve(&self, name: &str, state: &State) -> anyhow::Result<Reservation> {
        valid(name)?;
        let refused =
            || format!("Sandboxes cannot be kept in {} (set OPCORE_STATE to another directory)", self.dir.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).with_context(refused)?;
        // Keys lie in there.
        let private = Permissions::from_mode(0o700);
        let draft = tempfile::Builder::new().prefix(".new-").permissions(private).tempdir_in(&self.dir);
        let draft = draft.with_context(refused)?;
        let lock = dirlock::take(draft.path()).with_context(refused)?;
        write(&Home::at(draft.path()), state)?;
        let home = self.home(name);
        // The kernel refuses to put a directory over one that is not empty: only one can win.
        match fs::rename(draft.path(), home.dir()) {
            Ok(()) => {
                let _ = draft.keep();
                Ok(Reservation { home, lock, kept: false })
            }
            Err(e) if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
                bail!("There is a sandbox {name} already.")
            }
            Err(error) => Err(error).with_context(refused),
        }
    }

    /// The names that are taken. What else lies in the directory is not ours.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|name| !name.starts_with('.') && self.home(name).state().exists())
            .collect();
        names.sort();
        names
    }

    /// One by its name; `None` when there is none.
    pub(crate) fn find(&self, name: &str) -> anyhow::Result<Option<Existing>> {
        valid(name)?;
        let home = self.home(name);
        let text = match fs::read(home.state()) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| format!("Cannot read {}", home.state().display())),
        };
        // One whose state cannot be read is broken: its processes carry a mark, so it can still be removed.
        let state: State = serde_json::from_slice(&text).unwrap_or_else(|_| State::unreadable());
        let starter_at_work =
            File::open(home.lock()).is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
        let dead: Vec<Component> =
            state.expected().filter(|c| state.components.get(c).is_none_or(|r| !r.process.is_alive())).collect();
        let health = match (state.phase, starter_at_work) {
            (Phase::Starting, true) => Health::Starting,
            (Phase::Starting, false) => Health::HalfStarted,
            (Phase::Running, _) if dead.is_empty() => Health::Running,
            (Phase::Running, _) => Health::Broken(dead),
        };
        Ok(Some(Existing { name: name.to_owned(), home, state, health }))
    }

    /// One by its name.
    ///
    /// # Errors
    /// There is none: the error lists those that exist.
    pub(crate) fn get(&self, name: &str) -> anyhow::Result<Existing> {
        self.find(name)?.ok_or_else(|| {
            let names = self.names();
            let known = if names.is_empty() {
                "there is none; start one with: sandbox up".to_owned()
            } else {
                format!("there is {}", names.join(", "))
            };
            anyhow!("There is no sandbox {name}: {known}.")
        })
    }

    /// Ends the processes of a sandbox and removes its directory.
    ///
    /// # Errors
    /// It is being started, or a process does not end.
    pub(crate) fn remove(&self, sandbox: &Existing) -> anyhow::Result<()> {
        let (name, home) = (&sandbox.name, &sandbox.home);
        if !home.dir().exists() {
            return Ok(());
        }
        let lock = sandbox.hold()?;
        // Somebody may have removed it, and even made a new one, since it was looked at.
        let same = |path: PathBuf| {
            let (now, then) = (fs::metadata(path), lock.metadata());
            matches!((now, then), (Ok(a), Ok(b)) if a.ino() == b.ino())
        };
        if !same(home.lock()) {
            return Ok(());
        }
        // Those that are written down, and those that a killed start had no time to write down.
        let mut processes = home.marked_processes();
        let recorded = sandbox.state.components.values().map(|r| r.process.clone());
        processes.extend(recorded);
        process::end(&processes, GRACE).with_context(|| format!("Cannot stop sandbox {name}"))?;
        remains::clear(home).with_context(|| format!("Cannot remove all of sandbox {name}"))?;
        self.discard(home)
    }

    /// Removes a directory: first its name, so that it is never visible in part.
    fn discard(&self, home: &Home) -> anyhow::Result<()> {
        let trash = tempfile::Builder::new().prefix(".old-").tempdir_in(&self.dir)?;
        fs::rename(home.dir(), trash.path().join("sandbox"))
            .with_context(|| format!("Cannot remove {}", home.dir().display()))?;
        trash.close().with_context(|| format!("Cannot remove all of {}", home.dir().display()))?;
        // The last one leaves no trace at all; with others beside it this fails, as it should.
        let _ = fs::remove_dir(&self.dir);
        Ok(())
    }

    /// Removes what interrupted commands left: drafts, remains, and sandboxes whose start was killed.
    /// Returns the latter by name, each with what came of it.
    pub(crate) fn sweep(&self) -> Vec<(String, anyhow::Result<()>)> {
        for prefix in [".new-", ".old-"] {
            dirlock::sweep(&self.dir, prefix, |_| {});
        }
        let mut removed = Vec::new();
        for name in self.names() {
            if let Ok(Some(sandbox)) = self.find(&name)
                && sandbox.health == Health::HalfStarted
            {
                removed.push((name, self.remove(&sandbox)));
            }
        }
        removed
    }

    fn home(&self, name: &str) -> Home {
        Home::at(self.dir.join(name))
    }
}

impl Reservation {
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// The sandbox is ready: it stays.
    pub(crate) fn complete(mut self, state: &State) -> anyhow::Result<()> {
        write(&self.home, state)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.kept {
            // Closing alone would not do while another thread is starting a process: that has the file too.
            let _ = self.lock.unlock();
            return;
        }
        let _ = process::end(&self.home.marked_processes(), Duration::ZERO);
        let _ = remains::clear(&self.home);
        if let Some(dir) = self.home.dir().parent() {
            let _ = Sandboxes { dir: dir.to_owned() }.discard(&self.home);
        }
    }
}

/// Writes the state of a sandbox so that a reader sees all of it or none.
pub(crate) fn write(home: &Home, state: &State) -> anyhow::Result<()> {
    let draft = home.dir().join("state.json.new");
    write_private(&draft, &serde_json::to_vec_pretty(state)?)?;
    fs::rename(&draft, home.state()).with_context(|| format!("Cannot write {}", home.state().display()))
}

fn valid(name: &str) -> anyhow::Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 40 || name.starts_with('-') || !name.chars().all(fits) {
        bail!("{name:?} cannot be the name of a sandbox: use up to 40 lower-case letters, digits and hyphens.");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
