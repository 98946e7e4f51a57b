//! Which changes concern which objects.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock};

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::ApiResource;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::{Resource, ResourceExt};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::relations::{Related, Relations};
use super::{Context, Shared, Wakes, is_cluster_scoped};
use crate::conditions::{READY, RECONCILING, STALLED};
use crate::health::Expected;
use crate::object::group_of;
use crate::operator::{Note, Operator, Reconciled};
use crate::queue::Key;
use crate::watch::{self, Change, Concerns, Scope};

/// The watches of an operator, in addition to the one on its own kind.
pub struct Watches<K> {
    context: Context,
    wakes: Wakes,
    tasks: Vec<BoxFuture<'static, ()>>,
    related: Relating<K>,
}

/// How objects of a kind relate to each other, and how that is read from an object.
pub(super) struct Relating<K> {
    read: Arc<OnceLock<Box<Read<K>>>>,
    known: Arc<Mutex<Related>>,
}

type Read<K> = dyn Fn(&K) -> Relations + Send + Sync;

impl<K> Clone for Relating<K> {
    fn clone(&self) -> Self {
        Self { read: self.read.clone(), known: self.known.clone() }
    }
}

impl<K> Default for Relating<K> {
    fn default() -> Self {
        Self { read: Arc::default(), known: Arc::default() }
    }
}

impl<K: Reconciled> Relating<K> {
    /// Records an object in its current form. Returns the objects that this concerns.
    fn put(&self, key: &Key, object: &K) -> BTreeSet<Key> {
        let Some(read) = self.read.get() else { return BTreeSet::new() };
        // One malformed object must not end the watch on all the others.
        let relations = std::panic::catch_unwind(AssertUnwindSafe(|| read(object))).unwrap_or_else(|_| {
            tracing::error!(object = %key, "internal error: cannot determine the names that the object refers to");
            Relations::default()
        });
        crate::lock(&self.known).put(key, relations)
    }

    fn remove(&self, key: &Key) -> BTreeSet<Key> {
        crate::lock(&self.known).remove(key)
    }
}

impl<K: Reconciled> Watches<K> {
    /// Wakes an object when something that it owns by a controller reference changes or goes.
    pub fn owns<C>(&mut self) -> &mut Self
    where
        C: Resource<DynamicType = (), Scope: 'static>,
    {
        self.concerns::<C>(None, |object| {
            let references = object.owner_references().iter();
            references
                .filter(|r| {
                    r.controller == Some(true) && r.kind == K::kind(&()) && group_of(&r.api_version) == K::group(&())
                })
                .map(|r| Key {
                    namespace: if is_cluster_scoped::<K>() { None } else { object.namespace() },
                    name: r.name.clone(),
                })
                .collect()
        })
    }

    /// Wakes objects when something that concerns them changes or goes; `keys_of` returns their keys from its metadata.
    pub fn concerns<C>(
        &mut self,
        labels: Option<&str>,
        keys_of: impl Fn(&PartialObjectMeta<DynamicObject>) -> Vec<Key> + Send + Sync + 'static,
    ) -> &mut Self
    where
        C: Resource<DynamicType = (), Scope: 'static>,
    {
        let cluster = std::any::TypeId::of::<C::Scope>() == std::any::TypeId::of::<kube::core::ClusterResourceScope>();
        let keys_of = Arc::new(keys_of);
        for scope in scopes(&self.context, &ApiResource::erase::<C>(&()), cluster, labels) {
            let changes = watch::metadata(self.context.client(), &scope, self.context.metrics());
            let (wakes, keys_of) = (self.wakes.clone(), keys_of.clone());
            let first = self.context.health().expect(&scope.words());
            self.tasks.push(follow(changes, wakes, keys_of, first).boxed());
        }
        self
    }

    /// Declares the names under which objects are known and the names that they refer to. A change of an object wakes
    /// the objects that refer to it, and those that it refers to now or referred to before. For objects of another
    /// kind, use [`Watches::named`].
    pub fn relate(&mut self, read: impl Fn(&K) -> Relations + Send + Sync + 'static) -> &mut Self {
        // If this is called twice, the first call counts.
        let _ = self.related.read.set(Box::new(read));
        self
    }

