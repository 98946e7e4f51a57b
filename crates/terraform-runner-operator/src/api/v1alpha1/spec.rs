//! What a workspace asks for.
#![allow(unreachable_pub, reason = "the derived schemas repeat each struct where nobody can reach it")]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use opcore::duration::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::TerraformWorkspaceStatus;

/// What the API server takes for the name of an object: with another, a request would be for something else.
const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A Terraform or OpenTofu configuration that is kept applied.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infra.opr8r",
    version = "v1alpha1",
    kind = "TerraformWorkspace",
    plural = "terraformworkspaces",
    shortname = "tfw",
    category = "opcore",
    namespaced,
    status = "TerraformWorkspaceStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Plan","type":"string","jsonPath":".status.plan.summary"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.drift.summary"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TerraformWorkspaceSpec {
    /// The root module.
    pub module: Module,

    /// Values of the module's variables, of any type. They reach the module as data: nothing in them is evaluated.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "any_values")]
    pub variables: BTreeMap<String, Value>,

    /// Values of variables from Secrets and ConfigMaps of the same namespace, one variable per key. What comes later, and
    /// what is in `variables`, wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub variables_from: Vec<VariablesFrom>,

    /// Environment of the Terraform process: credentials, settings of providers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,

    /// Whether a person has to approve a plan before it is applied.
    #[serde(default)]
    pub approval: Approval,

    /// How often, and with what consequence, reality is compared with the state.
    #[serde(default)]
    pub drift: Drift,

    /// What becomes of what was made when the workspace is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// How long each part of a run may take.
    #[serde(default)]
    pub timeouts: Timeouts,

    /// The program that does the work.
    #[serde(default)]
    pub engine: Engine,

    /// Where the state is.
    #[serde(default)]
    pub backend: Backend,

    /// The pods in which it runs.
    #[serde(default)]
    pub runner: Runner,

    /// Where the outputs go.
    #[serde(default)]
    pub outputs: Outputs,

    /// Workspaces of the same namespace that must be ready before this one is planned. They are destroyed after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub depends_on: Vec<Dependency>,

    /// Start no further run, as long as this is true. A run that is under way ends as it would have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,

    /// How much of the past is kept.
    #[serde(default)]
    pub history: History,
}

/// The root module: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("[has(self.inline), has(self.configMapRef), has(self.builtin)].filter(x, x).size() == 1")
    .message("name exactly one of inline, configMapRef and builtin"))]
pub struct Module {
    /// The files themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<InlineModule>,
    /// A ConfigMap of the same namespace whose keys are the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalRef>,
    /// A module that the operator brings along, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub builtin: Option<String>,
}

/// Files of a module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InlineModule {
    /// By their paths, relative to the root of the module.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 256))]
    pub files: BTreeMap<String, String>,
}

/// An object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LocalRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub name: String,
}

/// Where values of variables come from: exactly one of a Secret and a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.secretRef) != has(self.configMapRef)")
    .message("name exactly one of secretRef and configMapRef"))]
pub struct VariablesFrom {
    /// A Secret. Its values are kept out of logs, Events and statuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
    /// A ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalRef>,
    /// Only these keys. None: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub keys: Vec<String>,
    /// How the values are read.
    #[serde(default, rename = "as")]
    pub form: Form,
    /// Go on without it while it does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// How a value of a Secret or a ConfigMap is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Form {
    /// As it is: a string, which Terraform turns into a number or a boolean where a variable asks for one.
    #[default]
    Text,
    /// As JSON, for lists and objects.
    Json,
}

/// One variable of the environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("!(has(self.value) && has(self.valueFrom))")
    .message("name value or valueFrom, not both"))]
pub struct EnvVar {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub name: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where its value comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ValueFrom>,
}

/// Where a value comes from: exactly one of a Secret and a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.secretKeyRef) != has(self.configMapKeyRef)")
    .message("name exactly one of secretKeyRef and configMapKeyRef"))]
pub struct ValueFrom {
    /// A key of a Secret. Its value is kept out of logs, Events and statuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
}

