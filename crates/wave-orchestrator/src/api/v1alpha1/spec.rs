//! The desired state of a plan.
#![allow(unreachable_pub, reason = "the derived schemas repeat each struct where nobody can reach it")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use opcore::duration::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::WavePlanStatus;

/// A rollout in waves: a graph in which each wave starts as soon as all waves that it depends on are ready.
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
        .message("a wave depends on a wave that is not in spec.waves; correct dependsOn[].wave"),
    validation = Rule::new("!has(self.profile) || (has(self.profiles) && self.profile in self.profiles)")
        .message("spec.profile names a profile that is not in spec.profiles"),
)]
pub struct WavePlanSpec {
    /// The name of the profile in `profiles` that applies. If unset, the settings of the waves apply unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub profile: Option<String>,

    /// Overrides per environment, for example `development` and `production`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub profiles: BTreeMap<String, Profile>,

    /// The waves. Their order in this list has no meaning; their dependencies determine the order.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub waves: Vec<Wave>,

    /// If true, no further wave starts and nothing is applied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,

    /// The interval at which all waves are compared with the cluster when no event arrives. Defaults to 10m; the
    /// minimum is 10s. Plans that watch the same objects share the list requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('10s')").message("resync must be at least 10s"))]
    pub resync: Option<Span>,

    /// How objects that the plan applied, and that its spec no longer contains, are deleted.
    #[serde(default)]
    pub prune: Prune,

    /// What happens to the objects that the plan applied when the plan is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// The default of `spec.resync`.
const RESYNC: Span = Span::from_secs(600);
/// A shorter interval would keep the API server busy with list requests.
const SHORTEST_RESYNC: Span = Span::from_secs(10);

impl WavePlanSpec {
    fn chosen(&self) -> Option<&Profile> {
        self.profiles.get(self.profile.as_ref()?)
    }

    /// The timeout of a wave under the profile that applies.
    pub fn timeout_of(&self, wave: &Wave) -> Span {
        let scale = self.chosen().and_then(|profile| profile.timeout_scale);
        scale.map_or(wave.timeout, |scale| wave.timeout.scaled(scale))
    }

    /// The interval between resyncs. The minimum also holds for plans that were created before the schema had it.
    pub fn resync(&self) -> Span {
        let chosen = self.chosen().and_then(|profile| profile.resync).or(self.resync).unwrap_or(RESYNC);
        chosen.max(SHORTEST_RESYNC)
    }
}

impl Member {
    /// The effective mode of `ref`.
    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or_else(|| match &self.reference {
            Some(reference) if reference.is_reconciled_by_flux() => Mode::Nudge,
            _ => Mode::Observe,
        })
    }
}

impl ObjectRef {
    /// Whether the kind is one that Flux reconciles on request, and stops reconciling while it is suspended.
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
    /// The factor by which the timeout of every wave is multiplied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.01, max = 1000.0))]
    pub timeout_scale: Option<f64>,
    /// Overrides `spec.resync`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('10s')").message("resync must be at least 10s"))]
    pub resync: Option<Span>,
}

/// How objects that the plan applied, and that its spec no longer contains, are deleted. They are deleted only after
/// every wave is ready or skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Prune {
    /// Whether such objects are deleted.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The maximum number of objects to delete at once. If more are to be deleted, none is, and the status of the plan
    /// reports it.
    #[serde(default = "prune_limit")]
    #[schemars(range(min = 0, max = 100_000))]
    pub limit: i32,
    /// Protected kinds whose objects may be deleted without the annotation `waves.opcore.dev/confirm-delete`.
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

/// A kind whose deletion also deletes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProtectedKind {
    /// Deleting one deletes all objects of its kind.
    CustomResourceDefinition,
    /// Deleting one deletes all objects in it.
    Namespace,
    /// Deleting one deletes its data if the reclaim policy of the volume says so.
    PersistentVolumeClaim,
}

impl ProtectedKind {
    /// Returns the protected kind with this group and kind, if it is one.
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        match (group, kind) {
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Some(Self::CustomResourceDefinition),
            ("", "Namespace") => Some(Self::Namespace),
            ("", "PersistentVolumeClaim") => Some(Self::PersistentVolumeClaim),
            _ => None,
        }
    }
}

/// What happens to the objects that a plan applied when the plan is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They are deleted, wave by wave, in reverse order. Objects of protected kinds are deleted only if their deletion
    /// is confirmed.
    #[default]
    Delete,
    /// They are left in the cluster.
    Orphan,
}

/// A group of members that are rolled out together.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("!has(self.dependsOn) || self.dependsOn.all(d, d.wave != self.name)")
        .message("a wave depends on itself; remove it from its own dependsOn"),
    validation = Rule::new("has(self.members) || has(self.hooks) || has(self.healthChecks) || has(self.probes)")
        .message("a wave needs members, hooks, healthChecks or probes"),
)]
pub struct Wave {
    /// The name of the wave, unique in the plan. It is also the value of a label on the objects that the wave applies.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// The waves that must be ready before this wave starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["wave".into()]))]
    pub depends_on: Vec<Dependency>,

    /// How long the wave may take to become ready, from the time its dependencies are ready.
    #[serde(default = "wave_timeout")]
    pub timeout: Span,

    /// Whether the members of the wave start together or one after another.
    #[serde(default)]
    pub parallelism: Parallelism,

    /// The members of the wave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub members: Vec<Member>,

    /// Manifests that are applied before the members start, and after they are ready: usually Jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Hooks>,

    /// CEL expressions that determine the readiness of objects whose status does not report it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub health_checks: Vec<HealthCheck>,

