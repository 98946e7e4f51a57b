//! How each component is called.

use std::path::Path;

use crate::home::Home;
use crate::node::{Network, settings};
use crate::{Component, Options};

/// The addresses of Services, where there is no node.
const SERVICE_RANGE: &str = "10.96.0.0/16";

/// Who did what to which object, without the objects themselves: they may hold secrets.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

/// Writes the files that flags refer to.
pub(crate) fn write_files(home: &Home, options: &Options) -> anyhow::Result<()> {
    if options.audit {
        crate::pki::write_private(&home.audit_policy(), AUDIT_POLICY.as_bytes())?;
    }
    Ok(())
}

/// The arguments of a component. `port` returns the port of each; `network` is that of the node, if any.
pub(crate) fn of(
    component: Component,
    home: &Home,
    options: &Options,
    network: Option<Network>,
    port: impl Fn(Component) -> u16,
) -> Vec<String> {
    let own_port = port(component);
    match (component, network) {
        (Component::Etcd, _) => etcd(home, options, own_port),
        (Component::ApiServer, _) => api_server(home, options, network, own_port, port(Component::Etcd)),
        (Component::ControllerManager, _) => controller_manager(home, network, own_port),
        (Component::Scheduler, _) => client(home, "scheduler", own_port),
        (Component::Containerd, _) => settings::containerd_flags(home),
        (Component::Kubelet, Some(network)) => settings::kubelet_flags(home, network),
        (Component::KubeProxy, Some(network)) => settings::kube_proxy_flags(home, network),
        // Parts bring their own words.
        (Component::NodeInit | Component::Kubelet | Component::KubeProxy | Component::Part(_), _) => Vec::new(),
    }
}

