//! Whether a Kubernetes object is ready, read from the object alone.
//!
//! *Ready* means: what its spec asks for is there, and the controller that says so has seen this very spec. The rules
//! are those of kstatus (as Flux, Helm and Argo CD users know them), with its known gaps closed. They are applied in a
//! fixed order, and the first that gives a result decides:
//!
//! 1. no `apiVersion` or `kind`: in progress, since the object cannot be judged;
//! 2. the [`Fence`] shows that this view is older than our own write: in progress;
//! 3. `deletionTimestamp`: terminating;
//! 4. `generation` differs from `status.observedGeneration`: in progress;
//! 5. condition `Reconciling`: in progress;
//! 6. condition `Stalled`: failed;
//! 7. the rule of the [kind](self#kinds), if it has one;
//! 8. a custom resource without any status: in progress, unless [`Options::status_expected`] is off;
//! 9. condition `Ready`: ready when `True`, else in progress;
//! 10. anything else is ready because it exists.
//!
//! Three exceptions for Flux are checked between 3 and 5, because they override what follows: suspended objects,
//! requested reconciles, and the run at each interval of a Kustomization.
//!
//! Last, the [`Fence`] holds back a verdict that is based on a status from before our own write.
//!
//! # Kinds
//!
//! | Kind | Ready when | Failed when |
//! |---|---|---|
//! | Deployment | replicas, updated, available, ready equal the spec; `Progressing` says `NewReplicaSetAvailable`; `Available` | `ProgressDeadlineExceeded` |
//! | StatefulSet | replicas, ready, available equal the spec; one revision, or the partition is updated | – |
//! | DaemonSet | updated, available, ready reach the desired number | – |
//! | ReplicaSet, ReplicationController | labelled, available, ready equal the spec | – |
//! | Job | `Complete`; or suspended, as asked | `Failed` |
//! | Pod | running and `Ready`; or succeeded | phase `Failed`; unschedulable for longer than the grace |
//! | PersistentVolumeClaim | bound | lost |
//! | PersistentVolume | available, bound or released | phase `Failed` |
//! | Service, Ingress | it has its cluster address; on demand also its external address | – |
//! | CustomResourceDefinition | `Established`, with the names it asks for | `NamesAccepted` is false |
//! | APIService | `Available` | – |
//! | PodDisruptionBudget, HorizontalPodAutoscaler | its controller has read it and can work | – |
//! | Namespace, CronJob | it exists | – |
//! | Kustomization, HelmRelease, Flux sources | `Ready` for this generation; held through a periodic run | `Stalled` |
//! | Cluster (CloudNativePG) | `Ready` and phase "Cluster in healthy state"; or hibernated, as asked | unrecoverable phases |
//! | ExternalSecret | `Ready`, and synced at this generation | – |
//!
//! # Guarantees
//!
//! - Pure and total: no client, no clock but the argument, no panic whatever the object contains. A field of the wrong
//!   type counts as missing.
//! - A status that is known to describe an older spec makes an object neither ready nor failed.
//! - Failed is distinguished from slow: failed means that waiting alone will not help.
//! - When time alone would change a verdict, [`Readiness::recheck_at`] names the time, so that a caller sets one timer
//!   and does not poll.
//!
//! # Assumptions
//!
//! - The object comes from an API server, with `apiVersion` and `kind` filled in. Items of a list
//!   carry neither: the caller adds them.
//! - A Job that was deleted because of its `ttlSecondsAfterFinished` is done; only the caller knows that it existed.
//! - An established CRD may briefly be missing in discovery: the caller opens its watch and retries.
//! - Other writers of the object are not considered here; see the `ownership` module.

mod api;
mod data;
mod fence;
mod flux;
mod network;
mod pods;
mod storage;
mod view;
mod workloads;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

pub use fence::Fence;
use view::{Condition, View};

/// How long a pod may be unschedulable before it counts as failed, as in kstatus.
pub const UNSCHEDULABLE_GRACE: Duration = Duration::from_secs(15);

/// How long a controller has to react to a write before its unchanged status is trusted.
pub const SETTLE: Duration = Duration::from_secs(10);

/// The longest message: enough for a sentence of a controller, and short enough to be repeated in a status.
const LONGEST_MESSAGE: usize = 1024;

/// The verdict on an object, according to its own status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The state.
    pub state: ReadinessState,
    /// A CamelCase reason, suitable for the `reason` of a condition.
    pub reason: String,
    /// A message that names the object, the fact and, if there is one, the remedy.
    pub message: String,
    /// When the verdict changes without any event. `None`: only an event changes it.
    pub recheck_at: Option<Timestamp>,
}

/// The four states an existing object can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadinessState {
    /// What the spec asks for is there.
    Ready,
    /// Work is in progress, or the state cannot be known yet.
    InProgress,
    /// Waiting alone will not help.
    Failed,
    /// Being deleted.
    Terminating,
}

