//! What the objects of all operands have in common: labels, pods that are restricted, rights, configuration.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMap, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, HTTPGetAction,
    LocalObjectReference, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile,
    SecretVolumeSource, SecurityContext, Service, ServiceAccount, ServicePort, ServiceSpec, Volume, VolumeMount,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use kube::api::{ApiResource, DynamicObject, ObjectMeta, TypeMeta};
use opcore::{Write, digest};
use serde_json::{Value, json};

use super::{COMPONENT_LABEL, Error, PART_OF, Platform, Settings, owner_of};
use crate::api::v1alpha1::{CONFIG_HASH_ANNOTATION, Placement};
use crate::observe::cluster_spiffe_ids;

/// The value of `app.kubernetes.io/managed-by`.
const MANAGED_BY: &str = "lifecycle-operator";
/// The value of `app.kubernetes.io/instance`. The selector of a workload cannot be changed: this is the value of the
/// upstream operator, so that a workload that it made can be taken over as it is.
const INSTANCE: &str = "cluster-zero-trust-workload-identity-manager";
/// The user and group of SPIRE's images, and of ours where they work on the same files.
const USER: i64 = 1000;
/// How long a pod may take to end.
const GRACE_SECONDS: i64 = 30;

/// An operand, or a part of one that has pods of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// The value of `app.kubernetes.io/name`.
    pub name: &'a str,
    /// The value of `app.kubernetes.io/component`.
    pub component: &'a str,
    /// What the operand's spec says about its pods.
    pub placement: &'a Placement,
    /// The settings of the operator.
    pub settings: &'a Settings,
    /// Which optional APIs the cluster has.
    pub platform: &'a Platform,
}

