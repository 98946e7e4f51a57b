//! Objects of a kind: reading, watching and annotating them.

use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use futures::{Stream, StreamExt};
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, CustomResourceExt, Resource, ResourceExt};
use opcore::runtime::duration;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::cluster::{self, Cluster, listed};
use crate::output;
use crate::reading::Reader;

/// The field manager of all writes.
const FIELD_MANAGER: &str = "opctl";
/// How often a change is retried after a conflict with another write.
const ATTEMPTS: usize = 10;

/// The objects of a kind, in the whole cluster or in a namespace.
pub(crate) struct Objects<K> {
    api: Api<DynamicObject>,
    reader: Reader<K>,
    /// Where they are.
    pub cluster: Cluster,
    /// The chart that installs the kind.
    chart: &'static str,
    namespace: Option<String>,
}

/// A change of one object, as a watch reports it.
pub(crate) enum Change<K> {
    /// It exists, and is like this now.
    Observed(Box<K>),
    /// It does not exist any more.
    Deleted,
    /// The watch failed, and is started again.
    Failed(String),
}

/// The result of a request.
pub(crate) enum Answer<K> {
    /// The user does not want to wait.
    NotAwaited,
    /// It is done, and the object is like this now.
    Done(Box<K>),
    /// The object is gone.
    Gone,
}

/// How long to wait for the operator.
#[derive(Debug, Args)]
pub(crate) struct WaitFlags {
    /// Wait until the operator has done it
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true)]
    pub wait: bool,
    /// How long to wait for the operator
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    pub timeout: Duration,
}

