//! What a workspace needs next: a run, or nothing for now.

use jiff::Timestamp;
use kube::ResourceExt;
use opcore::annotations;
use opcore::conditions::{READY, Summary, find};
use opcore::duration::Span;

use crate::api::v1alpha1::{
    APPROVE_ANNOTATION, Action, Approval, DISCARD_ANNOTATION, Diagnostic, DriftAction, Outcome, PlanStatus,
    REPLAN_ANNOTATION, Run, SUSPEND_ANNOTATION, Severity, TerraformWorkspace, TerraformWorkspaceStatus,
    UPGRADE_ANNOTATION, WorkspacePhase,
};
use crate::observe::{Observed, ObservedPod};
use crate::render::{self, Adopted, Problem};
use crate::run::names;

/// The state of a workspace, and when it changes with time alone.
#[derive(Clone, Debug)]
pub(super) struct Assessment {
    /// The phase.
    pub phase: WorkspacePhase,
    /// The summary for the conditions.
    pub summary: Summary,
    /// When to reconcile again.
    pub next: Option<Timestamp>,
    /// What is wrong with the spec, if that is the cause.
    pub diagnostic: Option<Diagnostic>,
}

/// A run that a workspace needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NextRun {
    /// What it does.
    pub action: Action,
    /// The inputs.
    pub inputs: String,
    /// The approved plan.
    pub plan: Option<String>,
}

impl NextRun {
    /// Whether the run creates a plan of its own that may be applied.
    pub(super) fn makes_a_plan(&self) -> bool {
        self.plan.is_none() && matches!(self.action, Action::Plan | Action::Apply)
    }
}

/// What a workspace needs next.
#[derive(Clone, Debug)]
pub(super) enum NextStep {
    /// A run.
    Run(NextRun),
    /// Nothing, for this reason.
    Nothing(Assessment),
}

impl Assessment {
    pub(super) fn new(phase: WorkspacePhase, summary: Summary) -> Self {
        Self { phase, summary, next: None, diagnostic: None }
    }

    /// The spec, or an object that it refers to, cannot be used.
    fn wrong(phase: WorkspacePhase, reason: &'static str, problem: &Problem) -> Self {
        let (summary, field) = (format!("{}.", problem.message), Some(problem.field.clone()));
        let diagnostic = Some(Diagnostic { summary, field, ..Diagnostic::default() });
        Self { diagnostic, ..Self::new(phase, Summary::stalled(reason, problem.to_string())) }
    }

    pub(super) fn until(mut self, moment: Option<Timestamp>) -> Self {
        self.next = moment;
        self
    }

    /// A dependency is not ready.
    pub(super) fn waiting(observed: &Observed) -> Self {
        let message = format!("Waiting for {}.", observed.waits_for.join(", and "));
        Self::new(WorkspacePhase::Pending, Summary::reconciling("DependencyNotReady", message))
    }

    /// A run is about to begin.
    pub(super) fn next(next_run: &NextRun) -> Self {
        let (phase, reason) = match next_run.action {
            Action::Plan => (WorkspacePhase::Planning, "Planning"),
            Action::Apply => (WorkspacePhase::Applying, "Applying"),
            Action::Check => (WorkspacePhase::Pending, "Checking"),
            Action::Destroy => (WorkspacePhase::Deleting, "Destroying"),
        };
        Self::new(phase, Summary::reconciling(reason, "The next run is about to start."))
    }

    /// A run is active.
    pub(super) fn running(status: &TerraformWorkspaceStatus) -> Self {
        let Some(run) = &status.run else {
            return Self::new(WorkspacePhase::Pending, Summary::reconciling("Pending", "No run has started yet."));
        };
        let (phase, reason, words) = match run.action {
            Action::Plan => (WorkspacePhase::Planning, "Planning", "is planning"),
            Action::Apply => (WorkspacePhase::Applying, "Applying", "is applying"),
            // The inputs of this run are no longer wanted.
            Action::Check => (
                WorkspacePhase::Pending,
                "Checking",
                "compares the infrastructure with the state; the next run starts after it",
            ),
            Action::Destroy => (WorkspacePhase::Deleting, "Destroying", "is destroying"),
        };
        Self::new(phase, Summary::reconciling(reason, format!("Job {} {words}.", run.job)))
    }
}

