//! A fixture, a difference, and its consequence.

use std::path::Path;

use jiff::Timestamp;
use opcore::readiness::{self, Options, Readiness, ReadinessState};
use serde_json::{Map, Value, json};

/// Now, in every test.
pub(crate) const NOW: &str = "2026-08-01T12:00:00Z";

/// An object under test.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) object: Value,
    options: Options,
    now: Timestamp,
}

/// The fixture with this name: an object that is ready.
pub(crate) fn object(name: &str) -> Subject {
    fixture("objects", name)
}

/// The fixture with this name: an object as Kubernetes describes it while something about it is broken.
pub(crate) fn broken(name: &str) -> Subject {
    fixture("broken", name)
}

fn fixture(folder: &str, name: &str) -> Subject {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readiness").join(folder);
    let path = folder.join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()));
    let text = text.expect("a fixture");
    subject(yaml(&text))
}

/// Any object.
pub(crate) fn subject(object: Value) -> Subject {
    Subject { object, options: Options::default(), now: at(NOW) }
}

pub(crate) fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).expect("YAML")
}

pub(crate) fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}

impl Subject {
    /// Merges YAML into the object, as a JSON merge patch: null removes a field.
    pub(crate) fn but(mut self, patch: &str) -> Self {
        merge(&mut self.object, yaml(patch));
        self
    }

    /// Sets a condition, keeping the others.
    pub(crate) fn condition(self, kind: &str, status: &str, reason: &str) -> Self {
        self.full_condition(json!({"type": kind, "status": status, "reason": reason}))
    }

    /// Sets a condition with all its fields, keeping the others.
    pub(crate) fn full_condition(mut self, condition: Value) -> Self {
        let kind = condition["type"].clone();
        let status = &mut self.object["status"];
        if !status["conditions"].is_array() {
            status["conditions"] = json!([]);
        }
        if let Some(list) = status["conditions"].as_array_mut() {
            list.retain(|other| other["type"] != kind);
            list.push(condition);
        }
        self
    }

    /// Removes a condition.
    pub(crate) fn without_condition(mut self, kind: &str) -> Self {
        if let Some(list) = self.object["status"]["conditions"].as_array_mut() {
            list.retain(|condition| condition["type"] != kind);
        }
        self
    }

    pub(crate) fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    pub(crate) fn now(mut self, time: &str) -> Self {
        self.now = at(time);
        self
    }

    pub(crate) fn verdict(&self) -> Readiness {
        readiness::with(&self.object, &self.options, self.now)
    }

    #[track_caller]
    pub(crate) fn is(&self, state: ReadinessState, reason: &str) -> Readiness {
        let verdict = self.verdict();
        assert_eq!(
            (verdict.state, verdict.reason.as_str()),
            (state, reason),
            "\nthe verdict was {verdict:#?}\non\n{}",
            serde_yaml::to_string(&self.object).unwrap_or_default()
        );
        assert!(
            verdict.message.ends_with(['.', '…']) && verdict.message.contains(' '),
            "not a sentence: {}",
            verdict.message
        );
        verdict
    }

    #[track_caller]
    pub(crate) fn is_ready(&self, reason: &str) -> Readiness {
        self.is(ReadinessState::Ready, reason)
    }

    #[track_caller]
    pub(crate) fn is_in_progress(&self, reason: &str) -> Readiness {
        self.is(ReadinessState::InProgress, reason)
    }

    #[track_caller]
    pub(crate) fn has_failed(&self, reason: &str) -> Readiness {
        self.is(ReadinessState::Failed, reason)
    }

    #[track_caller]
    pub(crate) fn is_terminating(&self) -> Readiness {
        self.is(ReadinessState::Terminating, "Terminating")
    }
}

fn merge(target: &mut Value, patch: Value) {
    let Value::Object(changes) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Some(fields) = target.as_object_mut() {
        for (key, change) in changes {
            if change.is_null() {
                fields.remove(&key);
            } else {
                merge(fields.entry(key).or_insert(Value::Null), change);
            }
        }
    }
}
