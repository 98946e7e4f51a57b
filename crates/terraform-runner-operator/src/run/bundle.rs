//! The inputs of a run: everything that Terraform receives, as it was when the run was decided on.
//!
//! They are kept as long as a destroy may need them, so that a destroy does not depend on later changes of the spec,
//! the ConfigMaps and the Secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use opcore::digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::v1alpha1::Binary;

/// The file with the values of the variables. Values in a file of this type are literal, and the last such file wins.
pub const VARIABLES: &str = "zz_opcore.auto.tfvars.json";
/// The file that sets the place of the state, whatever the module says: of several overrides the last one wins.
pub const BACKEND: &str = "zzzz_opcore_override.tf.json";
/// The file that Terraform leaves when it cannot save the state.
pub const ERRORED: &str = "errored.tfstate";
/// Where the backend `local` would keep states: if something is there when another backend is set, Terraform asks about
/// it.
const LOCAL_STATES: [&str; 2] = ["terraform.tfstate", "terraform.tfstate.d"];
/// The endings of configuration files. OpenTofu uses `a.tofu.json` instead of `a.tf.json`.
const CONFIGURATION: [&str; 4] = [".tf", ".tofu", ".tf.json", ".tofu.json"];
/// The endings of files with values that Terraform reads automatically.
const AUTOMATIC: [&str; 2] = [".auto.tfvars", ".auto.tfvars.json"];
/// The longest file name that file systems support.
const LONGEST_NAME: usize = 255;
/// The longest path: Linux supports 4096 bytes, and the folder of the module needs some of them.
const LONGEST_PATH: usize = 1024;

/// The inputs of a run.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bundle {
    /// Random digits, the same for all inputs of a workspace: they prevent guessing the values from the hash of the
    /// bundle.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub salt: String,
    /// The files of the root module, by path.
    pub files: BTreeMap<String, String>,
    /// Values of variables.
    pub variables: BTreeMap<String, Value>,
    /// Those of them that the module must declare: if it does not, the name is misspelled.
    pub expected: BTreeSet<String>,
    /// Environment variables for Terraform.
    pub env: BTreeMap<String, String>,
    /// The backend, unless it is our own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendBundle>,
    /// The program, and its image if it is not our own: with another one, a new plan is made.
    pub engine: String,
    /// Values from Secrets, which must not appear in logs and reports.
    pub confidential: Vec<String>,
}

/// A backend that is built into Terraform.
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
    /// Serializes the bundle: the same inputs always give the same bytes.
    ///
    /// # Errors
    ///
    /// When it cannot be represented as JSON. Every bundle can.
    pub fn bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Parses a bundle.
    ///
    /// # Errors
    ///
    /// When the bytes are not a bundle.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The hash that identifies these inputs in statuses and names.
    pub fn hash(bytes: &[u8]) -> String {
        digest::of_bytes(bytes)
    }
}

/// Checks the files of a module: each can be written, none is outside of the module, and none replaces a file that the
/// runner, or Terraform itself, writes there.
///
/// # Errors
///
/// The path of the first invalid file, and the reason, as a clause with the remedy.
pub fn check_files(files: &BTreeMap<String, String>) -> Result<(), (&str, String)> {
    for path in files.keys() {
        check_path(path).map_err(|why| (path.as_str(), why))?;
        let mut folders = path.match_indices('/').filter_map(|(end, _)| path.get(..end));
        if let Some(folder) = folders.find(|folder| files.contains_key(*folder)) {
            return Err((path, format!("{folder:?} is a file and cannot also be a folder; rename one of them")));
        }
    }
    Ok(())
}

fn check_path(path: &str) -> Result<(), String> {
    if path.contains(['\\', '\0']) {
        return Err("a path cannot contain a backslash or a NUL character".to_owned());
    }
    if path.starts_with('/') {
        return Err("a path must be relative to the root of the module".to_owned());
    }
    if path.len() > LONGEST_PATH {
        return Err(format!("a path may have at most {LONGEST_PATH} bytes; shorten it"));
    }
    for part in path.split('/') {
        match part {
            "" | "." | ".." => return Err("a path must name a file below the root of the module".to_owned()),
            ".terraform" => return Err("the folder .terraform is reserved for Terraform; rename it".to_owned()),
            _ if part.len() > LONGEST_NAME => {
                return Err(format!("the name of a file or folder may have at most {LONGEST_NAME} bytes; shorten it"));
            }
            _ => {}
        }
    }
    check_root(path)
}

/// Checks that a path does not use a name with a special meaning in the root of a module.
fn check_root(path: &str) -> Result<(), String> {
    let (first, is_file) = path.split_once('/').map_or((path, true), |(first, _)| (first, false));
    if is_own(first) || first == ERRORED {
        return Err("the name is reserved for the runner; rename the file".to_owned());
    }
    if LOCAL_STATES.contains(&first) {
        return Err(format!(
            "Terraform would treat {first} as a state to migrate; remove the file. spec.backend determines where the state is stored"
        ));
    }
    if is_file && is_override(path) && path > BACKEND {
        return Err(format!(
            "it would override {BACKEND}, in which the runner configures the backend; rename it to a name \
             that sorts before it"
        ));
    }
    if is_file && AUTOMATIC.iter().any(|ending| path.ends_with(ending)) && path > VARIABLES {
        return Err(format!(
            "it would override {VARIABLES}, in which the runner sets the variables of the spec; rename it to a name that \
             sorts before"
        ));
    }
    Ok(())
}

/// Whether the runner writes this file of the root module.
pub fn is_own(path: &str) -> bool {
    [VARIABLES, BACKEND].contains(&path)
}

/// Whether this program reads a file as configuration in its own right: the file is in the root, and it is not hidden,
/// not an editor's backup, and not an override of another file.
pub fn is_configuration(path: &str, binary: Binary) -> bool {
    let ignored = path.starts_with('.') || path.ends_with('~') || (path.starts_with('#') && path.ends_with('#'));
    let mut endings = CONFIGURATION.iter().filter(|ending| binary == Binary::Tofu || !ending.starts_with(".tofu"));
    endings.any(|ending| path.ends_with(ending)) && !path.contains('/') && !ignored && !is_override(path)
}

/// Whether a file of the root is merged over the others, in the order of names.
fn is_override(path: &str) -> bool {
    let mut stems = CONFIGURATION.iter().filter_map(|ending| path.strip_suffix(ending));
    stems.any(|stem| stem == "override" || stem.ends_with("_override"))
}

/// Checks the name of a backend setting. Names are written as they are.
///
/// # Errors
///
/// The reason why not, as a clause with the remedy.
pub fn check_setting(name: &str) -> Result<(), String> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        Ok(())
    } else {
        let remedy = "use letters, digits, '_' and '-', and start with a letter or '_'";
        Err(format!("the name is not valid for a setting of a backend; {remedy}"))
    }
}

impl fmt::Debug for Bundle {
    /// Without values: this may end up in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bundle({} files, {} variables)", self.files.len(), self.variables.len())
    }
}
