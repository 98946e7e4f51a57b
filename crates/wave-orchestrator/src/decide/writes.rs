//! The writes of a rollout: what is applied, asked to reconcile, held suspended and pruned.

use std::collections::{BTreeMap, BTreeSet};

use opcore::writes::{Delete, Dependants};
use opcore::{Write, Writes};
use serde_json::json;

use super::gates::{give_back, is_held_back, is_recorded};
use super::waves::{RolloutContext, is_asked, request, stale_jobs};
use crate::api::v1alpha1::{InventoryKind, Parallelism, WavePhase, WavePlan, WavePlanStatus, WaveStatus};
use crate::index::{Due, FLUX_REQUEST, ObservedGate, ObservedNudge, OwnedObject, WaveSnapshot};
use crate::observe::Observed;
use crate::render::{Stage, kept_secret};
use crate::subscription::{WrittenKind, group_kind};

/// How many writes of waves one pass makes. Their effect is seen when the pass is over, so a wave whose dependencies
/// become ready in the meantime waits that long.
const AT_ONCE: usize = 16;

/// The writes of this pass, and the reason why something that should be pruned is not.
pub(super) fn writes(
    plan: &WavePlan,
    observed: &Observed,
    rollout_context: &RolloutContext<'_>,
    waves: &[WaveStatus],
) -> (Writes, Option<String>) {
    let mut writes = Writes::new();
    let recorded: BTreeMap<WrittenKind, &InventoryKind> =
        rollout_context.old.inventory.iter().map(|kind| (written(kind), kind)).collect();
    let (mut now, mut starting, mut running, mut refused) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (number, wave) in waves.iter().enumerate() {
        let Some(snapshot) = observed.snapshot.waves.get(number) else { continue };
        let turn = turn(rollout_context, number, wave, snapshot);
        now.extend(gates(rollout_context, wave, snapshot, turn));
        now.extend(keep(plan, observed, rollout_context, wave));
        if may_act(rollout_context, wave) {
            let mut of_wave = Vec::new();
            of_wave.extend(
                stale_jobs(snapshot, wave).cloned().map(|target| (None, delete(target, Dependants::Background))),
            );
            of_wave.extend(nudges(rollout_context, wave, snapshot, turn));
            let due = applicable(rollout_context, number, wave, snapshot, turn);
            // The kinds of what is applied are recorded first, with the wave, so that the objects are found again.
            let due = due.filter(|due| recorded.get(&kind_of(due)).is_some_and(|kind| kind.may_be_of(&wave.name)));
            of_wave.extend(due.map(|due| (due.refused_at, Write::Apply(Box::new(due.wanted.apply.clone())))));
            let (again, first): (Vec<_>, Vec<_>) = of_wave.into_iter().partition(|(turn, _)| turn.is_some());
            refused.extend(again);
            let first = first.into_iter().map(|(_, write)| write).collect();
            if is_known_to_run(rollout_context, wave) { running.push(first) } else { starting.push(first) }
        }
    }
    now.extend(give_back(plan, observed));
    // A wave that starts must not wait until others have finished all their writes, and no write must wait for those that
    // are refused again and again. Refused writes take turns.
    refused.sort_by_key(|(turn, _)| *turn);
    let refused = refused.into_iter().map(|(_, write)| write);
    now.extend(in_turn(starting).chain(in_turn(running)).chain(refused).take(AT_ONCE));
    // One stage: a refused write in one wave must not delay the others.
    writes.together(now);
    let (pruned, held) = prune(plan, observed, rollout_context, waves);
    writes.together(pruned);
    (writes, held)
}

/// The first write of each wave, then the second of each, and so on.
fn in_turn(waves: Vec<Vec<Write>>) -> impl Iterator<Item = Write> {
    let mut waves: Vec<_> = waves.into_iter().map(Vec::into_iter).collect();
    std::iter::from_fn(move || {
        let round: Vec<Write> = waves.iter_mut().filter_map(Iterator::next).collect();
        (!round.is_empty()).then_some(round)
    })
    .flatten()
}

/// Whether a wave may write. The rollout, with the kinds of everything that it will write, must be published before.
/// The start of a wave need not be: after a crash in between, the writes are repeated and change nothing, and the
/// statuses of all waves of an unfinished rollout are treated as older than the writes. Everything else that changes
/// its writes must be published: that the wave was started again, was rolled back, or is no longer in trouble.
fn may_act(rollout_context: &RolloutContext<'_>, wave: &WaveStatus) -> bool {
    let was = rollout_context.old.wave(&wave.name).filter(|_| rollout_context.same_rollout);
    wave.phase == WavePhase::Running
        && was.is_some_and(|was| {
            was.attempts == wave.attempts && was.rolled_back == wave.rolled_back && !was.phase.is_trouble()
        })
}

/// Whether the published status says that the wave runs.
fn is_known_to_run(rollout_context: &RolloutContext<'_>, wave: &WaveStatus) -> bool {
    rollout_context.old.wave(&wave.name).is_some_and(|was| was.phase == WavePhase::Running)
}

