//! What is going on, for people: a live line on a terminal, plain lines in a log.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// How often a log hears that something still goes on.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The column where what is said begins.
const WIDTH: usize = 24;

/// Where progress goes. Always the standard error, so that output stays usable in a pipe; written
/// directly, so that a test harness does not swallow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A line that changes.
    Terminal,
    /// A line when something begins and ends, and once a minute in between.
    Log,
    /// Nothing.
    #[cfg(test)]
    Silent,
}

impl Progress {
    /// Redrawn on a terminal.
    pub(crate) fn detect() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if stderr().is_terminal() && !dumb { Self::Terminal } else { Self::Log }
    }

    /// Begins something that takes time.
    pub(crate) fn step(self, name: &str) -> Step {
        let now = Instant::now();
        Step { name: name.to_owned(), progress: self, started: now, logged: now, shown: None }
    }

    /// A line about something that is not a step.
    pub(crate) fn say(self, name: &str, text: &str) {
        match self {
            #[cfg(test)]
            Self::Silent => {}
            Self::Terminal | Self::Log => write(&format!("{name:<WIDTH$} {text}\n")),
        }
    }
}

/// Something that takes time. Its line is finished by [`Step::done`]; dropped before, it leaves no trace
/// on a terminal.
#[derive(Debug)]
pub(crate) struct Step {
    name: String,
    progress: Progress,
    started: Instant,
    logged: Instant,
    /// What the live line shows, where there is one.
    shown: Option<String>,
}

impl Step {
    /// Shows where it stands. To be called often.
    pub(crate) fn update(&mut self, text: &str) {
        let elapsed = human(self.started.elapsed());
        if self.progress == Progress::Terminal {
            let line = format!("{}{} {text}  {}", CLEAR, paint("36", &self.padded()), paint("2", &elapsed));
            if self.shown.as_ref() != Some(&line) {
                write(&line);
                self.shown = Some(line);
            }
        } else if self.logged.elapsed() >= LOG_INTERVAL {
            self.logged = Instant::now();
            self.progress.say(&self.name, &format!("{text}, {elapsed}"));
        }
    }

    /// Says something once, in a log too.
    pub(crate) fn announce(&mut self, text: &str) {
        if self.progress == Progress::Terminal {
            self.update(text);
        } else {
            self.progress.say(&self.name, text);
        }
    }

    /// Ends the line: `text` and how long it took.
    pub(crate) fn done(mut self, text: &str) {
        let elapsed = human(self.started.elapsed());
        if self.progress == Progress::Terminal {
            self.shown = None;
            write(&format!("{}{} {text} {elapsed}\n", CLEAR, paint("32", &self.padded())));
        } else {
            self.progress.say(&self.name, &format!("{text} {elapsed}"));
        }
    }

    fn padded(&self) -> String {
        format!("{:<WIDTH$}", self.name)
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if self.shown.is_some() {
            write(CLEAR);
        }
    }
}

/// Back to the beginning of an empty line.
const CLEAR: &str = "\r\x1b[2K";

/// Colours a text, unless `NO_COLOR` is set (see no-color.org).
pub(crate) fn paint(colour: &str, text: &str) -> String {
    if std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
        format!("\x1b[{colour}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// A line that cannot be written is not a reason to fail.
fn write(text: &str) {
    let mut out = stderr().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// `0.4s`, `12s`, `5m31s`, `2h05m`, `3d04h`.
pub(crate) fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_say_them() {
        let said: Vec<String> =
            [400, 12_000, 331_000, 7_500_000, 273_600_000].map(Duration::from_millis).map(human).into();
        assert_eq!(said, ["0.4s", "12s", "5m31s", "2h05m", "3d04h"]);
    }
}
