//! The loop around an operator: watch, queue, observe, decide, act, publish.
//!
//! # Guarantees
//!
//! - At most [`Limits::concurrency`] objects are reconciled at once, each by one worker. Each reconcile has a deadline.
//! - An object that fails is retried with its own backoff, or when something that concerns it changes. The other
//!   objects are not affected. The same holds for an object whose decision panics. A failure that lasts, or that needs
//!   a person, is reported in the status.
//!   on. So it is with one whose decision panics. What lasts, or needs a person, is put into the status.
//! - The decision sees at least the last write of this process: while the cache is behind, the object is read from the
//!   API server.
//! - The status is written once, after the writes, only when it differs, and only onto the version that was decided on.
//! - A write that was refused ends up in the object's status, with the remedy.

mod context;
mod reconcile;
mod relations;
mod watches;

pub use context::{Context, Limits, Parts};
pub use relations::Relations;
pub use watches::Watches;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use kube::Resource;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::backoff::Backoff;
use crate::error::Error;
use crate::operator::{Operator, Reconciled};
use crate::queue::{Key, Queue};

/// How long running reconciles may take to end when the process is asked to stop.
const GRACE: Duration = Duration::from_secs(15);

/// A handle with which any part of the program can trigger a reconcile of an object.
#[derive(Clone)]
pub struct Wakes {
    queue: Arc<Mutex<Queue>>,
    changed: Arc<Notify>,
}

impl Wakes {
    pub(crate) fn new() -> Self {
        Self { queue: Arc::default(), changed: Arc::new(Notify::new()) }
    }

    /// The objects that were woken since the last call, ordered by name.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> Vec<Key> {
        let mut queue = self.queue();
        let mut taken: Vec<Key> = std::iter::from_fn(|| queue.start(Instant::now())).collect();
        for key in &taken {
            queue.finish(key, None);
        }
        taken.sort();
        taken
    }

    /// Triggers a reconcile of this object.
    pub fn wake(&self, key: &Key) {
        self.queue().wake(key);
        self.changed.notify_one();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        crate::lock(&self.queue)
    }
}

/// The objects of the kind being reconciled, as last seen.
pub(crate) struct Cache<K>(RwLock<HashMap<Key, Arc<K>>>);

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Resource> Cache<K> {
    fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn put(&self, object: K) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(Key::of(&object), Arc::new(object));
    }

    fn remove(&self, key: &Key) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// What the workers share.
struct Shared<O: Operator> {
    context: Context,
    operator: O,
    wakes: Wakes,
    cache: Cache<O::Object>,
    backoff: Mutex<Backoff<Key>>,
    /// Per object, the last version that this process wrote and has not yet seen on the watch.
    written: Mutex<HashMap<Key, String>>,
    /// How objects of this kind relate to each other and to what they name.
    related: watches::Relating<O::Object>,
    /// The objects whose last next_reconcile was in the past.
    overdue: Mutex<HashSet<Key>>,
}

impl<O: Operator> Shared<O> {
    fn kind() -> std::borrow::Cow<'static, str> {
        <O::Object as Resource>::kind(&())
    }

    fn backoff(&self) -> MutexGuard<'_, Backoff<Key>> {
        crate::lock(&self.backoff)
    }

    fn written(&self) -> MutexGuard<'_, HashMap<Key, String>> {
        crate::lock(&self.written)
    }
}

/// Runs an operator until the process is asked to stop, or until a watch ends. No watch should end: without it wake-ups
/// would be lost, so a restart is better than continuing without events.
pub(crate) async fn run<O: Operator>(context: Context, operator: O) -> Result<(), Error> {
    let kind = Shared::<O>::kind();
    context.metrics().expect_kind(&kind);
    let shared = Arc::new(Shared {
        context: context.clone(),
        operator,
        wakes: Wakes::new(),
        cache: Cache::default(),
        backoff: Mutex::default(),
        written: Mutex::default(),
        related: watches::Relating::default(),
        overdue: Mutex::default(),
    });
    let mut watching = watches::start(&shared);
    watching.spawn(context.follow_contract());
    let mut workers = JoinSet::new();
    let stopping = context.stopping();
    tokio::pin!(stopping);
    // Writes that are decided before the contract was read would only be refused.
    tokio::select! {
        () = context.contract_asked() => {}
        () = &mut stopping => return Ok(()),
    }
    let ended = loop {
        let due = start_workers(&shared, &mut workers);
        tokio::select! {
            () = shared.wakes.changed.notified() => {}
            () = sleep_until(due) => {}
            Some(ended) = workers.join_next() => finish(&shared, ended),
            Some(_) = watching.join_next() => break Err(Error::Bug(format!("the watches for {kind} ended"))),
            () = &mut stopping => break Ok(()),
        }
    };
    watching.shutdown().await;
    let drained = tokio::time::timeout(GRACE, async { while workers.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(%kind, left = workers.len(), "stopping reconciles that are still in progress; they are resumed after the next start");
        workers.shutdown().await;
    }
    ended
}

/// The result of a worker: the object and when to reconcile it again.
type Ended = (Key, Option<Instant>);

/// Starts as many workers as there is work and room for. Returns the time at which more work becomes due without an
/// event.
fn start_workers<O: Operator>(shared: &Arc<Shared<O>>, workers: &mut JoinSet<Ended>) -> Option<Instant> {
    let mut queue = shared.wakes.queue();
    while workers.len() < shared.context.limits().concurrency {
        let Some(key) = queue.start(Instant::now()) else { break };
        let shared = shared.clone();
        workers.spawn(async move {
            let next = reconcile::run(&shared, &key).await;
            (key, next)
        });
    }
    shared.context.metrics().queue_depth(&Shared::<O>::kind(), queue.depth());
    // With no room for more workers, the next thing to wait for is a worker's end.
    if workers.len() < shared.context.limits().concurrency { queue.next_due() } else { None }
}

fn finish<O: Operator>(shared: &Shared<O>, ended: Result<Ended, tokio::task::JoinError>) {
    match ended {
        Ok((key, next)) => shared.wakes.queue().finish(&key, next),
        // `reconcile::run` catches panics, so this worker was aborted while stopping.
        Err(error) => tracing::error!(%error, "a worker ended early"),
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Whether `one` is at least as new as `other`. Versions are numbers in every known API server. Where they are not,
/// only equality counts, and the caller reads the object again.
fn at_least(one: &str, other: &str) -> bool {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one >= other,
        _ => one == other,
    }
}

/// Whether the kind is cluster-scoped; see [`Reconciled`].
pub(crate) fn is_cluster_scoped<K: Reconciled>() -> bool {
    std::any::TypeId::of::<K::Scope>() == std::any::TypeId::of::<kube::core::ClusterResourceScope>()
}
