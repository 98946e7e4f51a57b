//! The writes of a rollout: what is applied, asked, held back and pruned.

use std::collections::{BTreeMap, BTreeSet};

use opcore::writes::{Delete, Dependants};
use opcore::{Write, Writes};
use serde_json::json;

use super::gates::{give_back, is_held_back, is_recorded};
use super::waves::{RolloutContext, is_asked, request, stale_jobs};
use crate::api::v1alpha1::{InventoryKind, Parallelism, WavePhase, WavePlan, WavePlanStatus, WaveStatus};
use crate::index::{Due, FLUX_REQUEST, GateSeen, NudgeSeen, OwnedSeen, WaveLook};
use crate::observe::Observed;
use crate::render::{Stage, kept_secret};
use crate::subscription::{WrittenKind, group_kind};

/// How many writes of waves one pass makes. What they lead to is seen when the pass is over, so that a wave whose
/// dependencies turn ready meanwhile waits so long.
const AT_ONCE: usize = 16;

/// The writes of this pass, and why something is not pruned that should be.
pub(super) fn writes(
    plan: &WavePlan,
    seen: &Observed,
    rollout_context: &RolloutContext<'_>,
    waves: &[WaveStatus],
) -> (Writes, Option<String>) {
    let mut writes = Writes::new();
    let recorded: BTreeSet<WrittenKind> =
        rollout_context.old.inventory.iter().map(|kind| (kind.api_version.clone(), kind.kind.clone())).collect();
    let (mut now, mut starting, mut running, mut refused) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (number, wave) in waves.iter().enumerate() {
        let Some(look) = seen.look.waves.get(number) else { continue };
        let turn = turn(rollout_context, number, wave, look);
        now.extend(gates(rollout_context, wave, look, turn));
        now.extend(keep(plan, seen, rollout_context, wave));
        if may_act(rollout_context, wave) {
            let mut of_wave = Vec::new();
            of_wave
                .extend(stale_jobs(look, wave).cloned().map(|target| (None, delete(target, Dependants::Background))));
            of_wave.extend(nudges(rollout_context, wave, look, turn));
            let due = applicable(rollout_context, number, wave, look, turn);
            // The kinds of what is applied are written down first, so that it is found again.
            let due = due.filter(|due| recorded.contains(&kind_of(due)));
            of_wave.extend(due.map(|due| (due.refused_at, Write::Apply(Box::new(due.wanted.apply.clone())))));
            let (again, first): (Vec<_>, Vec<_>) = of_wave.into_iter().partition(|(turn, _)| turn.is_some());
            refused.extend(again);
            let first = first.into_iter().map(|(_, write)| write).collect();
            if is_known_to_run(rollout_context, wave) { running.push(first) } else { starting.push(first) }
        }
    }
    now.extend(give_back(plan, seen));
    // A wave that starts must not wait until others have written all that they have to, and nothing for what is refused
    // again and again; of that, each has its turn.
    refused.sort_by_key(|(turn, _)| *turn);
    let refused = refused.into_iter().map(|(_, write)| write);
    now.extend(in_turn(starting).chain(in_turn(running)).chain(refused).take(AT_ONCE));
    // One stage: what is refused in one wave must not hold up another.
    writes.together(now);
    let (pruned, held) = prune(plan, seen, rollout_context, waves);
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

/// Whether a wave may write. The rollout, with the kinds of all that it will write, is published before; the start of a
/// wave need not be: after a crash between the two the writes are repeated and change nothing, and the statuses of all
/// waves of an unfinished rollout are taken for older than they. What else changes its writes must be: that it was started
/// again, or taken back, or is no longer in trouble.
fn may_act(rollout_context: &RolloutContext<'_>, wave: &WaveStatus) -> bool {
    let was = rollout_context.old.wave(&wave.name).filter(|_| rollout_context.same_rollout);
    wave.phase == WavePhase::Running
        && was.is_some_and(|was| {
            was.attempts == wave.attempts && was.rolled_back == wave.rolled_back && !was.phase.is_trouble()
        })
}

/// Whether what was published says that it runs.
fn is_known_to_run(rollout_context: &RolloutContext<'_>, wave: &WaveStatus) -> bool {
    rollout_context.old.wave(&wave.name).is_some_and(|was| was.phase == WavePhase::Running)
}

/// What a wave consists of that is published as ready, for a time when it is needed again.
fn keep(plan: &WavePlan, seen: &Observed, rollout_context: &RolloutContext<'_>, wave: &WaveStatus) -> Option<Write> {
    let rollback = seen.rollbacks.get(&wave.name)?;
    let was = rollout_context.old.wave(&wave.name).filter(|_| rollout_context.same_rollout)?;
    let settled = was.phase == WavePhase::Ready && wave.phase == WavePhase::Ready;
    let wanted = rollback.wanted.as_ref().filter(|wanted| settled && rollback.kept.as_ref() != Some(wanted))?;
    Write::apply(&kept_secret(plan, &seen.home, &wave.name, wanted)).ok()
}

/// The last member that may begin. Where they start one after another, a member that is ready, and yet is to be asked or
/// let go, holds up those behind it: it will not be ready for long.
fn turn(rollout_context: &RolloutContext<'_>, number: usize, wave: &WaveStatus, look: &WaveLook) -> usize {
    if rollout_context.spec.waves[number].parallelism == Parallelism::Concurrent {
        return usize::MAX;
    }
    let unready = look.frontier.map(|(member, _)| member);
    unready.into_iter().chain(unsteered(rollout_context, wave, look)).min().unwrap_or(usize::MAX)
}

/// The members that are still to be asked, or to be let go.
fn unsteered<'a>(
    rollout_context: &'a RolloutContext<'_>,
    wave: &'a WaveStatus,
    look: &'a WaveLook,
) -> impl Iterator<Item = usize> + 'a {
    let unasked =
        look.nudges.iter().filter(|nudge| !is_asked(nudge, wave, rollout_context.now)).map(|nudge| nudge.member);
    unasked.chain(look.gates.iter().filter(|gate| gate.held).map(|gate| gate.member))
}

