//! A thousand ConfigMaps in a hundred waves: ten chains of ten waves of ten members.
//!
//! The times at which writes arrived and were answered are read from the audit log of the API server, so that neither
//! our own clock nor the network affects them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use opcore_testing::wait::within;
use sandbox::Sandbox;
use serde_json::{Value, json};
use wave_orchestrator::api::v1alpha1::WavePlan;

use crate::operator::{Operator, is_ready, plan};

const SIDE: usize = 10;
const MEMBERS: usize = SIDE * SIDE * SIDE;
const PATIENCE: Duration = Duration::from_mins(3);
/// The resync interval, instead of ten minutes; and how long resyncs are observed.
const RESYNC: Duration = Duration::from_secs(10);
const RESYNCS: u32 = 6;

pub struct Crowd {
    took: Duration,
    /// The time from the response to the last write of a wave until the first write of the wave that depends on it
    /// arrives, sorted.
    steps: Vec<Duration>,
    object_writes: usize,
    plan_writes: usize,
    restart_writes: usize,
    resync_writes: usize,
    resync_reconciles: usize,
}

pub async fn measure(sandbox: &Sandbox) -> anyhow::Result<Crowd> {
    let client = sandbox.client().await?;
    let namespace = sandbox.namespace("crowd").await?;
    let operator = Operator::start(&sandbox.config().await?);
    let started = Instant::now();
    let plans = plan(&client, "crowd", &waves(&namespace)).await?;
    within(PATIENCE, &plans, "crowd", "Ready", is_ready).await;
    let took = started.elapsed();
    let (object_writes, plan_writes) = (operator.writes(Some("configmaps")), operator.writes(Some("waveplans")));
    operator.stop().await;

    // After these reconciles, everything that it watches has been reported.
    let operator = Operator::start(&sandbox.config().await?);
    reconciled(&operator, 3).await?;
    let restart_writes = operator.writes(None);

    let patch = json!({ "spec": { "resync": format!("{}s", RESYNC.as_secs()) } });
    let changed = plans.patch("crowd", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let generation = changed.metadata.generation;
    let is_of = |plan: &WavePlan| {
        is_ready(plan) && plan.status.as_ref().is_some_and(|status| status.observed_generation == generation)
    };
    within(PATIENCE, &plans, "crowd", "Ready again", is_of).await;
    come_to_rest(&operator).await?;
    let (writes, reconciles) = (operator.writes(None), operator.reconciles());
    tokio::time::sleep(RESYNC * RESYNCS).await;
    let (resync_writes, resync_reconciles) = (operator.writes(None) - writes, operator.reconciles() - reconciles);
    operator.stop().await;
    let steps = steps(sandbox, &namespace)?;
    Ok(Crowd { took, steps, object_writes, plan_writes, restart_writes, resync_writes, resync_reconciles })
}

/// Waits until the operator has reconciled its plan this often.
async fn reconciled(operator: &Operator, times: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while operator.reconciles() < times {
        anyhow::ensure!(Instant::now() < deadline, "it reconciled {} of {times} times", operator.reconciles());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Waits until nothing has been written for longer than a change of mere progress is delayed.
async fn come_to_rest(operator: &Operator) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = operator.writes(None);
        tokio::time::sleep(Duration::from_secs(6)).await;
        if operator.writes(None) == before {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "it does not come to rest");
    }
}

fn waves(namespace: &str) -> Value {
    let mut waves = Vec::new();
    for (row, column) in (0..SIDE).flat_map(|row| (0..SIDE).map(move |column| (row, column))) {
        let before = if row == 0 { json!([]) } else { json!([{ "wave": name(row - 1, column) }]) };
        let member = |number: usize| {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": { "text": "rain" },
                "metadata": { "name": format!("{}-{number}", name(row, column)) },
            });
            json!({ "manifests": { "namespace": namespace, "inline": map.to_string() } })
        };
        let members: Vec<Value> = (0..SIDE).map(member).collect();
        waves.push(json!({ "name": name(row, column), "dependsOn": before, "members": members }));
    }
    json!({ "waves": waves })
}

fn name(row: usize, column: usize) -> String {
    format!("w{row}-{column}")
}

/// For each wave: when its first write arrived, and when its last one was answered.
fn steps(sandbox: &Sandbox, namespace: &str) -> anyhow::Result<Vec<Duration>> {
    let log = std::fs::read_to_string(sandbox.audit_log().context("the sandbox keeps no audit log")?)?;
    let mut waves: BTreeMap<String, (Timestamp, Timestamp)> = BTreeMap::new();
    for line in log.lines().filter(|line| line.contains(namespace) && line.contains("\"patch\"")) {
        let event: Value = serde_json::from_str(line)?;
        let about = &event["objectRef"];
        let (Some(object), true) = (about["name"].as_str(), about["resource"] == "configmaps") else { continue };
        let Some((wave, _)) = object.rsplit_once('-') else { continue };
        let time = |field: &str| event[field].as_str().unwrap_or_default().parse::<Timestamp>();
        let (came, answered) = (time("requestReceivedTimestamp")?, time("stageTimestamp")?);
        let span = waves.entry(wave.to_owned()).or_insert((came, answered));
        *span = (span.0.min(came), span.1.max(answered));
    }
    let mut steps = Vec::new();
    for (row, column) in (1..SIDE).flat_map(|row| (0..SIDE).map(move |column| (row, column))) {
        let of = |row: usize| waves.get(&name(row, column)).with_context(|| format!("nothing of {row} was written"));
        let (before, after) = (of(row - 1)?, of(row)?);
        steps.push(Duration::try_from(after.0.duration_since(before.1)).context("a wave began too early")?);
    }
    steps.sort();
    Ok(steps)
}

impl Crowd {
    fn percentile(&self, percent: usize) -> Duration {
        self.steps[(self.steps.len() * percent).div_ceil(100) - 1]
    }

    pub fn json(&self) -> Value {
        json!({
            "members": MEMBERS, "seconds": self.took.as_secs_f64(),
            "stepSeconds": { "p50": self.percentile(50).as_secs_f64(), "p99": self.percentile(99).as_secs_f64() },
            "objectWrites": self.object_writes, "planWrites": self.plan_writes, "restartWrites": self.restart_writes,
            "resyncWrites": self.resync_writes, "resyncLooks": self.resync_reconciles,
        })
    }

    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.object_writes == MEMBERS, "{} writes for {MEMBERS} objects", self.object_writes);
        anyhow::ensure!(self.restart_writes == 0, "a restart wrote {} times", self.restart_writes);
        anyhow::ensure!(self.resync_writes == 0, "resyncs wrote {} times", self.resync_writes);
        anyhow::ensure!(self.percentile(99) < crate::STEP, "a wave starts later than promised");
        Ok(())
    }
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        writeln!(f, "1,000 members in 100 waves      {:>8.2} s", self.took.as_secs_f64())?;
        let (p50, p99, promised) = (millis(self.percentile(50)), millis(self.percentile(99)), millis(crate::STEP));
        writeln!(f, "  ready to the next first write {p50:>8.0} ms   (p99: {p99:.0} ms, promised: {promised} ms)")?;
        writeln!(f, "  writes of objects             {:>8}      (needed: {MEMBERS})", self.object_writes)?;
        writeln!(f, "  writes of the plan            {:>8}", self.plan_writes)?;
        writeln!(f, "  writes on restart             {:>8}      (promised: 0)", self.restart_writes)?;
        write!(
            f,
            "  writes in {RESYNCS} resyncs          {:>8}      (promised: 0; {} reconciles)",
            self.resync_writes, self.resync_reconciles
        )
    }
}
