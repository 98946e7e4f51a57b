//! The SPIFFE CSI driver.

#[cfg(test)]
mod tests;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, ObjectFieldSelector, PodSpec, SecurityContext, VolumeMount,
};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec};

use super::agent::{as_root, host_directory};
use super::common::{Part, mount, owned_dynamic, read_only, words};
use super::constraints::{self, Powers};
use super::{Error, Objects, Platform, Settings, in_order, owned};
use crate::api::v1alpha1::SpiffeCSIDriver;

/// The name of the driver's objects, except the CSIDriver, which has that of the plugin.
pub const NAME: &str = "spire-spiffe-csi-driver";
/// The component of its pods, by the label `app.kubernetes.io/component`.
pub const COMPONENT: &str = "csi";

/// Lets pods that OpenShift restricts use the driver in their volumes.
const ALLOWED_FOR_RESTRICTED_PODS: (&str, &str) = ("security.openshift.io/csi-ephemeral-volume-profile", "restricted");
/// The directory of the kubelet on a node.
const KUBELET_DIRECTORY: &str = "/var/lib/kubelet";
/// Where the containers find the driver's socket.
const DRIVER_DIRECTORY: &str = "/spiffe-csi";
/// Where the driver finds the agent's socket.
const AGENT_DIRECTORY: &str = "/spire-agent-socket";
/// The variable from which the driver knows its node: what it looks for by default.
const NODE_VARIABLE: &str = "MY_NODE_NAME";

/// All objects of the driver.
///
/// # Errors
///
/// When an object cannot be rendered.
pub fn objects(driver: &SpiffeCSIDriver, settings: &Settings, platform: &Platform) -> Result<Objects, Error> {
    let name = "spiffe-csi-driver";
    let part = Part { name, component: COMPONENT, placement: &driver.spec.placement, settings, platform };
    let mut support = vec![owned(driver, part.service_account(NAME))?];
    if platform.security_context_constraints {
        let powers = Powers { host_pid: false, privileged: true };
        let (resource, metadata, data) = constraints::of(&part, NAME, powers);
        support.push(owned_dynamic(driver, resource, metadata, data)?);
    }
    let template = part.template(None, pod(driver, &part));
    let workload = DaemonSet {
        metadata: part.meta(NAME),
        spec: Some(DaemonSetSpec { selector: part.label_selector(), template, ..DaemonSetSpec::default() }),
        ..DaemonSet::default()
    };
    let workload = vec![in_order(&registered(driver, &part))?, in_order(&workload)?];
    Ok(Objects { support, workload, routes: Vec::new() })
}

/// What Kubernetes must know of the driver.
fn registered(driver: &SpiffeCSIDriver, part: &Part<'_>) -> CSIDriver {
    let mut metadata = part.cluster_meta(&driver.spec.plugin_name);
    let (label, value) = ALLOWED_FOR_RESTRICTED_PODS;
    metadata.labels.get_or_insert_default().insert(label.to_owned(), value.to_owned());
    CSIDriver {
        metadata,
        spec: CSIDriverSpec {
            attach_required: Some(false),
            // By this the driver knows that a volume goes with its pod.
            pod_info_on_mount: Some(true),
            // The socket is open to all, and is not to be given to the group of a pod.
            fs_group_policy: Some("None".to_owned()),
            volume_lifecycle_modes: Some(vec!["Ephemeral".to_owned()]),
            ..CSIDriverSpec::default()
        },
    }
}

fn pod(driver: &SpiffeCSIDriver, part: &Part<'_>) -> PodSpec {
    let images = &part.settings.images;
    let plugin = &driver.spec.plugin_name;
    let socket = format!("{DRIVER_DIRECTORY}/csi.sock");
    let plugin_directory = format!("{KUBELET_DIRECTORY}/plugins/{plugin}");
    let pods_directory = format!("{KUBELET_DIRECTORY}/pods");

    let field = ObjectFieldSelector { field_path: "spec.nodeName".to_owned(), ..ObjectFieldSelector::default() };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    let main = Container {
        args: words(["-workload-api-socket-dir", AGENT_DIRECTORY, "-plugin-name", plugin, "-csi-socket-path", &socket]),
        env: Some(vec![EnvVar { name: NODE_VARIABLE.to_owned(), value_from: Some(source), ..EnvVar::default() }]),
        resources: part.resources(),
        security_context: Some(privileged()),
        volume_mounts: Some(vec![
            read_only("agent-sockets", AGENT_DIRECTORY),
            mount("plugin", DRIVER_DIRECTORY),
            // What it mounts for a pod must appear on the node.
            VolumeMount { mount_propagation: Some("Bidirectional".to_owned()), ..mount("pods", &pods_directory) },
        ]),
        ..part.container("spiffe-csi-driver", &images.csi_driver)
    };
    let registration = format!("{plugin_directory}/csi.sock");
    let mut registrar = Container {
        args: words(["-csi-address", &socket, "-kubelet-registration-path", &registration]),
        volume_mounts: Some(vec![mount("plugin", DRIVER_DIRECTORY), mount("registration", "/registration")]),
        ..part.container("node-driver-registrar", &images.csi_registrar)
    };
    if part.platform.security_context_constraints {
        // SELinux lets no other container use the directories of the kubelet.
        registrar.security_context = Some(privileged());
    }
    let volumes = vec![
        host_directory("agent-sockets", &driver.spec.agent_socket_path, "DirectoryOrCreate"),
        host_directory("plugin", &plugin_directory, "DirectoryOrCreate"),
        host_directory("pods", &pods_directory, "Directory"),
        host_directory("registration", &format!("{KUBELET_DIRECTORY}/plugins_registry"), "Directory"),
    ];
    // Neither talks to the API server.
    let pod = part.pod(Some(NAME), vec![main, registrar], volumes);
    PodSpec { automount_service_account_token: Some(false), ..as_root(pod) }
}

/// Only privileged containers may mount for others.
fn privileged() -> SecurityContext {
    SecurityContext { privileged: Some(true), read_only_root_filesystem: Some(true), ..SecurityContext::default() }
}
