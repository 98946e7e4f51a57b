//! A running Flux: its real controllers, a git server, and a chain of Kustomizations of one ConfigMap each.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use opcore_testing::wait::eventually;
use sandbox::{Options, Sandbox};
use serde_json::{Value, json};

use crate::operator;

/// The number of Kustomizations in the chain.
pub const LENGTH: usize = 5;

/// Starts a control plane with Flux, and returns when Flux has fetched a repository.
pub async fn start() -> anyhow::Result<Sandbox> {
    opcore::client::install_crypto_provider();
    let with = ["git", "source-controller", "kustomize-controller"];
    let with = with.map(str::parse).into_iter().collect::<Result<_, _>>()?;
    let sandbox = Sandbox::start(Options { with, ..Options::default() }).await?;
    let client = sandbox.client().await?;
    operator::install(&client).await;
    let url = push(&sandbox)?;
    let repository = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": "fleet", "namespace": "default" },
        "spec": { "url": url, "ref": { "branch": "main" }, "interval": "10m" },
    });
    let repositories = api(&client, "source.toolkit.fluxcd.io", "GitRepository", "default");
    repositories.patch("fleet", &PatchParams::apply("tests"), &Patch::Apply(&repository)).await?;
    eventually(&repositories, "fleet", "Ready", is_ready).await;
    Ok(sandbox)
}

/// A namespace for Kustomizations on a control plane with Flux.
pub struct Fleet {
    pub client: Client,
    pub namespace: String,
}

impl Fleet {
    pub async fn new(sandbox: &Sandbox, prefix: &str) -> anyhow::Result<Self> {
        Ok(Self { client: sandbox.client().await?, namespace: sandbox.namespace(prefix).await? })
    }

    /// Its Kustomizations.
    pub fn kustomizations(&self) -> Api<DynamicObject> {
        api(&self.client, "kustomize.toolkit.fluxcd.io", "Kustomization", &self.namespace)
    }

    /// Creates the Kustomization of one ConfigMap with this field manager, and with these additional fields.
    pub async fn kustomize(&self, number: usize, manager: &str, more: Value) -> anyhow::Result<()> {
        let (name, namespace) = (name(number), &self.namespace);
        let mut spec = json!({
            "interval": "10m", "path": format!("./{name}"), "prune": true, "wait": true, "timeout": "2m",
            "targetNamespace": namespace, "sourceRef": { "kind": "GitRepository", "name": "fleet", "namespace": "default" },
        });
        if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
            spec.extend(more);
        }
        let kustomization = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": { "name": name, "namespace": namespace }, "spec": spec,
        });
        let params = PatchParams::apply(manager);
        self.kustomizations().patch(&name, &params, &Patch::Apply(&kustomization)).await?;
        Ok(())
    }

    /// Creates five of them, each of which depends on the previous one.
    pub async fn chain(&self) -> anyhow::Result<()> {
        for number in 1..=LENGTH {
            let depends_on = if number == 1 { json!([]) } else { json!([{ "name": name(number - 1) }]) };
            self.kustomize(number, "tests", json!({ "dependsOn": depends_on })).await?;
        }
        Ok(())
    }
}

/// The plan over a chain: one wave each.
pub fn waves(namespace: &str) -> Value {
    let wave = |number: usize| {
        let member = reference(namespace, number);
        let before = if number == 1 { json!([]) } else { json!([{ "wave": name(number - 1) }]) };
        json!({ "name": name(number), "dependsOn": before, "members": [{ "ref": member }] })
    };
    json!({ "waves": (1..=LENGTH).map(wave).collect::<Vec<_>>() })
}

/// A reference to a Kustomization of the chain.
pub fn reference(namespace: &str, number: usize) -> Value {
    let api_version = "kustomize.toolkit.fluxcd.io/v1";
    json!({ "apiVersion": api_version, "kind": "Kustomization", "namespace": namespace, "name": name(number) })
}

/// The name of a Kustomization, and of its ConfigMap and its folder.
pub fn name(number: usize) -> String {
    format!("k{number}")
}

/// Whether Flux reports that it is ready for its current spec.
pub fn is_ready(object: &DynamicObject) -> bool {
    let status = &object.data["status"];
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    status["observedGeneration"].as_i64() == object.metadata.generation
        && status["conditions"].as_array().into_iter().flatten().any(ready)
}

fn api(client: &Client, group: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Pushes a repository with a ConfigMap in each folder. Returns its URL.
fn push(sandbox: &Sandbox) -> anyhow::Result<String> {
    let facts = sandbox.facts("git".parse()?);
    let fact = |name: &str| facts.get(name).with_context(|| format!("the git server says nothing of {name}"));
    let url = format!("{}/fleet.git", fact("OPCORE_GIT_URL")?);
    let login = format!("http://{}:{}@", fact("OPCORE_GIT_USER")?, fact("OPCORE_GIT_PASSWORD")?);
    let dir = tempfile::tempdir()?;
    for number in 1..=LENGTH {
        let (folder, name) = (dir.path().join(name(number)), name(number));
        std::fs::create_dir(&folder)?;
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "text": "rain" } });
        std::fs::write(folder.join("map.yaml"), serde_yaml::to_string(&map)?)?;
    }
    git(dir.path(), &["init", "--quiet", "--initial-branch=main"])?;
    git(dir.path(), &["add", "."])?;
    git(dir.path(), &["commit", "--quiet", "--message=one"])?;
    git(dir.path(), &["push", "--quiet", &url.replace("http://", &login), "main"])?;
    Ok(url)
}

fn git(dir: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("git");
    // Without the git settings of the user who runs this.
    command.env("HOME", dir).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "dev").env(format!("GIT_{who}_EMAIL"), "dev@example.com");
    }
    let output = command.args(arguments).current_dir(dir).output()?;
    ensure!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
