//! The registry with watches that the test controls.

use std::collections::VecDeque;

use futures::stream;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ObjectMeta;
use kube::core::Status;
use tokio::sync::mpsc;

use super::*;

/// The reports that a listener received, as text.
#[derive(Default)]
struct Log {
    reports: Mutex<Vec<String>>,
    changed: Notify,
    /// An object on which the listener panics.
    poison: Mutex<Option<String>>,
}

impl Log {
    fn note(&self, scope: &ScopeId, what: &str) {
        lock(&self.reports).push(format!("{scope}: {what}"));
        self.changed.notify_one();
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.reports))
    }

    /// Waits for this report, and returns the reports up to it.
    async fn until(&self, last: &str) -> Vec<String> {
        let report = async {
            loop {
                let changed = self.changed.notified();
                {
                    let mut all = lock(&self.reports);
                    if let Some(place) = all.iter().position(|report| report == last) {
                        return all.drain(..=place).collect();
                    }
                }
                changed.await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_mins(15), report).await;
        waited.unwrap_or_else(|_| panic!("{last:?} is not reported: {:?}", self.take()))
    }
}

impl Listener for Log {
    fn opened(&self, scope: &ScopeId, opening: Opening) {
        self.note(scope, &format!("{opening:?}"));
    }

    fn changed(&self, scope: &ScopeId, change: Change<DynamicObject>) {
        let name = match &change {
            Change::Observed(object) => object.metadata.name.clone().unwrap(),
            Change::Gone(key) => format!("{key} gone"),
            Change::Synced => "all".to_owned(),
        };
        assert!(lock(&self.poison).as_ref() != Some(&name), "{name} is poison");
        self.note(scope, &name);
    }

    fn missed(&self, scope: &ScopeId) {
        self.note(scope, "missed");
    }

    fn troubled(&self, scope: &ScopeId, trouble: Option<&Trouble>) {
        self.note(scope, &trouble.map_or("fine".to_owned(), |trouble| format!("{:?}", trouble.kind)));
    }

    fn closed(&self, scope: &ScopeId) {
        self.note(scope, "closed");
    }
}

type WatchEvent = watcher::Result<Event<DynamicObject>>;

/// Simulated watches: each begins with a list of what exists, and then emits the events that it is sent.
#[derive(Clone, Default)]
struct SimulatedWatches(Arc<Mutex<Simulation>>);

#[derive(Default)]
struct Simulation {
    there: Vec<String>,
    /// The errors of the next lists, one after another.
    failures: VecDeque<u16>,
    opened: Vec<mpsc::UnboundedSender<WatchEvent>>,
}

impl SimulatedWatches {
    fn there(&self, names: &[&str]) {
        lock(&self.0).there = names.iter().map(|name| (*name).to_owned()).collect();
    }

    fn lists(&self) -> usize {
        lock(&self.0).opened.len()
    }

    /// Sends an event on the watch with this number.
    fn send(&self, number: usize, event: Event<DynamicObject>) {
        // The receiver may be gone.
        let _ = lock(&self.0).opened[number].send(Ok(event));
    }

    fn begin(&self) -> BoxStream<'static, WatchEvent> {
        let (send, mut receive) = mpsc::unbounded_channel();
        let mut simulation = lock(&self.0);
        simulation.opened.push(send);
        let failing: Vec<WatchEvent> = simulation.failures.drain(..).map(|code| Err(failure(code))).collect();
        let there = simulation.there.iter().map(|name| Ok(Event::InitApply(object(name))));
        let list = [Ok(Event::Init)].into_iter().chain(there).chain([Ok(Event::InitDone)]);
        let list: Vec<WatchEvent> = failing.into_iter().chain(list).collect();
        let later = stream::poll_fn(move |context| receive.poll_recv(context));
        stream::iter(list).chain(later).chain(stream::pending()).boxed()
    }
}

impl Source for SimulatedWatches {
    fn events(&self, _: &ScopeId) -> BoxStream<'static, WatchEvent> {
        super::super::paced(self.begin()).boxed()
    }
}

fn object(name: &str) -> DynamicObject {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    DynamicObject { types: None, metadata, data: serde_json::Value::Null }
}

fn failure(code: u16) -> watcher::Error {
    let status = Status::failure("made up", "MadeUp").with_code(code);
    watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
}

fn maps() -> ScopeId {
    ScopeId::of::<ConfigMap>(None)
}

fn key(name: &str) -> Key {
    Key { namespace: None, name: name.to_owned() }
}

fn wanted(scopes: &[ScopeId], resync: Option<Duration>) -> Subscription {
    Subscription { scopes: scopes.iter().cloned().collect(), resync }
}

fn simulated(there: &[&str]) -> (Registry, Arc<Log>, SimulatedWatches) {
    let (log, watches) = (Arc::new(Log::default()), SimulatedWatches::default());
    watches.there(there);
    let listener: Weak<Log> = Arc::downgrade(&log);
    let metrics = Metrics::new(crate::build_info!()).unwrap();
    (Registry::over(Box::new(watches.clone()), listener, metrics), log, watches)
}

