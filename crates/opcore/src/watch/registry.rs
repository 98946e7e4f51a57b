//! Watches that are opened for whoever needs them, and closed when nobody does any more.
//!
//! The kinds that an operator watches by itself are known when it is compiled. Those that its objects name are not: they
//! come and go with the objects. Here each object that needs watches subscribes to them by [`ScopeId`]; two that need the
//! same share one.
//!
//! ```text
//! subscribe ─▶ open with the first subscriber ─▶ list, watch ─▶ Listener ─▶ close with the last
//!                                                   ▲ resync, a panic, a subscriber that must be told everything
//! ```
//!
//! # Guarantees
//!
//! - A scope is open exactly as long as it has a subscriber; all its subscribers share one list and one watch.
//! - Each opening of a scope is a generation of its own. From the moment in which a scope is closed or opened anew, what an
//!   older generation had still to tell reaches nobody: not a change, and least of all that everything was told.
//! - What the listener is told of one scope, it is told one after another: [`Listener::opened`], then changes, among them
//!   [`Change::Synced`] once all that exists was told, and at last [`Listener::closed`].
//! - An object that is gone is reported as gone, also when it went between two generations.
//! - A listener that panics misses that one change, and hears of the others; [`Listener::missed`] says so, and soon
//!   everything is told anew. Until that went well, it is not told [`Change::Synced`].
//! - With a resync, everything is told anew at least as often as the subscriber wants that wants it most often, a little
//!   earlier each time, so that scopes do not list in step. It costs one list, however many subscribers there are.
//! - A right that is missing, and an API that does not answer, are remembered as [`Trouble`] and tried again by the watch
//!   itself; they concern their own scope only.
//!
//! # Assumptions
//!
//! - The listener does not call the registry while it is being told something, and whoever calls the registry holds no lock
//!   that the listener takes.
//! - It is used inside a Tokio runtime.
//!
//! # Errors
//!
//! None: what goes wrong is told as [`Trouble`], logged and counted.

mod follow;
mod gate;

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Client;
use kube::core::DynamicObject;
use kube_runtime::watcher::{self, Event};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use self::gate::Gate;
use super::{Change, Known, ScopeId, events_of_objects, supervise};
use crate::controller::Context;
use crate::error::{Class, Error};
use crate::lock;
use crate::metrics::Metrics;
use crate::queue::Key;

/// What is told of the scopes that are open.
pub trait Listener: Send + Sync + 'static {
    /// From now on everything in the scope is told, or told anew, up to [`Change::Synced`].
    fn opened(&self, scope: &ScopeId, opening: Opening);

    /// Something happened to an object in the scope.
    fn changed(&self, scope: &ScopeId, change: Change<DynamicObject>);

    /// A change was not taken in. What is known of the scope may lack something until the next [`Change::Synced`].
    fn missed(&self, _scope: &ScopeId) {}

    /// The scope cannot be listed or watched; or, with none, it can again.
    fn troubled(&self, _scope: &ScopeId, _trouble: Option<&Trouble>) {}

    /// Nobody is subscribed any more: what is known of the scope is no longer kept true.
    fn closed(&self, scope: &ScopeId);
}

/// Why a scope is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// It has its first subscriber.
    First,
    /// Someone [asked](Registry::relist) to be told everything anew.
    Asked,
    /// It was time. What is known is as true as it was before.
    Resync,
    /// Something was missed.
    Recovery,
}

/// Why a scope cannot be listed or watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What helps against it.
    pub kind: TroubleKind,
    /// What the API server says.
    pub message: String,
}

/// What helps against a [`Trouble`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TroubleKind {
    /// A grant: the right to list or watch is missing.
    Forbidden,
    /// The API server no longer has the kind; see [`Discovery::forget`](super::Discovery::forget).
    NotServed,
    /// Time, or a look at the API server, or at the one that it asks in turn.
    Unavailable,
}

impl Trouble {
    fn of(error: watcher::Error) -> Self {
        let error: Error = match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => error.into(),
            watcher::Error::WatchError(status) => kube::Error::Api(status).into(),
            error @ watcher::Error::NoResourceVersion => Error::Outside(error.to_string()),
        };
        let kind = match error.class() {
            Class::Forbidden => TroubleKind::Forbidden,
            _ if error.is_not_found() => TroubleKind::NotServed,
            _ => TroubleKind::Unavailable,
        };
        Self { kind, message: error.to_string() }
    }
}

/// What a subscriber wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// The scopes that it needs.
    pub scopes: BTreeSet<ScopeId>,
    /// How often everything in them is to be told anew at least, although nothing seems to have happened. None: never.
    pub resync: Option<Duration>,
}

/// The watches that are open, and for whom.
pub struct Registry {
    shared: Arc<Shared>,
    watches: Mutex<Watches>,
}

#[derive(Default)]
struct Watches {
    by_scope: HashMap<ScopeId, Watch>,
    subscriptions: HashMap<Key, Subscription>,
}

/// A watch that is open, with how often each of its subscribers wants a resync.
struct Watch {
    watched: Arc<Watched>,
    subscribers: HashMap<Key, Option<Duration>>,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the registry and the task of a watch share.
struct Watched {
    scope: ScopeId,
    gate: Gate,
    /// The objects that were told of, across generations.
    known: Mutex<Known>,
    trouble: Mutex<Option<Trouble>>,
    /// The generation has changed.
    replaced: Notify,
    resync: watch::Sender<Option<Duration>>,
}

/// What all watches share.
struct Shared {
    source: Box<dyn Source>,
    /// Not a strong reference: the listener is who holds the registry.
    listener: Weak<dyn Listener>,
    metrics: Metrics,
    jitter: RandomState,
}

/// Where watches come from.
trait Source: Send + Sync + 'static {
    fn events(&self, scope: &ScopeId) -> BoxStream<'static, watcher::Result<Event<DynamicObject>>>;
}

