//! What is known of one item: the verdict on an object, without the object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::SelectorExt as _;
use opcore::readiness::{self, Fence, Options, ReadinessState};
use serde_json::Value;

use crate::api::v1alpha1::Mode;
use crate::render::Check;
use crate::subscription::{Item, ObjectId, Subject, Task};

/// The annotation with which Flux is asked to reconcile now.
pub(crate) const FLUX_REQUEST: &str = "reconcile.fluxcd.io/requestedAt";

/// The reason of a Flux object that is not ready because it was asked to reconcile and has not answered yet.
const UNANSWERED: &str = "ReconcileRequested";

/// The reasons with which a status is not trusted yet, because it may be from before our own write.
const FENCED: [&str; 2] = ["StatusNotRenewed", "OutdatedView"];

/// The state of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ItemState {
    /// The object was not read yet.
    #[default]
    Unread,
    /// Its kind does not exist (yet).
    NotServed,
    /// It does not exist.
    Missing,
    /// It is ready.
    Ready,
    /// The object is not ready yet.
    Waiting {
        /// A CamelCase reason.
        reason: String,
        /// A message.
        message: String,
    },
    /// Waiting will not help.
    Failed {
        /// A CamelCase reason.
        reason: String,
        /// A message.
        message: String,
    },
}

impl ItemState {
    pub(super) fn is_failed(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// Whether users would regard two states as the same: counts in the message do not matter.
    fn is_like(&self, other: &Self) -> bool {
        let fact = |state: &Self| match state {
            Self::Waiting { reason, .. } | Self::Failed { reason, .. } => reason.clone(),
            _ => String::new(),
        };
        std::mem::discriminant(self) == std::mem::discriminant(other) && fact(self) == fact(other)
    }
}

/// An object that a plan applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Its UID.
    pub uid: String,
    /// The version of its kind in which it was seen.
    pub api_version: String,
    /// The wave that applied it.
    pub wave: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether someone confirmed that it may be deleted although its kind is protected.
    pub confirmed: bool,
}

/// A write of ours that was refused.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    /// A CamelCase reason.
    pub(super) reason: String,
    /// A message with the remedy.
    pub(super) message: String,
    /// A counter: the refusal whose turn was longest ago has the lowest value.
    pub(super) turn: u64,
}

/// Why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreachable {
    /// A CamelCase reason.
    pub(super) reason: String,
    /// A message without its full stop.
    pub(super) message: String,
}

/// What is known of one item.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) state: ItemState,
    /// Why it cannot be read now.
    pub(super) unreachable: Option<Unreachable>,
    pub(super) uid: Option<String>,
    /// The newest version that was seen; none where versions are not numbers.
    version: Option<u64>,
    pub(super) created: Option<Timestamp>,
    /// The digest of the desired object that it last matched exactly.
    current_for: Option<u64>,
    /// What was last applied and what the API server stored for it, as digests. The API server fills in defaults and
    /// normalizes values (`1000m` becomes `1`), so that even a new object does not match the desired one exactly.
    accepted: Option<(u64, u64)>,
    /// The value of Flux's request annotation.
    pub(super) requested: Option<String>,
    /// Whether our manager holds it suspended.
    pub(super) held: bool,
    /// For a Job: whether it was complete in this rollout. Its work stays done when the Job is deleted, as happens
    /// automatically with `ttlSecondsAfterFinished`.
    pub(super) completed: bool,
    /// Why our last write was refused.
    pub(super) refusal: Option<Refused>,
    fence: Option<Fence>,
    /// When time alone changes the verdict, and the object to judge then.
    pub(super) recheck: Option<(Timestamp, Arc<Value>)>,
    /// For a selection by labels: the objects in it.
    chosen: BTreeMap<ObjectId, ItemState>,
}

impl Known {
    pub(super) fn is_unread(&self) -> bool {
        self.state == ItemState::Unread
    }

    /// The objects that exist, as far as is known.
    pub(super) fn objects<'a>(&'a self, item: &'a Item) -> impl Iterator<Item = &'a ObjectId> {
        let named = match &item.subject {
            Subject::One(id) if self.uid.is_some() => Some(id),
            _ => None,
        };
        named.into_iter().chain(self.chosen.keys())
    }

    /// Everything that exists has been reported.
    pub(super) fn synced(&mut self) {
        if matches!(self.state, ItemState::Unread | ItemState::NotServed) {
            self.state = self.sum();
        }
    }