/// The request for a new plan, if there is one.
pub(super) fn replan(workspace: &TerraformWorkspace) -> Option<&str> {
    annotations::value(workspace, REPLAN_ANNOTATION)
}

/// Whether a person requested a new plan that has not been made yet.
pub(super) fn is_replan_requested(workspace: &TerraformWorkspace, status: &TerraformWorkspaceStatus) -> bool {
    annotations::request(workspace, REPLAN_ANNOTATION, status.handled.replan.as_deref()).is_some()
}

/// The request for newer provider versions, if there is one.
pub(super) fn upgrade(workspace: &TerraformWorkspace) -> Option<&str> {
    annotations::value(workspace, UPGRADE_ANNOTATION)
}

/// Whether a person requested newer provider versions that have not been installed yet.
fn is_asked_to_upgrade(workspace: &TerraformWorkspace, status: &TerraformWorkspaceStatus) -> bool {
    annotations::request(workspace, UPGRADE_ANNOTATION, status.handled.upgrade.as_deref()).is_some()
}

/// Whether a run upgrades providers: an upgrade is requested, or the run for the last request did not get far enough to
/// show whether it works. A run that failed with the new versions is repeated without them.
pub(super) fn upgrades(workspace: &TerraformWorkspace, status: &TerraformWorkspaceStatus, inputs: &str) -> bool {
    let held_up =
        |run: &&Run| run.upgrade && matches!(run.outcome, Some(Outcome::Interrupted | Outcome::Lost | Outcome::Locked));
    is_asked_to_upgrade(workspace, status)
        || status.run.as_ref().filter(held_up).is_some_and(|run| run.inputs == inputs)
}

/// Whether a run that a person requested failed and must be repeated: the repetition counts as requested, too.
pub(super) fn repeats_a_request(status: &TerraformWorkspaceStatus, inputs: &str) -> bool {
    let failed = |run: &&Run| run.outcome.is_some_and(|outcome| !outcome.is_good());
    status.run.as_ref().filter(failed).is_some_and(|run| run.anew && run.inputs == inputs)
}

/// Whether a run with these inputs repeats one that failed by itself, and that no person has reviewed since.
pub(super) fn repeats_failure(status: &TerraformWorkspaceStatus, inputs: &str) -> bool {
    let failed = |run: &&Run| run.repeats || matches!(run.outcome, Some(Outcome::Failed | Outcome::TimedOut));
    status.failures > 0 && status.run.as_ref().filter(failed).is_some_and(|run| run.inputs == inputs)
}

/// The reason why no further run may start, if there is one.
pub(super) fn suspended(workspace: &TerraformWorkspace) -> Option<&'static str> {
    if workspace.spec.suspend {
        return Some("spec.suspend is true");
    }
    annotations::is_true(workspace, SUSPEND_ANNOTATION).then_some("it is suspended by annotation")
}

/// How long a Job may have no pod before this is reported.
const WITHOUT_POD: Span = Span::from_secs(10);
/// How long its pod may take to start before this is reported.
const TO_START: Span = Span::from_secs(60);
/// The reason for a pod that does not start.
const NOT_STARTING: &str = "PodNotStarting";
/// How long a pod may take beyond its grace period to terminate before this is reported.
const TO_LEAVE: Span = Span::from_secs(60);

/// Drops what no longer applies to the new inputs or requests: failures of inputs that are no longer wanted, and
/// differences that are no longer checked.
pub(super) fn forget(workspace: &TerraformWorkspace, observed: &Observed, status: &mut TerraformWorkspaceStatus) {
    status.lock = None;
    status.diagnostics.retain(|diagnostic| diagnostic.field.is_none());
    if workspace.spec.drift.action == DriftAction::Off {
        status.drift = None;
    }
    let other = |run: &Run| run.is_over() && observed.inputs.as_ref().is_ok_and(|inputs| inputs.hash != run.inputs);
    if status.failures > 0 && status.run.as_ref().is_some_and(other) {
        (status.failures, status.retry_at, status.diagnostics) = (0, None, Vec::new());
    }
}