    /// Wakes objects when something of another kind that they refer to changes or goes; `name_of` returns its name, as
    /// used in [`Watches::relate`], from its namespace and name.
    pub fn named<C>(&mut self, name_of: impl Fn(&Key) -> String + Send + Sync + 'static) -> &mut Self
    where
        C: Resource<DynamicType = (), Scope: 'static>,
    {
        let naming = self.naming();
        self.concerns::<C>(None, move |object| naming(&name_of(&Key::of(object))))
    }

    /// Returns the objects that refer to a name of [`Watches::relate`], for use in [`Watches::concerns`].
    pub fn naming(&self) -> impl Fn(&str) -> Vec<Key> + Send + Sync + 'static {
        let known = self.related.known.clone();
        move |name| crate::lock(&known).naming(name).into_iter().collect()
    }

    /// A handle with which the operator itself can trigger a reconcile, from a watch of its own.
    pub fn wakes(&self) -> Wakes {
        self.wakes.clone()
    }
}

async fn follow(
    changes: impl Stream<Item = Change<PartialObjectMeta<DynamicObject>>>,
    wakes: Wakes,
    keys_of: Arc<impl Fn(&PartialObjectMeta<DynamicObject>) -> Vec<Key>>,
    first: Expected,
) {
    let mut concerns = Concerns::default();
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.next().await {
        let wake = match change {
            Change::Observed(object) => {
                // One malformed object must not end the watch on all the others.
                let keys = std::panic::catch_unwind(AssertUnwindSafe(|| keys_of(&object))).unwrap_or_else(|_| {
                    tracing::error!(object = %Key::of(&object), "internal error: cannot determine which objects a change concerns");
                    Vec::new()
                });
                concerns.observed(Key::of(&object), keys)
            }
            Change::Gone(key) => concerns.gone(&key),
            Change::Synced => {
                first.came();
                Vec::new()
            }
        };
        for key in &wake {
            wakes.wake(key);
        }
    }
}

/// Starts the operator's watches and the one on its own kind. They end when the set is dropped.
pub(super) fn start<O: Operator>(shared: &Arc<Shared<O>>) -> JoinSet<()> {
    let mut watches = Watches {
        context: shared.context.clone(),
        wakes: shared.wakes.clone(),
        tasks: Vec::new(),
        related: shared.related.clone(),
    };
    shared.operator.watches(&mut watches);
    let mut tasks = JoinSet::new();
    for task in watches.tasks {
        tasks.spawn(task);
    }
    let (sender, receiver) = mpsc::channel(QUEUED_EVENTS);
    tasks.spawn(emit(shared.context.clone(), receiver));
    let resource = ApiResource::erase::<O::Object>(&());
    for scope in scopes(&shared.context, &resource, is_cluster_scoped::<O::Object>(), None) {
        tasks.spawn(follow_roots(shared.clone(), scope, sender.clone()));
    }
    tasks
}

/// How many Events about unreadable objects may wait to be emitted. The watch does not wait for them, so that it can go
/// on with other objects.
const QUEUED_EVENTS: usize = 64;

/// An Event to emit, and the object that it is about.
type QueuedEvent = (ObjectReference, Note);

/// Emits Events, one after another.
async fn emit(context: Context, mut events: mpsc::Receiver<QueuedEvent>) {
    while let Some((about, note)) = events.recv().await {
        context.events().emit(&about, &note).await;
    }
}

