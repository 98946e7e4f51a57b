//! The task of one watch: from one generation to the next, as long as it has subscribers.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use kube::core::DynamicObject;
use kube_runtime::watcher::{self, Event};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Opening, Shared, Trouble, Watched};
use crate::lock;
use crate::queue::Key;
use crate::watch::{Change, FIRST_DELAY, Pace, supervise};

/// A scope is reported to be in trouble after this many failures in a row, some three seconds after the first: most
/// failures pass by themselves, and an API server that has just started briefly forbids what it would allow.
const REPORTED_AFTER: u32 = 5;

/// Why a generation ends.
enum Ended {
    /// There is a newer one.
    Replaced,
    /// It is time to report everything again.
    Due,
    /// A change was missed.
    InDoubt,
}

/// The result of a report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// The listener handled it.
    Handled,
    /// The listener knows everything that exists.
    Synced,
    /// The listener panicked.
    Missed,
}

pub(super) async fn follow(shared: Arc<Shared>, watched: Arc<Watched>) {
    let mut pace = Pace::default();
    while let Some(generation) = watched.gate.generation() {
        let watching = Generation { shared: &shared, watched: &watched, number: generation, failures: 0 };
        let ended = AssertUnwindSafe(watching.follow(&mut pace)).catch_unwind().await;
        let opening = match ended {
            Ok(Ended::Replaced) => continue,
            Ok(Ended::Due) => Opening::Resync,
            Ok(Ended::InDoubt) => Opening::Recovery,
            Err(panic) => {
                supervise::log_panic("watch", &shared.metrics, panic.as_ref());
                pause(&mut pace).await;
                Opening::Recovery
            }
        };
        let delivery = || shared.notify(|listener| listener.opened(&watched.scope, opening));
        if watched.gate.follow(generation, delivery) == Some(false) {
            pause(&mut pace).await;
        }
    }
}

async fn pause(pace: &mut Pace) {
    sleep(pace.next().unwrap_or(FIRST_DELAY)).await;
}

/// One generation of a watch.
struct Generation<'a> {
    shared: &'a Shared,
    watched: &'a Watched,
    number: u64,
    /// The number of failures in a row.
    failures: u32,
}

impl Generation<'_> {
    async fn follow(mut self, pace: &mut Pace) -> Ended {
        let Self { shared, watched, number: generation, .. } = self;
        if watched.gate.pass(generation, || lock(&watched.known).restart()).is_none() {
            return Ended::Replaced;
        }
        let mut events = shared.source.events(&watched.scope);
        let mut resync = watched.resync.subscribe();
        // The time of the last complete report and, once something was missed, the time to report everything again.
        let (mut synced, mut missed): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            let wanted = *resync.borrow_and_update();
            let jittered = wanted.map(|wanted| shared.jittered(wanted, &watched.scope, generation));
            let due = missed.or_else(|| synced?.checked_add(jittered?));
            tokio::select! {
                // The watch first: a timer that is due anyway can wait, and a test can rely on the order.
                biased;
                event = events.next() => {
                    let delivery = match event {
                        Some(Ok(event)) => self.deliver(event, missed.is_some()),
                        Some(Err(error)) => self.failed(error),
                        // The stream does not end; if it ever did, another would be opened.
                        None => {
                            pause(pace).await;
                            return Ended::InDoubt;
                        }
                    };
                    match delivery {
                        None => return Ended::Replaced,
                        Some(Delivery::Synced) => {
                            synced = Some(Instant::now());
                            *pace = Pace::default();
                        }
                        Some(Delivery::Missed) => {
                            missed = missed.or_else(|| Instant::now().checked_add(pace.next().unwrap_or(FIRST_DELAY)));
                        }
                        Some(Delivery::Handled) => {}
                    }
                    if missed.is_some_and(|at| at <= Instant::now()) {
                        return Ended::InDoubt;
                    }
                }
                () = watched.replaced.notified() => {
                    if watched.gate.generation() != Some(generation) {
                        return Ended::Replaced;
                    }
                }
                () = until(due) => return if missed.is_some() { Ended::InDoubt } else { Ended::Due },
                // The sender is in `watched`.
                _ = resync.changed() => {}
            }
        }
    }

    /// Reports what follows from an event. While in doubt, it does not report `Synced`. None: there is a newer
    /// generation.
    fn deliver(&mut self, event: Event<DynamicObject>, in_doubt: bool) -> Option<Delivery> {
        self.failures = 0;
        self.trouble(None)?;
        let (shared, watched) = (self.shared, self.watched);
        self.watched.gate.pass(self.number, || {
            let changes = lock(&watched.known).translate(event);
            let mut result = Delivery::Handled;
            for change in changes {
                if change == Change::Synced {
                    if in_doubt || result == Delivery::Missed {
                        continue;
                    }
                    result = Delivery::Synced;
                }
                let subject = match &change {
                    Change::Observed(object) => Some(Key::of(object)),
                    Change::Gone(key) => Some(key.clone()),
                    Change::Synced => None,
                };
                if !shared.notify(|listener| listener.changed(&watched.scope, change)) {
                    if let Some(subject) = subject {
                        lock(&watched.known).again(subject);
                    }
                    shared.notify(|listener| listener.missed(&watched.scope));
                    result = Delivery::Missed;
                }
            }
            result
        })
    }

    /// None: there is a newer generation.
    fn failed(&mut self, error: watcher::Error) -> Option<Delivery> {
        let scope = &self.watched.scope;
        self.watched.gate.pass(self.number, || lock(&self.watched.known).restart())?;
        self.shared.metrics.watch_broke(&self.watched.words());
        tracing::warn!(%scope, "a watch broke and is restarted: {}", crate::error::chain(&error));
        self.failures += 1;
        if self.failures >= REPORTED_AFTER {
            self.trouble(Some(&Trouble::of(error)))?;
        }
        Some(Delivery::Handled)
    }

    /// Records what prevents the scope from being watched, and reports it if it differs from before. None: there is a
    /// newer generation.
    fn trouble(&self, trouble: Option<&Trouble>) -> Option<()> {
        self.watched.gate.pass(self.number, || {
            let before = std::mem::replace(&mut *lock(&self.watched.trouble), trouble.cloned());
            if before.map(|trouble| trouble.kind) != trouble.map(|trouble| trouble.kind) {
                self.shared.notify(|listener| listener.troubled(&self.watched.scope, trouble));
            }
        })
    }
}

impl Watched {
    /// The kind, as users type it after `kubectl get`.
    fn words(&self) -> String {
        match self.scope.group.as_str() {
            "" => self.scope.plural.clone(),
            group => format!("{}.{group}", self.scope.plural),
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