struct Cluster {
    client: Client,
    lives: Duration,
}

impl Source for Cluster {
    fn events(&self, scope: &ScopeId) -> BoxStream<'static, watcher::Result<Event<DynamicObject>>> {
        events_of_objects(&self.client, &scope.scope(self.lives)).boxed()
    }
}

impl Registry {
    /// A registry without watches, which tells this listener.
    ///
    /// The listener usually holds the registry: [`Arc::new_cyclic`] makes both.
    pub fn new(context: &Context, listener: Weak<dyn Listener>) -> Self {
        let cluster = Cluster { client: context.client().clone(), lives: context.limits().watch };
        Self::over(Box::new(cluster), listener, context.metrics().clone())
    }

    fn over(source: Box<dyn Source>, listener: Weak<dyn Listener>, metrics: Metrics) -> Self {
        let shared = Arc::new(Shared { source, listener, metrics, jitter: RandomState::new() });
        Self { shared, watches: Mutex::default() }
    }

    /// From now on the subscriber has these scopes, and no others.
    ///
    /// To say the same again costs next to nothing.
    pub fn subscribe(&self, subscriber: &Key, wanted: &Subscription) {
        let mut watches = lock(&self.watches);
        if watches.subscriptions.get(subscriber) == Some(wanted) {
            return;
        }
        let before = watches.subscriptions.insert(subscriber.clone(), wanted.clone()).unwrap_or_default();
        for scope in &wanted.scopes {
            let watch = watches.by_scope.entry(scope.clone()).or_insert_with(|| self.open(scope));
            watch.subscribers.insert(subscriber.clone(), wanted.resync);
            watch.schedule();
        }
        for scope in before.scopes.difference(&wanted.scopes) {
            self.leave(&mut watches, scope, subscriber);
        }
    }

    /// The subscriber needs nothing any more.
    pub fn unsubscribe(&self, subscriber: &Key) {
        let mut watches = lock(&self.watches);
        for scope in watches.subscriptions.remove(subscriber).unwrap_or_default().scopes {
            self.leave(&mut watches, &scope, subscriber);
        }
    }

    /// Everything in these scopes is told anew, as far as they are open: when this returns, [`Listener::opened`] was called
    /// for each of them, and what their watches had still to tell reaches nobody any more.
    pub fn relist(&self, scopes: &BTreeSet<ScopeId>) {
        let watches = lock(&self.watches);
        for Watch { watched: open, .. } in scopes.iter().filter_map(|scope| watches.by_scope.get(scope)) {
            open.gate.renew(|| self.shared.tell(|listener| listener.opened(&open.scope, Opening::Asked)));
            open.replaced.notify_one();
        }
    }

    /// What keeps these scopes from being listed and watched, as far as anything does.
    pub fn troubles(&self, scopes: &BTreeSet<ScopeId>) -> Vec<(ScopeId, Trouble)> {
        let watches = lock(&self.watches);
        let trouble_of = |scope: &ScopeId| lock(&watches.by_scope.get(scope)?.watched.trouble).clone();
        scopes.iter().filter_map(|scope| Some((scope.clone(), trouble_of(scope)?))).collect()
    }

    /// The scopes that are open.
    pub fn scopes(&self) -> BTreeSet<ScopeId> {
        lock(&self.watches).by_scope.keys().cloned().collect()
    }

    fn open(&self, scope: &ScopeId) -> Watch {
        let watched = Arc::new(Watched {
            scope: scope.clone(),
            gate: Gate::default(),
            known: Mutex::default(),
            trouble: Mutex::default(),
            replaced: Notify::new(),
            resync: watch::Sender::new(None),
        });
        watched.gate.renew(|| self.shared.tell(|listener| listener.opened(scope, Opening::First)));
        let task = tokio::spawn(follow::follow(self.shared.clone(), watched.clone())).abort_handle();
        Watch { watched, subscribers: HashMap::new(), task }
    }

    fn leave(&self, watches: &mut Watches, scope: &ScopeId, subscriber: &Key) {
        let Some(watch) = watches.by_scope.get_mut(scope) else { return };
        watch.subscribers.remove(subscriber);
        if watch.subscribers.is_empty() {
            watch.watched.gate.close(|| self.shared.tell(|listener| listener.closed(scope)));
            watches.by_scope.remove(scope);
        } else {
            watch.schedule();
        }
    }
}

impl Watch {
    /// Resyncs as often as the subscriber wants that wants it most often.
    fn schedule(&self) {
        let shortest = self.subscribers.values().flatten().min().copied();
        self.watched.resync.send_if_modified(|resync| std::mem::replace(resync, shortest) != shortest);
    }
}

impl Shared {
    /// Tells the listener. Answers whether it took that in.
    fn tell(&self, what: impl FnOnce(&dyn Listener)) -> bool {
        let Some(listener) = self.listener.upgrade() else { return true };
        let told = std::panic::catch_unwind(AssertUnwindSafe(|| what(listener.as_ref())));
        told.inspect_err(|panic| supervise::tell("watch", &self.metrics, panic.as_ref())).is_ok()
    }

    /// So long, or a little less.
    fn jittered(&self, interval: Duration, scope: &ScopeId, turn: u64) -> Duration {
        let share = u32::try_from(self.jitter.hash_one((scope, turn)) >> 32).unwrap_or(u32::MAX);
        interval.mul_f64(1.0 - 0.1 * f64::from(share) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests;
