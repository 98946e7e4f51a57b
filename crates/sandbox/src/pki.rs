//! Keys and certificates of one sandbox.
//!
//! Three authorities, so that a certificate for one purpose is worth nothing for another: the cluster's
//! (API clients and serving), etcd's (only the API server may read the store), and the front proxy's
//! (which may speak for other users to aggregated APIs).

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::node::{self, Network};

/// The first address of the service range of a sandbox without a node: the `kubernetes` Service.
const SERVICE_IP: &str = "10.96.0.1";

const SERVER_NAMES: [&str; 6] = [
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// The directory that holds them. Every key is readable by its owner only.
#[derive(Clone, Debug)]
pub(crate) struct Pki {
    dir: PathBuf,
}

/// Paths of a certificate and its key.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pki {
    pub(crate) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Writes a complete new set: for a node too, where there is a network for one.
    pub(crate) fn create(&self, network: Option<Network>) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.dir).with_context(|| format!("Cannot create {}", self.dir.display()))?;

        let cluster = self.authority("ca", "opcore-sandbox")?;
        let mut servers = Profile::server("kube-apiserver");
        match network {
            None => servers.names.push(SERVICE_IP.to_owned()),
            Some(network) => {
                servers.names.extend([network.host(), network.api_service()].map(|address| address.to_string()));
            }
        }
        self.issue(&cluster, "server", &servers)?;
        self.issue(&cluster, "admin", &Profile::client("opcore-sandbox-admin", Some("system:masters")))?;
        self.issue(&cluster, "controller-manager", &Profile::client("system:kube-controller-manager", None))?;
        self.issue(&cluster, "scheduler", &Profile::client("system:kube-scheduler", None))?;
        if let Some(network) = network {
            self.issue_for_node(&cluster, network)?;
        }

        let etcd = self.authority("etcd-ca", "opcore-sandbox-etcd")?;
        // etcd is its own peer, so its certificate serves and calls.
        let store = Profile {
            purposes: vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            ..Profile::server("etcd")
        };
        self.issue(&etcd, "etcd", &store)?;
        self.issue(&etcd, "etcd-client", &Profile::client("kube-apiserver", None))?;

        let front_proxy = self.authority("front-proxy-ca", "opcore-sandbox-front-proxy")?;
        self.issue(&front_proxy, "front-proxy-client", &Profile::client("front-proxy-client", None))?;

        let accounts = KeyPair::generate()?;
        let files = self.service_accounts();
        write_private(&files.key, accounts.serialize_pem().as_bytes())?;
        write_private(&files.cert, accounts.public_key_pem().as_bytes())?;
        Ok(())
    }

    /// What the kubelet and kube-proxy are to the API server, and the API server to the kubelet.
    fn issue_for_node(&self, cluster: &CertifiedIssuer<'static, KeyPair>, network: Network) -> anyhow::Result<()> {
        self.issue(cluster, "kubelet", &Profile::client(NODE_USER, Some("system:nodes")))?;
        self.issue(cluster, "kube-proxy", &Profile::client("system:kube-proxy", None))?;
        self.issue(cluster, "kubelet-client", &Profile::client("kube-apiserver", Some("system:masters")))?;
        let server =
            Profile { names: vec![node::NAME.to_owned(), network.node().to_string()], ..Profile::server(NODE_USER) };
        self.issue(cluster, "kubelet-server", &server)
    }

    /// A certificate and its key by name, e.g. `admin`.
    pub(crate) fn pair(&self, name: &str) -> Pair {
        Pair { cert: self.dir.join(format!("{name}.crt")), key: self.dir.join(format!("{name}.key")) }
    }

    /// The certificate of an authority: `ca`, `etcd-ca` or `front-proxy-ca`.
    pub(crate) fn authority_cert(&self, name: &str) -> PathBuf {
        self.pair(name).cert
    }

    /// The key that signs ServiceAccount tokens, and in place of a certificate its public half.
    pub(crate) fn service_accounts(&self) -> Pair {
        Pair { cert: self.dir.join("service-accounts.pub"), key: self.dir.join("service-accounts.key") }
    }

    fn authority(&self, name: &str, common_name: &str) -> anyhow::Result<CertifiedIssuer<'static, KeyPair>> {
        let mut params = dated(CertificateParams::default());
        params.distinguished_name = subject(common_name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let files = self.pair(name);
        write_private(&files.cert, issuer.pem().as_bytes())?;
        write_private(&files.key, issuer.key().serialize_pem().as_bytes())?;
        Ok(issuer)
    }

    fn issue(&self, issuer: &CertifiedIssuer<'static, KeyPair>, name: &str, profile: &Profile) -> anyhow::Result<()> {
        let mut params = dated(CertificateParams::new(profile.names.clone())?);
        params.distinguished_name = subject(profile.common_name, profile.organization);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages.clone_from(&profile.purposes);
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let files = self.pair(name);
        write_private(&files.cert, params.signed_by(&key, issuer)?.pem().as_bytes())?;
        write_private(&files.key, key.serialize_pem().as_bytes())?;
        Ok(())
    }
}