    /// Adapts what is known to an item whose kind has appeared or disappeared.
    pub(super) fn adjust(&mut self, item: &Item) {
        self.unreachable = item.unknown.as_ref().map(|reason| Unreachable {
            reason: "ApiUnavailable".to_owned(),
            message: format!("cannot determine whether the cluster serves this kind: {}", reason.trim_end_matches('.')),
        });
        match (&item.scope, &self.state) {
            // What was known of the item is better than nothing.
            (None, ItemState::NotServed) if item.unknown.is_some() => self.state = ItemState::Unread,
            (None, _) if item.unknown.is_some() => {}
            (None, _) => *self = Self { state: ItemState::NotServed, ..Self::default() },
            (Some(_), ItemState::NotServed) => self.state = ItemState::Unread,
            _ => {}
        }
    }

    /// It was published that this Job was complete, and nothing else is known of it yet.
    pub(super) fn recall_completed(&mut self, item: &Item) {
        if self.is_unread() {
            self.completed = true;
            self.current_for = digest(item);
        }
    }

    /// In a new rollout a Job that is gone runs again.
    pub(super) fn begin_rollout(&mut self) {
        if self.completed && self.uid.is_none() {
            (self.completed, self.current_for) = (false, None);
            if !self.is_unread() {
                self.state = self.sum();
            }
        }
    }

    /// Nothing is known of earlier writes, as after a restart: a status is trusted once it is newer than this moment,
    /// or once its controller had time to react.
    pub(super) fn fence_from(&mut self, now: Timestamp) {
        self.fence = Some(Fence {
            uid: None,
            generation: None,
            resource_version: None,
            status_digest: None,
            applied_at: now,
            newest_mark: now,
            settle: readiness::SETTLE,
        });
    }

    pub(super) fn fence(&mut self, fence: Fence) {
        self.fence = Some(fence);
    }

    /// The API server answered our apply with this object.
    pub(super) fn accepted(&mut self, item: &Item, object: &Value) {
        if let Task::Apply(wanted) = &item.task {
            self.accepted = Some((wanted.digest, content(object)));
        }
    }

    /// Whether the object to apply exists: exactly, or in the form in which the API server stores it.
    pub(super) fn is_current(&self, item: &Item) -> bool {
        match &item.task {
            Task::Apply(wanted) => self.current_for == Some(wanted.digest),
            _ => true,
        }
    }

    pub(super) fn is_ready(&self, item: &Item) -> bool {
        self.state == ItemState::Ready && self.is_current(item)
    }

    /// Whether its only reason for not being ready is that it was asked to reconcile and has not done so yet.
    pub(super) fn has_yet_to_answer(&self) -> bool {
        matches!(&self.state, ItemState::Waiting { reason, .. } if reason == UNANSWERED)
    }

    /// Whether it must be applied.
    pub(super) fn is_due(&self, item: &Item) -> bool {
        matches!(item.task, Task::Apply(_)) && item.scope.is_some() && !self.is_unread() && !self.is_current(item)
    }

