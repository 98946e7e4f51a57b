//! The environment of a scenario: one node for the whole run, a fresh namespace for each scenario, and a cleanup.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};
use futures::FutureExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::config::AuthInfo;
use kube::{Api, Client, Config, Resource, ResourceExt};
use sandbox::{Options, Sandbox};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::explain;
use crate::helm::Release;
use crate::image::{self, Image};
use crate::wait::{PATIENCE, gone, yaml};

/// One scenario at a time: charts install CRDs, which are cluster-scoped.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The environment of a scenario.
pub struct Stage {
    /// A client with the rights of the administrator.
    pub client: Client,
    /// A fresh namespace that enforces the restricted Pod Security Standard.
    pub namespace: String,
    sandbox: Ground,
    helm: PathBuf,
    scratch: TempDir,
    /// The releases to remove in the end.
    releases: Mutex<Vec<Release>>,
    /// Other namespaces that are part of the explanation of a failure.
    elsewhere: Mutex<Vec<String>>,
}

/// The cluster of a stage.
enum Ground {
    Shared(&'static Sandbox),
    Own(Box<Sandbox>),
}

impl Deref for Ground {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        match self {
            Self::Shared(sandbox) => sandbox,
            Self::Own(sandbox) => sandbox,
        }
    }
}

/// Runs a scenario on a new stage. If it fails, an explanation is printed; in any case its releases, their CRDs and all
/// objects of these kinds are removed.
///
/// Where no node can run, it says that the scenario did not run, and why.
pub async fn scenario(name: &str, test: impl AsyncFn(&Stage) -> anyhow::Result<()>) -> anyhow::Result<()> {
    if !Sandbox::node_is_given().await?
        && let Err(why) = sandbox::can_run_node()
    {
        not_run(name, &format!("{why:#}"));
        return Ok(());
    }
    let _turn = TURN.lock().await;
    run_on(Stage::new(Ground::Shared(Sandbox::shared_with_node().await?)).await?, name, test).await
}

/// Runs a scenario on its own node, of which it may [stop](Sandbox::stop) and [restart](Sandbox::restart) anything.
pub async fn scenario_on_own_node(
    name: &str,
    test: impl AsyncFn(&Stage, &Sandbox) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if let Err(why) = sandbox::can_run_node() {
        not_run(name, &format!("{why:#}"));
        return Ok(());
    }
    let _turn = TURN.lock().await;
    let ground = if Sandbox::node_is_given().await? {
        Ground::Own(Box::new(Sandbox::start(Options { node: true, ..Options::default() }).await?))
    } else {
        // This process started it.
        Ground::Shared(Sandbox::shared_with_node().await?)
    };
    run_on(Stage::new(ground).await?, name, async |stage| test(stage, &stage.sandbox).await).await
}

async fn run_on(stage: Stage, name: &str, test: impl AsyncFn(&Stage) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let result = AssertUnwindSafe(Box::pin(test(&stage))).catch_unwind().await;
    if let Some(failure) = failure(&result) {
        let headline = failure.lines().next().unwrap_or_default();
        eprintln!("{name} failed: {headline}\n\n{}\n--- The failure in full\n{failure}", stage.explain().await);
    }
    let cleaned = stage.clear().await;
    match result {
        Err(panic) => resume_unwind(panic),
        // It has been printed.
        Ok(Err(_)) => bail!("{name} failed; what explains it is above."),
        Ok(Ok(())) => cleaned.with_context(|| format!("{name} went well, and could not be cleaned up")),
    }
}

/// Prints that a test, or a part of one, did not run.
pub fn not_run(name: &str, why: &str) {
    announce(&format!("NOT RUN: {name}: {why}"));
}

