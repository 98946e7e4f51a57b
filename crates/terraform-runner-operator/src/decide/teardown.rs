//! Deletion of a workspace: what it created is destroyed, then its records are deleted.

use jiff::Timestamp;
use kube::ResourceExt;
use opcore::conditions::Summary;
use opcore::duration::Span;
use opcore::finalizer::{self, Progress, StepStatus, Teardown, TeardownState, step};
use opcore::operator::Note;
use opcore::writes::Target;
use opcore::{Decision, Next, Write, Writes};

use super::next_run::{self, Assessment, NextRun};
use super::obstacles;
use super::{Turn, begin, cleanup, given_up, is_of_older_spec, make_job, run_result, stopped};
use crate::api::v1alpha1::{
    Action, DeletionPolicy, Outcome, Run, TerraformWorkspace, TerraformWorkspaceStatus, WorkspacePhase,
};
use crate::observe::{Observed, ObservedPart, ObservedPod};
use crate::render::{self, Settings};

/// Dependent workspaces are deleted first.
const DEPENDANTS: &str = "dependants";
/// The active run ends.
const RUNS: &str = "runs";
/// What was created is destroyed.
const DESTROY: &str = "destroy";
/// The records that are kept of it are deleted.
const RECORDS: &str = "records";

/// How often a destroy may be delayed, by a lock or a lost node, before `Force` gives it up.
const HELD_UP: i32 = 5;
/// How long the pod of a destroy may take to start before `Force` gives it up.
const STARTS_WITHIN: Span = Span::from_secs(120);

/// Decides how to take down a workspace that is being deleted.
pub fn tear_down(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    settings: &Settings,
    now: Timestamp,
) -> Decision<TerraformWorkspace, Turn> {
    let mut status = workspace.status.clone().unwrap_or_default();
    let mut notes: Vec<Note> = run_result::take_in(workspace, observed, &mut status, now);
    let teardown_context = TeardownContext { workspace, observed, status: status.clone(), now };
    let steps =
        [step(DEPENDANTS), step(RUNS).after([DEPENDANTS]), step(DESTROY).after([RUNS]), step(RECORDS).after([DESTROY])];
    let steps = Teardown::graph(steps);
    let (decision, progress): (Decision<_, Turn>, _) =
        finalizer::pass(workspace, status, steps, |step| teardown_context.step_status(step), now);
    let Decision { mut status, .. } = decision;
    let (mut writes, mut queued) = (Writes::new(), false);
    let mut obstacle: Option<Assessment> = None;
    let mut starts_by = None;
    if progress.acts(RUNS) {
        writes.together(teardown_context.cancelled());
        writes.together(given_up(workspace, observed, &mut status, false, now));
    }
    if progress.acts(DESTROY) {
        match teardown_context.next_run() {
            Some(next_run) => match obstacles::obstacle(workspace, observed, &next_run, now) {
                Some(found) => {
                    queued = found.queued;
                    obstacle = Some(stopped(found, &mut status, &mut writes));
                }
                None => begin(workspace, observed, &next_run, &mut status, &mut writes, now),
            },
            None if teardown_context.is_idle() || !teardown_context.retains() => {
                writes = make_job(workspace, observed, &status, settings);
            }
            None => {
                writes.together(teardown_context.cancelled());
            }
        }
        if let Some(run) = status.run.clone().filter(|run| obstacle.is_none() && !run.is_over()) {
            // The run may have been published long before a process could create its Job.
            let in_time =
                observed.job(&run.job).and_then(|job| job.made_at).is_none_or(|at| STARTS_WITHIN.after(at) > now);
            starts_by = next_run::start_by(observed, &status, settings.start_within);
            let is_late = starts_by.is_some_and(|at| at <= now);
            let stuck = is_late
                || run.given_up
                || is_of_older_spec(workspace, &run)
                || (cannot_start(workspace, &run, now) && !in_time);
            writes.together(stuck.then(|| given_up(workspace, observed, &mut status, is_late, now)).flatten());
            obstacle = Some(next_run::with_pod(Assessment::running(&status), &run, observed, now));
        }
    }
    if progress.acts(RECORDS) {
        writes.together(teardown_context.records().into_iter().cloned().map(cleanup::delete));
    } else {
        writes.together(cleanup::leftovers(workspace, observed, &status));
    }
    notes.extend(decision.notes);
    notes.extend(teardown_context.last_note(&progress));
    describe(workspace, &teardown_context, &progress, obstacle.as_ref(), &mut status, now);
    let starts_by = starts_by.filter(|at| *at > now);
    let times = [
        progress.next,
        obstacle.and_then(|assessment| assessment.next),
        teardown_context.retry_at(),
        teardown_context.starts_by(),
        starts_by,
    ];
    let next = times.into_iter().flatten().min().map_or(Next::OnEvent, Next::At);
    let claims = Turn::of(workspace, &status, queued);
    Decision { writes, status, notes, next, claims, release: decision.release }
}