/// What may be applied now: nothing of a later member or stage before what comes first is ready.
fn applicable<'a>(
    rollout_context: &RolloutContext<'_>,
    number: usize,
    wave: &WaveStatus,
    look: &'a WaveLook,
    turn: usize,
) -> impl Iterator<Item = &'a Due> {
    let concurrent = rollout_context.spec.waves[number].parallelism == Parallelism::Concurrent;
    let steered = unsteered(rollout_context, wave, look).next().is_none();
    look.due.iter().filter(move |due| {
        let Some((member, stage)) = look.frontier else { return true };
        let of_member = concurrent || due.member == member;
        let waits_for_all = due.stage == Stage::After && (stage != Stage::After || !steered);
        due.member <= turn && !waits_for_all && !(of_member && stage.is_awaited() && due.stage > stage)
    })
}

/// Whether what comes before the members is not ready yet.
fn waits_for_a_hook(look: &WaveLook) -> bool {
    look.frontier.is_some_and(|(_, stage)| stage == Stage::Before)
}

fn kind_of(due: &Due) -> WrittenKind {
    let resource = &due.wanted.apply.resource;
    (resource.api_version.clone(), resource.kind.clone())
}

/// Members that have not been asked since the wave began, with their turn where that was refused before.
fn nudges<'a>(
    rollout_context: &'a RolloutContext<'_>,
    wave: &'a WaveStatus,
    look: &'a WaveLook,
    turn: usize,
) -> impl Iterator<Item = (Option<u64>, Write)> + 'a {
    let may_begin = move |nudge: &&NudgeSeen| nudge.member <= turn && !waits_for_a_hook(look);
    let unasked = look.nudges.iter().filter(may_begin).filter(|nudge| !is_asked(nudge, wave, rollout_context.now));
    unasked.map(|nudge| {
        let annotations = BTreeMap::from([(FLUX_REQUEST.to_owned(), request(wave))]);
        (nudge.refused_at, Write::Annotate { target: nudge.target.clone(), annotations })
    })
}

/// Members that are to be suspended, or no longer.
fn gates<'a>(
    rollout_context: &'a RolloutContext<'_>,
    wave: &'a WaveStatus,
    look: &'a WaveLook,
    turn: usize,
) -> impl Iterator<Item = Write> + 'a {
    let has_started = rollout_context.same_rollout && wave.started_at.is_some() && !waits_for_a_hook(look);
    let hold = is_held_back(wave);
    let may_begin = move |member| wave.phase == WavePhase::Skipped || (has_started && member <= turn);
    // What is to be held is written down first, so that it is given back in any case.
    let recorded = |gate: &GateSeen| is_recorded(rollout_context.old, gate);
    let wanted =
        look.gates.iter().filter(move |gate| if gate.held { may_begin(gate.member) } else { hold && recorded(gate) });
    wanted.map(move |gate| Write::Claim {
        target: gate.target.clone(),
        fields: if hold { json!({ "spec": { "suspend": true } }) } else { json!({}) },
    })
}

