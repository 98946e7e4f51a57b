//! What is known of the objects that plans mention: not the objects, but their state for each plan.
//!
//! An event is turned into a verdict when it arrives, health checks included, and the verdict is counted. A decision
//! then finds its input ready: how many are ready, which are not, which must be applied. The cost of an event is
//! proportional to the number of items that it concerns, and the cost of a look to the number of waves, however many
//! objects there are.
//!
//! Pure memory: no client, no task, no clock.

mod item_state;
mod snapshot;
mod wave_counts;

pub(crate) use item_state::FLUX_REQUEST;
pub use item_state::{ItemState, Owned};
pub use snapshot::{Asked, Asking, Due, ObservedGate, ObservedNudge, OwnedObject, Snapshot, WaveSnapshot};

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use opcore::act::{Refusal, RefusalReason};
use opcore::ownership::OWNER_LABEL;
use opcore::readiness::Fence;
use opcore::watch::registry::{Trouble, TroubleKind};
use serde_json::Value;

use crate::api::v1alpha1::{CONFIRM_ANNOTATION, WAVE_LABEL};
use crate::subscription::{GroupKind, ObjectId, PlanSubscription, ScopeId, Subject, Task, is_ours};
use item_state::{Known, Refused, Unreachable};
use wave_counts::{Tallied, WaveCounts};

/// The name of a plan.
pub type PlanName = Arc<str>;

/// What is known of the objects that plans mention.
#[derive(Debug)]
pub struct Index {
    /// Our own name among the field managers of an object.
    operator: String,
    plans: HashMap<PlanName, Plan>,
    /// Which items an object concerns.
    by_object: HashMap<ObjectId, Vec<Place>>,
    /// Which selections by labels may contain objects of a kind.
    by_kind: HashMap<GroupKind, Vec<Place>>,
    /// Which plans take their manifests from an object.
    by_source: HashMap<ObjectId, Vec<PlanName>>,
    by_uid: HashMap<String, PlanName>,
    /// The plan for which an object was applied.
    owners: HashMap<ObjectId, PlanName>,
    /// Objects that this operator applied for plans that are not known (yet).
    strays: HashMap<String, HashMap<ObjectId, Owned>>,
    /// The watches that have reported everything that exists.
    synced: HashSet<ScopeId>,
    /// The watches that must be reopened, and are not yet: their reports until then were not meant for all plans.
    awaited: HashSet<ScopeId>,
    /// What prevents watches from reporting.
    troubles: HashMap<ScopeId, Unreachable>,
    /// For reopened watches: what they reported before, and have not reported again yet.
    unconfirmed: HashMap<ScopeId, HashSet<ObjectId>>,
    /// How many writes were refused so far.
    turns: u64,
}

/// The position of an item.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    plan: PlanName,
    /// The number of its group: of its wave, or of the other held objects.
    wave: usize,
    item: usize,
}

#[derive(Debug, Default)]
struct Plan {
    subscription: Arc<PlanSubscription>,
    /// One per group of items.
    counts_of_waves: Vec<WaveCounts>,
    /// Existing objects that this operator applied for the plan.
    owned: HashMap<ObjectId, Owned>,
    /// Those that the plan no longer contains.
    orphans: BTreeSet<ObjectId>,
    counts: Arc<Counts>,
}

/// How many objects of each kind were applied by each wave.
pub type Counts = BTreeMap<GroupKind, BTreeMap<String, i64>>;

/// Plans to reconcile.
pub type Wake = Vec<PlanName>;

impl Index {
    /// An empty index, for an operator of this name.
    pub fn new(operator: &str) -> Self {
        Self {
            operator: operator.to_owned(),
            plans: HashMap::new(),
            by_object: HashMap::new(),
            by_kind: HashMap::new(),
            by_source: HashMap::new(),
            by_uid: HashMap::new(),
            owners: HashMap::new(),
            strays: HashMap::new(),
            synced: HashSet::new(),
            awaited: HashSet::new(),
            troubles: HashMap::new(),
            unconfirmed: HashMap::new(),
            turns: 0,
        }
    }

