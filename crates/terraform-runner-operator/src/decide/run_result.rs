//! The result of a run that is over.

use jiff::Timestamp;
use kube::ResourceExt;
use opcore::conditions::shortened;
use opcore::duration::Span;
use opcore::history;
use opcore::operator::Note;

use super::teardown;
use crate::api::v1alpha1::{
    Action, Applied, Diagnostic, DriftAction, DriftStatus, Outcome, PlanStatus, Run, RunRecord, Severity, StageTimes,
    StateStatus, TerraformWorkspace, TerraformWorkspaceStatus,
};
use crate::observe::{JobEnd, Observed, ObservedPod};
use crate::render;
use crate::run::report::{PlanReport, Report, Stage};

/// How many past runs are remembered.
const REMEMBERED: usize = 10;
/// The first pause before a failed run is retried; it doubles each time.
const RETRY_AFTER: Span = Span::from_secs(10);
const LONGEST_RETRY: Span = Span::from_secs(30 * 60);
/// How many differing resources a status names.
const NAMED: usize = 10;

/// Records the result of the active run, if it is over. Returns the Events to emit in addition to the status.
pub(super) fn take_in(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    status: &mut TerraformWorkspaceStatus,
    now: Timestamp,
) -> Vec<Note> {
    over(workspace, observed, status, now).unwrap_or_default()
}

fn over(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    status: &mut TerraformWorkspaceStatus,
    now: Timestamp,
) -> Option<Vec<Note>> {
    let run = status.run.as_mut().filter(|run| !run.is_over())?;
    let job = observed.job(&run.job);
    if let Some(job) = job {
        run.job_uid = Some(job.target.uid.clone());
    }
    if let Some(report) = observed.report.as_ref().filter(|report| is_about(report, run)) {
        let run = run.clone();
        return Some(reported(workspace, run, report, observed, status, now));
    }
    if job.is_none() && observed.pod != ObservedPod::None {
        // Its Job is gone, and its pod is terminating: what the pod still does cannot be known before it is gone.
        run.given_up &=
            matches!(observed.pod, ObservedPod::Stuck(_) | ObservedPod::Starting { .. } | ObservedPod::NeverRan(_));
        return None;
    }
    let names = render::names(workspace);
    let unwanted = observed.refused.is_some()
        || workspace.metadata.deletion_timestamp.is_some() && teardown::is_unwanted(workspace, run.action);
    if job.is_none() && run.job_uid.is_none() && unwanted {
        let run = run.clone();
        never_made(run, status, now);
        return None;
    }
    // A state that was written since shows that its pod did start.
    if job.is_none() && run.given_up && (run.previous_inputs.is_some() || !observed.has_state(&names)) {
        let run = run.clone();
        let is_wanted =
            workspace.metadata.deletion_timestamp.is_none() && !super::is_outdated(workspace, observed, status);
        if is_wanted {
            return started_late(workspace, run, status, now).map(|note| vec![note]);
        }
        let why = "Its pod did not start before the run was superseded, so its Job was deleted".to_owned();
        if teardown::cannot_start(workspace, &run, now) {
            not_begun(run, why, Outcome::Failed, status, now);
        } else {
            not_begun(run, why, Outcome::Interrupted, status, now);
            // The failure must not count against the next run.
            (status.failures, status.retry_at) = (0, None);
        }
        return None;
    }
    if let (Some(_), ObservedPod::NeverRan(why)) = (job.and_then(|job| job.ended.as_ref()), &observed.pod)
        && (run.previous_inputs.is_some() || !observed.has_state(&names))
    {
        let (run, why) = (run.clone(), format!("Terraform did not run, because {why}"));
        if run.action == Action::Check {
            finish(run, Outcome::Failed, StageTimes::default(), status, now);
            return Some(vec![check_failed(&format!("{why}."))]);
        }
        not_begun(run, why, Outcome::Failed, status, now);
        return None;
    }
    let why = match job {
        Some(job) => job.ended.as_ref().map(|end| match end {
            JobEnd::Failed(failure) => format!("Its Job failed without a report ({failure})"),
            JobEnd::Complete => "Its Job ended without a report".to_owned(),
        }),
        None if run.job_uid.is_some() => Some("Its Job was deleted while it ran".to_owned()),
        None if observed.kept_inputs(&names, &run.inputs).is_none() => {
            Some("The Secrets with its inputs were deleted before it started".to_owned())
        }
        None => None,
    }?;
    let run = run.clone();
    if run.action == Action::Check {
        // What is applied stays applied.
        finish(run, Outcome::Lost, StageTimes::default(), status, now);
        return Some(vec![check_failed(&format!("{why}."))]);
    }
    spend(&run, status);
    let detail = "Its pod may have been killed, or its node may have failed. The state that it saved is kept.";
    status.diagnostics = vec![Diagnostic { summary: why, detail: Some(detail.to_owned()), ..Diagnostic::default() }];
    if observed.has_state(&names) {
        keep_adopted(&run, status);
    }
    let journal = observed.journal.as_ref().filter(|journal| journal.run == run.job);
    let begun: Vec<&str> = journal.iter().flat_map(|journal| journal.begun.values()).map(String::as_str).collect();
    finish(run, Outcome::Lost, StageTimes::default(), status, now);
    not_recorded(workspace, &begun).map(|note| vec![note])
}

