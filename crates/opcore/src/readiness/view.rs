//! Reading an object of any kind: a field that is absent, null or of another type is `None`.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

/// The longest reason the API server accepts in a condition.
const LONGEST_REASON: usize = 1024;
/// The longest quote of a controller's message: it may be pages long, and the first lines contain the fact.
const LONGEST_QUOTE: usize = 512;
/// Names are at most 253 characters; anything longer is not from an API server.
const LONGEST_NAME: usize = 253;

/// API groups of Kubernetes itself that contain a dot. Other groups under `k8s.io`, like `gateway.networking.k8s.io`,
/// are custom resources.
const BUILTIN_GROUPS: &[&str] = &[
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "metrics.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// An object of any kind. Displays as `Deployment shop/web`.
#[derive(Clone, Copy)]
pub(super) struct View<'a>(&'a Value);

impl<'a> View<'a> {
    pub(super) fn of(object: &'a Value) -> Self {
        Self(object)
    }

    /// The value at a path of dotted keys, unless it is null.
    pub(super) fn at(self, path: &str) -> Option<&'a Value> {
        path.split('.').try_fold(self.0, |value, key| value.get(key)).filter(|value| !value.is_null())
    }

    pub(super) fn text(self, path: &str) -> Option<&'a str> {
        self.at(path)?.as_str().filter(|text| !text.is_empty())
    }

    pub(super) fn int(self, path: &str) -> Option<i64> {
        self.at(path)?.as_i64()
    }

    pub(super) fn is(self, path: &str) -> bool {
        self.at(path).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn list(self, path: &str) -> &'a [Value] {
        self.at(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    pub(super) fn time(self, path: &str) -> Option<Timestamp> {
        self.text(path)?.parse().ok()
    }

    pub(super) fn annotation(self, key: &str) -> Option<&'a str> {
        self.at("metadata.annotations")?.get(key)?.as_str()
    }

    pub(super) fn kind(self) -> Option<&'a str> {
        self.text("kind")
    }

    /// The API group; empty for the core group.
    pub(super) fn group(self) -> Option<&'a str> {
        let version = self.text("apiVersion")?;
        Some(crate::object::group_of(version))
    }

    /// Whether the kind is built into Kubernetes. A CRD's group always contains a dot.
    pub(super) fn is_builtin(self) -> bool {
        self.group().is_some_and(|group| !group.contains('.') || BUILTIN_GROUPS.contains(&group))
    }

    pub(super) fn generation(self) -> Option<i64> {
        self.int("metadata.generation")
    }

    pub(super) fn observed_generation(self) -> Option<i64> {
        self.int("status.observedGeneration")
    }

    /// Whether the status contains anything: `{}` and `{conditions: []}` count as empty.
    pub(super) fn has_status(self) -> bool {
        self.at("status").and_then(Value::as_object).is_some_and(|status| status.values().any(|value| !is_empty(value)))
    }

    pub(super) fn conditions(self) -> impl Iterator<Item = Condition<'a>> {
        let generation = self.generation();
        self.list("status.conditions").iter().filter_map(move |value| Condition::read(View(value), generation))
    }

    /// The condition of this type, whether outdated or not.
    pub(super) fn condition(self, kind: &str) -> Option<Condition<'a>> {
        self.conditions().find(|condition| condition.kind == kind)
    }

    /// The condition of this type, unless its own generation shows that it is outdated.
    pub(super) fn current(self, kind: &str) -> Option<Condition<'a>> {
        self.condition(kind).filter(|condition| !condition.lags)
    }

    /// Whether the condition of this type is `True` for this generation.
    pub(super) fn holds(self, kind: &str) -> bool {
        self.current(kind).is_some_and(|condition| condition.is_true())
    }
}

impl fmt::Display for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text| shortened(text, LONGEST_NAME);
        f.write_str(&short(self.kind().unwrap_or("Object")))?;
        f.write_str(" ")?;
        if let Some(namespace) = self.text("metadata.namespace") {
            write!(f, "{}/", short(namespace))?;
        }
        f.write_str(&short(self.text("metadata.name").unwrap_or("without name")))
    }
}

/// One entry of `status.conditions`.
pub(super) struct Condition<'a> {
    pub(super) kind: &'a str,
    pub(super) status: &'a str,
    pub(super) reason: Option<&'a str>,
    pub(super) message: Option<&'a str>,
    pub(super) changed_at: Option<Timestamp>,
    /// The condition's own `observedGeneration`, if it has one.
    pub(super) observed: Option<i64>,
    /// Whether its own generation shows that it is outdated.
    pub(super) lags: bool,
}

impl<'a> Condition<'a> {
    fn read(value: View<'a>, generation: Option<i64>) -> Option<Self> {
        let observed = value.int("observedGeneration");
        Some(Self {
            kind: value.text("type")?,
            status: match value.text("status")? {
                known @ ("True" | "False") => known,
                _ => "Unknown",
            },
            reason: value.text("reason"),
            message: value.text("message"),
            changed_at: value.time("lastTransitionTime"),
            observed,
            lags: matches!((observed, generation), (Some(observed), Some(now)) if observed < now),
        })
    }

    pub(super) fn is_true(&self) -> bool {
        self.status == "True"
    }

    pub(super) fn is_false(&self) -> bool {
        self.status == "False"
    }

    /// The controller's own reason, if the API server would accept it.
    pub(super) fn reason_or(&self, otherwise: &str) -> String {
        fact(self.reason, otherwise)
    }

    /// The controller's own message, as the end of a sentence.
    pub(super) fn words(&self) -> String {
        quoted(self.message)
    }
}

/// The message of a controller as the end of a sentence: `: quota exceeded.`, or just a full stop.
pub(super) fn quoted(message: Option<&str>) -> String {
    match message.map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => {
            let text = shortened(text, LONGEST_QUOTE);
            let stop = if text.ends_with(['.', '!', '…']) { "" } else { "." };
            format!(": {text}{stop}")
        }
        None => ".".to_owned(),
    }
}

/// A reason from another controller, if the API server would accept it in a condition of ours.
pub(super) fn fact(reason: Option<&str>, otherwise: &str) -> String {
    let accepted = |text: &&str| {
        text.len() <= LONGEST_REASON
            && text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':'))
    };
    reason.filter(accepted).unwrap_or(otherwise).to_owned()
}

/// Cuts a text to this many characters, with an ellipsis if something was left out.
pub(super) use crate::conditions::shortened;

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
