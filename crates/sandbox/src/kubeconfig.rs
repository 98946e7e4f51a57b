//! Kubeconfig files, with the certificates inside: one file can be copied and used elsewhere.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Context;
use k8s_openapi::ByteString;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::pki::{Pki, write_private};

/// Writes the kubeconfig of one identity of the `pki`, readable by its owner only.
pub(crate) fn write(path: &Path, pki: &Pki, identity: &str, (address, port): (Ipv4Addr, u16)) -> anyhow::Result<()> {
    let pair = pki.pair(identity);
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sandbox",
        "clusters": [{ "name": "sandbox", "cluster": {
            "server": format!("https://{address}:{port}"),
            "certificate-authority-data": embedded(&pki.authority_cert("ca"))?,
        }}],
        "users": [{ "name": identity, "user": {
            "client-certificate-data": embedded(&pair.cert)?,
            "client-key-data": embedded(&pair.key)?,
        }}],
        "contexts": [{ "name": "sandbox", "context": {
            "cluster": "sandbox", "user": identity, "namespace": "default",
        }}],
    });
    write_private(path, serde_yaml::to_string(&document)?.as_bytes())
}

/// A file's content as Base64: the way Kubernetes writes bytes in JSON.
fn embedded(path: &Path) -> anyhow::Result<ByteString> {
    std::fs::read(path).map(ByteString).with_context(|| format!("Cannot read {}", path.display()))
}

/// The address of the API server that a kubeconfig file names, as in `https://127.0.0.1:6443`.
pub(crate) fn server(path: &Path) -> anyhow::Result<String> {
    let file = Kubeconfig::read_from(path).with_context(|| format!("Cannot use the kubeconfig {}", path.display()))?;
    let cluster = file.clusters.into_iter().next().and_then(|named| named.cluster?.server);
    cluster.with_context(|| format!("{} names no server", path.display()))
}

/// The client configuration that a kubeconfig file describes.
pub(crate) async fn load(path: &Path) -> anyhow::Result<Config> {
    crate::install_crypto();
    let file = Kubeconfig::read_from(path).with_context(|| format!("Cannot use the kubeconfig {}", path.display()))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("Cannot use the kubeconfig {}", path.display()))
}
