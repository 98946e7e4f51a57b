//! The loop around an operator: watch, queue, observe, decide, act, publish.
//!
//! # Guarantees
//!
//! - At most [`Limits::concurrency`] objects are worked on at once, each by one worker; a reconcile has a deadline.
//! - An object that fails is tried again by its own backoff, or when something that concerns it changes; the others go
//!   on. So it is with one whose decision panics. What lasts, or needs a person, is put into the status.
//! - The decision sees at least what this process itself wrote last: while the cache is behind, the object is read anew.
//! - The status is written once, after the plan, only when it differs, and only onto the version that was decided on.
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

/// How long reconciles that are under way may take to end when the process is asked to stop.
const GRACE: Duration = Duration::from_secs(15);

/// A handle by which anything can have an object looked at.
#[derive(Clone)]
pub struct Wakes {
    queue: Arc<Mutex<Queue>>,
    changed: Arc<Notify>,
}

impl Wakes {
    pub(crate) fn new() -> Self {
        Self { queue: Arc::default(), changed: Arc::new(Notify::new()) }
    }

    /// The objects that were woken since, in the order of their names.
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

    /// Have this object looked at.
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
    /// The version of each object that this process wrote last and has not yet seen come back.
    written: Mutex<HashMap<Key, String>>,
    /// What objects of this kind are to each other and to what they name.
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

/// Runs an operator until the process is asked to stop, or a watch ends, which none should: without it wake-ups would be
/// lost, and a new process is better than a deaf one.
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
    // What is decided before would only be refused.
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
            Some(_) = watching.join_next() => break Err(Error::Bug(format!("a watch for {kind} ended"))),
            () = &mut stopping => break Ok(()),
        }
    };
    watching.shutdown().await;
    let drained = tokio::time::timeout(GRACE, async { while workers.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(%kind, left = workers.len(), "reconciles are still under way and are cut off; they will be resumed");
        workers.shutdown().await;
    }
    ended
}

/// What a worker leaves behind: the object and when to look at it again.
type Ended = (Key, Option<Instant>);

/// Starts as many workers as there is work and room for. Answers when time alone brings more.
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
    // With no room for work, only a worker's end matters.
    if workers.len() < shared.context.limits().concurrency { queue.next_due() } else { None }
}

fn finish<O: Operator>(shared: &Shared<O>, ended: Result<Ended, tokio::task::JoinError>) {
    match ended {
        Ok((key, next)) => shared.wakes.queue().finish(&key, next),
        // `reconcile::run` catches panics, so this is a worker that was cut off while stopping.
        Err(error) => tracing::error!(%error, "a worker ended early"),
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Whether `one` is at least as new as `other`. Versions are numbers in every API server there is; where they are not,
/// only equality counts, and the caller reads anew.
fn at_least(one: &str, other: &str) -> bool {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one >= other,
        _ => one == other,
    }
}

/// Marks that a kind has a scope at all; see [`Reconciled`].
pub(crate) fn is_cluster_scoped<K: Reconciled>() -> bool {
    std::any::TypeId::of::<K::Scope>() == std::any::TypeId::of::<kube::core::ClusterResourceScope>()
}
