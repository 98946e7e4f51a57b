//! OpenShift's SecurityContextConstraints, for pods that share directories with their node.

use kube::api::{ApiResource, ObjectMeta};
use serde_json::{Value, json};

use super::common::Part;
use crate::observe::security_context_constraints;

/// What pods may do beyond mounting directories of their node and running as root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Powers {
    /// See all processes of the node.
    pub host_pid: bool,
    /// Be privileged.
    pub privileged: bool,
}

/// The constraints for the pods of an account; they have its name. For
/// [`owned_dynamic`](super::common::owned_dynamic).
pub(crate) fn of(part: &Part<'_>, account: &str, powers: Powers) -> (ApiResource, ObjectMeta, Value) {
    let any = json!({ "type": "RunAsAny" });
    let data = json!({
        "users": [format!("system:serviceaccount:{}:{account}", part.settings.namespace)],
        "groups": [],
        "allowHostDirVolumePlugin": true,
        "allowHostPID": powers.host_pid,
        "allowHostIPC": false,
        "allowHostNetwork": false,
        "allowHostPorts": false,
        "allowPrivilegedContainer": powers.privileged,
        "allowPrivilegeEscalation": powers.privileged,
        "allowedCapabilities": [],
        "defaultAddCapabilities": [],
        "requiredDropCapabilities": if powers.privileged { json!([]) } else { json!(["ALL"]) },
        "readOnlyRootFilesystem": true,
        "runAsUser": any,
        "seLinuxContext": any,
        "fsGroup": any,
        "supplementalGroups": any,
        "seccompProfiles": ["runtime/default"],
        "volumes": ["configMap", "emptyDir", "hostPath", "projected"],
    });
    (security_context_constraints(), part.cluster_meta(account), data)
}