/// The kubelet's name in the cluster: that of [`node::NAME`] with what Kubernetes puts before it.
const NODE_USER: &str = "system:node:node";

/// The subject of a certificate.
struct Profile {
    common_name: &'static str,
    organization: Option<&'static str>,
    names: Vec<String>,
    purposes: Vec<ExtendedKeyUsagePurpose>,
}

impl Profile {
    fn server(common_name: &'static str) -> Self {
        Self {
            common_name,
            organization: None,
            names: SERVER_NAMES.map(str::to_owned).to_vec(),
            purposes: vec![ExtendedKeyUsagePurpose::ServerAuth],
        }
    }

    /// Kubernetes takes the common name for the user and the organization for the group.
    fn client(common_name: &'static str, organization: Option<&'static str>) -> Self {
        Self { common_name, organization, names: Vec::new(), purposes: vec![ExtendedKeyUsagePurpose::ClientAuth] }
    }
}

fn subject(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}

/// Valid from the start of this year, whatever the time zone or a clock that is a little off, for ten years.
fn dated(mut params: CertificateParams) -> CertificateParams {
    let year = i32::from(jiff::Zoned::now().year());
    params.not_before = date_time_ymd(year - 1, 12, 31);
    params.not_after = date_time_ymd(year + 10, 1, 1);
    params
}

/// Writes a file that only its owner can read, from the first byte on.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(content)
    };
    write().with_context(|| format!("Cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_complete_set_is_written_and_only_the_owner_can_read_it() -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let pki = Pki::at(dir.path().join("pki"));
        pki.create(None)?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir.path().join("pki"))? {
            let entry = entry?;
            let mode = entry.metadata()?.permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", entry.path().display());
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        assert_eq!(
            names,
            [
                "admin.crt",
                "admin.key",
                "ca.crt",
                "ca.key",
                "controller-manager.crt",
                "controller-manager.key",
                "etcd-ca.crt",
                "etcd-ca.key",
                "etcd-client.crt",
                "etcd-client.key",
                "etcd.crt",
                "etcd.key",
                "front-proxy-ca.crt",
                "front-proxy-ca.key",
                "front-proxy-client.crt",
                "front-proxy-client.key",
                "scheduler.crt",
                "scheduler.key",
                "server.crt",
                "server.key",
                "service-accounts.key",
                "service-accounts.pub",
            ]
        );
        Ok(())
    }

    #[test]
    fn two_sandboxes_share_no_key() -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let keys: Vec<Vec<u8>> = ["a", "b"]
            .into_iter()
            .map(|name| {
                let pki = Pki::at(dir.path().join(name));
                pki.create(None)?;
                Ok(std::fs::read(pki.pair("ca").key)?)
            })
            .collect::<anyhow::Result<_>>()?;
        assert_ne!(keys[0], keys[1]);
        Ok(())
    }
}