    /// Subscribes a plan to these items from now on. What is known of items that it had before is kept.
    ///
    /// `written` names the waves that may have written before this process began; their statuses from before are not
    /// trusted.
    ///
    /// Returns the watches that must be reopened, because they reported an object before the plan was subscribed to it.
    /// Until then they count as watches that have reported nothing.
    pub fn subscribe(
        &mut self,
        name: &PlanName,
        subscription: Arc<PlanSubscription>,
        written: &BTreeSet<String>,
        now: Timestamp,
    ) -> BTreeSet<ScopeId> {
        // A recreated plan of the same name inherits nothing.
        if self.plans.get(name).is_some_and(|old| old.subscription.uid != subscription.uid) {
            self.unsubscribe(name);
        }
        let old = self.unlink(name).unwrap_or_default();
        let mut known: HashMap<String, Known> = HashMap::new();
        for (wave, wave_counts) in old.subscription.groups().zip(old.counts_of_waves) {
            known.extend(wave.items.iter().map(|item| key_of(&wave.name, item)).zip(wave_counts.into_known()));
        }
        let mut plan = Plan { owned: old.owned, counts: old.counts, ..Plan::default() };
        for (id, owned) in self.strays.remove(&subscription.uid).unwrap_or_default() {
            self.owners.insert(id.clone(), name.clone());
            plan.own(id, owned);
        }
        let same_rollout =
            old.subscription.uid == subscription.uid && old.subscription.revision == subscription.revision;
        let mut again = BTreeSet::new();
        for (w, wave) in subscription.groups().enumerate() {
            let mut wave_counts = WaveCounts::default();
            for (i, item) in wave.items.iter().enumerate() {
                let place = Place { plan: name.clone(), wave: w, item: i };
                match &item.subject {
                    Subject::One(id) => self.by_object.entry(id.clone()).or_default().push(place),
                    Subject::Selected(selected) => self.by_kind.entry(selected.kind.clone()).or_default().push(place),
                }
                let mut record = known.remove(&key_of(&wave.name, item)).unwrap_or_else(|| {
                    let mut nothing = Known::default();
                    if written.contains(&wave.name) {
                        nothing.fence_from(now);
                    }
                    nothing
                });
                record.adjust(item);
                if let Some(scope) = &item.scope {
                    record.unreachable = self.troubles.get(scope).cloned();
                }
                if !same_rollout {
                    record.begin_rollout();
                }
                if subscription.completed.contains(&(wave.name.clone(), item.subject.to_string())) {
                    record.recall_completed(item);
                }
                if let Some(scope) = item.scope.as_ref().filter(|scope| self.synced.contains(*scope))
                    && record.is_unread()
                {
                    match item.task {
                        // An object to apply is compared before it is written, so nothing is lost by not knowing it.
                        Task::Apply(_) => record.synced(),
                        _ => drop(again.insert(scope.clone())),
                    }
                }
                wave_counts.push(item, record);
            }
            wave_counts.count_twins(&wave.items);
            plan.counts_of_waves.push(wave_counts);
        }
        for source in &subscription.sources {
            self.by_source.entry(source.clone()).or_default().push(name.clone());
        }
        self.by_uid.insert(subscription.uid.clone(), name.clone());
        plan.subscription = subscription;
        plan.find_orphans();
        self.plans.insert(name.clone(), plan);
        for scope in &again {
            self.synced.remove(scope);
            self.awaited.insert(scope.clone());
        }
        again
    }

    /// Removes a plan that is gone.
    pub fn unsubscribe(&mut self, name: &PlanName) {
        for id in self.unlink(name).into_iter().flat_map(|plan| plan.owned.into_keys()) {
            self.owners.remove(&id);
        }
    }

    fn unlink(&mut self, name: &PlanName) -> Option<Plan> {
        let plan = self.plans.remove(name)?;
        let forget = |places: &mut Vec<Place>| {
            places.retain(|place| place.plan != *name);
            !places.is_empty()
        };
        for item in plan.subscription.groups().flat_map(|wave| &wave.items) {
            match &item.subject {
                Subject::One(id) => {
                    if self.by_object.get_mut(id).is_some_and(|places| !forget(places)) {
                        self.by_object.remove(id);
                    }
                }
                Subject::Selected(selected) => {
                    if self.by_kind.get_mut(&selected.kind).is_some_and(|places| !forget(places)) {
                        self.by_kind.remove(&selected.kind);
                    }
                }
            }
        }
        for source in &plan.subscription.sources {
            if let Some(plans) = self.by_source.get_mut(source) {
                plans.retain(|plan| plan != name);
            }
        }
        self.by_source.retain(|_, plans| !plans.is_empty());
        self.by_uid.remove(&plan.subscription.uid);
        Some(plan)
    }

