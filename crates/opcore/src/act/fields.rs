//! Whether applying an object would change anything, read from the live object alone.
//!
//! An apply changes nothing when our manager owns exactly the fields that we want and each has the value that we want.
//! `managedFields` tells the first: a tree in which `f:name` is a field, `k:{…}` an element of a list with keys, and
//! `v:…` an element of a set; an empty node is a leaf, or a value owned as a whole.
//!
//! When in doubt the answer is "it would": the API server then finds that nothing changes, and only a call is wasted.

use serde_json::{Map, Value};

type Tree = Map<String, Value>;

/// Whether `live` already is what applying `desired` as `manager` would make it.
pub(super) fn is_applied(desired: &Value, live: &Value, manager: &str) -> bool {
    let Some(owned) = owned_by(live, manager) else { return false };
    let (Some(desired), Some(live)) = (desired.as_object(), live.as_object()) else { return false };
    desired.iter().filter(|(key, _)| !is_identity(key)).all(|(key, value)| {
        match (live.get(key), owned.get(&format!("f:{key}"))) {
            (Some(live), owned) if key == "metadata" => metadata_matches(value, live, owned),
            (Some(live), Some(owned)) => matches(value, live, owned),
            _ => false,
        }
    }) && owned.keys().filter_map(|key| key.strip_prefix("f:")).all(|key| desired.contains_key(key))
}

/// The fields that the manager owns by having applied them. Owned by update, or twice, is not what an apply would leave.
fn owned_by<'a>(live: &'a Value, manager: &str) -> Option<&'a Tree> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let mut ours = entries.iter().filter(|entry| {
        entry["manager"] == manager && entry.get("subresource").and_then(Value::as_str).unwrap_or_default().is_empty()
    });
    let (entry, None) = (ours.next()?, ours.next()) else { return None };
    (entry["operation"] == "Apply").then(|| entry["fieldsV1"].as_object()).flatten()
}

/// Whether the manager has applied anything at all to the object.
pub(super) fn manages_any(live: &Value, manager: &str) -> bool {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().any(|entry| entry["manager"] == manager && entry["operation"] == "Apply")
}

/// These name the object and its schema; nobody owns them.
fn is_identity(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind")
}

/// Name, namespace, UID and version are in every object's metadata and owned by nobody.
fn metadata_matches(desired: &Value, live: &Value, owned: Option<&Value>) -> bool {
    let nothing = Tree::new();
    let owned = owned.and_then(Value::as_object).unwrap_or(&nothing);
    let (Some(desired), Some(live)) = (desired.as_object(), live.as_object()) else { return false };
    let wanted =
        || desired.iter().filter(|(key, _)| !matches!(key.as_str(), "name" | "namespace" | "uid" | "resourceVersion"));
    wanted().all(|(key, value)| match (live.get(key), owned.get(&format!("f:{key}"))) {
        (Some(live), Some(owned)) => matches(value, live, owned),
        _ => false,
    }) && owned.keys().filter_map(|key| key.strip_prefix("f:")).all(|key| desired.contains_key(key))
}

/// Whether `desired` is found in `live`, and `owned` is exactly what `desired` would own.
fn matches(desired: &Value, live: &Value, owned: &Value) -> bool {
    let Some(owned) = owned.as_object() else { return false };
    if owned.is_empty() {
        // Owned as a whole: what is in it beyond what we want may be what we wanted before.
        return desired == live;
    }
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let fields = owned.keys().filter_map(|key| key.strip_prefix("f:"));
            fields.clone().count() == desired.len()
                && desired.iter().all(|(key, value)| match (live.get(key), owned.get(&format!("f:{key}"))) {
                    (Some(live), Some(owned)) => matches(value, live, owned),
                    _ => false,
                })
        }
        (Value::Array(desired), Value::Array(live)) => {
            let elements = owned.iter().filter(|(key, _)| *key != ".");
            elements.clone().count() == desired.len()
                && in_order(desired, live, elements.clone().map(|(key, _)| key.as_str()))
                && elements.into_iter().all(|(key, owned)| {
                    let find = |list: &[Value]| list.iter().find(|element| is_element(key, element)).cloned();
                    match (find(desired), find(live)) {
                        // A set's element is its own value.
                        (Some(_), Some(_)) if key.starts_with("v:") => true,
                        (Some(desired), Some(live)) => matches(&desired, &live, owned),
                        _ => false,
                    }
                })
        }
        _ => false,
    }
}

/// Whether `element` is the one that a key such as `k:{"name":"web"}` or `v:"finalizer"` names.
fn is_element(key: &str, element: &Value) -> bool {
    if let Some(keys) = key.strip_prefix("k:") {
        let Ok(Value::Object(keys)) = serde_json::from_str(keys) else { return false };
        // A key that has a default may be missing in what we want (a port's protocol); then the call decides.
        keys.iter().all(|(key, value)| element.get(key) == Some(value))
    } else if let Some(value) = key.strip_prefix("v:") {
        serde_json::from_str::<Value>(value).is_ok_and(|value| value == *element)
    } else {
        false
    }
}