/// Whether a report is about this run. After a status was lost, runs are counted from one again: a run of the same name may
/// have had other inputs.
fn is_about(report: &Report, run: &Run) -> bool {
    report.run == run.job && report.inputs == run.inputs
}

/// A run was no longer wanted before its Job was created: only its number is remembered.
pub(super) fn never_made(mut run: Run, status: &mut TerraformWorkspaceStatus, now: Timestamp) {
    if run.action == Action::Apply {
        take_back(&run, status);
    }
    (run.finished_at, run.outcome) = (Some(now), Some(Outcome::Interrupted));
    // If the run was requested, the request is still open.
    status.handled.replan = None;
    if run.upgrade {
        status.handled.upgrade = None;
    }
    status.run = Some(run);
}

/// A run ended before it started anything.
pub(super) fn not_begun(
    run: Run,
    why: String,
    outcome: Outcome,
    status: &mut TerraformWorkspaceStatus,
    now: Timestamp,
) {
    if run.action == Action::Apply {
        take_back(&run, status);
    }
    status.diagnostics = vec![Diagnostic { summary: why, ..Diagnostic::default() }];
    finish(run, outcome, StageTimes::default(), status, now);
}

/// The pod of a run did not start in time: other workspaces get the turn, and the run is retried like any failed one.
fn started_late(
    workspace: &TerraformWorkspace,
    run: Run,
    status: &mut TerraformWorkspaceStatus,
    now: Timestamp,
) -> Option<Note> {
    let why = "Its pod did not start in time, so other workspaces got its turn";
    let why = match super::next_run::why_not_started(workspace) {
        Some(trouble) => format!("{why}. {}", trouble.trim_end_matches('.')),
        None => why.to_owned(),
    };
    if run.action == Action::Check {
        finish(run, Outcome::Failed, StageTimes::default(), status, now);
        return Some(check_failed(&format!("{why}.")));
    }
    not_begun(run, why, Outcome::Failed, status, now);
    None
}

/// An adopted state describes real resources, whatever the result of the run: a destroy works from its inputs.
fn keep_adopted(run: &Run, status: &mut TerraformWorkspaceStatus) {
    if status.begun_inputs.is_none() && run.adopts.is_some() {
        status.begun_inputs = Some(run.inputs.clone());
        status.begun_backend.clone_from(&run.backend);
    }
}

/// Whether there is nothing, as far as a run could determine.
fn has_nothing(run: &Run, report: &Report) -> bool {
    let managed = run.backend.as_deref().is_none_or(|backend| backend == render::MANAGED);
    if managed { report.state.is_none() } else { report.empty }
}

/// No apply began: a destroy works from the same inputs as before, and finds the state in the same place.
fn take_back(run: &Run, status: &mut TerraformWorkspaceStatus) {
    status.begun_inputs.clone_from(&run.previous_inputs);
    status.begun_backend.clone_from(&run.previous_backend);
}

/// An approved plan is used up, however its run ended.
fn spend(run: &Run, status: &mut TerraformWorkspaceStatus) {
    if let Some(plan) = status.plan.as_mut().filter(|_| run.plan.is_some()) {
        plan.needs_approval = false;
    }
}

