//! The control groups of a node's pods: one group in every hierarchy, named after the sandbox.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use sha2::{Digest, Sha256};

use crate::catalogue::hex;
use crate::home::Home;

/// The name of the group of a sandbox: found again by anybody who knows where the sandbox lies.
pub(crate) fn name(home: &Home) -> String {
    let digest = hex(&Sha256::digest(home.dir().as_os_str().as_encoded_bytes()));
    format!("opcore-{}", &digest[..12])
}

/// Makes the group, ready to have others inside.
pub(crate) fn create(home: &Home) -> anyhow::Result<()> {
    let hierarchies = hierarchies();
    // The second version. Beside others it has no controllers that matter.
    let alone = hierarchies.len() == 1;
    for hierarchy in hierarchies {
        let group = hierarchy.join(name(home));
        let make = || -> io::Result<()> {
            if alone {
                hand_down(&hierarchy);
            }
            fs::create_dir_all(&group)?;
            // The first version gives a new group neither processors nor memory to run on.
            for setting in ["cpuset.cpus", "cpuset.mems"] {
                let (above, own) = (hierarchy.join(setting), group.join(setting));
                if above.exists() && own.exists() {
                    fs::write(own, fs::read(above)?)?;
                }
            }
            Ok(())
        };
        make().with_context(|| {
            format!("Cannot make the control group {}: a node needs control groups it can write", group.display())
        })?;
    }
    Ok(())
}

/// The second version gives a group only those controllers that the one above hands down. The kubelet wants
/// these. Most machines hand them down already; where it cannot be done the kubelet says what it misses.
fn hand_down(hierarchy: &Path) {
    for controller in ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"] {
        let _ = fs::write(hierarchy.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// Removes the group and all inside, when no process is left in them.
pub(crate) fn remove(home: &Home) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    for hierarchy in hierarchies() {
        let group = hierarchy.join(name(home));
        // A process that has just ended may stand in its group for a moment.
        while let Err(error) = remove_tree(&group) {
            if Instant::now() > deadline {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// The files in a group belong to the kernel: it is the directories that are removed, from the inside.
fn remove_tree(group: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(group) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where hierarchies of control groups are mounted, of either version.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let found = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        (kind == "cgroup" || kind == "cgroup2").then(|| PathBuf::from(place))
    });
    found.collect()
}
