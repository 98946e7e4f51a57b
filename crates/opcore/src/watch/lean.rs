//! Objects as they are watched: without their managed fields, which nobody looks at here.
//!
//! Each is a tree with a node for every field that anyone ever wrote. Built, and dropped again, for every object of a
//! list, they took most of the memory that a process with many objects had.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource;
use kube::api::{ApiResource, ObjectMeta, TypeMeta};
use kube::core::{DynamicObject, DynamicResourceScope, PartialObjectMeta, PartialObjectMetaExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object without its managed fields, with so much of its content.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "C: Content")]
pub(super) struct Lean<C> {
    #[serde(flatten)]
    types: Option<TypeMeta>,
    #[serde(default, deserialize_with = "lean")]
    metadata: ObjectMeta,
    #[serde(flatten)]
    content: C,
}

/// How much of an object is asked for.
pub(super) trait Content: Clone + Debug + DeserializeOwned + Send + 'static {
    /// Whether it is nothing beside the metadata.
    const METADATA_ONLY: bool;
}

/// Everything.
impl Content for Value {
    const METADATA_ONLY: bool = false;
}

/// Nothing beside the metadata.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Nothing {}

impl Content for Nothing {
    const METADATA_ONLY: bool = true;
}

impl<C: Content> Resource for Lean<C> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        C::METADATA_ONLY
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::group(resource)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::version(resource)
    }

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::kind(resource)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::plural(resource)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl From<Lean<Value>> for DynamicObject {
    fn from(lean: Lean<Value>) -> Self {
        Self { types: lean.types, metadata: lean.metadata, data: lean.content }
    }
}

impl From<Lean<Nothing>> for PartialObjectMeta<DynamicObject> {
    fn from(lean: Lean<Nothing>) -> Self {
        lean.metadata.into_response_partial()
    }
}

/// What [`ObjectMeta`] has, but for the managed fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    annotations: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    generate_name: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    name: Option<String>,
    namespace: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    resource_version: Option<String>,
    self_link: Option<String>,
    uid: Option<String>,
}

fn lean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let metadata = Metadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        annotations: metadata.annotations,
        creation_timestamp: metadata.creation_timestamp,
        deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
        deletion_timestamp: metadata.deletion_timestamp,
        finalizers: metadata.finalizers,
        generate_name: metadata.generate_name,
        generation: metadata.generation,
        labels: metadata.labels,
        managed_fields: None,
        name: metadata.name,
        namespace: metadata.namespace,
        owner_references: metadata.owner_references,
        resource_version: metadata.resource_version,
        self_link: metadata.self_link,
        uid: metadata.uid,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_is_there_but_the_managed_fields() {
        let mut object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "front", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
                "generateName": "fr", "selfLink": "/x", "deletionGracePeriodSeconds": 5,
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
                "labels": { "a": "b" }, "annotations": { "c": "d" }, "finalizers": ["f"],
                "ownerReferences": [{ "apiVersion": "v1", "kind": "K", "name": "n", "uid": "o", "controller": true }],
                "managedFields": [{ "manager": "m", "fieldsV1": { "f:data": {} } }],
            },
            "data": { "text": "rain" },
        });
        let whole: Lean<Value> = serde_json::from_value(object.clone()).unwrap();
        let metadata: Lean<Nothing> = serde_json::from_value(object.clone()).unwrap();
        let metadata = PartialObjectMeta::from(metadata).metadata;
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(serde_json::to_value(DynamicObject::from(whole)).unwrap(), object);
        assert_eq!(serde_json::to_value(metadata).unwrap(), object["metadata"]);
    }
}
