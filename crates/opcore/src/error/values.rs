//! Removes values from error messages: they may be secrets, and messages end up in logs, Events and statuses.

/// The message of a serde error without the strings, numbers and variants that it quotes. Field names stay.
pub(crate) fn of_serde(words: &str) -> String {
    let mut rest = words;
    let mut said = String::new();
    while let Some(at) = rest.find(['"', '`']) {
        let (before, quoted) = rest.split_at(at);
        let (value, after) = split_quoted(quoted);
        said.push_str(before);
        let kinds = ["integer ", "floating point ", "boolean ", "character ", "variant "];
        if quoted.starts_with('"') {
            said.push_str("\"…\"");
        } else if kinds.iter().any(|kind| before.ends_with(kind)) {
            said.push_str("`…`");
        } else {
            said.push_str(value);
        }
        rest = after;
    }
    said + rest
}

/// What the API server says is wrong with a field, without the field's value.
pub(crate) fn of_cause(message: &str) -> String {
    // Invalid value: core.PodTemplateSpec{…}: field is immutable
    // Unsupported value: "Sometimes": supported values: "Always", "Never"
    // Duplicate value: "front"
    let kinds = ["Invalid value", "Unsupported value", "Duplicate value", "Not found"];
    let valued = kinds.iter().find_map(|kind| Some((*kind, message.strip_prefix(kind)?.strip_prefix(": ")?)));
    let Some((kind, rest)) = valued else { return message.to_owned() };
    let why = match kind {
        _ if rest.starts_with('"') => split_quoted(rest).1.strip_prefix(": "),
        // These contain nothing but the value.
        "Duplicate value" | "Not found" => None,
        "Unsupported value" => rest.rfind("supported values: ").map(|at| &rest[at..]),
        _ => rest.rsplit_once(": ").map(|(_, why)| why),
    };
    match why {
        // must be of type date-time: "yesterday"
        Some(why) if why.contains("must be of type") => why.split(": \"").next().unwrap_or(why).to_owned(),
        Some(why) => why.to_owned(),
        None => kind.to_lowercase(),
    }
}

/// A message of the API server, without the values that an apply would have set.
pub(crate) fn of_message(message: &str) -> String {
    // .stringData.pin: expected string, got &value.valueUnstructured{Value:4711}
    let lines = message.lines().map(|line| line.split(", got ").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// Splits off a quoted beginning, quotes included, from the rest. Without a closing quote, everything counts as quoted.
fn split_quoted(text: &str) -> (&str, &str) {
    let quote = text.chars().next();
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if Some(c) == quote => return text.split_at(at + c.len_utf8()),
            _ => {}
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_serde_says_names_fields_and_no_values() {
        for (words, said) in [
            (r#"invalid type: string "a\"hunter2", expected a map"#, r#"invalid type: string "…", expected a map"#),
            ("invalid type: integer `4711`, expected a string", "invalid type: integer `…`, expected a string"),
            ("unknown variant `hunter2`, expected `Wait`", "unknown variant `…`, expected `Wait`"),
            ("missing field `name` at line 1", "missing field `name` at line 1"),
            (r#"invalid type: string "hunter2"#, r#"invalid type: string "…""#),
        ] {
            assert_eq!(of_serde(words), said);
        }
    }

    #[test]
    fn an_error_that_wraps_one_of_serde_does_not_quote_either() {
        let unfit = serde_json::from_str::<Vec<u8>>(r#""hunter2""#).unwrap_err();
        let words = crate::error::chain(&kube::Error::SerdeError(unfit));
        assert!(words.contains("invalid type: string") && !words.contains("hunter2"), "{words}");
    }

    #[test]
    fn what_the_api_server_finds_wrong_is_reported_without_the_value() {
        for (message, said) in [
            ("Invalid value: core.PodTemplateSpec{A:\"hunter2: x\"}: field is immutable", "field is immutable"),
            (r#"Invalid value: "hun: ter\"2": must be lower case"#, "must be lower case"),
            (r#"Unsupported value: "hunter2": supported values: "A", "B""#, r#"supported values: "A", "B""#),
            (r#"Unsupported value: v1.X("hunter2"): supported values: "A""#, r#"supported values: "A""#),
            (r#"Duplicate value: "hunter2""#, "duplicate value"),
            (r#"Duplicate value: v1.X{A:"x: hunter2"}"#, "duplicate value"),
            (r#"Not found: "hunter2""#, "not found"),
            (
                r#"Invalid value: "hunter2": a.b in body must be of type date: "hunter2""#,
                "a.b in body must be of type date",
            ),
            ("Required value", "Required value"),
            ("Too many: 5: must have at most 3 items", "Too many: 5: must have at most 3 items"),
        ] {
            assert_eq!(of_cause(message), said);
        }
    }

    #[test]
    fn an_apply_that_does_not_fit_is_reported_without_what_it_would_have_set() {
        let message = "failed to create typed patch object (shop/front; /v1, Kind=Secret): errors:\n  \
            .stringData.pin: expected string, got &value.valueUnstructured{Value:4711}\n  \
            .type: expected string, got &value.valueUnstructured{Value:4712}";
        assert_eq!(
            of_message(message),
            "failed to create typed patch object (shop/front; /v1, Kind=Secret): errors:\n  \
            .stringData.pin: expected string\n  .type: expected string"
        );
    }
}