    /// An object exists, in this form.
    pub fn observed(&mut self, kind: &GroupKind, object: &Value, now: Timestamp) -> Wake {
        let id = id_of(kind, object);
        let mut wake = self.by_source.get(&id).cloned().unwrap_or_default();
        self.track(&id, object, &mut wake);
        let named = self.by_object.get(&id).into_iter().flatten();
        let chosen = self.by_kind.get(kind).into_iter().flatten();
        for place in named.chain(chosen) {
            let Some(plan) = self.plans.get_mut(&place.plan) else { continue };
            let (Some(of), Some(wave_counts)) =
                (plan.subscription.group(place.wave), plan.counts_of_waves.get_mut(place.wave))
            else {
                continue;
            };
            if wave_counts.observed(place.item, &of.items, &id, object, &self.operator, now) == Tallied::Changed {
                note(&mut wake, &place.plan);
            }
        }
        wake
    }

    /// A watch reports an object, which is then [observed](Self::observed).
    pub fn confirm(&mut self, scope: &ScopeId, id: &ObjectId) {
        if let Some(unconfirmed) = self.unconfirmed.get_mut(scope) {
            unconfirmed.remove(id);
        }
    }

    /// An object no longer exists for this watch. It may still exist for others: an object that lost our label is gone
    /// for watches that only report ours.
    pub fn gone(&mut self, scope: &ScopeId, id: &ObjectId) -> Wake {
        self.confirm(scope, id);
        let mut wake = self.by_source.get(id).cloned().unwrap_or_default();
        if is_ours(scope) {
            self.disown(id, &mut wake);
            self.strays.retain(|_, strays| {
                strays.remove(id);
                !strays.is_empty()
            });
        }
        let named = self.by_object.get(id).into_iter().flatten();
        let chosen = self.by_kind.get(&id.kind).into_iter().flatten();
        for place in named.chain(chosen) {
            let Some(plan) = self.plans.get_mut(&place.plan) else { continue };
            let (Some(of), Some(wave_counts)) =
                (plan.subscription.group(place.wave), plan.counts_of_waves.get_mut(place.wave))
            else {
                continue;
            };
            if of.items.get(place.item).is_none_or(|item| item.scope.as_ref() != Some(scope)) {
                continue;
            }
            if wave_counts.gone(place.item, &of.items, id) == Tallied::Changed {
                note(&mut wake, &place.plan);
            }
        }
        wake
    }

    /// A watch has reported everything that exists: what it did not report does not exist.
    pub fn synced(&mut self, scope: &ScopeId) -> Wake {
        if self.awaited.contains(scope) {
            return Wake::new();
        }
        let is_new = self.synced.insert(scope.clone());
        let vanished = self.unconfirmed.remove(scope).unwrap_or_default();
        let mut wake: Wake = vanished.iter().flat_map(|id| self.gone(scope, id)).collect();
        for (name, plan) in self.plans.iter_mut().filter(|_| is_new) {
            if !plan.subscription.scopes.contains(scope) {
                continue;
            }
            // Whether anything was missing or not: a plan may wait only for this.
            note(&mut wake, name);
            for (wave, wave_counts) in plan.subscription.groups().zip(&mut plan.counts_of_waves) {
                wave_counts.synced(&wave.items, scope);
            }
        }
        wake
    }

    /// A watch is opened or reopened and will report everything that exists: what it reported before and does not
    /// report again disappeared in between. `resync`: nothing is known to have been missed, and what is known counts
    /// until then.
    pub fn opened(&mut self, scope: &ScopeId, resync: bool) {
        let reported = self.plans.values().flat_map(|plan| plan.reported_by(scope)).cloned().collect();
        self.awaited.remove(scope);
        if !resync {
            self.synced.remove(scope);
        }
        self.unconfirmed.insert(scope.clone(), reported);
    }

    /// A report of a watch was lost: until everything has been reported again, something may be missing.
    pub fn missed(&mut self, scope: &ScopeId) {
        self.synced.remove(scope);
    }

