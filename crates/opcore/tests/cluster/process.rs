//! The example operator in its own process.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::stage::PATIENCE;

/// The example operator in its own process.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub fn start(kubeconfig: &Path, namespace: &str, name: &str, lease: Duration) -> Self {
        let lease = format!("{}s", lease.as_secs());
        Self::with(kubeconfig, namespace, name, &["--listen", "127.0.0.1:0", "--lease-duration", &lease])
    }

    /// Starts it with these flags.
    pub fn with(kubeconfig: &Path, namespace: &str, name: &str, flags: &[&str]) -> Self {
        // cargo puts examples next to the folder of the tests.
        let tests = std::env::current_exe().unwrap();
        let binary = tests.parent().and_then(Path::parent).unwrap().join("examples/notebook");
        assert!(binary.exists(), "{} is missing: cargo build -p opcore --examples", binary.display());
        let log = std::env::temp_dir().join(format!("opcore-{}-{namespace}-{name}.log", std::process::id()));
        let child = Command::new(binary)
            .args(["--watch-namespaces", namespace, "--lease-namespace", namespace, "--log-level", "info,opcore=debug"])
            .args(flags)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .env("HOSTNAME", name)
            .kill_on_drop(true)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("the process runs");
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it ends.
    pub async fn end(&mut self) -> ExitStatus {
        match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(late) => panic!("the process does not end ({late}); its log:\n{}", self.said()),
        }
    }

    /// Waits until its log meets a condition.
    pub async fn says<T>(&self, what: &str, condition: impl Fn(&str) -> Option<T>) -> T {
        let said = async {
            loop {
                if let Some(found) = condition(&self.said()) {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, said)
            .await
            .unwrap_or_else(|_| panic!("it does not say {what}:\n{}", self.said()))
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.log);
    }
}
