//! The memory of the program while it is idle.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use sandbox::{Sandbox, results};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wave_orchestrator::api::v1alpha1::WavePlan;

const PATIENCE: Duration = Duration::from_mins(1);

/// The memory of the release build in MiB, with all existing plans.
pub async fn of(sandbox: &Sandbox) -> anyhow::Result<f64> {
    let plans = kube::Api::<WavePlan>::all(sandbox.client().await?).list(&kube::api::ListParams::default()).await?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut program = Program::start(sandbox, port)?;
    let deadline = Instant::now() + PATIENCE;
    // Twice: after the start, and after everything that it watches has been reported.
    while reconciles(port).await.unwrap_or_default() < 2 * plans.items.len() || ask(port, "/readyz").await.is_err() {
        anyhow::ensure!(program.0.try_wait()?.is_none(), "it has ended");
        anyhow::ensure!(Instant::now() < deadline, "it is not ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Memory that the start no longer needs is returned to the system.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.0.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("the kernel reports no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

/// Stopped when this is dropped.
struct Program(Child);

impl Program {
    fn start(sandbox: &Sandbox, port: u16) -> anyhow::Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wave-orchestrator"));
        command.arg("--kubeconfig").arg(sandbox.kubeconfig()).arg(format!("--listen=127.0.0.1:{port}"));
        command.args(["--leader-elect=false", "--log-level=warn"]).stdin(Stdio::null());
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn reconciles(port: u16) -> anyhow::Result<usize> {
    Ok(results::count(&ask(port, "/metrics").await?, "opcore_reconciles_total", |line| line.contains("\"ok\"")))
}

async fn ask(port: u16, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    anyhow::ensure!(answer.contains(" 200 "), "{answer}");
    Ok(answer)
}
