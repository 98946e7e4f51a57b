//! What a machine must have to run a node.

use std::path::Path;

use anyhow::bail;

use super::cgroup;

/// Something that a node needs, and how to get it.
#[derive(Debug)]
pub(crate) struct Requirement {
    pub(crate) name: &'static str,
    pub(crate) found: Result<String, String>,
    pub(crate) remedy: String,
}

/// A program, and the Debian package that brings it.
const PROGRAMS: [(&str, &str); 10] = [
    ("containerd", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("iptables", "iptables"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("sh", "dash"),
];

/// Where Debian puts the network plugins, and those that are used.
pub(crate) const CNI_PLUGINS: &str = "/usr/lib/cni";
const PLUGINS: [&str; 4] = ["host-local", "loopback", "portmap", "ptp"];

/// Everything, had or not.
pub(crate) fn all() -> Vec<Requirement> {
    let mut all = vec![root(), control_groups()];
    for (program, package) in PROGRAMS {
        all.push(Requirement {
            name: program,
            found: lookup(program).ok_or_else(|| "not found".to_owned()),
            remedy: install(package),
        });
    }
    // Nothing is made on the machine itself, not even the place for a mount.
    let srv = Path::new("/srv").is_dir();
    all.push(Requirement {
        name: "/srv",
        found: if srv { Ok("a directory".to_owned()) } else { Err("there is no such directory".to_owned()) },
        remedy: "mkdir /srv".to_owned(),
    });
    let lacking = PLUGINS.into_iter().find(|plugin| !Path::new(CNI_PLUGINS).join(plugin).is_file());
    all.push(Requirement {
        name: "network plugins",
        found: match lacking {
            None => Ok(CNI_PLUGINS.to_owned()),
            Some(plugin) => Err(format!("{CNI_PLUGINS}/{plugin} is not found")),
        },
        remedy: install("containernetworking-plugins"),
    });
    all
}

/// # Errors
/// Something is missing: what, and how to get it.
pub(crate) fn check() -> anyhow::Result<()> {
    let missing: Vec<Requirement> = all().into_iter().filter(|r| r.found.is_err()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    // Where several packages are missing one command brings them all.
    let mut remedies: Vec<&str> = missing.iter().map(|r| r.remedy.as_str()).collect();
    remedies.dedup();
    let what: Vec<String> =
        missing.iter().map(|r| format!("{} ({})", r.name, r.found.as_ref().err().map_or("", String::as_str))).collect();
    bail!("This machine cannot run a node; it lacks {}. Remedy: {}", what.join(", "), remedies.join("; "))
}

fn root() -> Requirement {
    let root = rustix::process::geteuid().is_root();
    Requirement {
        name: "root",
        found: if root { Ok("yes".to_owned()) } else { Err("containers need root".to_owned()) },
        remedy: "run the command as root, for example with sudo".to_owned(),
    }
}

fn control_groups() -> Requirement {
    let hierarchies = cgroup::hierarchies();
    let root = rustix::process::geteuid().is_root();
    let found = match hierarchies.iter().find(|dir| rustix::fs::access(*dir, rustix::fs::Access::WRITE_OK).is_err()) {
        _ if hierarchies.is_empty() => Err("none is mounted".to_owned()),
        Some(_) if !root => Ok("for root to say".to_owned()),
        Some(dir) => Err(format!("{} cannot be written", dir.display())),
        None => Ok(format!("{} hierarchies", hierarchies.len())),
    };
    let remedy = "run on a machine, or in a privileged container, that may make control groups".to_owned();
    Requirement { name: "control groups", found, remedy }
}

/// On the path that a node's programs get, not on the caller's.
pub(crate) fn lookup(program: &str) -> Option<String> {
    let dirs = super::SYSTEM_PATH.split(':');
    dirs.map(|dir| format!("{dir}/{program}")).find(|file| Path::new(file).is_file())
}

fn install(package: &str) -> String {
    if ["mount", "util-linux", "dash"].contains(&package) {
        return format!("apt-get install {package}");
    }
    "hack/setup --node".to_owned()
}
