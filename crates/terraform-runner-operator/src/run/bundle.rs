//! The inputs of a run: everything that Terraform is given, as it was when the run was decided on.
//!
//! It is kept as long as a destroy may need it, so that a destroy does not depend on what has become of the spec, the
//! ConfigMaps and the Secrets since.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::names;

/// The inputs of a run.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bundle {
    /// The files of the root module, by path.
    pub files: BTreeMap<String, String>,
    /// Values of variables.
    pub variables: BTreeMap<String, Value>,
    /// The environment of Terraform.
    pub env: BTreeMap<String, String>,
    /// The backend, unless it is our own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendBundle>,
    /// The program, and its image where that is not our own: another one plans anew.
    pub engine: String,
    /// Values from Secrets, which must not appear in logs and reports.
    pub confidential: Vec<String>,
}

/// A backend that Terraform itself knows.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendBundle {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its settings.
    pub config: BTreeMap<String, Value>,
}

impl Bundle {
    /// As bytes: the same for the same inputs.
    ///
    /// # Errors
    ///
    /// When it cannot be represented as JSON, which no bundle does.
    pub fn bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// From bytes.
    ///
    /// # Errors
    ///
    /// When the bytes are no bundle.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// What stands for these inputs in statuses and names.
    pub fn hash(bytes: &[u8]) -> String {
        names::hash_bytes(bytes)
    }
}

/// Whether a file of a module may be called so: below the root of the module, and nothing that Terraform keeps there.
///
/// # Errors
///
/// Why not, as a clause.
pub fn check_path(path: &str) -> Result<(), String> {
    if path.contains(['\\', '\0']) {
        return Err("a path cannot hold a backslash or a NUL".to_owned());
    }
    if path.starts_with('/') {
        return Err("a path must be relative to the root of the module".to_owned());
    }
    for part in path.split('/') {
        match part {
            "" | "." | ".." => return Err("a path must name a file below the root of the module".to_owned()),
            ".terraform" => return Err("Terraform keeps its own files in .terraform".to_owned()),
            _ => {}
        }
    }
    Ok(())
}

impl fmt::Debug for Bundle {
    /// Without values: this may end up in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bundle({} files, {} variables)", self.files.len(), self.variables.len())
    }
}
