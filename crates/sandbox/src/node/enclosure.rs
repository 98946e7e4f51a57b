//! The namespaces of a node, and how a process is started inside.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::binaries::Binaries;
use crate::home::Home;
use crate::process::ProcessId;

/// Prepares the namespaces from inside.
const INIT: &str = include_str!("init.sh");

/// What a process sees of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    /// Nothing: it is a process of this machine.
    Machine,
    /// Its files.
    Files,
    /// Everything: it is a process of the node.
    Node,
}

/// The namespaces of a running node.
#[derive(Clone, Debug)]
pub(crate) struct Enclosure {
    /// Its first process.
    pub(crate) holder: ProcessId,
}

impl Enclosure {
    /// The command that makes namespaces and becomes the first process in them. It ends when the command
    /// does, and everything inside with it.
    pub(crate) fn make(home: &Home, binaries: &Binaries) -> anyhow::Result<Vec<OsString>> {
        let pause = binaries.get("pause")?;
        let mut command: Vec<OsString> =
            ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private"]
                .into_iter()
                .chain(["--", "/bin/sh", "-c", INIT, "node-init"])
                .map(OsString::from)
                .collect();
        command.extend([home.dir().into(), pause.into()]);
        command.extend(kept(home, binaries).into_iter().map(OsString::from));
        Ok(command)
    }

    /// That of a running sandbox; `None` where it has no node.
    pub(crate) fn find(home: &Home) -> Option<Self> {
        let mut marked = home.marked_processes().into_iter().map(|holder| Self { holder });
        marked.find(Self::is_ready)
    }

    /// Whether the namespaces are prepared.
    pub(crate) fn is_ready(&self) -> bool {
        self.holder.program().is_some_and(|program| program == "pause")
    }

    /// What to put before a command to have it run inside.
    pub(crate) fn enter(&self, within: Within) -> Vec<OsString> {
        let target = self.holder.pid.to_string();
        let words: &[&str] = match within {
            Within::Machine => &[],
            Within::Files => &["nsenter", "-t", &target, "-m", "--"],
            Within::Node => &["nsenter", "-t", &target, "-m", "-n", "-p", "--"],
        };
        words.iter().map(OsString::from).collect()
    }

    /// A file of the node, as this machine can open it.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        Path::new("/proc").join(self.holder.pid.to_string()).join("root").join(path.trim_start_matches('/'))
    }
}

/// The directories that stay where they are, even where the node has its own, as they are called and as
/// they are called without symbolic links. Those above others come first, so that none covers another.
fn kept(home: &Home, binaries: &Binaries) -> BTreeSet<PathBuf> {
    let programs = binaries.files().values().filter_map(|file| file.parent());
    let called: BTreeSet<PathBuf> = programs.chain([home.dir()]).map(Path::to_owned).collect();
    let real = called.iter().filter_map(|dir| dir.canonicalize().ok());
    real.chain(called.iter().cloned()).collect()
}
