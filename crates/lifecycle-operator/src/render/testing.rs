//! What the tests of rendering share: settings, clusters, objects as YAML.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use opcore::Write;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Config, Images, Objects, Platform, Settings};

/// A cluster with nothing but Kubernetes and the kinds of the controller manager.
pub(super) const PLAIN: Platform =
    Platform { routes: false, security_context_constraints: false, http_routes: false, spiffe_ids: true };
/// One that has the Gateway API, too.
pub(super) const WITH_GATEWAYS: Platform = Platform { http_routes: true, ..PLAIN };
/// OpenShift.
pub(super) const OPENSHIFT: Platform = Platform { routes: true, security_context_constraints: true, ..PLAIN };

pub(super) fn settings() -> Settings {
    let image = |name: &str| format!("registry.example.com/{name}:v1");
    Settings {
        namespace: "spire".to_owned(),
        images: Images {
            server: image("spire-server"),
            controller_manager: image("spire-controller-manager"),
            agent: image("spire-agent"),
            csi_driver: image("spiffe-csi-driver"),
            csi_registrar: image("csi-node-driver-registrar"),
            oidc: image("oidc-discovery-provider"),
            volume: image("spire-volume"),
        },
        pull_policy: "IfNotPresent".to_owned(),
        pull_secrets: vec!["pull".to_owned()],
        class_name: "identities".to_owned(),
    }
}

pub(super) fn config() -> Config {
    Config {
        trust_domain: "example.org".to_owned(),
        cluster_name: "production".to_owned(),
        bundle_config_map: "spire-bundle".to_owned(),
        jwt_issuer: "https://oidc-discovery.example.org".to_owned(),
    }
}

/// An operand as the API server returns it.
pub(super) fn operand<K: DeserializeOwned>(spec: &Value) -> K {
    let metadata = json!({ "name": "cluster", "uid": "11111111-2222-3333-4444-555555555555" });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// Everything that a spec may say about pods.
pub(super) fn placed(mut spec: Value) -> Value {
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }] },
    ] } } });
    let placement = json!({
        "labels": { "team": "identity", "app.kubernetes.io/component": "of-the-user" },
        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" }, "limits": { "memory": "128Mi" } },
        "affinity": affinity,
        "tolerations": [{ "operator": "Exists" }],
        "nodeSelector": { "kubernetes.io/os": "linux" },
    });
    spec.as_object_mut().unwrap().extend(placement.as_object().unwrap().clone());
    spec
}

/// The objects of all writes.
pub(super) fn values(objects: &Objects) -> Vec<Value> {
    let object = |write: &Write| match write {
        Write::Apply(apply) => serde_json::to_value(&apply.object).unwrap(),
        other => panic!("{other:?} applies nothing"),
    };
    objects.iter().map(object).collect()
}

/// The objects, by kind and name, with the files in ConfigMaps as what they mean.
pub(super) fn shown<'a>(writes: impl IntoIterator<Item = &'a Write>) -> BTreeMap<String, Value> {
    let one = |write: &Write| {
        let Write::Apply(apply) = write else { panic!("{write:?} applies nothing") };
        let mut object = serde_json::to_value(&apply.object).unwrap();
        for file in object.get_mut("data").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            *file = serde_json::from_str(file.as_str().unwrap()).unwrap();
        }
        (format!("{} {}", apply.resource.kind, apply.object.metadata.name.as_deref().unwrap()), object)
    };
    writes.into_iter().map(one).collect()
}

/// The one object of a kind.
pub(super) fn of_kind(objects: &Objects, kind: &str) -> Value {
    let found: Vec<_> = values(objects).into_iter().filter(|value| value["kind"] == kind).collect();
    assert_eq!(found.len(), 1, "{kind}");
    found.into_iter().next().unwrap()
}

/// All objects, part by part, as a person would write them.
pub(super) fn yaml(objects: &Objects) -> String {
    let mut text = String::new();
    for (part, writes) in [("support", &objects.support), ("workload", &objects.workload), ("routes", &objects.routes)]
    {
        for write in writes {
            let Write::Apply(apply) = write else { panic!("{write:?} applies nothing") };
            write!(text, "--- # {part}\n{}", serde_yaml::to_string(&apply.object).unwrap()).unwrap();
        }
    }
    text
}

/// The digest on the pods of the workload.
pub(super) fn hash(objects: &Objects, workload: &str) -> String {
    let object = of_kind(objects, workload);
    let annotations = &object["spec"]["template"]["metadata"]["annotations"];
    annotations[crate::api::v1alpha1::CONFIG_HASH_ANNOTATION].as_str().unwrap().to_owned()
}

/// The one file of the ConfigMap.
pub(super) fn file(objects: &Objects) -> String {
    let data = of_kind(objects, "ConfigMap")["data"].clone();
    data.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
}

/// What holds for all that is rendered: the labels by which it is found, the selector of the workload, and no two ports of
/// a pod with the same name or number.
pub(super) fn is_consistent(objects: &Objects) {
    for value in values(objects) {
        let labels = &value["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/part-of"], super::PART_OF, "{value}");
        let template = &value["spec"]["template"];
        if template.is_null() {
            continue;
        }
        for (key, wanted) in value["spec"]["selector"]["matchLabels"].as_object().unwrap() {
            assert_eq!(&template["metadata"]["labels"][key], wanted, "{key}");
        }
        let spec = &template["spec"];
        let containers = spec["containers"].as_array().unwrap();
        let ports: Vec<_> = containers.iter().filter_map(|it| it["ports"].as_array()).flatten().collect();
        for field in ["name", "containerPort"] {
            let mut all: Vec<String> = ports.iter().map(|port| port[field].to_string()).collect();
            let count = all.len();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), count, "two ports have the same {field}: {ports:?}");
        }
        let volumes: Vec<_> = spec["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]).collect();
        for mount in containers.iter().filter_map(|it| it["volumeMounts"].as_array()).flatten() {
            assert!(volumes.contains(&&mount["name"]), "{mount} is of no volume");
        }
    }
}
