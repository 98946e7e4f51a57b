//! What is known of a plan.

use jiff::Timestamp;
use opcore::conditions::Condition;
use opcore::duration::Span;
use opcore::finalizer::TeardownRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is known of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WavePlanStatus {
    /// `Ready`, and `Reconciling` or `Stalled` while they are true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the plan stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PlanPhase>,
    /// Waves that are through, of all: `4/7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The waves that run now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// When the rollout will be through, by what its waves took before, or may take at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
    /// The rollout under way, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// The waves, in an order in which they could run one after another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<WaveStatus>,
    /// The chain of waves that decides how long the whole takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critical_path: Option<CriticalPath>,
    /// The kinds of the objects that the plan applied. The objects themselves carry the label
    /// `opcore.dev/owner-uid` with the plan's UID. A kind is recorded here before its first object is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<InventoryKind>,
    /// The objects that the plan holds suspended (mode `Gate`), or is about to. An object is recorded here before it is
    /// suspended, and until it is given back, whatever becomes of the spec meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldObject>,
    /// What is to be pruned and is not, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune_held: Option<String>,
    /// Requests by annotation that were carried out.
    #[serde(default, skip_serializing_if = "Handled::is_empty")]
    pub handled: Handled,
    /// The last rollouts, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RolloutRecord>,
    /// When mere progress was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressed_at: Option<Timestamp>,
    /// The teardown, once the plan is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teardown: Option<TeardownRecord>,
}
opcore::impl_conditions!(WavePlanStatus);
opcore::impl_taken_down!(WavePlanStatus);

impl WavePlanStatus {
    /// What is known of a wave.
    pub fn wave(&self, name: &str) -> Option<&WaveStatus> {
        self.waves.iter().find(|wave| wave.name == name)
    }

    /// Whether it is about the rollout of this digest.
    pub fn is_about(&self, revision: &str) -> bool {
        self.rollout.as_ref().is_some_and(|rollout| rollout.revision == revision)
    }
}

/// Where a plan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PlanPhase {
    /// Its spec cannot be carried out.
    Invalid,
    /// Waves are running, or about to.
    Running,
    /// Every wave is through.
    Ready,
    /// A wave failed or ran out of time, and nothing else can go on.
    Failed,
    /// Someone, or a failure, paused it.
    Suspended,
    /// It is being taken down.
    Deleting,
}

/// A rollout: one spec and one content of its sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Counts up.
    pub number: i64,
    /// A digest of the spec and of what its sources hold.
    pub revision: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When every wave was through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// A wave in a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "four facts that do not depend on each other")]
pub struct WaveStatus {
    /// The wave.
    pub name: String,
    /// Where it stands.
    pub phase: WavePhase,
    /// When everything it depends on was ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it was first started in this rollout, or last tried again. `startedAt` moves on also when it is no longer ready
    /// and its clock begins anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<Timestamp>,
    /// When it was ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Timestamp>,
    /// When its time is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// How long it took from start to ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// How long it took when it last had something to do: the estimate for the next time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<Span>,
    /// Objects and probes that are ready.
    pub ready: i64,
    /// Objects and probes in all.
    pub total: i64,
    /// The waves it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<String>,
    /// What is not ready and why; the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ready: Vec<NotReady>,
    /// Jobs that were complete in this rollout, as `Job namespace/name`. They stay done when they are gone, as those with
    /// `ttlSecondsAfterFinished` will be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed: Vec<String>,
    /// How often it was tried again in this rollout.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: i32,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// Whether someone started it before its dependencies were ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// Whether its manifests were taken back to what they were when it was last ready (`onFailure: Rollback`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled_back: bool,
    /// Whether it has been ready once, in whichever rollout.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled_out: bool,
    /// Whether someone resumed the plan after this wave had paused it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forgiven: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &i32) -> bool {
    *count == 0
}

/// Where a wave stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WavePhase {
    /// For waves that it depends on.
    #[default]
    Waiting,
    /// It was started and is not ready yet.
    Running,
    /// Everything in it is ready.
    Ready,
    /// Something in it failed; waiting will not help.
    Failed,
    /// It was not ready in time. It may still become so.
    TimedOut,
    /// A wave that it depends on failed or ran out of time.
    Blocked,
    /// Someone asked to pass over it.
    Skipped,
    /// It, or the plan, is not to go on.
    Suspended,
}

impl WaveStatus {
    /// The time since which a request to reconcile counts for the wave.
    pub fn asked_since(&self) -> Option<Timestamp> {
        self.begun_at.or(self.started_at)
    }
}

impl WavePhase {
    /// All there are.
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

    /// The name as people read it.
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

    /// Whether it needs nothing more in this rollout.
    pub fn is_through(self) -> bool {
        matches!(self, Self::Ready | Self::Skipped)
    }

    /// Whether it did not become ready as it should.
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
    /// `Kind namespace/name`, or the address of a probe.
    pub object: String,
    /// A CamelCase fact.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Whether waiting will not help.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// The chain of waves that decides how long the whole takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CriticalPath {
    /// Its waves, first to last.
    pub waves: Vec<String>,
    /// How long it takes in all: measured where a wave is through, else what it usually takes, else its timeout.
    pub total: Span,
    /// How long the rollout has taken so far, as of the last change.
    pub elapsed: Span,
    /// How long it will still take.
    pub remaining: Span,
    /// How much longer each wave could take before it delayed the whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slack: Vec<Slack>,
}

/// How much longer a wave could take before it delayed the whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Slack {
    /// The wave.
    pub wave: String,
    /// How much longer.
    pub slack: Span,
}

/// A kind of which the plan applied objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryKind {
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `Deployment`.
    pub kind: String,
    /// How many objects there are.
    pub count: i64,
    /// The waves that applied objects of this kind, or are about to. A wave is recorded here before its first object of the
    /// kind is applied. None: that was recorded by an older version, and it may be any wave.
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
    /// For example `kustomize.toolkit.fluxcd.io/v1`.
    pub api_version: String,
    /// For example `Kustomization`.
    pub kind: String,
    /// None for kinds without namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// Requests by annotation that were carried out, as they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Handled {
    /// Of `waves.opcore.dev/retry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<String>,
    /// Of `waves.opcore.dev/force`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<String>,
    /// Of `waves.opcore.dev/skip`, which holds as long as it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<String>,
    /// Of `waves.opcore.dev/resume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// Of `opcore.dev/requestedAt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<String>,
}

impl Handled {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A rollout of the past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutRecord {
    /// Its number.
    pub number: i64,
    /// Its digest.
    pub revision: String,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration: Span,
    /// How it ended: `Ready`, or `Superseded` by the next one.
    pub outcome: String,
}
