//! The fence against outdated status: right after our own write, an object still carries the
//! status of its former spec, and a `Ready` in it means nothing.
//!
//! Kinds that report `observedGeneration` do not need a fence for that. For the others a status is trusted once it was
//! written after our write, or once its controller had time to react and left it unchanged.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::data;
use super::flux;
use super::view::View;
use super::{Case, Readiness, ReadinessState};

/// What was written to an object, and when: plain data, created by [`Fence::after`].
///
/// A fence has done its work once the object was ready or failed past it, and may be dropped. A fence that is lost, as
/// in a restart, no longer protects: the caller stores it with its other progress, or creates a new one with `before`
/// unknown.
///
/// It may be stored and read back; all but `applied_at`, `newest_mark` and `settle` may be unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The object's UID.
    pub uid: Option<String>,
    /// The generation after the write.
    pub generation: Option<i64>,
    /// The resource version after the write.
    pub resource_version: Option<String>,
    /// A digest of the status that the object had then. Comparable only within one process: a caller that stores a
    /// fence leaves it out.
    pub status_digest: Option<u64>,
    /// When the write was done, by our clock: the settle time starts here.
    pub applied_at: Timestamp,
    /// The latest time found anywhere in the object then, by any clock, but not before `applied_at`. A later time is a
    /// later write, even if the clocks of the cluster disagree.
    pub newest_mark: Timestamp,
    /// How long the controller has to react before its unchanged status is trusted.
    pub settle: Duration,
}

impl Fence {
    /// The fence after a write, from the object as the API server returned it.
    ///
    /// `None` when the write changed nothing: then it cannot make the status outdated, and there is nothing to wait
    /// for. `before` is the object before the write; `None` if it did not exist or is not known.
    pub fn after(before: Option<&Value>, applied: &Value, at: Timestamp, settle: Duration) -> Option<Self> {
        let applied = View::of(applied);
        let version = |object: View<'_>| {
            let uid = object.text("metadata.uid")?;
            Some((uid.to_owned(), object.text("metadata.resourceVersion")?.to_owned()))
        };
        if let Some(before) = before.map(View::of)
            && let Some(old) = version(before)
            && Some(old) == version(applied)
        {
            return None;
        }
        Some(Self {
            uid: applied.text("metadata.uid").map(str::to_owned),
            generation: applied.generation(),
            resource_version: applied.text("metadata.resourceVersion").map(str::to_owned),
            status_digest: Some(status_digest(applied)),
            applied_at: at,
            newest_mark: marks(applied).fold(at, Timestamp::max),
            settle,
        })
    }

    /// When an unchanged status is trusted.
    pub fn settles_at(&self) -> Timestamp {
        self.applied_at.checked_add(self.settle).unwrap_or(Timestamp::MAX)
    }

    /// Whether the object as seen is older than the write.
    fn is_ahead_of(&self, object: View<'_>) -> bool {
        if let Some(order) = self.compare(object) {
            return order.is_lt();
        }
        self.is_of(object)
            && matches!((object.generation(), self.generation), (Some(observed), Some(ours)) if observed < ours)
    }

    /// Whether the status was written after our write.
    fn is_passed_by(&self, object: View<'_>) -> bool {
        let later = self.compare(object).is_some_and(std::cmp::Ordering::is_gt);
        // Another object of the same name: its status cannot be that of the former one.
        let replaced = later && !self.is_of(object);
        let rewritten = later && self.status_digest.is_some_and(|digest| digest != status_digest(object));
        replaced || rewritten || marks_of_status(object).any(|time| time > self.newest_mark)
    }

    /// Whether this is the object that we wrote; if either UID is unknown, it is assumed to be.
    fn is_of(&self, object: View<'_>) -> bool {
        match (self.uid.as_deref(), object.text("metadata.uid")) {
            (Some(ours), Some(observed)) => ours == observed,
            _ => true,
        }
    }

    /// Compares the observed resource version with ours. API servers count them up, and have guaranteed this since
    /// Kubernetes 1.35; anything that is not a number is not compared.
    fn compare(&self, object: View<'_>) -> Option<std::cmp::Ordering> {
        let ours: u128 = self.resource_version.as_deref()?.parse().ok()?;
        let observed: u128 = object.text("metadata.resourceVersion")?.parse().ok()?;
        Some(observed.cmp(&ours))
    }
}

/// The rule: the observed object is older than what we wrote, so the relevant event is on its way.
pub(super) fn outdated_view(case: &Case<'_>) -> Option<Readiness> {
    let fence = case.options.fence.as_ref()?;
    fence.is_ahead_of(case.object).then(|| {
        Readiness::in_progress(
            "OutdatedView",
            format!(
                "The cached copy of {} is older than the last write to it; the next watch event updates it.",
                case.object
            ),
        )
    })
}

/// Holds back a verdict that is based on a status from before our write. This applies to failed as well as to ready: a
/// failure that the write has just fixed must not fail anything.
pub(super) fn hold(case: &Case<'_>, verdict: Readiness) -> Readiness {
    let object = case.object;
    let Some(fence) = case.options.fence.as_ref() else {
        return verdict;
    };
    let decided = matches!(verdict.state, ReadinessState::Ready | ReadinessState::Failed);
    if !decided || !may_be_outdated(object) || fence.is_passed_by(object) {
        return verdict;
    }
    let until = fence.settles_at();
    if case.now >= until {
        return verdict;
    }
    Readiness::in_progress(
        "StatusNotRenewed",
        format!(
            "{object} was just written and its status is still from before; the status counts once it changes, or at {until:.0}."
        ),
    )
    .until(until)
}

/// Whether a status can be older than the spec without showing it. Built-in kinds of Kubernetes report
/// `observedGeneration`, or have a status that no change of the spec can make outdated; APIService is the exception.
fn may_be_outdated(object: View<'_>) -> bool {
    let fenced = !object.is_builtin() || object.kind() == Some("APIService");
    fenced && object.has_status() && !shows_its_generation(object) && !flux::is_mere_address(object)
}

/// Whether the status names the generation that it describes. That it is the right one was checked before.
fn shows_its_generation(object: View<'_>) -> bool {
    let Some(generation) = object.generation() else {
        return false;
    };
    object.observed_generation() == Some(generation)
        || object.condition("Ready").is_some_and(|ready| ready.observed == Some(generation))
        || data::synced_generation(object) == Some(generation)
}

fn status_digest(object: View<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.at("status").hash(&mut hasher);
    hasher.finish()
}

/// Every time at which the object was written, according to its contents.
fn marks(object: View<'_>) -> impl Iterator<Item = Timestamp> {
    object
        .list("metadata.managedFields")
        .iter()
        .filter_map(|entry| View::of(entry).time("time"))
        .chain(marks_of_status(object))
}

/// The times at which its status was written, according to the status. They have whole seconds: only a later second
/// proves a later write, an equal one proves nothing.
fn marks_of_status(object: View<'_>) -> impl Iterator<Item = Timestamp> {
    let written = object
        .list("metadata.managedFields")
        .iter()
        .map(View::of)
        .filter(|entry| entry.text("subresource") == Some("status"))
        .filter_map(|entry| entry.time("time"));
    let changed = object.conditions().filter_map(|condition| condition.changed_at);
    written.chain(changed)
}
