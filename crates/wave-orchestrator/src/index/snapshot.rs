//! What a decision needs to know, at the cost of a few items per wave.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use kube::api::ApiResource;
use opcore::writes::Target;

use super::item_state::{ItemState, Owned};
use super::wave_counts::WaveCounts;
use super::{Counts, Index, Place, Plan, PlanName};
use crate::api::v1alpha1::{NotReady, ProtectedKind};
use crate::render::Stage;
use crate::subscription::{AppliedKinds, Item, ObjectId, Subject, Task, Wanted, WaveSubscription};

/// How many objects of a wave are named in a status.
const NAMED: usize = 5;
/// How many objects of a wave are applied in one pass.
const BATCH: usize = 100;
/// Longer messages make a status with many of them too large.
const LONGEST_MESSAGE: usize = 400;

/// What is known of a plan's objects.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// One per wave of the spec, in its order.
    pub waves: Vec<WaveSnapshot>,
    /// Objects that the plan applied, no longer contains, and may prune; the first of them.
    pub orphans: Vec<OwnedObject>,
    /// How many such objects there are.
    pub orphan_count: usize,
    /// Objects that the plan applied and no longer contains, but that stay because nobody confirmed their deletion; the
    /// first of them.
    pub kept: Vec<OwnedObject>,
    /// How many such objects there are.
    pub kept_count: usize,
    /// How many objects of each kind the plan has applied, by wave.
    pub counts: Arc<Counts>,
    /// Everything that the plan applied; only for a plan that is being deleted.
    pub owned: Vec<OwnedObject>,
    /// The kinds of the objects that the plan applies, as it writes them, each with the waves that do so.
    pub applied_kinds: Arc<AppliedKinds>,
    /// Objects that are recorded as held and that no wave refers to any more.
    pub held: Vec<ObservedGate>,
    /// Whether everything that can be known is known.
    pub complete: bool,
}

/// An object that the plan applied.
#[derive(Clone, Debug)]
pub struct OwnedObject {
    /// The exact object.
    pub target: Target,
    /// The wave that applied it.
    pub wave: String,
    /// The stage of its wave in which it was applied.
    pub stage: Stage,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The kind, if it is protected and nobody confirmed the deletion of this object.
    pub protected: Option<ProtectedKind>,
}

/// What is known of a wave's objects.
#[derive(Clone, Debug, Default)]
pub struct WaveSnapshot {
    /// Why it cannot be carried out, if so.
    pub problem: Option<String>,
    /// How many items it has.
    pub total: usize,
    /// How many of them were not read yet.
    pub unread: usize,
    /// How many of those cannot be read now.
    pub unreachable: usize,
    /// How many of them are ready.
    pub ready: usize,
    /// How many of them failed.
    pub failed: usize,
    /// The first that are not ready, failed ones first.
    pub not_ready: Vec<NotReady>,
    /// The first that must be applied, in order. Those that were refused before come last.
    pub due: Vec<Due>,
    /// The member and stage of the first that is not ready.
    pub frontier: Option<(usize, Stage)>,
    /// Members to ask to reconcile when the wave starts: the first of those with the same last request.
    pub nudges: Vec<ObservedNudge>,
    /// How many of all these have yet to answer, and are not ready only because of that.
    pub unanswered: usize,
    /// Members that are suspended until the wave starts.
    pub gates: Vec<ObservedGate>,
    /// Our Jobs that failed, and when they were created: a retry must recreate them.
    pub failed_jobs: Vec<(Target, Option<Timestamp>)>,
    /// Jobs that were complete in this rollout, whether they still exist or not.
    pub completed: Vec<String>,
    /// When time alone changes a verdict.
    pub recheck_at: Option<Timestamp>,
}

/// An object to apply.
#[derive(Clone, Debug)]
pub struct Due {
    /// The member that it belongs to.
    pub member: usize,
    /// The stage of its member or its wave in which it starts.
    pub stage: Stage,
    /// What to apply.
    pub wanted: Arc<Wanted>,
    /// Its turn when it was last refused, if so.
    pub refused_at: Option<u64>,
}

/// A member to ask to reconcile when its wave starts.
#[derive(Clone, Debug)]
pub struct ObservedNudge {
    /// The member.
    pub member: usize,
    /// The exact object.
    pub target: Target,
    /// The last request.
    pub requested: Option<String>,
    /// Its turn when that was last refused, if so.
    pub refused_at: Option<u64>,
}

/// A member that is suspended until its wave starts.
#[derive(Clone, Debug)]
pub struct ObservedGate {
    /// The member.
    pub member: usize,
    /// The exact object.
    pub target: Target,
    /// Whether we hold it suspended.
    pub held: bool,
}

/// What a look must return.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Whether to list everything that the plan applied.
    pub everything: bool,
    /// The most objects to list of those that the plan no longer contains.
    pub most: usize,
    /// Protected kinds that may be deleted nevertheless.
    pub confirmed: &'a [ProtectedKind],
    /// Since when requests to reconcile count, by wave number: members that were asked since then are not listed
    /// individually.
    pub asked_since: &'a [Option<Timestamp>],
    /// The time.
    pub now: Timestamp,
}

