//! What the tests share: a namespace on the real control plane, notebooks in it, and operators to run.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Config, CustomResourceExt, Resource};
use opcore::Operator;
use opcore::finalizer::OnExpiry;
use sandbox::Sandbox;
use serde_json::{Value, json};

pub use opcore_testing::PATIENCE;
pub use opcore_testing::meddling::{meddled, writes};
pub use opcore_testing::running::{Running, Settings, context};
pub use opcore_testing::wait::{eventually, gone};

use crate::notebook::{NAME, Notebook, NotebookSpec, Notebooks};

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

    /// Creates a notebook with a page that is nested so deep that kube cannot read it.
    pub async fn write_deep(&self, name: &str) {
        let notebook = json!({
            "apiVersion": "example.opcore.dev/v1alpha1", "kind": "Notebook",
            "metadata": {"name": name}, "spec": {"pages": {"monday": "rain"}, "attic": attic()},
        });
        let body = serde_json::to_vec(&notebook).unwrap();
        self.send(self.request().create(&PostParams::default(), body).unwrap()).await;
    }

    /// Nests a notebook so deep that kube cannot read it.
    pub async fn deepen(&self, name: &str) {
        let deeper = Patch::Merge(json!({"spec": {"attic": attic()}}));
        self.send(self.request().patch(name, &PatchParams::default(), &deeper).unwrap()).await;
    }

    /// Makes it readable again.
    pub async fn flatten(&self, name: &str) {
        let flat = Patch::Merge(json!({"spec": {"attic": null}}));
        self.notebooks().patch(name, &PatchParams::default(), &flat).await.unwrap();
    }

    /// A request for notebooks whose response kube does not need to parse.
    pub fn request(&self) -> kube::core::Request {
        kube::core::Request::new(Notebook::url_path(&(), Some(&self.namespace)))
    }

    pub async fn send(&self, request: http::Request<Vec<u8>>) {
        self.client.request_text(request).await.unwrap();
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

    /// Runs it with this configuration.
    pub fn run_at(&self, config: Config) -> Running {
        start(Notebooks, config, &self.namespace, Settings::default())
    }
}

/// Deeper than the default limit of serde_json. The API server accepts ten thousand levels.
fn attic() -> Value {
    (0..150).fold(json!("dust"), |inside, _| json!({ "box": inside }))
}

/// Installs the CRD with a schema that accepts invalid objects: the operator must check them, too.
pub async fn install(client: &Client) {
    let mut crd = serde_json::to_value(Notebook::crd()).unwrap();
    let loose = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = loose;
    opcore_testing::wait::install(client, &serde_json::from_value(crd).unwrap()).await;
}

/// Runs an operator in a namespace, under the name of the notebook operator.
pub fn start(operator: impl Operator, config: Config, namespace: &str, settings: Settings) -> Running {
    Running::start(NAME, config, &[namespace], settings, |_| operator)
}

/// The same with this client.
pub fn start_with(operator: impl Operator, client: Client, namespace: &str) -> Running {
    Running::with(NAME, client, &[namespace], |_| operator)
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
