//! The Secret with the outputs for users.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use super::metadata;
use crate::api::v1alpha1::{OutputStatus, TerraformWorkspace};
use crate::run::report::{OutputValue, OutputValues, is_key};

/// The name of the Secret with the outputs of a workspace.
pub fn outputs_name(workspace: &TerraformWorkspace) -> String {
    workspace.spec.outputs.secret_name.clone().unwrap_or_else(|| format!("{}-outputs", workspace.name_any()))
}

/// The Secret with the requested outputs. It is deleted with the workspace.
pub fn outputs_secret(workspace: &TerraformWorkspace, outputs: &OutputValues) -> Secret {
    let data = chosen(workspace, outputs).map(|(name, output)| (name.clone(), ByteString(output.text().into_bytes())));
    Secret {
        metadata: metadata(workspace, outputs_name(workspace), "outputs"),
        type_: Some("Opaque".to_owned()),
        data: Some(data.collect::<BTreeMap<_, _>>()),
        ..Secret::default()
    }
}

/// The requested outputs, without their values.
pub fn statuses(workspace: &TerraformWorkspace, outputs: &OutputValues) -> Vec<OutputStatus> {
    let outputs = chosen(workspace, outputs);
    outputs.map(|(name, output)| OutputStatus { name: name.clone(), sensitive: output.sensitive }).collect()
}

fn chosen<'a>(
    workspace: &'a TerraformWorkspace,
    outputs: &'a OutputValues,
) -> impl Iterator<Item = (&'a String, &'a OutputValue)> {
    let include = &workspace.spec.outputs.include;
    // The runner has reported the outputs whose names cannot be keys.
    outputs.iter().filter(move |(name, _)| is_key(name) && (include.is_empty() || include.contains(name)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_output_that_no_key_can_be_called_after_is_left_out_and_the_others_are_there() {
        let workspace: TerraformWorkspace = serde_json::from_value(json!({
            "apiVersion": "infra.opr8r/v1alpha1", "kind": "TerraformWorkspace",
            "metadata": { "name": "network", "namespace": "infra", "uid": "u-1" },
            "spec": { "module": { "builtin": "simple" } },
        }))
        .unwrap();
        let long = "x".repeat(254);
        let names = ["vpc_id", "größe", "名前", &long, "a-b", ".", "..a"];
        let output = |name: &str| (name.to_owned(), OutputValue { value: json!(1), sensitive: false });
        let outputs: OutputValues = names.map(output).into();
        let keys: Vec<String> = outputs_secret(&workspace, &outputs).data.unwrap().into_keys().collect();
        assert_eq!(keys, ["a-b", "vpc_id"]);
        let reported: Vec<String> = statuses(&workspace, &outputs).into_iter().map(|output| output.name).collect();
        assert_eq!(reported, keys);
    }
}
