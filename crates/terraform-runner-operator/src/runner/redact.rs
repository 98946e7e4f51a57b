//! Values that must not appear in anything that is printed, reported or kept to be read.

use std::borrow::Cow;
use std::collections::BTreeSet;

/// What stands in the place of such a value.
const INSTEAD: &str = "(redacted)";
/// Shorter values are not looked for: what is left of a text would not be readable.
const SHORTEST: usize = 4;

/// Takes values out of texts.
#[derive(Clone, Default)]
pub struct Redactor {
    /// The longest first: one may contain another.
    needles: Vec<String>,
}

impl Redactor {
    /// Looks for these values, for each of their lines, and for all of them as they look in JSON and in HCL.
    pub fn new(values: &[String]) -> Self {
        let lines = values.iter().flat_map(|value| value.lines().map(str::trim));
        let all: BTreeSet<&str> = values.iter().map(|value| value.trim()).chain(lines).collect();
        let needles: BTreeSet<String> =
            all.into_iter().flat_map(forms).filter(|needle| needle.chars().count() >= SHORTEST).collect();
        let mut needles: Vec<String> = needles.into_iter().collect();
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
        Self { needles }
    }

    /// The text without the values.
    pub fn clean<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for needle in &self.needles {
            if text.contains(needle.as_str()) {
                text = Cow::Owned(text.replace(needle.as_str(), INSTEAD));
            }
        }
        text
    }
}

/// A value as it may be written: as it is, escaped, and escaped within something that is escaped itself.
fn forms(value: &str) -> Vec<String> {
    let json = escaped(value);
    // Go writes these so that a browser takes them for nothing else.
    let go = |json: &str| json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let hcl = |text: &str| text.replace("${", "$${").replace("%{", "%%{");
    let twice = escaped(&json);
    vec![
        value.to_owned(),
        hcl(value),
        hcl(&json),
        go(&json),
        go(&twice),
        escaped(&go(&json)),
        escaped(&hcl(&json)),
        twice,
        json,
    ]
}

fn escaped(text: &str) -> String {
    let json = serde_json::to_string(text).unwrap_or_default();
    json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_taken_out_in_every_form() {
        let redactor =
            Redactor::new(&["pass\"word<1>".to_owned(), "first line\nsecond line".to_owned(), "abc".to_owned()]);
        for text in [r#"it is pass"word<1>"#, r#"it is pass\"word<1>"#, r#"it is pass\"word\u003c1\u003e"#] {
            assert_eq!(redactor.clean(text), "it is (redacted)");
        }
        assert_eq!(redactor.clean("    + second line"), "    + (redacted)");
        assert_eq!(redactor.clean("abc"), "abc", "too short to be looked for");
    }

    #[test]
    fn a_value_that_contains_another_goes_as_a_whole() {
        let redactor = Redactor::new(&["hunter2".to_owned(), "hunter2-and-more".to_owned()]);
        assert_eq!(redactor.clean("hunter2-and-more"), "(redacted)");
    }
}
