//! What is known of a workspace.

use jiff::Timestamp;
use opcore::conditions::Condition;
use opcore::duration::Span;
use opcore::finalizer::TeardownRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::spec::Approval;

/// What is known of a workspace. Nothing sensitive is in here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TerraformWorkspaceStatus {
    /// Where it stands, in one word.
    pub phase: WorkspacePhase,
    /// The run that is under way, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// The last plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// What was last applied in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied: Option<Applied>,
    /// The inputs with which an apply last began, if one ever did: what a destroy works from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begun_inputs: Option<String>,
    /// Where the state was when an apply last began: `managed`, or the type of a custom backend and a digest of its settings,
    /// keyed for this workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begun_backend: Option<String>,
    /// What the last comparison with reality found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftStatus>,
    /// What the `check` blocks of the module found wrong when reality was last looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_checks: Vec<Diagnostic>,
    /// The outputs, without their values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputStatus>,
    /// The Secret that has their values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs_secret: Option<String>,
    /// From what that Secret was last written, and what it was then: as long as both are so, nobody reads them again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs_written: Option<OutputsWritten>,
    /// The state, when it is in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateStatus>,
    /// Who holds the lock of the state, as long as that keeps a run from starting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockStatus>,
    /// What Terraform said of the last run, errors first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostic>,
    /// Runs in a row that failed with the same inputs.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: i32,
    /// When a failed run is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The last runs, the latest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RunRecord>,
    /// Requests that were carried out.
    #[serde(skip_serializing_if = "Handled::is_empty")]
    pub handled: Handled,
    /// How far the teardown is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub teardown: Option<TeardownRecord>,
    /// The generation of the spec that this speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`, `Reconciling`, `Stalled`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

opcore::impl_conditions!(TerraformWorkspaceStatus);
opcore::impl_taken_down!(TerraformWorkspaceStatus);

/// Where a workspace stands, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkspacePhase {
    /// Something must come first: an input, a workspace that it depends on, its turn.
    #[default]
    Pending,
    /// A run plans.
    Planning,
    /// A plan waits for a person.
    AwaitingApproval,
    /// A run applies.
    Applying,
    /// As the spec asks.
    Ready,
    /// A run failed, or cannot begin.
    Failed,
    /// Nothing goes on until someone resumes it.
    Suspended,
    /// What was made is being destroyed.
    Deleting,
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Action {
    /// Plans, and keeps the plan for a person.
    Plan,
    /// Plans and applies, or applies a plan that was approved.
    Apply,
    /// Compares reality with the state.
    Check,
    /// Destroys everything.
    Destroy,
}

impl Action {
    /// In one lower-case word, as on the label of its Job.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Check => "check",
            Self::Destroy => "destroy",
        }
    }
}

/// A run: one Job.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Counts the runs of a workspace.
    pub number: i64,
    /// Its Job.
    pub job: String,
    /// What it does.
    pub action: Action,
    /// The inputs it works from.
    pub inputs: String,
    /// The approved plan that it applies, if it applies one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Where the state is, by its inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The Secret with the state that it begins with, if there is none of the workspace's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<String>,
    /// Whether a person asked for it, or for a run that failed and that it repeats: then it goes on without a state, or with
    /// one in another place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
    /// Whether there must be a state: something was applied, and nobody asked to go on without.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expects_state: bool,
    /// Whether it takes the newest versions of providers that the module allows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub upgrade: bool,
    /// Whether it repeats a run that failed with the same inputs: what that left half made is not made anew without a
    /// person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
    /// Whether it failed in a way in which the same inputs fail each time: it is not repeated before they change, or someone
    /// asks for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lasting: bool,
    /// The inputs with which an apply had begun before it, if one had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_inputs: Option<String>,
    /// Where the state was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_backend: Option<String>,
    /// The generation of the spec that it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// When it was decided on.
    pub started_at: Timestamp,
    /// The UID of its Job, once that is known to exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_uid: Option<String>,
    /// Whether its pod had not started when nobody waited for it any more: then its Job is deleted, and nothing was done,
    /// unless the pod starts before it is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

impl Run {
    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.finished_at.is_some()
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    /// The plan was applied.
    Applied,
    /// There was nothing to change.
    Unchanged,
    /// The plan is kept and waits for a person.
    Planned,
    /// Reality was compared with the state.
    Checked,
    /// Everything was destroyed.
    Destroyed,
    /// Terraform reported errors.
    Failed,
    /// It took longer than it may; Terraform was asked to stop.
    TimedOut,
    /// It was asked to stop: its node was drained, its Job deleted.
    Interrupted,
    /// Someone else holds the lock of the state.
    Locked,
    /// The plan that was approved no longer fits the state.
    Stale,
    /// It ended without a word: its pod was killed or could not start.
    Lost,
}

impl Outcome {
    /// Whether it is what the run was for.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Applied | Self::Unchanged | Self::Planned | Self::Checked | Self::Destroyed)
    }
}