/// Records a person's answer to the waiting plan.
pub(super) fn heed(workspace: &TerraformWorkspace, status: &mut TerraformWorkspaceStatus) {
    if let Some(plan) = &mut status.plan
        && plan.needs_approval
        && annotations::value(workspace, DISCARD_ANNOTATION) == Some(&plan.id)
    {
        plan.discarded = true;
    }
}

/// Decides what a workspace needs next.
pub(super) fn want(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    status: &TerraformWorkspaceStatus,
    now: Timestamp,
) -> NextStep {
    if let Some(run) = status.run.as_ref().filter(|run| !run.is_over()) {
        // A comparison does not affect what is applied, as long as nothing else is requested.
        let is_wanted = observed.inputs.as_ref().is_ok_and(|inputs| inputs.hash == run.inputs);
        if run.action == Action::Check && is_wanted {
            return NextStep::Nothing(compared(status, run, observed, now));
        }
        return NextStep::Nothing(with_pod(Assessment::running(status), run, observed, now));
    }
    if let Some(why) = suspended(workspace) {
        let summary = Summary::reconciling("Suspended", format!("No run starts: {why}."));
        return NextStep::Nothing(Assessment::new(WorkspacePhase::Suspended, summary));
    }
    if let Some(circle) = &observed.circle {
        let message = format!("spec.dependsOn: these workspaces wait for each other: {circle}.");
        return NextStep::Nothing(Assessment::new(
            WorkspacePhase::Failed,
            Summary::stalled("DependencyCycle", message),
        ));
    }
    let inputs = match &observed.inputs {
        Err(problem) if !problem.may_come => {
            return NextStep::Nothing(Assessment::wrong(WorkspacePhase::Failed, "InvalidSpec", problem));
        }
        // An input may be something that a dependency has yet to create.
        Err(_) if !observed.waits_for.is_empty() => return NextStep::Nothing(Assessment::waiting(observed)),
        Err(problem) => {
            return NextStep::Nothing(Assessment::wrong(WorkspacePhase::Pending, "InputNotFound", problem));
        }
        Ok(inputs) => inputs,
    };
    if let Some(Err(problem)) = observed.adopted.as_ref().map(Adopted::check) {
        return NextStep::Nothing(Assessment::wrong(WorkspacePhase::Pending, "InputNotFound", &problem));
    }
    let (inputs, backend) = (&inputs.hash, &inputs.backend);
    let from_scratch =
        || NextStep::Run(NextRun { action: first_action(workspace), inputs: inputs.clone(), plan: None });
    if is_replan_requested(workspace, status) {
        return from_scratch();
    }
    // If a plan was made from these inputs, the person who requested it knows where the state is.
    let waiting = status.plan.as_ref().filter(|plan| waits(workspace, plan) && plan.inputs == *inputs);
    let moved = if waiting.is_none() { backend_changed(workspace, backend, status) } else { None };
    let missing = moved.or_else(|| state_is_gone(workspace, observed, status));
    if let Some(assessment) = missing.filter(|_| !repeats_a_request(status, inputs)) {
        return NextStep::Nothing(assessment);
    }
    if is_asked_to_upgrade(workspace, status) {
        return from_scratch();
    }
    let failed = status.failures > 0 && status.run.as_ref().is_some_and(|run| run.inputs == *inputs);
    if let Some(at) = status.retry_at.filter(|at| failed && *at > now) {
        return NextStep::Nothing(failure(status).until(Some(at)));
    }
    let same_spec = |run: &&Run| run.generation == workspace.metadata.generation;
    if failed && status.run.as_ref().filter(same_spec).is_some_and(|run| run.lasting) {
        return NextStep::Nothing(failure(status));
    }
    if let Some(plan) = waiting {
        return of_person(workspace, plan);
    }
    if failed {
        return from_scratch();
    }
    // Other inputs may have been partly applied since.
    let is_whole = status.begun_inputs.as_ref().is_none_or(|begun| begun == inputs);
    let Some(applied) = status.last_applied.as_ref().filter(|applied| applied.hash == *inputs && is_whole) else {
        return from_scratch();
    };
    let drift = workspace.spec.drift;
    let differs = status.drift.as_ref().is_some_and(|found| found.count > 0 && found.checked_at > applied.time);
    if differs && drift.action == DriftAction::Correct {
        return from_scratch();
    }
    if drift.action == DriftAction::Off {
        return NextStep::Nothing(ready(status));
    }
    let last = status.drift.as_ref().map_or(applied.time, |found| found.checked_at.max(applied.time));
    let due = off_beat(drift.interval, &workspace.uid().unwrap_or_default()).after(last);
    if due <= now {
        return NextStep::Run(NextRun { action: Action::Check, inputs: inputs.clone(), plan: None });
    }
    NextStep::Nothing(ready(status).until(Some(due)))
}

