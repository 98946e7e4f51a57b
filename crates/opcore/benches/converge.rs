//! What reconciling costs in addition to the writes themselves: `cargo bench -p opcore`.
//!
//! The same objects are created twice on one control plane, alternately: by the example operator, and by a client that
//! knows in advance which writes are needed and sends nothing else, with the same concurrency. Times are ratios of the
//! two, so that they do not depend on the machine; requests and writes are counted.
#![allow(unreachable_pub, reason = "a program has no outside; it includes a module of the example")]

#[path = "../examples/notebook/operator.rs"]
mod notebook;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Config, CustomResourceExt, ResourceExt};
use kube_runtime::wait::{await_condition, conditions};
use kube_runtime::watcher;
use opcore::Context;
use opcore::client::Shield;
use opcore::controller::{Limits, Parts};
use opcore::election::Leadership;
use opcore::finalizer::OnExpiry;
use opcore::health::Health;
use opcore::metrics::Metrics;
use sandbox::{Options, Sandbox, results};
use serde_json::json;
use tokio::sync::watch;

use notebook::{NAME, Notebook, NotebookSpec, Notebooks};

const SIZES: [usize; 3] = [100, 300, 900];
/// A finalizer, a page, a cover and a status.
const NEEDED: usize = 4;

/// The allocator of the operators, because memory is measured here.
#[global_allocator]
static ALLOCATOR: opcore::Allocator = opcore::Allocator;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(bench())
}

async fn bench() -> anyhow::Result<()> {
    opcore::client::install_crypto_provider();
    let sandbox = Sandbox::start(Options::default()).await?;
    let client = sandbox.client().await?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &Notebook::crd()).await?;
    await_condition(crds, Notebook::crd_name(), conditions::is_crd_established()).await?;

    println!(
        "{:>8}{:>14}{:>14}{:>10}{:>16}{:>16}{:>18}",
        "objects", "operator", "floor", "ratio", "calls/object", "writes/object", "writes on restart"
    );
    let mut rows = Vec::new();
    for size in SIZES {
        let floor = floor(&client, &sandbox.namespace("floor").await?, size).await?;
        let namespace = sandbox.namespace("operator").await?;
        create(&client, &namespace, size).await?;
        let first = operator(&sandbox.config().await?, &client, &namespace, size).await?;
        let again = operator(&sandbox.config().await?, &client, &namespace, size).await?;
        let ratio = first.took.as_secs_f64() / floor.as_secs_f64();
        let per_object = |count: usize| ratio_of(count, size);
        println!(
            "{size:>8}{:>13.2}s{:>13.2}s{ratio:>9.2}x{:>16.2}{:>16.2}{:>18}",
            first.took.as_secs_f64(),
            floor.as_secs_f64(),
            per_object(first.calls),
            per_object(first.writes),
            again.writes
        );
        rows.push(json!({
            "objects": size, "operatorSeconds": first.took.as_secs_f64(), "floorSeconds": floor.as_secs_f64(), "ratio": ratio,
            "callsPerObject": per_object(first.calls), "writesPerObject": per_object(first.writes), "writesOnRestart": again.writes,
        }));
        anyhow::ensure!(first.writes == NEEDED * size, "{} writes where {} are needed", first.writes, NEEDED * size);
        anyhow::ensure!(again.writes == 0, "a restart on a converged cluster wrote {} times", again.writes);
    }
    let seconds = |row: &serde_json::Value| row["operatorSeconds"].as_f64().unwrap_or_default();
    let (small, large) = (seconds(&rows[0]), seconds(&rows[SIZES.len() - 1]));
    let slope = (large / small).ln() / ratio_of(SIZES[SIZES.len() - 1], SIZES[0]).ln();
    println!("\ntime grows with the number of objects to the power of {slope:.2}");
    results::write("converge", &json!({ "rows": rows, "slope": slope }))
}

/// The counts are far below the largest integer that a float represents exactly.
#[allow(clippy::cast_precision_loss)]
fn ratio_of(one: usize, other: usize) -> f64 {
    one as f64 / other as f64
}

fn spec() -> NotebookSpec {
    let pages = BTreeMap::from([("monday".to_owned(), "rain".to_owned())]);
    NotebookSpec { pages, teardown_seconds: None, on_expiry: OnExpiry::Wait }
}