/// Prints a text even if no test fails.
pub fn announce(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn failure(result: &Result<anyhow::Result<()>, Box<dyn Any + Send>>) -> Option<String> {
    match result {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        // The message was printed when the panic happened.
        Err(_) => Some("an assertion does not hold".to_owned()),
    }
}

impl Stage {
    async fn new(sandbox: Ground) -> anyhow::Result<Self> {
        opcore::client::install_crypto_provider();
        let helm = sandbox::program("helm").await?;
        let client = sandbox.client().await?;
        let namespace = sandbox.namespace("e2e").await?;
        let label = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.patch(&namespace, &PatchParams::default(), &Patch::Merge(label)).await?;
        let scratch = tempfile::tempdir()?;
        Ok(Self { client, namespace, sandbox, helm, scratch, releases: Mutex::default(), elsewhere: Mutex::default() })
    }

    /// The API for the objects of a kind in the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The API for a kind by name, for example `example.opcore.dev/v1alpha1` and `Notebook`.
    pub fn objects(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Applies objects to the namespace, written in YAML as by a user.
    pub async fn write(&self, text: &str) -> anyhow::Result<()> {
        for document in serde_yaml::Deserializer::from_str(text) {
            let object = DynamicObject::deserialize(document)?;
            let types = object.types.clone().context("it has no apiVersion and kind")?;
            let api = self.objects(&types.api_version, &types.kind);
            let name = object.name_any();
            let applied = api.patch(&name, &PatchParams::apply("e2e"), &Patch::Apply(&object)).await;
            applied.with_context(|| format!("cannot apply\n{}", yaml(&object)))?;
        }
        Ok(())
    }

    /// The image of an operator, built and loaded into the node.
    pub async fn image(&self, operator: &str) -> anyhow::Result<Image> {
        image::loaded(operator, &self.sandbox).await
    }

    /// These values, and those that refer to the image of an operator that was built here.
    pub async fn with_image(&self, operator: &str, mut values: Value) -> anyhow::Result<Value> {
        let image = self.image(operator).await?;
        values["image"] = json!({ "repository": image.repository, "tag": image.tag, "pullPolicy": "Never" });
        Ok(values)
    }

    /// Loads the image of a component, for example `echo`, into the node.
    pub async fn load_component(&self, image: &str, component: &str) -> anyhow::Result<()> {
        let program = sandbox::program(component).await?;
        self.sandbox.load_image(&sandbox::Image::new(image, program)?).await
    }

    /// Loads the images of a part, for example `spire`, into the node, and installs their kinds in the cluster. Returns
    /// the names of the images by the variables that refer to them. Empty in a cluster that is not a sandbox, which
    /// pulls the published images.
    pub async fn images_of(&self, part: &str) -> anyhow::Result<BTreeMap<String, String>> {
        if self.sandbox.is_foreign() {
            return Ok(BTreeMap::new());
        }
        let part = part.parse()?;
        if self.sandbox.facts(part).is_empty() {
            self.sandbox.add_images(part).await?;
        }
        Ok(self.sandbox.facts(part))
    }

    /// Installs a chart of this repository, for example `charts/notebook-operator`, and waits until it is ready.
    ///
    /// # Errors
    /// When Helm fails, with its message; or when what it installed does not become ready.
    pub async fn install(&self, name: &str, chart: &str, values: &Value) -> anyhow::Result<Release> {
        let release = self.begin(name, chart, values).await?;
        release.ready(self, PATIENCE).await?;
        Ok(release)
    }

    /// Installs a chart without waiting.
    pub async fn begin(&self, name: &str, chart: &str, values: &Value) -> anyhow::Result<Release> {
        let release = Release::apply(self, name, chart, values).await?;
        self.releases.lock().unwrap_or_else(PoisonError::into_inner).push(release.clone());
        Ok(release)
    }

    /// The directory that is `/srv` on the node, for files that pods access with a `hostPath`. None in a cluster that
    /// is not a sandbox.
    pub fn srv(&self) -> Option<PathBuf> {
        self.sandbox.srv()
    }

    /// The configuration of the administrator, for another client.
    pub async fn config(&self) -> anyhow::Result<Config> {
        self.sandbox.config().await
    }

    /// A client with the rights of a ServiceAccount.
    pub async fn client_of(&self, namespace: &str, account: &str) -> anyhow::Result<Client> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let made = accounts.create_token_request(account, &PostParams::default(), &TokenRequest::default()).await?;
        let mut config = self.config().await?;
        let token = made.status.context("a token that was asked for is in the answer")?.token;
        config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
        Ok(Client::try_from(config)?)
    }

    /// Everything in the namespace, and in those of `plays_also_in`, that helps to explain a failure.
    pub async fn explain(&self) -> String {
        let mut text = explain::namespace(&self.client, &self.namespace).await;
        let elsewhere = self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for namespace in elsewhere {
            text.push_str(&explain::namespace(&self.client, &namespace).await);
        }
        text
    }

    /// Also uses this namespace to explain a failure.
    pub fn plays_also_in(&self, namespace: &str) {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).push(namespace.to_owned());
    }

    /// The audit log. None in a cluster that is not a sandbox.
    pub fn audit_log(&self) -> Option<PathBuf> {
        self.sandbox.audit_log()
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        self.sandbox.kubeconfig()
    }

    pub(crate) fn helm(&self) -> &Path {
        &self.helm
    }

    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Removes what the scenario installed, by force, because it may have failed at any point.
    async fn clear(&self) -> anyhow::Result<()> {
        let releases = std::mem::take(&mut *self.releases.lock().unwrap_or_else(PoisonError::into_inner));
        for release in releases {
            release.uninstall(self).await?;
            for crd in release.crds() {
                self.remove_kind(crd).await?;
            }
        }
        Api::<Namespace>::all(self.client.clone()).delete(&self.namespace, &DeleteParams::background()).await?;
        Ok(())
    }

    /// Removes a CRD with all its objects and their finalizers, because no operator is there to release them.
    async fn remove_kind(&self, name: &str) -> anyhow::Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let Some(crd) = crds.get_opt(name).await? else {
            return Ok(());
        };
        crds.delete(name, &DeleteParams::background()).await?;
        let version = crd.spec.versions.iter().find(|version| version.storage).context("a CRD stores a version")?;
        let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural);
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let left = match all.list(&ListParams::default()).await {
            // Without objects it is deleted at once.
            Err(kube::Error::Api(gone)) if gone.code == 404 => Vec::new(),
            found => found?.items,
        };
        for object in left {
            let own: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource),
                None => all.clone(),
            };
            let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            match own.patch(&object.name_any(), &PatchParams::default(), &free).await {
                Err(kube::Error::Api(gone)) if gone.code == 404 => {}
                other => drop(other?),
            }
        }
        gone(&crds, name, crd.metadata.uid.as_deref(), PATIENCE).await
    }
}