    /// A watch cannot report; with none, it can again.
    pub fn troubled(&mut self, scope: &ScopeId, trouble: Option<&Trouble>) -> Wake {
        let unreachable = trouble.map(|trouble| {
            let reason = match trouble.kind {
                TroubleKind::Forbidden => "Forbidden",
                TroubleKind::NotServed | TroubleKind::Unavailable => "ApiUnavailable",
            };
            let message = format!("{scope} cannot be listed and watched: {}", trouble.message.trim_end_matches('.'));
            Unreachable { reason: reason.to_owned(), message }
        });
        match &unreachable {
            Some(unreachable) => self.troubles.insert(scope.clone(), unreachable.clone()),
            None => self.troubles.remove(scope),
        };
        let mut wake = Wake::new();
        for (name, plan) in self.plans.iter_mut().filter(|(_, plan)| plan.subscription.scopes.contains(scope)) {
            note(&mut wake, name);
            for (wave, wave_counts) in plan.subscription.groups().zip(&mut plan.counts_of_waves) {
                wave_counts.troubled(&wave.items, scope, unreachable.as_ref());
            }
        }
        wake
    }

    /// The current subscription of a plan, if it has one.
    pub fn subscription(&self, name: &PlanName) -> Option<Arc<PlanSubscription>> {
        self.plans.get(name).map(|plan| plan.subscription.clone())
    }

    /// What prevents watches of a plan from reporting everything, as sentences.
    pub fn troubles(&self, name: &PlanName) -> Vec<String> {
        let scopes = self.plans.get(name).into_iter().flat_map(|plan| &plan.subscription.scopes);
        let unsynced = scopes.filter(|scope| !self.synced.contains(*scope));
        let troubles = unsynced.filter_map(|scope| Some(self.troubles.get(scope)?.message.clone()));
        let unknown = self.plans.get(name).into_iter().flat_map(|plan| plan.subscription.unknown()).cloned();
        unknown.chain(troubles).collect()
    }

    /// Why it is not known which objects a watch covers, if so, as a clause.
    pub fn gap(&self, scope: &ScopeId) -> Option<String> {
        if self.synced.contains(scope) {
            return None;
        }
        let trouble = self.troubles.get(scope).map(|trouble| trouble.message.clone());
        Some(trouble.unwrap_or_else(|| format!("{scope} are still being listed")))
    }

    /// The plans that are subscribed.
    pub fn plans(&self) -> impl Iterator<Item = &PlanName> {
        self.plans.keys()
    }

    /// The plans that mention a kind that the cluster does not have (yet).
    pub fn plans_without_a_kind(&self) -> Wake {
        let lacks =
            |plan: &Plan| plan.subscription.waves.iter().flat_map(|wave| &wave.items).any(|item| item.scope.is_none());
        self.plans.iter().filter(|(_, plan)| lacks(plan)).map(|(name, _)| name.clone()).collect()
    }

    /// Whether a plan takes manifests from this object.
    pub fn is_source(&self, id: &ObjectId) -> bool {
        self.by_source.contains_key(id)
    }

    /// A watch was closed for good: no plan needs it.
    pub fn closed(&mut self, scope: &ScopeId) {
        self.synced.remove(scope);
        self.awaited.remove(scope);
        self.troubles.remove(scope);
        self.unconfirmed.remove(scope);
        if is_ours(scope) {
            for strays in self.strays.values_mut() {
                strays.retain(|id, _| !scope.is_on(&id.kind));
            }
            self.strays.retain(|_, strays| !strays.is_empty());
        }
    }

