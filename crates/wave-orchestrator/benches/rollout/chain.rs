//! Five waves of one ConfigMap each, one after another.

use std::fmt;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use opcore_testing::wait::within;
use sandbox::Sandbox;
use serde_json::{Value, json};
use wave_orchestrator::api::v1alpha1::{FINALIZER, WavePlan};

use crate::operator::{NAME, Operator, is_ready, plan};

const LENGTH: usize = 5;
/// Enough for a median.
const RUNS: usize = 5;
/// A finalizer; the start of the first wave; for each ConfigMap its apply, and one status that its wave is ready and
/// the next one started.
const NEEDED: usize = 1 + 1 + 2 * LENGTH;

pub struct Chain {
    took: Duration,
    floor: Duration,
    writes: usize,
}

pub async fn measure(sandbox: &Sandbox) -> anyhow::Result<Chain> {
    let (mut took, mut floors, mut writes) = (Vec::new(), Vec::new(), 0);
    for _ in 0..RUNS {
        floors.push(floor(sandbox).await?);
        let (time, count) = operator(sandbox).await?;
        took.push(time);
        writes = writes.max(count);
    }
    took.sort();
    floors.sort();
    Ok(Chain { took: took[RUNS / 2], floor: floors[RUNS / 2], writes })
}

/// The time from the creation of the plan until it is ready, and the number of writes until one second after that.
pub async fn operator(sandbox: &Sandbox) -> anyhow::Result<(Duration, usize)> {
    let client = sandbox.client().await?;
    let namespace = sandbox.namespace("chain").await?;
    let operator = Operator::start(&sandbox.config().await?);
    let started = Instant::now();
    let plans = plan(&client, &namespace, &waves(&namespace)).await?;
    within(Duration::from_mins(1), &plans, &namespace, "Ready", is_ready).await;
    let took = started.elapsed();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let writes = operator.writes(None);
    operator.stop().await;
    release(&plans, &namespace).await?;
    Ok((took, writes))
}

/// Sends only the needed writes, one after another.
async fn floor(sandbox: &Sandbox) -> anyhow::Result<Duration> {
    let client = sandbox.client().await?;
    let namespace = sandbox.namespace("floor").await?;
    let started = Instant::now();
    let plans = plan(&client, &namespace, &waves(&namespace)).await?;
    let guard = json!({ "metadata": { "finalizers": [FINALIZER] } });
    plans.patch(&namespace, &PatchParams::default(), &Patch::Merge(&guard)).await?;
    for wave in 0..=LENGTH {
        let status = json!({ "status": { "progress": format!("{wave}/{LENGTH}") } });
        plans.patch_status(&namespace, &PatchParams::default(), &Patch::Merge(&status)).await?;
        if wave < LENGTH {
            apply(&client, &namespace, wave).await?;
        }
    }
    let took = started.elapsed();
    release(&plans, &namespace).await?;
    Ok(took)
}

async fn apply(client: &Client, namespace: &str, wave: usize) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    maps.patch(&name(wave), &PatchParams::apply(NAME), &Patch::Apply(&map(wave))).await?;
    Ok(())
}

/// Removes a plan and leaves the objects that it applied.
async fn release(plans: &Api<WavePlan>, name: &str) -> anyhow::Result<()> {
    let free = json!({ "metadata": { "finalizers": null } });
    plans.patch(name, &PatchParams::default(), &Patch::Merge(&free)).await?;
    plans.delete(name, &kube::api::DeleteParams::default()).await?;
    Ok(())
}

fn waves(namespace: &str) -> Value {
    let wave = |number: usize| {
        let before = if number == 0 { json!([]) } else { json!([{ "wave": name(number - 1) }]) };
        let manifests = json!({ "namespace": namespace, "inline": map(number).to_string() });
        json!({ "name": name(number), "dependsOn": before, "members": [{ "manifests": manifests }] })
    };
    json!({ "waves": (0..LENGTH).map(wave).collect::<Vec<_>>() })
}

fn map(number: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name(number) }, "data": { "text": "rain" } })
}

fn name(number: usize) -> String {
    format!("w{number}")
}

impl Chain {
    pub fn json(&self) -> Value {
        let [took, floor] = [self.took, self.floor].map(|time| time.as_secs_f64());
        json!({ "seconds": took, "floorSeconds": floor, "ratio": self.ratio(), "writes": self.writes, "needed": NEEDED })
    }

    fn ratio(&self) -> f64 {
        self.took.as_secs_f64() / self.floor.as_secs_f64()
    }

    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.took < crate::CHAIN, "five waves take longer than promised");
        anyhow::ensure!(self.writes == NEEDED, "{} writes where {NEEDED} are needed", self.writes);
        Ok(())
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (took, floor) = (self.took.as_secs_f64(), self.floor.as_secs_f64());
        let promised = crate::CHAIN.as_secs_f64();
        writeln!(f, "five waves, one after another   {took:>8.2} s    (promised: {promised} s)")?;
        writeln!(f, "  the needed writes alone       {floor:>8.2} s    ratio {:.1}", self.ratio())?;
        write!(f, "  writes                        {:>8}      (needed: {NEEDED})", self.writes)
    }
}
