//! The output of Terraform with `-json`: one object per line, and occasionally a plain line.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use super::layout;
use super::redact::Redactor;
use crate::api::v1alpha1::{ChangedResource, Diagnostic, Severity};

/// The supported version of the format; a higher minor version only adds to it.
const FORMAT: &str = "1";
/// The longest text that goes into a status: a detail, or an address with its key.
const LONGEST: usize = 500;
/// The action on a resource that is removed from the state without being destroyed.
const FORGET: &str = "forget";
/// Warnings that every run with a provider mirror has, and that nobody here can act on.
const NOISE: [&str; 1] = ["Incomplete lock file information for providers"];

/// The parsed output.
#[derive(Clone, Debug, Default)]
pub struct EngineOutput {
    /// The name and version of the program.
    pub engine: Option<String>,
    /// Resources that the plan changes.
    pub planned: Vec<ChangedResource>,
    /// How many of them get another address.
    pub moved: i64,
    /// Resources that the plan recreates because a failed apply left them in doubt.
    pub tainted: Vec<String>,
    /// Resources that differ from the state.
    pub drifted: Vec<ChangedResource>,
    /// How many resources the plan creates, changes and destroys.
    pub counts: Option<Counts>,
    /// The diagnostics.
    pub diagnostics: Vec<Diagnostic>,
    /// Resources that it began to create, in that order.
    pub begun: Vec<String>,
    /// Why the rest cannot be parsed.
    pub foreign: Option<String>,
}

/// How many resources a plan creates, changes and destroys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Created.
    pub add: i64,
    /// Changed.
    pub change: i64,
    /// Destroyed.
    pub remove: i64,
    /// Imported into the state.
    pub import: i64,
    /// Removed from the state without being destroyed. Terraform does not report this number.
    pub forget: i64,
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "@message", default)]
    message: String,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    ui: Option<String>,
    #[serde(default)]
    tofu: Option<String>,
    #[serde(default)]
    terraform: Option<String>,
    #[serde(default)]
    change: Value,
    #[serde(default)]
    hook: Value,
    #[serde(default)]
    changes: Value,
    #[serde(default)]
    diagnostic: Value,
}

impl EngineOutput {
    /// Parses a line. Returns the text that a person should read of it.
    pub fn read_line(&mut self, line: &str, redactor: &Redactor) -> String {
        let Ok(said) = serde_json::from_str::<Line>(line) else { return redactor.clean(line).into_owned() };
        match said.kind.as_str() {
            "version" => self.read_version(&said),
            "planned_change" => self.read_planned(&said.change, redactor),
            "resource_drift" => self.drifted.extend(changed(&said.change, redactor)),
            "change_summary" if said.changes["operation"] == "plan" => {
                self.counts = serde_json::from_value(said.changes).ok();
            }
            "apply_start" if said.hook["action"] == "create" => {
                self.begun.extend(said.hook["resource"]["addr"].as_str().map(str::to_owned));
            }
            "diagnostic" => {
                let diagnostic = diagnostic(&said.diagnostic, redactor);
                if NOISE.contains(&diagnostic.summary.as_str()) {
                    return String::new();
                }
                let words = words(&diagnostic);
                self.diagnostics.push(diagnostic);
                return words;
            }
            // This repeats what the plan has reported.
            "outputs" => return String::new(),
            _ => {}
        }
        redactor.clean(&said.message).into_owned()
    }

    fn read_planned(&mut self, change: &Value, redactor: &Redactor) {
        self.moved += i64::from(!change["previous_resource"].is_null());
        let planned = changed(change, redactor);
        if change["reason"] == "tainted" && change["action"] == "replace" {
            self.tainted.extend(planned.iter().map(|planned| planned.address.clone()));
        }
        self.planned.extend(planned);
    }

    fn read_version(&mut self, said: &Line) {
        let tofu = said.tofu.as_ref().map(|version| format!("OpenTofu v{version}"));
        self.engine = tofu.or_else(|| said.terraform.as_ref().map(|version| format!("Terraform v{version}")));
        let format = said.ui.as_deref().unwrap_or(FORMAT);
        if format.split('.').next() != Some(FORMAT) {
            self.foreign = Some(format.to_owned());
        }
    }

    /// Whether the plan destroys something, even if only to recreate it.
    pub fn destroys(&self) -> bool {
        let destroys = |change: &ChangedResource| matches!(change.action.as_str(), "delete" | "replace");
        self.counts.is_some_and(|counts| counts.remove > 0) || self.planned.iter().any(destroys)
    }

