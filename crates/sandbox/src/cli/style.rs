//! Colours on a terminal.

use std::fmt::Display;
use std::io::{IsTerminal, stderr, stdout};

use crate::progress;

/// Prints a line. A reader that has closed the pipe is not a reason to panic.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

pub(super) use say;

/// For the standard error.
pub(super) fn error(text: impl Display) -> String {
    paint("1;31", text, stderr().is_terminal())
}

/// For the standard output.
pub(super) fn good(text: impl Display) -> String {
    paint("32", text, stdout().is_terminal())
}

/// For the standard output.
pub(super) fn bad(text: impl Display) -> String {
    paint("31", text, stdout().is_terminal())
}

/// For the standard output.
pub(super) fn faint(text: impl Display) -> String {
    paint("2", text, stdout().is_terminal())
}

fn paint(colour: &str, text: impl Display, on: bool) -> String {
    let text = text.to_string();
    if on { progress::paint(colour, &text) } else { text }
}
