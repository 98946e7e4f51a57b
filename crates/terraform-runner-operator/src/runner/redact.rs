//! Removes values that must not be printed, reported or kept in readable form.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::ops::Range;

/// The replacement for such a value.
const INSTEAD: &str = "(redacted)";
/// Shorter values are not searched for: the remaining text would not be readable.
const SHORTEST: usize = 4;
/// Values longer than this, in bytes, are searched for in pieces: a text that contains the whole value contains all
/// pieces. This way there is little to compare at each position of any text.
const LONGEST: usize = 256;
/// Numbers with more digits than this are searched for only as they are written.
const PLACES: i64 = 400;

/// Removes values from texts.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Sorted, without duplicates.
    needles: Vec<Needle>,
    /// The range of those that begin with these bytes.
    begins: HashMap<[u8; SHORTEST], Range<usize>>,
}

#[derive(Clone)]
struct Needle {
    text: String,
    /// The longest other needle that it begins with.
    within: Option<usize>,
}

impl Redactor {
    /// Searches for these values, for each of their lines, for the parts between unprintable characters, and for all of
    /// these in the forms of JSON, HCL and Go.
    pub fn new(values: &[String]) -> Self {
        let lines = values.iter().flat_map(|value| value.lines());
        let printed = values.iter().flat_map(|value| value.split(is_changed));
        let all: BTreeSet<&str> =
            values.iter().map(String::as_str).chain(lines).chain(printed).map(str::trim).filter(is_long).collect();
        let forms: BTreeSet<String> = all.into_iter().flat_map(forms).filter(is_long).collect();
        let texts: BTreeSet<&str> = forms.iter().flat_map(|form| pieces(form)).collect();
        Self::of(texts)
    }

    fn of(texts: BTreeSet<&str>) -> Self {
        let mut redactor = Self::default();
        let mut open: Vec<usize> = Vec::new();
        for (number, text) in texts.into_iter().enumerate() {
            // In sorted order, everything that a text begins with comes right before it.
            while open
                .pop_if(|last| !redactor.needles.get(*last).is_some_and(|last| text.starts_with(&last.text)))
                .is_some()
            {}
            redactor.needles.push(Needle { text: text.to_owned(), within: open.last().copied() });
            open.push(number);
            if let Some(begin) = text.as_bytes().first_chunk() {
                redactor.begins.entry(*begin).or_insert(number..number).end = number + 1;
            }
        }
        redactor
    }

    /// The text without the values. Values that overlap or touch are removed together.
    pub fn clean<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for at in 0..text.len() {
            let Some(length) = text.as_bytes().get(at..).and_then(|rest| self.longest(rest)) else { continue };
            match found.last_mut().filter(|last| at <= last.end) {
                Some(last) => last.end = last.end.max(at + length),
                None => found.push(at..at + length),
            }
        }
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut clean = String::with_capacity(text.len());
        let mut kept = 0;
        for Range { start, end } in found {
            clean.push_str(text.get(kept..start).unwrap_or_default());
            clean.push_str(INSTEAD);
            kept = end;
        }
        clean.push_str(text.get(kept..).unwrap_or_default());
        Cow::Owned(clean)
    }

    /// The length of the longest value that a text begins with.
    fn longest(&self, text: &[u8]) -> Option<usize> {
        let begin = self.begins.get(text.first_chunk()?)?;
        let same = self.needles.get(begin.clone())?;
        // The text cannot begin with a needle that comes later in the order. Of the earlier ones, it can begin only
        // with those that the last one begins with.
        let before = same.partition_point(|needle| needle.text.as_bytes() <= text);
        let mut number = begin.start + before.checked_sub(1)?;
        loop {
            let needle = self.needles.get(number)?;
            if text.starts_with(needle.text.as_bytes()) {
                return Some(needle.text.len());
            }
            number = needle.within?;
        }
    }
}

fn is_long(text: &impl AsRef<str>) -> bool {
    text.as_ref().chars().nth(SHORTEST - 1).is_some()
}