/// A plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanStatus {
    /// By which it is approved.
    pub id: String,
    /// The inputs it was made from.
    pub inputs: String,
    /// The serial of the state it was made from.
    pub serial: i64,
    /// How many resources it makes.
    pub add: i64,
    /// How many it changes.
    pub change: i64,
    /// How many it destroys.
    pub destroy: i64,
    /// How many it takes into the state.
    #[serde(default, skip_serializing_if = "is_none")]
    pub import: i64,
    /// How many have another address in the state from then on.
    #[serde(default, rename = "move", skip_serializing_if = "is_none")]
    pub moved: i64,
    /// How many it takes out of the state, and leaves as they are.
    #[serde(default, skip_serializing_if = "is_none")]
    pub forget: i64,
    /// The counts in short: `+2 ~0 -1`, and `+0 ~0 -0, 1 to forget`.
    pub summary: String,
    /// What a person should look at before it is applied, if there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_reason: Option<ApprovalReason>,
    /// Whether it waits for a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
    /// Whether a person threw it away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discarded: bool,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_at: Option<Timestamp>,
}

impl PlanStatus {
    /// What it does beside making, changing and destroying: `1 to import`, `2 to forget`.
    pub fn others(import: i64, moved: i64, forget: i64) -> Vec<String> {
        let all = [(import, "import"), (moved, "move"), (forget, "forget")];
        all.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} to {what}")).collect()
    }

    /// Whether it waits for a person where this approval is asked for.
    pub fn waits_under(&self, approval: Approval) -> bool {
        self.needs_approval
            && match approval {
                Approval::Auto => self.approval_reason == Some(ApprovalReason::ReplacesTainted),
                Approval::Manual => true,
                Approval::AutoUnlessDestroy => self.destroy > 0 || self.approval_reason.is_some(),
            }
    }
}

/// Why a person should look at a plan before it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalReason {
    /// It destroys or replaces something.
    Destroys,
    /// It takes something out of the state that stays where it is, and that nobody looks after any more.
    Forgets,
    /// It destroys and makes anew what an apply that failed left half made, and the last one failed as well.
    ReplacesTainted,
}

impl ApprovalReason {
    /// In a clause of which the plan is the subject.
    pub fn words(self) -> &'static str {
        match self {
            Self::Destroys => "it destroys or replaces something",
            Self::Forgets => "it takes something out of the state that stays where it is",
            Self::ReplacesTainted => "it destroys and makes anew what the apply that failed left half made",
        }
    }
}

/// What was applied in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// The inputs.
    pub hash: String,
    /// The serial of the state after it.
    pub serial: i64,
    /// When.
    pub time: Timestamp,
}

/// What a comparison with reality found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftStatus {
    /// When it was made.
    pub checked_at: Timestamp,
    /// How many resources differ.
    pub count: i64,
    /// In short: `None`, or `3 resources`.
    pub summary: String,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ChangedResource>,
}

impl DriftStatus {
    /// The summary of a comparison that failed.
    pub const UNKNOWN: &str = "Unknown";
}

/// A resource and what happened, or happens, to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedResource {
    /// Its address in the configuration.
    pub address: String,
    /// What: `create`, `update`, `delete`, `replace`, `import`, `move`, `forget`.
    pub action: String,
}

/// An output, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputStatus {
    /// Its name: its key in the Secret.
    pub name: String,
    /// Whether the module says that it is sensitive.
    pub sensitive: bool,
}

/// From what the Secret with the outputs was last written, and what it was then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OutputsWritten {
    /// The generation of the spec, which says where they go.
    pub generation: i64,
    /// The version of the Secret with what the last run told.
    pub report: String,
    /// The version of the Secret with the outputs.
    pub secret: String,
}

/// The state, when it is in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateStatus {
    /// The Secret from which it can be read.
    pub secret: String,
    /// Counts its versions.
    pub serial: i64,
    /// How many resources it has.
    pub resources: i64,
    /// Its size in bytes, as Terraform knows it.
    pub bytes: i64,
}

/// Who holds the lock of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockStatus {
    /// Who.
    pub holder: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl LockStatus {
    /// Which lock it is, exactly, as a request to take it away names it: `HOLDER since TIME`.
    pub fn words(&self) -> String {
        match self.since {
            Some(since) => format!("{} since {since}", self.holder),
            None => self.holder.clone(),
        }
    }
}

/// Something that Terraform, or the runner, has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about, in a line.
    pub summary: String,
    /// More words; values from Secrets are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The resource it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The field of the spec that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The file it is about, with the line: `main.tf:12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

impl Diagnostic {
    /// Whether it tells of a `check` block whose assertion does not hold.
    pub fn is_failed_check(&self) -> bool {
        self.severity == Severity::Warning && self.summary == "Check block assertion failed"
    }
}

/// How bad something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Severity {
    /// It kept the run from what it was to do.
    #[default]
    Error,
    /// Someone should have a look.
    Warning,
}

/// A run of the past.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// Its number.
    pub number: i64,
    /// What it did.
    pub action: Action,
    /// How it ended.
    pub outcome: Outcome,
    /// What it planned: `+2 ~0 -1`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// When it was decided on.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration: Span,
    /// How long each stage in its pod took.
    #[serde(default, skip_serializing_if = "StageTimes::is_empty")]
    pub stages: StageTimes,
}

/// How long the stages of a run took, each as far as the run got to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StageTimes {
    /// Fetching providers and modules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<Span>,
    /// Planning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Span>,
    /// Applying, or destroying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apply: Option<Span>,
    /// Reading the outputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Span>,
}

impl StageTimes {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Requests that were carried out, by the values of their annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Handled {
    /// The last request for a new plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replan: Option<String>,
    /// The last request for newer versions of providers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<String>,
    /// The last request to take a lock away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlock: Option<String>,
}

impl Handled {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_none(count: &i64) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(count: &i32) -> bool {
    *count == 0
}
