//! What a teardown writes into status: enough to resume after a crash at any point.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The teardown of an object, as published in its status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeardownRecord {
    /// When the teardown began. The deadline of the whole counts from here.
    pub started_at: Timestamp,
    /// The steps, in an order in which they could run one after another.
    pub steps: Vec<StepRecord>,
}

impl TeardownRecord {
    /// What a step's record says, if it has one.
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
    /// The step's name.
    pub name: String,
    /// How far it is.
    pub phase: StepPhase,
    /// When everything it comes after was over. Its deadline counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Whether it is still running past its deadline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overdue: bool,
    /// What it waits for, or what was left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl StepRecord {
    /// A step that has not begun.
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

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StepPhase {
    /// A step it comes after is not over.
    Waiting,
    /// It may act.
    Running,
    /// What it stands for is gone.
    Done,
    /// It was given up; the message says what was left behind.
    Leaked,
}

impl StepPhase {
    /// Whether the steps that come after this one may start.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Leaked)
    }
}