fn etcd(home: &Home, options: &Options, port: u16) -> Vec<String> {
    let pki = home.pki();
    let pair = pki.pair("etcd");
    let authority = pki.authority_cert("etcd-ca");
    // One member needs no peers, but etcd insists on an address for them: port 0 is any free one.
    let peer = "https://127.0.0.1:0";
    let url = format!("https://127.0.0.1:{port}");
    let mut flags = vec![
        "--name=sandbox".to_owned(),
        path("--data-dir", &home.etcd_data()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=sandbox={peer}"),
        // Without a certificate of this sandbox nobody reads or writes, other users of the machine included.
        "--client-cert-auth".to_owned(),
        path("--trusted-ca-file", &authority),
        path("--cert-file", &pair.cert),
        path("--key-file", &pair.key),
        "--peer-client-cert-auth".to_owned(),
        path("--peer-trusted-ca-file", &authority),
        path("--peer-cert-file", &pair.cert),
        path("--peer-key-file", &pair.key),
        // The default of 2 GB ends a long benchmark with a read-only store.
        "--quota-backend-bytes=8589934592".to_owned(),
    ];
    if !options.durable {
        flags.push("--unsafe-no-fsync".to_owned());
    }
    flags
}

fn api_server(home: &Home, options: &Options, network: Option<Network>, port: u16, etcd_port: u16) -> Vec<String> {
    let pki = home.pki();
    let server = pki.pair("server");
    let store = pki.pair("etcd-client");
    let proxy = pki.pair("front-proxy-client");
    let accounts = pki.service_accounts();
    let mut flags = vec![
        format!("--secure-port={port}"),
        path("--tls-cert-file", &server.cert),
        path("--tls-private-key-file", &server.key),
        path("--client-ca-file", &pki.authority_cert("ca")),
        format!("--etcd-servers=https://127.0.0.1:{etcd_port}"),
        path("--etcd-cafile", &pki.authority_cert("etcd-ca")),
        path("--etcd-certfile", &store.cert),
        path("--etcd-keyfile", &store.key),
        format!("--service-cluster-ip-range={}", service_range(network)),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        // ValidatingAdmissionPolicy is on by itself; its mutating sister is still behind these two.
        "--feature-gates=MutatingAdmissionPolicy=true".to_owned(),
        "--runtime-config=admissionregistration.k8s.io/v1beta1=true".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        path("--service-account-key-file", &accounts.cert),
        path("--service-account-signing-key-file", &accounts.key),
        path("--requestheader-client-ca-file", &pki.authority_cert("front-proxy-ca")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        path("--proxy-client-cert-file", &proxy.cert),
        path("--proxy-client-key-file", &proxy.key),
        // Asked to end, it would otherwise wait a minute for watches that have no reason to end.
        "--shutdown-watch-termination-grace-period=1s".to_owned(),
    ];
    match network {
        None => flags.extend([
            "--bind-address=127.0.0.1".to_owned(),
            // Without a node nobody could reach the `kubernetes` Service, and loopback may not be an endpoint.
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
        ]),
        Some(network) => {
            let kubelets = pki.pair("kubelet-client");
            flags.extend([
                // On the wire to the node and nowhere else: this machine and its pods reach it there.
                format!("--bind-address={}", network.host()),
                format!("--advertise-address={}", network.host()),
                // By its address: nobody here could resolve the node's name.
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
                path("--kubelet-certificate-authority", &pki.authority_cert("ca")),
                path("--kubelet-client-certificate", &kubelets.cert),
                path("--kubelet-client-key", &kubelets.key),
            ]);
        }
    }
    if options.audit {
        flags.push(path("--audit-policy-file", &home.audit_policy()));
        flags.push(path("--audit-log-path", &home.audit_log()));
        // An answer is given only once it is in the log: who counts writes there misses none.
        flags.push("--audit-log-mode=blocking-strict".to_owned());
    }
    flags.extend(options.api_server_flags.iter().cloned());
    flags
}

fn service_range(network: Option<Network>) -> String {
    network.map_or_else(|| SERVICE_RANGE.to_owned(), |network| network.services().to_string())
}

fn controller_manager(home: &Home, network: Option<Network>, port: u16) -> Vec<String> {
    let pki = home.pki();
    let authority = pki.pair("ca");
    let mut flags = client(home, "controller-manager", port);
    flags.extend([
        // Each controller as its own ServiceAccount, with the rights it has in a real cluster.
        "--use-service-account-credentials=true".to_owned(),
        path("--service-account-private-key-file", &pki.service_accounts().key),
        path("--root-ca-file", &authority.cert),
        path("--cluster-signing-cert-file", &authority.cert),
        path("--cluster-signing-key-file", &authority.key),
        format!("--service-cluster-ip-range={}", service_range(network)),
        // It makes this directory, and the default is one of the machine's.
        path("--flex-volume-plugin-dir", &home.dir().join("volume-plugins")),
        // The default of 20 requests a second would measure the controller manager, not us.
        "--kube-api-qps=200".to_owned(),
        "--kube-api-burst=400".to_owned(),
    ]);
    if let Some(network) = network {
        flags.extend([
            // A claim that is heard of before its volume, as when both are applied at once, is looked at again after this
            // time. The default of 15 s would keep its pod waiting for two of them.
            "--pvclaimbinder-sync-period=1s".to_owned(),
            // Volumes for claims: directories in the node's /tmp.
            "--enable-hostpath-provisioner=true".to_owned(),
            "--allocate-node-cidrs=true".to_owned(),
            format!("--cluster-cidr={}", network.pods()),
            // There is one node: it gets all of them.
            format!("--node-cidr-mask-size={}", network.pods().length()),
        ]);
    }
    flags
}

/// What the controller manager and the scheduler have in common.
fn client(home: &Home, identity: &str, port: u16) -> Vec<String> {
    let pki = home.pki();
    let server = pki.pair("server");
    let kubeconfig = home.kubeconfig_of(identity);
    vec![
        path("--kubeconfig", &kubeconfig),
        path("--authentication-kubeconfig", &kubeconfig),
        path("--authorization-kubeconfig", &kubeconfig),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        path("--tls-cert-file", &server.cert),
        path("--tls-private-key-file", &server.key),
        // There is one of each, so nobody to elect: work begins at once.
        "--leader-elect=false".to_owned(),
    ]
}

fn path(flag: &str, path: &Path) -> String {
    format!("{flag}={}", path.display())
}
