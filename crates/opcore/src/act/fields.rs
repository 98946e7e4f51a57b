//! Whether applying an object would change anything, read from the live object alone.
//!
//! An apply changes nothing when our manager owns exactly the fields that we want and each has the value that we want.
//! `managedFields` says what our manager owns. It is a tree: `f:name` is a field, `k:{…}` an element of a list with
//! keys, and `v:…` an element of a set. An empty node is a leaf, or a value that is owned as a whole.
//!
//! When in doubt the result is "it would": the API server then finds that nothing changes, and only a request is
//! wasted.

use serde_json::{Map, Value};

type Tree = Map<String, Value>;

/// Whether `live` already is what applying `desired` as `manager` would produce.
pub(super) fn is_applied(desired: &Value, live: &Value, manager: &str) -> bool {
    let Some(owned) = owned_by(live, manager) else { return false };
    let (Some(desired), Some(live)) = (desired.as_object(), live.as_object()) else { return false };
    desired.iter().filter(|(key, _)| !is_identity(key)).all(|(key, value)| {
        match (live.get(key), owned.get(&format!("f:{key}"))) {
            (Some(live), owned) if key == "metadata" => metadata_matches(value, live, owned),
            // An empty spec says that there is one. Its fields are those of others, and defaults: no spec is owned as a whole.
            (Some(live), Some(owned)) if key == "spec" && is_empty(value) => live.is_object() && is_empty(owned),
            (Some(live), Some(owned)) => matches(key, value, live, owned),
            _ => false,
        }
    }) && owned.keys().filter_map(|key| key.strip_prefix("f:")).all(|key| desired.contains_key(key))
}

/// The fields that the manager owns through an apply. What it owns through an update, such as a finalizer that this
/// operator keeps on an object that it also applies, does not matter: an apply changes nothing about it. Ownership twice,
/// in two versions of the kind, is not what an apply leaves.
fn owned_by<'a>(live: &'a Value, manager: &str) -> Option<&'a Tree> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let mut ours = entries.iter().filter(|entry| {
        entry["manager"] == manager
            && entry["operation"] == "Apply"
            && entry.get("subresource").and_then(Value::as_str).unwrap_or_default().is_empty()
    });
    let (entry, None) = (ours.next()?, ours.next()) else { return None };
    entry["fieldsV1"].as_object()
}

/// Whether the manager has applied anything to the object.
pub(super) fn manages_any(live: &Value, manager: &str) -> bool {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().any(|entry| entry["manager"] == manager && entry["operation"] == "Apply")
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

/// These fields identify the object and its schema. No manager owns them.
fn is_identity(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind")
}

/// Name, namespace, UID and version are in every object's metadata, and no manager owns them.
fn metadata_matches(desired: &Value, live: &Value, owned: Option<&Value>) -> bool {
    let nothing = Tree::new();
    let owned = owned.and_then(Value::as_object).unwrap_or(&nothing);
    let (Some(desired), Some(live)) = (desired.as_object(), live.as_object()) else { return false };
    let wanted =
        || desired.iter().filter(|(key, _)| !matches!(key.as_str(), "name" | "namespace" | "uid" | "resourceVersion"));
    wanted().all(|(key, value)| match (live.get(key), owned.get(&format!("f:{key}"))) {
        (Some(live), Some(owned)) => matches(key, value, live, owned),
        _ => false,
    }) && owned.keys().filter_map(|key| key.strip_prefix("f:")).all(|key| desired.contains_key(key))
}

/// Whether `desired`, the value of the field `name`, is found in `live`, and `owned` is exactly what it would own.
fn matches(name: &str, desired: &Value, live: &Value, owned: &Value) -> bool {
    let Some(owned) = owned.as_object() else { return false };
    if owned.is_empty() {
        // The value is owned as a whole: if it contains more than we want, that may be what we wanted before.
        return desired == live || is_rewritten(name, desired, live);
    }
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let fields = owned.keys().filter_map(|key| key.strip_prefix("f:"));
            fields.clone().count() == desired.len()
                && desired.iter().all(|(key, value)| match (live.get(key), owned.get(&format!("f:{key}"))) {
                    (Some(live), Some(owned)) if is_of_quantities(name) => {
                        owned.as_object().is_some_and(Map::is_empty) && is_same_quantity(value, live)
                    }
                    (Some(live), Some(owned)) => matches(key, value, live, owned),
                    _ => false,
                })
        }
        (Value::Array(desired), Value::Array(live)) => {
            let elements = owned.iter().filter(|(key, _)| *key != ".");
            elements.clone().count() == desired.len()
                && in_order(desired, live, elements.clone().map(|(key, _)| key.as_str()))
                && elements.into_iter().all(|(key, owned)| match (wanted(key, desired), there(key, live)) {
                    // A set's element is its own value.
                    (Some(_), Some(_)) if key.starts_with("v:") => true,
                    (Some(desired), Some(live)) => matches("", desired, live, owned),
                    _ => false,
                })
        }
        _ => false,
    }
}

/// The element of ours that a key such as `k:{"name":"web"}` or `v:"finalizer"` identifies. A part of the key that has
/// a default (a port's protocol) may be missing in what we want, as long as only one element matches.
fn wanted<'a>(key: &str, desired: &'a [Value]) -> Option<&'a Value> {
    let mut meant = desired.iter().filter(|element| is_element(key, element, true));
    let (element, None) = (meant.next()?, meant.next()) else { return None };
    Some(element)
}

/// The element of the live list that a key identifies.
fn there<'a>(key: &str, live: &'a [Value]) -> Option<&'a Value> {
    live.iter().find(|element| is_element(key, element, false))
}

