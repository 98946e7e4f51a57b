//! A hundred workspaces at once, of which ten may run concurrently.

use std::fmt;
use std::pin::pin;
use std::time::{Duration, Instant};

use sandbox::Sandbox;
use serde_json::{Value, json};

use crate::fixture::{Fixture, name};
use crate::program::Program;

pub const CROWD: usize = 100;
const AT_ONCE: usize = 10;
/// How long a run takes: longer than a reconcile of a workspace may.
const RUN: Duration = Duration::from_secs(2);

pub struct Crowd {
    took: Duration,
    /// The largest number of concurrent runs.
    most: usize,
    /// By how many places a Job was created earlier or later than its workspace.
    displaced: usize,
    /// The largest number of workspaces that waited for a worker.
    waiting: usize,
    p99: Duration,
    longest: Duration,
}

pub async fn measure(sandbox: &Sandbox, fixture: &mut Fixture) -> anyhow::Result<Crowd> {
    fixture.simulate_runs(RUN);
    let program =
        Program::start(sandbox, &[&format!("--max-runs={AT_ONCE}"), &format!("--max-runs-per-namespace={AT_ONCE}")])
            .await?;
    let started = Instant::now();
    // One after another, because otherwise they have no order.
    fixture.create(0..CROWD, 1).await?;
    let mut waiting = 0;
    let mut all_ready = pin!(fixture.ready(CROWD));
    loop {
        tokio::select! {
            ready = &mut all_ready => break ready?,
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                waiting = waiting.max(program.metrics().await?.waiting());
            }
        }
    }
    let took = started.elapsed();
    let metrics = program.metrics().await?;
    let record = fixture.record();
    anyhow::ensure!(record.order.len() == CROWD, "{} Jobs for {CROWD} workspaces", record.order.len());
    let places = (0..CROWD).filter_map(|number| {
        let place = record.order.iter().position(|workspace| *workspace == name(number))?;
        Some(place.abs_diff(number))
    });
    let displaced = places.max().unwrap_or(CROWD);
    let (p99, longest) = (metrics.within(0.99), metrics.within(1.0));
    Ok(Crowd { took, most: record.most, displaced, waiting, p99, longest })
}

impl Crowd {
    pub fn json(&self) -> Value {
        json!({
            "workspaces": CROWD, "seconds": self.took.as_secs_f64(), "runSeconds": RUN.as_secs_f64(),
            "runsAtOnce": self.most, "displaced": self.displaced, "waiting": self.waiting,
            "reconcileSecondsWithin": { "p99": self.p99.as_secs_f64(), "all": self.longest.as_secs_f64() },
        })
    }

    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.most <= AT_ONCE, "{} runs at once where {AT_ONCE} are allowed", self.most);
        anyhow::ensure!(self.displaced <= crate::DISPLACED, "a workspace lost {} places", self.displaced);
        anyhow::ensure!(self.longest < crate::RECONCILE, "a worker waited for longer than promised");
        Ok(())
    }
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: Duration| time.as_secs_f64();
        let floor = seconds(RUN) * f64::from(u32::try_from(CROWD / AT_ONCE).unwrap_or(u32::MAX));
        writeln!(f, "100 workspaces, ten at a time   {:>8.2} s    (their runs alone: {floor} s)", seconds(self.took))?;
        writeln!(f, "  most runs at once             {:>8}      (promised: {AT_ONCE})", self.most)?;
        writeln!(f, "  most places lost or won       {:>8}      (promised: {})", self.displaced, crate::DISPLACED)?;
        writeln!(f, "  most that waited for a worker {:>8}", self.waiting)?;
        write!(
            f,
            "  all reconciles took less than {:>8.2} s    (99 %: {:.2} s; promised: {} s)",
            seconds(self.longest),
            seconds(self.p99),
            seconds(crate::RECONCILE)
        )
    }
}
