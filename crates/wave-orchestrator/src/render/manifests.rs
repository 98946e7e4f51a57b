//! Parses YAML into objects, with messages for what is wrong with it.

use kube::core::DynamicObject;
use serde::de::DeserializeSeed;
use serde_json::Value;

use super::Stage;
use super::bounded::Budget;

/// An object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The object, with `apiVersion`, `kind` and a name.
    pub object: DynamicObject,
    /// The stage of its wave in which it is applied.
    pub stage: Stage,
}

/// An error in a manifest, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from one.
    pub line: usize,
    /// A clause that names the error and the remedy.
    pub message: String,
}

/// Parses manifests: any number of documents; lists are split into their items.
///
/// # Errors
///
/// The first error, with its line. A manifest with an error is not used at all: using half of it would be a guess.
pub fn parse(text: &str) -> Result<Vec<Manifest>, Problem> {
    let starts = document_lines(text);
    let mut manifests = Vec::new();
    let budget = Budget::of(text.len());
    for (number, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let start = starts.get(number).copied().unwrap_or(1);
        let value = budget.deserialize(document).map_err(|error| Problem {
            // If something is missing, the parser reports it at the end of the text.
            line: error.location().map_or(start, |place| place.line().min(text.lines().count().max(1))),
            message: if budget.is_exceeded() { too_much() } else { syntax(&error.to_string()) },
        })?;
        read(&value, start, &mut manifests)?;
    }
    Ok(manifests)
}

fn read(value: &Value, line: usize, manifests: &mut Vec<Manifest>) -> Result<(), Problem> {
    let fault = |message: &str| Err(Problem { line, message: message.to_owned() });
    if value.is_null() {
        return Ok(());
    }
    let text = |field: &str| value.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
        return fault("the document has no apiVersion and kind; every object needs both");
    };
    if kind == "List" && api_version == "v1" {
        for item in value.get("items").and_then(Value::as_array).into_iter().flatten() {
            read(item, line, manifests)?;
        }
        return Ok(());
    }
    let group = opcore::object::group_of(api_version);
    let stage = Stage::of(group, kind);
    let Ok(object) = serde_json::from_value::<DynamicObject>(value.clone()) else {
        return fault(&format!("metadata of this {kind} is not valid object metadata"));
    };
    match object.metadata.name.as_deref() {
        Some(name) if !name.is_empty() => {}
        _ if object.metadata.generate_name.is_some() => {
            return fault(&format!("this {kind} has metadata.generateName; set metadata.name instead"));
        }
        _ => return fault(&format!("this {kind} has no metadata.name")),
    }
    manifests.push(Manifest { object, stage });
    Ok(())
}

/// The lines at which the documents begin.
fn document_lines(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let is_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let mut starts = Vec::new();
    let mut begin = 0;
    for (number, line) in lines.iter().enumerate() {
        if line.starts_with("---") {
            // A separator before any content begins the first document and does not end one.
            if lines[begin..number].iter().any(is_content) || begin > 0 {
                starts.push(begin + 1);
            }
            begin = number + 1;
        }
    }
    starts.push(begin + 1);
    starts
}

fn too_much() -> String {
    "its aliases (*name) stand for more than is read; write out what they stand for, in several objects".to_owned()
}

/// The parser's message without the position, which is reported separately.
fn syntax(words: &str) -> String {
    let words = words.split(" at line ").next().unwrap_or(words);
    format!("this is not YAML: {words}")
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        parse(text).unwrap().iter().map(|manifest| manifest.object.name_any()).collect()
    }

    #[test]
    fn documents_are_read_one_after_another_and_lists_are_taken_apart() {
        let text = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n# nothing\n---\napiVersion: v1\nkind: List\n\
                    items:\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n";
        assert_eq!(names(text), ["a", "b"]);
        assert_eq!(names(""), [] as [&str; 0]);
    }

    #[test]
    fn aliases_stand_for_what_they_name_and_not_for_more_than_a_process_can_hold() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {one: &long text, two: *long, 3: *long}\nmore: [1, -2, 0.5, true, ~, .nan]";
        let read = &parse(text).unwrap()[0].object.data;
        assert_eq!(read["data"], serde_json::json!({ "one": "text", "two": "text", "3": "text" }));
        assert_eq!(read["more"], serde_json::json!([1, -2, 0.5, true, null, null]));
        let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let long = "x".repeat(10_000);
        let values = format!("{head}a: &a {long}\nb: [{}]", vec!["*a"; 100_000].join(","));
        let keys = format!("{head}a: &a {long}\nb: [{}]", vec!["{*a : 1}"; 40_000].join(","));
        for text in [values, keys] {
            let problem = parse(&text).unwrap_err();
            assert!(problem.message.starts_with("its aliases (*name) stand for more"), "{problem:?}");
        }
        // A text without aliases is never too long: the densest there is.
        let dense = format!("{head}b: [{}]", vec!["~"; 300_000].join(","));
        assert_eq!(parse(&dense).unwrap().len(), 1);
    }

    #[test]
    fn a_fault_is_reported_with_its_line_and_the_remedy() {
        for (text, line, words) in [
            ("a: [1", 1, "not YAML"),
            ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\nkind: Pod\n", 5, "apiVersion and kind"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", 1, "no metadata.name"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {generateName: x-}\n", 1, "generateName"),
            ("apiVersion: v1\nkind: Pod\nmetadata: 7\n", 1, "not valid object metadata"),
            ("just text", 1, "apiVersion and kind"),
        ] {
            let problem = parse(text).unwrap_err();
            assert_eq!(problem.line, line, "{text:?}: {problem:?}");
            assert!(problem.message.contains(words), "{text:?}: {problem:?}");
        }
    }
}