async fn create(client: &Client, namespace: &str, size: usize) -> anyhow::Result<Vec<Notebook>> {
    let api: Api<Notebook> = Api::namespaced(client.clone(), namespace);
    let all = (0..size).map(|n| {
        let api = api.clone();
        async move { api.create(&PostParams::default(), &Notebook::new(&format!("n{n:05}"), spec())).await }
    });
    Ok(stream::iter(all).buffer_unordered(Limits::default().concurrency).try_collect().await?)
}

/// Sends only the needed writes.
async fn floor(client: &Client, namespace: &str, size: usize) -> anyhow::Result<Duration> {
    let notebooks = create(client, namespace, size).await?;
    let started = Instant::now();
    let each = notebooks.into_iter().map(|notebook| write_through(client.clone(), namespace.to_owned(), notebook));
    stream::iter(each).buffer_unordered(Limits::default().concurrency).try_collect::<Vec<()>>().await?;
    Ok(started.elapsed())
}

async fn write_through(client: Client, namespace: String, notebook: Notebook) -> anyhow::Result<()> {
    let name = notebook.name_any();
    let api: Api<Notebook> = Api::namespaced(client.clone(), &namespace);
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client, &namespace);
    let guard = json!({"metadata": {"finalizers": [<Notebooks as opcore::Operator>::FINALIZER]}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&guard)).await?;
    for page in ["monday", "cover"] {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("{name}-{page}"), "labels": {"example.opcore.dev/page": page}},
            "data": {"text": "rain"},
        });
        maps.patch(&format!("{name}-{page}"), &PatchParams::apply("floor"), &Patch::Apply(&map)).await?;
    }
    let status = json!({"status": {"observedGeneration": 1}});
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

struct Measured {
    took: Duration,
    calls: usize,
    writes: usize,
}

/// Runs the operator from its start until every notebook has been reconciled and is ready.
async fn operator(config: &Config, client: &Client, namespace: &str, size: usize) -> anyhow::Result<Measured> {
    let (stop, stopping) = watch::channel(false);
    let metrics = Metrics::new(opcore::build_info!())?;
    let shield =
        Shield { leadership: Leadership::unquestioned(), metrics: metrics.clone(), deadline: Duration::from_secs(30) };
    let context = Context::new(Parts {
        client: shield.client(config.clone())?,
        operator: NAME.to_owned(),
        namespaces: vec![namespace.to_owned()],
        limits: Limits::default(),
        metrics: metrics.clone(),
        health: Health::default(),
        contract: opcore::ownership::InForce::default(),
        stopping,
    });
    let started = Instant::now();
    let running = tokio::spawn(async move { context.controller(Notebooks).await });
    all_ready(client, namespace, size).await?;
    let reconciled = || results::count(&metrics.text(), "opcore_reconciles_total", |line| line.contains("\"ok\""));
    let deadline = Instant::now() + Duration::from_mins(2);
    while reconciled() < size {
        anyhow::ensure!(Instant::now() < deadline, "only {} of {size} were reconciled", reconciled());
        tokio::task::yield_now().await;
    }
    let took = started.elapsed();
    stop.send_replace(true);
    running.await??;
    let text = metrics.text();
    let of_objects = |line: &str| !line.contains("\"watch\"") && !line.contains("events");
    let writes = |line: &str| of_objects(line) && !line.contains("\"get\"") && !line.contains("\"list\"");
    let name = "opcore_api_requests_total";
    Ok(Measured { took, calls: results::count(&text, name, of_objects), writes: results::count(&text, name, writes) })
}

async fn all_ready(client: &Client, namespace: &str, size: usize) -> anyhow::Result<()> {
    let api: Api<Notebook> = Api::namespaced(client.clone(), namespace);
    let mut changes = std::pin::pin!(watcher(api.clone(), watcher::Config::default()));
    let mut ready = std::collections::HashSet::new();
    while ready.len() < size {
        let change = tokio::time::timeout(Duration::from_mins(2), changes.next()).await;
        let change = change.with_context(|| format!("{} of {size} became ready", ready.len()))?;
        if let Some(Ok(watcher::Event::Apply(notebook) | watcher::Event::InitApply(notebook))) = change
            && notebook.status.as_ref().is_some_and(|status| opcore::conditions::is_true(&status.conditions, "Ready"))
        {
            ready.insert(notebook.name_any());
        }
    }
    let pages: Api<DynamicObject> = Api::namespaced_with(
        client.clone(),
        namespace,
        &kube::api::ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&()),
    );
    let found = pages.list_metadata(&ListParams::default().labels("example.opcore.dev/page")).await?.items.len();
    anyhow::ensure!(found == 2 * size, "{found} ConfigMaps where {} were expected", 2 * size);
    Ok(())
}
