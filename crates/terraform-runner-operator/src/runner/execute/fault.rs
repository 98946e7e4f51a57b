//! The cause of a failure: an error in a module, or in the values of its variables, cannot be fixed by a retry.

use serde_json::Value;
use tokio::time::Instant;

use super::{Execution, READ_WITHIN, args};
use crate::api::v1alpha1::Outcome;
use crate::run::bundle::Bundle;
use crate::runner::engine::{Ended, Engine, Listen};
use crate::runner::layout::Layout;
use crate::runner::stream::{EngineOutput, sanitized};

/// Messages about values that a module does not accept.
const OF_VALUES: [&str; 3] =
    ["No value for required variable", "Invalid value for input variable", "Invalid value for variable"];
/// Messages about a module whose dependencies are missing: they may become available.
const NOT_FETCHED: [&str; 3] =
    ["Module not installed", "Module source has changed", "Module version requirements have changed"];
/// The message about a value without a variable. If there are several, only the first are named.
const UNDECLARED: &str = "Value for undeclared variable";
/// The message of Linux about a shell that an image does not contain.
const NO_SHELL: &str = "fork/exec /bin/sh: no such file or directory";

/// Whether the inputs caused the failure. Terraform validates a module without contacting anything outside.
pub(super) async fn is_of_inputs(engine: &Engine, ended: &Ended) -> bool {
    if OF_VALUES.iter().any(|summary| ended.engine_output.failed_with(summary)) {
        return true;
    }
    let validated =
        engine.call(&args(["validate", "-json", "-no-color"]), Instant::now() + READ_WITHIN, Listen::Keep).await;
    let Ok(validated) = validated else { return false };
    let said: Value = serde_json::from_slice(&validated.kept).unwrap_or_default();
    said["diagnostics"].as_array().into_iter().flatten().any(is_of_module)
}

/// Whether a diagnostic is an error in a file of the module.
fn is_of_module(said: &Value) -> bool {
    let fetched = said["summary"].as_str().is_some_and(|summary| !NOT_FETCHED.contains(&summary));
    said["severity"] == "error" && !said["range"].is_null() && fetched
}

impl Execution {
    /// Refuses values of `spec.variables` for which the module has no variable: their names are misspelled. Values from
    /// Secrets and ConfigMaps may be there for other users.
    pub(super) async fn check_variables(
        &mut self,
        bundle: &Bundle,
        layout: &Layout,
        engine: &Engine,
        engine_output: &EngineOutput,
    ) -> Result<(), Outcome> {
        if bundle.expected.is_empty() || !engine_output.diagnostics.iter().any(|said| said.summary == UNDECLARED) {
            return Ok(());
        }
        let mut words = args(["show", "-json", "-no-color"]);
        words.push(layout.plan.clone().into());
        let shown = engine.call(&words, Instant::now() + READ_WITHIN, Listen::Keep).await;
        let shown = shown.ok().filter(|shown| shown.code() == Some(0));
        let shown: Option<Value> = shown.and_then(|shown| serde_json::from_slice(&shown.kept).ok());
        // Without it, the warning has to suffice.
        let Some(shown) = shown else { return Ok(()) };
        let declared = &shown["configuration"]["root_module"]["variables"];
        let undeclared: Vec<&str> =
            bundle.expected.iter().map(String::as_str).filter(|name| declared.get(name).is_none()).collect();
        if undeclared.is_empty() {
            return Ok(());
        }
        let known: Vec<&str> = declared.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let summary = format!("spec.variables: the module has no variable {}", undeclared.join(", "));
        let detail = format!("Correct the name, or declare the variable in the module. It has: {known}.");
        self.report.diagnostics.retain(|said| !said.summary.to_lowercase().contains("undeclared variable"));
        Err(self.fail_each_time(&summary, &detail))
    }

    /// Adds the remedy if a provisioner needs a shell that its image does not contain.
    pub(super) fn explain_shell(&mut self) {
        for detail in self.report.diagnostics.iter_mut().filter_map(|said| said.detail.as_mut()) {
            if let Some(explained) = with_shell_explained(detail) {
                *detail = sanitized(&explained, &self.redactor);
            }
        }
    }
}

/// The message for a provisioner whose shell is missing, with the remedy first.
fn with_shell_explained(detail: &str) -> Option<String> {
    let remedy = "The image has no shell. Set `interpreter` to a program that the image contains, or use an image with a shell in \
                spec.engine.image.";
    detail.contains(NO_SHELL).then(|| format!("{remedy} {detail}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_provisioner_without_a_shell_is_reported_with_the_remedy() {
        let detail = "Error running command 'echo hello': fork/exec /bin/sh: no such file or directory. Output: ";
        let explained = with_shell_explained(detail).unwrap();
        assert!(
            explained.starts_with("The image has no shell.") && explained.contains("spec.engine.image"),
            "{explained}"
        );
        assert_eq!(with_shell_explained("Error running command 'false': exit status 1. Output: "), None);
    }

    #[test]
    fn what_was_not_fetched_yet_is_no_fault_of_the_module() {
        let error = |summary: &str, range: Value| json!({ "severity": "error", "summary": summary, "range": range });
        let place = || json!({ "filename": "main.tf", "start": { "line": 1 } });
        assert!(is_of_module(&error("Unsupported argument", place())));
        assert!(!is_of_module(&error("Module not installed", place())));
        assert!(!is_of_module(&error("Missing required provider", Value::Null)));
        assert!(!is_of_module(&json!({ "severity": "warning", "summary": "Deprecated", "range": place() })));
    }
}
