//! `doctor`: what this machine has and what is missing, each with its remedy.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use super::style::{self, say};
use crate::Part;
use crate::binaries::CONTROL_PLANE;
use crate::cache::{Cache, Condition, Scrutiny};
use crate::catalogue::Catalogue;
use crate::golang::Toolchain;
use crate::node::requirements;
use crate::state::{Health, Sandboxes};

/// Free space, in bytes, that building a control plane from nothing takes.
const SPACE_TO_BUILD: u64 = 5 << 30;

enum Finding {
    Good(String),
    /// Neither good nor bad.
    Note(String),
    Missing {
        what: String,
        remedy: String,
    },
}

use Finding::{Good, Missing, Note};

pub(super) async fn doctor(node: bool) -> anyhow::Result<ExitCode> {
    let mut findings: Vec<(String, Finding)> = Vec::new();
    let mut add = |name: &str, finding| findings.push((name.to_owned(), finding));

    add("linux", kernel());
    add("setpriv", setpriv());
    if node {
        for requirement in requirements::all() {
            let finding = match requirement.found {
                Ok(text) => Good(text),
                Err(what) => Missing { what: format!("{what}; a node needs it"), remedy: requirement.remedy },
            };
            add(requirement.name, finding);
        }
    }
    for part in Part::all() {
        // A machine need not have all parts.
        if let Err(error) = part.check() {
            add(part.name(), Note(format!("{error:#}")));
        }
    }
    let catalogue = Catalogue::load();
    add("go", go(catalogue.as_ref().ok()).await);
    let cache = Cache::from_env()?;
    let mut to_build = false;
    match &catalogue {
        Err(error) => add("components", missing(error, "run this inside the repository")),
        Ok(catalogue) => {
            for recipe in catalogue.all() {
                let condition = cache.condition(recipe, Scrutiny::Full).await?;
                to_build |= condition != Condition::Intact;
                add(&recipe.name, component(&recipe.name, &recipe.version, condition));
            }
        }
    }
    add("cache", directory(cache.dir(), "OPCORE_CACHE", to_build));
    let sandboxes = Sandboxes::from_env()?;
    add("state", directory(sandboxes.dir(), "OPCORE_STATE", false));
    add("temporary files", directory(&std::env::temp_dir(), "TMPDIR", false));
    for name in sandboxes.names() {
        add(&format!("sandbox {name}"), sandbox(&sandboxes, &name));
    }
    for variable in ["KUBEBUILDER_ASSETS", "OPCORE_KUBECONFIG"] {
        if let Some(path) = crate::env_path(variable) {
            add(variable, given(variable, &path));
        }
    }

    let mut missing = 0;
    for (name, finding) in &findings {
        match finding {
            Good(text) => say!("{}  {name:<24} {text}", style::good("ok     ")),
            Note(text) => say!("{}  {name:<24} {text}", style::faint("note   ")),
            Missing { what, remedy } => {
                missing += 1;
                say!("{}  {name:<24} {what}", style::bad("MISSING"));
                say!("         {:<24} remedy: {remedy}", "");
            }
        }
    }
    Ok(match missing {
        0 => {
            say!("Nothing is missing.");
            ExitCode::SUCCESS
        }
        1 => {
            say!("One thing is missing.");
            ExitCode::FAILURE
        }
        n => {
            say!("{n} things are missing.");
            ExitCode::FAILURE
        }
    })
}

/// Processes are addressed by descriptors, which Linux has since 5.3.
fn kernel() -> Finding {
    let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let itself = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
    match itself {
        Ok(_) => Good(version.trim().to_owned()),
        Err(_) => Missing {
            what: format!("the kernel {} has no pidfd_open", version.trim()),
            remedy: "use Linux 5.3 or later".to_owned(),
        },
    }
}

fn setpriv() -> Finding {
    match crate::launch::setpriv() {
        Ok(path) => Good(path.display().to_string()),
        Err(_) => Missing {
            what: "not found; it ends components with the test that started them".to_owned(),
            remedy: "apt-get install util-linux".to_owned(),
        },
    }
}