/// Whether the elements of these keys stand in the same order in both lists: an apply would restore ours.
fn in_order<'a>(desired: &[Value], live: &[Value], keys: impl Iterator<Item = &'a str>) -> bool {
    let place = |list: &[Value], key: &str| list.iter().position(|element| is_element(key, element));
    let mut places: Vec<_> = keys.map(|key| (place(desired, key), place(live, key))).collect();
    places.sort_unstable();
    places.windows(2).all(|pair| pair[0].1 < pair[1].1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(fields: &Value, spec: &Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "T", "metadata": {"name": "t", "managedFields": [
            {"manager": "us", "operation": "Apply", "fieldsV1": {"f:spec": fields}},
            {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:other": {}}}},
        ]}, "spec": spec })
    }

    fn desired(spec: &Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "T", "metadata": {"name": "t"}, "spec": spec })
    }

    #[test]
    fn equal_values_owned_by_us_are_applied_whatever_others_and_defaults_add() {
        let live = live(
            &json!({"f:a": {}, "f:b": {"f:c": {}}}),
            &json!({"a": 1, "b": {"c": "x", "default": true}, "other": 2}),
        );
        assert!(is_applied(&desired(&json!({"a": 1, "b": {"c": "x"}})), &live, "us"));
    }

    #[test]
    fn another_value_is_a_change() {
        assert!(!is_applied(&desired(&json!({"a": 2})), &live(&json!({"f:a": {}}), &json!({"a": 1})), "us"));
    }

    #[test]
    fn a_field_that_we_no_longer_want_is_a_change() {
        let live = live(&json!({"f:a": {}, "f:b": {}}), &json!({"a": 1, "b": 2}));
        assert!(!is_applied(&desired(&json!({"a": 1})), &live, "us"));
    }

    #[test]
    fn an_equal_value_that_only_another_owns_is_a_change() {
        let live = live(&json!({"f:a": {}}), &json!({"a": 1, "other": 2}));
        assert!(!is_applied(&desired(&json!({"a": 1, "other": 2})), &live, "us"));
    }

    #[test]
    fn elements_of_keyed_lists_are_compared_by_key_and_not_by_place() {
        let fields = json!({"f:ports": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:port": {}}}});
        let live = live(&fields, &json!({"ports": [{"name": "theirs", "port": 1}, {"name": "web", "port": 80}]}));
        assert!(is_applied(&desired(&json!({"ports": [{"name": "web", "port": 80}]})), &live, "us"));
        assert!(!is_applied(&desired(&json!({"ports": [{"name": "web", "port": 81}]})), &live, "us"));
        assert!(!is_applied(&desired(&json!({"ports": []})), &live, "us"));
    }

    #[test]
    fn elements_of_sets_are_compared_by_value() {
        let live = live(&json!({"f:set": {".": {}, "v:\"a\"": {}}}), &json!({"set": ["theirs", "a"]}));
        assert!(is_applied(&desired(&json!({"set": ["a"]})), &live, "us"));
        assert!(!is_applied(&desired(&json!({"set": ["a", "b"]})), &live, "us"));
    }

    #[test]
    fn a_list_owned_as_a_whole_must_be_equal_element_by_element() {
        let live = live(&json!({"f:args": {}}), &json!({"args": ["a", "b"]}));
        assert!(is_applied(&desired(&json!({"args": ["a", "b"]})), &live, "us"));
        assert!(!is_applied(&desired(&json!({"args": ["a"]})), &live, "us"));
        assert!(!is_applied(&desired(&json!({"args": ["b", "a"]})), &live, "us"));
    }

    #[test]
    fn a_map_owned_as_a_whole_must_be_equal_or_a_key_that_we_no_longer_want_would_stay() {
        let live = live(&json!({"f:selector": {}}), &json!({"selector": {"app": "a", "version": "v1"}}));
        assert!(is_applied(&desired(&json!({"selector": {"app": "a", "version": "v1"}})), &live, "us"));
        assert!(!is_applied(&desired(&json!({"selector": {"app": "a"}})), &live, "us"));
    }

    #[test]
    fn the_order_of_our_own_elements_counts_and_that_of_others_does_not() {
        let fields = json!({"f:env": {"k:{\"name\":\"A\"}": {"f:name": {}}, "k:{\"name\":\"B\"}": {"f:name": {}}}});
        let live = live(&fields, &json!({"env": [{"name": "A"}, {"name": "theirs"}, {"name": "B"}]}));
        assert!(is_applied(&desired(&json!({"env": [{"name": "A"}, {"name": "B"}]})), &live, "us"));
        assert!(!is_applied(&desired(&json!({"env": [{"name": "B"}, {"name": "A"}]})), &live, "us"));
    }

    #[test]
    fn what_we_own_by_update_is_applied_again() {
        let mut live = live(&json!({"f:a": {}}), &json!({"a": 1}));
        live["metadata"]["managedFields"][0]["operation"] = "Update".into();
        assert!(!is_applied(&desired(&json!({"a": 1})), &live, "us"));
    }

    #[test]
    fn nothing_owned_is_never_applied() {
        assert!(!is_applied(&desired(&json!({})), &json!({"metadata": {}}), "us"));
    }
}