/// Keeps the contents of a wave that is published as ready, for a later rollback.
fn keep(
    plan: &WavePlan,
    observed: &Observed,
    rollout_context: &RolloutContext<'_>,
    wave: &WaveStatus,
) -> Option<Write> {
    let rollback = observed.rollbacks.get(&wave.name)?;
    let was = rollout_context.old.wave(&wave.name).filter(|_| rollout_context.same_rollout)?;
    let settled = was.phase == WavePhase::Ready && wave.phase == WavePhase::Ready;
    let wanted = rollback.wanted.as_ref().filter(|wanted| settled && rollback.kept.as_ref() != Some(wanted))?;
    Write::apply(&kept_secret(plan, &observed.home, &wave.name, wanted)).ok()
}

/// The last member that may begin. If members start one after another, a ready member that is still to be asked to
/// reconcile or to be released holds up those behind it: it will not stay ready.
fn turn(rollout_context: &RolloutContext<'_>, number: usize, wave: &WaveStatus, snapshot: &WaveSnapshot) -> usize {
    if rollout_context.spec.waves[number].parallelism == Parallelism::Concurrent {
        return usize::MAX;
    }
    let unready = snapshot.frontier.map(|(member, _)| member);
    unready.into_iter().chain(unsteered(rollout_context, wave, snapshot)).min().unwrap_or(usize::MAX)
}

/// The members that are still to be asked to reconcile, or to be released.
fn unsteered<'a>(
    rollout_context: &'a RolloutContext<'_>,
    wave: &'a WaveStatus,
    snapshot: &'a WaveSnapshot,
) -> impl Iterator<Item = usize> + 'a {
    let unasked =
        snapshot.nudges.iter().filter(|nudge| !is_asked(nudge, wave, rollout_context.now)).map(|nudge| nudge.member);
    unasked.chain(snapshot.gates.iter().filter(|gate| gate.held).map(|gate| gate.member))
}

/// What may be applied now: nothing of a later member or stage is applied before everything earlier is ready.
fn applicable<'a>(
    rollout_context: &RolloutContext<'_>,
    number: usize,
    wave: &WaveStatus,
    snapshot: &'a WaveSnapshot,
    turn: usize,
) -> impl Iterator<Item = &'a Due> {
    let concurrent = rollout_context.spec.waves[number].parallelism == Parallelism::Concurrent;
    let steered = unsteered(rollout_context, wave, snapshot).next().is_none();
    snapshot.due.iter().filter(move |due| {
        let Some((member, stage)) = snapshot.frontier else { return true };
        let of_member = concurrent || due.member == member;
        let waits_for_all = due.stage == Stage::After && (stage != Stage::After || !steered);
        due.member <= turn && !waits_for_all && !(of_member && stage.is_awaited() && due.stage > stage)
    })
}

/// Whether a hook before the members is not ready yet.
fn waits_for_a_hook(snapshot: &WaveSnapshot) -> bool {
    snapshot.frontier.is_some_and(|(_, stage)| stage == Stage::Before)
}

fn written(kind: &InventoryKind) -> WrittenKind {
    (kind.api_version.clone(), kind.kind.clone())
}

fn kind_of(due: &Due) -> WrittenKind {
    let resource = &due.wanted.apply.resource;
    (resource.api_version.clone(), resource.kind.clone())
}

/// Members that have not been asked to reconcile since the wave began, with their turn if that was refused before.
fn nudges<'a>(
    rollout_context: &'a RolloutContext<'_>,
    wave: &'a WaveStatus,
    snapshot: &'a WaveSnapshot,
    turn: usize,
) -> impl Iterator<Item = (Option<u64>, Write)> + 'a {
    let may_begin = move |nudge: &&ObservedNudge| nudge.member <= turn && !waits_for_a_hook(snapshot);
    let unasked = snapshot.nudges.iter().filter(may_begin).filter(|nudge| !is_asked(nudge, wave, rollout_context.now));
    unasked.map(|nudge| {
        let annotations = BTreeMap::from([(FLUX_REQUEST.to_owned(), request(wave))]);
        (nudge.refused_at, Write::Annotate { target: nudge.target.clone(), annotations })
    })
}

/// Members to suspend, or to resume.
fn gates<'a>(
    rollout_context: &'a RolloutContext<'_>,
    wave: &'a WaveStatus,
    snapshot: &'a WaveSnapshot,
    turn: usize,
) -> impl Iterator<Item = Write> + 'a {
    let has_started = rollout_context.same_rollout && wave.started_at.is_some() && !waits_for_a_hook(snapshot);
    let hold = is_held_back(wave);
    let may_begin = move |member| wave.phase == WavePhase::Skipped || (has_started && member <= turn);
    // An object to be held is recorded first, so that it is released in any case.
    let recorded = |gate: &ObservedGate| is_recorded(rollout_context.old, gate);
    let wanted = snapshot
        .gates
        .iter()
        .filter(move |gate| if gate.held { may_begin(gate.member) } else { hold && recorded(gate) });
    wanted.map(move |gate| Write::Claim {
        target: gate.target.clone(),
        fields: if hold { json!({ "spec": { "suspend": true } }) } else { json!({}) },
    })
}

