//! Homes of sandboxes that live as long as a process: nothing of them outlives it, however it ends.
//!
//! A small companion process removes the directory when it sees its owner end. Should the companion be
//! killed as well, the next sandbox finds a directory whose lock is free, and removes it.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

use crate::home::Home;
use crate::node::{cgroup, remains};
use crate::{dirlock, process};

const PREFIX: &str = "opcore-sandbox-";

/// Reading ends when the last writer, its owner, is gone. Processes that are just dying may still write
/// into the directory or stand in a control group, so removing them may take a few attempts.
const COMPANION: &str = r#"read -r _
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  left=
  for group in /sys/fs/cgroup/"$1" /sys/fs/cgroup/*/"$1"; do
    [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} + || left=1
  done
  rm -rf -- "$0" && [ -z "$left" ] && exit
  sleep 0.2
done"#;

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
        dirlock::sweep(&parent, PREFIX, |dir| {
            let home = Home::at(dir);
            let _ = process::end(&home.marked_processes(), Duration::ZERO);
            let _ = remains::clear(&home);
        });
        let create = || -> io::Result<Self> {
            // Keys lie in there.
            let private = Permissions::from_mode(0o700);
            let dir = tempfile::Builder::new().prefix(PREFIX).permissions(private).tempdir_in(&parent)?;
            let lock = dirlock::take(dir.path())?;
            let companion = Command::new("/bin/sh")
                .args(["-c", COMPANION])
                .arg(dir.path())
                .arg(cgroup::name(&Home::at(dir.path())))
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
        // The companion would do it too, a little later.
        let _ = remains::clear(&self.home());
        drop(self.companion.stdin.take());
        let _ = self.companion.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
