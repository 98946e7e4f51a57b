//! A real node: containerd, kubelet and kube-proxy in namespaces of their own.
//!
//! The node has its own processes, mounts and network, and its own `/tmp`, `/run`, `/var/lib`,
//! `/var/log` and `/srv`. When its first process ends the kernel ends all others, containers included,
//! and with them go their mounts, interfaces and rules. What this machine sees of a node is one interface, its
//! processes, and a group of them in every control group hierarchy: see [`remains`].

mod addons;
pub(crate) mod cgroup;
mod enclosure;
pub(crate) mod manifests;
mod network;
pub(crate) mod remains;
pub(crate) mod requirements;
pub(crate) mod settings;

pub(crate) use addons::install as install_addons;
pub(crate) use enclosure::{Enclosure, Within};
pub(crate) use network::Network;

/// The name of the node, in its sandbox.
pub(crate) const NAME: &str = "node";

/// Where the programs of a node find the system's: components get nothing from the caller's environment.
pub(crate) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The images that every node has.
pub(crate) const PAUSE_IMAGE: &str = "sandbox.opcore.dev/pause:v1";
pub(crate) const COREDNS_IMAGE: &str = "sandbox.opcore.dev/coredns:v1";
