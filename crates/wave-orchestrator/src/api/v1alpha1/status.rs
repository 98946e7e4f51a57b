//! The observed state of a plan.

use jiff::Timestamp;
use opcore::conditions::Condition;
use opcore::duration::Span;
use opcore::finalizer::TeardownRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The observed state of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WavePlanStatus {
    /// The conditions of the plan: `Ready`, and `Reconciling` or `Stalled` while they are true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The phase of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PlanPhase>,
    /// The number of waves that are ready or skipped, out of all waves: `4/7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The names of the waves that are running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The estimated time at which the rollout is complete, from how long its waves took before; for waves without such
    /// a record, from their timeouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
    /// The current rollout, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// The waves, in topological order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<WaveStatus>,
    /// The chain of waves that determines the duration of the rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critical_path: Option<CriticalPath>,
    /// The kinds of the objects that the plan applied. The objects carry the label `opcore.dev/owner-uid` with the UID
    /// of the plan. A kind is recorded here before its first object is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<InventoryKind>,
    /// The objects that the plan holds suspended (mode `Gate`), or is about to suspend. An object is recorded here
    /// before it is suspended, and stays here until `spec.suspend` is given back, even if the spec changes in the
    /// meantime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldObject>,
    /// Why objects that are to be pruned are not deleted, and which ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune_held: Option<String>,
    /// The requests by annotation that were handled.
    #[serde(default, skip_serializing_if = "Handled::is_empty")]
    pub handled: Handled,
    /// The last rollouts, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RolloutRecord>,
    /// When a status that differs only in its progress was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressed_at: Option<Timestamp>,
    /// The progress of the teardown, once the plan is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teardown: Option<TeardownRecord>,
}
opcore::impl_conditions!(WavePlanStatus);
opcore::impl_taken_down!(WavePlanStatus);

impl WavePlanStatus {
    /// Returns the status of a wave.
    pub fn wave(&self, name: &str) -> Option<&WaveStatus> {
        self.waves.iter().find(|wave| wave.name == name)
    }

    /// Whether this status describes the rollout with this digest.
    pub fn is_about(&self, revision: &str) -> bool {
        self.rollout.as_ref().is_some_and(|rollout| rollout.revision == revision)
    }
}

/// The phase of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PlanPhase {
    /// The spec is invalid.
    Invalid,
    /// Waves are running or about to start.
    Running,
    /// Every wave is ready or skipped.
    Ready,
    /// A wave failed or timed out, and no other wave can continue.
    Failed,
    /// The plan is suspended by a user, or paused by a failure.
    Suspended,
    /// The plan is being torn down.
    Deleting,
}

/// A rollout: the application of one revision of the spec and of the content of its sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// The sequence number of the rollout.
    pub number: i64,
    /// A digest of the spec and of the content of its sources.
    pub revision: String,
    /// When the rollout started.
    pub started_at: Timestamp,
    /// When every wave was ready or skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// The observed state of a wave in a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "four facts that do not depend on each other")]
pub struct WaveStatus {
    /// The name of the wave.
    pub name: String,
    /// The phase of the wave.
    pub phase: WavePhase,
    /// When all dependencies of the wave were ready. Reset when the wave is no longer ready and its timeout starts
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the wave was first started in this rollout, or last retried. Unlike `startedAt`, it is not reset when the
    /// wave is no longer ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<Timestamp>,
    /// When the wave became ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Timestamp>,
    /// When the timeout of the wave expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// How long the wave took from start to ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// How long the wave took when it last had something to do. This is the estimate for its next rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<Span>,
    /// The number of objects and probes that are ready.
    pub ready: i64,
    /// The number of all objects and probes.
    pub total: i64,
    /// The waves that this wave waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<String>,
    /// The first objects and probes that are not ready, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ready: Vec<NotReady>,
    /// The Jobs that completed in this rollout, as `Job namespace/name`. They count as complete even after they are
    /// deleted, for example by `ttlSecondsAfterFinished`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed: Vec<String>,
    /// How often the wave was retried in this rollout.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: i32,
    /// When the wave is retried next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// Whether the wave was started on request, before its dependencies were ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// Whether the manifests of the wave were reverted to those with which it was last ready (`onFailure: Rollback`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled_back: bool,
    /// Whether the wave has been ready once, in any rollout.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled_out: bool,
    /// Whether the plan was resumed after this wave had paused it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forgiven: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &i32) -> bool {
    *count == 0
}

