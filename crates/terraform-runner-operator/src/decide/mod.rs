//! Decisions, based only on the workspace, what was read, and the time.
//!
//! ```text
//!   what came of the run ─▶ what is wanted next ─▶ what stands in the way ─▶ a new run, published
//!        (ended)                 (want)              (lock, turn)               │
//!                                                                  the next pass makes its Job
//! ```
//!
//! A run is published before its Job is created, and its inputs are kept before it is published: after a crash between
//! any two writes, everything needed to continue exists.

mod cleanup;
mod next_run;
mod obstacles;
mod publish;
mod run_result;
mod teardown;

use jiff::Timestamp;
use opcore::act::{Refusal, RefusalReason};
use opcore::conditions::{Summary, whole_milliseconds};
use opcore::operator::Note;
use opcore::{Decision, Next, Write, Writes};

use crate::api::v1alpha1::{Action, Outcome, Run, TerraformWorkspace, TerraformWorkspaceStatus, WorkspacePhase};
use crate::observe::Observed;
use crate::render::{self, Settings};
use crate::run::names::Names;
use crate::slots::Class;
use next_run::{Assessment, NextRun, NextStep};
use obstacles::Obstacle;
pub use teardown::tear_down;

/// What a decision claims: a turn to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// No claim: nothing runs, and nothing is about to.
    #[default]
    None,
    /// A turn for a run that begins.
    Take(Class),
    /// The turn that the workspace has, for an active run.
    Keep(Class),
    /// The place in the queue that it got when no turn was free.
    Await,
}

impl Turn {
    /// The claim for a status to be published. `queued` means that a run would begin if a turn were free.
    fn of(workspace: &TerraformWorkspace, status: &TerraformWorkspaceStatus, queued: bool) -> Self {
        let published = workspace.status.as_ref().and_then(|status| status.run.as_ref()).map(|run| run.number);
        match status.run.as_ref().filter(|run| !run.is_over()) {
            _ if queued => Self::Await,
            Some(run) if published == Some(run.number) => Self::Keep(class(run.action)),
            Some(run) => Self::Take(class(run.action)),
            None => Self::None,
        }
    }
}

/// The class of a run.
fn class(action: Action) -> Class {
    if action == Action::Check { Class::Check } else { Class::Run }
}

/// Decides how to keep a workspace applied.
pub fn keep_applied(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    settings: &Settings,
    now: Timestamp,
) -> Decision<TerraformWorkspace, Turn> {
    let mut status = workspace.status.clone().unwrap_or_default();
    let notes: Vec<Note> = run_result::take_in(workspace, observed, &mut status, now);
    key_places(observed, &mut status);
    let has_ended = |status: Option<&TerraformWorkspaceStatus>| status?.run.as_ref().map(Run::is_over);
    let just_ended = has_ended(workspace.status.as_ref()) == Some(false) && has_ended(Some(&status)) == Some(true);
    next_run::heed(workspace, &mut status);
    next_run::forget(workspace, observed, &mut status);
    let mut writes = Writes::new();
    drop_unbegun(workspace, observed, &mut status, now);
    let mut queued = false;
    let mut assessment = match next_run::want(workspace, observed, &status, now) {
        NextStep::Nothing(assessment) => {
            writes = make_job(workspace, observed, &status, settings);
            let start_by = next_run::start_by(observed, &status, settings.start_within);
            let is_late = start_by.is_some_and(|at| at <= now);
            // A run that was given up may have started since.
            let given_up_before = status.run.as_ref().is_some_and(|run| run.given_up);
            if is_late || given_up_before || is_outdated(workspace, observed, &status) {
                writes.together(given_up(workspace, observed, &mut status, is_late, now));
            }
            let next = [assessment.next, start_by.filter(|_| !is_late)].into_iter().flatten().min();
            assessment.until(next)
        }
        // The result of a run is published before anything is written for the next one, because that write may fail.
        NextStep::Run(next_run) if just_ended => Assessment::next(&next_run),
        NextStep::Run(next_run) => {
            if let Some(obstacle) = obstacles::obstacle(workspace, observed, &next_run, now) {
                queued = obstacle.queued;
                stopped(obstacle, &mut status, &mut writes)
            } else {
                begin(workspace, observed, &next_run, &mut status, &mut writes, now);
                // The workspace that is being compared is ready.
                if next_run.action == Action::Check { next_run::ready(&status) } else { Assessment::running(&status) }
            }
        }
    };
    writes.together(cleanup::leftovers(workspace, observed, &status));
    let new_key = observed.key.as_ref().filter(|key| !key.is_kept);
    writes.together(new_key.and_then(|key| Write::apply(&render::key_secret(workspace, &key.value)).ok()));
    match cleanup::outputs(workspace, observed, &mut status) {
        // Last, so that a foreign Secret of that name does not prevent anything else.
        Ok(outputs) => {
            writes.together(outputs);
        }
        Err(why) if assessment.phase == WorkspacePhase::Ready => {
            let summary = Summary::stalled("OutputsTooLarge", why);
            assessment = Assessment::new(WorkspacePhase::Failed, summary).until(assessment.next);
        }
        Err(_) => {}
    }
    if let Some(diagnostic) = &assessment.diagnostic {
        status.diagnostics.insert(0, diagnostic.clone());
    }
    publish::describe(workspace, &assessment, &mut status, now);
    let (claims, next) = (Turn::of(workspace, &status, queued), assessment.next.map_or(Next::OnEvent, Next::At));
    Decision { writes, status, notes, next, claims, release: false }
}

