//! The output: text for people, JSON for programs, colours on a terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write, stdout};
use std::os::fd::AsFd;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

/// An output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// The flag that selects the output format.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Output {
    /// The output format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    pub output: Format,
}

/// Prints to the standard output, all at once.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints lines to the standard output.
pub(crate) fn print_lines<S: AsRef<str>>(lines: &[S]) -> io::Result<()> {
    let mut text = String::new();
    for line in lines {
        text.push_str(line.as_ref());
        text.push('\n');
    }
    print(&text)
}

/// Prints a value as JSON, for people who look at it, too.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(print(&text)?)
}

/// Whether the standard output can be drawn on.
pub(crate) fn is_live() -> bool {
    stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Colours, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// No colours.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { on: false };
    /// Colours in any case.
    #[cfg(test)]
    pub(crate) const COLOURED: Self = Self { on: true };

    /// Colours on a terminal, unless the user wants none (see no-color.org).
    pub(crate) fn detect(stream: &impl IsTerminal) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { on: wanted && stream.is_terminal() }
    }

    /// For errors.
    pub(crate) fn error(self, text: impl Display) -> String {
        self.paint("1;31", text)
    }

    /// For what is in order.
    pub(crate) fn good(self, text: impl Display) -> String {
        self.paint("32", text)
    }

    /// For what has failed.
    pub(crate) fn bad(self, text: impl Display) -> String {
        self.paint("31", text)
    }

    /// For what is in progress.
    pub(crate) fn busy(self, text: impl Display) -> String {
        self.paint("36", text)
    }

    /// For what may need attention.
    pub(crate) fn odd(self, text: impl Display) -> String {
        self.paint("33", text)
    }

    /// For what matters less.
    pub(crate) fn faint(self, text: impl Display) -> String {
        self.paint("2", text)
    }

    /// For what matters more.
    pub(crate) fn strong(self, text: impl Display) -> String {
        self.paint("1", text)
    }

    fn paint(self, colour: &str, text: impl Display) -> String {
        let text = text.to_string();
        if self.on && !text.is_empty() { format!("\x1b[{colour}m{text}\x1b[0m") } else { text }
    }
}

/// Rows under a header, in aligned columns.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&header).chain(rows).collect();
    let widths: Vec<usize> = (0..header.len())
        .map(|column| all.iter().filter_map(|row| row.get(column)).map(|cell| visible(cell)).max().unwrap_or_default())
        .collect();
    let line = |row: &&Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| padded(cell, *width));
        cells.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    all.iter().map(line).collect()
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(visible(text))))
}

/// The number of visible characters of a text: colours do not count.
fn visible(text: &str) -> usize {
    cut_at(text, usize::MAX).1
}

/// A line cut to a width, with an ellipsis.
pub(crate) fn fitted(line: &str, width: usize) -> String {
    if visible(line) <= width {
        return line.to_owned();
    }
    let (end, _) = cut_at(line, width.saturating_sub(1));
    let off = if line.contains('\x1b') { "\x1b[0m" } else { "" };
    format!("{}…{off}", &line[..end])
}

/// The end of a line that is cut after so many visible characters, and how many it has up to there.
fn cut_at(line: &str, most: usize) -> (usize, usize) {
    let (mut visible, mut in_colour) = (0, false);
    for (at, letter) in line.char_indices() {
        if in_colour {
            in_colour = letter != 'm';
        } else if letter == '\x1b' {
            in_colour = true;
        } else if visible == most {
            return (at, visible);
        } else {
            visible += 1;
        }
    }
    (line.len(), visible)
}

/// A duration, as kubectl shows ages: `45s`, `5m12s`, `3h20m`, `6d`.
pub(crate) fn age(length: Duration) -> String {
    let seconds = length.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let pair = |large: u64, unit: &str, small: u64, sub: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{sub}"),
    };
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => pair(minutes, "m", seconds % 60, "s"),
        3600..86400 => pair(hours, "h", minutes % 60, "m"),
        86400..604_800 => pair(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

/// A part of the terminal that is redrawn in place.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    drawn: usize,
}

/// A line to draw, and whether it may be left out where there is no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub text: String,
    pub spare: bool,
}

impl Screen {
    /// Draws lines over the previous ones, as many as fit.
    pub(crate) fn draw(&mut self, lines: &[Line]) -> io::Result<()> {
        let (rows, columns) = size();
        let lines = with_room(lines, rows.saturating_sub(1));
        let mut text = self.back();
        for line in &lines {
            text.push_str(&fitted(line, columns));
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        self.drawn = lines.len();
        print(&text)
    }

    /// Draws all lines for the last time.
    pub(crate) fn end(self, lines: &[Line]) -> io::Result<()> {
        let mut text = self.back();
        for line in lines {
            text.push_str(&line.text);
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        print(&text)
    }

    fn back(&self) -> String {
        if self.drawn == 0 { String::new() } else { format!("\x1b[{}A\r", self.drawn) }
    }
}

/// As many lines as fit: spare ones are left out first, and a line says how many.
fn with_room(lines: &[Line], rows: usize) -> Vec<String> {
    if lines.len() <= rows {
        return lines.iter().map(|line| line.text.clone()).collect();
    }
    // One row for the line that says so.
    let mut excess = lines.len() - rows.saturating_sub(1);
    let mut kept = Vec::new();
    let mut left_out = 0;
    for line in lines {
        if line.spare && excess > 0 {
            (excess, left_out) = (excess - 1, left_out + 1);
        } else {
            kept.push(line.text.clone());
        }
    }
    left_out += excess;
    kept.truncate(kept.len() - excess);
    kept.push(format!("… {left_out} more lines; a higher terminal shows them"));
    kept
}

/// The rows and columns of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(stdout().as_fd()) {
        Ok(size) if size.ws_row > 1 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
        _ => (24, 80),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_read_as_kubectl_shows_them() {
        let said = [0, 59, 60, 312, 3600, 12_000, 90_000, 864_000].map(Duration::from_secs).map(age);
        assert_eq!(said, ["0s", "59s", "1m", "5m12s", "1h", "3h20m", "1d1h", "10d"]);
    }

    #[test]
    fn colours_take_no_room() {
        let rows = [vec!["\x1b[32mok\x1b[0m".to_owned(), "x".to_owned()], vec!["longer".to_owned(), "y".to_owned()]];
        assert_eq!(table(&["A", "B"], &rows), ["A        B", "\x1b[32mok\x1b[0m       x", "longer   y"]);
        assert_eq!(fitted("\x1b[32mgreen\x1b[0m", 5), "\x1b[32mgreen\x1b[0m");
        assert_eq!(fitted("\x1b[32mgreen\x1b[0m", 3), "\x1b[32mgr…\x1b[0m");
        assert_eq!(fitted("plain", 3), "pl…");
    }

    #[test]
    fn where_there_is_no_room_the_spare_lines_go_first() {
        let line = |text: &str, spare| Line { text: text.to_owned(), spare };
        let lines = [line("head", false), line("done", true), line("done too", true), line("runs", false)];
        assert_eq!(with_room(&lines, 4), ["head", "done", "done too", "runs"]);
        assert_eq!(with_room(&lines, 3), ["head", "runs", "… 2 more lines; a higher terminal shows them"]);
        assert_eq!(with_room(&lines, 2), ["head", "… 3 more lines; a higher terminal shows them"]);
    }
}
