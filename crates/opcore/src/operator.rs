//! What an operator implements: what it reads and what it decides. Everything else is the same for all operators.

use jiff::Timestamp;
use kube::Resource;
use kube::core::object::HasStatus;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::act::{Done, Refusal};
use crate::conditions::Conditions;
use crate::controller::{Context, Watches};
use crate::error::Error;
use crate::queue::Key;
use crate::writes::Writes;

/// Set this annotation to a new value to have an object reconciled now.
pub const REQUESTED_AT_ANNOTATION: &str = "opcore.dev/requestedAt";

/// A kind that an operator reconciles: a custom resource of ours whose status has conditions.
pub trait Reconciled:
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

impl<K> Reconciled for K where
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
/// watch ─▶ queue ─▶ observe ─▶ decide ─▶ admit ─▶ act ─▶ after_writes ─▶ publish ─▶ (wait for an event or a time)
///          opcore    reads      pure     claims   writes  results         status
///                       ▲                  │
///                       └── decide again ──┘ a claim was not granted
/// ```
pub trait Operator: Send + Sync + 'static {
    /// The kind it reconciles.
    type Object: Reconciled;
    /// Everything that was read for one decision, before anything is decided.
    type Observed: Send + Sync;
    /// What a decision claims from this process besides its writes: a turn, watches, a question to an outside source.
    /// `()` for an operator that claims nothing.
    type Claims: Default + Send + Sync;

    /// Keeps the object until nothing is left of it. It is added before anything is written for an object, and removed
    /// when a decision sets [`Decision::release`].
    const FINALIZER: &'static str;

    /// Declares which changes of other objects concern which of the operator's own objects.
    fn watches(&self, _watches: &mut Watches<Self::Object>) {}

    /// Reads what the decision needs. It writes and decides nothing: the reader that it gets can only read.
    fn observe(
        &self,
        object: &Self::Object,
        context: &Context,
    ) -> impl Future<Output = Result<Self::Observed, Error>> + Send;

    /// Decides, only from what was read and the current time. The time is in whole milliseconds: a finer one would only
    /// make a status harder to read.
    ///
    /// Total: for bad input it returns a decision whose status is
    /// [`Summary::stalled`](crate::conditions::Summary::stalled), not an error.
    ///
    /// The status describes what was observed, not what the writes are about to do: a write may be refused, and the
    /// process may end between any two writes.
    fn decide(&self, object: &Self::Object, observed: &Self::Observed, now: Timestamp) -> DecisionOf<Self>;

    /// Decides how to take down an object that is being deleted, under the same rules: see [`crate::finalizer::pass`].
    fn tear_down(&self, object: &Self::Object, observed: &Self::Observed, now: Timestamp) -> DecisionOf<Self>;

    /// Grants what a decision claims, before any of its writes is carried out. If that changes what was observed, for
    /// example because another object has the last turn, this method updates `observed`, and the decision is repeated.
    ///
    /// # Assumptions
    ///
    /// A claim that was granted and is made again is granted again. Otherwise repeating the decision would never end.
    ///
    /// # Errors
    ///
    /// When the API server could not be reached.
    fn admit(
        &self,
        _object: &Self::Object,
        _claims: Self::Claims,
        _observed: &mut Self::Observed,
        _context: &Context,
        _now: Timestamp,
    ) -> impl Future<Output = Result<Admission, Error>> + Send {
        std::future::ready(Ok(Admission::Granted))
    }

    /// Called with the outcomes of the writes. Adds to the status what is known only after them: the UIDs and versions
    /// of applied objects, what was refused, what failed. It may also remember that for the next reconcile; it reads
    /// and writes nothing else. After a failed write the status is published without the conditions that were decided,
    /// because they assume that the write succeeded. Whatever else in the status assumes that must be reverted here.
    fn after_writes(
        &self,
        _object: &Self::Object,
        _status: &mut <Self::Object as HasStatus>::Status,
        _done: &Done<'_>,
        _now: Timestamp,
    ) {
    }

    /// Returns a sentence that says how to grant the right that a forbidden write lacked. The status appends it to the
    /// refusal.
    fn remedy(&self, _object: &Self::Object, _refusal: &Refusal) -> Option<String> {
        None
    }

    /// Called after a status is published, for metrics.
    fn published(&self, _object: &Self::Object, _status: &<Self::Object as HasStatus>::Status, _now: Timestamp) {}

    /// Called when an object is gone for good. Drops what the operator remembered of it.
    fn forget(&self, _object: &Key) {}
}

/// The result of asking for what a decision claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Granted: the writes may be carried out.
    Granted,
    /// What was observed has changed, so the decision must be repeated. Nothing has been written.
    DecideAnew,
}

/// What an operator decides.
pub type DecisionOf<O> = Decision<<O as Operator>::Object, <O as Operator>::Claims>;

/// What to write, what to publish, and what to wait for.
#[derive(Clone, Debug)]
pub struct Decision<K: HasStatus, C = ()> {
    /// Writes, in order, as data.
    pub writes: Writes,
    /// Published once, after the writes, and only when it differs from the status before.
    pub status: K::Status,
    /// Events in addition to those for changed conditions. Changes of conditions are reported automatically, unless a
    /// note here has the same reason. For transitions only.
    pub notes: Vec<Note>,
    /// What to wait for.
    pub next: Next,
    /// What the writes, or the waiting, claim from this process.
    pub claims: C,
    /// Whether nothing is left of an object that is being deleted. Its finalizer is then removed, after the writes.
    pub release: bool,
}

impl<K: HasStatus, C: Default> Decision<K, C> {
    /// Publish this status, write nothing, and wait for the next event.
    pub fn say(status: K::Status) -> Self {
        Self {
            writes: Writes::new(),
            status,
            notes: Vec::new(),
            next: Next::OnEvent,
            claims: C::default(),
            release: false,
        }
    }
}

/// When an object is reconciled next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// On the next event of a watch.
    #[default]
    OnEvent,
    /// At this time, or earlier on an event of a watch.
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
    /// Whether someone should look at the object.
    pub warning: bool,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The message, a sentence.
    pub message: String,
    /// The part of the object that the Event is about; none for the object itself.
    pub part: Option<String>,
}

impl Note {
    /// An Event for information.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { warning: false, reason: reason.into(), message: message.into(), part: None }
    }

    /// An Event that someone should look at.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { warning: true, ..Self::normal(reason, message) }
    }

    /// The same Event, about a part of the object.
    #[must_use]
    pub fn about(mut self, part: impl Into<String>) -> Self {
        self.part = Some(part.into());
        self
    }
}