/// Whether a workspace that is being deleted does not need such a run, if it has not begun.
pub(super) fn is_unwanted(workspace: &TerraformWorkspace, action: Action) -> bool {
    let retains = workspace.spec.deletion_policy == DeletionPolicy::Retain;
    action != Action::Destroy || retains || next_run::suspended(workspace).is_some()
}

/// Whether a destroy under `Force` has had enough time to start. If its pod has not started, it cannot be done.
pub(super) fn cannot_start(workspace: &TerraformWorkspace, run: &Run, now: Timestamp) -> bool {
    let is_forced = workspace.spec.deletion_policy == DeletionPolicy::Force;
    is_forced && run.action == Action::Destroy && STARTS_WITHIN.after(run.started_at) <= now
}

fn describe(
    workspace: &TerraformWorkspace,
    teardown_context: &TeardownContext<'_>,
    progress: &Progress,
    obstacle: Option<&Assessment>,
    status: &mut TerraformWorkspaceStatus,
    now: Timestamp,
) {
    status.phase = WorkspacePhase::Deleting;
    let failed = status.failures > 0 && progress.acts(DESTROY) && status.run.as_ref().is_some_and(Run::is_over);
    let summary = match (obstacle, teardown_context.hindrance()) {
        (Some(assessment), _) => assessment.summary.clone(),
        (None, Some(hindrance)) if progress.acts(DESTROY) => Summary::stalled("DestroyBlocked", hindrance),
        _ if failed => {
            let failure = next_run::failure(status).summary;
            Summary::stalled("DestroyFailed", failure.message)
        }
        _ => {
            let (reason, message) = progress.words();
            Summary::reconciling(reason, message)
        }
    };
    summary.write(status, workspace.metadata.generation, now);
}

/// The state of a teardown.
struct TeardownContext<'a> {
    workspace: &'a TerraformWorkspace,
    observed: &'a Observed,
    status: TerraformWorkspaceStatus,
    now: Timestamp,
}

