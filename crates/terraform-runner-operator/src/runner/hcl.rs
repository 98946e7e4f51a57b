//! Values in HCL's own syntax, in which both Terraform and OpenTofu read them as data. In JSON only one of them reads
//! `${…}` as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// A file of settings. Names are written as they are: see [`check_setting`](crate::run::bundle::check_setting).
pub fn settings(values: &BTreeMap<String, Value>) -> String {
    values.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name} = {}", literal(value));
        text
    })
}

/// A value.
fn literal(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| format!("{} = {}", quoted(name), literal(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
    }
}

/// A string literal in which nothing is evaluated.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted.replace("${", "$${").replace("%{", "%%{")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_in_a_value_is_evaluated() {
        let values = [("path".to_owned(), json!("a\"${file(\"/etc/passwd\")}\n%{ if }"))];
        assert_eq!(settings(&values.into()), "path = \"a\\\"$${file(\\\"/etc/passwd\\\")}\\n%%{ if }\"\n");
        let values = [("a".to_owned(), json!([1, true, null, { "b": "c" }]))];
        assert_eq!(settings(&values.into()), "a = [1, true, null, { \"b\" = \"c\" }]\n");
    }
}