/// The kinds of what the plan applies or has applied, with counts.
pub(super) fn inventory(old: &WavePlanStatus, seen: &Observed) -> Vec<InventoryKind> {
    let count = |api_version: &str, kind: &str| {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let of_kind = seen.look.counts.iter().find(|(counted, _)| counted.group == group && counted.kind == kind);
        of_kind.map_or(0, |(_, count)| *count)
    };
    let recorded = old.inventory.iter().map(|kind| (kind.api_version.clone(), kind.kind.clone()));
    // A kind goes from the record only when it is certain that nothing of it is left.
    let is_left = |written: &WrittenKind| !seen.look.complete || count(&written.0, &written.1) > 0;
    let kept = recorded.filter(is_left).collect::<Vec<_>>();
    let kinds: BTreeSet<WrittenKind> = seen.look.applied_kinds.iter().cloned().chain(kept).collect();
    // In one version of a kind the objects of all are found: one that is served no more is not needed beside it.
    let found = kinds.difference(&seen.unserved).map(group_kind).collect::<BTreeSet<_>>();
    let is_needed = |kind: &&WrittenKind| !seen.unserved.contains(*kind) || !found.contains(&group_kind(kind));
    kinds
        .iter()
        .filter(is_needed)
        .cloned()
        .map(|(api_version, kind)| InventoryKind { count: count(&api_version, &kind), api_version, kind })
        .collect()
}

/// What the plan applied and no longer has goes when every wave is published as through, and only if all is known.
fn prune(
    plan: &WavePlan,
    seen: &Observed,
    rollout_context: &RolloutContext<'_>,
    waves: &[WaveStatus],
) -> (Vec<Write>, Option<String>) {
    let settings = &plan.spec.prune;
    let published = rollout_context.same_rollout
        && rollout_context.old.rollout.as_ref().is_some_and(|rollout| rollout.finished_at.is_some());
    let through = waves.iter().all(|wave| wave.phase == WavePhase::Ready);
    let certain = seen.look.complete && seen.denied.is_empty();
    if !settings.enabled || !published || !through || !certain {
        return (Vec::new(), None);
    }
    let limit = usize::try_from(settings.limit).unwrap_or_default();
    let count = seen.look.orphan_count;
    if count > limit {
        let held = format!(
            "{count} objects are no longer in the plan, which is more than prune.limit ({limit}): none was deleted. Raise the limit if they are to go"
        );
        return (Vec::new(), Some(held));
    }
    let kept: Vec<&OwnedSeen> = seen.look.kept.iter().collect();
    let held = (!kept.is_empty()).then(|| kept_words(&kept, seen.look.kept_count));
    (reverse(&seen.look.orphans.iter().collect::<Vec<_>>()), held)
}

/// What stays, of which these are the first.
pub(super) fn kept_words(kept: &[&OwnedSeen], count: usize) -> String {
    let names: Vec<String> = kept.iter().take(3).map(|orphan| orphan.target.to_string()).collect();
    let more = if count > names.len() { format!(" and {} more", count - names.len()) } else { String::new() };
    format!(
        "{}{more} would take data along and stay; annotate them with {}=true, or list their kinds in spec.prune.confirmedKinds, if they are to go",
        names.join(", "),
        crate::api::v1alpha1::CONFIRM_ANNOTATION
    )
}

/// Deletes in the reverse order of application: of the last stage that is left, what is not already going.
pub(super) fn reverse(objects: &[&OwnedSeen]) -> Vec<Write> {
    let last: Option<Stage> = objects.iter().map(|object| object.stage).max();
    let now = objects.iter().filter(|object| Some(object.stage) == last && !object.deleting);
    now.map(|object| delete(object.target.clone(), Dependants::Background)).collect()
}

fn delete(target: opcore::writes::Target, dependants: Dependants) -> Write {
    Write::Delete(Delete { target, resource_version: None, dependants })
}
