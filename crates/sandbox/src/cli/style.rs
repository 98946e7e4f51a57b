//! Colours, where somebody sees them.

use std::fmt::Display;
use std::io::{IsTerminal, stderr, stdout};

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
    // See no-color.org: any value turns colours off.
    if on && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) {
        format!("\x1b[{colour}m{text}\x1b[0m")
    } else {
        text.to_string()
    }
}