async fn follow_roots<O: Operator>(shared: Arc<Shared<O>>, scope: Scope, events: mpsc::Sender<QueuedEvent>) {
    // The unreadable objects that have had an Event: a list returns all of them again.
    let mut reported: HashMap<Key, ObjectReference> = HashMap::new();
    let first = shared.context.health().expect(&scope.words());
    let changes = watch::lean_objects(shared.context.client(), &scope, shared.context.metrics());
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.next().await {
        match change {
            Change::Observed(object) => {
                let key = Key::of(&object);
                let reference = reference(&scope.resource, &object);
                let going = object.meta().deletion_timestamp.is_some();
                match watch::parse::<O::Object>(object) {
                    Ok(object) => {
                        let known = shared.cache.get(&key);
                        // A failing object already has its next reconcile; the watch event from its own status update
                        // is no reason to come early.
                        let is_own_summary = shared.backoff().failures(&key) > 0
                            && known.is_some_and(|known| differ_in_summary_only(known.as_ref(), &object));
                        reported.remove(&key);
                        shared.related.put(&key, &object).iter().for_each(|key| shared.wakes.wake(key));
                        shared.cache.put(object);
                        if is_own_summary {
                            continue;
                        }
                    }
                    Err(reason) => {
                        shared.cache.remove(&key);
                        if reported.get(&key) != Some(&reference)
                            && events.try_send((reference.clone(), unreadable(&shared, &key, &reason, going))).is_ok()
                        {
                            reported.insert(key.clone(), reference);
                        }
                    }
                }
                shared.wakes.wake(&key);
            }
            Change::Gone(key) => {
                reported.remove(&key);
                shared.related.remove(&key).iter().for_each(|key| shared.wakes.wake(key));
                shared.cache.remove(&key);
                shared.wakes.wake(&key);
            }
            Change::Synced => {
                tracing::debug!(kind = %scope.resource.kind, "the first list is complete");
                first.came();
            }
        }
    }
}

/// Whether two versions of an object differ at most in their summary conditions.
fn differ_in_summary_only<K: serde::Serialize>(one: &K, other: &K) -> bool {
    let without_summary = |object: &K| {
        let mut object = serde_json::to_value(object).ok()?;
        for field in ["resourceVersion", "managedFields"] {
            object["metadata"].as_object_mut()?.remove(field);
        }
        if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
            conditions
                .retain(|condition| ![READY, RECONCILING, STALLED].contains(&condition["type"].as_str().unwrap_or("")));
        }
        Some(object)
    };
    // Serializing a foreign type may panic; the watch must not.
    let same = || without_summary(one).is_some_and(|one| Some(one) == without_summary(other));
    std::panic::catch_unwind(AssertUnwindSafe(same)).unwrap_or(false)
}

/// The Event for an object whose fields do not fit the type, or are nested too deeply: an old version, or a CRD without
/// a schema. The object is left alone.
fn unreadable<O: Operator>(shared: &Shared<O>, key: &Key, reason: &str, going: bool) -> Note {
    let held =
        if going { " Until then it is not deleted, because a finalizer of this operator may hold it." } else { "" };
    let message =
        format!("This object cannot be read and is not reconciled: {reason}. Correct it to have it reconciled.{held}");
    tracing::warn!(kind = %Shared::<O>::kind(), object = %key, "{message}");
    shared.context.metrics().error(&Shared::<O>::kind(), crate::error::Class::Invalid);
    Note::warning("Unreadable", message)
}

fn reference(resource: &ApiResource, object: &impl Resource) -> ObjectReference {
    ObjectReference {
        api_version: Some(resource.api_version.clone()),
        kind: Some(resource.kind.clone()),
        namespace: object.namespace(),
        name: Some(object.name_any()),
        uid: object.uid(),
        resource_version: object.resource_version(),
        ..ObjectReference::default()
    }
}

/// One scope per watched namespace; a single one for all namespaces if the kind is cluster-scoped or no namespace was
/// chosen.
fn scopes(context: &Context, resource: &ApiResource, cluster: bool, labels: Option<&str>) -> Vec<Scope> {
    let scope = |namespace: Option<&String>| Scope {
        resource: resource.clone(),
        namespace: namespace.cloned(),
        labels: labels.map(str::to_owned),
        lives: context.limits().watch,
    };
    if cluster || context.namespaces().is_empty() {
        vec![scope(None)]
    } else {
        context.namespaces().iter().map(|namespace| scope(Some(namespace))).collect()
    }
}
