//! The same chain with Flux alone, with Flux and nudges, and with our own manifests, on one control plane.

use std::fmt;
use std::time::{Duration, Instant};

use opcore_testing::wait::within;
use serde_json::{Value, json};

use crate::chain;
use crate::fleet::{self, Fleet, LENGTH, name, waves};
use crate::operator::{self, Operator, plan};

/// Four times as long as Flux alone takes.
const PATIENCE: Duration = Duration::from_mins(8);

pub struct Flux {
    alone: Duration,
    nudged: Duration,
    ours: Duration,
}

pub async fn measure() -> anyhow::Result<Flux> {
    let sandbox = fleet::start().await?;
    let fleet = Fleet::new(&sandbox, "alone").await?;
    let started = Instant::now();
    fleet.chain().await?;
    within(PATIENCE, &fleet.kustomizations(), &name(LENGTH), "Ready", fleet::is_ready).await;
    let alone = started.elapsed();

    let fleet = Fleet::new(&sandbox, "nudged").await?;
    let operator = Operator::start(&sandbox.config().await?);
    let started = Instant::now();
    fleet.chain().await?;
    let plans = plan(&fleet.client, "nudged", &waves(&fleet.namespace)).await?;
    within(PATIENCE, &plans, "nudged", "Ready", operator::is_ready).await;
    let nudged = started.elapsed();
    operator.stop().await;
    let (ours, _) = chain::operator(&sandbox).await?;
    Ok(Flux { alone, nudged, ours })
}

impl Flux {
    pub fn json(&self) -> Value {
        let [alone, nudged, ours] = [self.alone, self.nudged, self.ours].map(|time| time.as_secs_f64());
        json!({ "aloneSeconds": alone, "nudgedSeconds": nudged, "oursSeconds": ours })
    }

    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.nudged < crate::NUDGED, "a nudged chain takes longer than promised");
        anyhow::ensure!(self.ours < crate::CHAIN, "five waves take longer than promised");
        Ok(())
    }
}

impl fmt::Display for Flux {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: Duration| time.as_secs_f64();
        let times = |time: Duration| seconds(self.alone) / seconds(time);
        writeln!(f, "a chain of five by Flux alone   {:>8.2} s", seconds(self.alone))?;
        let (nudged, promised) = (seconds(self.nudged), seconds(crate::NUDGED));
        writeln!(
            f,
            "  nudged                        {nudged:>8.2} s    ({:.0} times as fast; promised: {promised} s)",
            times(self.nudged)
        )?;
        write!(
            f,
            "  applied by us                 {:>8.2} s    ({:.0} times as fast)",
            seconds(self.ours),
            times(self.ours)
        )
    }
}