/// What the caller knows beyond the object, and what it requires beyond kstatus.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four demands that do not depend on each other")]
pub struct Options {
    /// A Service of type `LoadBalancer` is ready only with an external address. Off by default,
    /// as many clusters have nothing that assigns one.
    pub load_balancer_address: bool,
    /// An Ingress is ready only with an external address. Off by default: many ingress
    /// controllers never report one.
    pub ingress_address: bool,
    /// The claim's StorageClass binds on first consumer, so that a pending claim that no pod uses yet is as ready as it
    /// can be. Off by default: the claim itself does not show it.
    pub claim_waits_for_consumer: bool,
    /// The kind has a status subresource, so that an object without status is one that no controller has seen. On by
    /// default; the caller turns it off when the CRD says otherwise. Only used for kinds that are not built into
    /// Kubernetes and have no rule here.
    pub status_expected: bool,
    /// How long a pod may be unschedulable before it counts as failed.
    pub unschedulable_grace: Duration,
    /// What the caller itself last wrote, if it wrote: the fence against an outdated status.
    pub fence: Option<Fence>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            load_balancer_address: false,
            ingress_address: false,
            claim_waits_for_consumer: false,
            status_expected: true,
            unschedulable_grace: UNSCHEDULABLE_GRACE,
            fence: None,
        }
    }
}

/// The verdict on an object that the caller only watches.
pub fn of(object: &Value, now: Timestamp) -> Readiness {
    with(object, &Options::default(), now)
}

/// The verdict on an object, given what the caller knows and requires.
pub fn with(object: &Value, options: &Options, now: Timestamp) -> Readiness {
    let case = Case { object: View::of(object), options, now };
    let verdict = RULES.iter().find_map(|rule| rule(&case)).unwrap_or_else(|| exists(&case));
    fence::hold(&case, verdict)
}

impl Readiness {
    /// Whether dependants may proceed.
    pub fn is_ready(&self) -> bool {
        self.state == ReadinessState::Ready
    }

    fn ready(reason: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::new(ReadinessState::Ready, reason, message)
    }

    fn in_progress(reason: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::new(ReadinessState::InProgress, reason, message)
    }

    fn failed(reason: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::new(ReadinessState::Failed, reason, message)
    }

    fn new(state: ReadinessState, reason: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self {
            state,
            reason: reason.into(),
            message: view::shortened(message.as_ref(), LONGEST_MESSAGE),
            recheck_at: None,
        }
    }

    fn until(mut self, moment: Timestamp) -> Self {
        self.recheck_at = Some(moment);
        self
    }
}

impl ReadinessState {
    /// The name as users read it in a status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::InProgress => "InProgress",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
        }
    }
}

impl std::fmt::Display for ReadinessState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// The input of a rule.
struct Case<'a> {
    object: View<'a>,
    options: &'a Options,
    now: Timestamp,
}

