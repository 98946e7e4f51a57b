//! What a sandbox leaves behind: nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

/// What the machine sees of one node.
pub(crate) struct Footprint {
    interface: PathBuf,
    cgroups: Vec<PathBuf>,
}

impl Footprint {
    /// Of a node that runs.
    pub(crate) fn of(home: &Path) -> anyhow::Result<Self> {
        let index = fs::read_to_string(home.join("node/network"))?;
        let kubelet: Value = serde_json::from_slice(&fs::read(home.join("node/etc/kubelet.json"))?)?;
        let name = kubelet["cgroupRoot"].as_str().context("it has a group")?.trim_start_matches('/').to_owned();
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let hierarchies = mounts.lines().filter(|line| line.contains(" cgroup")).filter_map(|l| l.split(' ').nth(1));
        let cgroups: Vec<PathBuf> = hierarchies.map(|dir| Path::new(dir).join(&name)).collect();
        let footprint = Self { interface: Path::new("/sys/class/net").join(format!("opcore{index}")), cgroups };
        ensure!(footprint.interface.exists(), "{} is missing", footprint.interface.display());
        ensure!(!footprint.cgroups.is_empty() && footprint.cgroups.iter().all(|group| group.is_dir()));
        Ok(footprint)
    }

    /// Fails unless nothing is left of it, at the latest after a moment.
    pub(crate) fn gone(&self, home: &Path) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let paths = self.cgroups.iter().chain([&self.interface]).map(PathBuf::as_path).chain([home]);
            let mut left: Vec<String> = paths.filter(|p| p.exists()).map(|p| p.display().to_string()).collect();
            left.extend(processes_of(home));
            if left.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "left: {left:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Processes that have to do with a directory, by their environment or their command line.
pub(crate) fn processes_of(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        let text = [read("environ"), read("cmdline")].concat();
        let text = String::from_utf8_lossy(&text).replace('\0', " ");
        (pid != std::process::id() && text.contains(&dir)).then(|| format!("process {pid}: {text}"))
    });
    processes.collect()
}

/// Fails when a process or a file of a user is left.
pub(crate) fn nothing_left_of(user: &Path) -> anyhow::Result<()> {
    ensure!(processes_of(user).is_empty(), "{:#?}", processes_of(user));
    ensure!(fs::read_dir(user)?.next().is_none(), "files are left in {}", user.display());
    Ok(())
}

/// What must be the same before and after, whatever else goes on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    mounts: BTreeSet<String>,
    rules: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    /// Directories that container engines and kubelets use.
    directories: BTreeSet<PathBuf>,
    settings: Vec<String>,
}

impl Machine {
    pub(crate) fn now() -> anyhow::Result<Self> {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let rules = Command::new("iptables-save").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output()?;
        let rules = String::from_utf8(rules.stdout)?;
        let directories = [
            "/etc/cni",
            "/opt/cni",
            "/opt/containerd",
            "/run/containerd",
            "/run/xtables.lock",
            "/tmp/hostpath_pv",
            "/usr/libexec/kubernetes",
            "/var/lib/cni",
            "/var/lib/containerd",
            "/var/lib/kubelet",
            "/var/log/containers",
            "/var/log/pods",
        ];
        let settings = [
            "vm/overcommit_memory",
            "kernel/panic",
            "kernel/panic_on_oops",
            "kernel/keys/root_maxkeys",
            "net/ipv4/ip_forward",
            "net/netfilter/nf_conntrack_max",
        ];
        let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        Ok(Self {
            mounts: lines(&fs::read_to_string("/proc/self/mounts")?),
            rules: lines(&rules).into_iter().filter(|l| !l.starts_with(['#', ':'])).collect(),
            namespaces: entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect(),
            directories: directories.into_iter().map(PathBuf::from).filter(|dir| dir.exists()).collect(),
            settings: settings.map(|s| fs::read_to_string(Path::new("/proc/sys").join(s)).unwrap_or_default()).into(),
        })
    }
}
