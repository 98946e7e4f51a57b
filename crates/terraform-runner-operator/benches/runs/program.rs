//! The release build of the operator in its own process, and its metrics.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use sandbox::{Sandbox, results};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_mins(2);
/// After this time without a reconcile, it counts as idle.
const REST: Duration = Duration::from_secs(3);

/// Stopped when this is dropped.
pub struct Program {
    child: Child,
    port: u16,
}

impl Program {
    /// Starts it on all existing objects, and waits until it is ready.
    pub async fn start(sandbox: &Sandbox, more: &[&str]) -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_terraform-runner-operator"));
        command.arg("--kubeconfig").arg(sandbox.kubeconfig()).arg(format!("--listen=127.0.0.1:{port}"));
        command
            .args(["--leader-elect=false", "--log-level=warn", "--authors-modules=Any"])
            .args(more)
            .stdin(Stdio::null());
        let mut program = Self { child: command.spawn()?, port };
        let deadline = Instant::now() + PATIENCE;
        while program.ask("/readyz").await.is_err() {
            anyhow::ensure!(program.child.try_wait()?.is_none(), "it has ended");
            anyhow::ensure!(Instant::now() < deadline, "it is not ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(program)
    }

    /// Waits until it has reconciled this often, and then is idle for some time.
    pub async fn at_rest(&self, reconciles: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut before = None;
        loop {
            let metrics = self.metrics().await?;
            let now = metrics.reconciles();
            if now >= reconciles && before == Some(now) {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < deadline, "it does not become idle: {now} reconciles of {reconciles}");
            before = (now >= reconciles).then_some(now);
            tokio::time::sleep(if before.is_some() { REST } else { Duration::from_millis(50) }).await;
        }
    }

    pub async fn metrics(&self) -> anyhow::Result<Metrics> {
        self.ask("/metrics").await.map(Metrics)
    }

    /// Its memory, in MiB.
    pub fn resident(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("the kernel reports no VmRSS")?;
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

/// Its metrics.
pub struct Metrics(String);

impl Metrics {
    /// The number of reconciles without a refused write.
    pub fn reconciles(&self) -> usize {
        results::count(&self.0, "opcore_reconciles_total", |line| of_workspaces(line) && line.contains("\"ok\""))
    }

    /// The number of writes so far, without Events.
    pub fn writes(&self) -> usize {
        results::count(&self.0, "opcore_api_requests_total", |line| {
            !["\"get\"", "\"list\"", "\"watch\"", "events"].iter().any(|word| line.contains(word))
        })
    }

    /// The number of workspaces that wait for a worker.
    pub fn waiting(&self) -> usize {
        results::count(&self.0, "opcore_queue_depth", of_workspaces)
    }

    /// The time within which this part of all reconciles ended, with the precision of the histogram.
    pub fn within(&self, part: f64) -> Duration {
        let all = results::count(&self.0, "opcore_reconcile_duration_seconds_count", of_workspaces);
        let name = "opcore_reconcile_duration_seconds_bucket{";
        let bounds = self.0.lines().filter(|line| line.starts_with(name) && of_workspaces(line)).filter_map(|line| {
            let bound = line.split("le=\"").nth(1)?.split('"').next()?.parse::<f64>().ok()?;
            let count = line.rsplit(' ').next()?.parse::<usize>().ok()?;
            Some((bound, count))
        });
        #[expect(clippy::cast_precision_loss, reason = "reconciles are few")]
        let enough = |count: usize| count as f64 >= part * all as f64;
        let bound = bounds.filter(|(bound, count)| bound.is_finite() && enough(*count)).map(|(bound, _)| bound);
        bound.min_by(f64::total_cmp).map_or(Duration::MAX, Duration::from_secs_f64)
    }
}

fn of_workspaces(line: &str) -> bool {
    line.contains("kind=\"TerraformWorkspace\"")
}