impl TeardownContext<'_> {
    fn step_status(&self, step: &str) -> StepStatus {
        let pending = |reason: String| StepStatus::Pending { reason, retry: None };
        match step {
            DEPENDANTS if !self.observed.dependants.is_empty() => StepStatus::Blocked {
                by: self.observed.dependants.iter().map(|name| format!("TerraformWorkspace {name}")).collect(),
                retry: None,
            },
            RUNS => match self.status.run.as_ref().filter(|run| !run.is_over()) {
                Some(run) => pending(format!("Job {} is still in progress", run.job)),
                None => StepStatus::Done,
            },
            DESTROY if self.is_destroyed() || self.is_given_up() => StepStatus::Done,
            DESTROY => pending(self.hindrance().unwrap_or_else(|| match &self.status.run {
                Some(run) if run.action == Action::Destroy && !run.is_over() => {
                    format!("Job {} is destroying the resources", run.job)
                }
                _ => "the resources are about to be destroyed".to_owned(),
            })),
            RECORDS => match self.records().first() {
                None => StepStatus::Done,
                Some(first) => pending(format!("{first} still exists")),
            },
            _ => StepStatus::Done,
        }
    }

    /// Whether nothing was ever created, or a destroy left nothing.
    fn is_destroyed(&self) -> bool {
        if self.status.begun_inputs.is_none() {
            return !self.is_unrecorded();
        }
        let destroyed = self
            .status
            .run
            .as_ref()
            .is_some_and(|run| run.action == Action::Destroy && run.outcome == Some(Outcome::Destroyed));
        let report = self.observed.report.as_ref().filter(|report| report.action == Action::Destroy);
        // The records may be gone already; then the step is recorded as done.
        destroyed && report.is_none_or(|report| report.empty)
    }

    /// Whether there is a state although the status knows of nothing that was applied, as when someone edited it: that
    /// nothing was is a guess then. Only of an empty state nothing can be left.
    fn is_unrecorded(&self) -> bool {
        self.status.begun_inputs.is_none()
            && self.status.state.as_ref().is_none_or(|state| state.resources != 0)
            && self.observed.has_state(&render::names(self.workspace))
    }

    /// Whether what was created is left in place, because the spec says so.
    fn is_given_up(&self) -> bool {
        match self.workspace.spec.deletion_policy {
            DeletionPolicy::Retain => self.is_idle(),
            DeletionPolicy::Destroy => false,
            DeletionPolicy::Force => {
                let suspended = next_run::suspended(self.workspace).is_some();
                self.is_idle() && (self.cannot_be_destroyed() || (self.hindrance().is_some() && !suspended))
            }
        }
    }

    fn retains(&self) -> bool {
        self.workspace.spec.deletion_policy == DeletionPolicy::Retain
    }

    /// Whether no run is active.
    fn is_idle(&self) -> bool {
        self.status.run.as_ref().is_none_or(Run::is_over)
    }

    /// Whether a destroy failed, and not because it was delayed: a delayed destroy is retried a limited number of times.
    fn cannot_be_destroyed(&self) -> bool {
        let run = self.status.run.as_ref().filter(|run| run.action == Action::Destroy);
        let outcome = run.and_then(|run| run.outcome);
        let failures = self.status.failures;
        failures > 0
            && outcome.is_some()
            && (matches!(outcome, Some(Outcome::Failed | Outcome::TimedOut)) || failures >= HELD_UP)
    }

    /// Whether the state is, or may be, in the cluster.
    fn is_managed(&self) -> bool {
        self.status
            .begun_backend
            .as_ref()
            .map_or(self.workspace.spec.backend.custom.is_none(), |at| at == render::MANAGED)
    }

    /// Why a destroy cannot even begin.
    fn hindrance(&self) -> Option<String> {
        if self.is_destroyed() || self.status.run.as_ref().is_some_and(|run| !run.is_over()) {
            return None;
        }
        let names = render::names(self.workspace);
        let way_out = "To delete the workspace and leave any remaining resources, set spec.deletionPolicy to Retain.";
        if self.is_unrecorded() {
            let state = names.state();
            return Some(format!(
                "The status does not contain what was applied, but Secret {state} contains a state. {way_out}"
            ));
        }
        let begun = self.status.begun_inputs.as_deref()?;
        if let Some(problem) = &self.observed.refused {
            return Some(format!("{problem} {way_out}"));
        }
        if self.observed.kept_inputs(&names, begun).is_none() {
            let first = names.inputs_chunk(begun, 0);
            return Some(format!("Secret {first} with the applied inputs is missing. {way_out}"));
        }
        if self.is_managed() && !self.observed.has_state(&names) {
            return Some(format!(
                "An apply was started, but there is no state, so the resources that it created are unknown. {way_out}"
            ));
        }
        next_run::suspended(self.workspace).map(|why| format!("No destroy starts: {why}."))
    }

    fn next_run(&self) -> Option<NextRun> {
        let published = self.workspace.status.as_ref().and_then(|status| status.teardown.as_ref());
        let running = published.and_then(|record| record.step(DESTROY));
        let may_begin = running.is_some_and(|step| step.phase == finalizer::StepPhase::Running);
        let pauses = self.retry_at().is_some_and(|at| at > self.now);
        if !self.is_idle()
            || !may_begin
            || pauses
            || self.is_destroyed()
            || self.is_given_up()
            || self.hindrance().is_some()
        {
            return None;
        }
        Some(NextRun { action: Action::Destroy, inputs: self.status.begun_inputs.clone()?, plan: None })
    }

    /// When a failed destroy is retried.
    fn retry_at(&self) -> Option<Timestamp> {
        let run = self.status.run.as_ref().filter(|run| run.action == Action::Destroy && run.is_over())?;
        self.status.retry_at.filter(|_| run.outcome != Some(Outcome::Destroyed))
    }

    /// When `Force` gives up a destroy whose pod has not started.
    fn starts_by(&self) -> Option<Timestamp> {
        let run = self.status.run.as_ref().filter(|run| run.action == Action::Destroy && !run.is_over())?;
        let started = matches!(self.observed.pod, ObservedPod::Started | ObservedPod::Leaving { .. });
        let forced = self.workspace.spec.deletion_policy == DeletionPolicy::Force;
        let since = self.observed.job(&run.job).and_then(|job| job.made_at).unwrap_or(run.started_at);
        (forced && !started).then(|| STARTS_WITHIN.after(since)).filter(|at| *at > self.now)
    }

    /// The deletes of runs that are no longer needed: a plan, a comparison, and a destroy that is no longer wanted.
    /// Terraform is asked to stop, and saves its state.
    fn cancelled(&self) -> Vec<Write> {
        let retains = self.retains();
        let unwanted = |action: Action| match action {
            Action::Plan | Action::Check => true,
            Action::Destroy => retains,
            Action::Apply => false,
        };
        let run = self.status.run.as_ref().filter(|run| unwanted(run.action));
        let job = run.and_then(|run| self.observed.job(&run.job)).filter(|job| job.ended.is_none() && !job.deleting);
        job.map(|job| cleanup::delete(job.target.clone())).into_iter().collect()
    }

    /// The records of the workspace to delete with it: all of them, unless something that it created is left.
    fn records(&self) -> Vec<&Target> {
        // If another backend was destroyed, a state in the cluster describes something else.
        let leaves = !self.is_destroyed() || !self.is_managed();
        let names = render::names(self.workspace);
        let needed = |part: &ObservedPart| {
            let name = &part.target.name;
            let begun = self.status.begun_inputs.as_deref().map(|hash| names.inputs_chunk(hash, 0));
            name.starts_with(&names.state()) || begun.is_some_and(|first| name.starts_with(first.trim_end_matches('0')))
        };
        // Objects with an owner are deleted with it.
        let ours = self.observed.parts.iter().filter(|part| part.part != "outputs");
        let secrets = ours.filter(|part| !(leaves && needed(part))).map(|part| &part.target);
        secrets.chain(self.observed.jobs.iter().map(|job| &job.target)).chain(&self.observed.lease).collect()
    }

    /// The workspace itself will soon be gone, but an Event outlives it.
    fn last_note(&self, progress: &Progress) -> Option<Note> {
        if progress.state != TeardownState::Released || self.is_destroyed() {
            return None;
        }
        let names = render::names(self.workspace);
        // An encrypted state does not show a number, and one in another backend is not known.
        let known = self.status.state.as_ref().filter(|state| self.is_managed() && state.resources >= 0);
        let what = match known.map(|state| state.resources) {
            Some(1) => "one resource as it is".to_owned(),
            Some(count) => format!("{count} resources as they are"),
            None => "its resources as they are".to_owned(),
        };
        let state = match self.status.begun_backend.as_deref().filter(|_| !self.is_managed()) {
            Some(place) => format!("The state is in its backend, {}.", place.split('-').next().unwrap_or(place)),
            None if self.observed.has_state(&names) => {
                format!(
                    "The state remains in Secret {} and its chunks; to manage the resources again, set the Secret in spec.backend.managed.adopt of another workspace.",
                    names.state()
                )
            }
            None => "The cluster contains no state of it.".to_owned(),
        };
        let begun = self.status.begun_inputs.as_deref();
        let kept = begun.filter(|hash| self.observed.kept_inputs(&names, hash).is_some());
        let inputs = kept.map(|hash| {
            let first = names.inputs_chunk(hash, 0);
            format!(" The inputs, including credentials, remain in Secret {first}.")
        });
        let message = format!(
            "TerraformWorkspace {} was deleted (deletionPolicy {:?}) and leaves {what}. {state}{}",
            self.workspace.name_any(),
            self.workspace.spec.deletion_policy,
            inputs.unwrap_or_default()
        );
        Some(Note::warning("Retained", message))
    }
}
