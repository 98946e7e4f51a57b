//! How a plan is found, followed and asked for something.

use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use anyhow::bail;
use futures::{Stream, StreamExt};
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use wave_orchestrator::api::v1alpha1::{PlanPhase, WavePlan, WavePlanStatus};

use crate::cluster::{self, Cluster, listed};

/// What installs the kind.
const CHART: &str = "wave-orchestrator";
/// In whose name annotations are written.
const FIELD_MANAGER: &str = "opctl";
/// How often a change that depends on what was read is tried anew when someone else was faster.
const ATTEMPTS: usize = 10;

/// The plans of a cluster.
pub(super) struct Plans {
    api: Api<WavePlan>,
    cluster: Cluster,
}

/// What a watch tells of one plan.
pub(super) enum Change {
    /// It is there, in this form.
    Seen(Box<WavePlan>),
    /// It is not there any more.
    Gone,
    /// The watch broke and is opened again.
    Broke(String),
}

impl Plans {
    pub(super) fn of(cluster: Cluster) -> Self {
        Self { api: Api::all(cluster.client.clone()), cluster }
    }

    /// All plans, by name.
    pub(super) async fn all(&self) -> anyhow::Result<Vec<WavePlan>> {
        let mut plans = self.cluster.ask(CHART, self.api.list(&ListParams::default())).await?.items;
        plans.sort_by_key(ResourceExt::name_any);
        Ok(plans)
    }

    /// The plan of this name.
    ///
    /// # Errors
    ///
    /// There is none; the words name those that there are.
    pub(super) async fn get(&self, name: &str) -> anyhow::Result<WavePlan> {
        if let Some(plan) = self.cluster.ask(CHART, self.api.get_opt(name)).await? {
            return Ok(plan);
        }
        let names: Vec<String> = self.all().await?.iter().map(ResourceExt::name_any).collect();
        bail!("There is no WavePlan {name}: there is {}.", listed(&names))
    }

    /// The plan of this name, or the only one.
    pub(super) async fn choose(&self, name: Option<&str>) -> anyhow::Result<WavePlan> {
        if let Some(name) = name {
            return self.get(name).await;
        }
        let mut plans = self.all().await?;
        match (plans.pop(), plans.as_slice()) {
            (None, _) => bail!("There is no WavePlan: create one, e.g. with kubectl apply -f."),
            (Some(plan), []) => Ok(plan),
            (Some(last), others) => {
                let names: Vec<String> = others.iter().chain([&last]).map(ResourceExt::name_any).collect();
                bail!("There are several WavePlans: say which, one of {}.", listed(&names))
            }
        }
    }

    /// What happens to a plan, from now on, beginning with how it is.
    pub(super) fn follow(&self, name: &str) -> impl Stream<Item = anyhow::Result<Change>> {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(cluster::WATCH_LIVES);
        let mut listed = false;
        watcher::watcher(self.api.clone(), config).default_backoff().filter_map(move |event| {
            ready(match event {
                Ok(Event::Init) => {
                    listed = false;
                    None
                }
                Ok(Event::InitApply(plan) | Event::Apply(plan)) => {
                    listed = true;
                    Some(Ok(Change::Seen(Box::new(plan))))
                }
                Ok(Event::InitDone) if listed => None,
                Ok(Event::InitDone | Event::Delete(_)) => Some(Ok(Change::Gone)),
                Err(error) => Some(self.broken(error)),
            })
        })
    }

    fn broken(&self, error: watcher::Error) -> anyhow::Result<Change> {
        match error {
            watcher::Error::InitialListFailed(why)
            | watcher::Error::WatchStartFailed(why)
            | watcher::Error::WatchFailed(why) => {
                let refused = cluster::is_refusal(&why);
                let words = self.cluster.explain(CHART, why);
                if refused { Err(words) } else { Ok(Change::Broke(words.to_string())) }
            }
            other => Ok(Change::Broke(other.to_string())),
        }
    }

    /// Waits, by watch, until a plan fulfils a condition; answers how it is then, or none when time is up.
    pub(super) async fn until(
        &self,
        name: &str,
        patience: Duration,
        fulfilled: impl Fn(&WavePlan) -> bool,
    ) -> anyhow::Result<Option<WavePlan>> {
        let wait = async {
            let mut changes = pin!(self.follow(name));
            while let Some(change) = changes.next().await {
                match change? {
                    Change::Seen(plan) if fulfilled(&plan) => return Ok(*plan),
                    Change::Gone => bail!("WavePlan {name} was deleted meanwhile."),
                    Change::Seen(_) | Change::Broke(_) => {}
                }
            }
            bail!("The watch of WavePlan {name} ended; try again.")
        };
        tokio::time::timeout(patience, wait).await.ok().transpose()
    }

    /// Changes annotations of a plan: `None` removes one. What to change may depend on how the plan is.
    pub(super) async fn annotate(
        &self,
        mut plan: WavePlan,
        change: impl Fn(&WavePlan) -> Vec<(&'static str, Option<String>)>,
    ) -> anyhow::Result<()> {
        let name = plan.name_any();
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        for _ in 0..ATTEMPTS {
            let annotations: serde_json::Map<String, Value> =
                change(&plan).into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
            // With the version that was read: else a change by someone else in between would be lost.
            let version = plan.metadata.resource_version.clone();
            let patch = json!({ "metadata": { "annotations": annotations, "resourceVersion": version } });
            let write = async {
                match self.api.patch_metadata(&name, &params, &Patch::Merge(&patch)).await {
                    Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
                    answer => answer.map(|_| true),
                }
            };
            if self.cluster.ask(CHART, write).await? {
                return Ok(());
            }
            plan = self.get(&name).await?;
        }
        bail!("WavePlan {name} changes all the time: try again.")
    }
}

/// What is known of a plan, unless it is about a spec that has changed since.
pub(super) fn current(plan: &WavePlan) -> Option<&WavePlanStatus> {
    plan.status.as_ref().filter(|status| status.observed_generation == plan.metadata.generation)
}

/// Where a plan stands, unless that is about a spec that has changed since.
pub(super) fn phase(plan: &WavePlan) -> Option<PlanPhase> {
    current(plan)?.phase
}
