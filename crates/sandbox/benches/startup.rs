//! How long until a control plane can be used: `cargo bench -p sandbox`.
//!
//! With everything built, by default. `OPCORE_BENCH_BUILD=1` also builds everything, once, from empty caches (the modules
//! themselves excepted, whose download measures the network): minutes.

use std::process::Command;
use std::time::{Duration, Instant};

use sandbox::{Options, Sandbox, results};

/// Enough for a median; each takes seconds.
const STARTS: usize = 5;
/// What people are promised.
const TARGET: Duration = Duration::from_secs(8);

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
        if let Some(built) = built {
            println!("{:<28}{:>19.0}s", "all programs built", built.as_secs_f64());
        }
        results::write(
            "startup",
            &serde_json::json!({
                "controlPlaneReadySeconds": ready.json(),
                "namespaceSeconds": namespace.json(),
                "targetSeconds": TARGET.as_secs_f64(),
                "buildSeconds": built.map(|built| built.as_secs_f64()),
            }),
        )?;
        anyhow::ensure!(ready.median <= TARGET, "the control plane is slower than promised");
        Ok(())
    })
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
