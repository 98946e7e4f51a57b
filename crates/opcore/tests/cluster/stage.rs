//! What the tests share: a namespace on the real control plane, notebooks in it, and operators to run.

use std::fmt::Debug;
use std::sync::Mutex;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, Config, CustomResourceExt, Resource};
use kube_runtime::wait::{await_condition, conditions};
use opcore::client::Shield;
use opcore::controller::{Limits, Parts};
use opcore::election::Leadership;
use opcore::finalizer::OnExpiry;
use opcore::health::Health;
use opcore::metrics::Metrics;
use opcore::{Context, Operator};
use sandbox::Sandbox;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::notebook::{NAME, Notebook, NotebookSpec, Notebooks};

pub const PATIENCE: Duration = Duration::from_secs(30);

/// A fresh namespace on the shared control plane.
pub struct Stage {
    pub client: Client,
    pub config: Config,
    pub namespace: String,
}

impl Stage {
    pub async fn new(prefix: &str) -> Self {
        opcore::client::install_crypto_provider();
        let _ = tracing_subscriber::fmt().with_test_writer().with_env_filter("opcore=info").try_init();
        let sandbox = Sandbox::shared().await.expect("a control plane");
        let client = sandbox.client().await.unwrap();
        install(&client).await;
        let namespace = sandbox.namespace(prefix).await.unwrap();
        Self { client, config: sandbox.config().await.unwrap(), namespace }
    }

    pub fn notebooks(&self) -> Api<Notebook> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a notebook with these pages.
    pub async fn write(&self, name: &str, pages: &[(&str, &str)]) -> Notebook {
        let pages = pages.iter().map(|(page, text)| ((*page).to_owned(), (*text).to_owned())).collect();
        let spec = NotebookSpec { pages, teardown_seconds: None, on_expiry: OnExpiry::default() };
        self.notebooks().create(&PostParams::default(), &Notebook::new(name, spec)).await.unwrap()
    }

    /// The pages that exist now: ConfigMap names without the notebook's, sorted.
    pub async fn pages(&self, notebook: &str) -> Vec<String> {
        let found = self.maps().list(&ListParams::default()).await.unwrap();
        let names = found.into_iter().filter_map(|map| map.metadata.name);
        let mut pages: Vec<_> =
            names.filter_map(|name| name.strip_prefix(&format!("{notebook}-")).map(str::to_owned)).collect();
        pages.sort();
        pages
    }

    pub async fn ready(&self, name: &str) -> Notebook {
        let is_ready = |notebook: &Notebook| {
            let status = notebook.status.as_ref();
            status.is_some_and(|status| {
                status.observed_generation == notebook.metadata.generation
                    && opcore::conditions::is_true(&status.conditions, opcore::conditions::READY)
            })
        };
        eventually(&self.notebooks(), name, "ready", is_ready).await
    }

    pub async fn delete(&self, name: &str) {
        self.notebooks().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn gone(&self, name: &str, uid: &str) {
        gone(&self.notebooks(), name, uid).await;
    }

    /// Runs the notebook operator in this namespace.
    pub fn run(&self) -> Running {
        self.run_at(self.config.clone())
    }

    /// Runs it with this way to the API server.
    pub fn run_at(&self, config: Config) -> Running {
        Running::start(Notebooks, config, &self.namespace, Settings::default())
    }
}

/// Installs the CRD, with a schema that lets unfitting objects in: the API server must not be the only one to check.
pub async fn install(client: &Client) {
    let mut crd = serde_json::to_value(Notebook::crd()).unwrap();
    let loose = serde_json::json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = loose;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = Notebook::crd_name();
    api.patch(name, &PatchParams::apply("tests").force(), &Patch::Apply(&crd)).await.unwrap();
    let established = await_condition(api, name, conditions::is_crd_established());
    tokio::time::timeout(PATIENCE, established).await.expect("the CRD is established").unwrap();
}

/// Waits, by watch, until an object fulfils a condition; fails with the object as it was last.
pub async fn eventually<K>(api: &Api<K>, name: &str, what: &str, condition: impl Fn(&K) -> bool) -> K
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let wait = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&condition));
    let Ok(found) = tokio::time::timeout(PATIENCE, wait).await else {
        panic!("{name} is not {what}; it is {:#?}", api.get_opt(name).await)
    };
    found.unwrap().expect("the condition wants an object")
}