/// What is wrong with the pod of a run, and when that changes with time alone.
#[derive(Default)]
struct Trouble {
    reason: &'static str,
    message: Option<String>,
    next: Option<Timestamp>,
}

/// Whether a pod is not starting, as far as can be known.
pub(super) fn does_not_start(pod: &ObservedPod, now: Timestamp) -> bool {
    match pod {
        ObservedPod::None | ObservedPod::Stuck(_) | ObservedPod::NeverRan(_) => true,
        ObservedPod::Starting { since, .. } => since.is_some_and(|since| TO_START.after(since) <= now),
        ObservedPod::Started | ObservedPod::Leaving { .. } => false,
    }
}

/// The deadline for the pod of the active run to start, if it has not: others wait for their turn.
pub(super) fn start_by(observed: &Observed, status: &TerraformWorkspaceStatus, within: Span) -> Option<Timestamp> {
    let run = status.run.as_ref().filter(|run| !run.is_over())?;
    let started = matches!(observed.pod, ObservedPod::Started | ObservedPod::Leaving { .. });
    let job = observed.job(&run.job).filter(|job| !started && job.ended.is_none())?;
    Some(within.after(job.made_at?))
}

/// The published reason why a pod does not start.
pub(super) fn why_not_started(workspace: &TerraformWorkspace) -> Option<&str> {
    let condition = workspace.status.as_ref().and_then(|status| find(&status.conditions, READY))?;
    (condition.reason == NOT_STARTING).then_some(condition.message.as_str())
}

fn trouble(run: &Run, observed: &Observed, now: Timestamp) -> Trouble {
    // Nothing is reported before this time.
    let (reason, from, message) = match (&observed.pod, observed.job(&run.job).and_then(|job| job.made_at)) {
        (ObservedPod::Stuck(trouble) | ObservedPod::NeverRan(trouble), _) => (NOT_STARTING, now, format!("{trouble}.")),
        (ObservedPod::None, Some(made_at)) => {
            let message = format!("it has no pod; to see why, run kubectl describe job {}.", run.job);
            (NOT_STARTING, WITHOUT_POD.after(made_at), message)
        }
        (ObservedPod::Starting { pod, since: Some(since) }, _) => {
            let message = format!("pod {pod} has not started yet; to see why, run kubectl describe pod {pod}.");
            (NOT_STARTING, TO_START.after(*since), message)
        }
        (ObservedPod::Leaving { pod, node, by }, _) => {
            let message = format!(
                "pod {pod} should have terminated by {by:.0}, but node {node} does not confirm it, so the pod may still be running. If the node is gone for good, delete the Node object, or taint it with node.kubernetes.io/out-of-service; the run then counts as lost."
            );
            ("PodNotEnding", TO_LEAVE.after(*by), message)
        }
        _ => return Trouble::default(),
    };
    if from > now {
        return Trouble { next: Some(from), ..Trouble::default() };
    }
    Trouble { reason, message: Some(format!("Job {}: {message}", run.job)), next: None }
}