    /// Endpoints that must respond. They are probed when everything else in the wave is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub probes: Vec<Probe>,

    /// What happens when the wave fails or times out.
    #[serde(default)]
    pub on_failure: OnFailure,

    /// The maximum number of retries with `onFailure: Retry`.
    #[serde(default = "retries")]
    #[schemars(range(min = 1, max = 100))]
    pub retries: i32,

    /// If true, the wave does not start and none of its manifests is applied.
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
    /// The name of the wave to wait for.
    #[schemars(length(min = 1, max = 63))]
    pub wave: String,
    /// When the dependency applies.
    #[serde(default)]
    pub gate: Gate,
}

/// When a dependency applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Gate {
    /// In every rollout.
    #[default]
    Always,
    /// Until the dependent wave has been ready once. After that, the wave no longer waits for this dependency.
    FirstRollout,
}

/// Whether the members of a wave start together or one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Parallelism {
    /// All members start together.
    #[default]
    Concurrent,
    /// Each member starts when the one before it is ready.
    Sequential,
}

/// A member of a wave: a reference to an object, or manifests to apply.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("has(self.ref) != has(self.manifests)").message("set exactly one of ref and manifests"),
    validation = Rule::new("!has(self.mode) || has(self.ref)").message("mode can only be set together with ref; manifests are always applied"),
    validation = Rule::new("!has(self.mode) || self.mode == 'Observe' || (self.ref.apiVersion.startsWith('kustomize.toolkit.fluxcd.io/') && self.ref.kind == 'Kustomization') || (self.ref.apiVersion.startsWith('helm.toolkit.fluxcd.io/') && self.ref.kind == 'HelmRelease')")
        .message("modes Nudge and Gate are only for Flux Kustomizations and HelmReleases; use Observe"),
)]
pub struct Member {
    /// A name for the member, used in messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub name: Option<String>,
    /// A reference to an object that the plan does not manage itself.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ObjectRef>,
    /// How the plan treats `ref`. Defaults to Nudge for Flux Kustomizations and HelmReleases, and to Observe for other
    /// kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Objects that the plan applies, keeps as specified, and deletes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifests: Option<Manifests>,
}

/// How the plan treats an object that it does not manage itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// The plan waits for the object to be ready, and does not change it.
    Observe,
    /// The plan requests a reconciliation from Flux when the wave starts, so that the object is not reconciled only at
    /// its next interval.
    Nudge,
    /// The plan suspends the object until the wave starts: it manages the object's `spec.suspend`. It gives the field
    /// back when the wave starts, when the member no longer has this mode, and when the plan is deleted.
    Gate,
}

/// A reference to an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectRef {
    /// The API version, for example `apps/v1`.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// The kind, for example `Deployment`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The namespace. Leave it out for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Manifests to apply: YAML with any number of documents.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.inline) != has(self.configMapRef)").message("set exactly one of inline and configMapRef"))]
pub struct Manifests {
    /// The YAML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
    /// A reference to a ConfigMap that contains the YAML. A change of its content starts a new rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapKey>,
    /// The namespace for namespaced objects whose manifests do not set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// Manifests that are applied around a wave. A Job in a hook runs once in each rollout: the digest of the rollout is
/// appended to its name, and the Jobs of earlier rollouts are pruned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hooks {
    /// Applied before the members. The members start when all these objects are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Manifests>,
    /// Applied after everything else in the wave is ready. The wave is ready when all these objects are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Manifests>,
}

/// A key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigMapKey {
    /// The namespace of the ConfigMap.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key. If unset, all keys are used, sorted by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// CEL expressions that determine the readiness of an object. The fields of the object are variables: `status.phase ==
/// 'Ready'`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheck {
    /// The object or objects that the expressions apply to.
    pub target: Target,
    /// A CEL expression. The object is ready when it is true.
    #[schemars(length(min = 1, max = 4096))]
    pub ready: String,
    /// A CEL expression. The object has failed when it is true: waiting does not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub failed: Option<String>,
}

/// An object by name, or all objects that match a label selector.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.name) != has(self.selector)").message("set exactly one of name and selector"))]
pub struct Target {
    /// The API version, for example `example.io/v1`.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// The kind, for example `Database`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The namespace. Leave it out for cluster-scoped kinds. With a selector, an unset namespace selects all
    /// namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// The name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// A label selector. At least one object must match it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// An endpoint that must respond.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.http) != has(self.tcp)").message("set exactly one of http and tcp"))]
pub struct Probe {
    /// An HTTP GET request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpProbe>,
    /// A TCP connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpProbe>,
}

/// An HTTP GET request that must return a certain status code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpProbe {
    /// The URL, for example `http://localstack.core:4566/_localstack/health`.
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^http://"))]
    pub url: String,
    /// The expected status code. Redirects are not followed.
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
    /// The host name or IP address.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// The port number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// What happens when a wave fails or times out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// The waves that depend on it are blocked; other branches continue. If the wave becomes ready later, the blocked
    /// waves continue.
    #[default]
    Block,
    /// The waves that depend on it start anyway.
    Continue,
    /// The wave is retried: failed Jobs are recreated, Flux members are requested to reconcile, and the timeout starts
    /// again.
    Retry,
    /// The manifests of the wave are reverted to those with which it was last ready, and the waves that depend on it
    /// are blocked. Objects that the plan does not manage itself are not changed. If the wave was never ready, this is
    /// the same as `Block`.
    Rollback,
    /// No further wave of the plan starts until this wave is ready or the plan is resumed.
    Pause,
}
