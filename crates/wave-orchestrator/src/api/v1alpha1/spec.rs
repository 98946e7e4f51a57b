//! What a plan asks for.
#![allow(unreachable_pub, reason = "the derived schemas repeat each struct where nobody can reach it")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use opcore::duration::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::WavePlanStatus;

/// A rollout in waves: a graph in which each wave starts the moment everything it depends on is ready.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "waves.opcore.dev",
    version = "v1alpha1",
    kind = "WavePlan",
    plural = "waveplans",
    shortname = "wp",
    category = "opcore",
    status = "WavePlanStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Waves","type":"string","jsonPath":".status.progress"}"#,
    printcolumn = r#"{"name":"Current","type":"string","jsonPath":".status.current"}"#,
    printcolumn = r#"{"name":"ETA","type":"string","jsonPath":".status.eta"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("self.waves.all(w, !has(w.dependsOn) || w.dependsOn.all(d, self.waves.exists(o, o.name == d.wave)))")
        .message("a wave depends on one that is not in spec.waves; correct dependsOn[].wave"),
    validation = Rule::new("!has(self.profile) || (has(self.profiles) && self.profile in self.profiles)")
        .message("spec.profile names a profile that is not in spec.profiles"),
)]
pub struct WavePlanSpec {
    /// Which of `profiles` applies. None: what the waves themselves say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub profile: Option<String>,

    /// Overrides for environments, e.g. `development` and `production`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub profiles: BTreeMap<String, Profile>,

    /// The waves. Their order here does not matter; their dependencies do.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub waves: Vec<Wave>,

    /// Start no further wave, and apply nothing, as long as this is true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,

    /// How often everything is compared with the cluster again, although nothing seems to have happened: every 10 minutes
    /// when nobody says, and never more often than every 10 seconds. One list serves all plans that watch the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('10s')").message("resync must be at least 10s"))]
    pub resync: Option<Span>,

    /// What becomes of objects that a plan applied and no longer has.
    #[serde(default)]
    pub prune: Prune,

    /// What becomes of the objects that a plan applied when the plan is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// How often everything is compared with the cluster again when nobody says.
const RESYNC: Span = Span::from_secs(600);
/// More often would keep the API server busy with lists and nothing else.
const SHORTEST_RESYNC: Span = Span::from_secs(10);

impl WavePlanSpec {
    fn chosen(&self) -> Option<&Profile> {
        self.profiles.get(self.profile.as_ref()?)
    }

    /// How long a wave may take, under the profile that applies.
    pub fn timeout_of(&self, wave: &Wave) -> Span {
        let scale = self.chosen().and_then(|profile| profile.timeout_scale);
        scale.map_or(wave.timeout, |scale| wave.timeout.scaled(scale))
    }

    /// How often everything is compared with the cluster again. A plan from before there was a minimum has it, too.
    pub fn resync(&self) -> Span {
        let chosen = self.chosen().and_then(|profile| profile.resync).or(self.resync).unwrap_or(RESYNC);
        chosen.max(SHORTEST_RESYNC)
    }
}

impl Member {
    /// What is done with `ref`.
    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or_else(|| match &self.reference {
            Some(reference) if reference.is_reconciled_by_flux() => Mode::Nudge,
            _ => Mode::Observe,
        })
    }
}

impl ObjectRef {
    /// Whether Flux reconciles it on request, and not while it is suspended.
    pub fn is_reconciled_by_flux(&self) -> bool {
        let group = self.api_version.split('/').next().unwrap_or_default();
        matches!(
            (group, self.kind.as_str()),
            ("kustomize.toolkit.fluxcd.io", "Kustomization") | ("helm.toolkit.fluxcd.io", "HelmRelease")
        )
    }
}

/// Overrides for one environment.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    /// Every wave's timeout is multiplied by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.01, max = 1000.0))]
    pub timeout_scale: Option<f64>,
    /// Overrides `spec.resync`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('10s')").message("resync must be at least 10s"))]
    pub resync: Option<Span>,
}

