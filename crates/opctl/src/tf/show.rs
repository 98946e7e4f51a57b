//! `opctl tf show`.

use std::process::ExitCode;

use clap::Args;
use kube::ResourceExt;
use serde::Serialize;
use terraform_runner_operator::api::v1alpha1::{
    Diagnostic, Outcome, Run, Severity, StageTimes, TerraformWorkspace, TerraformWorkspaceStatus,
};

use super::Which;
use super::plan::{PlanState, counts, plan_state};
use super::workspaces::{View, Workspaces, current, message, phase_words, resources};
use crate::output::{self, Format, Output, Paint, age, table};
use crate::phrases::{ago, count, printable, since, size};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn show(workspaces: &Workspaces, flags: &Flags) -> anyhow::Result<ExitCode> {
    let workspace = workspaces.get(&flags.which.name).await?;
    match flags.output.output {
        Format::Json => output::print_json(&Whole::of(&workspace))?,
        Format::Text => output::print_lines(&page(&workspace, &workspaces.view()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A workspace with its status, as JSON.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    #[serde(flatten)]
    status: Option<&'a TerraformWorkspaceStatus>,
}

impl<'a> Whole<'a> {
    fn of(workspace: &'a TerraformWorkspace) -> Self {
        Self {
            namespace: workspace.namespace(),
            name: workspace.name_any(),
            generation: workspace.metadata.generation,
            status: workspace.status.as_ref(),
        }
    }
}

/// A workspace, as people read it.
pub(super) fn page(workspace: &TerraformWorkspace, view: &View) -> Vec<String> {
    let (name, paint) = (paint_name(workspace, view), view.paint);
    let Some(status) = &workspace.status else {
        return vec![format!("{name}   {}", paint.odd("Unknown")), message(workspace)];
    };
    let mut lines = vec![format!("{name}   {}", phase_words(status.phase, paint)), message(workspace)];
    if current(workspace).is_none() {
        lines.push(paint.odd("The spec has changed, and the operator has not reconciled the change yet."));
    }
    lines.push(String::new());
    for Fact { title, words, below } in facts(workspace, status, view) {
        lines.push(format!("{}{words}", paint.faint(format!("{title:<10}"))));
        lines.extend(below.into_iter().map(|line| format!("{:10}  {line}", "")));
    }
    for diagnostic in &status.diagnostics {
        lines.extend(diagnostic_lines(diagnostic, paint));
    }
    if !status.history.is_empty() {
        lines.push(String::new());
        lines.extend(history(status, view));
    }
    lines
}

fn paint_name(workspace: &TerraformWorkspace, view: &View) -> String {
    view.paint.strong(workspace.name_any())
}

/// Something that is known of a workspace: a line, and what belongs below it.
struct Fact {
    title: &'static str,
    words: String,
    below: Vec<String>,
}

fn facts(workspace: &TerraformWorkspace, status: &TerraformWorkspaceStatus, view: &View) -> Vec<Fact> {
    let fact = |title, words: String| Fact { title, words, below: Vec::new() };
    let (now, paint) = (view.now, view.paint);
    let mut all = Vec::new();
    if let Some(run) = &status.run {
        all.push(fact("Run", run_words(run, view)));
    }
    if let Some(applied) = &status.last_applied {
        all.push(fact("Applied", format!("{}, state serial {}", ago(applied.time, now), applied.serial)));
    }
    all.extend(plan_fact(workspace, status, view));
    if let Some(drift) = &status.drift {
        let summary = if drift.count > 0 { paint.odd(&drift.summary) } else { drift.summary.clone() };
        let rows: Vec<Vec<String>> =
            drift.resources.iter().map(|one| vec![printable(&one.address), one.action.clone()]).collect();
        let words = format!("{summary}, compared {}", ago(drift.checked_at, now));
        let mut below: Vec<String> = table(&["", ""], &rows).into_iter().skip(1).collect();
        let named = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        if drift.count > named && named > 0 {
            below.push(format!("and {} more", drift.count - named));
        }
        all.push(Fact { title: "Drift", words, below });
    }
    if !status.failed_checks.is_empty() {
        let number = i64::try_from(status.failed_checks.len()).unwrap_or(i64::MAX);
        let told = status.failed_checks.iter().map(|check| {
            let place = check.at.as_deref().map(|at| format!("{at}: ")).unwrap_or_default();
            printable(&format!("{place}{}", check.detail.as_deref().unwrap_or(&check.summary)))
        });
        let words = paint.odd(format!("{} of the module failed", count(number, "check")));
        all.push(Fact { title: "Checks", words, below: told.collect() });
    }
    if let Some(state) = &status.state {
        let (number, bytes) = (resources(state.resources), size(state.bytes));
        all.push(fact("State", format!("serial {}, {number}, {bytes}, in Secret {}", state.serial, state.secret)));
    }
    if !status.outputs.is_empty() {
        let secret = status.outputs_secret.as_ref().map(|name| format!(", in Secret {name}")).unwrap_or_default();
        let number = i64::try_from(status.outputs.len()).unwrap_or(i64::MAX);
        let rows: Vec<Vec<String>> = status
            .outputs
            .iter()
            .map(|output| {
                let mark = if output.sensitive { paint.faint("sensitive") } else { String::new() };
                vec![output.name.clone(), mark]
            })
            .collect();
        let below = table(&["", ""], &rows).into_iter().skip(1).collect();
        all.push(Fact { title: "Outputs", words: format!("{}{secret}", count(number, "output")), below });
    }
    if let Some(lock) = &status.lock {
        let long = lock.since.map(|at| format!(" for {}", since(at, now))).unwrap_or_default();
        let remedy = format!("release it: opctl tf unlock {}{}", workspace.name_any(), view.hint);
        let words = format!("{} has held the lock of the state{long}", paint.odd(printable(&lock.holder)));
        all.push(Fact { title: "Lock", words, below: vec![remedy] });
    }
    if let Some(at) = status.retry_at {
        let when = if at > now { format!("in {}", since(now, at)) } else { "now".to_owned() };
        let failures = count(status.failures.into(), "failure");
        all.push(fact("Again", format!("{when}, after {failures}")));
    }
    all
}

fn plan_fact(workspace: &TerraformWorkspace, status: &TerraformWorkspaceStatus, view: &View) -> Option<Fact> {
    let plan = status.plan.as_ref()?;
    let (name, paint, hint) = (workspace.name_any(), view.paint, &view.hint);
    let state = plan_state(workspace, plan);
    let made = plan.made_at.map(|at| format!(", made {}", ago(at, view.now))).unwrap_or_default();
    let counts = counts([plan.add, plan.change, plan.destroy], [plan.import, plan.moved, plan.forget], paint);
    let words = format!("{}, {counts}{made}: {}", plan.id, state.words(paint));
    let below = match state {
        PlanState::Waits => vec![
            format!("read it      opctl tf plan show {name}{hint}"),
            format!("approve it   opctl tf approve {name} --plan {}{hint}", plan.id),
            format!("discard it   opctl tf discard {name} --plan {}{hint}", plan.id),
        ],
        PlanState::Discarded => vec![format!("make a new one   opctl tf replan {name}{hint}")],
        _ => Vec::new(),
    };
    Some(Fact { title: "Plan", words, below })
}

fn run_words(run: &Run, view: &View) -> String {
    let what = match &run.plan {
        Some(plan) => format!("{} of plan {plan}", run.action.word()),
        None => run.action.word().to_owned(),
    };
    let stands = match (run.outcome, run.finished_at) {
        (Some(outcome), Some(at)) => format!("{}, {}", outcome_words(outcome, view.paint), ago(at, view.now)),
        _ => view.paint.busy(format!("under way for {}", since(run.started_at, view.now))),
    };
    format!("{}, {what}, {stands}, Job {}", run.number, run.job)
}

/// How a run ended, in its colour.
pub(super) fn outcome_words(outcome: Outcome, paint: Paint) -> String {
    let word = format!("{outcome:?}");
    if outcome.is_good() { paint.good(word) } else { paint.bad(word) }
}

fn diagnostic_lines(diagnostic: &Diagnostic, paint: Paint) -> Vec<String> {
    let sign = match diagnostic.severity {
        Severity::Error => paint.bad("✘"),
        Severity::Warning => paint.odd("!"),
    };
    let place = [&diagnostic.field, &diagnostic.at, &diagnostic.address];
    let place: Vec<&str> = place.into_iter().flatten().map(String::as_str).collect();
    let place = if place.is_empty() { String::new() } else { format!("{}: ", printable(&place.join(", "))) };
    let detail = diagnostic.detail.as_deref().map(printable).unwrap_or_default();
    let first = format!("{sign} {}{}", paint.strong(place), printable(&diagnostic.summary));
    let detail = detail.lines().filter(|line| !line.trim().is_empty()).map(|line| format!("    {line}"));
    [String::new(), first].into_iter().chain(detail.collect::<Vec<_>>()).collect()
}

/// How long the stages in the pod took: `init 58ms, plan 210ms, apply 1s`.
fn stages(times: &StageTimes) -> String {
    let StageTimes { init, plan, apply, outputs } = times;
    let all = [("init", init), ("plan", plan), ("apply", apply), ("outputs", outputs)];
    let all: Vec<String> = all.into_iter().filter_map(|(stage, took)| Some(format!("{stage} {}", (*took)?))).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

fn history(status: &TerraformWorkspaceStatus, view: &View) -> Vec<String> {
    let row = |run: &terraform_runner_operator::api::v1alpha1::RunRecord| {
        vec![
            run.number.to_string(),
            run.action.word().to_owned(),
            outcome_words(run.outcome, view.paint),
            if run.summary.is_empty() { "-".to_owned() } else { run.summary.clone() },
            ago(run.started_at, view.now),
            age(run.duration.as_duration()),
            stages(&run.stages),
        ]
    };
    let rows: Vec<Vec<String>> = status.history.iter().map(row).collect();
    let mut lines = table(&["RUN", "ACTION", "OUTCOME", "PLAN", "STARTED", "TOOK", "OF WHICH"], &rows);
    if let Some(header) = lines.first_mut() {
        *header = view.paint.faint(&*header);
    }
    lines
}
