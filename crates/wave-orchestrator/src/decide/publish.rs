//! What users read about a plan, and when a new status is worth a write.

use jiff::{SignedDuration, Timestamp};
use opcore::conditions::{self, Condition, New, Summary};
use opcore::operator::Note;

use super::graph::Graph;
use super::requests::Requests;
use crate::api::v1alpha1::{Dependency, Gate, OnFailure, PlanPhase, WavePhase, WavePlan, WavePlanStatus, WaveStatus};
use crate::observe::Observed;

/// A status that differs only in progress is written at most this often.
const PROGRESS_EVERY: SignedDuration = SignedDuration::from_secs(5);
/// Whether the waves started in the order that the graph requires.
const STARTED_IN_ORDER: &str = "StartedInOrder";
/// Status messages name at most this many waves.
const NAMED: usize = 5;

/// Fills in the status of the whole plan: phase, counts, conditions.
pub(super) fn describe(
    plan: &WavePlan,
    observed: &Observed,
    graph: &Graph,
    requests: &Requests,
    failed: Option<&str>,
    status: &mut WavePlanStatus,
    now: Timestamp,
) {
    let of = |wanted: fn(WavePhase) -> bool| -> Vec<&WaveStatus> {
        status.waves.iter().filter(|wave| wanted(wave.phase)).collect()
    };
    let (through, running) = (of(WavePhase::is_through), of(|phase| phase == WavePhase::Running));
    let (trouble, stopped) = (of(WavePhase::is_trouble), of(|phase| phase == WavePhase::Suspended));
    let invalid = graph.broken.values().next().cloned();
    let paused = plan.spec.suspend || requests.paused;
    let retrying = trouble.iter().any(|wave| wave.retry_at.is_some());

    let progress = format!("{}/{}", through.len(), status.waves.len());
    let current = names(&running);
    let (phase, summary) = if through.len() == status.waves.len() {
        let message = match &status.prune_held {
            None => format!("All {} waves are ready.", status.waves.len()),
            Some(held) => format!("All {} waves are ready. {held}.", status.waves.len()),
        };
        (PlanPhase::Ready, Summary::ready("RolledOut", message))
    } else if let Some(first) = observed.denied.first() {
        let message = format!("The operator is not allowed to {first}.");
        (PlanPhase::Failed, Summary::stalled("Forbidden", message))
    } else if paused {
        let why = if plan.spec.suspend { "spec.suspend is true" } else { "it is paused by annotation" };
        (PlanPhase::Suspended, Summary::reconciling("Suspended", format!("No further wave starts: {why}.")))
    } else if let Some(wave) = failed.filter(|_| running.is_empty()) {
        let message =
            format!("Wave {wave} failed, and no further wave starts until it is ready or the plan is resumed.");
        (PlanPhase::Suspended, Summary::stalled("PausedByFailure", message))
    } else if trouble.is_empty() || !running.is_empty() || retrying {
        let message = running_words(&running, &trouble);
        (PlanPhase::Running, Summary::reconciling("RollingOut", message))
    } else if let Some(why) = invalid {
        (PlanPhase::Invalid, Summary::stalled("InvalidSpec", format!("spec.waves: {why}.")))
    } else {
        let phase = if trouble.iter().any(|wave| wave.not_ready.iter().any(|entry| entry.reason == "InvalidWave")) {
            PlanPhase::Invalid
        } else {
            PlanPhase::Failed
        };
        let reason = match (phase, trouble.iter().any(|wave| wave.phase == WavePhase::Failed)) {
            (PlanPhase::Invalid, _) => "InvalidSpec",
            (_, true) => "WaveFailed",
            (_, false) => "WaveTimedOut",
        };
        (phase, Summary::stalled(reason, trouble_words(&trouble)))
    };
    let current = if current.is_empty() { names(&stopped) } else { current };
    status.phase = Some(phase);
    status.progress = Some(progress);
    status.current = Some(current).filter(|current| !current.is_empty());
    status.eta = eta(status, now);
    summary.write(status, plan.metadata.generation, now);
    started_in_order(plan, status, now);
}

