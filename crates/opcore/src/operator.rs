//! What an operator fills in: what it reads and what it decides. The rest is the same for all.

use jiff::Timestamp;
use kube::Resource;
use kube::core::object::HasStatus;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::act::{Done, Refusal};
use crate::conditions::Conditions;
use crate::controller::{Context, Watches};
use crate::error::Error;
use crate::plan::Plan;
use crate::queue::Key;

/// Set this annotation to a new value to have an object looked at now.
pub const REQUESTED_AT_ANNOTATION: &str = "opcore.dev/requestedAt";

/// A kind that an operator reconciles: one of ours, with a status that has conditions.
pub trait Root:
    Resource<DynamicType = (), Scope: 'static>
    + HasStatus<Status: Conditions + Clone + Default + Serialize + Send + Sync>
    + Clone
    + DeserializeOwned
    + Serialize
    + std::fmt::Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Root for K where
    K: Resource<DynamicType = (), Scope: 'static>
        + HasStatus<Status: Conditions + Clone + Default + Serialize + Send + Sync>
        + Clone
        + DeserializeOwned
        + Serialize
        + std::fmt::Debug
        + Send
        + Sync
        + 'static
{
}

/// An operator: observe, then decide.
///
/// ```text
/// watch ─▶ queue ─▶ observe ─▶ decide ─▶ act ─▶ publish ─▶ (wait for the next event or a moment in time)
///          opcore    reads      pure     writes  status
/// ```
pub trait Operator: Send + Sync + 'static {
    /// The kind it reconciles.
    type Object: Root;
    /// Everything that was read, nothing decided.
    type Seen: Send + Sync;

    /// Says which other objects' changes concern which of its own.
    fn watches(&self, _watches: &mut Watches<Self::Object>) {}

    /// Reads what the decision needs. Writes nothing, chooses nothing.
    fn observe(
        &self,
        object: &Self::Object,
        context: &Context,
    ) -> impl Future<Output = Result<Self::Seen, Error>> + Send;

    /// Decides, from what was read and the time alone.
    ///
    /// Total: bad input is a decision with a [`Summary::stalled`](crate::conditions::Summary::stalled) status, not an
    /// error. Deletion takes the same path; see [`crate::finalizer`].
    ///
    /// The status speaks of what was observed, not of what the plan is going to do: a write may be refused, and the
    /// process may end between any two.
    fn decide(&self, object: &Self::Object, seen: &Self::Seen, now: Timestamp) -> Decision<Self::Object>;

    /// Hears what came of the writes, and adds to the status what only they could tell: the UIDs and versions of what
    /// was applied, what was refused, what failed. It may also remember it for the next look; it reads and writes nothing
    /// else. After a failure the status is published without its conditions, which count on the write: what else counts on
    /// it is to be taken back here.
    fn conclude(
        &self,
        _object: &Self::Object,
        _status: &mut <Self::Object as HasStatus>::Status,
        _done: &Done,
        _now: Timestamp,
    ) {
    }

    /// What grants the right that a forbidden write lacked, as a sentence: the status tells it behind the refusal.
    fn cure(&self, _object: &Self::Object, _refusal: &Refusal) -> Option<String> {
        None
    }

    /// Hears that an object is gone for good, and lets go of what it remembered of it.
    fn forget(&self, _object: &Key) {}
}

/// What is to be done, said and waited for.
#[derive(Clone, Debug)]
pub struct Decision<K: HasStatus> {
    /// Writes, in order, as data.
    pub plan: Plan,
    /// Published once, after the plan, and only when it differs.
    pub status: K::Status,
    /// Events beyond the changes of conditions, which are reported by themselves, unless a note here has the same reason.
    /// For transitions only.
    pub notes: Vec<Note>,
    /// What to wait for.
    pub next: Next,
}

impl<K: HasStatus> Decision<K> {
    /// Publish this status, write nothing, and wait for the next event.
    pub fn say(status: K::Status) -> Self {
        Self { plan: Plan::new(), status, notes: Vec::new(), next: Next::OnEvent }
    }
}

/// What an object waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// A watch will tell.
    #[default]
    OnEvent,
    /// This moment, or a watch if it tells before.
    At(Timestamp),
}

impl From<Option<Timestamp>> for Next {
    fn from(at: Option<Timestamp>) -> Self {
        at.map_or(Self::OnEvent, Self::At)
    }
}

/// An Event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// Whether someone should have a look.
    pub warning: bool,
    /// A CamelCase fact.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// The part of the object that it is about, if not the whole.
    pub part: Option<String>,
}

impl Note {
    /// Something that is worth knowing.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { warning: false, reason: reason.into(), message: message.into(), part: None }
    }

    /// Something that someone should have a look at.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { warning: true, ..Self::normal(reason, message) }
    }

    /// The same, about a part of the object.
    #[must_use]
    pub fn about(mut self, part: impl Into<String>) -> Self {
        self.part = Some(part.into());
        self
    }
}
