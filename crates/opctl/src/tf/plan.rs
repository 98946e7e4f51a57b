//! `opctl tf plan show`, and the state of a plan.

use std::fmt;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use terraform_runner_operator::api::v1alpha1::{
    APPROVE_ANNOTATION, Action, ChangedResource, Outcome, PlanStatus, TerraformWorkspace,
};
use terraform_runner_operator::store::plan::{self, KeptPlan};
use terraform_runner_operator::store::state;

use super::Which;
use super::workspaces::{View, Workspaces, current, message, under_way};
use crate::output::{self, Format, Output, Paint};
use crate::phrases::{ago, printable};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn show(workspaces: &Workspaces, flags: &Flags) -> anyhow::Result<ExitCode> {
    let workspace = workspaces.get(&flags.which.name).await?;
    let (store, view) = (workspaces.store(&workspace), workspaces.view());
    let remedy = format!("ask for a new plan, see opctl tf replan {}{}", flags.which.name, view.hint);
    let kept = workspaces.kept(plan::describe(&store), &remedy).await?;
    let text = workspaces.kept(plan::text(&store), &remedy).await?;
    let (Some(kept), Some(text)) = (kept, text) else { bail!("{}", nothing_kept(&workspace)) };
    let serial = workspaces.kept(state::summary(&store), "restore it").await?.map(|state| state.serial);
    let state = state_of(&workspace, &kept.report.id, &kept.inputs, kept.report.serial, serial);
    match flags.output.output {
        Format::Json => output::print_json(&Shown::of(&workspace, &kept, &state, &text))?,
        Format::Text => {
            let mut lines = head(&workspace, &kept, &state, &view);
            lines.push(String::new());
            lines.extend(coloured(&printable(&text), view.paint));
            output::print_lines(&lines)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Why there is nothing to show.
pub(super) fn nothing_kept(workspace: &TerraformWorkspace) -> String {
    let name = workspace.name_any();
    let Some(plan) = workspace.status.as_ref().and_then(|status| status.plan.as_ref()) else {
        return format!("TerraformWorkspace {name} has no plan yet: {}", message(workspace));
    };
    let (id, summary) = (&plan.id, &plan.summary);
    if plan.discarded {
        return format!(
            "Plan {id} ({summary}) of TerraformWorkspace {name} was discarded, and is not kept any more: ask for a new one \
             with opctl tf replan {name}."
        );
    }
    format!(
        "Of plan {id} of TerraformWorkspace {name} only the counts are known ({summary}): a plan is kept only while it waits \
         for a person, see spec.approval."
    )
}

/// The state of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlanState {
    /// It waits for a person.
    Waits,
    /// It was approved, and its run has not begun.
    Approved,
    /// A run applies it.
    Applies { job: String },
    /// It was applied.
    Applied,
    /// A run that was to apply it ended like this; a plan is used once.
    Spent(Outcome),
    /// A person discarded it.
    Discarded,
    /// It does not count any more, for this reason.
    Void(String),
}

impl fmt::Display for PlanState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waits => f.write_str("waits for approval"),
            Self::Approved => f.write_str("approved"),
            Self::Applies { job } => write!(f, "approved, Job {job} applies it"),
            Self::Applied => f.write_str("was applied"),
            Self::Spent(outcome) => write!(f, "spent: the run that was to apply it ended as {outcome:?}"),
            Self::Discarded => f.write_str("discarded"),
            Self::Void(why) => write!(f, "void: {why}"),
        }
    }
}

impl PlanState {
    /// In one word, for programs.
    fn word(&self) -> &'static str {
        match self {
            Self::Waits => "Waits",
            Self::Approved => "Approved",
            Self::Applies { .. } => "Applies",
            Self::Applied => "Applied",
            Self::Spent(_) => "Spent",
            Self::Discarded => "Discarded",
            Self::Void(_) => "Void",
        }
    }

    pub(super) fn words(&self, paint: Paint) -> String {
        match self {
            Self::Waits => paint.odd(self),
            Self::Approved | Self::Applies { .. } => paint.busy(self),
            Self::Applied => paint.good(self),
            Self::Spent(_) | Self::Discarded | Self::Void(_) => paint.bad(self),
        }
    }
}

