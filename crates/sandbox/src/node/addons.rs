//! What runs on every node: CoreDNS as a pod, and a class of volumes.

use std::time::{Duration, Instant};

use anyhow::bail;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};

use super::{COREDNS_IMAGE, NAME, Network, manifests};

const MANIFESTS: &str = include_str!("addons.yaml");

/// How long a node may take to be ready.
const PATIENCE: Duration = Duration::from_mins(2);

/// Installs them, and returns when the node is ready and names are answered.
pub(crate) async fn install(client: &Client, network: Network) -> anyhow::Result<()> {
    let words = [
        ("{node-ip}", network.node().to_string()),
        ("{node-name}", NAME.to_owned()),
        ("{coredns-image}", COREDNS_IMAGE.to_owned()),
        ("{dns-ip}", network.dns_service().to_string()),
    ];
    manifests::apply(client, MANIFESTS, &words.each_ref().map(|(word, value)| (*word, value.as_str()))).await?;
    node_ready(client).await?;
    manifests::available(client, "kube-system", "coredns").await
}

async fn node_ready(client: &Client) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let node = nodes.get_opt(NAME).await?;
        let ready =
            node.as_ref().and_then(|n| n.status.as_ref()?.conditions.as_ref()?.iter().find(|c| c.type_ == "Ready"));
        if ready.is_some_and(|c| c.status == "True") {
            return Ok(());
        }
        if Instant::now() > deadline {
            let why = match (&node, ready.and_then(|c| c.message.as_deref())) {
                (None, _) => "the kubelet did not register it",
                (Some(_), message) => message.unwrap_or("the kubelet does not say why"),
            };
            bail!("The node is not ready after {} s: {why}.", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
