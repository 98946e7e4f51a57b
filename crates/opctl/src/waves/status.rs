//! `opctl waves status`.

use std::io::stdout;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use futures::StreamExt;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube::ResourceExt;
use serde::Serialize;
use wave_orchestrator::api::v1alpha1::{PlanPhase, WavePlan, WavePlanStatus, WaveStatus};

use super::Which;
use super::list::phase_words;
use super::plans::{Change, Plans, phase};
use super::tree::{View, in_colour, not_ready_words, tree, waiting_words};
use crate::follow::{self, Followed, Following, Update};
use crate::output::{self, Format, Line, Output, Paint};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    following: Following,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn status(plans: &Plans, flags: &Flags) -> anyhow::Result<ExitCode> {
    let plan = plans.choose(flags.which.name.as_deref()).await?;
    if flags.following.watch {
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

/// A plan with its status, as JSON.
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
    let updates = plans.follow(name).map(|change| match change? {
        Change::Observed(plan) => Ok(Update::Now(plan)),
        Change::Deleted => bail!("WavePlan {name} was deleted."),
        Change::Failed(why) => Ok(Update::Failed(why)),
    });
    follow::follow(&format!("WavePlan {name}"), updates, flags.output.output, flags.following.timeout).await
}

impl Followed for WavePlan {
    fn drawn(&self, live: bool) -> Vec<Line> {
        tree(self, &view(live))
    }

    fn news(&self, before: Option<&Self>) -> Vec<String> {
        news(self, before, &view(false))
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Whole::of(self))
    }

    fn ended(&self) -> Option<ExitCode> {
        outcome(self)
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

/// A line for each wave that changed since it was last told of, and one for the plan.
pub(super) fn news(plan: &WavePlan, before: Option<&WavePlan>, view: &View) -> Vec<String> {
    let before = before.and_then(|plan| plan.status.as_ref());
    let told = before.map_or(&[][..], |status| &status.waves);
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
        words.extend(wave.not_ready.first().map(|lack| not_ready_words(lack, view.paint)));
        lines.push(words.join("  "));
    }
    if let Some(now) = status.phase.filter(|now| before.and_then(|status| status.phase) != Some(*now)) {
        let progress = status.progress.unwrap_or_default();
        lines.push(format!("{time}  WavePlan {}: {}, {progress} waves", plan.name_any(), phase_words(now, view.paint)));
    }
    lines
}