impl Part<'_> {
    /// The labels by which its pods are selected. They never change.
    pub(crate) fn selector(&self) -> BTreeMap<String, String> {
        let labels = [
            ("app.kubernetes.io/name", self.name),
            ("app.kubernetes.io/instance", INSTANCE),
            (COMPONENT_LABEL, self.component),
        ];
        labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    /// The same, for a workload.
    pub(crate) fn label_selector(&self) -> LabelSelector {
        LabelSelector { match_labels: Some(self.selector()), ..LabelSelector::default() }
    }

    /// The labels of all its objects: the user's, and ours, which the user's cannot replace.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.placement.labels.clone();
        labels.extend(self.selector());
        labels.insert("app.kubernetes.io/part-of".to_owned(), PART_OF.to_owned());
        labels.insert("app.kubernetes.io/managed-by".to_owned(), MANAGED_BY.to_owned());
        labels
    }

    /// The metadata of an object in the namespace of the operands.
    pub(crate) fn meta(&self, name: &str) -> ObjectMeta {
        ObjectMeta { namespace: Some(self.settings.namespace.clone()), ..self.cluster_meta(name) }
    }

    /// The metadata of an object of the cluster.
    pub(crate) fn cluster_meta(&self, name: &str) -> ObjectMeta {
        ObjectMeta { name: Some(name.to_owned()), labels: Some(self.labels()), ..ObjectMeta::default() }
    }

    /// The account of its pods.
    pub(crate) fn service_account(&self, name: &str) -> ServiceAccount {
        ServiceAccount { metadata: self.meta(name), ..ServiceAccount::default() }
    }

    /// A ConfigMap with these files.
    pub(crate) fn config_map<'a>(&self, name: &str, files: impl IntoIterator<Item = (&'a str, String)>) -> ConfigMap {
        let data = files.into_iter().map(|(name, content)| (name.to_owned(), content)).collect();
        ConfigMap { metadata: self.meta(name), data: Some(data), ..ConfigMap::default() }
    }

    /// A Service in front of its pods.
    pub(crate) fn service(&self, name: &str, ports: Vec<ServicePort>) -> Service {
        let spec = ServiceSpec { ports: Some(ports), selector: Some(self.selector()), ..ServiceSpec::default() };
        Service { metadata: self.meta(name), spec: Some(spec), ..Service::default() }
    }

    /// Rights in the whole cluster, and their binding to an account; both have the same name.
    pub(crate) fn cluster_rights(
        &self,
        name: &str,
        account: &str,
        rules: Vec<PolicyRule>,
    ) -> (ClusterRole, ClusterRoleBinding) {
        let role = ClusterRole { metadata: self.cluster_meta(name), rules: Some(rules), ..ClusterRole::default() };
        let binding = ClusterRoleBinding {
            metadata: self.cluster_meta(name),
            role_ref: role_ref("ClusterRole", name),
            subjects: Some(vec![self.subject(account)]),
        };
        (role, binding)
    }

    /// Rights in the namespace of the operands, and their binding to an account; both have the same name.
    pub(crate) fn rights(&self, name: &str, account: &str, rules: Vec<PolicyRule>) -> (Role, RoleBinding) {
        let role = Role { metadata: self.meta(name), rules: Some(rules) };
        let binding = RoleBinding {
            metadata: self.meta(name),
            role_ref: role_ref("Role", name),
            subjects: Some(vec![self.subject(account)]),
        };
        (role, binding)
    }

    fn subject(&self, account: &str) -> Subject {
        Subject {
            kind: "ServiceAccount".to_owned(),
            name: account.to_owned(),
            namespace: Some(self.settings.namespace.clone()),
            ..Subject::default()
        }
    }

    /// A container that is restricted: no other user, no more privileges, nothing to write to but its volumes.
    pub(crate) fn container(&self, name: &str, image: &str) -> Container {
        Container {
            name: name.to_owned(),
            image: Some(image.to_owned()),
            image_pull_policy: Some(self.settings.pull_policy.clone()),
            security_context: Some(restricted()),
            // What a program says last when it fails is in its pod's status, and from there in the operand's.
            termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
            ..Container::default()
        }
    }

    /// The resources of its main container.
    pub(crate) fn resources(&self) -> Option<ResourceRequirements> {
        self.placement.resources.clone()
    }

    /// A pod that is restricted and runs where the spec says. Without an account it has no token.
    pub(crate) fn pod(&self, account: Option<&str>, containers: Vec<Container>, volumes: Vec<Volume>) -> PodSpec {
        let placement = self.placement;
        let secrets = self.settings.pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() });
        PodSpec {
            containers,
            volumes: unless_empty(volumes),
            service_account_name: account.map(str::to_owned),
            automount_service_account_token: account.is_none().then_some(false),
            enable_service_links: Some(false),
            image_pull_secrets: unless_empty(secrets.collect()),
            termination_grace_period_seconds: Some(GRACE_SECONDS),
            security_context: Some(self.restricted_pod()),
            affinity: placement.affinity.clone(),
            node_selector: Some(placement.node_selector.clone()).filter(|labels| !labels.is_empty()),
            tolerations: unless_empty(placement.tolerations.clone()),
            ..PodSpec::default()
        }
    }

    /// Where there are SecurityContextConstraints, OpenShift chooses the user and the group of the namespace.
    fn restricted_pod(&self) -> PodSecurityContext {
        let id = (!self.platform.security_context_constraints).then_some(USER);
        PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: id,
            run_as_group: id,
            fs_group: id,
            // The files of a large volume are not touched one by one on each start.
            fs_group_change_policy: id.map(|_| "OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }),
            ..PodSecurityContext::default()
        }
    }

    /// A template for pods. They are replaced when `config_hash` changes: see [`config_hash`].
    pub(crate) fn template(&self, config_hash: Option<String>, spec: PodSpec) -> PodTemplateSpec {
        let annotations = config_hash.map(|hash| BTreeMap::from([(CONFIG_HASH_ANNOTATION.to_owned(), hash)]));
        let metadata = ObjectMeta { labels: Some(self.labels()), annotations, ..ObjectMeta::default() };
        PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) }
    }

    /// A ClusterSPIFFEID of the class that our controller manager serves. Only where [`Platform::spiffe_ids`] says that
    /// the kind is there.
    pub(crate) fn cluster_spiffe_id<O>(&self, owner: &O, name: &str, mut spec: Value) -> Result<Write, Error>
    where
        O: Resource<DynamicType = ()>,
    {
        spec["className"] = json!(self.settings.class_name);
        owned_dynamic(owner, cluster_spiffe_ids(), self.cluster_meta(name), json!({ "spec": spec }))
    }
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: "rbac.authorization.k8s.io".to_owned(), kind: kind.to_owned(), name: name.to_owned() }
}