/// Replaces records of the place of the state that were made without the key of the workspace. The place is the same: it is
/// only recorded in a way that reveals nothing about its settings.
fn key_places(observed: &Observed, status: &mut TerraformWorkspaceStatus) {
    let Ok(inputs) = &observed.inputs else { return };
    let of_run = status.run.iter_mut().flat_map(|run| [&mut run.backend, &mut run.previous_backend]);
    for place in of_run.chain([&mut status.begun_backend]).flatten() {
        if *place == inputs.unkeyed_backend {
            place.clone_from(&inputs.backend);
        }
    }
}

/// Keeps the inputs and records the run in the status. Its Job is created when that is published.
fn begin(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    next_run: &NextRun,
    status: &mut TerraformWorkspaceStatus,
    writes: &mut Writes,
    now: Timestamp,
) {
    let inputs = observed.inputs.as_ref().ok().filter(|inputs| inputs.hash == next_run.inputs);
    if let Some(inputs) = inputs
        && observed.kept_inputs(&render::names(workspace), &next_run.inputs).is_none()
    {
        let secrets = render::input_secrets(workspace, inputs);
        writes.together(secrets.iter().filter_map(|secret| Write::apply(secret).ok()));
    }
    // Long before the permissions are needed: the API server takes a moment to know them.
    let adopts = observed.adopted.as_ref().map(|adopted| adopted.secret.clone());
    writes.together(render::rights(workspace, places(workspace, observed), adopts.as_deref()));
    let last = status.run.as_ref();
    let number = last.map_or(1, |run| run.number.saturating_add(1));
    if next_run.action == Action::Destroy && last.is_none_or(|run| run.action != Action::Destroy) {
        // Earlier failures say nothing about how a destroy will end.
        status.failures = 0;
    }
    let asked = next_run::is_replan_requested(workspace, status);
    let anew = asked || next_run::repeats_a_request(status, &next_run.inputs);
    let upgrade = next_run.makes_a_plan() && next_run::upgrades(workspace, status, &next_run.inputs);
    let repeats = !asked && next_run::repeats_failure(status, &next_run.inputs);
    status.run = Some(Run {
        number,
        job: render::names(workspace).job(number),
        action: next_run.action,
        inputs: next_run.inputs.clone(),
        plan: next_run.plan.clone(),
        backend: inputs.map(|inputs| inputs.backend.clone()),
        adopts,
        anew,
        // An approved plan was made with the existing state, and Terraform compares the two.
        expects_state: status.last_applied.is_some()
            && status.begun_inputs.is_some()
            && next_run.plan.is_none()
            && !anew,
        upgrade,
        repeats,
        lasting: false,
        previous_inputs: status.begun_inputs.clone(),
        previous_backend: status.begun_backend.clone(),
        generation: workspace.metadata.generation,
        started_at: now,
        job_uid: None,
        given_up: false,
        finished_at: None,
        outcome: None,
    });
    if next_run.action == Action::Apply {
        status.begun_inputs = Some(next_run.inputs.clone());
        status.begun_backend = inputs.map(|inputs| inputs.backend.clone());
    }
    if let Some(plan) = status.plan.as_mut().filter(|_| next_run.makes_a_plan()) {
        // A new plan takes its place.
        plan.needs_approval = false;
    }
    (status.retry_at, status.lock) = (None, None);
    status.handled.replan = next_run::replan(workspace).map(str::to_owned);
    if next_run.makes_a_plan() {
        status.handled.upgrade = next_run::upgrade(workspace).map(str::to_owned);
    }
}

