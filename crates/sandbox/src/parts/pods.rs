//! Parts that run in pods: an image of one of our programs, and the objects that use it.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};

use super::Place;
use crate::image::{self, Image};
use crate::kubeconfig;
use crate::node::{Enclosure, manifests};

/// What is installed.
pub(crate) struct Pods {
    /// The program that the image holds.
    pub(crate) program: &'static str,
    pub(crate) image: &'static str,
    /// Objects in YAML; `{image}` and `{node-ip}` stand for what they say.
    pub(crate) manifests: &'static str,
    /// The Deployment that is available when the part is ready.
    pub(crate) namespace: &'static str,
    pub(crate) deployment: &'static str,
}

/// Installs them, and returns when they do their work.
pub(crate) async fn install(
    pods: &Pods,
    place: &Place<'_>,
    enclosure: &Enclosure,
    client: &Client,
) -> anyhow::Result<()> {
    let network = place.network.context("pods need a node")?;
    let image = Image::new(pods.image, place.binaries.get(pods.program)?)?;
    let layout = tokio::task::spawn_blocking(move || image.build()).await??;
    image::load(layout, enclosure, place.home).await?;
    let node = network.node().to_string();
    manifests::apply(client, pods.manifests, &[("{image}", pods.image), ("{node-ip}", &node)]).await?;
    manifests::available(client, pods.namespace, pods.deployment).await
}

/// Whether they run now, as far as the API server of a sandbox says so.
pub(crate) async fn run(pods: &Pods, home: &crate::home::Home) -> anyhow::Result<bool> {
    let mut config = kubeconfig::load(&home.kubeconfig()).await?;
    config.proxy_url = None;
    config.default_retry = false;
    let deployments: Api<Deployment> = Api::namespaced(Client::try_from(config)?, pods.namespace);
    let found = tokio::time::timeout(Duration::from_secs(3), deployments.get_opt(pods.deployment)).await??;
    Ok(found.is_some_and(|deployment| manifests::is_available(&deployment)))
}