/// Splits a text into pieces that are short enough, and long enough, to be searched for.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while rest.len() > LONGEST {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(LONGEST));
        pieces.push(piece);
        rest = after;
    }
    // The last piece may overlap the one before.
    let last = text.len().saturating_sub(LONGEST.min(text.len()));
    pieces.push(text.get(text.floor_char_boundary(last)..).unwrap_or_default());
    pieces
}

/// The forms in which a value may be written: plain, escaped, and escaped twice.
fn forms(value: &str) -> Vec<String> {
    let json = escaped(value);
    // Go escapes these so that a browser does not interpret them.
    let go = |json: &str| json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let hcl = |text: &str| text.replace("${", "$${").replace("%{", "%%{");
    let twice = escaped(&json);
    let mut forms = vec![
        value.to_owned(),
        hcl(value),
        hcl(&json),
        go(&json),
        go(&twice),
        escaped(&go(&json)),
        escaped(&hcl(&json)),
        quoted(value),
        twice,
        json,
    ];
    forms.extend(plain(value));
    forms
}

/// Whether Go, unlike JSON, escapes a character, or Terraform combines it with the one before.
fn is_changed(c: char) -> bool {
    !matches!(c, '\n' | '\r' | '\t') && (c.is_control() || c.escape_debug().nth(1) == Some('u'))
}

/// The form in which Go writes a string in quotes, as plans show it.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for c in text.chars() {
        // After another character, a combining character is printed as it is.
        let shown = || format!("a{c}").escape_debug().nth(1) != Some('\\');
        let code = u32::from(c);
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            ' '..='~' => quoted.push(c),
            _ if !c.is_ascii() && shown() => quoted.push(c),
            _ => {
                let _ = match code {
                    0..0x80 => write!(quoted, "\\x{code:02x}"),
                    0x80..0x1_0000 => write!(quoted, "\\u{code:04x}"),
                    _ => write!(quoted, "\\U{code:08x}"),
                };
            }
        }
    }
    quoted
}

