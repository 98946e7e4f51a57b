//! What a teardown writes into status: enough to resume after a crash at any point.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The teardown of an object, as published in its status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeardownRecord {
    /// When the teardown started. The deadline of the whole teardown counts from here.
    pub started_at: Timestamp,
    /// The steps, in topological order.
    pub steps: Vec<StepRecord>,
}

impl TeardownRecord {
    /// Returns the record of a step, if there is one.
    pub fn step(&self, name: &str) -> Option<&StepRecord> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// The steps that were given up, with what was left behind.
    pub fn leaked(&self) -> impl Iterator<Item = &StepRecord> {
        self.steps.iter().filter(|step| step.phase == StepPhase::Leaked)
    }
}

/// One step of a teardown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepRecord {
    /// The name of the step.
    pub name: String,
    /// The phase of the step.
    pub phase: StepPhase,
    /// When all steps before it were over. Its deadline counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the step was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Whether the step is still running after its deadline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overdue: bool,
    /// What the step waits for, or what was left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl StepRecord {
    /// A step that has not started.
    pub(super) fn waiting(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            phase: StepPhase::Waiting,
            started_at: None,
            finished_at: None,
            overdue: false,
            message: None,
        }
    }
}

/// The phase of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StepPhase {
    /// A step that must come before it is not over.
    Waiting,
    /// The step is running.
    Running,
    /// The objects of the step are gone.
    Done,
    /// The step was given up; the message says what was left behind.
    Leaked,
}

impl StepPhase {
    /// Whether the steps that come after this one may start.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Leaked)
    }
}
