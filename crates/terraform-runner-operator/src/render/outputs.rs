//! The Secret in which people find the outputs.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use super::metadata;
use crate::api::v1alpha1::{OutputStatus, TerraformWorkspace};
use crate::run::report::OutputValues;

/// The name of the Secret with the outputs of a workspace.
pub fn outputs_name(workspace: &TerraformWorkspace) -> String {
    workspace.spec.outputs.secret_name.clone().unwrap_or_else(|| format!("{}-outputs", workspace.name_any()))
}

/// The Secret with the outputs that are asked for. It goes with the workspace.
pub fn outputs_secret(workspace: &TerraformWorkspace, outputs: &OutputValues) -> Secret {
    let data = chosen(workspace, outputs).map(|(name, output)| (name.clone(), ByteString(output.text().into_bytes())));
    Secret {
        metadata: metadata(workspace, outputs_name(workspace), "outputs"),
        type_: Some("Opaque".to_owned()),
        data: Some(data.collect::<BTreeMap<_, _>>()),
        ..Secret::default()
    }
}

/// The outputs that are asked for, without their values.
pub fn statuses(workspace: &TerraformWorkspace, outputs: &OutputValues) -> Vec<OutputStatus> {
    let outputs = chosen(workspace, outputs);
    outputs.map(|(name, output)| OutputStatus { name: name.clone(), sensitive: output.sensitive }).collect()
}

fn chosen<'a>(
    workspace: &'a TerraformWorkspace,
    outputs: &'a OutputValues,
) -> impl Iterator<Item = (&'a String, &'a crate::run::report::OutputValue)> {
    let include = &workspace.spec.outputs.include;
    outputs.iter().filter(move |(name, _)| include.is_empty() || include.contains(name))
}
