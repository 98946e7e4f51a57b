//! The observed state of a workspace.

use jiff::Timestamp;
use opcore::conditions::Condition;
use opcore::duration::Span;
use opcore::finalizer::TeardownRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::spec::Approval;

/// The observed state of a workspace. It contains no sensitive values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TerraformWorkspaceStatus {
    /// The phase of the workspace.
    pub phase: WorkspacePhase,
    /// The current run, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// The last plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// The last apply that was completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied: Option<Applied>,
    /// The digest of the inputs with which an apply last started, if one ever did. A destroy uses these inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begun_inputs: Option<String>,
    /// Where the state was stored when an apply last started: `managed`, or the type of a custom backend and a digest
    /// of its settings, keyed for this workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begun_backend: Option<String>,
    /// The result of the last comparison of the real infrastructure with the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftStatus>,
    /// The failed assertions of the `check` blocks of the module, as of the last run that evaluated them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_checks: Vec<Diagnostic>,
    /// The outputs, without their values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputStatus>,
    /// The name of the Secret with the values of the outputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs_secret: Option<String>,
    /// The versions of the objects from which that Secret was last written, and the version that it had then. While
    /// none of them changes, the outputs are not read again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs_written: Option<OutputsWritten>,
    /// The state, if it is stored in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateStatus>,
    /// The holder of the lock of the state, while the lock prevents a run from starting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockStatus>,
    /// The errors and warnings of the last run, errors first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostic>,
    /// The number of consecutive failed runs with the same inputs.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: i32,
    /// When a failed run is retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The last runs, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RunRecord>,
    /// The requests by annotation that were handled.
    #[serde(skip_serializing_if = "Handled::is_empty")]
    pub handled: Handled,
    /// The progress of the teardown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub teardown: Option<TeardownRecord>,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions of the workspace: `Ready`, and `Reconciling` or `Stalled` while they are true.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

opcore::impl_conditions!(TerraformWorkspaceStatus);
opcore::impl_taken_down!(TerraformWorkspaceStatus);

/// The phase of a workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkspacePhase {
    /// The workspace waits for an input, for a workspace that it depends on, or for its turn to run.
    #[default]
    Pending,
    /// A run is planning.
    Planning,
    /// A plan waits for approval.
    AwaitingApproval,
    /// A run is applying.
    Applying,
    /// The infrastructure is as the spec says.
    Ready,
    /// A run failed or cannot start.
    Failed,
    /// No run starts until the workspace is resumed.
    Suspended,
    /// The resources are being destroyed.
    Deleting,
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Action {
    /// Makes a plan and keeps it for approval.
    Plan,
    /// Plans and applies, or applies a plan that was approved.
    Apply,
    /// Compares the real infrastructure with the state.
    Check,
    /// Destroys all resources.
    Destroy,
}

impl Action {
    /// The action as one lower-case word, as in the label of its Job.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Check => "check",
            Self::Destroy => "destroy",
        }
    }
}

/// A run. Each run is one Job.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The sequence number of the run.
    pub number: i64,
    /// The name of the Job.
    pub job: String,
    /// The action of the run.
    pub action: Action,
    /// The digest of the inputs of the run.
    pub inputs: String,
    /// The id of the approved plan that the run applies, if it applies one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Where the state is stored, according to the inputs of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The name of the Secret with the state that the run starts with if the workspace has no state of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<String>,
    /// Whether a user requested this run, or the failed run that it repeats. Such a run continues without a state, or
    /// with a state in another backend.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
    /// Whether a state must exist: an apply was completed, and no user requested to continue without its state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expects_state: bool,
    /// Whether the run uses the newest versions of providers that the module allows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub upgrade: bool,
    /// Whether the run repeats a run that failed with the same inputs. Resources that the failed run left incomplete
    /// are then not recreated without approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
    /// Whether the run failed in a way in which the same inputs fail every time. It is not repeated until the inputs
    /// change or a new run is requested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lasting: bool,
    /// The digest of the inputs with which an apply had last started before this run, if one had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_inputs: Option<String>,
    /// Where the state was stored at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_backend: Option<String>,
    /// The generation of the spec when the run was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// When the run was decided.
    pub started_at: Timestamp,
    /// The UID of the Job, once it is known to exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_uid: Option<String>,
    /// Whether the run was abandoned because its pod did not start in time. Its Job is deleted. Nothing was changed,
    /// unless the pod starts before the Job is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The outcome of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

impl Run {
    /// Whether the run has ended.
    pub fn is_over(&self) -> bool {
        self.finished_at.is_some()
    }
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    /// The plan was applied.
    Applied,
    /// There was nothing to change.
    Unchanged,
    /// The plan was made and waits for approval.
    Planned,
    /// The real infrastructure was compared with the state.
    Checked,
    /// All resources were destroyed.
    Destroyed,
    /// Terraform reported errors.
    Failed,
    /// The run exceeded its timeout, and Terraform was asked to stop.
    TimedOut,
    /// The run was asked to stop, because its node was drained or its Job was deleted.
    Interrupted,
    /// The lock of the state is held by someone else.
    Locked,
    /// The approved plan no longer matches the state.
    Stale,
    /// The run ended without a report: its pod was killed or could not start.
    Lost,
}

impl Outcome {
    /// Whether the run did what it was meant to do.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Applied | Self::Unchanged | Self::Planned | Self::Checked | Self::Destroyed)
    }
}

