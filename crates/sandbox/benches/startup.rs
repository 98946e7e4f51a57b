//! How long until a control plane can be used, with everything built: `cargo bench -p sandbox`.

use std::time::{Duration, Instant};

use sandbox::{Options, Sandbox, results};

/// Enough for a median; each takes seconds.
const STARTS: usize = 5;
/// What people are promised.
const TARGET: Duration = Duration::from_secs(8);

fn main() -> anyhow::Result<()> {
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
        results::write(
            "startup",
            &serde_json::json!({
                "controlPlaneReadySeconds": ready.json(),
                "namespaceSeconds": namespace.json(),
                "targetSeconds": TARGET.as_secs_f64(),
            }),
        )?;
        anyhow::ensure!(ready.median <= TARGET, "the control plane is slower than promised");
        Ok(())
    })
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
