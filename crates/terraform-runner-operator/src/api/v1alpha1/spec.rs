//! The desired state of a workspace.
#![allow(unreachable_pub, reason = "the derived schemas repeat each struct where nobody can reach it")]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use opcore::duration::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::TerraformWorkspaceStatus;

/// What the API server accepts as the name of an object. With any other name, a request would address something else.
const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A Terraform or OpenTofu configuration that the operator keeps applied.
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

    /// Values of the variables of the module, of any type. They are passed to the module as data; expressions in them
    /// are not evaluated.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "any_values")]
    pub variables: BTreeMap<String, Value>,

    /// Sources of values of variables: Secrets and ConfigMaps of the same namespace, one variable per key. Later
    /// sources override earlier ones, and `variables` overrides all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub variables_from: Vec<VariablesFrom>,

    /// Environment variables of the Terraform process, for example credentials and settings of providers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,

    /// Whether a person must approve a plan before it is applied.
    #[serde(default)]
    pub approval: Approval,

    /// How often the real infrastructure is compared with the state, and what happens if it differs.
    #[serde(default)]
    pub drift: Drift,

    /// What happens to the resources when the workspace is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// How long each part of a run may take.
    #[serde(default)]
    pub timeouts: Timeouts,

    /// The program that runs the module.
    #[serde(default)]
    pub engine: Engine,

    /// Where the state is stored.
    #[serde(default)]
    pub backend: Backend,

    /// Settings of the pods of runs.
    #[serde(default)]
    pub runner: Runner,

    /// Where the outputs are written.
    #[serde(default)]
    pub outputs: Outputs,

    /// Workspaces of the same namespace that must be ready before this workspace is planned. They are destroyed after
    /// it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub depends_on: Vec<Dependency>,

    /// If true, no further run starts. A run that is in progress is completed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,

    /// How many states and failed Jobs are kept.
    #[serde(default)]
    pub history: History,
}

/// The root module. Exactly one of the fields must be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("[has(self.inline), has(self.configMapRef), has(self.builtin)].filter(x, x).size() == 1")
    .message("set exactly one of inline, configMapRef and builtin"))]
pub struct Module {
    /// The files of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<InlineModule>,
    /// A ConfigMap of the same namespace. Each key is a file of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalRef>,
    /// The name of a module that is part of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub builtin: Option<String>,
}

/// The files of a module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InlineModule {
    /// The content of the files, by their paths relative to the root of the module.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 256))]
    pub files: BTreeMap<String, String>,
}

/// A reference to an object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LocalRef {
    /// The name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub name: String,
}

/// A source of values of variables. Exactly one of `secretRef` and `configMapRef` must be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.secretRef) != has(self.configMapRef)")
    .message("set exactly one of secretRef and configMapRef"))]
pub struct VariablesFrom {
    /// A Secret. Its values do not appear in logs, Events and statuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
    /// A ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalRef>,
    /// The keys to use. If empty, all keys are used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub keys: Vec<String>,
    /// How the values are read.
    #[serde(default, rename = "as")]
    pub form: Form,
    /// Whether the source may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// How a value of a Secret or a ConfigMap is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Form {
    /// As a string. Terraform converts it to a number or a boolean where the type of the variable requires it.
    #[default]
    Text,
    /// As JSON, for lists and objects.
    Json,
}

/// An environment variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("!(has(self.value) && has(self.valueFrom))")
    .message("set at most one of value and valueFrom"))]
pub struct EnvVar {
    /// The name of the variable.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub name: String,
    /// The value of the variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The source of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ValueFrom>,
}

/// The source of a value. Exactly one of `secretKeyRef` and `configMapKeyRef` must be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.secretKeyRef) != has(self.configMapKeyRef)")
    .message("set exactly one of secretKeyRef and configMapKeyRef"))]
pub struct ValueFrom {
    /// A key of a Secret. Its value does not appear in logs, Events and statuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
}

/// A reference to a key of an object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyRef {
    /// The name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Whether the object or its key may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// Whether a person must approve a plan before it is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Approval {
    /// No approval is required: a run plans and applies.
    #[default]
    Auto,
    /// Every plan requires approval.
    Manual,
    /// Only plans that destroy, replace or forget resources require approval.
    AutoUnlessDestroy,
}

/// How often the real infrastructure is compared with the state, and what happens if it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("!has(self.interval) || duration(self.interval) >= duration('1s')")
    .message("interval must be at least 1s; to disable the comparison, set action to Off"))]
pub struct Drift {
    /// The interval between comparisons. Each workspace deviates from it a little, so that they are not all compared at
    /// the same time.
    #[serde(default = "drift_interval")]
    pub interval: Span,
    /// What happens if the infrastructure differs from the state.
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

/// What happens if the real infrastructure differs from the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftAction {
    /// The infrastructure is not compared with the state.
    Off,
    /// The difference is reported.
    #[default]
    Report,
    /// The difference is reported and corrected. The plan that corrects it is subject to `approval` like any other.
    Correct,
}

/// What happens to the resources of a workspace when the workspace is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They are destroyed. The workspace remains until that is done.
    #[default]
    Destroy,
    /// They are left as they are, and so is the state.
    Retain,
    /// They are destroyed if possible. If not, the workspace is deleted anyway, and an Event reports what is left.
    Force,
}

