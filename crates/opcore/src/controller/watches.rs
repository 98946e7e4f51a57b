//! Which changes concern which objects.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::ApiResource;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::{Resource, ResourceExt};
use tokio::task::JoinSet;

use super::{Context, Shared, Wakes, is_cluster_scoped};
use crate::health::Expected;
use crate::operator::{Note, Operator, Root};
use crate::queue::Key;
use crate::watch::{self, Change, Concerns, Scope};

/// The watches of an operator, beside the one on its own kind.
pub struct Watches<K> {
    context: Context,
    wakes: Wakes,
    tasks: Vec<BoxFuture<'static, ()>>,
    kind: std::marker::PhantomData<K>,
}

impl<K: Root> Watches<K> {
    /// Wakes an object when something that it owns by a controller reference changes or goes.
    pub fn owns<C>(&mut self) -> &mut Self
    where
        C: Resource<DynamicType = (), Scope: 'static>,
    {
        self.concerns::<C>(None, |object| {
            let references = object.owner_references().iter();
            references
                .filter(|r| {
                    r.controller == Some(true) && r.kind == K::kind(&()) && api_group(&r.api_version) == K::group(&())
                })
                .map(|r| Key {
                    namespace: if is_cluster_scoped::<K>() { None } else { object.namespace() },
                    name: r.name.clone(),
                })
                .collect()
        })
    }

    /// Wakes objects when something that concerns them changes or goes; `whom` tells which, from its metadata.
    pub fn concerns<C>(
        &mut self,
        labels: Option<&str>,
        whom: impl Fn(&PartialObjectMeta<DynamicObject>) -> Vec<Key> + Send + Sync + 'static,
    ) -> &mut Self
    where
        C: Resource<DynamicType = (), Scope: 'static>,
    {
        let cluster = std::any::TypeId::of::<C::Scope>() == std::any::TypeId::of::<kube::core::ClusterResourceScope>();
        let whom = Arc::new(whom);
        for scope in scopes(&self.context, &ApiResource::erase::<C>(&()), cluster, labels) {
            let changes = watch::metadata(self.context.client(), &scope, self.context.metrics());
            let (wakes, whom) = (self.wakes.clone(), whom.clone());
            let first = self.context.health().expect(&scope.words());
            self.tasks.push(follow(changes, wakes, whom, first).boxed());
        }
        self
    }

    /// A handle by which the operator itself can have an object looked at, from a watch of its own.
    pub fn wakes(&self) -> Wakes {
        self.wakes.clone()
    }
}

async fn follow(
    changes: impl Stream<Item = Change<PartialObjectMeta<DynamicObject>>>,
    wakes: Wakes,
    whom: Arc<impl Fn(&PartialObjectMeta<DynamicObject>) -> Vec<Key>>,
    first: Expected,
) {
    let mut concerns = Concerns::default();
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.next().await {
        let wake = match change {
            Change::Seen(object) => {
                // One odd object must not end the watch on all the others.
                let whom = std::panic::catch_unwind(AssertUnwindSafe(|| whom(&object))).unwrap_or_else(|_| {
                    tracing::error!(object = %Key::of(&object), "a fault in this program: whom it concerns cannot be told");
                    Vec::new()
                });
                concerns.seen(Key::of(&object), whom)
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

/// Starts the operator's watches and the one on its own kind. They end with the set.
pub(super) fn start<O: Operator>(shared: &Arc<Shared<O>>) -> JoinSet<()> {
    let mut watches = Watches {
        context: shared.context.clone(),
        wakes: shared.wakes.clone(),
        tasks: Vec::new(),
        kind: std::marker::PhantomData::<O::Object>,
    };
    shared.operator.watches(&mut watches);
    let mut tasks = JoinSet::new();
    for task in watches.tasks {
        tasks.spawn(task);
    }
    let resource = ApiResource::erase::<O::Object>(&());
    for scope in scopes(&shared.context, &resource, is_cluster_scoped::<O::Object>(), None) {
        tasks.spawn(follow_roots(shared.clone(), scope));
    }
    tasks
}

async fn follow_roots<O: Operator>(shared: Arc<Shared<O>>, scope: Scope) {
    let first = shared.context.health().expect(&scope.words());
    let changes = watch::objects(shared.context.client(), &scope, shared.context.metrics());
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.next().await {
        match change {
            Change::Seen(object) => {
                let key = Key::of(&object);
                let reference = reference(&scope.resource, &object);
                match watch::parse::<O::Object>(object) {
                    Ok(object) => shared.cache.put(object),
                    Err(reason) => {
                        shared.cache.remove(&key);
                        unreadable(&shared, &key, reference, &reason);
                    }
                }
                shared.wakes.wake(&key);
            }
            Change::Gone(key) => {
                shared.cache.remove(&key);
                shared.wakes.wake(&key);
            }
            Change::Synced => {
                tracing::debug!(kind = %scope.resource.kind, "all objects are known");
                first.came();
            }
        }
    }
}

/// An object whose fields do not fit the type: an old version, or a CRD without a schema. It is left alone.
fn unreadable<O: Operator>(shared: &Shared<O>, key: &Key, about: ObjectReference, reason: &str) {
    tracing::warn!(kind = %Shared::<O>::kind(), object = %key, "an object cannot be read and is left alone: {reason}");
    shared.context.metrics().error(&Shared::<O>::kind(), crate::error::Class::Invalid);
    let message =
        format!("This object cannot be read and is left alone: {reason}. Correct it, and it will be taken up.");
    let note = Note::warning("Unreadable", message);
    // Not awaited here: the watch goes on with the others.
    let events = shared.context.events().clone();
    tokio::spawn(async move { events.tell(&about, &note).await });
}

fn reference(resource: &ApiResource, object: &DynamicObject) -> ObjectReference {
    ObjectReference {
        api_version: Some(resource.api_version.clone()),
        kind: Some(resource.kind.clone()),
        namespace: object.namespace(),
        name: Some(object.name_any()),
        uid: object.uid(),
        ..ObjectReference::default()
    }
}

/// One scope per watched namespace; one for all where the kind has none, or none was chosen.
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

fn api_group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