/// A plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanStatus {
    /// The id with which the plan is approved.
    pub id: String,
    /// The digest of the inputs that the plan was made from.
    pub inputs: String,
    /// The serial of the state that the plan was made from.
    pub serial: i64,
    /// The number of resources that the plan creates.
    pub add: i64,
    /// The number of resources that the plan changes.
    pub change: i64,
    /// The number of resources that the plan destroys.
    pub destroy: i64,
    /// The number of resources that the plan imports into the state.
    #[serde(default, skip_serializing_if = "is_none")]
    pub import: i64,
    /// The number of resources whose address in the state changes.
    #[serde(default, rename = "move", skip_serializing_if = "is_none")]
    pub moved: i64,
    /// The number of resources that the plan removes from the state without destroying them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub forget: i64,
    /// The counts in short: `+2 ~0 -1`, or `+0 ~0 -0, 1 to forget`.
    pub summary: String,
    /// Why a person should review the plan before it is applied, if there is a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_reason: Option<ApprovalReason>,
    /// Whether the plan waits for approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
    /// Whether a user discarded the plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discarded: bool,
    /// When the plan was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_at: Option<Timestamp>,
}

impl PlanStatus {
    /// What the plan does apart from creating, changing and destroying: `1 to import`, `2 to forget`.
    pub fn others(import: i64, moved: i64, forget: i64) -> Vec<String> {
        let all = [(import, "import"), (moved, "move"), (forget, "forget")];
        all.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} to {what}")).collect()
    }

    /// Whether the plan waits for approval under this policy.
    pub fn waits_under(&self, approval: Approval) -> bool {
        self.needs_approval
            && match approval {
                Approval::Auto => self.approval_reason == Some(ApprovalReason::ReplacesTainted),
                Approval::Manual => true,
                Approval::AutoUnlessDestroy => self.destroy > 0 || self.approval_reason.is_some(),
            }
    }
}

/// Why a person should review a plan before it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalReason {
    /// The plan destroys or replaces resources.
    Destroys,
    /// The plan removes resources from the state without destroying them. Nothing manages them afterwards.
    Forgets,
    /// The plan replaces resources that a failed apply left incomplete, and the last apply failed as well.
    ReplacesTainted,
}

impl ApprovalReason {
    /// The reason as a clause whose subject is the plan.
    pub fn words(self) -> &'static str {
        match self {
            Self::Destroys => "it destroys or replaces resources",
            Self::Forgets => "it removes resources from the state without destroying them",
            Self::ReplacesTainted => "it replaces resources that the failed apply left incomplete",
        }
    }
}

/// An apply that was completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// The digest of the inputs.
    pub hash: String,
    /// The serial of the state after the apply.
    pub serial: i64,
    /// When the apply was completed.
    pub time: Timestamp,
}

/// The result of a comparison of the real infrastructure with the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftStatus {
    /// When the comparison was made.
    pub checked_at: Timestamp,
    /// The number of resources that differ.
    pub count: i64,
    /// The result in short: `None`, or `3 resources`.
    pub summary: String,
    /// The first resources that differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ChangedResource>,
}

impl DriftStatus {
    /// The summary of a comparison that failed.
    pub const UNKNOWN: &str = "Unknown";
}

/// A resource and its change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedResource {
    /// The address of the resource in the configuration.
    pub address: String,
    /// The change: `create`, `update`, `delete`, `replace`, `import`, `move` or `forget`.
    pub action: String,
}

/// An output, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputStatus {
    /// The name of the output, which is also its key in the Secret.
    pub name: String,
    /// Whether the module declares the output as sensitive.
    pub sensitive: bool,
}

/// The versions of the objects from which the Secret with the outputs was last written, and the version that it had
/// then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OutputsWritten {
    /// The generation of the spec, which determines where the outputs are written.
    pub generation: i64,
    /// The resource version of the Secret with the report of the last run.
    pub report: String,
    /// The resource version of the Secret with the outputs.
    pub secret: String,
}

/// A state that is stored in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateStatus {
    /// The name of the Secret with the state.
    pub secret: String,
    /// The serial of the state.
    pub serial: i64,
    /// The number of resources in the state.
    pub resources: i64,
    /// The uncompressed size of the state in bytes.
    pub bytes: i64,
}

/// The holder of the lock of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockStatus {
    /// The name of the holder.
    pub holder: String,
    /// When the holder acquired the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl LockStatus {
    /// Identifies this lock in a request to remove it: `HOLDER since TIME`.
    pub fn words(&self) -> String {
        match self.since {
            Some(since) => format!("{} since {since}", self.holder),
            None => self.holder.clone(),
        }
    }
}

/// An error or a warning, from Terraform or from the runner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// A short summary.
    pub summary: String,
    /// The details, without values from Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The address of the resource that the diagnostic is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The field of the spec that the diagnostic is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The file and line that the diagnostic is about: `main.tf:12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

impl Diagnostic {
    /// Whether it reports a failed assertion of a `check` block.
    pub fn is_failed_check(&self) -> bool {
        self.severity == Severity::Warning && self.summary == "Check block assertion failed"
    }
}

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Severity {
    /// The run could not do what it was meant to do.
    #[default]
    Error,
    /// Something that a person should look at.
    Warning,
}

/// A past run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// The sequence number of the run.
    pub number: i64,
    /// The action of the run.
    pub action: Action,
    /// The outcome of the run.
    pub outcome: Outcome,
    /// The changes that it planned: `+2 ~0 -1`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// When the run was decided.
    pub started_at: Timestamp,
    /// How long the run took.
    pub duration: Span,
    /// How long each stage of the run took.
    #[serde(default, skip_serializing_if = "StageTimes::is_empty")]
    pub stages: StageTimes,
}

/// How long the stages of a run took. Stages that the run did not reach are unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StageTimes {
    /// Fetching providers and modules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<Span>,
    /// Planning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Span>,
    /// Applying or destroying.
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

/// The values of the annotations whose requests were handled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Handled {
    /// The last request for a new plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replan: Option<String>,
    /// The last request for newer versions of providers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<String>,
    /// The last request to remove a lock.
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
