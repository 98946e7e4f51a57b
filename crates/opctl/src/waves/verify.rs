//! `opctl waves verify-startup`: did the waves start in the order of the graph, and do their endpoints answer?

use std::io::stdout;
use std::process::ExitCode;

use clap::Args;
use futures::future::join_all;
use jiff::Timestamp;
use kube::ResourceExt;
use opcore::duration::Span;
use serde::Serialize;
use wave_orchestrator::api::v1alpha1::{Gate, OnFailure, WavePhase, WavePlan, WaveStatus};
use wave_orchestrator::probes;

use super::Which;
use super::picture::Picture;
use super::plans::{Plans, current};
use super::tree::waiting_words;
use crate::output::{self, Format, Output, Paint, age};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    output: Output,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckResult {
    Pass,
    Fail,
    /// The order differs from the graph, or is unknown, for a known reason that is not an error.
    Excused,
}

/// One check with its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    verdict: CheckResult,
    /// What was checked: `spec`, `wave`, `order` or `probe`.
    kind: &'static str,
    wave: String,
    message: String,
}

#[derive(Serialize)]
struct Report<'a> {
    name: String,
    passed: bool,
    checks: &'a [Check],
}

pub(super) async fn verify(plans: &Plans, flags: &Flags) -> anyhow::Result<ExitCode> {
    let plan = plans.choose(flags.which.name.as_deref()).await?;
    let mut checks = recorded(&plan);
    checks.extend(probed(&plan).await);
    let passed = checks.iter().all(|check| check.verdict != CheckResult::Fail);
    match flags.output.output {
        Format::Json => output::print_json(&Report { name: plan.name_any(), passed, checks: &checks })?,
        Format::Text => output::print_lines(&text(&plan, &checks, Paint::detect(&stdout())))?,
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(super) fn text(plan: &WavePlan, checks: &[Check], paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    for check in checks {
        let symbol = match check.verdict {
            CheckResult::Pass => paint.good("✔"),
            CheckResult::Fail => paint.bad("✘"),
            CheckResult::Excused => paint.odd("~"),
        };
        lines.push(format!("{symbol} {}", check.message));
    }
    let count = |verdict: CheckResult| checks.iter().filter(|check| check.verdict == verdict).count();
    let failed = match count(CheckResult::Fail) {
        0 => paint.good("0 failed"),
        some => paint.bad(format!("{some} failed")),
    };
    let excused = match count(CheckResult::Excused) {
        0 => String::new(),
        some => format!(", {some} excused"),
    };
    lines.push(String::new());
    lines.push(format!("{}: {} passed{excused}, {failed}", plan.name_any(), count(CheckResult::Pass)));
    lines
}

/// The checks of what the status records against the graph.
pub(super) fn recorded(plan: &WavePlan) -> Vec<Check> {
    let check = |verdict, kind, wave: &str, message| Check { verdict, kind, wave: wave.to_owned(), message };
    if current(plan).is_none() {
        let message = match plan.status {
            None => "The operator has not reconciled this plan yet: is wave-orchestrator running?",
            Some(_) => "The spec has changed, and the operator has not reconciled the change yet: try again.",
        };
        return vec![check(CheckResult::Fail, "spec", "", message.to_owned())];
    }
    let picture = Picture::of(plan, Timestamp::now());
    let rollout = plan.status.as_ref().and_then(|status| status.rollout.as_ref());
    let is_first = rollout.is_some_and(|rollout| rollout.number == 1);
    let mut checks = Vec::new();
    for &number in &picture.graph.order {
        let (wave, status) = (picture.wave(number), &picture.statuses[number]);
        if let Some(why) = picture.graph.broken.get(&number) {
            checks.push(check(CheckResult::Fail, "spec", &wave.name, format!("{}: {why}.", wave.name)));
            continue;
        }
        let (verdict, words) = is_through(status);
        checks.push(check(verdict, "wave", &wave.name, format!("{} {words}", wave.name)));
        if status.started_at.is_none() {
            continue;
        }
        for (dependency, &first) in wave.depends_on.iter().zip(&picture.graph.before[number]) {
            let goes_on = picture.wave(first).on_failure == OnFailure::Continue;
            let counts = dependency.gate == Gate::Always || is_first || !status.rolled_out;
            let (verdict, message) = in_order(status, &picture.statuses[first], counts, goes_on);
            checks.push(check(verdict, "order", &wave.name, message));
        }
    }
    checks
}

fn is_through(wave: &WaveStatus) -> (CheckResult, String) {
    match (wave.phase, wave.duration) {
        (WavePhase::Ready, Some(took)) => (CheckResult::Pass, format!("is ready, after {}", age(took.as_duration()))),
        (WavePhase::Ready, None) => (CheckResult::Pass, "is ready".to_owned()),
        (WavePhase::Skipped, _) => (CheckResult::Excused, "was skipped".to_owned()),
        (phase, _) => {
            let why = match (wave.not_ready.first(), wave.waiting_for.as_slice()) {
                (Some(lack), _) => format!(": {}", lack.message),
                (None, []) => String::new(),
                (None, names) => format!(": {} {}", waiting_words(phase), names.join(", ")),
            };
            (CheckResult::Fail, format!("is {phase}, not Ready{why}"))
        }
    }
}

/// Whether a wave that has started did so after one that it depends on was ready.
fn in_order(late: &WaveStatus, first: &WaveStatus, counts: bool, goes_on: bool) -> (CheckResult, String) {
    let (late_name, first_name) = (&late.name, &first.name);
    let started = late.begun_at.or(late.started_at).unwrap_or_default();
    if let Some(ready) = first.ready_at.filter(|ready| *ready <= started) {
        let gap = match Span::between(ready, started) {
            gap if gap < Span::from_secs(1) => "right".to_owned(),
            gap => age(gap.as_duration()),
        };
        return (CheckResult::Pass, format!("{late_name} started {gap} after {first_name} was ready"));
    }
    let before = match first.ready_at {
        Some(ready) => {
            let gap = Span::between(started, ready);
            // Within a second, milliseconds tell the order.
            let gap = if gap < Span::from_secs(1) { gap.to_string() } else { age(gap.as_duration()) };
            format!("{late_name} started {gap} before {first_name} was ready")
        }
        None => format!("{late_name} started, and {first_name} is {}", first.phase),
    };
    // One that became unready later starts again, and when it was ready before is no longer known.
    let started_since = first.rolled_out && first.started_at.is_some_and(|again| again > started);
    let excuse = if late.forced {
        "it was forced"
    } else if first.phase == WavePhase::Skipped {
        "that was skipped"
    } else if goes_on {
        "that may fail (onFailure: Continue)"
    } else if !counts {
        "that counts in the first rollout only (gate: FirstRollout)"
    } else if late.attempts > 0 {
        "it was tried again, whatever it depends on"
    } else if started_since {
        "that has started since, and may have been ready before"
    } else {
        return (CheckResult::Fail, before);
    };
    (CheckResult::Excused, format!("{before}: {excuse}"))
}

/// Runs every probe of a plan once, from this machine.
async fn probed(plan: &WavePlan) -> Vec<Check> {
    let all = plan.spec.waves.iter().flat_map(|wave| wave.probes.iter().map(move |probe| (wave, probe)));
    let asked = all.map(|(wave, probe)| async move {
        let address = probes::address(probe);
        let (verdict, message) = match probes::ask(probe).await {
            Ok(()) => (CheckResult::Pass, format!("{}: {address} answers", wave.name)),
            Err(why) => (CheckResult::Fail, format!("{}: {address}: {why}", wave.name)),
        };
        Check { verdict, kind: "probe", wave: wave.name.clone(), message }
    });
    join_all(asked).await
}
