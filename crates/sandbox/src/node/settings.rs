//! How the programs of a node are set up.

use std::fs;

use anyhow::Context;
use serde_json::{Value, json};

use super::requirements::CNI_PLUGINS;
use super::{NAME, Network, PAUSE_IMAGE, cgroup};
use crate::home::Home;
use crate::pki::write_private;

/// Where containerd listens, on the node.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// Where the kubelet and kube-proxy answer, at the node's address.
pub(crate) const KUBELET_PORT: u16 = 10250;
pub(crate) const KUBE_PROXY_PORT: u16 = 10256;

/// Writes the files that the programs of a node are called with.
pub(crate) fn write(home: &Home, network: Network) -> anyhow::Result<()> {
    let plugins = home.node_setting("cni");
    fs::create_dir_all(&plugins).with_context(|| format!("Cannot create {}", plugins.display()))?;
    write_private(&home.node_setting("containerd.toml"), containerd(home).as_bytes())?;
    write_private(&plugins.join("10-sandbox.conflist"), &serde_json::to_vec_pretty(&pod_network(network))?)?;
    write_private(&home.node_setting("kubelet.json"), &serde_json::to_vec_pretty(&kubelet(home, network))?)?;
    // What a pod gets that asks for the node's names: no server at all.
    write_private(&home.node_setting("resolv.conf"), b"# No names beyond this sandbox.\n")
}

/// Paths are the usual ones: the node has its own `/run` and `/var/lib`.
fn containerd(home: &Home) -> String {
    let plugins = home.node_setting("cni");
    let plugins = plugins.display();
    // How to reach registries: a folder for each that needs words.
    let registries = home.node_setting("registries");
    let registries = registries.display();
    let snapshotter = snapshotter(home);
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.internal.v1.tracing",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Root in a container or a small virtual machine often lacks the right to lower it.
  restrict_oom_score_adj = true

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{registries}"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{plugins}"
"#
    )
}

/// Layers are laid over each other, unless the sandbox itself lies on such layers, where the kernel
/// refuses more of them: then they are copied.
pub(crate) fn snapshotter(home: &Home) -> &'static str {
    const OVERLAY: u64 = 0x794c_7630;
    let on_layers = rustix::fs::statfs(home.dir()).is_ok_and(|fs| u64::try_from(fs.f_type).is_ok_and(|t| t == OVERLAY));
    if on_layers { "native" } else { "overlayfs" }
}

/// A wire from every pod to the node, which routes between them. On a bridge the answer of one pod to
/// another would pass by the rules that make Services work, unless the kernel has `br_netfilter`.
fn pod_network(network: Network) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "sandbox",
        "plugins": [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": network.pods().to_string() }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                    "dataDir": "/var/lib/cni/networks",
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

fn kubelet(home: &Home, network: Network) -> Value {
    let pki = home.pki();
    let server = pki.pair("kubelet-server");
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.node().to_string(),
        "port": KUBELET_PORT,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": pki.authority_cert("ca") },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": server.cert,
        "tlsPrivateKeyFile": server.key,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "clusterDNS": [network.dns_service().to_string()],
        "clusterDomain": "cluster.local",
        "resolvConf": home.node_setting("resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", cgroup::name(home)),
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        // A disk that is nearly full is no reason to end the pods of a test, and images cannot be
        // pulled again: none is removed.
        "evictionHard": { "memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi" },
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "8760h",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "serializeImagePulls": false,
        // The defaults would measure the kubelet's manners, not us.
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "eventRecordQPS": 200,
        "eventBurst": 400,
        "registryPullQPS": 0,
        // A Secret or ConfigMap that changed is in its pods soon, and does not delay a test by a minute.
        "syncFrequency": "10s",
        "configMapAndSecretChangeDetectionStrategy": "Watch",
    })
}

/// The arguments of containerd.
pub(crate) fn containerd_flags(home: &Home) -> Vec<String> {
    vec![format!("--config={}", home.node_setting("containerd.toml").display())]
}

/// The arguments of the kubelet.
pub(crate) fn kubelet_flags(home: &Home, network: Network) -> Vec<String> {
    vec![
        format!("--config={}", home.node_setting("kubelet.json").display()),
        format!("--kubeconfig={}", home.kubeconfig_of("kubelet").display()),
        format!("--hostname-override={NAME}"),
        format!("--node-ip={}", network.node()),
    ]
}

/// The arguments of kube-proxy.
pub(crate) fn kube_proxy_flags(home: &Home, network: Network) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", home.kubeconfig_of("kube-proxy").display()),
        format!("--hostname-override={NAME}"),
        "--proxy-mode=iptables".to_owned(),
        format!("--cluster-cidr={}", network.pods()),
        format!("--healthz-bind-address={}:{KUBE_PROXY_PORT}", network.node()),
        // A Service leads to a new pod at once rather than after a second.
        "--iptables-min-sync-period=100ms".to_owned(),
        // These are the whole machine's.
        "--conntrack-max-per-core=0".to_owned(),
        "--conntrack-min=0".to_owned(),
        "--conntrack-tcp-timeout-established=0".to_owned(),
        "--conntrack-tcp-timeout-close-wait=0".to_owned(),
    ]
}
