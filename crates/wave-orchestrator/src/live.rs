//! The watches behind the index: opened for the kinds that plans mention, closed when no plan does any more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, TypeMeta};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::discovery::{self, ApiCapabilities, ApiGroup, Scope as KindScope};
use kube::{Api, ResourceExt};
use opcore::controller::Wakes;
use opcore::lock;
use opcore::queue::Key;
use opcore::watch::{self, Change, Scope};
use opcore::{Context, Error};
use serde_json::Value;
use tokio::task::AbortHandle;

use crate::index::{Index, PlanName, Wake};
use crate::interest::{GroupKind, ObjectId, ScopeId, Served, WrittenKind, group_kind};
use crate::render::Source;

/// How long a right that was missing is not asked for again.
const DENIED_FOR: Duration = Duration::from_secs(30);
/// How long after a change of a definition discovery may still say what was before, and how often that is asked.
const DISCOVERY_LAG: Duration = Duration::from_secs(10);
const DISCOVERY_PAUSE: Duration = Duration::from_millis(250);

type Metadata = PartialObjectMeta<DynamicObject>;

/// What is known of the cluster, and the watches that keep it true.
pub struct Live {
    context: Context,
    wakes: OnceLock<Wakes>,
    index: Mutex<Index>,
    open: Mutex<HashMap<ScopeId, Open>>,
    served: Mutex<BTreeMap<WrittenKind, Served>>,
    /// Kinds that are served in another version than someone asked for.
    elsewhere: Mutex<BTreeMap<GroupKind, Served>>,
    sources: Mutex<Told>,
}

/// What the ConfigMaps hold that manifests are in, as their watches last told.
#[derive(Default)]
struct Told {
    sources: HashMap<ObjectId, Source>,
    /// Counts the changes.
    version: u64,
}

struct Open {
    plans: BTreeSet<PlanName>,
    state: State,
}

enum State {
    Watching(AbortHandle),
    /// The right to read it was missing.
    Denied {
        since: Instant,
    },
}

impl Drop for Open {
    fn drop(&mut self) {
        if let State::Watching(task) = &self.state {
            task.abort();
        }
    }
}

