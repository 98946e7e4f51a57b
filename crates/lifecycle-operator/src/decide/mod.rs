//! What is decided: pure functions from what was observed, with tests that need no cluster.

pub mod gate;
pub mod keep;
pub mod migration;
pub mod outline;
pub mod pods;
pub mod stack;
pub mod teardown;
pub mod volume;

#[cfg(test)]
mod tests;

use opcore::act::Comparison;
use opcore::ownership::Claimant;
use opcore::{ObjectId, Write};

use crate::observe::{Found, Observed};
use crate::render::Settings;

/// What decisions take besides what was observed.
#[derive(Clone, Debug)]
pub struct Decider {
    /// The settings of the operator.
    pub settings: Settings,
    /// The operator's name: its field manager.
    pub operator: String,
}

/// The object that a write is about, as it was found.
fn live<'a>(observed: &'a Observed, id: &ObjectId) -> Option<&'a Found> {
    observed.found.iter().find(|found| found.id() == *id)
}

/// Whether carrying out a write would change nothing.
fn is_applied(write: &Write, observed: &Observed, claimant: &Claimant) -> bool {
    let Write::Apply(apply) = write else { return false };
    let Some(found) = live(observed, &apply.id()).filter(|found| !found.is_deleting()) else { return false };
    Comparison::of(claimant, apply).is_ok_and(|wanted| wanted.holds(&found.json))
}