    /// How many resources the plan removes from the state without destroying them.
    pub fn forgets(&self) -> i64 {
        let named = self.planned.iter().filter(|change| change.action == FORGET).count();
        let counted = self.counts.map_or(0, |counts| counts.forget);
        counted.max(i64::try_from(named).unwrap_or(i64::MAX))
    }

    /// Whether there is an error with this summary.
    pub fn failed_with(&self, summary: &str) -> bool {
        self.diagnostics.iter().any(|all| all.severity == Severity::Error && all.summary.contains(summary))
    }
}

/// A resource that is changed; none if it is only read.
fn changed(change: &Value, redactor: &Redactor) -> Option<ChangedResource> {
    let (address, action) = (change["resource"]["addr"].as_str()?, change["action"].as_str()?);
    let action = match (action, change["reason"].as_str()) {
        // Both use this for a resource that is removed from the state without being destroyed.
        ("remove", _) => FORGET,
        // OpenTofu has no action for a resource that is forgotten and recreated.
        ("noop", Some(reason)) if reason.starts_with("forgot_") => FORGET,
        ("read" | "noop", _) => return None,
        (action, _) => action,
    };
    Some(ChangedResource { address: sanitized(address, redactor), action: action.to_owned() })
}

/// A diagnostic without its snippet, which contains lines of the configuration, and values.
fn diagnostic(said: &Value, redactor: &Redactor) -> Diagnostic {
    let text = |key: &str| said[key].as_str().filter(|text| !text.is_empty()).map(|text| sanitized(text, redactor));
    let range = &said["range"];
    // A position in a file of the runner is left out; the message names the variable.
    let at = range["filename"].as_str().filter(|file| !layout::is_own(file)).map(|file| {
        match range["start"]["line"].as_i64() {
            Some(line) => format!("{}:{line}", sanitized(file, redactor)),
            None => sanitized(file, redactor),
        }
    });
    Diagnostic {
        severity: if said["severity"] == "warning" { Severity::Warning } else { Severity::Error },
        summary: text("summary").unwrap_or_default(),
        detail: text("detail"),
        address: text("address"),
        field: None,
        at,
    }
}

/// A text as it is reported: without confidential values, and short enough for a status.
pub fn sanitized(text: &str, redactor: &Redactor) -> String {
    // In this order: a value that was cut would not be found.
    let clean = redactor.clean(text);
    match clean.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", clean.get(..end).unwrap_or_default()),
        None => clean.into_owned(),
    }
}

