//! Something that changes, shown as it changes: drawn in place on a terminal, a line for each change in a log, or JSON.

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use futures::{Stream, StreamExt};
use opcore::runtime::duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::output::{self, Format, Line, Paint, Screen};

/// The flags of commands that can follow an object.
#[derive(Debug, Args)]
pub(crate) struct Following {
    /// Follow it until it is ready (exit code 0), or until it fails (1)
    #[arg(short, long)]
    pub watch: bool,
    /// How long to follow it at most, e.g. 30m [default: as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "watch")]
    pub timeout: Option<Duration>,
}

/// An object, or several, that can be followed.
pub(crate) trait Followed {
    /// Its lines. `live`: they are redrawn every second.
    fn drawn(&self, live: bool) -> Vec<Line>;
    /// A line for each change since it was last shown.
    fn news(&self, before: Option<&Self>) -> Vec<String>;
    /// The same as one line of JSON.
    fn json(&self) -> serde_json::Result<String>;
    /// The exit code, once there is nothing more to wait for.
    fn ended(&self) -> Option<ExitCode>;
}

/// A change of something that is followed.
pub(crate) enum Update<T> {
    /// It is like this now.
    Now(Box<T>),
    /// The watch failed, and is started again.
    Failed(String),
}

/// Shows something as it changes, until there is nothing more to wait for.
///
/// # Errors
///
/// Time is up, it cannot be watched, or it is gone.
pub(crate) async fn follow<T: Followed>(
    title: &str,
    updates: impl Stream<Item = anyhow::Result<Update<T>>>,
    format: Format,
    timeout: Option<Duration>,
) -> anyhow::Result<ExitCode> {
    let mut display = Display::new(format);
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let mut updates = pin!(updates);
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            update = updates.next() => match update.transpose()? {
                Some(Update::Now(now)) => {
                    let ended = now.ended();
                    display.show(now, ended.is_some())?;
                    if let Some(code) = ended {
                        return Ok(code);
                    }
                }
                Some(Update::Failed(why)) => display.complain(&why),
                None => bail!("The watch of {title} ended; try again."),
            },
            _ = ticks.tick() => display.tick()?,
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                let patience = timeout.map(output::age).unwrap_or_default();
                bail!("{title} was not ready within {patience}: follow it longer with --timeout.");
            }
        }
    }
}

/// Where changes are shown.
enum Display<T> {
    Live { screen: Screen, shown: Option<Box<T>>, complaint: Option<String> },
    Log { shown: Option<Box<T>>, complaint: Option<String> },
    Json,
}

impl<T: Followed> Display<T> {
    fn new(format: Format) -> Self {
        match format {
            Format::Json => Self::Json,
            Format::Text if output::is_live() => Self::Live { screen: Screen::default(), shown: None, complaint: None },
            Format::Text => Self::Log { shown: None, complaint: None },
        }
    }

    fn show(&mut self, now: Box<T>, last: bool) -> anyhow::Result<()> {
        match self {
            Self::Live { screen, .. } if last => std::mem::take(screen).end(&now.drawn(false))?,
            Self::Live { screen, shown, complaint } => {
                screen.draw(&now.drawn(true))?;
                (*shown, *complaint) = (Some(now), None);
            }
            Self::Log { shown, complaint } => {
                output::print_lines(&now.news(shown.as_deref()))?;
                (*shown, *complaint) = (Some(now), None);
            }
            Self::Json => output::print_lines(&[now.json()?])?,
        }
        Ok(())
    }

    /// Time has passed.
    fn tick(&mut self) -> anyhow::Result<()> {
        if let Self::Live { screen, shown: Some(shown), complaint } = self {
            let mut lines = shown.drawn(true);
            lines.extend(complaint.iter().map(|text| Line { text: text.clone(), spare: false }));
            screen.draw(&lines)?;
        }
        Ok(())
    }

    /// The watch failed; it starts again by itself. Printed once, however often that happens.
    fn complain(&mut self, why: &str) {
        let words = format!("The watch failed, and is started again: {why}");
        match self {
            Self::Live { complaint, .. } => *complaint = Some(Paint::detect(&std::io::stdout()).odd(words)),
            Self::Log { complaint: Some(said), .. } if *said == words => {}
            Self::Log { complaint, .. } => {
                eprintln!("opctl: {words}");
                *complaint = Some(words);
            }
            Self::Json => eprintln!("opctl: {words}"),
        }
    }
}