fn reported(
    workspace: &TerraformWorkspace,
    run: Run,
    report: &Report,
    observed: &Observed,
    status: &mut TerraformWorkspaceStatus,
    now: Timestamp,
) -> Vec<Note> {
    let unverified = run.action == Action::Destroy && report.outcome == Outcome::Destroyed && !report.empty;
    let outcome = if unverified { Outcome::Failed } else { report.outcome };
    if run.action != Action::Check || !outcome.is_good() {
        status.diagnostics.clone_from(&report.diagnostics);
    }
    if unverified {
        let summary =
            "Terraform completed the destroy, but it could not be verified that no resource is left".to_owned();
        status.diagnostics.insert(0, Diagnostic { summary, ..Diagnostic::default() });
    }
    if let Some(state) = &report.state {
        status.state = Some(StateStatus {
            secret: render::names(workspace).state(),
            serial: state.serial,
            resources: state.resources,
            bytes: state.bytes,
        });
    }
    let serial = report.state.as_ref().map_or(0, |state| state.serial);
    match (run.action, outcome) {
        (_, Outcome::Applied | Outcome::Unchanged) if run.action != Action::Destroy => {
            status.last_applied = Some(Applied { hash: run.inputs.clone(), serial, time: now });
            status.plan =
                report.plan.as_ref().map(|_| plan(&run, report, now, false)).or(status.plan.take().map(|mut plan| {
                    plan.needs_approval = false;
                    plan
                }));
            status.drift = (workspace.spec.drift.action != DriftAction::Off).then(|| drift(report, false, now));
            if let Some(outputs) = &observed.outputs {
                status.outputs = render::statuses(workspace, outputs);
            }
        }
        (_, Outcome::Planned) => status.plan = Some(plan(&run, report, now, true)),
        (_, Outcome::Checked) => status.drift = Some(drift(report, true, now)),
        _ => {
            spend(&run, status);
        }
    }
    match (run.action, outcome) {
        (Action::Destroy | Action::Check, _) => {}
        // A module without resources never has a state, and needs no destroy.
        (_, Outcome::Unchanged) if run.previous_inputs.is_none() && has_nothing(&run, report) => {
            take_back(&run, status);
        }
        // What exists matches these inputs, even if they changed nothing.
        (_, Outcome::Applied | Outcome::Unchanged) => {
            status.begun_inputs = Some(run.inputs.clone());
            status.begun_backend.clone_from(&run.backend);
        }
        (Action::Apply, outcome) if outcome == Outcome::Planned || report.stage < Stage::Apply => {
            take_back(&run, status);
        }
        _ => {}
    }
    if report.state.as_ref().is_some_and(|state| state.resources != 0) {
        keep_adopted(&run, status);
    }
    let notes = note(workspace, &run, report, status).into_iter().chain(checks(report, outcome, status)).collect();
    // A destroy is retried all the same: its inputs cannot be changed. So is a run with newer providers: without them
    // it may not fail.
    let repeated = run.action == Action::Destroy || run.upgrade;
    let lasting = report.lasting && outcome == Outcome::Failed && !repeated;
    let run = Run { lasting, ..run };
    finish(run, outcome, report.stages(), status, now);
    notes
}

/// Records failures of `check` blocks. New failures get an Event.
fn checks(report: &Report, outcome: Outcome, status: &mut TerraformWorkspaceStatus) -> Option<Note> {
    if !matches!(outcome, Outcome::Applied | Outcome::Unchanged | Outcome::Checked) {
        return None;
    }
    let failed = report.diagnostics.iter().filter(|said| said.is_failed_check()).cloned().collect();
    let before = std::mem::replace(&mut status.failed_checks, failed);
    let new: Vec<&Diagnostic> = status.failed_checks.iter().filter(|failed| !before.contains(failed)).collect();
    let words: Vec<String> = new.into_iter().map(super::next_run::words).collect();
    (!words.is_empty()).then(|| Note::warning("CheckFailed", shortened(&words.join(" "), 900)))
}

fn finish(mut run: Run, outcome: Outcome, stages: StageTimes, status: &mut TerraformWorkspaceStatus, now: Timestamp) {
    run.finished_at = Some(now);
    run.outcome = Some(outcome);
    let summary = status.plan.as_ref().filter(|_| outcome.is_good() && run.action != Action::Check);
    let record = RunRecord {
        number: run.number,
        action: run.action,
        outcome,
        summary: summary.map(|plan| plan.summary.clone()).unwrap_or_default(),
        started_at: run.started_at,
        duration: Span::between(run.started_at, now).rounded(),
        stages,
    };
    if outcome.is_good() {
        if run.action != Action::Check {
            status.failures = 0;
            status.retry_at = None;
        }
    } else if run.action == Action::Check {
        // It is not known whether anything differs; the next comparison is due at its usual time.
        status.drift = Some(DriftStatus {
            checked_at: now,
            count: 0,
            summary: DriftStatus::UNKNOWN.to_owned(),
            resources: Vec::new(),
        });
    } else {
        let pause = RETRY_AFTER.scaled(2f64.powi(status.failures.min(16))).min(LONGEST_RETRY);
        status.failures = status.failures.saturating_add(1);
        // A plan that no longer fits is made again at once.
        let at = if outcome == Outcome::Stale { now } else { pause.after(now) };
        status.retry_at = Some(at).filter(|_| !run.lasting);
    }
    status.run = Some(run);
    history::remember(&mut status.history, record, REMEMBERED);
}

