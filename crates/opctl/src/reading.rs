//! Objects as this `opctl` knows them, also where the cluster knows more.
//!
//! The operators' types are strict, so that a typing error in a file does not go unnoticed. An object in a cluster has
//! passed the cluster's own checks: what a newer operator has added to it is no error, and is left out.

use std::marker::PhantomData;

use kube::CustomResourceExt;
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads objects of a kind.
pub(crate) struct Reader<K> {
    schema: Value,
    kind: PhantomData<fn() -> K>,
}

impl<K: CustomResourceExt + DeserializeOwned> Reader<K> {
    /// One that knows what this `opctl` was built with.
    pub(crate) fn new() -> Self {
        let mut versions = K::crd().spec.versions.into_iter();
        let schema = versions.find_map(|version| version.schema?.open_api_v3_schema);
        Self { schema: serde_json::to_value(schema).unwrap_or_default(), kind: PhantomData }
    }

    /// The object, without what is not known here.
    ///
    /// # Errors
    ///
    /// It lacks something that is needed, or has it in a form that is not known here.
    pub(crate) fn read(&self, object: &DynamicObject) -> kube::Result<K> {
        let mut value = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
        for part in ["spec", "status"] {
            if let Some(value) = value.get_mut(part) {
                leave_out_unknown(value, &self.schema["properties"][part]);
            }
        }
        serde_json::from_value(value).map_err(kube::Error::SerdeError)
    }
}

/// Removes fields that the schema does not have, and values of optional fields that it does not allow.
fn leave_out_unknown(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            let required = |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|r| r == name));
            // A schema without properties is one of a map, or of anything.
            if let Some(known) = schema["properties"].as_object() {
                fields.retain(|name, value| {
                    known.get(name).is_some_and(|schema| required(name) || allows(schema, value))
                });
            }
            for (name, value) in fields {
                let of_field = &schema["properties"][name];
                leave_out_unknown(value, if of_field.is_null() { &schema["additionalProperties"] } else { of_field });
            }
        }
        Value::Array(items) => {
            items.retain(|item| allows(&schema["items"], item));
            for item in items {
                leave_out_unknown(item, &schema["items"]);
            }
        }
        _ => {}
    }
}

/// Whether a value is one of those that the schema lists, if it lists any.
fn allows(schema: &Value, value: &Value) -> bool {
    schema["enum"].as_array().is_none_or(|all| all.contains(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wave_orchestrator::api::v1alpha1::{Mode, WavePlan};

    use super::*;

    fn plan(spec: Value, status: Value) -> DynamicObject {
        let mut plan =
            json!({ "apiVersion": "waves.opcore.dev/v1alpha1", "kind": "WavePlan", "metadata": { "name": "fleet" } });
        (plan["spec"], plan["status"]) = (spec, status);
        serde_json::from_value(plan).unwrap()
    }

    #[test]
    fn what_a_newer_operator_has_added_is_left_out() {
        let reference = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "namespace": "shop", "name": "k", "cluster": "east",
        });
        let member = json!({ "ref": reference, "mode": "Teleport" });
        let wave = json!({ "name": "a", "members": [member], "canary": { "percent": 10 } });
        let profiles = json!({ "production": { "resync": "10m", "region": "east" } });
        let prune = json!({ "confirmedKinds": ["Namespace", "Moon"] });
        let spec =
            json!({ "waves": [wave], "profile": "production", "profiles": profiles, "prune": prune, "budget": 3 });
        let status = json!({ "phase": "Dreaming", "progress": "0/1", "weather": "rain" });
        let read = Reader::<WavePlan>::new().read(&plan(spec, status)).unwrap();
        assert_eq!(read.spec.waves[0].members[0].mode(), Mode::Nudge, "as if nothing were said");
        assert_eq!(read.spec.profiles.len(), 1);
        assert_eq!(read.spec.prune.confirmed_kinds.len(), 1);
        let status = read.status.unwrap();
        assert_eq!((status.phase, status.progress.as_deref()), (None, Some("0/1")));
    }

    #[test]
    fn nothing_is_lost_of_what_is_known() {
        let fleet: Value = serde_yaml::from_str(include_str!("../../../docs/samples/fleet.yaml")).unwrap();
        let object: DynamicObject = serde_json::from_value(fleet.clone()).unwrap();
        let read = Reader::<WavePlan>::new().read(&object).unwrap();
        assert_eq!(read, serde_json::from_value(fleet).unwrap());
    }

    #[test]
    fn what_is_needed_and_not_understood_is_an_error() {
        let wave = json!({ "name": "a", "phase": "Dreaming", "ready": 0, "total": 0 });
        let object = plan(json!({ "waves": [{ "name": "a" }] }), json!({ "waves": [wave] }));
        let error = Reader::<WavePlan>::new().read(&object).unwrap_err();
        assert!(error.to_string().contains("Dreaming"), "{error}");
    }
}
