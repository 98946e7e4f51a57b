//! The programs that a running sandbox consists of.

use std::fmt;
use std::str::FromStr;

use anyhow::anyhow;
use serde::{Deserialize, Serialize};

use crate::Part;

/// A program of a sandbox: those of the control plane, then those of a node, then what was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Component {
    /// The store of all objects.
    Etcd,
    /// The API that everything else talks to.
    ApiServer,
    /// Namespaces, ServiceAccounts, garbage collection, Deployments, Jobs.
    ControllerManager,
    /// Assigns pods to nodes.
    Scheduler,
    /// The first process of the node: holds its namespaces. With it everything on the node ends.
    NodeInit,
    /// Runs containers.
    Containerd,
    /// Runs pods.
    Kubelet,
    /// Leads traffic for Services to their pods.
    KubeProxy,
    /// Something beside Kubernetes.
    Part(Part),
}

impl Component {
    /// Those of every sandbox, in the order in which they start.
    pub const CONTROL_PLANE: [Self; 4] = [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    /// Those of a node, in the order in which they start.
    pub const NODE: [Self; 4] = [Self::NodeInit, Self::Containerd, Self::Kubelet, Self::KubeProxy];

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::of_sandbox(true).chain(Part::all().map(Self::Part))
    }

    /// Those that a sandbox with or without a node consists of.
    pub(crate) fn of_sandbox(node: bool) -> impl Iterator<Item = Self> {
        Self::CONTROL_PLANE.into_iter().chain(Self::NODE.into_iter().filter(move |_| node))
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
            Self::Part(part) => part.name(),
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
        let named = |c: &Self| c.name() == name || c.name().strip_prefix("kube-") == Some(name);
        Self::all().find(named).ok_or_else(|| {
            let known: Vec<&str> = Self::all().map(Self::name).collect();
            anyhow!("There is no component {name:?}: choose one of {}.", known.join(", "))
        })
    }
}

impl TryFrom<String> for Component {
    type Error = anyhow::Error;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

impl From<Component> for String {
    fn from(component: Component) -> Self {
        component.name().to_owned()
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
                 kube-controller-manager, kube-scheduler, node-init, containerd, kubelet, kube-proxy, git, \
                 kustomize-controller, opentofu, prometheus, registry, registry-auth, source-controller, spire, \
                 terraform, traefik."
                .to_owned())
        );
    }
}