/// What becomes of objects that a plan applied and no longer has. They are deleted only when every wave has passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Prune {
    /// Whether they are deleted at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// If more than this many would go at once, none goes, and the plan says so.
    #[serde(default = "prune_limit")]
    #[schemars(range(min = 0, max = 100_000))]
    pub limit: i32,
    /// Protected kinds that may go without the annotation `waves.opcore.dev/confirm-delete` on the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub confirmed_kinds: Vec<ProtectedKind>,
}

impl Default for Prune {
    fn default() -> Self {
        Self { enabled: yes(), limit: prune_limit(), confirmed_kinds: Vec::new() }
    }
}

fn yes() -> bool {
    true
}

fn prune_limit() -> i32 {
    50
}

/// A kind whose deletion takes data with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProtectedKind {
    /// With it go all objects of the kind.
    CustomResourceDefinition,
    /// With it goes everything inside.
    Namespace,
    /// With it goes the data, where the volume's policy says so.
    PersistentVolumeClaim,
}

impl ProtectedKind {
    /// The protected kind of this name, if it is one.
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        match (group, kind) {
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Some(Self::CustomResourceDefinition),
            ("", "Namespace") => Some(Self::Namespace),
            ("", "PersistentVolumeClaim") => Some(Self::PersistentVolumeClaim),
            _ => None,
        }
    }
}

/// What becomes of applied objects when their plan is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They are deleted, wave by wave, in reverse order. Protected kinds only where that is confirmed.
    #[default]
    Delete,
    /// They stay.
    Orphan,
}

/// A group of members that start together and are ready together.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("!has(self.dependsOn) || self.dependsOn.all(d, d.wave != self.name)")
        .message("a wave depends on itself; remove it from its own dependsOn"),
    validation = Rule::new("has(self.members) || has(self.hooks) || has(self.healthChecks) || has(self.probes)")
        .message("a wave needs members, hooks, healthChecks or probes"),
)]
pub struct Wave {
    /// Its name, unique in the plan; also a label on what it applies.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// The waves that must be ready before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["wave".into()]))]
    pub depends_on: Vec<Dependency>,

    /// How long it may take to be ready, counted from the moment its dependencies are.
    #[serde(default = "wave_timeout")]
    pub timeout: Span,

    /// Whether its members start together or one after another.
    #[serde(default)]
    pub parallelism: Parallelism,

    /// What it consists of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub members: Vec<Member>,

    /// What is done before its members start, and after they are ready: usually Jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Hooks>,

    /// What readiness means for objects that do not say so themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub health_checks: Vec<HealthCheck>,

    /// Endpoints that must answer, asked once everything else in the wave is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub probes: Vec<Probe>,

    /// What happens when it fails or runs out of time.
    #[serde(default)]
    pub on_failure: OnFailure,

    /// How often `onFailure: Retry` tries again.
    #[serde(default = "retries")]
    #[schemars(range(min = 1, max = 100))]
    pub retries: i32,

    /// Do not start it, and apply nothing of it, as long as this is true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

fn wave_timeout() -> Span {
    Span::from_secs(300)
}

fn retries() -> i32 {
    3
}

/// An edge of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Dependency {
    /// The wave that comes first.
    #[schemars(length(min = 1, max = 63))]
    pub wave: String,
    /// When it counts.
    #[serde(default)]
    pub gate: Gate,
}

/// When a dependency counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Gate {
    /// In every rollout.
    #[default]
    Always,
    /// Until the dependent wave has been ready once; from then on it no longer waits for this one.
    FirstRollout,
}

/// Whether members start together or one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Parallelism {
    /// Together.
    #[default]
    Concurrent,
    /// Each when the one before it is ready.
    Sequential,
}

