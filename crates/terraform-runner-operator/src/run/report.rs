//! The report of a runner about a run: in a Secret, because the outputs are in the same one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::v1alpha1::{Action, ApprovalReason, ChangedResource, Diagnostic, Outcome, StageTimes};

/// The key of a [`Report`] in its Secret.
pub const REPORT_KEY: &str = "report.json";
/// The key of the [`OutputValues`] in the same Secret, compressed by gzip. It stays when a later run has no outputs.
pub const OUTPUTS_KEY: &str = "outputs.json.gz";
/// The key of the [`Journal`] in the same Secret.
pub const JOURNAL_KEY: &str = "journal.json";
/// How many resources a report names.
pub const NAMED_RESOURCES: usize = 50;
/// How many diagnostics a report has.
pub const NAMED_DIAGNOSTICS: usize = 10;
/// The longest text, in characters.
const LONGEST: usize = 500;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The run, by the name of its Job.
    pub run: String,
    /// What it did.
    pub action: Action,
    /// The inputs it worked from.
    pub inputs: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The last stage that it reached.
    pub stage: Stage,
    /// The plan, when one was made or applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
    /// Whether it failed in a way that will repeat with the same inputs.
    #[serde(default)]
    pub lasting: bool,
    /// What differs between reality and the state.
    #[serde(default)]
    pub drift: DriftReport,
    /// The diagnostics of Terraform, errors first.
    #[serde(default)]
    pub diagnostics: Vec<Diagnostic>,
    /// The state afterwards, as the store knows it; none if it does not exist, or is in another backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateReport>,
    /// Whether it is certain that nothing exists: after a destroy, or after an apply that created nothing while the
    /// state is in another backend.
    #[serde(default)]
    pub empty: bool,
    /// Resources that Terraform had created, or was about to create, and that are not in the state, because Terraform
    /// was killed.
    #[serde(default)]
    pub unrecorded: Vec<String>,
    /// How long each stage took, in milliseconds.
    #[serde(default)]
    pub milliseconds: BTreeMap<Stage, u64>,
    /// The name and version that Terraform reports: `OpenTofu v1.12.6`.
    #[serde(default)]
    pub engine: String,
}

impl Report {
    /// Cuts it to the limits: whoever may write the Secret may write anything.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        for text in [&mut self.run, &mut self.inputs, &mut self.engine] {
            cut(text);
        }
        self.diagnostics.truncate(NAMED_DIAGNOSTICS);
        for diagnostic in &mut self.diagnostics {
            cut(&mut diagnostic.summary);
            let more = [&mut diagnostic.detail, &mut diagnostic.address, &mut diagnostic.field, &mut diagnostic.at];
            more.into_iter().flatten().for_each(cut);
        }
        let planned = self.plan.iter_mut().map(|plan| {
            cut(&mut plan.id);
            &mut plan.resources
        });
        for resources in planned.chain([&mut self.drift.resources]) {
            resources.truncate(NAMED_RESOURCES);
            for resource in resources {
                cut(&mut resource.address);
                cut(&mut resource.action);
            }
        }
        self.unrecorded.truncate(NAMED_RESOURCES);
        self.unrecorded.iter_mut().for_each(cut);
        self
    }

    /// How long the stages took, in the form for a status.
    pub fn stages(&self) -> StageTimes {
        let spent = |stage| self.milliseconds.get(&stage).map(|spent| Duration::from_millis(*spent).into());
        StageTimes {
            init: spent(Stage::Init),
            plan: spent(Stage::Plan),
            apply: spent(Stage::Apply),
            outputs: spent(Stage::Outputs),
        }
    }
}

/// What a run has begun to create and is not in the state yet. It is kept beside the report while the run applies, and
/// shows what may have been created when its pod is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// The run, by the name of its Job.
    pub run: String,
    /// The addresses, each with the text with which it may be reported.
    pub begun: BTreeMap<String, String>,
}

impl Journal {
    /// Cuts it to the limits, as with a [`Report`].
    #[must_use]
    pub fn bounded(mut self) -> Self {
        cut(&mut self.run);
        let named = self.begun.into_iter().take(NAMED_RESOURCES);
        let short = |(mut address, mut words): (String, String)| {
            cut(&mut address);
            cut(&mut words);
            (address, words)
        };
        self.begun = named.map(short).collect();
        self
    }
}

/// Cuts a text that is too long.
fn cut(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(LONGEST + 1) {
        text.truncate(end);
        text.push('…');
    }
}

/// The stages of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Writing the files.
    Prepare,
    /// Fetching providers and modules.
    Init,
    /// Planning.
    Plan,
    /// Applying.
    Apply,
    /// Reading the outputs.
    Outputs,
    /// Everything is done.
    Done,
}

/// A plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// A digest of the plan file.
    pub id: String,
    /// The serial of the state from which it was made.
    pub serial: i64,
    /// How many resources it creates.
    pub add: i64,
    /// How many it changes.
    pub change: i64,
    /// How many it destroys.
    pub destroy: i64,
    /// How many it imports into the state.
    #[serde(default)]
    pub import: i64,
    /// How many get another address.
    #[serde(default, rename = "move")]
    pub moved: i64,
    /// How many it removes from the state without destroying them.
    #[serde(default)]
    pub forget: i64,
    /// Why a person should look at it before it is applied, if there is a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_reason: Option<ApprovalReason>,
    /// The first resources that it changes.
    pub resources: Vec<ChangedResource>,
}

/// What differs between reality and the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftReport {
    /// How many resources differ.
    pub count: i64,
    /// The first of them.
    pub resources: Vec<ChangedResource>,
}

/// The state, as the store knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateReport {
    /// The number of its version.
    pub serial: i64,
    /// How many resources it has.
    pub resources: i64,
    /// Its size in bytes.
    pub bytes: i64,
}

/// The outputs: what `tofu output -json` prints.
pub type OutputValues = BTreeMap<String, OutputValue>;

/// Whether a Secret can have a key of this name. Terraform allows letters of any language in the name of an output.
pub fn is_key(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=253).contains(&name.len()) && name.chars().all(fits) && name != "." && !name.starts_with("..")
}

/// One output.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputValue {
    /// Its value.
    pub value: Value,
    /// Whether the module says that it is sensitive.
    #[serde(default)]
    pub sensitive: bool,
}

impl std::fmt::Debug for OutputValue {
    /// Without the value: this may end up in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OutputValue(sensitive: {})", self.sensitive)
    }
}

impl OutputValue {
    /// As it is written into a Secret: a string as it is, anything else as JSON.
    pub fn text(&self) -> String {
        match &self.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}
