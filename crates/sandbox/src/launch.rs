//! How the process of a component comes into the world, and with whom it leaves it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::home::Home;
use crate::node::SYSTEM_PATH;
use crate::process::{ProcessId, spawn_from_keeper};
use crate::{Component, path_lookup};

/// How long the components run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Until the process that started them ends, however it ends.
    WithThisProcess,
    /// Until they are removed.
    UntilDown,
}

/// What to start: a program and its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) words: Vec<OsString>,
    /// Whether it starts the component as its child, and ends when that does.
    pub(crate) forks: bool,
}

/// A component that was started, and where in its log this start begins.
#[derive(Debug)]
pub(crate) struct Running {
    /// The component.
    pub(crate) id: ProcessId,
    /// The component, or the parent of it that ends with it.
    pub(crate) child: Child,
    log_start: u64,
}

/// Between `fork` and the request to die with the parent, the parent may die: the shell looks whether it
/// is still there. `$0` is the parent's number; everything else is the program and its arguments.
const GUARD: &str = r#"test "$PPID" = "$0" && exec "$@""#;

/// Starts a component. Its output is appended to its log.
pub(crate) fn start(component: Component, call: &Call, home: &Home, lifetime: Lifetime) -> anyhow::Result<Running> {
    let log_path = home.log(component);
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&log_path)
        .with_context(|| format!("Cannot write {}", log_path.display()))?;
    let log_start = log.metadata()?.len();

    let (program, arguments) = call.words.split_first().with_context(|| format!("{component} has no program"))?;
    let mut command = match lifetime {
        Lifetime::UntilDown => Command::new(program),
        Lifetime::WithThisProcess => {
            let mut command = Command::new(setpriv()?);
            command
                .args(["--pdeathsig", "KILL", "--", "/bin/sh", "-c", GUARD])
                .arg(std::process::id().to_string())
                .arg(program);
            command
        }
    };
    let (mark, value) = home.mark();
    command
        .args(arguments)
        // etcd takes its settings from the environment too, and Go its debug switches: none of the caller's.
        .env_clear()
        .env(mark, value)
        .env("PATH", SYSTEM_PATH)
        .current_dir(home.dir())
        // Ctrl-C in a terminal goes to a whole group: not to this one.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let mut child = spawn_from_keeper(command)
        .with_context(|| format!("Cannot start {component} ({})", program.to_string_lossy()))?;
    let found = match ProcessId::of(child.id()) {
        Some(parent) if call.forks => only_child(&parent),
        other => other,
    };
    let Some(id) = found else {
        let _ = child.kill();
        let _ = child.wait();
        let mut said = String::new();
        let _ = File::open(&log_path).and_then(|mut log| log.read_to_string(&mut said));
        bail!("{component} did not start. {}", said.lines().last().unwrap_or_default());
    };
    Ok(Running { id, child, log_start })
}

/// The child of a process whose work it is to start one.
fn only_child(parent: &ProcessId) -> Option<ProcessId> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while parent.is_alive() && Instant::now() < deadline {
        if let Some(child) = parent.children().pop() {
            return Some(child);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

impl Running {
    /// What the component wrote since this start.
    pub(crate) fn output(&self, log: &Path) -> io::Result<String> {
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(self.log_start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The program that makes a child die with its parent.
pub(crate) fn setpriv() -> anyhow::Result<std::path::PathBuf> {
    path_lookup("setpriv").context(
        "setpriv is not found: it makes components end with the test that started them. \
         Install it with: apt-get install util-linux",
    )
}
