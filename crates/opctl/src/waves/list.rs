//! `opctl waves list`.

use std::io::stdout;
use std::process::ExitCode;

use jiff::Timestamp;
use kube::ResourceExt;
use opcore::conditions;
use opcore::duration::Span;
use serde::Serialize;
use wave_orchestrator::api::v1alpha1::{PlanPhase, WavePlan};

use super::plans::Plans;
use crate::output::{self, Format, Output, Paint};

pub(super) async fn list(plans: &Plans, output: Output) -> anyhow::Result<ExitCode> {
    let plans = plans.all().await?;
    match output.output {
        Format::Json => output::print_json(&plans.iter().map(Entry::of).collect::<Vec<_>>())?,
        Format::Text if plans.is_empty() => output::print_lines(&["There is no WavePlan."])?,
        Format::Text => output::print_lines(&rows(&plans, Timestamp::now(), Paint::detect(&stdout())))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A plan in the list, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    name: String,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<PlanPhase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eta: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
}

impl Entry {
    pub(super) fn of(plan: &WavePlan) -> Self {
        let status = plan.status.clone().unwrap_or_default();
        let condition = conditions::find(&status.conditions, conditions::READY);
        Self {
            name: plan.name_any(),
            ready: condition.is_some_and(|condition| condition.status == "True"),
            phase: status.phase,
            message: condition.map(|condition| condition.message.clone()),
            progress: status.progress,
            current: status.current,
            eta: status.eta,
            created_at: plan.creation_timestamp().map(|time| time.0),
        }
    }
}

pub(super) fn rows(plans: &[WavePlan], now: Timestamp, paint: Paint) -> Vec<String> {
    let none = || "-".to_owned();
    let row = |plan: &WavePlan| {
        let entry = Entry::of(plan);
        let phase = entry.phase.map_or_else(none, |phase| phase_words(phase, paint));
        let left = entry.eta.and_then(|eta| eta.parse().ok()).map(|eta| Span::between(now, eta));
        let age = entry.created_at.map(|created| Span::between(created, now));
        let length = |span: Option<Span>| span.map_or_else(none, |span| output::age(span.as_duration()));
        let ready = if entry.ready { "True" } else { "False" };
        let progress = entry.progress.unwrap_or_else(|| format!("0/{}", plan.spec.waves.len()));
        vec![
            entry.name,
            ready.to_owned(),
            phase,
            progress,
            entry.current.unwrap_or_else(none),
            length(left),
            length(age),
        ]
    };
    let rows: Vec<Vec<String>> = plans.iter().map(row).collect();
    output::table(&["NAME", "READY", "STATUS", "WAVES", "CURRENT", "ETA", "AGE"], &rows)
}

/// The phase of a plan, in its colour.
pub(super) fn phase_words(phase: PlanPhase, paint: Paint) -> String {
    match phase {
        PlanPhase::Ready => paint.good("Ready"),
        PlanPhase::Running => paint.busy("Running"),
        PlanPhase::Failed => paint.bad("Failed"),
        PlanPhase::Invalid => paint.bad("Invalid"),
        PlanPhase::Suspended => paint.odd("Suspended"),
        PlanPhase::Deleting => paint.odd("Deleting"),
    }
}
