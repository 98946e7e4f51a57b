//! The programs that a running sandbox consists of.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A program of a sandbox: those of the control plane, then those of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Component {
    /// The store of all objects.
    #[serde(rename = "etcd")]
    Etcd,
    /// The API that everything else talks to.
    #[serde(rename = "kube-apiserver")]
    ApiServer,
    /// Namespaces, ServiceAccounts, garbage collection, Deployments, Jobs.
    #[serde(rename = "kube-controller-manager")]
    ControllerManager,
    /// Assigns pods to nodes.
    #[serde(rename = "kube-scheduler")]
    Scheduler,
    /// The first process of the node: holds its namespaces. With it everything on the node ends.
    #[serde(rename = "node-init")]
    NodeInit,
    /// Runs containers.
    #[serde(rename = "containerd")]
    Containerd,
    /// Runs pods.
    #[serde(rename = "kubelet")]
    Kubelet,
    /// Leads traffic for Services to their pods.
    #[serde(rename = "kube-proxy")]
    KubeProxy,
}

impl Component {
    /// Those of every sandbox, in the order in which they start.
    pub const CONTROL_PLANE: [Self; 4] = [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    /// Those of a node, in the order in which they start.
    pub const NODE: [Self; 4] = [Self::NodeInit, Self::Containerd, Self::Kubelet, Self::KubeProxy];

    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::NodeInit,
        Self::Containerd,
        Self::Kubelet,
        Self::KubeProxy,
    ];

    /// Those that a sandbox with or without a node consists of.
    pub(crate) fn of_sandbox(node: bool) -> &'static [Self] {
        if node { &Self::ALL } else { &Self::CONTROL_PLANE }
    }

    /// The name of its program, which is also the name of its log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::NodeInit => "node-init",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Component {
    type Err = anyhow::Error;

    /// Takes the name with or without its `kube-`.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|c| c.name() == name || c.name().strip_prefix("kube-") == Some(name)).ok_or_else(
            || {
                anyhow::anyhow!(
                    "There is no component {name:?}: choose one of {}.",
                    Self::ALL.map(Self::name).join(", ")
                )
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_known_by_its_long_and_its_short_name() -> anyhow::Result<()> {
        assert_eq!("kube-apiserver".parse::<Component>()?, Component::ApiServer);
        assert_eq!("apiserver".parse::<Component>()?, Component::ApiServer);
        assert_eq!("etcd".parse::<Component>()?, Component::Etcd);
        Ok(())
    }

    #[test]
    fn an_unknown_component_is_answered_with_those_that_exist() {
        let answer = "kubelte".parse::<Component>().map_err(|e| e.to_string());
        assert_eq!(
            answer,
            Err("There is no component \"kubelte\": choose one of etcd, kube-apiserver, \
                 kube-controller-manager, kube-scheduler, node-init, containerd, kubelet, kube-proxy."
                .to_owned())
        );
    }
}
