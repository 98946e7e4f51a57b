//! `opctl waves status`.

use std::io::stdout;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use futures::StreamExt;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube::ResourceExt;
use opcore::runtime::duration;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use wave_orchestrator::api::v1alpha1::{PlanPhase, WavePlan, WavePlanStatus, WaveStatus};

use super::Which;
use super::list::phase_words;
use super::plans::{Change, Plans, phase};
use super::tree::{View, in_colour, lack_words, tree, waiting_words};
use crate::output::{self, Format, Line, Output, Paint, Screen};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    which: Which,
    /// Follow the plan until it is ready (exit code 0), or has failed or is invalid (1)
    #[arg(short, long)]
    watch: bool,
    /// How long to follow it at most, e.g. 30m [default: as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "watch")]
    timeout: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn status(plans: &Plans, flags: &Flags) -> anyhow::Result<ExitCode> {
    let plan = plans.choose(flags.which.name.as_deref()).await?;
    if flags.watch {
        return follow(plans, &plan.name_any(), flags).await;
    }
    match flags.output.output {
        Format::Json => output::print_json(&Whole::of(&plan))?,
        Format::Text => {
            let lines: Vec<String> = tree(&plan, &view(false)).into_iter().map(|line| line.text).collect();
            output::print_lines(&lines)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Everything that is known of a plan.
#[derive(Serialize)]
struct Whole<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    #[serde(flatten)]
    status: Option<&'a WavePlanStatus>,
}

impl<'a> Whole<'a> {
    fn of(plan: &'a WavePlan) -> Self {
        Self { name: plan.name_any(), generation: plan.metadata.generation, status: plan.status.as_ref() }
    }
}

fn view(live: bool) -> View {
    View { now: Timestamp::now(), zone: TimeZone::system(), paint: Paint::detect(&stdout()), live }
}

async fn follow(plans: &Plans, name: &str, flags: &Flags) -> anyhow::Result<ExitCode> {
    let mut teller = Teller::new(flags.output.output);
    let deadline = flags.timeout.map(|timeout| Instant::now() + timeout);
    let mut changes = pin!(plans.follow(name));
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            change = changes.next() => match change.transpose()? {
                Some(Change::Seen(plan)) => {
                    let ended = outcome(&plan);
                    teller.tell(plan, ended.is_some())?;
                    if let Some(code) = ended {
                        return Ok(code);
                    }
                }
                Some(Change::Gone) => bail!("WavePlan {name} was deleted."),
                Some(Change::Broke(why)) => teller.complain(&why),
                None => bail!("The watch of WavePlan {name} ended; try again."),
            },
            _ = ticks.tick() => teller.tick()?,
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                let patience = flags.timeout.map(output::age).unwrap_or_default();
                bail!("WavePlan {name} was not ready within {patience}: follow it longer with --timeout.");
            }
        }
    }
}

/// How following a plan ends, once it does.
pub(super) fn outcome(plan: &WavePlan) -> Option<ExitCode> {
    match phase(plan)? {
        PlanPhase::Ready => Some(ExitCode::SUCCESS),
        PlanPhase::Failed | PlanPhase::Invalid => Some(ExitCode::FAILURE),
        PlanPhase::Running | PlanPhase::Suspended | PlanPhase::Deleting => None,
    }
}

/// Tells of a plan that changes: a tree that is drawn in place, lines in a log, or JSON.
enum Teller {
    Live { screen: Screen, plan: Option<Box<WavePlan>>, complaint: Option<String> },
    Log { told: Vec<WaveStatus>, phase: Option<PlanPhase>, complaint: Option<String> },
    Json,
}

impl Teller {
    fn new(format: Format) -> Self {
        match format {
            Format::Json => Self::Json,
            Format::Text if output::is_live() => Self::Live { screen: Screen::default(), plan: None, complaint: None },
            Format::Text => Self::Log { told: Vec::new(), phase: None, complaint: None },
        }
    }

    fn tell(&mut self, plan: Box<WavePlan>, last: bool) -> anyhow::Result<()> {
        match self {
            Self::Live { screen, .. } if last => std::mem::take(screen).end(&tree(&plan, &view(false)))?,
            Self::Live { screen, plan: shown, complaint } => {
                screen.draw(&tree(&plan, &view(true)))?;
                (*shown, *complaint) = (Some(plan), None);
            }
            Self::Log { told, phase, complaint } => {
                *complaint = None;
                output::print_lines(&news(&plan, told, phase, &view(false)))?;
            }
            Self::Json => {
                output::print_lines(&[serde_json::to_string(&Whole::of(&plan))?])?;
            }
        }
        Ok(())
    }

    /// Time has passed.
    fn tick(&mut self) -> anyhow::Result<()> {
        if let Self::Live { screen, plan: Some(plan), complaint } = self {
            let mut lines = tree(plan, &view(true));
            lines.extend(complaint.iter().map(|text| Line { text: text.clone(), spare: false }));
            screen.draw(&lines)?;
        }
        Ok(())
    }

    /// The watch broke; it is opened again by itself. Said once, however often it is tried.
    fn complain(&mut self, why: &str) {
        let words = format!("The watch broke, and is opened again: {why}");
        match self {
            Self::Live { complaint, .. } => *complaint = Some(view(true).paint.odd(words)),
            Self::Log { complaint: Some(said), .. } if *said == words => {}
            Self::Log { complaint, .. } => {
                eprintln!("opctl: {words}");
                *complaint = Some(words);
            }
            Self::Json => eprintln!("opctl: {words}"),
        }
    }
}

/// A line for each wave that changed since it was last told of, and one for the plan.
pub(super) fn news(
    plan: &WavePlan,
    told: &mut Vec<WaveStatus>,
    phase: &mut Option<PlanPhase>,
    view: &View,
) -> Vec<String> {
    let status = plan.status.clone().unwrap_or_default();
    let time = view.paint.faint(format!("{:.0}", view.now));
    let width = status.waves.iter().map(|wave| wave.name.len()).max().unwrap_or_default();
    let mut lines = Vec::new();
    for wave in &status.waves {
        let gist = |wave: &WaveStatus| (wave.phase, wave.ready, wave.total, wave.attempts);
        if told.iter().any(|before| before.name == wave.name && gist(before) == gist(wave)) {
            continue;
        }
        let mut words = vec![
            format!("{time}  {:<width$}", wave.name),
            in_colour(wave.phase, &format!("{:<9}", wave.phase), view.paint),
            format!("{}/{}", wave.ready, wave.total),
        ];
        if let Some(took) = wave.duration.filter(|_| wave.phase.is_through()) {
            words.push(format!("after {}", output::age(took.as_duration())));
        }
        if !wave.waiting_for.is_empty() {
            words.push(format!("{} {}", waiting_words(wave.phase), wave.waiting_for.join(", ")));
        }
        words.extend(wave.not_ready.first().map(|lack| lack_words(lack, view.paint)));
        lines.push(words.join("  "));
    }
    *told = status.waves;
    if let Some(now) = status.phase.filter(|now| *phase != Some(*now)) {
        *phase = Some(now);
        let progress = status.progress.unwrap_or_default();
        lines.push(format!("{time}  WavePlan {}: {}, {progress} waves", plan.name_any(), phase_words(now, view.paint)));
    }
    lines
}