/// Annotations with their new values: `None` removes one.
pub(crate) type Annotations = Vec<(&'static str, Option<String>)>;

impl<K> Objects<K>
where
    K: Resource<DynamicType = ()> + CustomResourceExt + DeserializeOwned,
{
    /// All of a cluster.
    pub(crate) fn everywhere(cluster: Cluster, chart: &'static str) -> Self {
        let api = Api::all_with(cluster.client.clone(), &ApiResource::erase::<K>(&()));
        Self { api, reader: Reader::new(), cluster, chart, namespace: None }
    }

    /// Those of a namespace.
    pub(crate) fn within(cluster: Cluster, chart: &'static str, namespace: &str) -> Self {
        let api = Api::namespaced_with(cluster.client.clone(), namespace, &ApiResource::erase::<K>(&()));
        Self { api, reader: Reader::new(), cluster, chart, namespace: Some(namespace.to_owned()) }
    }

    /// The name of the kind.
    fn kind() -> String {
        K::kind(&()).into_owned()
    }

    /// ` in namespace NAME`, where that matters.
    pub(crate) fn place(&self) -> String {
        self.namespace.as_ref().map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default()
    }

    /// All of them, by namespace and name.
    pub(crate) async fn all(&self) -> anyhow::Result<Vec<K>> {
        let found = self.ask(self.api.list(&ListParams::default())).await?.items;
        let mut all = found.iter().map(|object| self.read(object)).collect::<anyhow::Result<Vec<_>>>()?;
        all.sort_by_key(|object| (object.namespace(), object.name_any()));
        Ok(all)
    }

    /// Sends a request to the API server; an error says what to do.
    pub(crate) async fn ask<T>(&self, question: impl Future<Output = kube::Result<T>>) -> anyhow::Result<T> {
        self.cluster.ask(self.chart, question).await
    }

    fn read(&self, object: &DynamicObject) -> anyhow::Result<K> {
        self.reader.read(object).map_err(|error| self.cluster.explain(self.chart, error))
    }

    /// The object of this name, if there is one.
    pub(crate) async fn find(&self, name: &str) -> anyhow::Result<Option<K>> {
        let found = self.ask(self.api.get_opt(name)).await?;
        found.map(|object| self.read(&object)).transpose()
    }

    /// The object of this name.
    ///
    /// # Errors
    ///
    /// There is none; the error names those that exist.
    pub(crate) async fn get(&self, name: &str) -> anyhow::Result<K> {
        if let Some(object) = self.find(name).await? {
            return Ok(object);
        }
        let names: Vec<String> = self.all().await?.iter().map(ResourceExt::name_any).collect();
        bail!("There is no {} {name}{}: there is {}.", Self::kind(), self.place(), listed(&names))
    }

    /// The object of this name, or the only one.
    pub(crate) async fn choose(&self, name: Option<&str>) -> anyhow::Result<K> {
        if let Some(name) = name {
            return self.get(name).await;
        }
        let mut all = self.all().await?;
        let kind = Self::kind();
        match (all.pop(), all.as_slice()) {
            (None, _) => bail!("There is no {kind}{}: create one, e.g. with kubectl apply -f.", self.place()),
            (Some(object), []) => Ok(object),
            (Some(last), others) => {
                let names: Vec<String> = others.iter().chain([&last]).map(ResourceExt::name_any).collect();
                bail!("There are several {kind}s{}: name one of {}.", self.place(), listed(&names))
            }
        }
    }

    /// Watches an object, beginning with how it is now.
    pub(crate) fn follow(&self, name: &str) -> impl Stream<Item = anyhow::Result<Change<K>>> {
        let config =
            watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(cluster::WATCH_TIMEOUT_SECONDS);
        let mut listed = false;
        watcher::watcher(self.api.clone(), config).default_backoff().filter_map(move |event| {
            ready(match event {
                Ok(Event::Init) => {
                    listed = false;
                    None
                }
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    listed = true;
                    Some(self.read(&object).map(|object| Change::Observed(Box::new(object))))
                }
                Ok(Event::InitDone) if listed => None,
                Ok(Event::InitDone | Event::Delete(_)) => Some(Ok(Change::Deleted)),
                Err(error) => Some(self.broken(error).map(Change::Failed)),
            })
        })
    }

    /// Why a watch failed, which starts again by itself.
    ///
    /// # Errors
    ///
    /// Starting again would not help: a right is missing.
    pub(crate) fn broken(&self, error: watcher::Error) -> anyhow::Result<String> {
        match error {
            watcher::Error::InitialListFailed(why)
            | watcher::Error::WatchStartFailed(why)
            | watcher::Error::WatchFailed(why) => {
                let refused = cluster::is_refusal(&why);
                let words = self.cluster.explain(self.chart, why);
                if refused { Err(words) } else { Ok(words.to_string()) }
            }
            other => Ok(other.to_string()),
        }
    }

    /// Waits, by watch, until an object fulfils a condition. Returns the object, or none if it was deleted.
    pub(crate) async fn wait(&self, name: &str, fulfilled: impl Fn(&K) -> bool) -> anyhow::Result<Option<K>> {
        let mut changes = pin!(self.follow(name));
        while let Some(change) = changes.next().await {
            match change? {
                Change::Observed(object) if fulfilled(&object) => return Ok(Some(*object)),
                Change::Deleted => return Ok(None),
                Change::Observed(_) | Change::Failed(_) => {}
            }
        }
        bail!("The watch of {} {name} ended; try again.", Self::kind())
    }

    /// Requests something of the operator by annotations, and waits until it is done. Returns the object as it is then, or
    /// none if the user does not want to wait.
    pub(crate) async fn request(
        &self,
        object: K,
        patience: &WaitFlags,
        change: impl Fn(&K) -> anyhow::Result<Annotations>,
        fulfilled: impl Fn(&K) -> bool,
    ) -> anyhow::Result<Option<K>> {
        let name = object.name_any();
        match Box::pin(self.request_until_gone(object, patience, change, fulfilled)).await? {
            Answer::NotAwaited => Ok(None),
            Answer::Done(after) => Ok(Some(*after)),
            Answer::Gone => bail!("{} {name} was deleted meanwhile.", Self::kind()),
        }
    }

    /// The same, for a request after which the object may be deleted.
    pub(crate) async fn request_until_gone(
        &self,
        object: K,
        patience: &WaitFlags,
        change: impl Fn(&K) -> anyhow::Result<Annotations>,
        fulfilled: impl Fn(&K) -> bool,
    ) -> anyhow::Result<Answer<K>> {
        let (kind, name) = (Self::kind(), object.name_any());
        let annotations = |object: &K| {
            let all: Map<String, Value> =
                change(object)?.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
            Ok(json!({ "metadata": { "annotations": all } }))
        };
        Box::pin(self.change(object, annotations)).await?;
        if !patience.wait {
            output::print_lines(&[format!("{kind} {name} is annotated.")])?;
            return Ok(Answer::NotAwaited);
        }
        match tokio::time::timeout(patience.timeout, self.wait(&name, fulfilled)).await {
            Ok(after) => Ok(after?.map_or(Answer::Gone, |after| Answer::Done(Box::new(after)))),
            Err(_) => bail!(
                "The operator did not do it within {}: is {} running? The request stays on {kind} {name}, and is carried \
                 out as soon as it runs.",
                output::age(patience.timeout),
                self.chart
            ),
        }
    }

    /// Changes an object by a merge patch. What to change, and whether to, may depend on how the object is.
    ///
    /// # Errors
    ///
    /// `patch` refuses, or another object has taken the place of this one.
    pub(crate) async fn change(
        &self,
        mut object: K,
        patch: impl Fn(&K) -> anyhow::Result<Value>,
    ) -> anyhow::Result<()> {
        let (kind, name, uid) = (Self::kind(), object.name_any(), object.uid());
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        for _ in 0..ATTEMPTS {
            if object.uid() != uid {
                bail!("{kind} {name} was deleted and created again meanwhile: look at it, and try again.");
            }
            let mut patch = patch(&object)?;
            // With the version that was read: else a concurrent change would be lost.
            (patch["metadata"]["resourceVersion"], patch["metadata"]["uid"]) =
                (json!(object.resource_version()), json!(uid));
            let write = async {
                match self.api.patch_metadata(&name, &params, &Patch::Merge(&patch)).await {
                    Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
                    answer => answer.map(|_| true),
                }
            };
            if self.ask(write).await? {
                return Ok(());
            }
            object = self.get(&name).await?;
        }
        bail!("{kind} {name} keeps changing: try again.")
    }
}