/// How long each part of a run may take. When the time is over, Terraform is asked to stop; it then saves its state and
/// ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("[has(self.plan) ? self.plan : '1s', has(self.apply) ? self.apply : '1s', has(self.destroy) ? self.destroy : '1s'].all(time, duration(time) >= duration('1s'))")
    .message("a timeout must be at least 1s"))]
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

/// The program that runs the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Engine {
    /// The program.
    #[serde(default)]
    pub binary: Binary,
    /// An image that has the program in its path. If unset, the image of the operator with OpenTofu is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
}

/// The program that runs the module.
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
    /// The file name of the program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Tofu => "tofu",
            Self::Terraform => "terraform",
        }
    }
}

/// Where the state is stored. At most one of the fields may be set; if none is, the state is stored as with `managed`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("!(has(self.managed) && has(self.custom))")
    .message("set at most one of managed and custom"))]
pub struct Backend {
    /// The state is stored in Secrets of the same namespace, with a lock and a history of versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedBackend>,
    /// The state is stored in a backend of Terraform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomBackend>,
}

/// State in Secrets of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ManagedBackend {
    /// An existing state to start with, as long as the workspace has no state of its own. The workspace then manages
    /// the resources in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<AdoptedState>,
}

/// A reference to an existing state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdoptedState {
    /// A Secret of the same namespace: one that a workspace with `deletionPolicy: Retain` left (`…-state`), one of the
    /// backend `kubernetes` (key `tfstate`), or one with the key `terraform.tfstate`. The Secret is not changed.
    pub secret_ref: LocalRef,
}

impl ManagedBackend {
    /// The name of the Secret with the state to start with, if one is set.
    pub fn adopted(&self) -> Option<&str> {
        self.adopt.as_ref().map(|adopted| adopted.secret_ref.name.as_str())
    }
}

impl Backend {
    /// The name of the Secret with the state to start with, if one is set.
    pub fn adopted(&self) -> Option<&str> {
        self.managed.as_ref()?.adopted()
    }
}

/// A backend of Terraform.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomBackend {
    /// The type of the backend, such as `s3` or `gcs`.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z][a-z0-9_]*$"))]
    pub kind: String,
    /// The settings of the backend.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "any_values")]
    pub config: BTreeMap<String, Value>,
    /// A source of further settings, one per key. They override `config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_from: Option<ConfigFrom>,
}

/// A source of settings of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigFrom {
    /// A Secret of the same namespace.
    pub secret_ref: LocalRef,
}

/// Settings of the pods of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Runner {
    /// Fields to add to the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
}

/// Fields to add to the pods of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodTemplate {
    /// Labels and annotations to add.
    #[serde(default)]
    pub metadata: PodTemplateMetadata,
    /// Fields of the pod spec to add.
    #[serde(default)]
    pub spec: PodTemplateSpec,
}

/// Labels and annotations to add to the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodTemplateMetadata {
    /// Labels to add to those that the operator sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Fields to add to the spec of the pods. The operator sets all other fields. The pods meet the restricted Pod Security
/// Standard, unless volumes are added that it forbids.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodTemplateSpec {
    /// Labels that a node must have, as in a pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations, as in a pod.
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
    /// Volumes, as in a pod, for example data or projected tokens for a cloud identity. The names `inputs`, `work`,
    /// `tmp`, `token` and `tools` are reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "any_objects")]
    pub volumes: Vec<Value>,
    /// Where the volumes are mounted in the container in which Terraform runs, as in a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "any_objects")]
    pub volume_mounts: Vec<Value>,
    /// Secrets with which images are pulled, as in a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalRef>,
    /// A ServiceAccount of the same namespace, for example for a cloud identity. If unset, the operator creates one for
    /// the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub service_account_name: Option<String>,
    /// The name of a PriorityClass, as in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// The name of a RuntimeClass, as in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
}

/// Where the outputs are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("!has(self.secretName) || !self.secretName.matches('^tf-.+-[0-9a-f]{8}-(state|plan|report|in|key)(-.*)?$')")
    .message("secretName is reserved for the Secrets in which workspaces store states, plans and inputs; choose another name"))]
pub struct Outputs {
    /// The name of the Secret with one key per output. Defaults to `<name>-outputs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub secret_name: Option<String>,
    /// The outputs to write. If empty, all outputs are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub include: Vec<String>,
}

impl Outputs {
    /// Returns the name of the Secret if it has the form of the names of the Secrets in which workspaces keep their
    /// data; see [`Names`](crate::run::names::Names). The API server rejects such a name, except in objects that had it
    /// before the rule existed.
    pub fn taken(&self) -> Option<&str> {
        let name = self.secret_name.as_deref()?;
        let parts: Vec<&str> = name.strip_prefix("tf-")?.split('-').collect();
        let is_digest = |part: &str| part.len() == 8 && part.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        let is_kept = |part: &str| matches!(part, "state" | "plan" | "report" | "in" | "key");
        // The part before the digest is the name of a workspace.
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
    /// The name of the workspace, in the same namespace.
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub name: String,
}

/// How many states and failed Jobs are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct History {
    /// The number of versions of the state to keep.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 20))]
    pub states: i32,
    /// The number of failed Jobs to keep, with the logs of their pods. Other Jobs are deleted when their result is
    /// recorded.
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

/// A part of a pod spec, validated when the pod is created.
fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Parts of a pod spec, validated when the pod is created.
fn any_objects(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "array", "maxItems": 64, "items": any_object(generator) })
}
