//! The order inside a wave: objects that others need come first; deletes run in the reverse order.

/// The stage of a wave in which an object is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Objects of a hook that runs before everything else.
    Before,
    /// Namespaces, CRDs and cluster roles: everything else needs them.
    Definitions,
    /// Classes that other objects refer to.
    Classes,
    /// Objects of kinds that are not built into Kubernetes.
    CustomResources,
    /// Everything else.
    #[default]
    Rest,
    /// What the API server calls before it accepts other objects: last, or it would call something that does not run
    /// yet.
    Webhooks,
    /// Objects of a hook that runs when everything else is ready.
    After,
}

impl Stage {
    /// The stage in which an object of this kind is applied.
    pub fn of(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("", "Namespace")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("rbac.authorization.k8s.io", "ClusterRole") => Self::Definitions,
            ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration")
            | ("apiregistration.k8s.io", "APIService") => Self::Webhooks,
            (group, kind) if is_builtin(group) && kind.ends_with("Class") => Self::Classes,
            (group, _) if is_builtin(group) => Self::Rest,
            (_, kind) if kind.ends_with("Class") => Self::Classes,
            _ => Self::CustomResources,
        }
    }

    /// Whether later stages wait until everything in this stage is ready. Custom resources are not waited for: what
    /// makes them ready may be among the remaining objects.
    pub fn is_awaited(self) -> bool {
        self <= Self::Classes
    }

    /// Whether it belongs to a hook.
    pub fn is_hook(self) -> bool {
        matches!(self, Self::Before | Self::After)
    }
}

/// Groups built into Kubernetes have no dot, or end with `.k8s.io`.
fn is_builtin(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_need_comes_first() {
        let mut kinds = [
            ("apps", "Deployment"),
            ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
            ("postgresql.cnpg.io", "Cluster"),
            ("storage.k8s.io", "StorageClass"),
            ("", "Namespace"),
        ];
        kinds.sort_by_key(|(group, kind)| Stage::of(group, kind));
        assert_eq!(
            kinds.map(|(_, kind)| kind),
            ["Namespace", "StorageClass", "Cluster", "Deployment", "ValidatingWebhookConfiguration"]
        );
    }
}
