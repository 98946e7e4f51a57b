//! What is known of the cluster: the index, and the watches and the discovery that keep it up to date.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{DynamicObject, TypeMeta};
use opcore::controller::Wakes;
use opcore::lock;
use opcore::queue::Key;
use opcore::watch::discovery::News;
use opcore::watch::registry::{Listener, Opening, Subscription, Trouble, TroubleKind};
use opcore::watch::{Change, Discovery, Registry};
use opcore::{Context, Error};
use serde_json::Value;

use crate::index::{Index, PlanName, Wake};
use crate::render::Source;
use crate::subscription::{ObjectId, ScopeId, Served, WrittenKind};

/// What is known of the cluster, and what keeps it up to date.
pub struct Live {
    context: Context,
    wakes: OnceLock<Wakes>,
    index: Mutex<Index>,
    registry: Registry,
    discovery: Arc<Discovery>,
    sources: Mutex<ReportedSources>,
}

/// The contents of the ConfigMaps with manifests, as last reported by their watches.
#[derive(Default)]
struct ReportedSources {
    sources: HashMap<ObjectId, Source>,
    /// Counts the changes.
    version: u64,
}

impl Live {
    /// Creates it with an empty index and without watches.
    pub fn new(context: &Context) -> Arc<Self> {
        Arc::new_cyclic(|live: &Weak<Self>| Self {
            context: context.clone(),
            wakes: OnceLock::new(),
            index: Mutex::new(Index::new(context.operator())),
            registry: Registry::new(context, live.clone()),
            discovery: Discovery::new(context),
            sources: Mutex::default(),
        })
    }

    /// Starts to follow the definitions of kinds, and wakes plans from now on.
    pub fn start(self: &Arc<Self>, wakes: Wakes) {
        // It is set once, when the controller starts.
        let _ = self.wakes.set(wakes);
        let live = Arc::downgrade(self);
        self.discovery.follow(move |news| {
            let Some(live) = live.upgrade() else { return };
            let plans = match news {
                News::Changed => live.index().plans().cloned().collect(),
                News::MayBeServed => live.index().plans_without_a_kind(),
            };
            live.wake(&plans);
        });
    }

    /// The index.
    pub fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    /// Returns whether the API server has these kinds.
    pub async fn served(&self, kinds: &BTreeSet<WrittenKind>) -> BTreeMap<WrittenKind, Served> {
        self.discovery.served(kinds).await
    }

    /// Returns how to address kinds of which objects may exist: in the version that is asked for or, where that is no
    /// longer served, in another version that returns the same objects.
    pub async fn served_somehow(&self, kinds: &BTreeSet<WrittenKind>) -> BTreeMap<WrittenKind, Served> {
        self.discovery.served_somehow(kinds).await
    }

    /// Records that a kind is served in this way.
    pub fn learn(&self, kind: &WrittenKind, served: Served) {
        self.discovery.learn(kind, served);
    }

    /// Changes whenever a watch reports a change in the contents of ConfigMaps.
    pub fn version_of_sources(&self) -> u64 {
        lock(&self.sources).version
    }

    /// The contents of a ConfigMap, as reported by its watch. None: not reported yet.
    pub fn reported_source(&self, id: &ObjectId) -> Option<Source> {
        lock(&self.sources).sources.get(id).cloned()
    }

    /// Reads the contents of a ConfigMap from the API server.
    ///
    /// # Errors
    ///
    /// When the API server could not be reached.
    pub async fn source(&self, id: &ObjectId) -> Result<Source, Error> {
        let namespace = id.namespace.as_deref().unwrap_or_default();
        if ![namespace, &id.name].into_iter().all(opcore::object::is_path_segment) {
            return Ok(None);
        }
        let found = self.context.reader().namespaced::<ConfigMap>(namespace).get_opt(&id.name).await?;
        Ok(found.map(|map| Arc::new(map.data.unwrap_or_default())))
    }

