//! What becomes of a decision: inputs, rights, Jobs, Secrets. Pure.

mod adopted;
mod authors;
mod backend;
mod inputs;
mod job;
mod module;
mod outputs;
mod rights;
mod settings;

pub use adopted::Adopted;
pub use authors::Authors;
pub use backend::MANAGED;
pub use inputs::{
    Found, Inputs, Key, Problem, Reference, Source, Sources, Wanted, few_enough, input_secrets, inputs, key_of,
    key_secret, keyed_inputs, references, small_enough, wanted,
};
pub use job::{Chunks, job};
pub use module::{builtin, fill};
pub use outputs::{outputs_name, outputs_secret, statuses};
pub use rights::{binding, rights};
pub use settings::{Longest, Settings};

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::ObjectMeta;
use opcore::ownership::{Claimant, OPERATOR_LABEL, OWNER_ANNOTATION, OWNER_LABEL, owner_reference};

use crate::api::v1alpha1::{TerraformWorkspace, WORKSPACE_LABEL};
use crate::run::names::Names;
use crate::run::order::Marks;

/// The name of the operator: its field manager, and the mark on objects that it creates.
pub const OPERATOR: &str = "terraform-runner-operator";
/// Label on every object that is created for a workspace: its role.
pub const PART_LABEL: &str = "infra.opr8r/part";
/// Annotation on the first chunk of inputs: the number of chunks.
pub const CHUNKS_ANNOTATION: &str = "infra.opr8r/chunks";

/// The names of everything that belongs to a workspace.
pub fn names(workspace: &TerraformWorkspace) -> Names {
    Names::of(&workspace.name_any(), &workspace.uid().unwrap_or_default())
}

/// The labels of every object that is created for a workspace.
fn labels(workspace: &TerraformWorkspace, part: &str) -> BTreeMap<String, String> {
    let name = label_value(&workspace.name_any());
    BTreeMap::from([(WORKSPACE_LABEL.to_owned(), name), (PART_LABEL.to_owned(), part.to_owned())])
}

/// A name shortened for the value of a label; the owner's UID distinguishes names that become equal.
pub(crate) fn label_value(name: &str) -> String {
    let mut value: String = name.chars().take(63).collect();
    value.truncate(value.trim_end_matches(['-', '.']).len());
    value
}

/// The metadata of an object that is deleted with the workspace.
fn metadata(workspace: &TerraformWorkspace, name: String, part: &str) -> ObjectMeta {
    let namespace = workspace.namespace();
    ObjectMeta {
        name: Some(name),
        labels: Some(labels(workspace, part)),
        owner_references: owner_reference(workspace, namespace.as_deref()).ok().map(|reference| vec![reference]),
        namespace,
        ..ObjectMeta::default()
    }
}

/// The metadata of an object that outlives the workspace, unless it is deleted explicitly.
fn lasting(workspace: &TerraformWorkspace, name: String, part: &str) -> ObjectMeta {
    ObjectMeta { owner_references: None, ..metadata(workspace, name, part) }
}

/// The marks with which objects that a runner wrote for a workspace are recognized.
fn marks(workspace: &TerraformWorkspace) -> Marks {
    let claimant = Claimant::acting_for(OPERATOR, workspace);
    let mut marks = Marks { labels: labels(workspace, "kept"), annotations: BTreeMap::new() };
    marks.labels.insert(OPERATOR_LABEL.to_owned(), OPERATOR.to_owned());
    if let Some(owner) = claimant.owner {
        marks.labels.insert(OWNER_LABEL.to_owned(), owner.uid);
        marks.annotations.insert(OWNER_ANNOTATION.to_owned(), owner.words);
    }
    marks
}
