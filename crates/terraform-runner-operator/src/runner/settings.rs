//! Where things are. In a pod all of it is fixed; a test of two plain processes says otherwise.

use std::env;
use std::path::PathBuf;

use serde::de::DeserializeOwned;

use crate::run::order::{INPUTS_PATH, PREVIOUS_PATH, STORE_ADDRESS, WORK_PATH};

/// Instead of [`INPUTS_PATH`].
pub const INPUTS_VARIABLE: &str = "TF_RUNNER_INPUTS_PATH";
/// Instead of [`PREVIOUS_PATH`].
pub const PREVIOUS_VARIABLE: &str = "TF_RUNNER_PREVIOUS_PATH";
/// Instead of [`WORK_PATH`].
pub const WORK_VARIABLE: &str = "TF_RUNNER_WORK_PATH";
/// Instead of [`STORE_ADDRESS`].
pub const ADDRESS_VARIABLE: &str = "TF_RUNNER_STORE_ADDRESS";
/// Instead of [`TERMINATION_LOG`].
pub const TERMINATION_VARIABLE: &str = "TF_RUNNER_TERMINATION_LOG";
/// Where the last words of a container go.
pub const TERMINATION_LOG: &str = "/dev/termination-log";

/// A path, or the usual one.
pub fn path(variable: &str, usual: &str) -> PathBuf {
    env::var_os(variable).map_or_else(|| usual.into(), PathBuf::from)
}

/// The folder of the inputs.
pub fn inputs() -> PathBuf {
    path(INPUTS_VARIABLE, INPUTS_PATH)
}

/// The folder of the inputs before them, which may not be there.
pub fn previous() -> PathBuf {
    path(PREVIOUS_VARIABLE, PREVIOUS_PATH)
}

/// The folder to work in.
pub fn work() -> PathBuf {
    path(WORK_VARIABLE, WORK_PATH)
}

/// Where the last words go.
pub fn termination_log() -> PathBuf {
    path(TERMINATION_VARIABLE, TERMINATION_LOG)
}

/// Where the store listens.
pub fn address() -> String {
    env::var(ADDRESS_VARIABLE).unwrap_or_else(|_| STORE_ADDRESS.to_owned())
}

/// What the operator says in a variable.
///
/// # Errors
///
/// When it is missing or not understood.
pub fn told<T: DeserializeOwned>(variable: &str) -> Result<T, String> {
    let text = env::var(variable).map_err(|_| format!("{variable} is not set: the operator sets it"))?;
    serde_json::from_str(&text).map_err(|error| format!("{variable} is not understood: {error}"))
}