async fn go(catalogue: Option<&Catalogue>) -> Finding {
    let recipes = catalogue.map(Catalogue::all).unwrap_or_default();
    let remedy = || {
        let usual = Path::new("/usr/local/go/bin");
        if usual.join("go").is_file() && crate::path_lookup("go").is_none() {
            return format!("export PATH=$PATH:{}", usual.display());
        }
        let wanted = recipes.iter().map(|r| r.go.as_str()).max().unwrap_or("1.25.0");
        format!(
            "curl -sSL https://go.dev/dl/go{wanted}.linux-$(dpkg --print-architecture).tar.gz | \
             tar -xz -C /usr/local && export PATH=/usr/local/go/bin:$PATH"
        )
    };
    let Ok(toolchain) = Toolchain::find().await else {
        return Missing { what: "not found on the PATH; it builds the components".to_owned(), remedy: remedy() };
    };
    match recipes.iter().find_map(|r| toolchain.serves(r).err()) {
        Some(error) => missing(&error, &remedy()),
        None => Good(format!("{} for {}", toolchain.version, toolchain.target)),
    }
}

fn component(name: &str, version: &str, condition: Condition) -> Finding {
    match condition {
        Condition::Intact | Condition::Moved => Good(format!("{version} is built")),
        Condition::Absent => {
            Note(format!("{version} is not built yet: on first use, or now with `sandbox build {name}`"))
        }
        Condition::Corrupt(what) => Missing {
            what: format!("the cached build of {version} is damaged: {what}"),
            remedy: format!("sandbox build {name}"),
        },
    }
}

/// Whether files can be made in a directory, or in the nearest one above it that exists.
fn directory(dir: &Path, variable: &str, to_build: bool) -> Finding {
    let Some(existing) = dir.ancestors().find(|d| d.is_dir()) else {
        return Missing {
            what: format!("{} cannot be made", dir.display()),
            remedy: format!("set {variable} to a directory that can be written"),
        };
    };
    if let Err(error) = tempfile::tempfile_in(existing) {
        return Missing {
            what: format!("{} cannot be written: {error}", existing.display()),
            remedy: format!("set {variable} to a directory that can be written"),
        };
    }
    let free = rustix::fs::statvfs(existing).map_or(u64::MAX, |s| s.f_bavail * s.f_frsize);
    if to_build && free < SPACE_TO_BUILD {
        return Missing {
            what: format!("{} has only {} MiB free to build in", dir.display(), free >> 20),
            remedy: format!("free 5 GiB, or set {variable} to a directory on a larger disk"),
        };
    }
    Good(format!("{} ({} GiB free)", dir.display(), free >> 30))
}

fn sandbox(sandboxes: &Sandboxes, name: &str) -> Finding {
    let remedy = format!("sandbox down --name {name}");
    match sandboxes.find(name) {
        Ok(None) => Note("just went".to_owned()),
        Ok(Some(existing)) => match existing.health {
            Health::Running => Good("runs".to_owned()),
            Health::Starting => Note("is being started".to_owned()),
            Health::HalfStarted => {
                Missing { what: "was started only in part, by a command that was killed".to_owned(), remedy }
            }
            Health::Broken(dead) => Missing { what: format!("{} of its components do not run", dead.len()), remedy },
        },
        Err(error) => missing(&error, &remedy),
    }
}

fn given(variable: &str, path: &Path) -> Finding {
    if variable == "KUBEBUILDER_ASSETS" {
        let held: Vec<&str> = CONTROL_PLANE.into_iter().filter(|name| path.join(name).is_file()).collect();
        if held.contains(&"etcd") && held.contains(&"kube-apiserver") {
            return Note(format!("{} gives {}", path.display(), held.join(", ")));
        }
        return Missing {
            what: format!("{} does not contain etcd and kube-apiserver", path.display()),
            remedy: format!("unset {variable}"),
        };
    }
    if path.is_file() {
        return Note(format!("tests use the cluster of {}", path.display()));
    }
    Missing { what: format!("{} is not a file", path.display()), remedy: format!("unset {variable}") }
}

fn missing(error: &anyhow::Error, remedy: &str) -> Finding {
    Missing { what: format!("{error:#}"), remedy: remedy.to_owned() }
}