pub async fn gone<K>(api: &Api<K>, name: &str, uid: &str)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let wait = await_condition(api.clone(), name, conditions::is_deleted(uid));
    assert!(
        tokio::time::timeout(PATIENCE, wait).await.is_ok(),
        "{name} is not gone; it is {:#?}",
        api.get_opt(name).await
    );
}

#[derive(Clone, Copy)]
pub struct Settings {
    pub limits: Limits,
    pub request_deadline: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { limits: Limits::default(), request_deadline: Duration::from_secs(10) }
    }
}

/// An operator at work in this process.
pub struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    pub metrics: Metrics,
}

impl Running {
    pub fn start<O: Operator>(operator: O, config: Config, namespace: &str, settings: Settings) -> Self {
        let (stop, stopping) = watch::channel(false);
        let context = context(NAME, config, namespace, settings, stopping);
        let metrics = context.metrics().clone();
        let task = tokio::spawn(async move { context.controller(operator).await.unwrap() });
        Self { stop, task, metrics }
    }

    /// Waits until its metrics fulfil a condition.
    pub async fn until(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let fulfilled = async {
            while !condition(&self.metrics.text()) {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, fulfilled).await.is_ok(), "not so: {what}\n{}", self.metrics.text());
    }

    /// Runs it with this client.
    pub fn with(operator: impl Operator, client: Client, namespace: &str) -> Self {
        let (stop, stopping) = watch::channel(false);
        let metrics = Metrics::new(opcore::build_info!()).unwrap();
        let context = context_of(NAME, client, metrics.clone(), namespace, Limits::default(), stopping);
        let task = tokio::spawn(async move { context.controller(operator).await.unwrap() });
        Self { stop, task, metrics }
    }

    /// Ends it in good order.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        tokio::time::timeout(PATIENCE, self.task).await.expect("it stops when asked").unwrap();
    }

    /// Ends it as a crash would: nothing more is written, not even what was begun.
    pub async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

pub fn context(
    operator: &str,
    config: Config,
    namespace: &str,
    settings: Settings,
    stopping: watch::Receiver<bool>,
) -> Context {
    let metrics = Metrics::new(opcore::build_info!()).unwrap();
    let shield = Shield {
        leadership: Leadership::unquestioned(),
        metrics: metrics.clone(),
        deadline: settings.request_deadline,
    };
    context_of(operator, shield.client(config).unwrap(), metrics, namespace, settings.limits, stopping)
}

fn context_of(
    operator: &str,
    client: Client,
    metrics: Metrics,
    namespace: &str,
    limits: Limits,
    stopping: watch::Receiver<bool>,
) -> Context {
    Context::new(Parts {
        client,
        operator: operator.to_owned(),
        namespaces: vec![namespace.to_owned()],
        limits,
        metrics,
        health: Health::default(),
        stopping,
    })
}

/// The Events about an object.
pub async fn events(stage: &Stage, about: &str) -> Vec<Event> {
    let api: Api<Event> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let all = api.list(&ListParams::default()).await.unwrap();
    let concerns = |event: &Event| event.regarding.as_ref().is_some_and(|r| r.name.as_deref() == Some(about));
    all.into_iter().filter(concerns).collect()
}

/// Waits for an Event about an object.
pub async fn event(stage: &Stage, about: &str, reason: &str) -> Event {
    let api: Api<Event> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let stream = kube_runtime::watcher(api, kube_runtime::watcher::Config::default());
    let mut stream = std::pin::pin!(kube_runtime::WatchStreamExt::applied_objects(stream));
    let found = async {
        loop {
            let event = stream.next().await.unwrap().unwrap();
            let concerns = event.regarding.as_ref().is_some_and(|r| r.name.as_deref() == Some(about));
            if concerns && event.reason.as_deref() == Some(reason) {
                return event;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("no Event {reason} about {about}"))
}

/// A client to which something happens once: right before the first such request is sent, after all that led to it.
pub fn meddled(
    upstream: &Client,
    when: impl Fn(&Request<Body>) -> bool + Send + 'static,
    meddle: impl Future<Output = ()> + Send + 'static,
) -> Client {
    let (upstream, meddle) = (upstream.clone(), Mutex::new(Some(meddle.boxed())));
    let service = tower::service_fn(move |request: Request<Body>| {
        let upstream = upstream.clone();
        let meddle = if when(&request) { meddle.lock().unwrap().take() } else { None };
        async move {
            if let Some(meddle) = meddle {
                meddle.await;
            }
            upstream.send(request).await
        }
    });
    Client::new(service, "default")
}

/// A request that writes.
pub fn writes(request: &Request<Body>) -> bool {
    request.method() != http::Method::GET
}
