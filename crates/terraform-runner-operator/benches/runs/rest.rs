//! A thousand workspaces that are ready: nothing is to be done, and nothing is done.

use std::fmt;
use std::time::Duration;

use opcore::operator::REQUESTED_AT_ANNOTATION;
use sandbox::Sandbox;
use serde_json::{Value, json};

use crate::program::Program;
use crate::scene::Scene;

const ALL: usize = 1_000;
/// So often someone asks for a look at each.
const ROUNDS: usize = 3;

pub struct Rest {
    restart_writes: usize,
    writes: usize,
    looks: usize,
    resident: f64,
}

/// Brings the workspaces of the crowd to a thousand, and restarts the operator on them.
pub async fn measure(sandbox: &Sandbox, scene: &mut Scene) -> anyhow::Result<Rest> {
    scene.play(Duration::ZERO);
    let program = Program::start(sandbox, &["--max-runs=50", "--max-runs-per-namespace=50"]).await?;
    scene.create(crate::crowd::CROWD..ALL, 4).await?;
    scene.ready(ALL).await?;
    program.at_rest(ALL).await?;
    drop(program);
    scene.rest();

    let program = Program::start(sandbox, &[]).await?;
    program.at_rest(ALL).await?;
    let before = program.metrics().await?;
    for round in 1..=ROUNDS {
        scene.annotate(ALL, REQUESTED_AT_ANNOTATION, &format!("round {round}")).await?;
        program.at_rest(before.looks() + round * ALL).await?;
    }
    let after = program.metrics().await?;
    Ok(Rest {
        restart_writes: before.writes(),
        writes: after.writes() - before.writes(),
        looks: after.looks() - before.looks(),
        resident: program.resident()?,
    })
}

impl Rest {
    pub fn json(&self) -> Value {
        json!({
            "workspaces": ALL, "restartWrites": self.restart_writes, "writes": self.writes, "looks": self.looks,
            "residentMiB": self.resident,
        })
    }

    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.restart_writes == 0, "a restart wrote {} times", self.restart_writes);
        anyhow::ensure!(self.writes == 0, "looks at what is ready wrote {} times", self.writes);
        anyhow::ensure!(self.resident < crate::FULL_MIB, "1,000 workspaces take more memory than promised");
        Ok(())
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory with 1,000 workspaces    {:>8.1} MiB  (promised: {} MiB)", self.resident, crate::FULL_MIB)?;
        writeln!(f, "  writes on restart             {:>8}      (promised: 0)", self.restart_writes)?;
        write!(f, "  writes in forced looks        {:>8}      (promised: 0; {} looks)", self.writes, self.looks)
    }
}