/// Which requests to reconcile count for a wave.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Requests since the wave began, if it has.
    pub since: Option<Timestamp>,
    /// Requests with a future time do not count, because they would count too long.
    pub now: Timestamp,
}

impl Asked {
    /// Whether this request counts.
    pub fn by(self, request: Option<&str>) -> bool {
        let (Some(request), Some(since)) = (request, self.since) else { return false };
        let is_recent = |at: Timestamp| since <= at && at <= self.now;
        request == since.to_string() || request.parse().is_ok_and(is_recent)
    }
}

impl Index {
    /// What is known of a plan's objects, as far as requested.
    pub fn snapshot(&self, name: &PlanName, asking: &Asking<'_>) -> Snapshot {
        let Some(plan) = self.plans.get(name) else { return Snapshot::default() };
        let list = |id: &ObjectId| {
            let owned = plan.owned.get(id)?;
            Some(owned_object(id, owned, plan.subscription.resource(&id.kind)?))
        };
        let is_kept = |id: &&ObjectId| {
            let kind = ProtectedKind::of(&id.kind.group, &id.kind.kind).filter(|kind| !asking.confirmed.contains(kind));
            kind.is_some() && plan.owned.get(id).is_none_or(|owned| !owned.confirmed)
        };
        let (kept, orphans): (Vec<_>, Vec<_>) = plan.orphans.iter().partition(is_kept);
        let asked = |number: usize| Asked { since: asking.asked_since.get(number).copied().flatten(), now: asking.now };
        let waves = plan.subscription.waves.iter().zip(&plan.counts_of_waves).enumerate();
        Snapshot {
            waves: waves.map(|(number, (wave, wave_counts))| wave_snapshot(wave, wave_counts, asked(number))).collect(),
            orphan_count: orphans.len(),
            orphans: orphans.into_iter().take(asking.most).filter_map(list).collect(),
            kept_count: kept.len(),
            kept: kept.into_iter().take(asking.most).filter_map(list).collect(),
            counts: plan.counts.clone(),
            owned: if asking.everything { plan.owned.keys().filter_map(list).collect() } else { Vec::new() },
            applied_kinds: plan.subscription.applied_kinds.clone(),
            held: self.held(name, plan),
            complete: plan.subscription.unknown().next().is_none() && self.is_synced(plan.subscription.scopes.iter()),
        }
    }
}

impl Index {
    /// An object that another plan gates by now is left to that plan to release: both hold it in the name of this
    /// operator.
    fn held(&self, name: &PlanName, plan: &Plan) -> Vec<ObservedGate> {
        let gates_it = |place: &Place, id: &ObjectId| {
            place.plan != *name
                && self.plans.get(&place.plan).is_some_and(|other| other.subscription.gated.contains(id))
        };
        let Some(wave_counts) = plan.counts_of_waves.last() else { return Vec::new() };
        let gates = gates(&plan.subscription.held, wave_counts).filter(|(item, _)| match &item.subject {
            Subject::One(id) => !self.by_object.get(id).into_iter().flatten().any(|place| gates_it(place, id)),
            Subject::Selected(_) => true,
        });
        gates.map(|(_, gate)| gate).collect()
    }
}

fn wave_snapshot(wave: &WaveSubscription, wave_counts: &WaveCounts, asked: Asked) -> WaveSnapshot {
    let item = |number: &usize| wave.items.get(*number);
    let slow = wave_counts.unready.difference(&wave_counts.failed);
    WaveSnapshot {
        problem: wave.problem.clone(),
        total: wave_counts.total(),
        unread: wave_counts.unread.len(),
        unreachable: wave_counts.unreachable.len(),
        ready: wave_counts.total() - wave_counts.unready.len(),
        failed: wave_counts.failed.len(),
        not_ready: wave_counts
            .failed
            .iter()
            .chain(slow)
            .take(NAMED)
            .filter_map(|n| not_ready(item(n)?, wave_counts, *n))
            .collect(),
        due: due_items(wave, wave_counts),
        frontier: wave_counts.unready.first().and_then(item).map(|item| (item.member, item.stage)),
        nudges: nudges(wave, wave_counts, asked),
        unanswered: wave_counts.unanswered.len(),
        gates: gates(wave, wave_counts).map(|(_, gate)| gate).collect(),
        failed_jobs: wave_counts.failed.iter().filter_map(|n| failed_job(item(n)?, wave_counts, *n)).collect(),
        completed: wave_counts.completed.iter().filter_map(|n| Some(item(n)?.subject.to_string())).collect(),
        recheck_at: wave_counts.rechecks.first().map(|(at, _)| *at),
    }
}

fn owned_object(id: &ObjectId, owned: &Owned, resource: ApiResource) -> OwnedObject {
    let protected = ProtectedKind::of(&id.kind.group, &id.kind.kind).filter(|_| !owned.confirmed);
    OwnedObject {
        target: Target { resource, namespace: id.namespace.clone(), name: id.name.clone(), uid: owned.uid.clone() },
        wave: owned.wave.clone(),
        stage: Stage::of(&id.kind.group, &id.kind.kind),
        deleting: owned.deleting,
        protected,
    }
}