/// A key of an object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyRef {
    /// The object's name.
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Go on without it while it does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// Whether a person has to approve a plan before it is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Approval {
    /// No: planned and applied in one go.
    #[default]
    Auto,
    /// Always.
    Manual,
    /// Only a plan that destroys, replaces or forgets something.
    AutoUnlessDestroy,
}

/// How often, and with what consequence, reality is compared with the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("!has(self.interval) || duration(self.interval) >= duration('1s')")
    .message("interval is at least 1s; action: Off compares nothing"))]
pub struct Drift {
    /// How often; each workspace a little off, so that not all are checked at once.
    #[serde(default = "drift_interval")]
    pub interval: Span,
    /// What follows from a difference.
    #[serde(default)]
    pub action: DriftAction,
}

impl Default for Drift {
    fn default() -> Self {
        Self { interval: drift_interval(), action: DriftAction::default() }
    }
}

fn drift_interval() -> Span {
    Span::from_secs(30 * 60)
}

/// What follows from a difference between reality and the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftAction {
    /// Nobody looks.
    Off,
    /// It is told.
    #[default]
    Report,
    /// It is told and mended, under the same `approval` as any plan.
    Correct,
}

/// What becomes of what was made when the workspace is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It is destroyed; the workspace stays until that is done.
    #[default]
    Destroy,
    /// It stays, and so does its state.
    Retain,
    /// It is destroyed if that can be done; if not, the workspace goes all the same and says what it leaves.
    Force,
}

/// How long each part of a run may take. Terraform is asked to stop, saves its state, and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("[has(self.plan) ? self.plan : '1s', has(self.apply) ? self.apply : '1s', has(self.destroy) ? self.destroy : '1s'].all(time, duration(time) >= duration('1s'))")
    .message("a timeout is at least 1s"))]
pub struct Timeouts {
    /// Fetching providers and modules, and planning.
    #[serde(default = "ten_minutes")]
    pub plan: Span,
    /// Applying.
    #[serde(default = "half_an_hour")]
    pub apply: Span,
    /// Destroying.
    #[serde(default = "half_an_hour")]
    pub destroy: Span,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { plan: ten_minutes(), apply: half_an_hour(), destroy: half_an_hour() }
    }
}

fn ten_minutes() -> Span {
    Span::from_secs(600)
}

fn half_an_hour() -> Span {
    Span::from_secs(1800)
}

/// The program that does the work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Engine {
    /// Which program.
    #[serde(default)]
    pub binary: Binary,
    /// An image that has it in its path. None: the operator's own, with OpenTofu.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
}

/// The program that does the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Binary {
    /// OpenTofu.
    #[default]
    Tofu,
    /// Terraform.
    Terraform,
}

impl Binary {
    /// The name of the program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Tofu => "tofu",
            Self::Terraform => "terraform",
        }
    }
}

/// Where the state is: at most one of these, and the first when there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("!(has(self.managed) && has(self.custom))")
    .message("name managed or custom, not both"))]
pub struct Backend {
    /// In Secrets of the same namespace, with their own lock and versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedBackend>,
    /// In a backend that Terraform itself knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomBackend>,
}

/// State in Secrets of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ManagedBackend {
    /// Begin with a state that is there already, as long as there is none of its own: what it tells of is taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<AdoptedState>,
}

/// A state that is there already.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdoptedState {
    /// A Secret of the same namespace: one that a workspace left under `deletionPolicy: Retain` (`…-state`), one of the
    /// backend `kubernetes` (key `tfstate`), or one with the key `terraform.tfstate`. It stays as it is.
    pub secret_ref: LocalRef,
}

impl ManagedBackend {
    /// The Secret with the state to begin with, if one is named.
    pub fn adopted(&self) -> Option<&str> {
        self.adopt.as_ref().map(|adopted| adopted.secret_ref.name.as_str())
    }
}

impl Backend {
    /// The Secret with the state to begin with, if one is named.
    pub fn adopted(&self) -> Option<&str> {
        self.managed.as_ref()?.adopted()
    }
}