/// Whether a key identifies `element`. With `partly`, the element may lack parts of the key.
fn is_element(key: &str, element: &Value, partly: bool) -> bool {
    if let Some(keys) = key.strip_prefix("k:") {
        let Ok(Value::Object(keys)) = serde_json::from_str(keys) else { return false };
        keys.iter().all(|(key, value)| match element.get(key) {
            Some(found) => found == value,
            None => partly,
        })
    } else if let Some(value) = key.strip_prefix("v:") {
        serde_json::from_str::<Value>(value).is_ok_and(|value| value == *element)
    } else {
        false
    }
}

/// Whether the elements of these keys are in the same order in both lists. If not, an apply would restore our order.
fn in_order<'a>(desired: &[Value], live: &[Value], keys: impl Iterator<Item = &'a str>) -> bool {
    let place =
        |list: &[Value], key: &str, partly: bool| list.iter().position(|element| is_element(key, element, partly));
    let mut places: Vec<_> = keys.map(|key| (place(desired, key, true), place(live, key, false))).collect();
    places.sort_unstable();
    places.windows(2).all(|pair| pair[0].1 < pair[1].1)
}

/// Whether the API server stores `desired` as `live`, in a field that is owned as a whole: it fills in defaults there.
fn is_rewritten(name: &str, desired: &Value, live: &Value) -> bool {
    let (field, default) = match name {
        "fieldRef" => ("apiVersion", "v1"),
        "resourceFieldRef" => ("divisor", "0"),
        _ => return false,
    };
    let Some(mut filled) = desired.as_object().cloned() else { return false };
    filled.entry(field).or_insert_with(|| default.into());
    Value::Object(filled) == *live
}

/// Whether the values of a field are quantities, in every built-in kind of Kubernetes.
fn is_of_quantities(name: &str) -> bool {
    matches!(name, "limits" | "requests" | "hard" | "capacity")
}

/// Whether two values are the same quantity: the API server stores `1000m` as `1`, and a number as a string.
fn is_same_quantity(one: &Value, other: &Value) -> bool {
    one == other || quantity(one).is_some_and(|one| quantity(other) == Some(one))
}

/// A quantity in thousandths, unless it has more digits than that.
fn quantity(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let thousandths: i128 = match unit {
        "m" => 1,
        "" => 1000,
        "k" => 1000 * 1000,
        "M" => 1000 * 1000_i128.pow(2),
        "G" => 1000 * 1000_i128.pow(3),
        "T" => 1000 * 1000_i128.pow(4),
        "Ki" => 1000 * 1024,
        "Mi" => 1000 * 1024_i128.pow(2),
        "Gi" => 1000 * 1024_i128.pow(3),
        "Ti" => 1000 * 1024_i128.pow(4),
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 9)?;
    let all: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (scaled, divisor) = (all.checked_mul(thousandths)?, 10_i128.pow(digits));
    (scaled % divisor == 0).then_some(scaled / divisor)
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
    fn an_empty_spec_is_applied_whatever_others_and_defaults_add() {
        let defaulted = json!({"replicas": 1, "other": 2});
        assert!(is_applied(&desired(&json!({})), &live(&json!({}), &defaulted), "us"));
        assert!(
            !is_applied(&desired(&json!({})), &live(&json!({"f:replicas": {}}), &defaulted), "us"),
            "it had a field"
        );
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

    #[test]
    fn a_key_with_a_default_may_be_missing_in_what_we_want_unless_that_is_ambiguous() {
        let fields = json!({"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}});
        let live = live(&fields, &json!({"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}));
        assert!(is_applied(&desired(&json!({"ports": [{"port": 80}]})), &live, "us"));
        assert!(!is_applied(&desired(&json!({"ports": [{"port": 81}]})), &live, "us"));
        assert!(!is_applied(&desired(&json!({"ports": [{"port": 80, "protocol": "UDP"}]})), &live, "us"));
        assert!(!is_applied(&desired(&json!({"ports": [{"port": 80}, {"port": 80}]})), &live, "us"));
    }

    #[test]
    fn quantities_are_compared_by_what_they_mean_and_texts_are_not() {
        let fields = json!({"f:limits": {"f:cpu": {}, "f:memory": {}}});
        let found = live(&fields, &json!({"limits": {"cpu": "1", "memory": "1536Mi"}}));
        let with = |cpu: Value, memory: &str| desired(&json!({"limits": {"cpu": cpu, "memory": memory}}));
        assert!(is_applied(&with(json!("1000m"), "1.5Gi"), &found, "us"));
        assert!(is_applied(&with(json!(1), "1536Mi"), &found, "us"));
        assert!(!is_applied(&with(json!("1001m"), "1.5Gi"), &found, "us"));
        assert!(!is_applied(&with(json!("1"), "1.5G"), &found, "us"));
        let text = live(&json!({"f:data": {"f:cpu": {}}}), &json!({"data": {"cpu": "1"}}));
        assert!(!is_applied(&desired(&json!({"data": {"cpu": "1000m"}})), &text, "us"));
    }

    #[test]
    fn a_default_inside_a_field_that_is_owned_as_a_whole_is_no_change() {
        let fields = json!({"f:valueFrom": {"f:fieldRef": {}}});
        let live =
            live(&fields, &json!({"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}));
        let with = |path: &str| desired(&json!({"valueFrom": {"fieldRef": {"fieldPath": path}}}));
        assert!(is_applied(&with("metadata.name"), &live, "us"));
        assert!(!is_applied(&with("metadata.uid"), &live, "us"));
    }
}
