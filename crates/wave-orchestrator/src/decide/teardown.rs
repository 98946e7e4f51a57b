//! Deletion of a plan: its objects are deleted wave by wave, the last wave first.

use std::collections::BTreeSet;

use jiff::Timestamp;
use opcore::DecisionOf;
use opcore::finalizer::{self, Progress, Step, StepStatus, Teardown, TeardownState, step};
use opcore::operator::Note;

use super::claims::Claims;
use super::gates::release;
use super::graph::graph;
use super::writes::{kept_words, reverse};
use crate::api::v1alpha1::{DeletionPolicy, InventoryKind, PlanPhase, WavePlan, WavePlanStatus};
use crate::controller::WavePlans;
use crate::index::{ObservedGate, OwnedObject};
use crate::observe::{Observed, is_unrecorded};
use crate::render::Stage;
use crate::subscription::GroupKind;

/// The step for objects of waves that the spec no longer has. No wave can have this name.
const REMOVED: &str = "Removed waves";
/// The step that releases suspended objects. No wave can have this name.
const GATES: &str = "Gates";

/// Decides how a plan that is being deleted is taken down.
pub fn tear_down(plan: &WavePlan, observed: &Observed, now: Timestamp) -> DecisionOf<WavePlans> {
    if let Some(decision) = super::claims::subscription(plan, observed) {
        return decision;
    }
    let teardown_context = TeardownContext::of(plan, observed);
    let status = WavePlanStatus {
        phase: Some(PlanPhase::Deleting),
        current: None,
        eta: None,
        ..plan.status.clone().unwrap_or_default()
    };
    let steps = Teardown::graph(teardown_context.steps());
    let (mut decision, progress) =
        finalizer::pass::<_, Claims>(plan, status, steps, |step| teardown_context.step_status(step), now);
    let freed = teardown_context.gates().filter(|_| progress.acts(GATES)).map(release);
    let deletes = progress
        .act
        .iter()
        .flat_map(|step| reverse(&teardown_context.of_step(step), teardown_context.last_unknown(step)));
    // One stage: a refused delete in one wave must not delay the others.
    decision.writes.together(freed.chain(deletes).collect::<Vec<_>>());
    decision.notes.extend(teardown_context.last_note(&progress));
    decision
}

/// The state of a teardown.
struct TeardownContext<'a> {
    plan: &'a WavePlan,
    observed: &'a Observed,
    waves: BTreeSet<&'a str>,
    /// The objects to delete.
    going: Vec<&'a OwnedObject>,
    /// The objects that stay, because deleting them would delete data.
    kept: Vec<&'a OwnedObject>,
}

impl<'a> TeardownContext<'a> {
    fn of(plan: &'a WavePlan, observed: &'a Observed) -> Self {
        let confirmed = &plan.spec.prune.confirmed_kinds;
        let lost = |object: &OwnedObject| {
            let resource = &object.target.resource;
            observed.lost_kinds.iter().any(|kind| kind.group == resource.group && kind.kind == resource.kind)
        };
        let owned = observed.snapshot.owned.iter().filter(|object| !lost(object));
        let stays = |object: &&OwnedObject| {
            plan.spec.deletion_policy == DeletionPolicy::Orphan
                || object.protected.is_some_and(|kind| !confirmed.contains(&kind))
        };
        let (kept, going) = owned.partition(stays);
        Self { plan, observed, waves: plan.spec.waves.iter().map(|wave| wave.name.as_str()).collect(), going, kept }
    }

    /// The objects that are held suspended.
    fn gates(&self) -> impl Iterator<Item = &'a ObservedGate> {
        self.observed.snapshot.held.iter().filter(|gate| gate.held)
    }

    /// One step per wave, after the waves that depend on it; waves that wait for each other come in any order.
    fn steps(&self) -> Vec<Step> {
        let graph = graph(&self.plan.spec.waves);
        let mut steps = vec![step(GATES), step(REMOVED).after([GATES])];
        let mut named = BTreeSet::new();
        for (number, wave) in self.plan.spec.waves.iter().enumerate() {
            if !named.insert(&wave.name) {
                continue;
            }
            let sound = |number: &usize| !graph.broken.contains_key(number);
            let dependants = (0..graph.before.len())
                .filter(|other| sound(other) && sound(&number) && graph.before[*other].contains(&number))
                .map(|other| self.plan.spec.waves[other].name.clone());
            steps.push(step(wave.name.clone()).after([REMOVED.to_owned()]).after(dependants));
        }
        steps
    }

    fn of_step(&self, step: &str) -> Vec<&'a OwnedObject> {
        let belongs = |object: &&&OwnedObject| match step {
            REMOVED => !self.waves.contains(object.wave.as_str()),
            wave => object.wave == wave,
        };
        self.going.iter().filter(belongs).copied().collect()
    }

    /// The kinds of which a step may have objects that are not known, each with the reason.
    fn unknown(&self, step: &str) -> impl Iterator<Item = (GroupKind, &'a String)> {
        let is_removed = |wave: &String| !self.waves.contains(wave.as_str());
        let concerns = move |kind: &InventoryKind| match step {
            REMOVED => kind.waves.is_empty() || kind.waves.iter().any(is_removed),
            wave => kind.may_be_of(wave),
        };
        // What stays need not be known.
        let delete = self.plan.spec.deletion_policy == DeletionPolicy::Delete;
        let inventory = self.plan.status.iter().flat_map(|status| &status.inventory).filter(move |_| delete);
        let kinds = inventory.filter(move |kind| concerns(kind));
        let recorded = kinds.map(|kind| GroupKind::written(&kind.api_version, &kind.kind)).filter_map(|kind| {
            let why = self.observed.incomplete.get(&kind)?;
            Some((kind, why))
        });
        // If nothing is recorded, each wave may have objects of each kind.
        let unrecorded = delete && is_unrecorded(self.plan);
        let others = self.observed.incomplete.iter().filter(move |_| unrecorded).map(|(kind, why)| (kind.clone(), why));
        recorded.chain(others)
    }

    /// The last stage of which a step may have objects that are not known.
    fn last_unknown(&self, step: &str) -> Option<Stage> {
        self.unknown(step).map(|(kind, _)| Stage::of(&kind.group, &kind.kind)).max()
    }

    fn step_status(&self, step: &str) -> StepStatus {
        let pending = |reason: String| StepStatus::Pending { reason, retry: None };
        if step == GATES {
            let names: Vec<String> = self.gates().map(|gate| gate.target.to_string()).collect();
            return match &self.observed.incomplete_gates {
                Some(why) => pending(format!("cannot determine which objects are still suspended: {why}")),
                None if names.is_empty() => StepStatus::Done,
                None => pending(format!("{} are still suspended", names.join(", "))),
            };
        }
        if let Some((kind, why)) = self.unknown(step).next() {
            return pending(format!("cannot determine which objects of kind {} are left: {why}", kind.kind));
        }
        let left = self.of_step(step);
        match left.as_slice() {
            [] => StepStatus::Done,
            [only] => pending(format!("{} still exists", only.target)),
            [first, ..] => pending(format!("{} and {} more still exist", first.target, left.len() - 1)),
        }
    }

    /// The plan itself will soon be gone, but an Event outlives it.
    fn last_note(&self, progress: &Progress) -> Option<Note> {
        let delete = self.plan.spec.deletion_policy == DeletionPolicy::Delete;
        if progress.state != TeardownState::Released || self.kept.is_empty() || !delete {
            return None;
        }
        let message = format!("{} is torn down; {}.", super::words(self.plan), kept_words(&self.kept, self.kept.len()));
        Some(Note::warning("Kept", message))
    }
}