/// A backend that Terraform itself knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomBackend {
    /// Its type, such as `s3` or `gcs`.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z][a-z0-9_]*$"))]
    pub kind: String,
    /// Its settings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "any_values")]
    pub config: BTreeMap<String, Value>,
    /// Further settings, one per key; they win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_from: Option<ConfigFrom>,
}

/// Where settings of a backend come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigFrom {
    /// A Secret of the same namespace.
    pub secret_ref: LocalRef,
}

/// The pods in which it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Runner {
    /// What is added to the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
}

/// What is added to the pods of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodTemplate {
    /// Labels and annotations.
    #[serde(default)]
    pub metadata: PodTemplateMetadata,
    /// Where and how they run.
    #[serde(default)]
    pub spec: PodTemplateSpec,
}

/// Labels and annotations of the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodTemplateMetadata {
    /// Labels, beside our own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Where and how the pods run. What is not here is ours: the pods meet the restricted Pod Security Standard, unless
/// volumes are added that it forbids.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodTemplateSpec {
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that are tolerated, as in a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "any_objects")]
    pub tolerations: Vec<Value>,
    /// Affinity, as in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub affinity: Option<Value>,
    /// Resources of the container in which Terraform runs, as in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub resources: Option<Value>,
    /// Volumes, as in a pod: data, and projected tokens for the identity of a cloud. The names `inputs`, `work`, `tmp`,
    /// `token` and `tools` are taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "any_objects")]
    pub volumes: Vec<Value>,
    /// Where they are mounted in the container in which Terraform runs, as in a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "any_objects")]
    pub volume_mounts: Vec<Value>,
    /// Secrets to pull images with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalRef>,
    /// A ServiceAccount of the same namespace, for the identity of a cloud. None: one that is made for the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub service_account_name: Option<String>,
    /// The priority class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// The runtime class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
}

/// Where the outputs go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("!has(self.secretName) || !self.secretName.matches('^tf-.+-[0-9a-f]{8}-(state|plan|report|in|key)(-.*)?$')")
    .message("workspaces keep their states, plans and inputs in Secrets like this secretName: choose another name"))]
pub struct Outputs {
    /// The Secret, one key per output. None: `<name>-outputs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub secret_name: Option<String>,
    /// Only these outputs. None: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub include: Vec<String>,
}

impl Outputs {
    /// The name of the Secret, if it is like those in which workspaces keep something; see
    /// [`Names`](crate::run::names::Names). The API server refuses it, unless it was there before.
    pub fn taken(&self) -> Option<&str> {
        let name = self.secret_name.as_deref()?;
        let parts: Vec<&str> = name.strip_prefix("tf-")?.split('-').collect();
        let is_digest = |part: &str| part.len() == 8 && part.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        let is_kept = |part: &str| matches!(part, "state" | "plan" | "report" | "in" | "key");
        // What comes before the digest is the name of a workspace.
        parts
            .windows(2)
            .skip(1)
            .any(|two| matches!(two, [digest, kept] if is_digest(digest) && is_kept(kept)))
            .then_some(name)
    }
}

/// A workspace that must be ready first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Dependency {
    /// Its name, in the same namespace.
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub name: String,
}

/// How much of the past is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct History {
    /// Versions of the state.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 20))]
    pub states: i32,
    /// Failed Jobs, with the logs of their pods. Others go when their result is recorded.
    #[serde(default = "three")]
    #[schemars(range(min = 0, max = 20))]
    pub failed_jobs: i32,
}

impl Default for History {
    fn default() -> Self {
        Self { states: ten(), failed_jobs: three() }
    }
}

fn ten() -> i32 {
    10
}

fn three() -> i32 {
    3
}

/// Values of any JSON type, by name.
fn any_values(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": { "x-kubernetes-preserve-unknown-fields": true },
    })
}

/// A part of a pod, checked when the pod is made.
fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Parts of a pod, checked when the pod is made.
fn any_objects(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "array", "maxItems": 64, "items": any_object(generator) })
}