    /// The object exists. Returns whether this changed anything that requires a new decision.
    pub(super) fn observed(
        &mut self,
        item: &Item,
        id: &ObjectId,
        object: &Value,
        operator: &str,
        now: Timestamp,
    ) -> bool {
        if let Subject::Selected(selected) = &item.subject {
            if !is_chosen(selected, id, object) {
                return self.gone(item, id);
            }
            let Task::Check(check) = &item.task else { return false };
            let state = checked(check, id, object);
            let before = self.chosen.insert(id.clone(), state.clone());
            let summed = self.sum_up();
            return !self.is_unread() && (before.is_none_or(|before| !before.is_like(&state)) || summed);
        }
        if self.knows_newer(object) {
            return false;
        }
        let before = self.clone_facts(item);
        let is_complete = is_complete_job(item, object);
        let cleared = is_complete.then(|| without_deletion(object)).flatten();
        let object = cleared.as_ref().unwrap_or(object);
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        self.uid = text("/metadata/uid").map(str::to_owned);
        self.version = version(object);
        self.created = text("/metadata/creationTimestamp").and_then(|time| time.parse().ok());
        self.recheck = None;
        match &item.task {
            Task::Observe(mode) => {
                self.judge(item, object, now);
                if *mode != Mode::Observe {
                    let annotations = object.pointer("/metadata/annotations");
                    let requested = annotations.and_then(|all| all.get(FLUX_REQUEST)).and_then(Value::as_str);
                    self.requested = requested.map(str::to_owned);
                    self.held = holds_suspended(object, operator);
                }
                if *mode == Mode::Gate && !self.held && object.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
                    (self.state, self.recheck, self.refusal) = (suspended_by_others(item, object), None, None);
                }
                if self.requested != before.requested || self.held != before.held {
                    self.refusal = None;
                }
            }
            Task::Apply(wanted) => {
                let accepted = || self.accepted.is_some_and(|known| known == (wanted.digest, content(object)));
                let current = wanted.comparison.holds(object) || accepted();
                self.current_for = current.then_some(wanted.digest);
                if self.current_for.is_some() {
                    self.refusal = None;
                }
                self.judge(item, object, now);
            }
            Task::Check(check) => {
                // Only the fence is evaluated: whether the status can be trusted at all.
                self.judge(item, object, now);
                if !matches!(&self.state, ItemState::Waiting { reason, .. } if FENCED.contains(&reason.as_str())) {
                    (self.state, self.recheck) = (checked(check, &item.subject, object), None);
                }
            }
        }
        self.completed = is_complete && self.is_ready(item);
        !before.is_like(&self.clone_facts(item))
    }

    /// Responses to writes are handled after the other writes of their stage: the watch may have reported a newer
    /// version since.
    pub(super) fn knows_newer(&self, object: &Value) -> bool {
        let same = self.uid.as_deref() == object.pointer("/metadata/uid").and_then(Value::as_str);
        same && matches!((self.version, version(object)), (Some(known), Some(reported)) if reported < known)
    }

    fn judge(&mut self, item: &Item, object: &Value, now: Timestamp) {
        if item.checked {
            self.state = ItemState::Ready;
            return;
        }
        let options = Options { fence: self.fence.clone(), status_expected: item.has_status, ..Options::default() };
        let verdict = readiness::with(object, &options, now);
        if matches!(verdict.state, ReadinessState::Ready | ReadinessState::Failed) {
            // The fence has done its work.
            self.fence = None;
        }
        self.recheck = verdict.recheck_at.map(|at| (at, Arc::new(object.clone())));
        let (reason, message) = (verdict.reason, verdict.message);
        self.state = match verdict.state {
            ReadinessState::Ready => ItemState::Ready,
            ReadinessState::Failed => ItemState::Failed { reason, message },
            ReadinessState::InProgress | ReadinessState::Terminating => ItemState::Waiting { reason, message },
        };
    }

    /// The object, or one of the selection, does not exist.
    pub(super) fn gone(&mut self, item: &Item, id: &ObjectId) -> bool {
        if matches!(item.subject, Subject::Selected(_)) {
            return self.chosen.remove(id).is_some() && self.sum_up();
        }
        let was = std::mem::take(self);
        self.unreachable = was.unreachable;
        if was.completed {
            (self.completed, self.current_for) = (true, was.current_for);
        }
        self.state = self.sum();
        was.state != self.state
    }

    /// A selection is as ready as its least ready object. An empty selection is missing, as is an object that no watch
    /// reported, unless it has done its work.
    fn sum(&self) -> ItemState {
        let worst = |found: &dyn Fn(&ItemState) -> bool| self.chosen.values().find(|state| found(state)).cloned();
        worst(&|state| state.is_failed())
            .or_else(|| worst(&|state| *state != ItemState::Ready))
            .unwrap_or(if self.chosen.is_empty() && !self.completed { ItemState::Missing } else { ItemState::Ready })
    }

    /// Returns whether the selection as a whole changed.
    fn sum_up(&mut self) -> bool {
        if self.is_unread() {
            // Before everything is reported, the contents of the selection are not known.
            return false;
        }
        let sum = self.sum();
        let changed = !sum.is_like(&self.state);
        self.state = sum;
        changed
    }

    fn clone_facts(&self, item: &Item) -> Facts {
        Facts {
            state: self.state.clone(),
            current: self.is_current(item),
            requested: self.requested.clone(),
            held: self.held,
            completed: self.completed,
            uid: self.uid.clone(),
            recheck: self.recheck.as_ref().map(|(at, _)| *at),
        }
    }
}

/// Everything that a decision could depend on.
struct Facts {
    state: ItemState,
    current: bool,
    requested: Option<String>,
    held: bool,
    completed: bool,
    uid: Option<String>,
    recheck: Option<Timestamp>,
}

