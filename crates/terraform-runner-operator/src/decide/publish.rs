//! What users read about a workspace.

use jiff::Timestamp;
use opcore::conditions::{self, New, shortened};

use super::next_run::{self, Assessment};
use crate::api::v1alpha1::{DriftStatus, TerraformWorkspace, TerraformWorkspaceStatus};

/// Whether reality differs from the state.
const DRIFTED: &str = "Drifted";

/// Whether a `check` block of the module failed.
const CHECKS_FAILED: &str = "ChecksFailed";

/// Fills in phase and conditions.
pub(super) fn describe(
    workspace: &TerraformWorkspace,
    assessment: &Assessment,
    status: &mut TerraformWorkspaceStatus,
    now: Timestamp,
) {
    let generation = workspace.metadata.generation;
    status.phase = assessment.phase;
    assessment.summary.write(status, generation, now);
    match &status.drift {
        // A failed comparison does not mean that the differences are gone.
        Some(drift) if drift.summary == DriftStatus::UNKNOWN => {}
        Some(drift) if drift.count > 0 => {
            let named: Vec<&str> = drift.resources.iter().take(5).map(|changed| changed.address.as_str()).collect();
            let message =
                format!("The infrastructure differs from the state in {}: {}.", drift.summary, named.join(", "));
            let new = New { kind: DRIFTED, status: "True", reason: "RealityDiffers", message: &message };
            conditions::set(&mut status.conditions, new, generation, now);
        }
        _ => conditions::remove(&mut status.conditions, DRIFTED),
    }
    if status.failed_checks.is_empty() {
        conditions::remove(&mut status.conditions, CHECKS_FAILED);
    } else {
        let words: Vec<String> = status.failed_checks.iter().map(next_run::words).collect();
        let message = shortened(&words.join(" "), 1000);
        let new = New { kind: CHECKS_FAILED, status: "True", reason: "AssertionFailed", message: &message };
        conditions::set(&mut status.conditions, new, generation, now);
    }
}