/// The assessment of an active run, including what is wrong with its pod, if anything.
pub(super) fn with_pod(mut assessment: Assessment, run: &Run, observed: &Observed, now: Timestamp) -> Assessment {
    let Trouble { reason, message, next } = trouble(run, observed, now);
    if let Some(message) = message {
        assessment.summary = Summary::reconciling(reason, message);
    }
    assessment.until(next)
}

/// The assessment during a comparison with reality, which does not affect what is applied.
fn compared(status: &TerraformWorkspaceStatus, run: &Run, observed: &Observed, now: Timestamp) -> Assessment {
    let Trouble { message, next, .. } = trouble(run, observed, now);
    let mut assessment = ready(status);
    if let Some(message) = message {
        assessment.summary.message = format!(
            "{} The infrastructure is not being compared with the state: {message}",
            assessment.summary.message
        );
    }
    assessment.until(next)
}

/// The state would be read from another place than it was written to: a plan without it would create everything again.
fn backend_changed(
    workspace: &TerraformWorkspace,
    backend: &str,
    status: &TerraformWorkspaceStatus,
) -> Option<Assessment> {
    status.begun_inputs.as_ref()?;
    let begun = status.begun_backend.as_ref().filter(|begun| *begun != backend)?;
    let was = if begun == render::MANAGED { "in the cluster" } else { "in another backend" };
    let message = format!(
        "The backend changed in spec.backend, in its Secret or in TF_WORKSPACE, but the state is still {was}; without it, all resources would be created again. Change the backend back; or move the state by hand, and then run: opctl tf replan {}.",
        workspace.name_any()
    );
    Some(Assessment::new(WorkspacePhase::Failed, Summary::stalled("BackendChanged", message)))
}

/// A state that existed is gone: a plan without it would create everything again.
fn state_is_gone(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    status: &TerraformWorkspaceStatus,
) -> Option<Assessment> {
    let known = status.state.as_ref().filter(|_| workspace.spec.backend.custom.is_none())?;
    // The person who requested a new plan knows this: it was made without a state.
    let planned = status.plan.as_ref().is_some_and(|plan| plan.needs_approval && plan.serial == 0);
    if planned || observed.has_state(&render::names(workspace)) {
        return None;
    }
    let message = format!(
        "Secret {} with the state is missing, so the existing resources are unknown. Restore the Secret; or, to create all resources again, run: opctl tf replan {}.",
        known.secret,
        workspace.name_any()
    );
    Some(Assessment::new(WorkspacePhase::Failed, Summary::stalled("StateMissing", message)))
}

/// How a change begins: with a plan for a person, or with a plan that is applied at once.
fn first_action(workspace: &TerraformWorkspace) -> Action {
    match workspace.spec.approval {
        Approval::Manual => Action::Plan,
        Approval::Auto | Approval::AutoUnlessDestroy => Action::Apply,
    }
}

/// Whether a plan waits for a person, under the approval mode that applies now.
fn waits(workspace: &TerraformWorkspace, plan: &PlanStatus) -> bool {
    plan.waits_under(workspace.spec.approval)
}

/// A plan is waiting: evaluates the person's answer.
fn of_person(workspace: &TerraformWorkspace, plan: &PlanStatus) -> NextStep {
    let name = workspace.name_any();
    if plan.discarded {
        let message = format!(
            "Plan {} was discarded. Change the inputs, or request a new plan: opctl tf replan {name}.",
            plan.id
        );
        return NextStep::Nothing(Assessment::new(WorkspacePhase::Pending, Summary::stalled("PlanDiscarded", message)));
    }
    if annotations::value(workspace, APPROVE_ANNOTATION) == Some(&plan.id) {
        return NextStep::Run(NextRun {
            action: Action::Apply,
            inputs: plan.inputs.clone(),
            plan: Some(plan.id.clone()),
        });
    }
    let other = annotations::value(workspace, APPROVE_ANNOTATION);
    let other = other
        .map(|id| format!(" The approval in the annotation is for plan {id}, not for this one."))
        .unwrap_or_default();
    let why = plan.approval_reason.map(|reason| format!(": {}", reason.words())).unwrap_or_default();
    let message = format!(
        "Plan {} ({}) waits for approval{why}. To review it, run: opctl tf plan show {name}. To approve it, run: opctl tf approve {name}.{other}",
        plan.id, plan.summary
    );
    NextStep::Nothing(Assessment::new(
        WorkspacePhase::AwaitingApproval,
        Summary::reconciling("AwaitingApproval", message),
    ))
}