/// One member of a wave: an object that exists, or manifests to apply.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("has(self.ref) != has(self.manifests)").message("a member has either ref or manifests"),
    validation = Rule::new("!has(self.mode) || has(self.ref)").message("mode goes with ref; manifests are always applied"),
    validation = Rule::new("!has(self.mode) || self.mode == 'Observe' || (self.ref.apiVersion.startsWith('kustomize.toolkit.fluxcd.io/') && self.ref.kind == 'Kustomization') || (self.ref.apiVersion.startsWith('helm.toolkit.fluxcd.io/') && self.ref.kind == 'HelmRelease')")
        .message("modes Nudge and Gate are for Flux Kustomizations and HelmReleases; use Observe"),
)]
pub struct Member {
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub name: Option<String>,
    /// An object that someone else makes.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ObjectRef>,
    /// What is done with `ref`. Default: Nudge for Flux Kustomizations and HelmReleases, else Observe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Objects that the plan itself applies, keeps and takes down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifests: Option<Manifests>,
}

/// What is done with an object that someone else makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Nothing: its readiness counts.
    Observe,
    /// It is asked to reconcile the moment the wave starts, instead of at its next interval.
    Nudge,
    /// It is suspended until the wave starts: the plan manages its `spec.suspend`, and gives it back then, when the member
    /// is no longer gated, and when the plan is deleted.
    Gate,
}

/// An object by its kind and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectRef {
    /// For example `apps/v1`.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// For example `Deployment`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Left out for kinds that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Manifests to apply: YAML with any number of documents.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.inline) != has(self.configMapRef)").message("manifests are either inline or from configMapRef"))]
pub struct Manifests {
    /// The YAML itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
    /// Where the YAML is. A change there starts a new rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapKey>,
    /// For objects that need a namespace and name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// What is done around a wave. A Job in a hook runs once in each rollout: the digest of the rollout is added to its name, and
/// those of earlier rollouts are pruned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hooks {
    /// Applied first; the members start when all of it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Manifests>,
    /// Applied last, when everything else is ready; the wave is ready when all of it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Manifests>,
}

/// A key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigMapKey {
    /// The ConfigMap's namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The ConfigMap's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key; without it all keys, in the order of their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// What readiness means for an object, in CEL. The object's fields are variables: `status.phase == 'Ready'`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheck {
    /// Which object, or which objects.
    pub target: Target,
    /// Ready when this is true.
    #[schemars(length(min = 1, max = 4096))]
    pub ready: String,
    /// Failed when this is true: waiting will not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub failed: Option<String>,
}

/// One object by its name, or all with certain labels.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.name) != has(self.selector)").message("a target has either name or selector"))]
pub struct Target {
    /// For example `example.io/v1`.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// For example `Database`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Left out for kinds that have none; with a selector, left out means all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// The object's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Labels that the objects have. At least one object must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// An endpoint that must answer.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.http) != has(self.tcp)").message("a probe is either http or tcp"))]
pub struct Probe {
    /// Ask for a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpProbe>,
    /// Open a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpProbe>,
}

/// A page that must be answered with a certain status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpProbe {
    /// Where, e.g. `http://localstack.core:4566/_localstack/health`.
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^http://"))]
    pub url: String,
    /// The status that is expected. Redirections are not followed.
    #[serde(default = "status_ok")]
    #[schemars(range(min = 100, max = 599))]
    pub expect_status: i32,
}

fn status_ok() -> i32 {
    200
}

/// A port that must accept connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TcpProbe {
    /// A host's name or address.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// The port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// What happens when a wave fails or runs out of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// The waves that depend on it are blocked; other branches go on. If it becomes ready later, so do they.
    #[default]
    Block,
    /// The waves that depend on it start all the same.
    Continue,
    /// It is tried again: failed Jobs are made anew, Flux members asked to reconcile, the clock starts over.
    Retry,
    /// Its manifests go back to what they were when it was last ready; the waves that depend on it are blocked. What others
    /// make stays as it is. Where it never was ready, this is `Block`.
    Rollback,
    /// No further wave of the whole plan starts until it is ready or someone resumes the plan.
    Pause,
}