/// The kinds of the objects that the plan applies or has applied, with counts, and with the waves that do so or did.
pub(super) fn inventory(old: &WavePlanStatus, observed: &Observed) -> Vec<InventoryKind> {
    let recorded: BTreeMap<WrittenKind, &InventoryKind> =
        old.inventory.iter().map(|kind| (written(kind), kind)).collect();
    let of_kind = |written: &WrittenKind| observed.snapshot.counts.get(&group_kind(written)).into_iter().flatten();
    // A kind, and a wave of a kind, is removed from the record only when it is certain that no object of it is left.
    let is_certain = |written: &WrittenKind| !observed.incomplete.contains_key(&group_kind(written));
    let is_left = |written: &&WrittenKind| !is_certain(written) || of_kind(written).next().is_some();
    let waves = |written: &WrittenKind| -> Vec<String> {
        let before = recorded.get(written).filter(|_| !is_certain(written));
        if before.is_some_and(|before| before.waves.is_empty()) {
            return Vec::new();
        }
        let applied = observed.snapshot.applied_kinds.get(written).into_iter().flatten();
        let there = of_kind(written).map(|(wave, _)| wave);
        let all: BTreeSet<&String> =
            applied.chain(there).chain(before.into_iter().flat_map(|kind| &kind.waves)).collect();
        all.into_iter().cloned().collect()
    };
    let kinds: BTreeSet<WrittenKind> =
        observed.snapshot.applied_kinds.keys().chain(recorded.keys().filter(is_left)).cloned().collect();
    // In one version of a kind the objects of all versions are found: a version that is no longer served is not needed
    // as well.
    let found = kinds.difference(&observed.unserved).map(group_kind).collect::<BTreeSet<_>>();
    let is_needed = |kind: &&WrittenKind| !observed.unserved.contains(*kind) || !found.contains(&group_kind(kind));
    kinds
        .iter()
        .filter(is_needed)
        .map(|written| InventoryKind {
            api_version: written.0.clone(),
            kind: written.1.clone(),
            count: of_kind(written).map(|(_, count)| count).sum(),
            waves: waves(written),
        })
        .collect()
}

/// Objects that the plan applied and no longer contains are deleted when every wave is published as through, and only
/// if everything is known.
fn prune(
    plan: &WavePlan,
    observed: &Observed,
    rollout_context: &RolloutContext<'_>,
    waves: &[WaveStatus],
) -> (Vec<Write>, Option<String>) {
    let settings = &plan.spec.prune;
    let published = rollout_context.same_rollout
        && rollout_context.old.rollout.as_ref().is_some_and(|rollout| rollout.finished_at.is_some());
    let through = waves.iter().all(|wave| wave.phase == WavePhase::Ready);
    let certain = observed.snapshot.complete && observed.denied.is_empty();
    if !settings.enabled || !published || !through || !certain {
        return (Vec::new(), None);
    }
    let limit = usize::try_from(settings.limit).unwrap_or_default();
    let count = observed.snapshot.orphan_count;
    if count > limit {
        let held = format!(
            "{count} objects are no longer in the plan, which is more than spec.prune.limit ({limit}), so none was deleted. Raise the limit to delete them"
        );
        return (Vec::new(), Some(held));
    }
    let kept: Vec<&OwnedObject> = observed.snapshot.kept.iter().collect();
    let held = (!kept.is_empty()).then(|| kept_words(&kept, observed.snapshot.kept_count));
    (reverse(&observed.snapshot.orphans.iter().collect::<Vec<_>>(), None), held)
}

/// A message about the objects that stay, of which these are the first.
pub(super) fn kept_words(kept: &[&OwnedObject], count: usize) -> String {
    let names: Vec<String> = kept.iter().take(3).map(|orphan| orphan.target.to_string()).collect();
    let more = if count > names.len() { format!(" and {} more", count - names.len()) } else { String::new() };
    format!(
        "{}{more} were not deleted, because data would be deleted with them; to delete them, annotate them with {}=true, or list their kinds in spec.prune.confirmedKinds",
        names.join(", "),
        crate::api::v1alpha1::CONFIRM_ANNOTATION
    )
}

/// Deletes in the reverse order of application: the objects of the last remaining stage that are not being deleted yet.
/// There may be others that are not known, of stages up to `unknown`: what was applied before them stays until then.
pub(super) fn reverse(objects: &[&OwnedObject], unknown: Option<Stage>) -> Vec<Write> {
    let last: Option<Stage> = objects.iter().map(|object| object.stage).max().max(unknown);
    let now = objects.iter().filter(|object| Some(object.stage) == last && !object.deleting);
    now.map(|object| delete(object.target.clone(), Dependants::Background)).collect()
}

fn delete(target: opcore::writes::Target, dependants: Dependants) -> Write {
    Write::Delete(Delete { target, resource_version: None, dependants })
}