/// The phase of a wave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WavePhase {
    /// The wave waits for waves that it depends on.
    #[default]
    Waiting,
    /// The wave was started and is not ready yet.
    Running,
    /// Everything in the wave is ready.
    Ready,
    /// Something in the wave failed; waiting does not help.
    Failed,
    /// The wave was not ready before its timeout expired. It may still become ready.
    TimedOut,
    /// A wave that it depends on failed or timed out.
    Blocked,
    /// The wave is skipped on request.
    Skipped,
    /// The wave or the plan is suspended.
    Suspended,
}

impl WaveStatus {
    /// The time since which a request to reconcile counts for the wave.
    pub fn asked_since(&self) -> Option<Timestamp> {
        self.begun_at.or(self.started_at)
    }
}

impl WavePhase {
    /// All phases.
    pub const ALL: [Self; 8] = [
        Self::Waiting,
        Self::Running,
        Self::Ready,
        Self::Failed,
        Self::TimedOut,
        Self::Blocked,
        Self::Skipped,
        Self::Suspended,
    ];

    /// The name of the phase.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "Waiting",
            Self::Running => "Running",
            Self::Ready => "Ready",
            Self::Failed => "Failed",
            Self::TimedOut => "TimedOut",
            Self::Blocked => "Blocked",
            Self::Skipped => "Skipped",
            Self::Suspended => "Suspended",
        }
    }

    /// Whether the wave has nothing left to do in this rollout.
    pub fn is_through(self) -> bool {
        matches!(self, Self::Ready | Self::Skipped)
    }

    /// Whether the wave failed or timed out.
    pub fn is_trouble(self) -> bool {
        matches!(self, Self::Failed | Self::TimedOut)
    }
}

impl std::fmt::Display for WavePhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// An object or endpoint that is not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotReady {
    /// The object as `Kind namespace/name`, or the address of a probe.
    pub object: String,
    /// The reason, in CamelCase.
    pub reason: String,
    /// A message for people.
    pub message: String,
    /// Whether waiting does not help.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// The chain of waves that determines the duration of the rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CriticalPath {
    /// The names of the waves, first to last.
    pub waves: Vec<String>,
    /// The duration of the rollout: for each wave the measured duration if it is ready, otherwise its usual duration,
    /// otherwise its timeout.
    pub total: Span,
    /// How long the rollout has taken so far, as of the last change.
    pub elapsed: Span,
    /// The estimated remaining duration.
    pub remaining: Span,
    /// How much longer each wave may take without delaying the rollout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slack: Vec<Slack>,
}

/// How much longer a wave may take without delaying the rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Slack {
    /// The name of the wave.
    pub wave: String,
    /// How much longer the wave may take.
    pub slack: Span,
}

/// A kind of which the plan applied objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryKind {
    /// The API version, for example `apps/v1`.
    pub api_version: String,
    /// The kind, for example `Deployment`.
    pub kind: String,
    /// The number of objects of this kind.
    pub count: i64,
    /// The waves that applied objects of this kind, or are about to. A wave is recorded here before its first object of
    /// the kind is applied. If empty, an older version of the operator recorded the kind, and any wave may have applied
    /// its objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<String>,
}

impl InventoryKind {
    /// Whether this wave may have applied objects of this kind.
    pub fn may_be_of(&self, wave: &str) -> bool {
        self.waves.is_empty() || self.waves.iter().any(|name| name == wave)
    }
}

/// An object that the plan holds suspended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldObject {
    /// The API version, for example `kustomize.toolkit.fluxcd.io/v1`.
    pub api_version: String,
    /// The kind, for example `Kustomization`.
    pub kind: String,
    /// The namespace. Unset for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
}

/// The values of the annotations whose requests were handled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Handled {
    /// The last value of `waves.opcore.dev/retry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<String>,
    /// The last value of `waves.opcore.dev/force`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<String>,
    /// The value of `waves.opcore.dev/skip`, which applies as long as the annotation is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<String>,
    /// The last value of `waves.opcore.dev/resume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// The last value of `opcore.dev/requestedAt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<String>,
}

impl Handled {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A past rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutRecord {
    /// The sequence number of the rollout.
    pub number: i64,
    /// The digest of the rollout.
    pub revision: String,
    /// When the rollout started.
    pub started_at: Timestamp,
    /// How long the rollout took.
    pub duration: Span,
    /// The outcome: `Ready`, or `Superseded` by the next rollout.
    pub outcome: String,
}