/// A rule returns a verdict, or leaves the object to the next rule.
type Rule = fn(&Case<'_>) -> Option<Readiness>;

const RULES: &[Rule] = &[
    unknown_kind,
    fence::outdated_view,
    terminating,
    flux::never_reconciled,
    flux::suspended,
    generation_not_observed,
    flux::reconcile_requested,
    flux::periodic_run,
    reconciling,
    stalled,
    rule_of_the_kind,
    no_status_yet,
    ready_condition,
];

fn unknown_kind(case: &Case<'_>) -> Option<Readiness> {
    let object = case.object;
    (object.kind().is_none() || object.group().is_none()).then(|| {
        Readiness::in_progress(
            "UnknownKind",
            "The object has no apiVersion and kind, so its readiness cannot be determined; set both on items of a list.",
        )
    })
}

fn terminating(case: &Case<'_>) -> Option<Readiness> {
    let object = case.object;
    object.at("metadata.deletionTimestamp")?;
    let finalizers: Vec<&str> = object.list("metadata.finalizers").iter().filter_map(Value::as_str).collect();
    let waits_for =
        if finalizers.is_empty() { String::new() } else { format!("; its finalizers are {}", finalizers.join(", ")) };
    Some(Readiness::new(ReadinessState::Terminating, "Terminating", format!("{object} is being deleted{waits_for}.")))
}

fn generation_not_observed(case: &Case<'_>) -> Option<Readiness> {
    let object = case.object;
    let generation = object.generation()?;
    let observed = object.observed_generation()?;
    (generation != observed).then(|| {
        Readiness::in_progress(
            "GenerationNotObserved",
            format!("{object} is at generation {generation}, but its controller has observed only {observed}."),
        )
    })
}

fn reconciling(case: &Case<'_>) -> Option<Readiness> {
    let condition = case.object.current("Reconciling")?;
    condition.is_true().then(|| {
        Readiness::in_progress(
            condition.reason_or("Reconciling"),
            format!("{} is being reconciled{}", case.object, condition.words()),
        )
    })
}

fn stalled(case: &Case<'_>) -> Option<Readiness> {
    let condition = case.object.current("Stalled")?;
    condition.is_true().then(|| {
        Readiness::failed(condition.reason_or("Stalled"), format!("{} is stalled{}", case.object, condition.words()))
    })
}

fn rule_of_the_kind(case: &Case<'_>) -> Option<Readiness> {
    let rule: fn(&Case<'_>) -> Readiness = match (case.object.group()?, case.object.kind()?) {
        ("apps" | "extensions", "Deployment") => workloads::deployment,
        ("apps", "StatefulSet") => workloads::stateful_set,
        ("apps" | "extensions", "DaemonSet") => workloads::daemon_set,
        ("apps" | "extensions", "ReplicaSet") | ("", "ReplicationController") => workloads::replica_set,
        ("batch", "Job") => pods::job,
        ("", "Pod") => pods::pod,
        ("", "PersistentVolumeClaim") => storage::claim,
        ("", "PersistentVolume") => storage::volume,
        ("", "Service") => network::service,
        ("networking.k8s.io" | "extensions", "Ingress") => network::ingress,
        ("", "Namespace") => api::namespace,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => api::definition,
        ("apiregistration.k8s.io", "APIService") => api::service,
        ("policy", "PodDisruptionBudget") => api::disruption_budget,
        ("autoscaling", "HorizontalPodAutoscaler") => api::autoscaler,
        ("kustomize.toolkit.fluxcd.io", "Kustomization")
        | ("helm.toolkit.fluxcd.io", "HelmRelease")
        | ("source.toolkit.fluxcd.io", "GitRepository" | "OCIRepository" | "Bucket" | "HelmRepository" | "HelmChart") => {
            flux::reconciled
        }
        ("postgresql.cnpg.io", "Cluster") => data::postgres_cluster,
        ("external-secrets.io", "ExternalSecret") => data::external_secret,
        // The controllers of these kinds write other parts of the status before the first Ready condition.
        ("external-secrets.io", "SecretStore" | "ClusterSecretStore")
        | ("cert-manager.io", "Certificate" | "Issuer" | "ClusterIssuer") => says_ready,
        _ => return None,
    };
    Some(rule(case))
}

/// Closes kstatus's best-known gap: a custom resource that no controller has seen is not ready.
fn no_status_yet(case: &Case<'_>) -> Option<Readiness> {
    let object = case.object;
    if object.is_builtin() || object.has_status() || !case.options.status_expected {
        return None;
    }
    Some(Readiness::in_progress(
        "NoStatusYet",
        format!(
            "{object} has no status yet; check that the controller of its kind is running and watches this namespace."
        ),
    ))
}

/// The generic rule, for every kind that has a condition `Ready`.
fn ready_condition(case: &Case<'_>) -> Option<Readiness> {
    let condition = case.object.condition("Ready")?;
    Some(judged(case, &condition, "Ready"))
}

/// For kinds known to report `Ready`: if it is missing, their controller has not seen the object yet.
fn says_ready(case: &Case<'_>) -> Readiness {
    ready_condition(case).unwrap_or_else(|| not_reported(case, "Ready"))
}

fn not_reported(case: &Case<'_>, kind: &str) -> Readiness {
    Readiness::in_progress(
        format!("{kind}NotReported"),
        format!("{} has no condition {kind} yet; check that its controller is running.", case.object),
    )
}

/// The verdict from a condition whose `True` means ready. False means in progress, because controllers retry.
fn judged(case: &Case<'_>, condition: &Condition<'_>, kind: &str) -> Readiness {
    let object = case.object;
    if condition.lags {
        Readiness::in_progress(
            "ConditionOutdated",
            format!("Condition {kind} of {object} describes an older generation."),
        )
    } else if condition.is_true() {
        Readiness::ready(condition.reason_or(kind), format!("{object} reports {kind}{}", condition.words()))
    } else {
        Readiness::in_progress(
            condition.reason_or(&format!("Not{kind}")),
            format!("{object} reports {kind}={}{}", condition.status, condition.words()),
        )
    }
}

/// The last rule: objects without a readiness of their own are ready because they exist.
fn exists(case: &Case<'_>) -> Readiness {
    let object = case.object;
    if object.has_status() && !object.is_builtin() {
        return Readiness::ready(
            "NoReadyCondition",
            format!("{object} has a status without conditions that say otherwise."),
        );
    }
    Readiness::ready("Exists", format!("{object} exists; objects of its kind do not report readiness."))
}
