//! How long until a control plane can be used, and a node with a pod on it: `cargo bench -p sandbox`.
//!
//! With everything built, by default. `OPCORE_BENCH_BUILD=1` also builds everything, once, from empty caches (the modules
//! themselves excepted, whose download measures the network): minutes.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::wait::{await_condition, conditions};
use sandbox::{Image, Options, Sandbox, results};

/// Enough for a median; each takes seconds.
const STARTS: usize = 5;
/// What people are promised.
const TARGET: Duration = Duration::from_secs(8);
const NODE_TARGET: Duration = Duration::from_secs(20);
const POD_TARGET: Duration = Duration::from_secs(3);

fn main() -> anyhow::Result<()> {
    let built = std::env::var_os("OPCORE_BENCH_BUILD").map(|_| build()).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut ready = Vec::new();
        let mut namespaces = Vec::new();
        for _ in 0..STARTS {
            let started = Instant::now();
            let sandbox = Sandbox::start(Options::default()).await?;
            ready.push(started.elapsed());
            let asked = Instant::now();
            sandbox.namespace("bench").await?;
            namespaces.push(asked.elapsed());
        }
        let (ready, namespace) = (Spread::of(ready), Spread::of(namespaces));
        println!("{:<28}{:>10}{:>10}{:>10}{:>10}", "", "fastest", "median", "slowest", "target");
        println!("{:<28}{ready}{:>9.1}s", "control plane ready", TARGET.as_secs_f64());
        println!("{:<28}{namespace}", "a namespace to test in");
        let node = match sandbox::can_run_node() {
            Ok(()) => Some(node().await?),
            Err(why) => {
                println!("No node was measured: {why:#}");
                None
            }
        };
        if let Some((ready, running)) = &node {
            println!("{:<28}{ready}{:>9.1}s", "node and names ready", NODE_TARGET.as_secs_f64());
            println!("{:<28}{running}{:>9.1}s", "a pod running", POD_TARGET.as_secs_f64());
        }
        if let Some(built) = built {
            println!("{:<28}{:>19.0}s", "all programs built", built.as_secs_f64());
        }
        results::write(
            "startup",
            &serde_json::json!({
                "controlPlaneReadySeconds": ready.json(),
                "namespaceSeconds": namespace.json(),
                "targetSeconds": TARGET.as_secs_f64(),
                "nodeReadySeconds": node.as_ref().map(|(ready, _)| ready.json()),
                "podRunningSeconds": node.as_ref().map(|(_, running)| running.json()),
                "buildSeconds": built.map(|built| built.as_secs_f64()),
            }),
        )?;
        anyhow::ensure!(ready.median <= TARGET, "the control plane is slower than promised");
        if let Some((ready, running)) = node {
            anyhow::ensure!(ready.median <= NODE_TARGET, "the node is slower than promised");
            anyhow::ensure!(running.median <= POD_TARGET, "a pod is slower than promised");
        }
        Ok(())
    })
}

/// From nothing to a node that is ready, with names answered; and from a pod's creation to its running.
async fn node() -> anyhow::Result<(Spread, Spread)> {
    let echo = sandbox::program("echo").await?;
    let (mut ready, mut running) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let started = Instant::now();
        let sandbox = Sandbox::start(Options { node: true, ..Options::default() }).await?;
        ready.push(started.elapsed());
        sandbox.load_image(&Image::new("echo:v1", &echo)?).await?;
        let pods: Api<Pod> = Api::namespaced(sandbox.client().await?, "default");
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "echo" },
            "spec": { "containers": [{ "name": "echo", "image": "echo:v1" }] },
        }))?;
        let created = Instant::now();
        pods.create(&PostParams::default(), &pod).await?;
        let runs = await_condition(pods, "echo", conditions::is_pod_running());
        tokio::time::timeout(Duration::from_mins(1), runs).await.context("the pod does not run")??;
        running.push(created.elapsed());
    }
    Ok((Spread::of(ready), Spread::of(running)))
}

/// Builds all programs, as on a machine that never did.
fn build() -> anyhow::Result<Duration> {
    let caches = tempfile::tempdir()?;
    let started = Instant::now();
    let status = Command::new(env!("CARGO_BIN_EXE_sandbox"))
        .arg("build")
        .env("OPCORE_CACHE", caches.path().join("opcore"))
        .env("GOCACHE", caches.path().join("go"))
        .status()?;
    anyhow::ensure!(status.success(), "the build failed");
    Ok(started.elapsed())
}

struct Spread {
    fastest: Duration,
    median: Duration,
    slowest: Duration,
}

impl Spread {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self { fastest: times[0], median: times[times.len() / 2], slowest: times[times.len() - 1] }
    }

    fn json(&self) -> serde_json::Value {
        let [fastest, median, slowest] = [self.fastest, self.median, self.slowest].map(|time| time.as_secs_f64());
        serde_json::json!({ "fastest": fastest, "median": median, "slowest": slowest })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for time in [self.fastest, self.median, self.slowest] {
            write!(f, "{:>9.2}s", time.as_secs_f64())?;
        }
        Ok(())
    }
}
