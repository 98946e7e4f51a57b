//! The order inside a wave: what others need comes first; deletes go the other way.

/// When, inside a wave, an object is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// What a hook does before everything else.
    Before,
    /// Namespaces, kinds and cluster roles: everything else needs them.
    Definitions,
    /// Classes that others name.
    Classes,
    /// Objects of kinds that are not Kubernetes' own.
    CustomResources,
    /// The rest.
    #[default]
    Rest,
    /// What the API server asks before it accepts others: last, or it would ask what does not run yet.
    Webhooks,
    /// What a hook does when everything else is ready.
    After,
}

impl Stage {
    /// When an object of this kind is applied.
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

    /// Whether the stages after this one wait until everything in it is ready. Custom resources are not waited for: what
    /// makes them ready may be in the rest.
    pub fn is_awaited(self) -> bool {
        self <= Self::Classes
    }

    /// Whether it belongs to a hook.
    pub fn is_hook(self) -> bool {
        matches!(self, Self::Before | Self::After)
    }
}

/// Kubernetes' own groups have no dot, or end with `.k8s.io`.
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