    /// Whether all these watches have reported everything that exists.
    pub fn is_synced<'a>(&self, mut scopes: impl Iterator<Item = &'a ScopeId>) -> bool {
        scopes.all(|scope| self.synced.contains(scope))
    }

    /// An object was applied, and this is the API server's response: the watch will report the same later.
    pub fn applied(&mut self, kind: &GroupKind, object: &Value, changed: bool, now: Timestamp) -> Wake {
        let id = id_of(kind, object);
        let fence = Fence::after(None, object, now, opcore::readiness::SETTLE).filter(|_| changed);
        for place in self.by_object.get(&id).into_iter().flatten() {
            let Some(plan) = self.plans.get_mut(&place.plan) else { continue };
            let (Some(item), Some(wave_counts)) =
                (plan.subscription.item(place), plan.counts_of_waves.get_mut(place.wave))
            else {
                continue;
            };
            wave_counts.accepted(place.item, item, object);
            if let Some(fence) = &fence {
                wave_counts.fence(place.item, object, fence.clone());
            }
        }
        self.observed(kind, object, now)
    }

    /// A plan's write of an object was refused.
    pub fn refused(&mut self, name: &PlanName, refusal: &Refusal) {
        let remedy = self.remedy(name, refusal).filter(|_| refusal.reason == RefusalReason::Forbidden);
        let message = remedy.map_or_else(|| refusal.message.clone(), |remedy| format!("{} {remedy}", refusal.message));
        self.turns += 1;
        let refused = Refused { reason: refusal.reason.as_str().to_owned(), message, turn: self.turns };
        let places: Vec<Place> = self.places(name, refusal).cloned().collect();
        let Some(plan) = self.plans.get_mut(name) else { return };
        for place in places {
            if let (Some(of), Some(wave_counts)) =
                (plan.subscription.group(place.wave), plan.counts_of_waves.get_mut(place.wave))
            {
                wave_counts.refused(place.item, &of.items, &refused);
            }
        }
    }

    /// The positions of a refused object in a plan.
    fn places<'a>(&'a self, name: &'a PlanName, refusal: &Refusal) -> impl Iterator<Item = &'a Place> {
        let places = self.by_object.get(&refusal.object).into_iter().flatten();
        places.filter(move |place| place.plan == *name)
    }

    /// The chart value that grants the right to write an object of a plan, as a sentence. None: the object is not in
    /// the plan's waves, and the chart grants the required rights itself.
    pub fn remedy(&self, name: &PlanName, refusal: &Refusal) -> Option<String> {
        let plan = self.plans.get(name)?;
        let mut items = self.places(name, refusal).filter_map(|place| plan.subscription.item(place));
        let value = match items.next().map(|item| &item.task) {
            Some(Task::Observe(_)) => "rbac.nudge",
            Some(Task::Apply(_) | Task::Check(_)) => "rbac.apply",
            // The object is pruned, or deleted in a teardown.
            None if plan.owned.contains_key(&refusal.object) => "rbac.apply",
            None => return None,
        };
        Some(format!("Set the value {value} of the chart to grant it."))
    }

    /// Recomputes the verdicts that change with time alone.
    pub fn recheck(&mut self, name: &PlanName, now: Timestamp) {
        let Some(plan) = self.plans.get_mut(name) else { return };
        for (wave, wave_counts) in plan.subscription.groups().zip(&mut plan.counts_of_waves) {
            wave_counts.recheck(&wave.items, &self.operator, now);
        }
    }

    /// Whether this operator applied this object, which carries the label of a plan: a copy of one of ours that a
    /// person made has our labels, and is not ours.
    fn is_our_work(&self, object: &Value) -> bool {
        let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        entries.into_iter().flatten().any(|entry| entry["manager"] == *self.operator && entry["operation"] == "Apply")
    }

    /// An object was not, or is no longer, applied for a plan.
    fn disown(&mut self, id: &ObjectId, wake: &mut Wake) {
        if let Some(name) = self.owners.remove(id) {
            if let Some(plan) = self.plans.get_mut(&name) {
                plan.disown(id);
            }
            note(wake, &name);
        }
    }

    /// Records which objects were applied for which plan.
    fn track(&mut self, id: &ObjectId, object: &Value, wake: &mut Wake) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let label =
            |key: &str| object.pointer("/metadata/labels").and_then(|labels| labels.get(key)).and_then(Value::as_str);
        // Objects that are kept in addition to the waves belong to none.
        let uid = label(OWNER_LABEL).filter(|_| label(WAVE_LABEL).is_some() && self.is_our_work(object));
        let uid = uid.map(str::to_owned);
        let plan = uid.as_ref().and_then(|uid| self.by_uid.get(uid)).cloned();
        let annotation =
            |key: &str| object.pointer("/metadata/annotations").and_then(|all| all.get(key)).and_then(Value::as_str);
        let owned = Owned {
            uid: text("/metadata/uid").unwrap_or_default().to_owned(),
            api_version: text("/apiVersion").unwrap_or_default().to_owned(),
            wave: label(WAVE_LABEL).unwrap_or_default().to_owned(),
            deleting: text("/metadata/deletionTimestamp").is_some(),
            confirmed: annotation(CONFIRM_ANNOTATION) == Some("true"),
        };
        if let (Some(uid), None) = (&uid, &plan) {
            self.strays.entry(uid.clone()).or_default().insert(id.clone(), owned);
            return;
        }
        let Some(name) = plan else {
            // The object may have been ours before someone removed the labels.
            self.disown(id, wake);
            return;
        };
        let Some(plan) = self.plans.get_mut(&name) else { return };
        self.owners.insert(id.clone(), name.clone());
        let is_orphan = !plan.subscription.applies(id);
        let before = plan.own(id.clone(), owned.clone());
        if is_orphan {
            plan.orphans.insert(id.clone());
        }
        if before.as_ref() != Some(&owned) && (is_orphan || owned.deleting) {
            note(wake, &name);
        }
    }
}

