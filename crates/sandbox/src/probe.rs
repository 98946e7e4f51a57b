//! Whether a component does its work.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use tokio::net::UnixStream;

use crate::Component;
use crate::home::Home;
use crate::kubeconfig;

/// Asks one component of one sandbox.
///
/// Certificates make sure that it is this sandbox's: a stranger on the same port is never taken for it.
/// Parts have none, and find their port taken when a stranger is there.
pub(crate) enum Probe {
    /// It answers at a path.
    Http { client: Client, path: &'static str },
    /// It listens on a socket in the file system.
    Socket(PathBuf),
}

impl Probe {
    /// Of a part, which answers everybody.
    pub(crate) fn part(path: &'static str, (address, port): (Ipv4Addr, u16)) -> anyhow::Result<Self> {
        crate::install_crypto();
        Self::asking(Config::new(format!("http://{address}:{port}").parse()?), path)
    }

    /// Of a component that answers at an address.
    pub(crate) async fn http(home: &Home, component: Component, address: (Ipv4Addr, u16)) -> anyhow::Result<Self> {
        let mut config = match component {
            Component::Etcd => etcd_config(home)?,
            _ => kubeconfig::load(&home.kubeconfig()).await?,
        };
        let (scheme, path) = match component {
            Component::Etcd => ("https", "/health"),
            Component::ApiServer => ("https", "/readyz"),
            // It says so without encryption, on the node's wire.
            Component::KubeProxy => ("http", "/healthz"),
            _ => ("https", "/healthz"),
        };
        config.cluster_url = format!("{scheme}://{}:{}", address.0, address.1).parse()?;
        Self::asking(config, path)
    }

    fn asking(mut config: Config, path: &'static str) -> anyhow::Result<Self> {
        config.proxy_url = None;
        // A probe is repeated anyway, and must not hide in retries what it found.
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(2));
        config.read_timeout = Some(Duration::from_secs(5));
        Ok(Self::Http { client: Client::try_from(config)?, path })
    }

    /// Succeeds when the component is ready, and otherwise says what it lacks.
    pub(crate) async fn ready(&self) -> anyhow::Result<()> {
        match self {
            Self::Http { client, path } => get(client, path).await,
            Self::Socket(path) => {
                UnixStream::connect(path).await.context("no process listens on its socket")?;
                Ok(())
            }
        }
    }
}

async fn get(client: &Client, path: &str) -> anyhow::Result<()> {
    let request = http::Request::get(path).body(Vec::new())?;
    let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(request));
    answer
        .await
        .map_err(|_| anyhow!("{path} did not answer within 5 s"))?
        .with_context(|| format!("{path} is not answered with ok"))?;
    Ok(())
}

/// Waits until the controller manager has given a namespace its ServiceAccount: before, no pod can be
/// created in it.
pub(crate) async fn default_account(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let found = async {
        loop {
            // An error here is a cluster that is busy or starting: asked again until the deadline.
            if let Ok(Some(_)) = accounts.get_opt("default").await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), found).await.map_err(|_| {
        anyhow!(
            "The namespace {namespace} has no ServiceAccount \"default\" after 60 s: \
                 kube-controller-manager does not do its work."
        )
    })
}

fn etcd_config(home: &Home) -> anyhow::Result<Config> {
    crate::install_crypto();
    let pki = home.pki();
    let pair = pki.pair("etcd-client");
    let mut config = Config::new("https://127.0.0.1".parse()?);
    config.root_cert = Some(vec![certificate(&pki.authority_cert("etcd-ca"))?]);
    config.auth_info = AuthInfo {
        client_certificate: Some(pair.cert.display().to_string()),
        client_key: Some(pair.key.display().to_string()),
        ..AuthInfo::default()
    };
    Ok(config)
}

/// The bytes inside a PEM file with one certificate.
fn certificate(path: &Path) -> anyhow::Result<Vec<u8>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    Ok(CertificateDer::from_pem_file(path)
        .map_err(|e| anyhow!("Cannot read the certificate {}: {e}", path.display()))?
        .to_vec())
}
