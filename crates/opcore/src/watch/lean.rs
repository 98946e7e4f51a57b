//! Objects as they are watched: without managed fields where they are not needed, and only as deep as they can be read.
//!
//! Managed fields are a tree with a node for every field that anyone ever wrote. Building and dropping this tree for
//! every object of a list took most of the memory of a process with many objects.
//!
//! The API server accepts objects that are nested thousands of levels deep, but serde_json fails at 128 levels: one
//! such object would make the whole list fail. Here the part that is too deep is skipped, without recursion, and the
//! object is marked.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource;
use kube::api::{ApiResource, ObjectMeta, TypeMeta};
use kube::core::{DynamicObject, DynamicResourceScope, PartialObjectMeta, PartialObjectMetaExt};
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// How many levels deep an object may be nested, counting the object itself as the first. This leaves room for what
/// surrounds it or is added to it: a list, or managed fields in the response to a write. An object that can be read in
/// one place can then be read in all.
pub(crate) const DEEPEST: usize = 100;

/// Managed fields repeat the content this many levels deeper: a field without content is one level there.
const MANAGED_FIELDS_DEEPER: usize = 5;

/// An object with a chosen part of its content.
#[derive(Clone, Debug)]
pub(crate) struct Lean<C> {
    types: Option<TypeMeta>,
    metadata: ObjectMeta,
    content: Map<String, Value>,
    is_too_deep: bool,
    asked: PhantomData<C>,
}

impl<C> Lean<C> {
    /// Whether a part of it is nested too deeply, and is null here.
    pub(super) fn is_too_deep(&self) -> bool {
        self.is_too_deep
    }
}

/// Which part of an object is requested.
pub(crate) trait Content: Clone + Debug + Send + 'static {
    /// Whether only the metadata is requested.
    const METADATA_ONLY: bool;
    /// Whether it includes the managed fields.
    const MANAGED_FIELDS: bool;
}

/// Everything.
#[derive(Clone, Debug)]
pub(crate) struct Everything;

impl Content for Everything {
    const METADATA_ONLY: bool = false;
    const MANAGED_FIELDS: bool = true;
}

/// Everything except the managed fields.
#[derive(Clone, Debug)]
pub(crate) struct Unmanaged;

impl Content for Unmanaged {
    const METADATA_ONLY: bool = false;
    const MANAGED_FIELDS: bool = false;
}

/// Only the metadata, without managed fields.
#[derive(Clone, Debug)]
pub(crate) struct Nothing;

impl Content for Nothing {
    const METADATA_ONLY: bool = true;
    const MANAGED_FIELDS: bool = false;
}

// Not derived: flattened fields would first be buffered, however deep they are.
impl<'de, C: Content> Deserialize<'de> for Lean<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader(PhantomData))
    }
}

struct Reader<C>(PhantomData<C>);

impl<'de, C: Content> Visitor<'de> for Reader<C> {
    type Value = Lean<C>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Lean<C>, A::Error> {
        let (mut api_version, mut kind) = (None, None);
        let (mut metadata, mut content) = (ObjectMeta::default(), Map::new());
        let too_deep = Cell::new(false);
        let within = |levels| Shallow { levels, too_deep: &too_deep };
        while let Some(field) = fields.next_key::<String>()? {
            match field.as_str() {
                "apiVersion" => api_version = fields.next_value()?,
                "kind" => kind = fields.next_value()?,
                "metadata" if C::MANAGED_FIELDS => {
                    let value = fields.next_value_seed(within(DEEPEST - 1 + MANAGED_FIELDS_DEEPER))?;
                    metadata = serde_json::from_value(value).map_err(A::Error::custom)?;
                }
                "metadata" => metadata = fields.next_value::<Metadata>()?.into(),
                _ if C::METADATA_ONLY => drop(fields.next_value::<IgnoredAny>()?),
                _ => {
                    let value = fields.next_value_seed(within(DEEPEST - 1))?;
                    content.insert(field, value);
                }
            }
        }
        let types = api_version.zip(kind).map(|(api_version, kind)| TypeMeta { api_version, kind });
        Ok(Lean { types, metadata, content, is_too_deep: too_deep.get(), asked: PhantomData })
    }
}

/// Builds a value in which everything deeper than this many levels is null.
#[derive(Clone, Copy)]
struct Shallow<'a> {
    levels: usize,
    too_deep: &'a Cell<bool>,
}

