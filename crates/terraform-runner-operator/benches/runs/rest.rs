//! A thousand ready workspaces: nothing has to be done, and nothing is done.

use std::fmt;
use std::time::Duration;

use opcore::operator::REQUESTED_AT_ANNOTATION;
use sandbox::Sandbox;
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::program::Program;

const ALL: usize = 1_000;
/// How often a reconcile of each is requested.
const ROUNDS: usize = 3;

pub struct Rest {
    restart_writes: usize,
    writes: usize,
    reconciles: usize,
    resident: f64,
}

/// Increases the number of workspaces to a thousand, and restarts the operator.
pub async fn measure(sandbox: &Sandbox, fixture: &mut Fixture) -> anyhow::Result<Rest> {
    fixture.simulate_runs(Duration::ZERO);
    let program = Program::start(sandbox, &["--max-runs=50", "--max-runs-per-namespace=50"]).await?;
    fixture.create(crate::crowd::CROWD..ALL, 4).await?;
    fixture.ready(ALL).await?;
    program.at_rest(ALL).await?;
    drop(program);
    fixture.rest();

    let program = Program::start(sandbox, &[]).await?;
    program.at_rest(ALL).await?;
    let before = program.metrics().await?;
    for round in 1..=ROUNDS {
        fixture.annotate(ALL, REQUESTED_AT_ANNOTATION, &format!("round {round}")).await?;
        program.at_rest(before.reconciles() + round * ALL).await?;
    }
    let after = program.metrics().await?;
    Ok(Rest {
        restart_writes: before.writes(),
        writes: after.writes() - before.writes(),
        reconciles: after.reconciles() - before.reconciles(),
        resident: program.resident()?,
    })
}

impl Rest {
    pub fn json(&self) -> Value {
        json!({
            "workspaces": ALL, "restartWrites": self.restart_writes, "writes": self.writes, "looks": self.reconciles,
            "residentMiB": self.resident,
        })
    }

    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.restart_writes == 0, "a restart wrote {} times", self.restart_writes);
        anyhow::ensure!(self.writes == 0, "reconciles of ready workspaces wrote {} times", self.writes);
        anyhow::ensure!(self.resident < crate::FULL_MIB, "1,000 workspaces take more memory than promised");
        Ok(())
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory with 1,000 workspaces    {:>8.1} MiB  (promised: {} MiB)", self.resident, crate::FULL_MIB)?;
        writeln!(f, "  writes on restart             {:>8}      (promised: 0)", self.restart_writes)?;
        write!(
            f,
            "  writes in forced reconciles   {:>8}      (promised: 0; {} reconciles)",
            self.writes, self.reconciles
        )
    }
}