fn running_words(running: &[&WaveStatus], trouble: &[&WaveStatus]) -> String {
    let mut words = match running {
        [] => "Waves are about to start.".to_owned(),
        [one] => format!("Wave {} is running.", one.name),
        several => format!("Waves {} are running.", names(several)),
    };
    if !trouble.is_empty() {
        words.push(' ');
        words.push_str(&trouble_words(trouble));
    }
    words
}

fn trouble_words(trouble: &[&WaveStatus]) -> String {
    let reported = trouble.iter().take(NAMED).map(|wave| {
        let what = match (wave.phase, &wave.deadline) {
            (WavePhase::TimedOut, Some(deadline)) => format!("Wave {} was not ready by {deadline:.0}", wave.name),
            _ => format!("Wave {} failed", wave.name),
        };
        match wave.not_ready.first() {
            Some(entry) => format!("{what}: {}", entry.message),
            None => format!("{what}."),
        }
    });
    reported.collect::<Vec<_>>().join(" ")
}

fn names(waves: &[&WaveStatus]) -> String {
    let mut names: Vec<String> = waves.iter().take(NAMED).map(|wave| wave.name.clone()).collect();
    if waves.len() > NAMED {
        names.push(format!("{} more", waves.len() - NAMED));
    }
    names.join(", ")
}

fn eta(status: &WavePlanStatus, now: Timestamp) -> Option<String> {
    let path = status.critical_path.as_ref()?;
    matches!(status.phase, Some(PlanPhase::Running)).then(|| format!("{:.0}", path.remaining.after(now)))
}

/// Compares the order in which the waves started with the graph, as `verify-startup` does, too.
fn started_in_order(plan: &WavePlan, status: &mut WavePlanStatus, now: Timestamp) {
    let is_first = status.rollout.as_ref().is_some_and(|rollout| rollout.number == 1);
    let mut faults = Vec::new();
    for wave in &plan.spec.waves {
        let Some(late) = status.wave(&wave.name) else { continue };
        // A forced wave was meant to start early; a retried wave was started without a check of its dependencies.
        let Some(begun) = late.begun_at.filter(|_| !late.forced && late.attempts == 0) else { continue };
        let counts = |edge: &&Dependency| edge.gate == Gate::Always || is_first || !late.rolled_out;
        for dependency in wave.depends_on.iter().filter(counts) {
            let Some(first) = status.wave(&dependency.wave) else { continue };
            let policy = plan.spec.waves.iter().find(|wave| wave.name == first.name).map(|wave| wave.on_failure);
            if policy == Some(OnFailure::Continue) || first.phase == WavePhase::Skipped {
                continue;
            }
            // A dependency that started after its dependant had begun is running again, which says nothing about how
            // the dependant began.
            let again = first.started_at.is_some_and(|started| started > begun);
            let was_ready = first.ready_at.is_some_and(|ready| ready <= begun);
            if !again && !was_ready {
                faults.push(format!("Wave {} started before wave {} was ready", late.name, first.name));
            }
        }
    }
    let started = status.waves.iter().any(|wave| wave.started_at.is_some());
    if !started {
        conditions::remove(&mut status.conditions, STARTED_IN_ORDER);
        return;
    }
    let message = if faults.is_empty() {
        "Every wave started after all waves that it depends on were ready.".to_owned()
    } else {
        format!("{}.", faults.join("; "))
    };
    let new = New {
        kind: STARTED_IN_ORDER,
        status: if faults.is_empty() { "True" } else { "False" },
        reason: if faults.is_empty() { "AsTheGraphSays" } else { "OutOfOrder" },
        message: &message,
    };
    conditions::set(&mut status.conditions, new, plan.metadata.generation, now);
}

