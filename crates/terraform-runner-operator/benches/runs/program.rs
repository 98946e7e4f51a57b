//! The operator as it is released: a process of its own, and what it tells of itself.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use sandbox::{Sandbox, results};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_mins(2);
/// Nothing was looked at for so long: it is at rest.
const REST: Duration = Duration::from_secs(3);

/// Ends with us.
pub struct Program {
    child: Child,
    port: u16,
}

impl Program {
    /// Starts it on everything that there is, and waits until it is ready.
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

    /// Waits until it has looked at workspaces so often, and then for some time at none.
    pub async fn at_rest(&self, looks: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut before = None;
        loop {
            let metrics = self.metrics().await?;
            let now = metrics.looks();
            if now >= looks && before == Some(now) {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < deadline, "it does not come to rest: {now} looks of {looks}");
            before = (now >= looks).then_some(now);
            tokio::time::sleep(if before.is_some() { REST } else { Duration::from_millis(50) }).await;
        }
    }

    pub async fn metrics(&self) -> anyhow::Result<Metrics> {
        self.ask("/metrics").await.map(Metrics)
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

/// What it tells of itself.
pub struct Metrics(String);

impl Metrics {
    /// How often it has looked at a workspace without being refused anything.
    pub fn looks(&self) -> usize {
        results::count(&self.0, "opcore_reconciles_total", |line| of_workspaces(line) && line.contains("\"ok\""))
    }

    /// The writes that it sent so far; Events are no objects of anyone.
    pub fn writes(&self) -> usize {
        results::count(&self.0, "opcore_api_requests_total", |line| {
            !["\"get\"", "\"list\"", "\"watch\"", "events"].iter().any(|word| line.contains(word))
        })
    }

    /// How many workspaces wait for a worker.
    pub fn waiting(&self) -> usize {
        results::count(&self.0, "opcore_queue_depth", of_workspaces)
    }

    /// A time within which so large a part of all looks at a workspace ended: the histogram knows no finer.
    pub fn within(&self, part: f64) -> Duration {
        let all = results::count(&self.0, "opcore_reconcile_duration_seconds_count", of_workspaces);
        let name = "opcore_reconcile_duration_seconds_bucket{";
        let bounds = self.0.lines().filter(|line| line.starts_with(name) && of_workspaces(line)).filter_map(|line| {
            let bound = line.split("le=\"").nth(1)?.split('"').next()?.parse::<f64>().ok()?;
            let count = line.rsplit(' ').next()?.parse::<usize>().ok()?;
            Some((bound, count))
        });
        #[expect(clippy::cast_precision_loss, reason = "looks are few")]
        let enough = |count: usize| count as f64 >= part * all as f64;
        let bound = bounds.filter(|(bound, count)| bound.is_finite() && enough(*count)).map(|(bound, _)| bound);
        bound.min_by(f64::total_cmp).map_or(Duration::MAX, Duration::from_secs_f64)
    }
}

fn of_workspaces(line: &str) -> bool {
    line.contains("kind=\"TerraformWorkspace\"")
}
