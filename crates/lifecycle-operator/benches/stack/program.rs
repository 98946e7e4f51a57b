//! The operator as it is released: a process of its own.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_mins(2);

/// Ends with us.
pub struct Program {
    child: Child,
    port: u16,
}

impl Program {
    /// Starts it, and waits until it is ready.
    pub async fn start(kubeconfig: &Path, namespace: &str) -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lifecycle-operator"));
        command.arg("--kubeconfig").arg(kubeconfig).arg(format!("--listen=127.0.0.1:{port}"));
        command.arg(format!("--operand-namespace={namespace}"));
        command.args(["--leader-elect=false", "--log-level=warn"]).stdin(Stdio::null());
        let mut program = Self { child: command.spawn()?, port };
        let deadline = Instant::now() + PATIENCE;
        while program.ask("/readyz").await.is_err() {
            anyhow::ensure!(program.child.try_wait()?.is_none(), "it has ended");
            anyhow::ensure!(Instant::now() < deadline, "it is not ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(program)
    }

    /// What it holds in memory, in MiB.
    pub fn resident(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("the kernel tells no VmRSS")?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }

    async fn ask(&self, path: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::ensure!(answer.contains(" 200 "), "{answer}");
        Ok(answer)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