/// A diagnostic as text for a person.
pub fn words(diagnostic: &Diagnostic) -> String {
    let severity = if diagnostic.severity == Severity::Error { "Error" } else { "Warning" };
    let mut words = format!("{severity}: {}", diagnostic.summary);
    for (label, value) in [("with", &diagnostic.address), ("at", &diagnostic.at)] {
        if let Some(value) = value {
            let _ = write!(words, "\n  {label} {value}");
        }
    }
    if let Some(detail) = &diagnostic.detail {
        let _ = write!(words, "\n  {}", detail.replace('\n', "\n  "));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &str, secret: &str) -> (EngineOutput, Vec<String>) {
        let redactor = Redactor::new(&[secret.to_owned()]);
        let mut engine_output = EngineOutput::default();
        let said = lines.lines().map(|line| engine_output.read_line(line, &redactor)).collect();
        (engine_output, said)
    }

    #[test]
    fn a_plan_is_understood_and_what_is_unknown_is_passed_on() {
        let (engine_output, said) = parse(
            r#"{"@message":"OpenTofu 1.12.6","tofu":"1.12.6","type":"version","ui":"1.2"}
a bare line
{"@message":"something new","type":"from_the_future"}
{"@message":"a: Plan to replace","change":{"resource":{"addr":"random_string.a"},"action":"replace"},"type":"planned_change"}
{"@message":"b: Plan to read","change":{"resource":{"addr":"data.local_file.b"},"action":"read"},"type":"planned_change"}
{"@message":"Plan: 1 to add","changes":{"add":1,"change":0,"import":0,"remove":1,"operation":"plan"},"type":"change_summary"}"#,
            "none",
        );
        assert_eq!(engine_output.engine.as_deref(), Some("OpenTofu v1.12.6"));
        assert_eq!(
            engine_output.planned,
            [ChangedResource { address: "random_string.a".to_owned(), action: "replace".to_owned() }]
        );
        assert_eq!(engine_output.counts, Some(Counts { add: 1, remove: 1, ..Counts::default() }));
        assert!(engine_output.destroys() && engine_output.foreign.is_none());
        assert_eq!(said[1..3], ["a bare line", "something new"]);
    }

    #[test]
    fn what_is_forgotten_is_counted_whichever_way_it_is_reported() {
        let terraform = r#"{"change":{"resource":{"addr":"a.b"},"action":"remove"},"type":"planned_change"}
{"changes":{"add":0,"change":0,"import":0,"remove":0,"operation":"plan"},"type":"change_summary"}"#;
        let tofu = r#"{"change":{"resource":{"addr":"a.b"},"action":"noop","reason":"forgot_because_lifecycle_destroy_in_config"},"type":"planned_change"}
{"changes":{"add":1,"change":0,"import":0,"remove":0,"forget":1,"operation":"plan"},"type":"change_summary"}"#;
        for said in [terraform, tofu] {
            let (engine_output, _) = parse(said, "none");
            assert_eq!(
                (engine_output.forgets(), engine_output.planned[0].action.as_str(), engine_output.destroys()),
                (1, "forget", false)
            );
        }
    }

    #[test]
    fn a_diagnostic_has_a_place_and_no_snippet() {
        let (engine_output, said) = parse(
            r#"{"@message":"Error: Bad hunter2","diagnostic":{"severity":"error","summary":"Bad hunter2","detail":"So hunter2","address":"a.b","range":{"filename":"main.tf","start":{"line":3,"column":1,"byte":4}},"snippet":{"code":"x = hunter2"}},"type":"diagnostic"}"#,
            "hunter2",
        );
        let expected = Diagnostic {
            severity: Severity::Error,
            summary: "Bad (redacted)".to_owned(),
            detail: Some("So (redacted)".to_owned()),
            address: Some("a.b".to_owned()),
            field: None,
            at: Some("main.tf:3".to_owned()),
        };
        assert_eq!(engine_output.diagnostics, [expected]);
        assert_eq!(said, ["Error: Bad (redacted)\n  with a.b\n  at main.tf:3\n  So (redacted)"]);
    }

    #[test]
    fn a_diagnostic_does_not_refer_to_a_file_that_the_runner_wrote() {
        let (engine_output, _) = parse(
            r#"{"diagnostic":{"severity":"error","summary":"Bad","range":{"filename":"zz_opcore.auto.tfvars.json","start":{"line":1}}},"type":"diagnostic"}"#,
            "none",
        );
        assert_eq!(engine_output.diagnostics[0].at, None);
    }

    #[test]
    fn a_format_of_another_major_version_is_noticed() {
        let (engine_output, _) = parse(r#"{"@message":"","terraform":"9.0.0","type":"version","ui":"2.0"}"#, "none");
        assert_eq!(engine_output.foreign.as_deref(), Some("2.0"));
    }

    #[test]
    fn whatever_is_long_is_cut_after_it_was_redacted() {
        let long = "ä".repeat(LONGEST - 4) + "hunter2" + &"ä".repeat(1_000_000);
        let change = serde_json::json!({ "resource": { "addr": long }, "action": "update" });
        let range = serde_json::json!({ "filename": long, "start": { "line": 3 } });
        let diagnostic = serde_json::json!({ "severity": "error", "summary": long, "detail": long, "address": long, "range": range });
        let lines = [
            serde_json::json!({ "type": "planned_change", "change": change }),
            serde_json::json!({ "type": "resource_drift", "change": change }),
            serde_json::json!({ "type": "diagnostic", "diagnostic": diagnostic }),
        ];
        let (engine_output, _) = parse(&lines.map(|line| line.to_string()).join("\n"), "hunter2");
        let said = &engine_output.diagnostics[0];
        let texts = [&engine_output.planned[0].address, &engine_output.drifted[0].address, &said.summary];
        let others = [&said.detail, &said.address, &said.at].map(|text| text.as_ref().unwrap());
        for text in texts.into_iter().chain(others) {
            assert!(text.trim_end_matches(":3").ends_with("ä(red…"), "{:.20}", text.chars().rev().collect::<String>());
            assert!(text.chars().count() <= LONGEST + 3);
        }
    }
}
