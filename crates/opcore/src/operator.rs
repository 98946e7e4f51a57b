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
use crate::queue::Key;
use crate::writes::Writes;

/// Set this annotation to a new value to have an object looked at now.
pub const REQUESTED_AT_ANNOTATION: &str = "opcore.dev/requestedAt";

/// A kind that an operator reconciles: one of ours, with a status that has conditions.
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
/// watch ─▶ queue ─▶ observe ─▶ decide ─▶ admit ─▶ act ─▶ conclude ─▶ publish ─▶ (wait for the next event or a moment in time)
///          opcore    reads      pure     claims   writes  outcomes    status
///                       ▲                  │
///                       └── decided anew ──┘ what was claimed could not be had
/// ```
pub trait Operator: Send + Sync + 'static {
    /// The kind it reconciles.
    type Object: Reconciled;
    /// Everything that was read, nothing decided.
    type Observed: Send + Sync;
    /// What a decision claims of this process, beside its writes: a turn, watches, something to ask the outside. `()` for
    /// an operator that claims nothing.
    type Claims: Default + Send + Sync;

    /// Holds the object until nothing is left of it. It is set before anything is written for an object, and taken off when
    /// a decision says [`Decision::release`].
    const FINALIZER: &'static str;

    /// Says which other objects' changes concern which of its own.
    fn watches(&self, _watches: &mut Watches<Self::Object>) {}

    /// Reads what the decision needs. Writes nothing, chooses nothing: what it is given can only read.
    fn observe(
        &self,
        object: &Self::Object,
        context: &Context,
    ) -> impl Future<Output = Result<Self::Observed, Error>> + Send;

    /// Decides, from what was read and the time alone. The time is in whole milliseconds: finer ones would only make a
    /// status harder to read.
    ///
    /// Total: bad input is a decision with a [`Summary::stalled`](crate::conditions::Summary::stalled) status, not an
    /// error.
    ///
    /// The status speaks of what was observed, not of what the plan is going to do: a write may be refused, and the
    /// process may end between any two.
    fn decide(&self, object: &Self::Object, seen: &Self::Observed, now: Timestamp) -> DecisionOf<Self>;

    /// Decides how an object that is being deleted is taken down, likewise: see [`crate::finalizer::pass`].
    fn tear_down(&self, object: &Self::Object, seen: &Self::Observed, now: Timestamp) -> DecisionOf<Self>;

    /// Grants what a decision claims, before any of its writes is done. Where that changes what was observed, as when
    /// somebody else has the last turn, `seen` is brought up to date here, and decided on anew.
    ///
    /// # Assumptions
    ///
    /// What is claimed again is granted again; so that there is an end to deciding anew.
    ///
    /// # Errors
    ///
    /// When the API server could not be asked.
    fn admit(
        &self,
        _object: &Self::Object,
        _claims: Self::Claims,
        _seen: &mut Self::Observed,
        _context: &Context,
        _now: Timestamp,
    ) -> impl Future<Output = Result<Admission, Error>> + Send {
        std::future::ready(Ok(Admission::Granted))
    }

    /// Hears what came of the writes, and adds to the status what only they could tell: the UIDs and versions of what
    /// was applied, what was refused, what failed. It may also remember it for the next look; it reads and writes nothing
    /// else. After a failure the status is published without its conditions, which count on the write: what else counts on
    /// it is to be taken back here.
    fn after_writes(
        &self,
        _object: &Self::Object,
        _status: &mut <Self::Object as HasStatus>::Status,
        _done: &Done<'_>,
        _now: Timestamp,
    ) {
    }

    /// What grants the right that a forbidden write lacked, as a sentence: the status tells it behind the refusal.
    fn remedy(&self, _object: &Self::Object, _refusal: &Refusal) -> Option<String> {
        None
    }

    /// Hears what has been published, for metrics.
    fn published(&self, _object: &Self::Object, _status: &<Self::Object as HasStatus>::Status, _now: Timestamp) {}

    /// Hears that an object is gone for good, and lets go of what it remembered of it.
    fn forget(&self, _object: &Key) {}
}

/// What came of asking for what a decision claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is granted: the writes may be done.
    Granted,
    /// What was observed has changed, and is to be decided on anew. Nothing has been written.
    DecideAnew,
}

/// What an operator decides.
pub type DecisionOf<O> = Decision<<O as Operator>::Object, <O as Operator>::Claims>;

/// What is to be done, said and waited for.
#[derive(Clone, Debug)]
pub struct Decision<K: HasStatus, C = ()> {
    /// Writes, in order, as data.
    pub writes: Writes,
    /// Published once, after the plan, and only when it differs.
    pub status: K::Status,
    /// Events beyond the changes of conditions, which are reported by themselves, unless a note here has the same reason.
    /// For transitions only.
    pub notes: Vec<Note>,
    /// What to wait for.
    pub next: Next,
    /// What the writes, or the waiting, take of this process.
    pub claims: C,
    /// Whether nothing is left of an object that is being deleted: then its finalizer goes, after the plan.
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