fn plan(run: &Run, report: &Report, now: Timestamp, needs_approval: bool) -> PlanStatus {
    let plan = report.plan.clone().unwrap_or_default();
    let summary = summary(&plan);
    PlanStatus {
        id: plan.id,
        inputs: run.inputs.clone(),
        serial: plan.serial,
        add: plan.add,
        change: plan.change,
        destroy: plan.destroy,
        import: plan.import,
        moved: plan.moved,
        forget: plan.forget,
        summary,
        approval_reason: plan.approval_reason,
        needs_approval,
        discarded: false,
        made_at: Some(now),
    }
}

/// The counts of a plan as a short text.
fn summary(plan: &PlanReport) -> String {
    let counts = format!("+{} ~{} -{}", plan.add, plan.change, plan.destroy);
    let others = PlanStatus::others(plan.import, plan.moved, plan.forget);
    std::iter::once(counts).chain(others).collect::<Vec<_>>().join(", ")
}

fn drift(report: &Report, compared: bool, now: Timestamp) -> DriftStatus {
    let (count, resources) = if compared {
        (report.drift.count, report.drift.resources.iter().take(NAMED).cloned().collect())
    } else {
        (0, Vec::new())
    };
    let summary = match count {
        0 => "None".to_owned(),
        1 => "1 resource".to_owned(),
        count => format!("{count} resources"),
    };
    DriftStatus { checked_at: now, count, summary, resources }
}

/// An Event about what Terraform had begun to create, and may have created, when it was killed: a person should check
/// it.
fn not_recorded(workspace: &TerraformWorkspace, begun: &[&str]) -> Option<Note> {
    let them = if begun.len() == 1 { "it" } else { "them" };
    let message = format!(
        "Terraform was killed while it was creating {}, or before it saved the result in the state. Check by hand, because {} may create {them} again.",
        begun.join(", "),
        workspace.name_any(),
    );
    (!begun.is_empty()).then(|| Note::warning("ResourcesNotRecorded", shortened(&message, 900)))
}

/// It is not known whether anything differs, for this reason.
fn check_failed(why: &str) -> Note {
    Note::warning("DriftCheckFailed", format!("The infrastructure could not be compared with the state. {why}"))
}

/// An Event that is worth emitting although `Ready` may not change.
fn note(workspace: &TerraformWorkspace, run: &Run, report: &Report, status: &TerraformWorkspaceStatus) -> Option<Note> {
    let unrecorded: Vec<&str> = report.unrecorded.iter().map(String::as_str).collect();
    if let Some(note) = not_recorded(workspace, &unrecorded) {
        return Some(note);
    }
    match (run.action, report.outcome) {
        (Action::Check, Outcome::Checked) if report.drift.count > 0 => {
            let resources = report.drift.resources.iter().take(5);
            let named: Vec<String> =
                resources.map(|resource| format!("{} ({})", resource.address, resource.action)).collect();
            let summary = status.drift.as_ref().map(|drift| drift.summary.as_str()).unwrap_or_default();
            let message = format!("The infrastructure differs from the state in {summary}: {}.", named.join(", "));
            Some(Note::warning("DriftDetected", message))
        }
        (Action::Check, outcome) if !outcome.is_good() => {
            let first = report.diagnostics.iter().find(|diagnostic| diagnostic.severity == Severity::Error);
            Some(check_failed(&first.map(super::next_run::words).unwrap_or_default()))
        }
        (Action::Apply, Outcome::Applied) => {
            let summary = status.plan.as_ref().map(|plan| plan.summary.as_str()).unwrap_or_default();
            let planned = report.plan.iter().flat_map(|plan| &plan.resources);
            let forgotten = planned.filter(|resource| resource.action == "forget");
            let forgotten: Vec<&str> = forgotten.map(|resource| resource.address.as_str()).take(5).collect();
            let still = if forgotten.is_empty() {
                String::new()
            } else {
                format!(" Removed from the state, but not destroyed: {}.", forgotten.join(", "))
            };
            Some(Note::normal("Applied", format!("Job {} applied {summary}.{still}", run.job)))
        }
        _ => None,
    }
}