impl Live {
    /// Knows nothing yet, and watches nothing.
    pub fn new(context: &Context) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            wakes: OnceLock::new(),
            index: Mutex::new(Index::new(context.operator())),
            open: Mutex::default(),
            served: Mutex::default(),
            elsewhere: Mutex::default(),
            sources: Mutex::default(),
        })
    }

    /// Begins to follow the definitions of kinds, and wakes plans from now on.
    pub fn start(self: &Arc<Self>, wakes: Wakes) {
        // It is set once, when the controller starts.
        let _ = self.wakes.set(wakes);
        let scope = Scope {
            resource: ApiResource::erase::<CustomResourceDefinition>(&()),
            namespace: None,
            labels: None,
            lives: self.context.limits().watch,
        };
        let changes = watch::metadata(self.context.client(), &scope, self.context.metrics());
        tokio::spawn(Self::follow_definitions(Arc::downgrade(self), changes));
    }

    /// What is known.
    pub fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    /// Whether the API server has these kinds.
    ///
    /// # Errors
    ///
    /// When it could not be asked.
    pub async fn served(&self, kinds: &BTreeSet<WrittenKind>) -> Result<BTreeMap<WrittenKind, Served>, Error> {
        let mut answers = BTreeMap::new();
        for kind in kinds {
            let known = lock(&self.served).get(kind).cloned();
            let answer = match known {
                Some(answer) => answer,
                None => self.discover(kind).await?,
            };
            answers.insert(kind.clone(), answer);
        }
        Ok(answers)
    }

    async fn discover(&self, written: &WrittenKind) -> Result<Served, Error> {
        let (api_version, kind) = written;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let found = found(discovery::pinned_kind(self.context.client(), &gvk).await)?;
        // That it is not there is not remembered: it may come at any moment.
        let Some(kind) = found else { return Ok(Served::No) };
        let served = served(kind);
        self.learn(written, served.clone());
        Ok(served)
    }

    /// A kind is served so.
    pub fn learn(&self, kind: &WrittenKind, served: Served) {
        lock(&self.served).insert(kind.clone(), served);
    }

    /// How kinds are addressed of which there may be objects: as they are written or, where that version is served no more,
    /// in another, in which the same objects are found.
    ///
    /// # Errors
    ///
    /// When the API server could not be asked.
    pub async fn served_somehow(&self, kinds: &BTreeSet<WrittenKind>) -> Result<BTreeMap<WrittenKind, Served>, Error> {
        let mut answers = self.served(kinds).await?;
        for (written, answer) in answers.iter_mut().filter(|(_, answer)| **answer == Served::No) {
            let kind = group_kind(written);
            let known = lock(&self.elsewhere).get(&kind).cloned();
            *answer = match known {
                Some(known) => known,
                None => self.discover_elsewhere(kind).await?,
            };
        }
        Ok(answers)
    }

    async fn discover_elsewhere(&self, kind: GroupKind) -> Result<Served, Error> {
        let group = found(discovery::group(self.context.client(), &kind.group).await)?;
        let resources = group.iter().flat_map(ApiGroup::resources_by_stability);
        let of_kind = resources.into_iter().find(|(resource, _)| resource.kind == kind.kind);
        let Some(of_kind) = of_kind else { return Ok(Served::No) };
        let served = served(of_kind);
        lock(&self.elsewhere).insert(kind, served.clone());
        Ok(served)
    }

    /// Follows the definitions of kinds: one that a plan mentions may come, change and go at any time.
    async fn follow_definitions(live: Weak<Self>, changes: impl Stream<Item = Change<Metadata>> + Send) {
        let mut changes = std::pin::pin!(changes);
        // The definitions that changed lately, and when the last of them did.
        let (mut lately, mut last) = (BTreeSet::new(), None);
        loop {
            let change = match last {
                Some(_) => tokio::time::timeout(DISCOVERY_PAUSE, changes.next()).await,
                None => Ok(changes.next().await),
            };
            let Some(live) = live.upgrade() else { return };
            let definition = match change {
                Ok(Some(Change::Seen(definition))) => definition.name_any(),
                Ok(Some(Change::Gone(key))) => key.name,
                Ok(Some(Change::Synced)) => continue,
                Ok(None) => return,
                // Established is not yet discoverable, and nobody tells when it is.
                Err(_) if last.is_some_and(|at: Instant| at.elapsed() < DISCOVERY_LAG) => {
                    let plans = live.index().plans_without_a_kind();
                    live.wake(&plans);
                    continue;
                }
                // What is served no more may have been discovered until now.
                Err(_) => {
                    last = None;
                    live.ask_anew(&std::mem::take(&mut lately));
                    continue;
                }
            };
            last = Some(Instant::now());
            live.ask_anew(&[definition.clone()].into());
            lately.insert(definition);
        }
    }

    /// The kinds of these definitions are asked for anew, by all plans.
    fn ask_anew(&self, definitions: &BTreeSet<String>) {
        for definition in definitions {
            self.forget_kind(definition);
        }
        let plans = self.index().plans().cloned().collect();
        self.wake(&plans);
    }

    /// What is known of the kind of this definition no longer counts.
    fn forget_kind(&self, definition: &str) {
        let Some((plural, group)) = definition.split_once('.') else { return };
        let is_other = |served: &Served| match served {
            Served::Yes { resource, .. } => resource.group != group || resource.plural != plural,
            Served::No => true,
        };
        lock(&self.served).retain(|_, served| is_other(served));
        lock(&self.elsewhere).retain(|_, served| is_other(served));
    }

    /// Changes whenever a watch tells something new of what ConfigMaps hold.
    pub fn version_of_sources(&self) -> u64 {
        lock(&self.sources).version
    }

    /// What a ConfigMap holds, as its watch told. None: it has not told yet.
    pub fn source_told(&self, id: &ObjectId) -> Option<Source> {
        lock(&self.sources).sources.get(id).cloned()
    }

    /// What a ConfigMap holds, by asking.
    ///
    /// # Errors
    ///
    /// When it could not be asked for.
    pub async fn source(&self, id: &ObjectId) -> Result<Source, Error> {
        let namespace = id.namespace.as_deref().unwrap_or_default();
        let api: Api<ConfigMap> = Api::namespaced(self.context.client().clone(), namespace);
        let found = api.get_opt(&id.name).await?;
        Ok(found.map(|map| Arc::new(map.data.unwrap_or_default())))
    }

    /// A plan takes these watches, and no others. Answers those for which a right is missing.
    pub async fn watch(self: &Arc<Self>, plan: &PlanName, scopes: &BTreeSet<ScopeId>) -> Vec<ScopeId> {
        let new: Vec<ScopeId> = {
            let mut open = lock(&self.open);
            open.retain(|scope, watch| {
                if scopes.contains(scope) {
                    watch.plans.insert(plan.clone());
                } else {
                    watch.plans.remove(plan);
                }
                self.keep_if_used(scope, watch)
            });
            let is_open = |scope: &ScopeId| match open.get(scope).map(|watch| &watch.state) {
                Some(State::Watching(_)) => true,
                Some(State::Denied { since }) => since.elapsed() < DENIED_FOR,
                None => false,
            };
            scopes.iter().filter(|scope| !is_open(scope)).cloned().collect()
        };
        for scope in new {
            let denied = self.is_denied(&scope).await;
            self.open(plan, &scope, denied);
        }
        let open = lock(&self.open);
        let is_denied = |scope: &&ScopeId| matches!(open.get(scope), Some(Open { state: State::Denied { .. }, .. }));
        scopes.iter().filter(is_denied).cloned().collect()
    }

    fn open(self: &Arc<Self>, plan: &PlanName, scope: &ScopeId, denied: bool) {
        let mut open = lock(&self.open);
        let unopened = || Open { plans: BTreeSet::new(), state: State::Denied { since: Instant::now() } };
        let watch = open.entry(scope.clone()).or_insert_with(unopened);
        watch.plans.insert(plan.clone());
        // While its right was asked for, another plan may have opened it: what that watch tells is not to be cut off.
        if !matches!(watch.state, State::Watching(_)) {
            watch.state = if denied {
                State::Denied { since: Instant::now() }
            } else {
                State::Watching(self.follow(scope.clone()))
            };
        }
    }

    /// The watches that are open.
    pub fn watching(&self) -> BTreeSet<ScopeId> {
        let open = lock(&self.open);
        let watching = open.iter().filter(|(_, open)| matches!(open.state, State::Watching(_)));
        watching.map(|(scope, _)| scope.clone()).collect()
    }

    /// These watches report everything anew.
    pub fn reopen(self: &Arc<Self>, scopes: &BTreeSet<ScopeId>) {
        let mut open = lock(&self.open);
        for scope in scopes {
            let Some(watch) = open.get_mut(scope) else { continue };
            if let State::Watching(task) = &watch.state {
                task.abort();
                self.index().reopened(scope);
                self.forget_sources(scope);
                watch.state = State::Watching(self.follow(scope.clone()));
            }
        }
    }

    /// A plan is gone.
    pub fn forget(self: &Arc<Self>, plan: &PlanName) {
        self.index().unsubscribe(plan);
        lock(&self.open).retain(|scope, watch| {
            watch.plans.remove(plan);
            self.keep_if_used(scope, watch)
        });
    }

    fn keep_if_used(&self, scope: &ScopeId, watch: &Open) -> bool {
        let used = !watch.plans.is_empty();
        if !used {
            self.index().closed(scope);
            self.forget_sources(scope);
        }
        used
    }

    /// What ConfigMaps held may have changed unheard.
    fn forget_sources(&self, scope: &ScopeId) {
        let mut told = lock(&self.sources);
        told.sources.retain(|id, _| id.namespace != scope.namespace);
        told.version += 1;
    }

    /// A watch that is not allowed would only ever fail: the right is asked for first, so that a plan can say what is
    /// missing.
    async fn is_denied(&self, scope: &ScopeId) -> bool {
        let (client, resource) = (self.context.client().clone(), scope.resource());
        let api: Api<DynamicObject> = match &scope.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let answer = api.list_metadata(&ListParams::default().limit(1)).await;
        // Whatever else is wrong, the watch will try again.
        matches!(answer, Err(kube::Error::Api(status)) if status.code == 403)
    }

    fn follow(self: &Arc<Self>, id: ScopeId) -> AbortHandle {
        let scope = Scope {
            resource: id.resource(),
            namespace: id.namespace.clone(),
            labels: id.labels(self.context.operator()),
            lives: self.context.limits().watch,
        };
        let changes = watch::objects(self.context.client(), &scope, self.context.metrics());
        // Not a strong reference: the watch is one of the things that `self` holds.
        let live = Arc::downgrade(self);
        let task = async move {
            let mut changes = std::pin::pin!(changes);
            while let Some(change) = changes.next().await {
                let Some(live) = live.upgrade() else { return };
                live.take(&id, change);
            }
        };
        tokio::spawn(task).abort_handle()
    }

    fn take(&self, scope: &ScopeId, change: Change<DynamicObject>) {
        let kind = GroupKind { group: scope.group.clone(), kind: scope.kind.clone() };
        let wake = match change {
            Change::Seen(mut object) => {
                // Items of a list carry neither; the readiness rules need both.
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
                index.seen(&kind, &value, self.context.now())
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

    fn keep_source(&self, id: &ObjectId, source: impl FnOnce() -> Source) {
        if self.index().is_source(id) {
            let (mut told, source) = (lock(&self.sources), source());
            if told.sources.get(id) != Some(&source) {
                told.sources.insert(id.clone(), source);
                told.version += 1;
            }
        }
    }

    /// Has these plans looked at.
    pub fn wake(&self, plans: &Wake) {
        if let Some(wakes) = self.wakes.get() {
            for plan in plans {
                wakes.wake(&Key { namespace: None, name: plan.to_string() });
            }
        }
    }
}

fn served((resource, capabilities): (ApiResource, ApiCapabilities)) -> Served {
    let has_status = capabilities.subresources.iter().any(|(sub, _)| sub.plural.ends_with("status"));
    Served::Yes { resource, namespaced: capabilities.scope == KindScope::Namespaced, has_status }
}

/// What the API server says of a kind, or of a group; none: it has no such thing.
fn found<T>(answer: kube::Result<T>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(kube::Error::Discovery(_)) => Ok(None),
        // Of a group that it does not have at all, in plain text.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use opcore_testing::running::{Settings, context};

    use super::*;

    #[tokio::test]
    async fn a_watch_that_another_plan_opened_meanwhile_goes_on() {
        opcore::client::install_crypto_provider();
        let (_stop, stopping) = tokio::sync::watch::channel(false);
        // Nobody is there: it is tried again and again.
        let nowhere = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        let live = Live::new(&context("test", nowhere, &[], Settings::default(), stopping));
        let scope = ScopeId::of_config_maps("shop");
        let task = || match &lock(&live.open)[&scope].state {
            State::Watching(task) => task.id(),
            State::Denied { .. } => panic!("it is not open"),
        };
        live.open(&"one".into(), &scope, false);
        let first = task();
        live.open(&"two".into(), &scope, false);
        assert_eq!(task(), first);
        live.forget(&"one".into());
        assert_eq!(live.watching(), [scope].into(), "the other plan has it, too");
    }
}