/// Whether the active run has a spec or inputs that are no longer wanted.
fn is_outdated(workspace: &TerraformWorkspace, observed: &Observed, status: &TerraformWorkspaceStatus) -> bool {
    status.run.as_ref().is_some_and(|run| {
        let other_inputs = observed.inputs.as_ref().is_ok_and(|inputs| inputs.hash != run.inputs);
        other_inputs || is_of_older_spec(workspace, run)
    })
}

/// Ends a run that has no Job yet and that is no longer wanted: another spec, or a person, may have ruled out what it
/// would do.
fn drop_unbegun(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    status: &mut TerraformWorkspaceStatus,
    now: Timestamp,
) {
    let unwanted = is_outdated(workspace, observed, status) || next_run::suspended(workspace).is_some();
    let unbegun = |run: &&Run| !run.is_over() && run.job_uid.is_none() && observed.job(&run.job).is_none();
    if let Some(run) = status.run.as_ref().filter(unbegun).filter(|_| unwanted).cloned() {
        run_result::never_made(run, status, now);
    }
}

fn is_of_older_spec(workspace: &TerraformWorkspace, run: &Run) -> bool {
    run.generation.is_some_and(|of| workspace.metadata.generation != Some(of))
}

/// Deletes the Job of a run whose pod has not started. That fact is published first, because it cannot be determined
/// afterwards.
fn given_up(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    status: &mut TerraformWorkspaceStatus,
    is_late: bool,
    now: Timestamp,
) -> Option<Write> {
    let run = status.run.as_mut().filter(|run| !run.is_over())?;
    let job = observed.job(&run.job).filter(|job| job.ended.is_none() && !job.deleting)?;
    let published = workspace.status.as_ref().and_then(|status| status.run.as_ref()).is_some_and(|run| run.given_up);
    run.given_up = is_late || next_run::does_not_start(&observed.pod, now);
    (published && run.given_up).then(|| cleanup::delete(job.target.clone()))
}

/// The Job of a published run was refused: the run is over before it began, and the next workspace gets the turn.
pub(crate) fn refused(status: &mut TerraformWorkspaceStatus, refusal: &Refusal, now: Timestamp) {
    let lasts = !matches!(refusal.reason, RefusalReason::Terminating | RefusalReason::NotServed);
    if let Some(run) = status.run.clone().filter(|run| lasts && !run.is_over() && run.job_uid.is_none()) {
        // A destroy is delayed by that, and has not failed.
        let is_destroy = run.action == Action::Destroy;
        let outcome = if is_destroy { Outcome::Interrupted } else { Outcome::Failed };
        // The same template would be refused each time.
        let run = Run { lasting: !is_destroy && refusal.reason == RefusalReason::Invalid, ..run };
        run_result::not_begun(run, refusal.message.clone(), outcome, status, whole_milliseconds(now));
    }
}

/// Creates the Job of a run that is published and has none.
fn make_job(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    status: &TerraformWorkspaceStatus,
    settings: &Settings,
) -> Writes {
    let mut writes = Writes::new();
    let unmade = status.run.as_ref().filter(|run| !run.is_over() && run.job_uid.is_none());
    let Some(run) = unmade.filter(|_| observed.refused.is_none()) else { return writes };
    let published = workspace.status.as_ref().and_then(|status| status.run.as_ref());
    if published.is_none_or(|published| published.number != run.number) {
        return writes;
    }
    let names = render::names(workspace);
    if let Some(inputs) = observed.kept_inputs(&names, &run.inputs) {
        let previous = run.previous_inputs.as_ref().filter(|previous| **previous != run.inputs);
        let previous = previous.and_then(|hash| observed.kept_inputs(&names, hash)).unwrap_or_default();
        let chunks = render::Chunks { inputs, previous };
        writes.together(render::rights(workspace, places(workspace, observed), run.adopts.as_deref()));
        writes.together(render::binding(workspace));
        writes.then(render::job(workspace, run, chunks, settings));
    }
    writes
}

/// The number of places that hold, or will hold, versions of the state.
fn places(workspace: &TerraformWorkspace, observed: &Observed) -> usize {
    let names = render::names(workspace);
    let used = observed.parts.iter().filter_map(|part| names.place_of(&part.target.name)).max();
    Names::state_places(&workspace.spec.history).max(used.map_or(0, |last| last + 1))
}

/// The assessment when an obstacle prevents a run.
fn stopped(obstacle: Obstacle, status: &mut TerraformWorkspaceStatus, writes: &mut Writes) -> Assessment {
    status.lock = obstacle.lock;
    if let Some(request) = obstacle.unlocked {
        status.handled.unlock = Some(request);
    }
    writes.together(obstacle.write);
    obstacle.assessment
}

#[cfg(test)]
mod tests;
