//! Watches that are opened when an object needs them, and closed when none does any more.
//!
//! The kinds that an operator itself watches are known at compile time. The kinds that its objects name are not: they
//! come and go with the objects. Here each object that needs watches subscribes to them by [`ScopeId`]; objects that
//! need the same watch share it.
//!
//! ```text
//! subscribe ─▶ open with the first subscriber ─▶ list, watch ─▶ Listener ─▶ close with the last
//!                                                   ▲ resync, a panic, a subscriber that needs everything again
//! ```
//!
//! # Guarantees
//!
//! - A scope is open exactly as long as it has a subscriber; all its subscribers share one list and one watch.
//! - Each opening of a scope is a generation of its own. Once a scope is closed or reopened, nothing that an older
//!   generation still had to report is delivered: no change, and no [`Change::Synced`].
//! - Reports about one scope are delivered one after another: [`Listener::opened`], then changes, with
//!   [`Change::Synced`] once everything that exists has been reported, and finally [`Listener::closed`].
//! - An object that is gone is reported as gone, also if it disappeared between two generations.
//! - A listener that panics misses only that change and receives the others. [`Listener::missed`] is called, and
//!   everything is soon reported again. Until that succeeds, [`Change::Synced`] is not reported.
//! - With a resync, everything is reported again at least as often as the subscriber with the shortest interval wants,
//!   a little earlier each time, so that scopes do not list at the same time. It costs one list, however many
//!   subscribers there are.
//! - A missing permission, or an API that does not answer, is recorded as [`Trouble`] and retried by the watch itself.
//!   It affects only its own scope.
//!
//! # Assumptions
//!
//! - The listener does not call the registry from its callbacks, and a caller of the registry holds no lock that the
//!   listener takes.
//! - It is used inside a Tokio runtime.
//!
//! # Errors
//!
//! None: failures are reported as [`Trouble`], logged and counted.

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

/// Receives reports about the scopes that are open.
pub trait Listener: Send + Sync + 'static {
    /// From now on everything in the scope is reported, or reported again, up to [`Change::Synced`].
    fn opened(&self, scope: &ScopeId, opening: Opening);

    /// An object in the scope changed.
    fn changed(&self, scope: &ScopeId, change: Change<DynamicObject>);

    /// The listener failed on a change. What is known of the scope may be incomplete until the next [`Change::Synced`].
    fn missed(&self, _scope: &ScopeId) {}

    /// The scope cannot be listed or watched. With none: it can be again.
    fn troubled(&self, _scope: &ScopeId, _trouble: Option<&Trouble>) {}

    /// The last subscriber is gone: what is known of the scope is no longer kept up to date.
    fn closed(&self, scope: &ScopeId);
}

/// Why a scope is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// It has its first subscriber.
    First,
    /// A caller [asked](Registry::relist) for everything to be reported again.
    Asked,
    /// The resync is due. What is known is as accurate as before.
    Resync,
    /// A change was missed.
    Recovery,
}

/// Why a scope cannot be listed or watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What to do about it.
    pub kind: TroubleKind,
    /// The message of the API server.
    pub message: String,
}

/// What to do about a [`Trouble`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TroubleKind {
    /// Grant the missing permission to list or watch.
    Forbidden,
    /// The API server no longer has the kind; see [`Discovery::forget`](super::Discovery::forget).
    NotServed,
    /// Wait, or check the API server or the aggregated API behind it.
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
    /// How often everything in the scopes must be reported again at least, even without changes. None: never.
    pub resync: Option<Duration>,
}

/// The open watches, and their subscribers.
pub struct Registry {
    shared: Arc<Shared>,
    watches: Mutex<Watches>,
}

#[derive(Default)]
struct Watches {
    by_scope: HashMap<ScopeId, Watch>,
    subscriptions: HashMap<Key, Subscription>,
}

