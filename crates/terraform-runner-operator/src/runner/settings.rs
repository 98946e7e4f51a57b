//! Paths and addresses. They are fixed in a pod; a test with two plain processes changes them.

use std::env;
use std::path::PathBuf;

use serde::de::DeserializeOwned;

use crate::run::order::{INPUTS_PATH, PREVIOUS_PATH, STORE_ADDRESS, WORK_PATH};

/// Overrides [`INPUTS_PATH`].
pub const INPUTS_VARIABLE: &str = "TF_RUNNER_INPUTS_PATH";
/// Overrides [`PREVIOUS_PATH`].
pub const PREVIOUS_VARIABLE: &str = "TF_RUNNER_PREVIOUS_PATH";
/// Overrides [`WORK_PATH`].
pub const WORK_VARIABLE: &str = "TF_RUNNER_WORK_PATH";
/// Overrides [`STORE_ADDRESS`].
pub const ADDRESS_VARIABLE: &str = "TF_RUNNER_STORE_ADDRESS";
/// Overrides [`TERMINATION_LOG`].
pub const TERMINATION_VARIABLE: &str = "TF_RUNNER_TERMINATION_LOG";
/// The file for the termination message of a container.
pub const TERMINATION_LOG: &str = "/dev/termination-log";

/// The path in a variable, or the default.
pub fn path(variable: &str, usual: &str) -> PathBuf {
    env::var_os(variable).map_or_else(|| usual.into(), PathBuf::from)
}

/// The folder of the inputs.
pub fn inputs() -> PathBuf {
    path(INPUTS_VARIABLE, INPUTS_PATH)
}

/// The folder of the previous inputs, which may not exist.
pub fn previous() -> PathBuf {
    path(PREVIOUS_VARIABLE, PREVIOUS_PATH)
}

/// The folder to work in.
pub fn work() -> PathBuf {
    path(WORK_VARIABLE, WORK_PATH)
}

/// The file for the termination message.
pub fn termination_log() -> PathBuf {
    path(TERMINATION_VARIABLE, TERMINATION_LOG)
}

/// The address of the store.
pub fn address() -> String {
    env::var(ADDRESS_VARIABLE).unwrap_or_else(|_| STORE_ADDRESS.to_owned())
}

/// Parses the order in a variable.
///
/// # Errors
///
/// When it is missing or cannot be parsed.
pub fn from_env<T: DeserializeOwned>(variable: &str) -> Result<T, String> {
    let text = env::var(variable).map_err(|_| format!("{variable} is not set; the operator must set it"))?;
    serde_json::from_str(&text).map_err(|error| format!("{variable} cannot be parsed: {error}"))
}
