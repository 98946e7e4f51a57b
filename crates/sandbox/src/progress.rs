//! What is going on, for people: a live line on a terminal, plain lines in a log.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// How often a log hears that something still goes on.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Where progress goes. Always the standard error, so that output stays usable in a pipe; written
/// directly, so that a test harness does not swallow it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    terminal: bool,
    quiet: bool,
}

impl Progress {
    /// Everything, live where somebody watches.
    pub(crate) fn to_people() -> Self {
        Self { terminal: stderr().is_terminal(), quiet: false }
    }

    /// Only what takes long: a test that starts a sandbox says nothing unless it has to build first.
    pub(crate) fn of_builds() -> Self {
        Self { terminal: stderr().is_terminal(), quiet: true }
    }

    /// Begins a step that is worth a line even in a test.
    pub(crate) fn long_step(self, name: &str) -> Step {
        Step::new(name, self.terminal, false)
    }

    /// Begins a step of a second or so.
    pub(crate) fn short_step(self, name: &str) -> Step {
        Step::new(name, self.terminal, self.quiet)
    }
}

/// A line about something that is no step.
pub(crate) fn say(name: &str, text: &str) {
    write(&format!("{name:<WIDTH$} {text}\n"));
}

const WIDTH: usize = 24;

/// Something that takes time. Its line is finished by [`Step::done`]; dropped before, it leaves no trace
/// on a terminal.
#[derive(Debug)]
pub(crate) struct Step {
    name: String,
    started: Instant,
    logged: Instant,
    terminal: bool,
    quiet: bool,
    /// What the live line shows, where there is one.
    shown: Option<String>,
}

impl Step {
    fn new(name: &str, terminal: bool, quiet: bool) -> Self {
        Self { name: name.to_owned(), started: Instant::now(), logged: Instant::now(), terminal, quiet, shown: None }
    }

    /// Shows where it stands. To be called often: a log gets it once a minute.
    pub(crate) fn update(&mut self, text: &str) {
        let elapsed = human(self.started.elapsed());
        if self.quiet {
        } else if self.terminal {
            let line = format!("\r\x1b[2K\x1b[36m{:<WIDTH$}\x1b[0m {text}  \x1b[2m{elapsed}\x1b[0m", self.name);
            if self.shown.as_ref() != Some(&line) {
                write(&line);
                self.shown = Some(line);
            }
        } else if self.logged.elapsed() >= LOG_INTERVAL {
            self.logged = Instant::now();
            write(&format!("{:<WIDTH$} {text}, {elapsed}\n", self.name));
        }
    }

    /// Says something once, in a log too.
    pub(crate) fn announce(&mut self, text: &str) {
        if self.terminal {
            self.update(text);
        } else if !self.quiet {
            write(&format!("{:<WIDTH$} {text}\n", self.name));
        }
    }

    /// Ends the line: `text` and how long it took.
    pub(crate) fn done(mut self, text: &str) {
        if self.quiet {
            return;
        }
        let elapsed = human(self.started.elapsed());
        if self.terminal {
            self.shown = None;
            write(&format!("\r\x1b[2K\x1b[32m{:<WIDTH$}\x1b[0m {text} {elapsed}\n", self.name));
        } else {
            write(&format!("{:<WIDTH$} {text} {elapsed}\n", self.name));
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if self.shown.is_some() {
            write("\r\x1b[2K");
        }
    }
}

/// A line that cannot be written is no reason to fail.
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
