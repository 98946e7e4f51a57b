//! Prints the CustomResourceDefinition of a kind, as the chart installs it: `crd terraformworkspaces |
//! simpleresources`. JSON is YAML.

use kube::CustomResourceExt;
use terraform_runner_operator::api::v1alpha1::{SimpleResource, TerraformWorkspace};

fn main() {
    let crd = match std::env::args().nth(1).as_deref() {
        Some("simpleresources") => SimpleResource::crd(),
        _ => TerraformWorkspace::crd(),
    };
    println!("{:#}", serde_json::json!(crd));
}
