//! The items of a wave, counted as their verdicts change.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use opcore::readiness::Fence;
use serde_json::Value;

use super::item_state::{Known, Refused, Unreachable};
use crate::subscription::{Item, ObjectId, ScopeId, Subject};

/// Whether an event changed anything that requires a new decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tallied {
    Changed,
    Same,
}

/// What is known of the items of a wave, and the counts that follow from it.
#[derive(Debug, Default)]
pub(super) struct WaveCounts {
    known: Vec<Known>,
    /// Items that were not read yet.
    pub(super) unread: BTreeSet<usize>,
    /// Those of them that cannot be read now.
    pub(super) unreachable: BTreeSet<usize>,
    /// Items that are not ready, in the order in which they start.
    pub(super) unready: BTreeSet<usize>,
    pub(super) failed: BTreeSet<usize>,
    /// Jobs that were complete in this rollout.
    pub(super) completed: BTreeSet<usize>,
    /// Items that must be applied.
    pub(super) due: BTreeSet<usize>,
    /// Those of them that were refused, ordered by turn, the longest ago first.
    pub(super) refused: BTreeSet<(u64, usize)>,
    /// Items whose verdict changes with time alone.
    pub(super) rechecks: BTreeSet<(Timestamp, usize)>,
    /// Items that are suspended until the wave starts.
    pub(super) gates: Vec<usize>,
    /// Items to ask to reconcile, by their last request.
    pub(super) asked: BTreeMap<Option<String>, BTreeSet<usize>>,
    /// Those of them whose request was refused, ordered by turn, the longest ago first.
    pub(super) refused_nudges: BTreeSet<(u64, usize)>,
    /// Those of them that have yet to answer, and are not ready only because of that.
    pub(super) unanswered: BTreeSet<usize>,
}

impl WaveCounts {
    pub(super) fn push(&mut self, item: &Item, known: Known) {
        let number = self.known.len();
        self.known.push(known);
        self.count(number, item);
        if item.is_gate() {
            self.gates.push(number);
        }
    }

    /// Recounts the items that depend on others, once all are known.
    pub(super) fn count_twins(&mut self, items: &[Item]) {
        for (number, item) in items.iter().enumerate().filter(|(_, item)| !item.twins.is_empty()) {
            self.count(number, item);
        }
    }

    pub(super) fn into_known(self) -> Vec<Known> {
        self.known
    }

    pub(super) fn known(&self, item: usize) -> Option<&Known> {
        self.known.get(item)
    }

    pub(super) fn total(&self) -> usize {
        self.known.len()
    }

    pub(super) fn observed(
        &mut self,
        number: usize,
        items: &[Item],
        id: &ObjectId,
        object: &Value,
        operator: &str,
        now: Timestamp,
    ) -> Tallied {
        self.change(number, items, |known, item| known.observed(item, id, object, operator, now))
    }

    pub(super) fn gone(&mut self, number: usize, items: &[Item], id: &ObjectId) -> Tallied {
        self.change(number, items, |known, item| known.gone(item, id))
    }

    pub(super) fn synced(&mut self, items: &[Item], scope: &ScopeId) {
        for (number, _) in items.iter().enumerate().filter(|(_, item)| item.scope.as_ref() == Some(scope)) {
            self.change(number, items, |known, _| {
                known.synced();
                true
            });
        }
    }

    /// Items that were read already keep their state, so this costs nothing.
    pub(super) fn troubled(&mut self, items: &[Item], scope: &ScopeId, unreachable: Option<&Unreachable>) {
        for number in self.unread.clone() {
            if items.get(number).is_some_and(|item| item.scope.as_ref() == Some(scope)) {
                self.change(number, items, |known, _| {
                    known.unreachable = unreachable.cloned();
                    true
                });
            }
        }
    }

    /// The status that `object` had when it was written is not trusted.
    pub(super) fn fence(&mut self, number: usize, object: &Value, fence: Fence) {
        if let Some(known) = self.known.get_mut(number).filter(|known| !known.knows_newer(object)) {
            known.fence(fence);
        }
    }

    pub(super) fn accepted(&mut self, number: usize, item: &Item, object: &Value) {
        if let Some(known) = self.known.get_mut(number) {
            known.accepted(item, object);
        }
    }

    pub(super) fn refused(&mut self, number: usize, items: &[Item], refused: &Refused) {
        self.change(number, items, |known, _| {
            known.refusal = Some(refused.clone());
            false
        });
    }

    pub(super) fn recheck(&mut self, items: &[Item], operator: &str, now: Timestamp) {
        while let Some((at, number)) = self.rechecks.first().copied()
            && at <= now
        {
            self.rechecks.remove(&(at, number));
            let (Some(item), Some((_, object))) =
                (items.get(number), self.known.get(number).and_then(|k| k.recheck.clone()))
            else {
                continue;
            };
            if let Subject::One(id) = &item.subject {
                self.observed(number, items, id, &object, operator, now);
            }
        }
    }

    fn change(&mut self, number: usize, items: &[Item], change: impl FnOnce(&mut Known, &Item) -> bool) -> Tallied {
        let (Some(known), Some(item)) = (self.known.get_mut(number), items.get(number)) else { return Tallied::Same };
        if let Some((at, _)) = &known.recheck {
            self.rechecks.remove(&(*at, number));
        }
        if let Some(refused) = &known.refusal {
            self.refused.remove(&(refused.turn, number));
            self.refused_nudges.remove(&(refused.turn, number));
        }
        if item.is_nudge()
            && let Some(numbers) = self.asked.get_mut(&known.requested)
        {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.asked.remove(&known.requested);
            }
        }
        let changed = change(known, item);
        self.count(number, item);
        for &twin in &item.twins {
            if let Some(item) = items.get(twin) {
                self.count(twin, item);
            }
        }
        if changed { Tallied::Changed } else { Tallied::Same }
    }

    fn count(&mut self, number: usize, item: &Item) {
        let Some(known) = self.known.get(number) else { return };
        set(&mut self.unread, number, known.is_unread());
        set(&mut self.unreachable, number, known.is_unread() && known.unreachable.is_some());
        // While an object is still to be applied, its state says nothing about the desired one.
        let early = item.twins.iter().any(|twin| self.due.contains(twin));
        set(&mut self.unready, number, early || !known.is_ready(item));
        set(&mut self.failed, number, !early && known.state.is_failed() && known.is_current(item));
        set(&mut self.completed, number, known.completed && known.is_current(item));
        set(&mut self.due, number, known.is_due(item));
        if let Some((at, _)) = &known.recheck {
            self.rechecks.insert((*at, number));
        }
        if let Some(refused) = known.refusal.as_ref().filter(|_| known.is_due(item)) {
            self.refused.insert((refused.turn, number));
        }
        set(&mut self.unanswered, number, item.is_nudge() && known.has_yet_to_answer());
        // An object that does not exist cannot be asked to reconcile.
        if item.is_nudge() && known.uid.is_some() {
            self.asked.entry(known.requested.clone()).or_default().insert(number);
            if let Some(refused) = &known.refusal {
                self.refused_nudges.insert((refused.turn, number));
            }
        }
    }
}

fn set(numbers: &mut BTreeSet<usize>, number: usize, is_in: bool) {
    if is_in {
        numbers.insert(number);
    } else {
        numbers.remove(&number);
    }
}