impl Facts {
    fn is_like(&self, other: &Self) -> bool {
        self.state.is_like(&other.state)
            && self.current == other.current
            && self.requested == other.requested
            && self.held == other.held
            && self.completed == other.completed
            && self.uid == other.uid
            && self.recheck == other.recheck
    }
}

/// The digest of the object to apply.
fn digest(item: &Item) -> Option<u64> {
    match &item.task {
        Task::Apply(wanted) => Some(wanted.digest),
        _ => None,
    }
}

/// Whether it is a Job that has done its work. A Job that is suspended on request is ready, too, but has not.
fn is_complete_job(item: &Item, object: &Value) -> bool {
    let is_job = matches!(&item.subject, Subject::One(id) if id.kind.group == "batch" && id.kind.kind == "Job");
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let is_complete = |condition: &Value| condition["type"] == "Complete" && condition["status"] == "True";
    is_job && conditions.into_iter().flatten().any(is_complete)
}

/// An object that is being deleted, as if it were not: deleting a finished Job only removes its remains.
fn without_deletion(object: &Value) -> Option<Value> {
    object.pointer("/metadata/deletionTimestamp")?;
    let mut object = object.clone();
    object.get_mut("metadata")?.as_object_mut()?.remove("deletionTimestamp");
    Some(object)
}

/// A digest of what users write in an object, comparable within this process.
fn content(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        match (key.as_str(), value.as_object()) {
            ("status", _) => {}
            ("metadata", Some(metadata)) => {
                let written =
                    |(key, _): &(&String, &Value)| !matches!(key.as_str(), "managedFields" | "resourceVersion");
                metadata.iter().filter(written).for_each(|field| field.hash(&mut hasher));
            }
            _ => (key, value).hash(&mut hasher),
        }
    }
    hasher.finish()
}

fn version(object: &Value) -> Option<u64> {
    object.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}

fn is_chosen(selected: &crate::subscription::Selected, id: &ObjectId, object: &Value) -> bool {
    let labels: BTreeMap<String, String> = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect();
    let in_namespace = selected.namespace.is_none() || selected.namespace == id.namespace;
    in_namespace && selected.selector.matches(&labels)
}

/// The result of a CEL check on an object; a status that is known to describe an older spec gives no result.
fn checked(check: &Check, subject: &dyn fmt::Display, object: &Value) -> ItemState {
    let waiting = |reason: &str, message: String| ItemState::Waiting { reason: reason.to_owned(), message };
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return waiting("Terminating", format!("{subject} is being deleted."));
    }
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    if let (Some(generation), Some(observed)) = (number("/metadata/generation"), number("/status/observedGeneration"))
        && generation != observed
    {
        let message =
            format!("{subject} is at generation {generation}, but its controller has observed only {observed}.");
        return waiting("GenerationNotObserved", message);
    }
    if let Some(failed) = &check.failed
        && failed.holds(object) == Ok(true)
    {
        return ItemState::Failed {
            reason: "CheckFailed".to_owned(),
            message: format!("The health check of {subject} failed: {} is true.", failed.text()),
        };
    }
    match check.ready.holds(object) {
        Ok(true) => ItemState::Ready,
        Ok(false) => waiting(
            "CheckNotPassed",
            format!("The health check of {subject} has not passed: {} is false.", check.ready.text()),
        ),
        Err(why) => waiting(
            "CheckNotPassed",
            format!("The health check of {subject} cannot be evaluated yet: {}: {why}.", check.ready.text()),
        ),
    }
}

/// Whether the object is suspended by us.
fn holds_suspended(object: &Value, operator: &str) -> bool {
    suspending(object).any(|entry| entry["manager"] == *operator && entry["operation"] == "Apply")
}

/// A gate that we released and that stays closed: whatever its status says, nothing new passes.
fn suspended_by_others(item: &Item, object: &Value) -> ItemState {
    let managers: BTreeSet<&str> = suspending(object).filter_map(|entry| entry["manager"].as_str()).collect();
    let who = if managers.is_empty() { "someone".to_owned() } else { Vec::from_iter(managers).join(", ") };
    let message = format!(
        "{} is suspended, but not by this plan: {who} manages spec.suspend. Remove the field from the source of {who}, for example from the manifest in Git.",
        item.subject
    );
    ItemState::Waiting { reason: "SuspendedByAnother".to_owned(), message }
}

/// The managers of `spec.suspend`.
fn suspending(object: &Value) -> impl Iterator<Item = &Value> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().filter(|entry| entry.pointer("/fieldsV1/f:spec/f:suspend").is_some())
}