/// A number as Terraform prints it: without an exponent, and without redundant zeros.
fn plain(text: &str) -> Option<String> {
    let (sign, number) = match text.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (number, exponent) = match number.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i64>().ok()?),
        None => (number, 0),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let is_number = !whole.is_empty() && [whole, part].iter().all(|digits| digits.bytes().all(|c| c.is_ascii_digit()));
    if !is_number || exponent.abs() > PLACES {
        return None;
    }
    let shift = usize::try_from(exponent.abs()).ok()?;
    let (whole, part) = if exponent < 0 {
        let digits = format!("{}{whole}", "0".repeat(shift));
        let (whole, moved) = digits.split_at(digits.len() - shift);
        (whole.to_owned(), format!("{moved}{part}"))
    } else {
        let digits = format!("{part}{}", "0".repeat(shift.saturating_sub(part.len())));
        let (moved, part) = digits.split_at(shift);
        (format!("{whole}{moved}"), part.to_owned())
    };
    let (whole, part) = (whole.trim_start_matches('0'), part.trim_end_matches('0'));
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") })
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

    fn clean(value: &str, text: &str) -> String {
        Redactor::new(&[value.to_owned()]).clean(text).into_owned()
    }

    #[test]
    fn values_that_overlap_or_touch_go_together() {
        let redactor = Redactor::new(&["abcd1234".to_owned(), "1234-and-more".to_owned(), "12345678".to_owned()]);
        assert_eq!(redactor.clean("<abcd1234-and-more>"), "<(redacted)>");
        assert_eq!(redactor.clean("<abcd123412345678>"), "<(redacted)>");
        assert_eq!(redactor.clean("<1234567>"), "<1234567>");
        assert_eq!(redactor.clean("ü12345678ü12345678"), "ü(redacted)ü(redacted)");
    }

    #[test]
    fn digits_are_found_as_terraform_prints_the_number() {
        assert_eq!(clean("000471108", "pin = 471108, pin = \"000471108\""), "pin = (redacted), pin = \"(redacted)\"");
        assert_eq!(clean("4711.080", "4711.08"), "(redacted)");
        assert_eq!(clean("-04711", "-4711"), "(redacted)");
        assert_eq!(clean("47.11e5", "4711000"), "(redacted)");
        assert_eq!(clean("4711e-5", "0.04711"), "(redacted)");
        assert_eq!(clean("1.2345678901234568e+29", "123456789012345680000000000000"), "(redacted)");
        assert_eq!(clean("1e999999999", "1"), "1");
        assert_eq!(clean("0000", "0 and 0000"), "0 and (redacted)");
    }

    #[test]
    fn a_value_with_characters_that_are_not_printed_is_found_in_its_pieces() {
        for gap in ['\u{feff}', '\u{a0}', '\u{200b}', '\u{200d}', '\u{ad}', '\u{2028}', '\u{1}', '\u{7f}', '\u{e000}'] {
            let value = format!("{gap}first{gap}second");
            for printed in [value.clone(), "\\ufirst\\usecond".to_owned()] {
                let clean = clean(&value, &printed);
                assert!(!clean.contains("first") && !clean.contains("second"), "{gap:?}: {clean:?}");
            }
        }
        // The pieces are too short to be searched for, and the whole value is not.
        assert_eq!(clean("ab\u{feff}cd", r#"x = "ab\ufeffcd""#), r#"x = "(redacted)""#);
        assert_eq!(clean("ab\u{1}cd", r#"x = "ab\x01cd""#), r#"x = "(redacted)""#);
        assert_eq!(clean("ab\u{e0001}c", r#"x = "ab\U000e0001c""#), r#"x = "(redacted)""#);
        assert_eq!(clean("ab\u{b}\"é", r#"x = "ab\v\"é""#), r#"x = "(redacted)""#);
        // Terraform writes two characters that form a composed one as that one.
        assert_eq!(clean("pa\u{308}ssword", "p\u{e4}ssword"), "p\u{e4}(redacted)");
    }

    #[test]
    fn a_value_that_was_cut_off_is_found_as_far_as_it_goes() {
        let value = (0..2000).map(|number| format!("{number:05}")).collect::<Vec<_>>().join("-");
        let cut = value.get(..5 * 256 + 3).unwrap();
        assert_eq!(clean(&value, &format!("<{value}>")), "<(redacted)>");
        assert_eq!(clean(&value, cut), format!("(redacted){}", cut.get(5 * 256..).unwrap()));
        let letters = "ö".repeat(1001);
        assert_eq!(clean(&letters, &format!("<{letters}>")), "<(redacted)>");
    }

    #[test]
    fn a_value_of_many_lines_costs_no_more_for_each_line_than_one_of_few() {
        let same = "x".repeat(1 << 16);
        let seconds = |lines: usize| {
            let value = (0..lines).map(|number| format!("line \"{number}\"")).collect::<Vec<_>>().join("\n");
            let once = || {
                let started = std::time::Instant::now();
                let redactor = Redactor::new(&[value.clone(), same.clone()]);
                let clean = redactor.clean(&value).into_owned();
                assert!(!clean.contains("line"), "{clean:.100}");
                assert_eq!(redactor.clean(&format!("{same}, and {same}.")), "(redacted), and (redacted).");
                for number in 0..lines / 100 {
                    assert_eq!(redactor.clean(&format!("a = line \"{number}\"!")), "a = (redacted)!");
                }
                started.elapsed().as_secs_f64()
            };
            // Others use this machine, too: the quickest of several is the nearest to what it costs.
            (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
        };
        let (few, many) = (seconds(2_000), seconds(32_000));
        // Each line looked for by itself makes it 256 times as much.
        assert!(many < few * 64.0, "{few} s for 2,000 lines, {many} s for 32,000");
    }
}