/// Where a plan stands that was made from these inputs and this state. `serial` is the one of the state now, if that is known.
pub(super) fn state_of(
    workspace: &TerraformWorkspace,
    id: &str,
    inputs: &str,
    made_from: i64,
    serial: Option<i64>,
) -> PlanState {
    let void = |why: String| PlanState::Void(why);
    let Some(status) = &workspace.status else {
        return void("the operator has not reconciled the workspace".to_owned());
    };
    let run = status.run.as_ref();
    if let Some(run) = run.filter(|run| run.plan.as_deref() == Some(id)) {
        return match run.outcome {
            None => PlanState::Applies { job: run.job.clone() },
            Some(outcome) if outcome.is_good() => PlanState::Applied,
            Some(outcome) => PlanState::Spent(outcome),
        };
    }
    match status.plan.as_ref() {
        Some(plan) if plan.id != id => return void(format!("plan {} came after it", plan.id)),
        None => return void("the operator does not know of it".to_owned()),
        Some(plan) if plan.discarded => return PlanState::Discarded,
        Some(plan) if !plan.needs_approval => {
            let applied = status.last_applied.as_ref().is_some_and(|applied| applied.hash == inputs);
            return if applied { PlanState::Applied } else { PlanState::Spent(Outcome::Failed) };
        }
        Some(plan) if !plan.waits_under(workspace.spec.approval) => {
            return void("spec.approval does not ask for a person any more".to_owned());
        }
        Some(_) => {}
    }
    if workspace.metadata.deletion_timestamp.is_some() {
        return void("the workspace is being deleted".to_owned());
    }
    if current(workspace).is_none() {
        return void("the spec has changed, and the operator has not reconciled the change yet".to_owned());
    }
    // A comparison with reality leaves a plan alone.
    match under_way(workspace).filter(|run| run.action != Action::Check) {
        Some(run) if run.inputs != inputs => return void(format!("the inputs changed, Job {} plans anew", run.job)),
        Some(run) => return void(format!("Job {} plans anew", run.job)),
        None => {}
    }
    if let Some(serial) = serial.filter(|serial| *serial != made_from) {
        return void(format!("it is stale, the state has serial {serial} now"));
    }
    let approved = workspace.annotations().get(APPROVE_ANNOTATION).is_some_and(|approved| approved == id);
    if approved { PlanState::Approved } else { PlanState::Waits }
}

/// The same, for the plan in the status.
pub(super) fn plan_state(workspace: &TerraformWorkspace, plan: &PlanStatus) -> PlanState {
    let state = workspace.status.as_ref().and_then(|status| status.state.as_ref());
    state_of(workspace, &plan.id, &plan.inputs, plan.serial, state.map(|state| state.serial))
}

pub(super) fn head(workspace: &TerraformWorkspace, kept: &KeptPlan, state: &PlanState, view: &View) -> Vec<String> {
    let (name, report, paint) = (workspace.name_any(), &kept.report, view.paint);
    let counts =
        counts([report.add, report.change, report.destroy], [report.import, report.moved, report.forget], paint);
    let mut lines = vec![
        format!("Plan {} of TerraformWorkspace {name}   {}", paint.strong(&report.id), state.words(paint)),
        format!("{counts}, made {} by Job {} from state serial {}", ago(kept.time, view.now), kept.run, report.serial),
    ];
    match state {
        PlanState::Waits => {
            let what = format!("{name} --plan {}{}", report.id, view.hint);
            lines.push(format!("Approve it: opctl tf approve {what}"));
            lines.push(format!("Discard it: opctl tf discard {what}"));
        }
        PlanState::Discarded => lines.push(format!("Make a new one: opctl tf replan {name}{}", view.hint)),
        _ => {}
    }
    lines
}

/// The counts of a plan, in their colours.
pub(super) fn counts([add, change, destroy]: [i64; 3], [import, moved, forget]: [i64; 3], paint: Paint) -> String {
    let part = |sign: char, count: i64, colour: fn(Paint, String) -> String| {
        let text = format!("{sign}{count}");
        if count == 0 { text } else { colour(paint, text) }
    };
    let parts = [part('+', add, Paint::good), part('~', change, Paint::odd), part('-', destroy, Paint::bad)];
    // What is forgotten stays where it is, and nobody looks after it.
    let others = PlanStatus::others(import, moved, 0).into_iter().map(|text| paint.odd(text));
    let forgotten = PlanStatus::others(0, 0, forget).into_iter().map(|text| paint.bad(text));
    std::iter::once(parts.join(" ")).chain(others).chain(forgotten).collect::<Vec<_>>().join(", ")
}

/// The lines of a plan in the colours of what they do.
pub(super) fn coloured(text: &str, paint: Paint) -> Vec<String> {
    let line = |line: &str| {
        let words = line.trim_start();
        let sign = words.split(' ').next().unwrap_or_default();
        match sign {
            "+" => paint.good(line),
            "-" | "-/+" | "+/-" | "." | "./+" | "+/." => paint.bad(line),
            "~" => paint.odd(line),
            "<=" => paint.busy(line),
            "#" | "Plan:" => paint.strong(line),
            _ => line.to_owned(),
        }
    };
    text.trim_start_matches('\n').trim_end().lines().map(line).collect()
}

/// A plan, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    workspace: String,
    id: &'a str,
    #[serde(rename = "standing")]
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    add: i64,
    change: i64,
    destroy: i64,
    import: i64,
    #[serde(rename = "move")]
    moved: i64,
    forget: i64,
    resources: &'a [ChangedResource],
    serial: i64,
    run: &'a str,
    made_at: Timestamp,
    text: &'a str,
}

impl<'a> Shown<'a> {
    fn of(workspace: &TerraformWorkspace, kept: &'a KeptPlan, state: &'a PlanState, text: &'a str) -> Self {
        let why = if let PlanState::Void(why) = state { Some(why.as_str()) } else { None };
        let report = &kept.report;
        Self {
            workspace: workspace.name_any(),
            id: &report.id,
            state: state.word(),
            why,
            add: report.add,
            change: report.change,
            destroy: report.destroy,
            import: report.import,
            moved: report.moved,
            forget: report.forget,
            resources: &report.resources,
            serial: report.serial,
            run: &kept.run,
            made_at: kept.time,
            text,
        }
    }
}