/// Events in addition to the change of `Ready`: waves that started, became ready or got into trouble.
pub(super) fn notes(old: &WavePlanStatus, new: &WavePlanStatus, requests: &Requests, same_rollout: bool) -> Vec<Note> {
    let mut notes = Vec::new();
    let unknown: Vec<&str> = requests.unknown(|name| new.wave(name).is_some()).collect();
    if !unknown.is_empty() && old.handled != new.handled {
        let message = format!("An annotation names {}, which is not a wave of this plan.", unknown.join(", "));
        notes.push(Note::warning("UnknownWave", message));
    }
    for wave in &new.waves {
        let before = old.wave(&wave.name).filter(|_| same_rollout).map(|was| was.phase);
        if before == Some(wave.phase) {
            continue;
        }
        let note = match wave.phase {
            WavePhase::Running => Note::normal("WaveStarted", format!("Wave {} started.", wave.name)),
            WavePhase::Ready => {
                let took = wave.duration.unwrap_or_default();
                Note::normal("WaveReady", format!("Wave {} is ready after {took}.", wave.name))
            }
            WavePhase::Failed => Note::warning("WaveFailed", trouble_words(&[wave])),
            WavePhase::TimedOut => Note::warning("WaveTimedOut", trouble_words(&[wave])),
            WavePhase::Skipped => Note::normal("WaveSkipped", format!("Wave {} is skipped, as requested.", wave.name)),
            _ => continue,
        };
        notes.push(note.about(wave.name.as_str()));
    }
    notes
}

/// Decides which changes of a status are worth a write: all of them when a phase changed, mere progress at intervals,
/// and changes that only come from the passage of time never. Also returns when to reconcile again because of this.
pub(super) fn settle(
    old: &WavePlanStatus,
    mut new: WavePlanStatus,
    now: Timestamp,
) -> (WavePlanStatus, Option<Timestamp>) {
    let due = old.progressed_at.and_then(|last| last.checked_add(PROGRESS_EVERY).ok()).filter(|due| *due > now);
    let has_moved = progress(old) != progress(&new);
    if gist(old) != gist(&new) || (has_moved && due.is_none()) {
        new.progressed_at = Some(now);
        return (new, None);
    }
    // A refused write may have overruled the summary, and may do so again: that is not progress.
    let conditions = if has_moved && facts(old) == facts(&new) { old.conditions.clone() } else { new.conditions };
    (WavePlanStatus { conditions, ..old.clone() }, due.filter(|_| has_moved))
}

/// The conditions without their messages.
fn facts(status: &WavePlanStatus) -> impl PartialEq {
    let fact = |condition: &Condition| (condition.type_.clone(), condition.status.clone(), condition.reason.clone());
    status.conditions.iter().map(fact).collect::<Vec<_>>()
}

/// The conditions other than the summary.
fn beside_the_summary(status: &WavePlanStatus) -> impl Iterator<Item = &Condition> {
    let summary = [conditions::READY, conditions::RECONCILING, conditions::STALLED];
    status.conditions.iter().filter(move |condition| !summary.contains(&condition.type_.as_str()))
}

/// The status without the fields that only show progress or delay.
fn gist(status: &WavePlanStatus) -> WavePlanStatus {
    let mut gist = status.clone();
    for wave in &mut gist.waves {
        (wave.ready, wave.total) = (0, 0);
        wave.not_ready.clear();
    }
    for kind in &mut gist.inventory {
        kind.count = 0;
    }
    if let Some(path) = &mut gist.critical_path {
        path.elapsed = opcore::duration::Span::default();
        path.remaining = opcore::duration::Span::default();
        path.total = opcore::duration::Span::default();
        path.slack.clear();
    }
    (gist.eta, gist.progressed_at) = (None, None);
    gist.conditions = beside_the_summary(status).cloned().collect();
    for condition in &mut gist.conditions {
        condition.message.clear();
    }
    gist
}

/// The fields that show progress.
fn progress(status: &WavePlanStatus) -> impl PartialEq {
    let waves = status.waves.iter().map(|wave| (wave.ready, wave.total, wave.not_ready.clone())).collect::<Vec<_>>();
    let messages = beside_the_summary(status).map(|condition| condition.message.clone()).collect::<Vec<_>>();
    (waves, messages, status.inventory.clone())
}