/// An open watch, with the resync interval of each subscriber.
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
    /// The objects that were reported, across generations.
    known: Mutex<Known>,
    trouble: Mutex<Option<Trouble>>,
    /// The generation has changed.
    replaced: Notify,
    resync: watch::Sender<Option<Duration>>,
}

/// What all watches share.
struct Shared {
    source: Box<dyn Source>,
    /// Not a strong reference: the listener holds the registry.
    listener: Weak<dyn Listener>,
    metrics: Metrics,
    jitter: RandomState,
}

/// Opens watches.
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
    /// A registry without watches that reports to this listener.
    ///
    /// The listener usually holds the registry: [`Arc::new_cyclic`] creates both.
    pub fn new(context: &Context, listener: Weak<dyn Listener>) -> Self {
        let cluster = Cluster { client: context.client().clone(), lives: context.limits().watch };
        Self::over(Box::new(cluster), listener, context.metrics().clone())
    }

    fn over(source: Box<dyn Source>, listener: Weak<dyn Listener>, metrics: Metrics) -> Self {
        let shared = Arc::new(Shared { source, listener, metrics, jitter: RandomState::new() });
        Self { shared, watches: Mutex::default() }
    }

    /// From now on the subscriber has exactly these scopes.
    ///
    /// Repeating the same subscription costs almost nothing.
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

    /// Removes the subscriber from all scopes.
    pub fn unsubscribe(&self, subscriber: &Key) {
        let mut watches = lock(&self.watches);
        for scope in watches.subscriptions.remove(subscriber).unwrap_or_default().scopes {
            self.leave(&mut watches, &scope, subscriber);
        }
    }

    /// Reports everything in these scopes again, if they are open. When this returns, [`Listener::opened`] was called
    /// for each of them, and reports of their older watches are no longer delivered.
    pub fn relist(&self, scopes: &BTreeSet<ScopeId>) {
        let watches = lock(&self.watches);
        for Watch { watched: open, .. } in scopes.iter().filter_map(|scope| watches.by_scope.get(scope)) {
            open.gate.renew(|| self.shared.notify(|listener| listener.opened(&open.scope, Opening::Asked)));
            open.replaced.notify_one();
        }
    }

    /// What prevents these scopes from being listed and watched, if anything does.
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
        watched.gate.renew(|| self.shared.notify(|listener| listener.opened(scope, Opening::First)));
        let task = tokio::spawn(follow::follow(self.shared.clone(), watched.clone())).abort_handle();
        Watch { watched, subscribers: HashMap::new(), task }
    }

    fn leave(&self, watches: &mut Watches, scope: &ScopeId, subscriber: &Key) {
        let Some(watch) = watches.by_scope.get_mut(scope) else { return };
        watch.subscribers.remove(subscriber);
        if watch.subscribers.is_empty() {
            watch.watched.gate.close(|| self.shared.notify(|listener| listener.closed(scope)));
            watches.by_scope.remove(scope);
        } else {
            watch.schedule();
        }
    }
}

impl Watch {
    /// Schedules resyncs by the shortest interval of the subscribers.
    fn schedule(&self) {
        let shortest = self.subscribers.values().flatten().min().copied();
        self.watched.resync.send_if_modified(|resync| std::mem::replace(resync, shortest) != shortest);
    }
}

impl Shared {
    /// Calls the listener. Returns whether it handled the report without a panic.
    fn notify(&self, what: impl FnOnce(&dyn Listener)) -> bool {
        let Some(listener) = self.listener.upgrade() else { return true };
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| what(listener.as_ref())));
        result.inspect_err(|panic| supervise::log_panic("watch", &self.metrics, panic.as_ref())).is_ok()
    }

    /// The interval, or a little less.
    fn jittered(&self, interval: Duration, scope: &ScopeId, turn: u64) -> Duration {
        let share = u32::try_from(self.jitter.hash_one((scope, turn)) >> 32).unwrap_or(u32::MAX);
        interval.mul_f64(1.0 - 0.1 * f64::from(share) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests;
