//! Times, numbers and texts from elsewhere, formatted for people.

use jiff::Timestamp;
use opcore::duration::Span;

use crate::output::age;

/// The time since a moment, as `5m ago`.
pub(crate) fn ago(moment: Timestamp, now: Timestamp) -> String {
    format!("{} ago", since(moment, now))
}

/// The time between two moments.
pub(crate) fn since(moment: Timestamp, now: Timestamp) -> String {
    age(Span::between(moment, now).as_duration())
}

/// A number with its noun.
pub(crate) fn count(number: i64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// A number of bytes with a unit.
pub(crate) fn size(bytes: i64) -> String {
    // Such sizes are far below the precision of a float.
    #[expect(clippy::cast_precision_loss, reason = "it is rounded to a tenth")]
    let bytes_float = bytes as f64;
    match bytes {
        ..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes_float / 1024.0),
        _ => format!("{:.1} MiB", bytes_float / 1_048_576.0),
    }
}

/// A text from elsewhere, without control sequences: they could hide the text around it on a terminal.
pub(crate) fn printable(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() && !matches!(letter, '\n' | '\t') { '\u{fffd}' } else { letter };
    text.chars().map(shown).collect()
}
