//! What is decided, from clusters that are written down as `kubectl get --output yaml` prints them.

mod inheriting;
mod laws;
mod leaving;
mod migrating;
mod starting;
mod volume;

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::Resource;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::core::object::HasStatus;
use opcore::operator::Reconciled;
use opcore::{Decision, Write};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Decider;
use crate::api::v1alpha1::{
    OperandKind, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer,
    ZeroTrustWorkloadIdentityManager as Ztwim,
};
use crate::observe::{Found, Observed};
use crate::operand::Peer;
use crate::render::{Images, Settings};

/// The parent's UID in all of these.
pub(super) const UID: &str = "00000000-0000-0000-0000-000000000001";

/// A moment.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub(super) fn decider() -> Decider {
    let image = |name: &str| format!("example.com/{name}:v1");
    let settings = Settings {
        namespace: "spire".to_owned(),
        images: Images {
            server: image("server"),
            controller_manager: image("controller-manager"),
            agent: image("agent"),
            csi_driver: image("csi-driver"),
            csi_registrar: image("csi-registrar"),
            oidc: image("oidc"),
            volume: image("volume"),
        },
        pull_policy: "IfNotPresent".to_owned(),
        pull_secrets: Vec::new(),
        class_name: "tests".to_owned(),
    };
    Decider { settings, operator: "lifecycle-operator".to_owned() }
}

/// A cluster, from the objects in it. Everything but parent and operands counts as the operand's own that is decided
/// on.
pub(super) fn cluster(yaml: &str) -> Observed {
    let mut observed = Observed { namespace_exists: true, ..Observed::default() };
    for document in serde_yaml::Deserializer::from_str(yaml) {
        let mut object = Value::deserialize(document).unwrap_or_else(|error| panic!("{error}: {yaml}"));
        if object.is_null() {
            continue;
        }
        let kind = object["kind"].as_str().unwrap().to_owned();
        let uid = if kind == "ZeroTrustWorkloadIdentityManager" {
            UID.to_owned()
        } else {
            format!("uid-{kind}-{}", object["metadata"]["name"].as_str().unwrap())
        };
        object["metadata"].as_object_mut().unwrap().entry("uid").or_insert_with(|| uid.into());
        match kind.as_str() {
            "ZeroTrustWorkloadIdentityManager" => observed.parent = Some(read(&object)),
            "SpireServer" => observed.peers.push(Peer::of(&read::<SpireServer>(&object)).unwrap()),
            "SpireAgent" => observed.peers.push(Peer::of(&read::<SpireAgent>(&object)).unwrap()),
            "SpiffeCSIDriver" => observed.peers.push(Peer::of(&read::<SpiffeCSIDriver>(&object)).unwrap()),
            "SpireOIDCDiscoveryProvider" => {
                observed.peers.push(Peer::of(&read::<SpireOIDCDiscoveryProvider>(&object)).unwrap());
            }
            "Pod" => observed.pods.push(read(&object)),
            other => {
                match other {
                    "PersistentVolumeClaim" => observed.claims.push(read(&object)),
                    "ConfigMap" => observed.bundle = Some(read(&object)),
                    "StatefulSet" => observed.server = Some(read(&object)),
                    _ => {}
                }
                observed.found.push(found(object));
            }
        }
    }
    observed
}

pub(super) fn found(object: Value) -> Found {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap());
    Found::new(&resource, object).unwrap()
}

pub(super) fn read<K: DeserializeOwned>(object: &Value) -> K {
    serde_json::from_value(object.clone()).unwrap()
}

/// The parent in a cluster.
pub(super) fn parent(observed: &Observed) -> Ztwim {
    observed.parent.clone().unwrap()
}

/// An operand in a cluster.
pub(super) fn operand<K: Reconciled>(observed: &Observed, kind: OperandKind) -> K {
    let peer = observed.peer(kind).unwrap();
    let object = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()),
        "metadata": peer.meta, "spec": peer.spec, "status": peer.status,
    });
    read(&object)
}

/// Publishes a status, as the next decision finds it.
pub(super) fn publish<K>(object: &mut K, status: K::Status)
where
    K: Resource + HasStatus,
{
    *object.status_mut() = Some(status);
}

/// What a decision writes, in words.
pub(super) fn writes<K: HasStatus, C>(decision: &Decision<K, C>) -> Vec<String> {
    decision.writes.iter().map(ToString::to_string).collect()
}

/// What a decision applies, by the kind of the object.
pub(super) fn applied<K: HasStatus, C>(decision: &Decision<K, C>) -> BTreeMap<String, Value> {
    let applied = decision.writes.iter().filter_map(|write| match write {
        Write::Apply(apply) => Some((apply.resource.kind.clone(), serde_json::to_value(&apply.object).unwrap())),
        Write::Claim { target, fields } => Some((target.resource.kind.clone(), fields.clone())),
        _ => None,
    });
    applied.collect()
}

/// A condition of a status: its truth, its reason and its message.
pub(super) fn condition<S: opcore::conditions::Conditions>(status: &S, kind: &str) -> Option<(String, String, String)> {
    let found = opcore::conditions::find(status.conditions(), kind)?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

/// The reason for which a status is not ready, and its message.
pub(super) fn unready<S: opcore::conditions::Conditions>(status: &S) -> (String, String) {
    let (truth, reason, message) = condition(status, "Ready").unwrap();
    assert_eq!(truth, "False", "{reason}: {message}");
    (reason, message)
}

/// Operands that say that they are ready.
pub(super) fn ready(kinds: &[OperandKind]) -> String {
    kinds.iter().fold(String::new(), |all, kind| all + &format!("---\n{}", said(*kind, "True", "Running", "It runs.")))
}

/// An operand of the parent that says this of itself.
pub(super) fn said(kind: OperandKind, truth: &str, reason: &str, message: &str) -> String {
    let stalled = if reason == "ConfigConflict" {
        "\n  - { type: Stalled, status: 'True', reason: ConfigConflict, message: x, lastTransitionTime: '2027-01-01T00:00:00Z' }"
    } else {
        ""
    };
    format!(
        "apiVersion: operator.openshift.io/v1alpha1
kind: {kind}
metadata:
  name: cluster
  generation: 1
  ownerReferences:
  - {{ apiVersion: operator.openshift.io/v1alpha1, kind: ZeroTrustWorkloadIdentityManager, name: cluster, uid: {UID}, controller: true, blockOwnerDeletion: true }}
spec: {{}}
status:
  observedGeneration: 1
  conditions:
  - {{ type: Ready, status: '{truth}', reason: {reason}, message: {message}, lastTransitionTime: '2027-01-01T00:00:00Z' }}{stalled}
"
    )
}

/// The same, being deleted.
pub(super) fn deleting(kind: OperandKind) -> String {
    said(kind, "False", "TearingDown", "It goes.").replace(
        "  generation: 1\n",
        "  generation: 1\n  deletionTimestamp: '2027-01-15T08:00:00Z'\n  finalizers: [x]\n",
    )
}

/// The trust bundle that a server has published.
pub(super) const BUNDLE: &str = "---
apiVersion: v1
kind: ConfigMap
metadata: { name: spire-bundle, namespace: spire }
data: { bundle.crt: a certificate }
";