pub(super) fn ready(status: &TerraformWorkspaceStatus) -> Assessment {
    // An encrypted state does not show a number.
    let known = status.state.as_ref().filter(|state| state.resources >= 0);
    let resources = known.map(|state| match state.resources {
        1 => "one resource".to_owned(),
        count => format!("{count} resources"),
    });
    let mut message = match resources {
        Some(resources) => format!("Applied: {resources}."),
        None => "Applied.".to_owned(),
    };
    if let Some(drift) = status.drift.as_ref().filter(|drift| drift.count > 0) {
        let named: Vec<&str> = drift.resources.iter().take(3).map(|resource| resource.address.as_str()).collect();
        message =
            format!("{message} The infrastructure differs from the state in {}: {}.", drift.summary, named.join(", "));
    }
    Assessment::new(WorkspacePhase::Ready, Summary::ready("Applied", message))
}

/// The last run failed.
pub(super) fn failure(status: &TerraformWorkspaceStatus) -> Assessment {
    let (reason, what) = match status.run.as_ref().and_then(|run| run.outcome) {
        Some(Outcome::TimedOut) => ("RunTimedOut", "took longer than spec.timeouts allows"),
        Some(Outcome::Interrupted) => ("RunInterrupted", "was interrupted"),
        Some(Outcome::Locked) => ("StateLocked", "could not lock the state, because someone else holds the lock"),
        Some(Outcome::Lost) => ("RunLost", "ended without a report"),
        _ => ("RunFailed", "failed"),
    };
    let errors = status.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    // Without its number and the time: Events for the same failure have the same message, and are counted.
    let mut message = match (status.diagnostics.first(), errors.count()) {
        (Some(first), 0 | 1) => format!("The run {what}: {}", words(first)),
        (Some(first), several) => format!("The run {what} with {several} errors, first: {}", words(first)),
        (None, _) => format!("The run {what}."),
    };
    if status.retry_at.is_some() {
        message = format!("{message} It is retried.");
    } else if status.run.as_ref().is_some_and(|run| run.lasting) {
        message = format!(
            "{message} It would fail again, so it is not retried until the spec or the inputs change, or a new plan is requested: opctl tf replan."
        );
    }
    Assessment::new(WorkspacePhase::Failed, Summary::stalled(reason, message))
}

/// A diagnostic as a sentence, with its position.
pub(super) fn words(diagnostic: &Diagnostic) -> String {
    let mut words = diagnostic.summary.trim_end_matches('.').to_owned();
    let place: Vec<&str> = [diagnostic.at.as_deref(), diagnostic.address.as_deref()].into_iter().flatten().collect();
    if !place.is_empty() {
        words = format!("{words} ({})", place.join(", "));
    }
    match diagnostic.detail.as_deref().map(str::trim).filter(|detail| !detail.is_empty()) {
        Some(detail) => format!("{words}: {}.", detail.trim_end_matches('.')),
        None => format!("{words}."),
    }
}

/// An interval that is up to a tenth shorter or longer, but always the same for one workspace.
fn off_beat(interval: Span, uid: &str) -> Span {
    let digits = u32::from_str_radix(&names::short(&[uid, "drift"]), 16).unwrap_or_default();
    interval.scaled(0.9 + 0.2 * f64::from(digits) / f64::from(u32::MAX))
}
