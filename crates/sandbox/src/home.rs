//! Where the files of one sandbox lie.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::pki::Pki;
use crate::process::{self, ProcessId};
use crate::{Component, dirlock};

/// The directory of one sandbox. Everything that belongs to it is inside.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    dir: PathBuf,
}

impl Home {
    pub(crate) fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Makes the directories inside; the home itself may exist already.
    pub(crate) fn create(&self) -> anyhow::Result<()> {
        for dir in [&self.dir, &self.dir.join("logs"), &self.etcd_data()] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .with_context(|| format!("Cannot create {}", dir.display()))?;
        }
        Ok(())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn pki(&self) -> Pki {
        Pki::at(self.dir.join("pki"))
    }

    pub(crate) fn etcd_data(&self) -> PathBuf {
        self.dir.join("etcd")
    }

    /// The administrator's.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// That of a component, as `component` in its `pki` name, e.g. `scheduler`.
    pub(crate) fn kubeconfig_of(&self, component: &str) -> PathBuf {
        self.dir.join(format!("{component}.kubeconfig"))
    }

    pub(crate) fn log(&self, component: Component) -> PathBuf {
        self.dir.join("logs").join(format!("{component}.log"))
    }

    /// What the node has in place of the machine's own directories.
    pub(crate) fn node(&self) -> PathBuf {
        self.dir.join("node")
    }

    /// What the node has as `/srv`: pods and this machine exchange files there.
    pub(crate) fn srv(&self) -> PathBuf {
        self.node().join("srv")
    }

    /// A file of settings of the node.
    pub(crate) fn node_setting(&self, name: &str) -> PathBuf {
        self.node().join("etc").join(name)
    }

    /// The directory of a part.
    pub(crate) fn part(&self, name: &str) -> PathBuf {
        self.dir.join("parts").join(name)
    }

    pub(crate) fn audit_policy(&self) -> PathBuf {
        self.dir.join("audit-policy.yaml")
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join(dirlock::NAME)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    /// The mark in the environment of every process of this sandbox.
    pub(crate) fn mark(&self) -> (&'static str, &Path) {
        ("OPCORE_SANDBOX_COMPONENT_OF", &self.dir)
    }

    /// The processes that carry the mark, whether or not anybody wrote them down.
    pub(crate) fn marked_processes(&self) -> Vec<ProcessId> {
        let (name, value) = self.mark();
        process::with_environment(&format!("{name}={}", value.display()))
    }
}