impl Shallow<'_> {
    /// The same, for one level further in; none if that is too deep.
    fn inside(self) -> Option<Self> {
        let levels = self.levels.checked_sub(1);
        self.too_deep.set(self.too_deep.get() || levels.is_none());
        levels.map(|levels| Self { levels, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Shallow<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Shallow<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let Some(inside) = self.inside() else {
            while elements.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(inside)? {
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let Some(inside) = self.inside() else {
            while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut map = Map::new();
        while let Some(key) = entries.next_key()? {
            map.insert(key, entries.next_value_seed(inside)?);
        }
        Ok(Value::Object(map))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }
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

impl<C> From<Lean<C>> for DynamicObject {
    fn from(lean: Lean<C>) -> Self {
        Self { types: lean.types, metadata: lean.metadata, data: Value::Object(lean.content) }
    }
}

impl From<Lean<Nothing>> for PartialObjectMeta<DynamicObject> {
    fn from(lean: Lean<Nothing>) -> Self {
        lean.metadata.into_response_partial()
    }
}

/// The fields of [`ObjectMeta`], except the managed fields.
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

impl From<Metadata> for ObjectMeta {
    fn from(metadata: Metadata) -> Self {
        Self {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::json;

    use super::*;
    use crate::queue::Key;

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
        let whole: Lean<Unmanaged> = serde_json::from_value(object.clone()).unwrap();
        let metadata: Lean<Nothing> = serde_json::from_value(object.clone()).unwrap();
        let metadata = PartialObjectMeta::from(metadata).metadata;
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(serde_json::to_value(DynamicObject::from(whole)).unwrap(), object);
        assert_eq!(serde_json::to_value(metadata).unwrap(), object["metadata"]);
    }

    #[test]
    fn what_is_not_too_deep_is_read_as_kube_does() {
        for object in [
            r#"{"apiVersion":"v1","kind":"Odd","metadata":{"name":"a","managedFields":[{"fieldsV1":{"f:a":{".":{}}}}]},
                "spec":{"b":true,"n":null,"i":-7,"u":18446744073709551615,"f":1.5,"s":"r\u00e4in\n","l":[[],{},[1,"x"]]}}"#,
            // An item of a list has no type information.
            r#"{"metadata":{"name":"a"},"data":{}}"#,
            "{}",
        ] {
            let read: Lean<Everything> = serde_json::from_str(object).unwrap();
            assert!(!read.is_too_deep());
            assert_eq!(DynamicObject::from(read), serde_json::from_str(object).unwrap());
        }
    }

    /// An object that is nested this deep, and managed fields of the same depth.
    fn deep(name: &str, levels: usize) -> String {
        let nested = |levels: usize| format!("{}{{}}{}", r#"{"x":"#.repeat(levels - 1), "}".repeat(levels - 1));
        let (content, fields) = (nested(levels - 1), nested(levels + 1));
        let metadata = format!(r#"{{"name":"{name}","managedFields":[{{"manager":"m","fieldsV1":{fields}}}]}}"#);
        format!(r#"{{"apiVersion":"v1","kind":"Odd","metadata":{metadata},"spec":{content},"status":{{"told":"so"}}}}"#)
    }

    /// The same object as read in a list, in a watch, and alone.
    fn read<C: Content>(object: &str) -> [Lean<C>; 3] {
        let list = format!(r#"{{"kind":"OddList","apiVersion":"v1","metadata":{{}},"items":[{object}]}}"#);
        let mut list: ObjectList<_> = serde_json::from_str(&list).unwrap();
        let change = serde_json::from_str(&format!(r#"{{"type":"DELETED","object":{object}}}"#)).unwrap();
        let WatchEvent::Deleted(deleted) = change else { panic!("{change:?}") };
        [list.items.remove(0), deleted, serde_json::from_str(object).unwrap()]
    }

    #[test]
    fn an_object_is_too_deep_in_a_list_in_a_watch_and_alone_or_in_none_of_them() {
        for (levels, too_deep) in [(3, false), (DEEPEST, false), (DEEPEST + 1, true), (150, true), (9_999, true)] {
            let object = deep("odd", levels);
            assert_eq!(read::<Unmanaged>(&object).map(|read| read.is_too_deep()), [too_deep; 3], "{levels} levels");
            assert_eq!(read::<Everything>(&object).map(|read| read.is_too_deep()), [too_deep; 3], "{levels} levels");
            assert_eq!(read::<Nothing>(&object).map(|read| Key::of(&read).name), ["odd"; 3]);
        }
    }

    #[test]
    fn of_one_that_is_too_deep_the_rest_is_there() {
        for read in read::<Everything>(&deep("odd", 9_999)).map(DynamicObject::from) {
            assert_eq!(read.types, Some(TypeMeta { api_version: "v1".to_owned(), kind: "Odd".to_owned() }));
            assert_eq!((read.metadata.name.as_deref(), &read.data["status"]["told"]), (Some("odd"), &json!("so")));
            assert_eq!(read.metadata.managed_fields.unwrap()[0].manager.as_deref(), Some("m"));
        }
    }

    #[test]
    fn what_is_not_too_deep_is_read_by_kube_with_its_managed_fields_too() {
        // The responses to writes contain managed fields.
        let list = format!(r#"{{"metadata":{{}},"items":[{}]}}"#, deep("odd", DEEPEST));
        serde_json::from_str::<ObjectList<DynamicObject>>(&list).unwrap();
    }
}
