//! Watches that miss nothing.
//!
//! kube's watcher survives cut connections and expired versions by listing again. It does not report objects that
//! disappeared in the gap, so a caller that waits for such a delete would wait for ever. Here each list is compared
//! with the objects known before, and missing objects are reported as gone.
//!
//! # Guarantees
//!
//! - Whatever happens to the connection, each known object that no longer exists is eventually reported as
//!   [`Change::Gone`], and each object that exists is eventually reported in its latest form.
//! - An object that cannot be read is reported as unreadable, and the watch continues with the others.
//! - The stream does not end. Errors are logged, counted and retried with a growing delay.

pub mod discovery;
mod lean;
pub mod registry;
mod scope;
mod supervise;

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt, future, stream};
use kube::api::ApiResource;
use kube::core::{DynamicObject, DynamicResourceScope, PartialObjectMeta};
use kube::{Api, Client, Resource};
use kube_runtime::WatchStreamExt;
use kube_runtime::watcher::{self, Event};
use serde::de::DeserializeOwned;

use self::lean::{DEEPEST, Everything, Lean, Nothing, Unmanaged};
use crate::error::values;
use crate::metrics::Metrics;
use crate::queue::Key;

pub use discovery::Discovery;
pub use registry::Registry;
pub use scope::ScopeId;

/// What happened to the watched objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<T> {
    /// The object exists, in this form.
    Observed(T),
    /// The object no longer exists.
    Gone(Key),
    /// A complete list has been reported.
    Synced,
}

impl<T> Change<T> {
    fn map<U>(self, with: impl FnOnce(T) -> U) -> Change<U> {
        match self {
            Self::Observed(object) => Change::Observed(with(object)),
            Self::Gone(key) => Change::Gone(key),
            Self::Synced => Change::Synced,
        }
    }
}

/// What to watch: a kind, in a namespace or in all, all objects or those with certain labels.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The kind.
    pub resource: ApiResource,
    /// The namespace, or none for all.
    pub namespace: Option<String>,
    /// A label selector, or none for all.
    pub labels: Option<String>,
    /// How long a watch connection lives before it is reopened.
    pub lives: Duration,
}

/// How many objects one page of a list has: all objects of a page are in memory at once.
const PAGE: u32 = 100;

impl Scope {
    fn api<T>(&self, client: &Client) -> Api<T>
    where
        T: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    fn config(&self) -> watcher::Config {
        watcher::Config {
            label_selector: self.labels.clone(),
            timeout: Some(u32::try_from(self.lives.as_secs()).unwrap_or(u32::MAX).max(1)),
            page_size: Some(PAGE),
            ..watcher::Config::default()
        }
    }

    /// The kind, as users type it after `kubectl get`.
    pub fn words(&self) -> String {
        match self.resource.group.as_str() {
            "" => self.resource.plural.clone(),
            group => format!("{}.{group}", self.resource.plural),
        }
    }
}

/// An object as it is read, without its managed fields, which no caller needs. [`parse`] converts it to a kind or says
/// why not.
pub(crate) type Object = Lean<Unmanaged>;

/// The changes of whole objects. Parts that are nested too deeply to be read are null.
pub(crate) fn objects(
    client: &Client,
    scope: &Scope,
    metrics: &Metrics,
) -> impl Stream<Item = Change<DynamicObject>> + Send + use<> {
    let events = watcher::watcher(scope.api::<Lean<Everything>>(client), scope.config());
    changes(events, scope.words(), metrics.clone()).map(|change| change.map(DynamicObject::from))
}

/// The changes of whole objects without their managed fields.
pub(crate) fn lean_objects(
    client: &Client,
    scope: &Scope,
    metrics: &Metrics,
) -> impl Stream<Item = Change<Object>> + Send + use<> {
    changes(watcher::watcher(scope.api(client), scope.config()), scope.words(), metrics.clone())
}

/// The changes of objects of which only the metadata matters, without managed fields. This takes a fraction of the
/// memory and the traffic.
pub(crate) fn metadata(
    client: &Client,
    scope: &Scope,
    metrics: &Metrics,
) -> impl Stream<Item = Change<PartialObjectMeta<DynamicObject>>> + Send + use<> {
    let events = watcher::watcher(scope.api::<Lean<Nothing>>(client), scope.config());
    changes(events, scope.words(), metrics.clone()).map(|change| change.map(PartialObjectMeta::from))
}