fn unless_empty<T>(items: Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then_some(items)
}

/// The security context of a container with no privileges.
pub(crate) fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        ..SecurityContext::default()
    }
}

/// A digest of the configuration that pods read when they start. It changes exactly when one of the parts does.
pub(crate) fn config_hash(parts: &[&str]) -> String {
    digest::of_parts(parts)
}

/// The write of an object of a kind without a type here, that must not go before its turn: see
/// [`in_order`](super::in_order).
pub(crate) fn in_order_dynamic(resource: ApiResource, metadata: ObjectMeta, data: Value) -> Write {
    let types = TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() };
    Write::apply_dynamic(resource, DynamicObject { types: Some(types), metadata, data })
}

/// The write of an object of a kind without a type here, that may go at any time: see [`owned`](super::owned).
pub(crate) fn owned_dynamic<O>(
    owner: &O,
    resource: ApiResource,
    mut metadata: ObjectMeta,
    data: Value,
) -> Result<Write, Error>
where
    O: Resource<DynamicType = ()>,
{
    metadata.owner_references = owner_of(owner, metadata.namespace.as_deref())?;
    Ok(in_order_dynamic(resource, metadata, data))
}

/// A rule: these verbs on these resources of an API group.
pub(crate) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let all = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(all(resources)),
        verbs: all(verbs),
        ..PolicyRule::default()
    }
}

/// The port of a container.
pub(crate) fn container_port(name: &str, port: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// The port of a Service that leads to the port of this name.
pub(crate) fn service_port(name: &str, port: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port,
        target_port: Some(IntOrString::String(name.to_owned())),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}

/// A probe by HTTP. How often and how long is for the caller to say.
pub(crate) fn http_probe(path: &str, port: &str) -> Probe {
    let get = HTTPGetAction {
        path: Some(path.to_owned()),
        port: IntOrString::String(port.to_owned()),
        ..HTTPGetAction::default()
    };
    Probe { http_get: Some(get), ..Probe::default() }
}

/// A volume with the files of a ConfigMap.
pub(crate) fn config_volume(name: &str, config_map: &str) -> Volume {
    let source = ConfigMapVolumeSource { name: config_map.to_owned(), ..ConfigMapVolumeSource::default() };
    Volume { name: name.to_owned(), config_map: Some(source), ..Volume::default() }
}

/// A volume with the files of a Secret.
pub(crate) fn secret_volume(name: &str, secret: &str) -> Volume {
    // Programs refuse private keys that everyone may read. Our pods are in the group of the files.
    let source = SecretVolumeSource {
        secret_name: Some(secret.to_owned()),
        default_mode: Some(0o640),
        ..SecretVolumeSource::default()
    };
    Volume { name: name.to_owned(), secret: Some(source), ..Volume::default() }
}

/// A volume that is empty, and goes with the pod.
pub(crate) fn empty_volume(name: &str) -> Volume {
    Volume { name: name.to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

/// Where a container finds a volume.
pub(crate) fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

/// The same, to read only.
pub(crate) fn read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount(name, path) }
}

/// Arguments of a program, as a container has them.
#[allow(clippy::unnecessary_wraps, reason = "a container may have none")]
pub(crate) fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<Vec<String>> {
    Some(words.into_iter().map(str::to_owned).collect())
}
