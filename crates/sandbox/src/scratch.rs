//! Homes of sandboxes that live as long as a process: nothing of them outlives it, however it ends.
//!
//! A small companion process removes the directory when it sees its owner end. Should the companion be
//! killed as well, the next sandbox finds a directory whose lock is free, and removes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

use crate::home::Home;
use crate::process;

const PREFIX: &str = "opcore-sandbox-";

/// Reading ends when the last writer, its owner, is gone. Processes that are just dying may still write
/// into the directory, so removing it may take a few attempts.
const COMPANION: &str = r#"read -r _; for _ in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$0" && exit; sleep 0.2; done"#;

/// A directory that is removed with its owner.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: TempDir,
    companion: Child,
    _lock: File,
}

impl Scratch {
    pub(crate) fn create() -> anyhow::Result<Self> {
        let parent = std::path::absolute(std::env::temp_dir())?;
        sweep(&parent);
        let create = || -> io::Result<Self> {
            let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent)?;
            let lock = locked(dir.path())?;
            let companion = Command::new("/bin/sh")
                .args(["-c", COMPANION])
                .arg(dir.path())
                .process_group(0)
                .current_dir("/")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            Ok(Self { dir, companion, _lock: lock })
        };
        create().with_context(|| format!("Cannot make a directory in {}", parent.display()))
    }

    pub(crate) fn home(&self) -> Home {
        Home::at(self.dir.path())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.companion.stdin.take());
        let _ = self.companion.wait();
    }
}

/// A file `lock` in `dir` that is locked from the moment it is seen.
pub(crate) fn locked(dir: &Path) -> io::Result<File> {
    let draft = dir.join("lock.new");
    let file = File::create(&draft)?;
    file.lock()?;
    fs::rename(draft, dir.join("lock"))?;
    Ok(file)
}

/// Removes the homes of owners that are gone.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let home = Home::at(entry.path());
        let abandoned = match File::open(home.lock()) {
            Ok(lock) => lock.try_lock().is_ok(),
            // Just being made, or abandoned in that very moment: time tells.
            Err(_) => entry
                .metadata()
                .and_then(|m| m.modified())
                .is_ok_and(|t| t.elapsed().is_ok_and(|age| age > Duration::from_mins(10))),
        };
        if abandoned {
            // Another user's cannot be ended nor removed, and is not ours to complain about.
            let _ = process::end(&home.marked_processes(), Duration::ZERO);
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_owner_left_is_removed_and_what_a_living_one_uses_is_not() -> anyhow::Result<()> {
        let parent = tempfile::tempdir()?;
        let used = parent.path().join("opcore-sandbox-used");
        let left = parent.path().join("opcore-sandbox-left");
        let foreign = parent.path().join("something-else");
        for dir in [&used, &left, &foreign] {
            fs::create_dir(dir)?;
        }
        let lock = locked(&used)?;
        drop(locked(&left)?);
        drop(locked(&foreign)?);
        let being_made = parent.path().join("opcore-sandbox-new");
        fs::create_dir(&being_made)?;

        sweep(parent.path());

        assert!(used.exists() && foreign.exists() && being_made.exists());
        assert!(!left.exists());
        drop(lock);
        Ok(())
    }

    #[test]
    fn a_scratch_home_is_gone_when_it_is_dropped() -> anyhow::Result<()> {
        let scratch = Scratch::create()?;
        let dir = scratch.home().dir().to_owned();
        assert!(dir.join("lock").exists());
        drop(scratch);
        assert!(!dir.exists());
        Ok(())
    }
}