/// The events of whole objects in their order, with growing delays after failures. The start of a list is left out.
fn events_of_objects(
    client: &Client,
    scope: &Scope,
) -> impl Stream<Item = watcher::Result<Event<DynamicObject>>> + Send + use<> {
    let events = watcher::watcher(scope.api::<Lean<Everything>>(client), scope.config());
    paced(events.map(|event| {
        event.map(|event| match event {
            Event::Init => Event::Init,
            Event::InitApply(object) => Event::InitApply(object.into()),
            Event::InitDone => Event::InitDone,
            Event::Apply(object) => Event::Apply(object.into()),
            Event::Delete(object) => Event::Delete(object.into()),
        })
    }))
}

/// Adds growing delays after failures. The start of a list does not count as success: it would reset the delays, and a
/// failing list would be retried at once. It is left out of the stream.
fn paced<T: Send>(
    events: impl Stream<Item = watcher::Result<Event<T>>> + Send,
) -> impl Stream<Item = watcher::Result<Event<T>>> + Send {
    events.filter(|event| future::ready(!matches!(event, Ok(Event::Init)))).backoff(Pace::default())
}

fn changes<T>(
    events: impl Stream<Item = watcher::Result<Event<T>>> + Send,
    resource: String,
    metrics: Metrics,
) -> impl Stream<Item = Change<T>> + Send
where
    T: Resource + Send,
{
    let mut known = Known::default();
    // The start of a list does not count as success: it would reset the delays, and a failing list would be retried at
    // once.
    let reported = events.filter_map(move |event| {
        let changes = event.map(|event| known.translate(event));
        future::ready(Some(changes).filter(|changes| !changes.as_ref().is_ok_and(Vec::is_empty)))
    });
    reported.backoff(Pace::default()).flat_map(move |changes| {
        let changes = changes.unwrap_or_else(|error| {
            metrics.watch_broke(&resource);
            tracing::warn!(%resource, "a watch broke and is restarted: {}", crate::error::chain(&error));
            Vec::new()
        });
        stream::iter(changes)
    })
}

/// The objects that were reported as existing.
#[derive(Debug, Default)]
struct Known {
    keys: HashSet<Key>,
    /// The objects that the current list has returned so far.
    listed: Option<HashSet<Key>>,
}

impl Known {
    /// The listener failed on the last report about this object: the object counts as existing until it is reported
    /// gone.
    fn again(&mut self, key: Key) {
        self.keys.insert(key);
    }

    /// Drops the current list, if any, so that the next one starts empty.
    fn restart(&mut self) {
        self.listed = None;
    }

    fn translate<T: Resource>(&mut self, event: Event<T>) -> Vec<Change<T>> {
        match event {
            Event::Init => {
                self.listed = Some(HashSet::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                let key = Key::of(&object);
                self.keys.insert(key.clone());
                self.listed.get_or_insert_default().insert(key);
                vec![Change::Observed(object)]
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let vanished: Vec<Key> = self.keys.difference(&listed).cloned().collect();
                self.keys = listed;
                vanished.into_iter().map(Change::Gone).chain([Change::Synced]).collect()
            }
            Event::Apply(object) => {
                self.keys.insert(Key::of(&object));
                vec![Change::Observed(object)]
            }
            Event::Delete(object) => {
                let key = Key::of(&object);
                self.keys.remove(&key);
                vec![Change::Gone(key)]
            }
        }
    }
}

/// Parses an object as one of our kinds, or returns the reason why it cannot be read.
pub(crate) fn parse<K: DeserializeOwned>(object: Object) -> Result<K, String> {
    if object.is_too_deep() {
        return Err(format!("it is nested more than {DEEPEST} levels deep"));
    }
    let value = serde_json::to_value(DynamicObject::from(object)).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| values::of_serde(&error.to_string()))
}

/// The delays between attempts to open a watch. kube's own grow to half a minute, which is long for a cluster that has
/// just recovered.
#[derive(Clone, Debug)]
struct Pace {
    next: Duration,
}

const FIRST_DELAY: Duration = Duration::from_millis(200);
const LONGEST_DELAY: Duration = Duration::from_secs(10);

impl Default for Pace {
    fn default() -> Self {
        Self { next: FIRST_DELAY }
    }
}

impl Iterator for Pace {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = self.next;
        self.next = (delay * 2).min(LONGEST_DELAY);
        Some(delay)
    }
}

impl kube_runtime::utils::Backoff for Pace {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// For each watched object, our objects that it concerns, so that they are also woken when it is gone.
#[derive(Debug, Default)]
pub(crate) struct Concerns(HashMap<Key, Vec<Key>>);

impl Concerns {
    /// Records that an object concerns `now`. Returns the keys to wake: those, and the ones that it concerned before.
    pub(crate) fn observed(&mut self, object: Key, now: Vec<Key>) -> Vec<Key> {
        let mut wake = now.clone();
        let before = if now.is_empty() { self.0.remove(&object) } else { self.0.insert(object, now) };
        wake.extend(before.into_iter().flatten().filter(|key| !wake.contains(key)).collect::<Vec<_>>());
        wake
    }