#[tokio::test(start_paused = true)]
async fn a_scope_is_open_as_long_as_someone_wants_it_and_all_share_one_list() {
    let (registry, log, watches) = simulated(&["a"]);
    let secrets = ScopeId::of::<Secret>(Some("shop".to_owned()));
    registry.subscribe(&key("one"), &wanted(&[maps()], None));
    registry.subscribe(&key("two"), &wanted(&[maps()], None));
    assert_eq!(log.until("configmaps: all").await, ["configmaps: First", "configmaps: a", "configmaps: all"]);
    registry.subscribe(&key("one"), &wanted(std::slice::from_ref(&secrets), None));
    log.until("secrets in shop: all").await;
    assert_eq!(registry.scopes(), [maps(), secrets].into());
    registry.unsubscribe(&key("two"));
    assert_eq!(log.take(), ["configmaps: closed"]);
    registry.unsubscribe(&key("one"));
    assert_eq!(log.take(), ["secrets in shop: closed"]);
    assert_eq!((registry.scopes().len(), watches.lists()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_replaced_or_closed_can_report_nothing_any_more() {
    let (registry, log, watches) = simulated(&["a"]);
    registry.subscribe(&key("one"), &wanted(&[maps()], None));
    log.until("configmaps: all").await;
    // Both events are still undelivered when the watch is replaced: nothing runs here except what is awaited.
    watches.send(0, Event::Apply(object("late")));
    watches.send(0, Event::InitDone);
    watches.there(&["b"]);
    registry.relist(&[maps()].into());
    let reports = log.until("configmaps: all").await;
    assert_eq!(reports, ["configmaps: Asked", "configmaps: b", "configmaps: a gone", "configmaps: all"]);
    watches.send(1, Event::InitDone);
    registry.unsubscribe(&key("one"));
    registry.subscribe(&key("two"), &wanted(&[maps()], None));
    let reports = log.until("configmaps: all").await;
    assert_eq!(reports, ["configmaps: closed", "configmaps: First", "configmaps: b", "configmaps: all"]);
}

#[tokio::test(start_paused = true)]
async fn what_went_between_two_generations_is_reported_as_gone() {
    let (registry, log, watches) = simulated(&["a", "b"]);
    registry.subscribe(&key("one"), &wanted(&[maps()], None));
    log.until("configmaps: all").await;
    watches.there(&["a"]);
    registry.relist(&[maps()].into());
    let reports = log.until("configmaps: all").await;
    assert_eq!(reports, ["configmaps: Asked", "configmaps: a", "configmaps: b gone", "configmaps: all"]);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_gets_the_other_changes_and_soon_everything_again() {
    let (registry, log, watches) = simulated(&["a", "b", "c"]);
    *lock(&log.poison) = Some("b".to_owned());
    registry.subscribe(&key("one"), &wanted(&[maps()], None));
    let reports = log.until("configmaps: Recovery").await;
    let without_all = ["First", "a", "missed", "c", "Recovery"].map(|what| format!("configmaps: {what}"));
    assert_eq!(reports, without_all, "what is missing may not be taken for gone");
    *lock(&log.poison) = None;
    log.until("configmaps: all").await;
    // It receives what happens from now on; what it missed is reported again, including that something is gone.
    *lock(&log.poison) = Some("b gone".to_owned());
    watches.there(&["a", "c"]);
    watches.send(watches.lists() - 1, Event::Delete(object("b")));
    log.until("configmaps: Recovery").await;
    *lock(&log.poison) = None;
    let reports = log.until("configmaps: all").await;
    assert!(reports.contains(&"configmaps: b gone".to_owned()), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_resync_costs_one_list_however_many_want_it_and_comes_in_time() {
    let (registry, log, watches) = simulated(&["a"]);
    for subscriber in 0..50 {
        registry.subscribe(&key(&subscriber.to_string()), &wanted(&[maps()], Some(Duration::from_mins(10))));
    }
    registry.subscribe(&key("often"), &wanted(&[maps()], Some(Duration::from_mins(1))));
    log.until("configmaps: all").await;
    let began = tokio::time::Instant::now();
    for resync in 1..=5 {
        let reports = log.until("configmaps: all").await;
        assert_eq!(reports, ["configmaps: Resync", "configmaps: a", "configmaps: all"]);
        assert_eq!(watches.lists(), 1 + resync);
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(270) && took <= Duration::from_secs(301), "{took:?}");
    registry.unsubscribe(&key("often"));
    let began = tokio::time::Instant::now();
    log.until("configmaps: all").await;
    assert!(began.elapsed() > Duration::from_secs(500), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_remembered_and_reported_until_it_is_there() {
    let (registry, log, watches) = simulated(&["a"]);
    lock(&watches.0).failures = [403; 8].into();
    registry.subscribe(&key("one"), &wanted(&[maps()], None));
    assert_eq!(registry.troubles(&[maps()].into()), []);
    assert_eq!(log.until("configmaps: Forbidden").await, ["configmaps: First", "configmaps: Forbidden"]);
    let troubles = registry.troubles(&[maps()].into());
    assert_eq!((troubles.len(), troubles[0].1.kind), (1, TroubleKind::Forbidden));
    let reports = log.until("configmaps: all").await;
    assert_eq!(reports, ["configmaps: fine", "configmaps: a", "configmaps: all"]);
    assert_eq!(registry.troubles(&[maps()].into()), []);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_passes_by_itself_is_no_trouble() {
    let (registry, log, watches) = simulated(&["a"]);
    lock(&watches.0).failures = [503, 403, 403, 401].into();
    registry.subscribe(&key("one"), &wanted(&[maps()], None));
    assert_eq!(log.until("configmaps: all").await, ["configmaps: First", "configmaps: a", "configmaps: all"]);
}
