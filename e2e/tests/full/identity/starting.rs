//! A stack comes up: each part when the one before it is ready, and then workloads have identities.

use anyhow::{Context, ensure};
use e2e::identity::{TRUST_DOMAIN, api, bundle, get, identity, install, stack};
use e2e::{Stage, scenario};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt};
use lifecycle_operator::render::{COMPONENT_LABEL, agent, csi, oidc, server};
use serde::de::DeserializeOwned;
use serde_json::Value;

const NAME: &str = "a_stack_comes_up_in_order_and_a_workload_gets_an_identity_that_the_bundle_verifies";

#[tokio::test]
async fn a_stack_comes_up_in_order_and_a_workload_gets_an_identity_that_the_bundle_verifies() -> anyhow::Result<()> {
    scenario(NAME, async |stage| {
        install(stage).await?;
        stack(stage).await?;
        it_came_up_in_order(stage).await?;

        let svid = identity(stage, "workload").await?;
        ensure!(svid.id == format!("spiffe://{TRUST_DOMAIN}/ns/{}/sa/default", stage.namespace), "{svid:?}");
        svid.verify(&bundle(stage).await?)?;
        the_discovery_document_is_served(stage).await
    })
    .await
}

/// Server, trust bundle, agents, driver, provider: nobody was started before the one before could serve it.
async fn it_came_up_in_order(stage: &Stage) -> anyhow::Result<()> {
    let steps = [
        ("the server was ready", ready_since(stage, server::COMPONENT).await?),
        ("the agents were made", made::<DaemonSet>(stage, agent::NAME).await?),
        ("the agents were ready", ready_since(stage, agent::COMPONENT).await?),
        ("the driver was made", made::<DaemonSet>(stage, csi::NAME).await?),
        ("the driver was ready", ready_since(stage, csi::COMPONENT).await?),
        ("the provider was made", made::<Deployment>(stage, oidc::NAME).await?),
    ];
    ensure!(steps.is_sorted_by_key(|(_, at)| *at), "the order is another: {steps:#?}");
    let published = published(stage).await?;
    ensure!(published <= steps[1].1, "the bundle was there at {published} only: {steps:#?}");
    Ok(())
}

/// When a workload was made.
async fn made<K>(stage: &Stage, name: &str) -> anyhow::Result<Timestamp>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let found = api::<K>(stage).get(name).await?;
    Ok(found.creation_timestamp().context("it was made at some time")?.0)
}

/// Since when the pod of a component has been ready.
async fn ready_since(stage: &Stage, component: &str) -> anyhow::Result<Timestamp> {
    let pods: Api<Pod> = api(stage);
    let pods = pods.list(&ListParams::default().labels(&format!("{COMPONENT_LABEL}={component}"))).await?;
    let conditions = pods.items.iter().flat_map(|pod| pod.status.iter().flat_map(|it| it.conditions.iter().flatten()));
    let since = conditions
        .filter(|it| it.type_ == "Ready" && it.status == "True")
        .filter_map(|it| it.last_transition_time.as_ref());
    since.map(|time| time.0).min().with_context(|| format!("no pod of {component} is ready"))
}

/// When the server wrote the trust bundle for the first time: what fields it manages is the server's own record.
async fn published(stage: &Stage) -> anyhow::Result<Timestamp> {
    let map = api::<ConfigMap>(stage).get("spire-bundle").await?;
    let by_server = map.managed_fields().iter().filter(|entry| entry.manager.as_deref() == Some("spire-server"));
    let times = by_server.filter_map(|entry| entry.time.as_ref().map(|time| time.0));
    times.min().with_context(|| format!("the server has written nothing: {map:#?}"))
}

/// Relying parties outside SPIFFE find the keys of JWT-SVIDs.
async fn the_discovery_document_is_served(stage: &Stage) -> anyhow::Result<()> {
    let host = format!("oidc-discovery.{TRUST_DOMAIN}");
    let document: Value = get(stage, oidc::COMPONENT, 8080, &host, "/.well-known/openid-configuration").await?;
    ensure!(document["issuer"] == format!("https://{host}"), "{document:#}");
    let keys: Value = get(stage, oidc::COMPONENT, 8080, &host, "/keys").await?;
    ensure!(keys["keys"].as_array().is_some_and(|keys| !keys.is_empty()), "{keys:#}");
    Ok(())
}