impl PlanSubscription {
    fn item(&self, place: &Place) -> Option<&crate::subscription::Item> {
        self.group(place.wave)?.items.get(place.item)
    }

    /// Whether the plan applies this object.
    fn applies(&self, id: &ObjectId) -> bool {
        self.wanted.contains(id)
    }
}

impl Plan {
    fn find_orphans(&mut self) {
        self.orphans = self.owned.keys().filter(|id| !self.subscription.applies(id)).cloned().collect();
    }

    /// The objects that exist according to this watch.
    fn reported_by<'a>(&'a self, scope: &'a ScopeId) -> impl Iterator<Item = &'a ObjectId> {
        let items = self.subscription.groups().zip(&self.counts_of_waves).flat_map(|(wave, wave_counts)| {
            let items = wave.items.iter().enumerate().filter(|(_, item)| item.scope.as_ref() == Some(scope));
            items.filter_map(|(number, item)| Some((item, wave_counts.known(number)?)))
        });
        let is_of_kind = |id: &&ObjectId| is_ours(scope) && scope.is_on(&id.kind);
        items.flat_map(|(item, known)| known.objects(item)).chain(self.owned.keys().filter(is_of_kind))
    }

    /// Returns what was known of it before.
    fn own(&mut self, id: ObjectId, owned: Owned) -> Option<Owned> {
        let (kind, wave) = (id.kind.clone(), owned.wave.clone());
        let before = self.owned.insert(id, owned);
        if before.as_ref().is_none_or(|before| before.wave != wave) {
            if let Some(before) = &before {
                self.uncount(&kind, &before.wave);
            }
            *Arc::make_mut(&mut self.counts).entry(kind).or_default().entry(wave).or_default() += 1;
        }
        before
    }

    fn disown(&mut self, id: &ObjectId) {
        if let Some(owned) = self.owned.remove(id) {
            self.uncount(&id.kind, &owned.wave);
        }
        self.orphans.remove(id);
    }

    fn uncount(&mut self, kind: &GroupKind, wave: &str) {
        let counts = Arc::make_mut(&mut self.counts);
        let Some(of_kind) = counts.get_mut(kind) else { return };
        if let Some(count) = of_kind.get_mut(wave) {
            *count -= 1;
        }
        of_kind.retain(|_, count| *count > 0);
        if of_kind.is_empty() {
            counts.remove(kind);
        }
    }
}

fn note(wake: &mut Wake, plan: &PlanName) {
    if !wake.contains(plan) {
        wake.push(plan.clone());
    }
}

/// What identifies an item from one spec to the next.
fn key_of(wave: &str, item: &crate::subscription::Item) -> String {
    let task = match &item.task {
        Task::Observe(_) => "observe".to_owned(),
        Task::Apply(_) => "apply".to_owned(),
        Task::Check(check) => {
            format!("{} {}", check.ready.text(), check.failed.as_ref().map_or("", |failed| failed.text()))
        }
    };
    format!("{wave} {} {task}", item.subject)
}

fn id_of(kind: &GroupKind, object: &Value) -> ObjectId {
    let text = |field: &str| object.pointer(field).and_then(Value::as_str).map(str::to_owned);
    ObjectId {
        kind: kind.clone(),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name").unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
