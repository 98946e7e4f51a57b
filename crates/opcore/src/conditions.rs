//! One set of conditions for every kind, so that `kubectl wait`, Flux and Helm's `--wait` understand them without
//! configuration.
//!
//! `Ready` is always present. `Reconciling` and `Stalled` are present only while true, as kstatus expects:
//! `Reconciling` means "wait", `Stalled` means "waiting will not help, someone must act".

use std::borrow::Cow;

use jiff::Timestamp;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The object is what its spec asks for.
pub const READY: &str = "Ready";
/// Work is in progress; the object will change without anyone's help.
pub const RECONCILING: &str = "Reconciling";
/// The object cannot become ready until someone changes something.
pub const STALLED: &str = "Stalled";

/// A status with conditions. Every kind of ours has one.
pub trait Conditions {
    /// The conditions as last published.
    fn conditions(&self) -> &[Condition];
    /// The conditions, to be changed through the functions of this module.
    fn conditions_mut(&mut self) -> &mut Vec<Condition>;
    /// The generation of the spec that this status describes.
    fn observed_generation(&self) -> Option<i64>;
    /// Records the generation of the spec that this status describes.
    fn set_observed_generation(&mut self, generation: Option<i64>);
}

/// Implements [`Conditions`] for a status with the fields `conditions` and `observed_generation`.
#[macro_export]
macro_rules! impl_conditions {
    ($status:ty) => {
        impl $crate::conditions::Conditions for $status {
            fn conditions(&self) -> &[$crate::conditions::Condition] {
                &self.conditions
            }
            fn conditions_mut(&mut self) -> &mut Vec<$crate::conditions::Condition> {
                &mut self.conditions
            }
            fn observed_generation(&self) -> Option<i64> {
                self.observed_generation
            }
            fn set_observed_generation(&mut self, generation: Option<i64>) {
                self.observed_generation = generation;
            }
        }
    };
}

/// The state of an object, in the terms of kstatus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// The object is as the spec asks.
    Ready,
    /// Work is in progress. The object may have been ready before or not.
    Reconciling,
    /// The object cannot proceed without someone's help.
    Stalled,
}

/// A state with a CamelCase reason and a message for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The state of the object.
    pub state: ObjectState,
    /// A CamelCase reason, such as `DependencyNotReady`.
    pub reason: Cow<'static, str>,
    /// A sentence that names the object and the remedy.
    pub message: String,
}

impl Summary {
    /// The object is what its spec asks for.
    pub fn ready(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { state: ObjectState::Ready, reason: reason.into(), message: message.into() }
    }

    /// Work is in progress.
    pub fn reconciling(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { state: ObjectState::Reconciling, reason: reason.into(), message: message.into() }
    }

    /// Someone must act.
    pub fn stalled(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { state: ObjectState::Stalled, reason: reason.into(), message: message.into() }
    }

    /// Writes this summary into a status: `Ready` always, `Reconciling` and `Stalled` only while true.
    pub fn write<S: Conditions>(&self, status: &mut S, generation: Option<i64>, now: Timestamp) {
        status.set_observed_generation(generation);
        let conditions = status.conditions_mut();
        let entry = |kind: &'static str, truth: bool| New {
            kind,
            status: if truth { "True" } else { "False" },
            reason: &self.reason,
            message: &self.message,
        };
        set(conditions, entry(READY, self.state == ObjectState::Ready), generation, now);
        for (kind, state) in [(RECONCILING, ObjectState::Reconciling), (STALLED, ObjectState::Stalled)] {
            if self.state == state {
                set(conditions, entry(kind, true), generation, now);
            } else {
                remove(conditions, kind);
            }
        }
    }
}

/// The new content of a condition.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// The condition's type.
    pub kind: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// A CamelCase reason.
    pub reason: &'a str,
    /// A message for users.
    pub message: &'a str,
}

/// The longest reason and message that Kubernetes allows in a condition.
const LONGEST_REASON: usize = 1024;
const LONGEST_MESSAGE: usize = 32_768;

