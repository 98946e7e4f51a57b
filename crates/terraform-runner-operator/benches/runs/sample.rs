//! The sample, from its creation until it is ready: everything in between is watched, and its time recorded when the
//! event arrives.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, Secret};
use kube::api::{ListParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use opcore::conditions::{READY, is_true};
use serde::de::DeserializeOwned;
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{SimpleResource, TerraformWorkspace};
use terraform_runner_operator::render::PART_LABEL;
use terraform_runner_operator::run::report::{REPORT_KEY, Report, Stage};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::moments::Moments;

const PATIENCE: Duration = Duration::from_mins(3);
const WATCHING: &str = "watching";

/// An event, and its time.
type Moment = (&'static str, Timestamp);

/// A sample that is ready, and its Job.
pub struct Sample {
    pub object: SimpleResource,
    pub job: Job,
    pub moments: Moments,
}

/// The sample as users apply it.
fn object(namespace: &str) -> anyhow::Result<SimpleResource> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "infra.opr8r/v1alpha1", "kind": "SimpleResource",
        "metadata": { "name": "simpleresource-sample", "namespace": namespace },
        "spec": { "length": 16, "prefix": "test", "vars": { "special": "true", "upper": "true" } },
    }))?)
}

/// Creates it in an empty namespace, and waits until it is ready and its pod is gone.
pub async fn measure(client: &Client, namespace: &str) -> anyhow::Result<Sample> {
    let mut watches = JoinSet::new();
    let mut reported = watch_all(client, namespace, &mut watches).await?;
    let samples: Api<SimpleResource> = Api::namespaced(client.clone(), namespace);
    let mut moments = Moments::begin();
    let object = samples.create(&PostParams::default(), &object(namespace)?).await?;
    let through = async {
        while !(moments.has("Ready") && moments.has("Job complete")) {
            let (what, at) = reported.recv().await.context("nothing is watched any more")?;
            moments.note(what, at);
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, through).await.context("the sample does not become ready")??;

    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let job = jobs.list(&ListParams::default()).await?.items.pop().context("there is no Job")?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = pods.list(&ListParams::default()).await?.items.pop().context("there is no pod")?;
    moments.read(&pods, &pod.name_any()).await?;
    let report = report(client, namespace).await?;
    for (what, before, stage) in [("applied", "tofu apply", Stage::Apply), ("outputs read", "applied", Stage::Outputs)]
    {
        moments.after(what, before, report.milliseconds.get(&stage).copied().unwrap_or_default())?;
    }
    Ok(Sample { object, job, moments })
}

async fn report(client: &Client, namespace: &str) -> anyhow::Result<Report> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let all = secrets.list(&ListParams::default()).await?;
    let report = all.items.iter().find_map(|secret| secret.data.as_ref()?.get(REPORT_KEY));
    Ok(serde_json::from_slice(&report.context("there is no report")?.0)?)
}

/// Returns when all watches have started.
async fn watch_all(
    client: &Client,
    namespace: &str,
    watches: &mut JoinSet<()>,
) -> anyhow::Result<UnboundedReceiver<Moment>> {
    let (sender, mut reported) = unbounded_channel();
    watches.spawn(watch(client, namespace, sender.clone(), |sample: &SimpleResource| {
        let ready = sample.status.as_ref().is_some_and(|status| is_true(&status.conditions, READY));
        if ready { vec!["Ready"] } else { vec![] }
    }));
    watches.spawn(watch(client, namespace, sender.clone(), |_: &TerraformWorkspace| vec!["workspace made"]));
    watches.spawn(watch(client, namespace, sender.clone(), |job: &Job| {
        let complete = job.status.as_ref().is_some_and(|status| status.completion_time.is_some());
        if complete { vec!["Job made", "Job complete"] } else { vec!["Job made"] }
    }));
    watches.spawn(watch(client, namespace, sender.clone(), of_pod));
    watches.spawn(watch(client, namespace, sender, |secret: &Secret| {
        if secret.data.as_ref().is_some_and(|data| data.contains_key(REPORT_KEY)) {
            return vec!["report written"];
        }
        match secret.labels().get(PART_LABEL).map(String::as_str) {
            Some("inputs") => vec!["inputs kept"],
            Some("outputs") => vec!["outputs kept"],
            _ => vec![],
        }
    }));
    for _ in 0..watches.len() {
        let (what, _) = reported.recv().await.context("nothing is watched")?;
        anyhow::ensure!(what == WATCHING, "the namespace is not empty: {what}");
    }
    Ok(reported)
}

fn of_pod(pod: &Pod) -> Vec<&'static str> {
    let scheduled = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let status = pod.status.as_ref();
    let has_begun = |container: &ContainerStatus| {
        container.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    let store = status.and_then(|status| status.init_container_statuses.as_ref()?.iter().find(|c| c.name == "store"));
    let terraform = status.and_then(|status| status.container_statuses.as_ref()?.first());
    let all = [
        (scheduled, "pod scheduled"),
        (store.is_some_and(has_begun), "store started"),
        (terraform.is_some_and(has_begun), "Terraform started"),
    ];
    all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, what)| what).collect()
}

/// Records the time at which the events of a kind arrive, because their own times are whole seconds.
fn watch<K>(
    client: &Client,
    namespace: &str,
    sender: UnboundedSender<Moment>,
    moments: impl Fn(&K) -> Vec<&'static str> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    async move {
        let mut events = pin!(watcher(api, watcher::Config::default()));
        while let Some(event) = events.next().await {
            let at = Timestamp::now();
            let what = match event {
                Ok(watcher::Event::InitDone) => vec![WATCHING],
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => moments(&object),
                _ => vec![],
            };
            for what in what {
                let _ = sender.send((what, at));
            }
        }
    }
}