    /// Removes an object that is gone. Returns the keys to wake.
    pub(crate) fn gone(&mut self, object: &Key) -> Vec<Key> {
        self.0.remove(object).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::TypeMeta;
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> DynamicObject {
        let types = TypeMeta { api_version: "v1".to_owned(), kind: "ConfigMap".to_owned() };
        DynamicObject {
            types: Some(types),
            metadata: kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
            data: serde_json::Value::Null,
        }
    }

    fn key(name: &str) -> Key {
        Key { namespace: None, name: name.to_owned() }
    }

    #[test]
    fn what_vanished_while_the_watch_was_away_is_reported_gone() {
        let mut known = Known::default();
        for event in [Event::Init, Event::InitApply(object("stays")), Event::InitApply(object("goes")), Event::InitDone]
        {
            known.translate(event);
        }
        known.translate::<DynamicObject>(Event::Init);
        known.translate(Event::InitApply(object("stays")));
        assert_eq!(known.translate::<DynamicObject>(Event::InitDone), [Change::Gone(key("goes")), Change::Synced]);
        // It is not reported a second time.
        known.translate::<DynamicObject>(Event::Init);
        known.translate(Event::InitApply(object("stays")));
        assert_eq!(known.translate::<DynamicObject>(Event::InitDone), [Change::Synced]);
    }

    #[test]
    fn an_object_of_ours_is_kept_without_its_managed_fields() {
        let object = json!({"metadata": {"name": "mine", "managedFields": [{"manager": "m"}]}});
        let parsed: ConfigMap = parse(serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!((parsed.metadata.name.as_deref(), parsed.metadata.managed_fields), (Some("mine"), None));
    }

    #[test]
    fn an_object_that_is_too_deep_is_not_taken_for_one_that_lacks_something() {
        // Without the part that is too deep, the object would parse.
        let attic = (0..150).fold(json!("dust"), |inside, _| json!({ "box": inside }));
        let object = json!({"metadata": {"name": "odd"}, "data": {"a": "b"}, "attic": attic});
        let words = parse::<ConfigMap>(serde_json::from_value(object).unwrap()).unwrap_err();
        assert_eq!(words, "it is nested more than 100 levels deep");
    }

    #[test]
    fn an_object_that_changes_hands_wakes_both_owners_and_its_end_wakes_the_last() {
        let mut concerns = Concerns::default();
        assert_eq!(concerns.observed(key("page"), vec![key("a")]), [key("a")]);
        assert_eq!(concerns.observed(key("page"), vec![key("b")]), [key("b"), key("a")]);
        assert_eq!(concerns.gone(&key("page")), [key("b")]);
        assert_eq!(concerns.gone(&key("page")), [] as [Key; 0]);
    }

    #[test]
    fn an_object_that_does_not_fit_is_described_without_its_values() {
        let secret = json!({"metadata": {"name": "front"}, "data": "hunter2"});
        let words = parse::<ConfigMap>(serde_json::from_value(secret).unwrap()).unwrap_err();
        assert_eq!(words, "invalid type: string \"…\", expected a map");
    }

    #[test]
    fn attempts_slow_down_and_start_over_after_a_success() {
        use kube_runtime::utils::Backoff as _;
        let mut pace = Pace::default();
        let delays: Vec<u128> = pace.by_ref().take(8).map(|delay| delay.as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        pace.reset();
        assert_eq!(pace.next(), Some(FIRST_DELAY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_keeps_failing_is_asked_for_more_and_more_slowly() {
        let (asked, began) = (Arc::new(Mutex::new(Vec::new())), tokio::time::Instant::now());
        let log = asked.clone();
        let list = move |n: usize| {
            if n.is_multiple_of(2) {
                return Ok(Event::<DynamicObject>::Init);
            }
            log.lock().unwrap().push(began.elapsed().as_millis());
            Err(watcher::Error::NoResourceVersion)
        };
        let metrics = Metrics::new(crate::build_info!()).unwrap();
        let changes = changes(stream::iter(0..).map(list), "odds".to_owned(), metrics);
        let waited = tokio::time::timeout(Duration::from_secs(15), std::pin::pin!(changes).next()).await;
        assert!(waited.is_err(), "{waited:?}");
        assert_eq!(*asked.lock().unwrap(), [0, 200, 600, 1400, 3000, 6200, 12_600]);
    }
}
