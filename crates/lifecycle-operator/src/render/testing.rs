//! What tests of rendering share.

use std::collections::BTreeMap;

use opcore::Write;
use serde_json::{Map, Value};

use super::{Config, Images, Platform, Settings};

/// The settings of the operator.
pub(crate) fn settings() -> Settings {
    let image = |name: &str| format!("registry.example.org/{name}:v1");
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
        pull_secrets: vec!["registry".to_owned()],
        class_name: "zero-trust-workload-identity-manager-spire".to_owned(),
    }
}

/// The config in effect.
pub(crate) fn config() -> Config {
    Config {
        trust_domain: "example.org".to_owned(),
        cluster_name: "production".to_owned(),
        bundle_config_map: "spire-bundle".to_owned(),
        jwt_issuer: "https://oidc-discovery.example.org".to_owned(),
    }
}

/// A cluster with SPIRE's own kinds.
pub(crate) const KUBERNETES: Platform =
    Platform { routes: false, security_context_constraints: false, http_routes: false, spiffe_ids: true };
/// The same, on OpenShift.
pub(crate) const OPENSHIFT: Platform = Platform { routes: true, security_context_constraints: true, ..KUBERNETES };

/// The objects as JSON, by kind and name, with the files in ConfigMaps as what they mean.
pub(crate) fn shown<'a>(writes: impl IntoIterator<Item = &'a Write>) -> BTreeMap<String, Value> {
    let one = |write: &Write| {
        let Write::Apply(apply) = write else { panic!("{write} is no apply") };
        let mut object = serde_json::to_value(&apply.object).unwrap();
        for file in object.get_mut("data").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            *file = serde_json::from_str(file.as_str().unwrap()).unwrap();
        }
        (format!("{} {}", apply.resource.kind, apply.object.metadata.name.as_deref().unwrap()), object)
    };
    writes.into_iter().map(one).collect()
}
