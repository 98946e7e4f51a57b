//! Where the state is, in a word that can be compared.

use serde_json::json;

use crate::api::v1alpha1::TerraformWorkspaceSpec;
use crate::run::names::short;

/// The state is in Secrets of the same namespace.
pub const MANAGED: &str = "managed";

/// Where the state is. Settings from a Secret are left out: they are credentials, which change without moving anything.
pub fn backend_digest(spec: &TerraformWorkspaceSpec) -> String {
    match &spec.backend.custom {
        None => MANAGED.to_owned(),
        Some(custom) => format!("{}-{}", custom.kind, short(&[&json!(custom.config).to_string()])),
    }
}