/// Objects that were refused before take no place from others. Their turn comes after all that were refused before
/// them.
fn due_items(wave: &WaveSubscription, wave_counts: &WaveCounts) -> Vec<Due> {
    let refused_at = |number: usize| wave_counts.known(number).and_then(|known| known.refusal.as_ref()).map(|r| r.turn);
    let fresh = wave_counts.due.iter().copied().filter(|number| refused_at(*number).is_none()).take(BATCH);
    let refused = wave_counts.refused.iter().map(|(_, number)| *number).take(BATCH);
    fresh.chain(refused).filter_map(|number| due(wave.items.get(number)?, refused_at(number))).collect()
}

fn due(item: &Item, refused_at: Option<u64>) -> Option<Due> {
    match &item.task {
        Task::Apply(wanted) => Some(Due { member: item.member, stage: item.stage, wanted: wanted.clone(), refused_at }),
        _ => None,
    }
}

fn not_ready(item: &Item, wave_counts: &WaveCounts, number: usize) -> Option<NotReady> {
    let known = wave_counts.known(number)?;
    let object = item.subject.to_string();
    let (reason, message) = match (&known.refusal, &known.state) {
        (Some(refused), _) => (refused.reason.clone(), refused.message.clone()),
        (None, ItemState::Failed { reason, message } | ItemState::Waiting { reason, message }) => {
            (reason.clone(), message.clone())
        }
        (None, ItemState::Unread) if known.unreachable.is_some() => known
            .unreachable
            .as_ref()
            .map(|unreachable| (unreachable.reason.clone(), format!("{object}: {}.", unreachable.message)))?,
        (None, ItemState::Unread) => ("NotYetRead".to_owned(), format!("{object} has not been read yet.")),
        (None, ItemState::NotServed) => {
            let words = "the cluster does not serve this kind yet; the object is processed as soon as the CustomResourceDefinition exists";
            ("KindNotServed".to_owned(), format!("{object}: {words}."))
        }
        (None, ItemState::Missing) => match item.task {
            Task::Apply(_) => ("NotApplied".to_owned(), format!("{object} is about to be applied.")),
            _ => ("NotFound".to_owned(), format!("{object} does not exist.")),
        },
        (None, ItemState::Ready) => ("NotApplied".to_owned(), format!("{object} is about to be updated.")),
    };
    let message = opcore::conditions::shortened(&message, LONGEST_MESSAGE);
    Some(NotReady { object, reason, message, failed: wave_counts.failed.contains(&number) })
}

fn gates<'a>(
    wave: &'a WaveSubscription,
    wave_counts: &'a WaveCounts,
) -> impl Iterator<Item = (&'a Item, ObservedGate)> {
    wave_counts.gates.iter().filter_map(|number| {
        let (item, known) = (wave.items.get(*number)?, wave_counts.known(*number)?);
        Some((item, ObservedGate { member: item.member, target: target(item, known)?, held: known.held }))
    })
}

/// Of the members with the same last request, the first; a single one stands for all that were asked already. Members
/// whose request was refused before take no place from others.
fn nudges(wave: &WaveSubscription, wave_counts: &WaveCounts, asked: Asked) -> Vec<ObservedNudge> {
    let is_fresh = |number: &usize| wave_counts.known(*number).is_some_and(|known| known.refusal.is_none());
    let fresh = wave_counts.asked.iter().flat_map(|(requested, numbers)| {
        let most = if asked.by(requested.as_deref()) { 1 } else { BATCH };
        numbers.iter().copied().filter(is_fresh).take(most)
    });
    let refused = wave_counts.refused_nudges.iter().map(|(_, number)| *number).take(BATCH);
    let nudge = |number: usize| {
        let (item, known) = (wave.items.get(number)?, wave_counts.known(number)?);
        Some(ObservedNudge {
            member: item.member,
            target: target(item, known)?,
            requested: known.requested.clone(),
            refused_at: known.refusal.as_ref().map(|refused| refused.turn),
        })
    };
    // In the order in which they start.
    fresh.chain(refused).collect::<BTreeSet<_>>().into_iter().filter_map(nudge).collect()
}

fn failed_job(item: &Item, wave_counts: &WaveCounts, number: usize) -> Option<(Target, Option<Timestamp>)> {
    match (&item.task, &item.subject) {
        (Task::Apply(_), Subject::One(id)) if id.kind.kind == "Job" && id.kind.group == "batch" => {
            let known = wave_counts.known(number)?;
            Some((target(item, known)?, known.created))
        }
        _ => None,
    }
}

fn target(item: &Item, known: &super::item_state::Known) -> Option<Target> {
    let (Subject::One(id), Some(scope)) = (&item.subject, &item.scope) else { return None };
    Some(Target {
        resource: scope.resource(),
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        uid: known.uid.clone()?,
    })
}