/// Sets one condition.
///
/// # Guarantees
///
/// `lastTransitionTime` changes only when the status changes, so setting the same condition twice changes nothing.
/// Reason and message are cut to what Kubernetes accepts: a long error never makes the status write itself fail.
pub fn set(conditions: &mut Vec<Condition>, new: New<'_>, generation: Option<i64>, now: Timestamp) {
    let since = find(conditions, new.kind)
        .filter(|old| old.status == new.status)
        .map_or(Time(whole_seconds(now)), |old| old.last_transition_time.clone());
    let condition = Condition {
        type_: new.kind.to_owned(),
        status: new.status.to_owned(),
        reason: cut(new.reason, LONGEST_REASON).to_owned(),
        message: cut(new.message, LONGEST_MESSAGE).to_owned(),
        last_transition_time: since,
        observed_generation: generation,
    };
    match conditions.iter_mut().find(|old| old.type_ == new.kind) {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

/// Resets the times of conditions that equal those in `before`: a status that changed back and forth in between has not
/// changed for its readers.
pub(crate) fn keep_times(before: &[Condition], conditions: &mut [Condition]) {
    for condition in conditions {
        if let Some(was) = find(before, &condition.type_).filter(|was| was.status == condition.status) {
            condition.last_transition_time.clone_from(&was.last_transition_time);
        }
    }
}

/// Removes a condition, if it is present.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) {
    conditions.retain(|condition| condition.type_ != kind);
}

/// Finds a condition by its type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether a condition is present and true.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// The conditions of `new` whose status or reason differs from `old`: these deserve an Event.
pub fn transitions<'a>(old: &[Condition], new: &'a [Condition]) -> Vec<&'a Condition> {
    new.iter()
        .filter(|now| !find(old, &now.type_).is_some_and(|was| was.status == now.status && was.reason == now.reason))
        .collect()
}

/// Rounds to whole seconds, as Kubernetes stores times: more precision would make every comparison with what was read
/// differ.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Rounds to whole milliseconds: finer times in a status are only harder to read.
pub fn whole_milliseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

/// Shortens a text to at most this many characters; a shortened text ends with an ellipsis.
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Cuts a text at a character boundary.
pub(crate) fn cut(text: &str, longest: usize) -> &str {
    if text.len() <= longest {
        return text;
    }
    let mut end = longest;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default, Clone, PartialEq, Debug)]
    struct Status {
        conditions: Vec<Condition>,
        observed_generation: Option<i64>,
    }
    impl_conditions!(Status);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn kinds(status: &Status) -> Vec<(&str, &str)> {
        status.conditions.iter().map(|condition| (condition.type_.as_str(), condition.status.as_str())).collect()
    }

    #[test]
    fn reconciling_and_stalled_are_there_only_while_true() {
        let mut status = Status::default();
        Summary::reconciling("Applying", "Two objects are on their way.").write(&mut status, Some(1), at(1));
        assert_eq!(kinds(&status), [("Ready", "False"), ("Reconciling", "True")]);
        Summary::stalled("InvalidSpec", "spec.length must be positive.").write(&mut status, Some(2), at(2));
        assert_eq!(kinds(&status), [("Ready", "False"), ("Stalled", "True")]);
        Summary::ready("Applied", "All objects are in place.").write(&mut status, Some(3), at(3));
        assert_eq!(kinds(&status), [("Ready", "True")]);
        assert_eq!(status.observed_generation, Some(3));
        assert_eq!(status.conditions[0].observed_generation, Some(3));
    }

    #[test]
    fn saying_the_same_again_changes_nothing() {
        let mut status = Status::default();
        let summary = Summary::ready("Applied", "All objects are in place.");
        summary.write(&mut status, Some(1), at(1));
        let before = status.clone();
        summary.write(&mut status, Some(1), at(1000));
        assert_eq!(status, before);
    }

    #[test]
    fn the_transition_time_moves_with_the_status_and_not_with_the_words() {
        let mut status = Status::default();
        Summary::reconciling("A", "a").write(&mut status, None, at(1));
        Summary::reconciling("B", "b").write(&mut status, None, at(2));
        assert_eq!(find(&status.conditions, READY).unwrap().last_transition_time, Time(at(1)));
        Summary::ready("C", "c").write(&mut status, None, at(3));
        assert_eq!(find(&status.conditions, READY).unwrap().last_transition_time, Time(at(3)));
    }

    #[test]
    fn a_status_that_was_changed_to_and_fro_has_its_old_transition_time() {
        let mut status = Status::default();
        Summary::stalled("Refused", "no").write(&mut status, None, at(1));
        let before = status.conditions.clone();
        Summary::ready("Applied", "done").write(&mut status, None, at(2));
        Summary::stalled("Refused", "no").write(&mut status, None, at(2));
        keep_times(&before, &mut status.conditions);
        assert_eq!(status.conditions, before);
    }

    #[test]
    fn a_message_longer_than_kubernetes_allows_is_cut_between_characters() {
        let mut conditions = Vec::new();
        let message = "ä".repeat(LONGEST_MESSAGE);
        set(&mut conditions, New { kind: READY, status: "False", reason: "Long", message: &message }, None, at(1));
        assert_eq!(conditions[0].message.len(), LONGEST_MESSAGE);
    }

    #[test]
    fn transitions_are_changes_of_status_or_reason() {
        let (mut old, mut new) = (Status::default(), Status::default());
        Summary::reconciling("Applying", "1 of 2").write(&mut old, None, at(1));
        Summary::reconciling("Applying", "2 of 2").write(&mut new, None, at(2));
        assert!(transitions(&old.conditions, &new.conditions).is_empty());
        Summary::ready("Applied", "done").write(&mut new, None, at(3));
        assert_eq!(transitions(&old.conditions, &new.conditions)[0].reason, "Applied");
    }
}