    /// Subscribes a plan to exactly these watches, with the interval at which everything in them must be reported
    /// again.
    pub fn watch(&self, plan: &PlanName, scopes: &BTreeSet<ScopeId>, resync: Option<Duration>) {
        self.registry.subscribe(&key(plan), &Subscription { scopes: scopes.clone(), resync });
    }

    /// Those of these watches that lack a permission.
    pub fn denied(&self, scopes: &BTreeSet<ScopeId>) -> Vec<ScopeId> {
        let troubles = self.registry.troubles(scopes).into_iter();
        troubles.filter(|(_, trouble)| trouble.kind == TroubleKind::Forbidden).map(|(scope, _)| scope).collect()
    }

    /// The watches that are open.
    pub fn watching(&self) -> BTreeSet<ScopeId> {
        self.registry.scopes()
    }

    /// Has these watches report everything again.
    pub fn reopen(&self, scopes: &BTreeSet<ScopeId>) {
        self.registry.relist(scopes);
    }

    /// Removes a plan that is gone.
    pub fn forget(&self, plan: &PlanName) {
        self.index().unsubscribe(plan);
        self.registry.unsubscribe(&key(plan));
    }

    /// Drops the contents of ConfigMaps, which may have changed without a report.
    fn forget_sources(&self, scope: &ScopeId) {
        let mut reported = lock(&self.sources);
        reported.sources.retain(|id, _| id.namespace != scope.namespace);
        reported.version += 1;
    }

    fn keep_source(&self, id: &ObjectId, source: impl FnOnce() -> Source) {
        if self.index().is_source(id) {
            let (mut reported, source) = (lock(&self.sources), source());
            if reported.sources.get(id) != Some(&source) {
                reported.sources.insert(id.clone(), source);
                reported.version += 1;
            }
        }
    }

    /// Triggers a reconcile of these plans.
    pub fn wake(&self, plans: &Wake) {
        if let Some(wakes) = self.wakes.get() {
            for plan in plans {
                wakes.wake(&key(plan));
            }
        }
    }
}

impl Listener for Live {
    fn opened(&self, scope: &ScopeId, opening: Opening) {
        let resync = opening == Opening::Resync;
        self.index().opened(scope, resync);
        if !resync {
            self.forget_sources(scope);
        }
    }

    fn changed(&self, scope: &ScopeId, change: Change<DynamicObject>) {
        let kind = scope.group_kind();
        let wake = match change {
            Change::Observed(mut object) => {
                // Items of a list have neither; the readiness rules need both.
                let resource = scope.resource();
                object.types = Some(TypeMeta { api_version: resource.api_version, kind: resource.kind });
                let id = ObjectId { kind: kind.clone(), namespace: object.namespace(), name: object.name_any() };
                let value = serde_json::to_value(&object).unwrap_or(Value::Null);
                self.keep_source(&id, || {
                    let data = value.get("data").cloned().unwrap_or_default();
                    Some(Arc::new(serde_json::from_value(data).unwrap_or_default()))
                });
                let mut index = self.index();
                index.confirm(scope, &id);
                index.observed(&kind, &value, self.context.now())
            }
            Change::Gone(Key { namespace, name }) => {
                let id = ObjectId { kind, namespace, name };
                self.keep_source(&id, || None);
                self.index().gone(scope, &id)
            }
            Change::Synced => self.index().synced(scope),
        };
        self.wake(&wake);
    }

    fn missed(&self, scope: &ScopeId) {
        self.index().missed(scope);
    }

    fn troubled(&self, scope: &ScopeId, trouble: Option<&Trouble>) {
        if trouble.is_some_and(|trouble| trouble.kind == TroubleKind::NotServed) {
            self.discovery.forget(&scope.group, &scope.plural);
        }
        let wake = self.index().troubled(scope, trouble);
        self.wake(&wake);
    }

    fn closed(&self, scope: &ScopeId) {
        self.index().closed(scope);
        self.forget_sources(scope);
    }
}

fn key(plan: &PlanName) -> Key {
    Key { namespace: None, name: plan.to_string() }
}
