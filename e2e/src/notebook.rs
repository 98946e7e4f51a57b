//! The example operator: its chart, and what its scenarios share.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::wait::{PATIENCE, holds, until};
use crate::{Release, Stage};

/// The name of the operator and of its image.
pub const OPERATOR: &str = "notebook-operator";
/// The path of its chart.
pub const CHART: &str = "charts/opcore-lib/tests/notebook-operator";
/// The name of the release in the scenarios.
pub const RELEASE: &str = "notebook-operator";
/// The name of its CRD.
pub const CRD: &str = "notebooks.example.opcore.dev";

/// Installs it with these values in addition to those for its image, and waits until it is ready.
pub async fn install(stage: &Stage, values: Value) -> anyhow::Result<Release> {
    let values = stage.with_image(OPERATOR, values).await?;
    stage.install(RELEASE, CHART, &values).await
}

/// Creates or updates a notebook with one page per day, and waits until it is ready.
pub async fn written(stage: &Stage, name: &str, days: &[&str]) -> anyhow::Result<DynamicObject> {
    write(stage, name, days).await?;
    ready(stage, name).await
}

/// Creates or updates a notebook with one page per day.
pub async fn write(stage: &Stage, name: &str, days: &[&str]) -> anyhow::Result<()> {
    let pages: BTreeMap<&str, &str> = days.iter().map(|day| (*day, "rain")).collect();
    let notebook = json!({
        "apiVersion": "example.opcore.dev/v1alpha1",
        "kind": "Notebook",
        "metadata": { "name": name },
        "spec": { "pages": pages },
    });
    // JSON is YAML.
    stage.write(&notebook.to_string()).await
}

/// Waits until a notebook is ready.
pub async fn ready(stage: &Stage, name: &str) -> anyhow::Result<DynamicObject> {
    until(&notebooks(stage), name, "Ready", PATIENCE, |notebook| holds(notebook, "Ready")).await
}

/// The notebooks of the stage.
pub fn notebooks(stage: &Stage) -> Api<DynamicObject> {
    stage.objects("example.opcore.dev/v1alpha1", "Notebook")
}

/// The pages that exist of a notebook, with its cover, sorted by name.
pub async fn pages(stage: &Stage, notebook: &str) -> anyhow::Result<Vec<String>> {
    let maps: Api<ConfigMap> = stage.api();
    let found = maps.list(&ListParams::default().labels("example.opcore.dev/page")).await?;
    let prefix = format!("{notebook}-");
    let names = found.iter().filter_map(|map| map.name_any().strip_prefix(&prefix).map(str::to_owned));
    let mut pages: Vec<_> = names.collect();
    pages.sort();
    Ok(pages)
}

/// Waits until one of its pods other than `before` is the leader, and returns it.
pub async fn leader(stage: &Stage, before: Option<&Pod>, deadline: Duration) -> anyhow::Result<Pod> {
    let leases: Api<Lease> = stage.api();
    let before = before.map(ResourceExt::name_any);
    let taken = |lease: &Lease| holder(lease).is_some_and(|holder| Some(&holder) != before.as_ref());
    let awaited = match &before {
        Some(pod) => format!("held by another pod than {pod}"),
        None => "held by a pod".to_owned(),
    };
    let lease = until(&leases, RELEASE, &awaited, deadline, taken).await?;
    let name = holder(&lease).context("a lease that is held has a holder")?;
    Ok(stage.api::<Pod>().get(&name).await?)
}

/// The pod that holds a lease: the identity starts with the name of the pod.
fn holder(lease: &Lease) -> Option<String> {
    let identity = lease.spec.as_ref()?.holder_identity.as_deref()?;
    identity.split('_').next().filter(|name| !name.is_empty()).map(str::to_owned)
}
