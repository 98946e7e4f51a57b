//! Reads sources, kinds, and what the index knows. Decides nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use opcore::lock;
use opcore::ownership::Claimant;
use opcore::{Context, Error};

use crate::api::v1alpha1::{HeldObject, InventoryKind, OnFailure, Wave, WavePlan};
use crate::controller::WavePlans;
use crate::index::{Asking, PlanName, Snapshot};
use crate::probes::{Endpoint, ProbeResult};
use crate::render::{ParsedPlan, Sources, kept_in, kept_name, parse_with, revision};
use crate::subscription::{self, GroupKind, KindWatch, ObjectId, PlanSubscription, Served, WrittenKind, group_kind};

/// Everything that was read for a plan.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// A digest of the spec and of the contents of its sources.
    pub revision: String,
    /// The subscription that it needs.
    pub subscription: Arc<PlanSubscription>,
    /// The subscription that it has.
    pub subscribed: Option<Arc<PlanSubscription>>,
    /// What is known of its objects, if it has the subscription that it needs.
    pub snapshot: Snapshot,
    /// The results of probing the endpoints of its waves, in the order of the spec, for waves that have started.
    pub probes: Vec<Vec<ProbeResult>>,
    /// Missing permissions, as clauses with the remedy: "list and watch secrets in shop; the value rbac.read of the
    /// chart grants this right".
    pub denied: Vec<String>,
    /// What prevents reports about some of its objects, as sentences: an API that does not answer, for example.
    pub unreachable: Vec<String>,
    /// Kinds of the inventory of which it is not known which objects exist, each with the reason, as a clause.
    pub incomplete: BTreeMap<GroupKind, String>,
    /// Why it is not known which objects the plan holds suspended, if so, as a clause.
    pub incomplete_gates: Option<String>,
    /// Kinds of the inventory that the cluster no longer has in any version: their objects are gone, too.
    pub lost_kinds: BTreeSet<GroupKind>,
    /// Kinds of the inventory that are no longer served in the recorded version.
    pub unserved: BTreeSet<WrittenKind>,
    /// When everything must be compared with the cluster again.
    pub resync_at: Option<Timestamp>,
    /// What is kept of waves for `onFailure: Rollback`, and what must be kept.
    pub rollbacks: BTreeMap<String, Rollback>,
    /// The namespace of this operator, in which it is kept.
    pub home: String,
}

/// What a wave can be rolled back to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollback {
    /// Its manifests when it was last ready, if it ever was.
    pub kept: Option<Arc<String>>,
    /// Its manifests now.
    pub wanted: Option<Arc<String>>,
}

/// Cached results that stay the same between reconciles while the spec, its sources and the kinds do.
#[derive(Debug, Default)]
pub struct Memory {
    plans: Mutex<HashMap<PlanName, Remembered>>,
    /// What the Secrets of plans keep for a rollback, by name. Nobody else writes these Secrets.
    kept: Mutex<HashMap<PlanName, BTreeMap<String, Kept>>>,
}

/// The manifests that a Secret keeps; none if it keeps none.
type Kept = Option<Arc<String>>;

/// The contents of a plan's sources.
#[derive(Clone, Debug)]
struct Read {
    sources: Arc<Sources>,
    /// The version of the reported sources, if all of them were reported.
    version: Option<u64>,
}

#[derive(Debug)]
struct Remembered {
    uid: String,
    generation: Option<i64>,
    deleted: bool,
    read: Read,
    /// The manifests of waves that were rolled back.
    instead: BTreeMap<String, Arc<String>>,
    parsed: Arc<ParsedPlan>,
    kinds: Kinds,
    /// Objects that the plan holds suspended and that its waves no longer mention.
    forgotten: Vec<HeldObject>,
    subscription: Arc<PlanSubscription>,
    resynced_at: Timestamp,
}

/// The kinds of a plan, as the API server has them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kinds {
    /// The kinds that it mentions.
    mentioned: BTreeMap<WrittenKind, Served>,
    /// The kinds of what it has applied, in any served version.
    recorded: BTreeMap<WrittenKind, Served>,
    /// The kinds of what it holds suspended, in any served version.
    held: BTreeMap<WrittenKind, Served>,
}

impl Kinds {
    fn lost(&self) -> BTreeSet<GroupKind> {
        let lost = self.recorded.iter().filter(|(_, served)| **served == Served::No);
        lost.map(|(written, _)| group_kind(written)).collect()
    }

    fn unserved(&self) -> BTreeSet<WrittenKind> {
        let is_as_written = |(api_version, _): &WrittenKind, served: &Served| match served {
            Served::Yes { resource, .. } => resource.api_version == *api_version,
            Served::No => false,
            Served::Unknown { .. } => true,
        };
        let others = self.recorded.iter().filter(|(written, served)| !is_as_written(written, served));
        others.map(|(written, _)| written.clone()).collect()
    }
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, HashMap<PlanName, Remembered>> {
        lock(&self.plans)
    }

    /// What is cached for a plan, unless the plan has been replaced.
    fn of<T>(&self, name: &PlanName, plan: &WavePlan, take: impl FnOnce(&mut Remembered) -> T) -> Option<T> {
        self.lock().get_mut(name).filter(|known| known.is_of(plan)).map(take)
    }

    /// What is kept for a rollback of a plan is read again next time.
    pub(crate) fn forget_kept(&self, plan: &PlanName) {
        lock(&self.kept).remove(plan);
    }

    /// Removes a plan that is gone.
    pub fn forget(&self, plan: &PlanName) {
        self.lock().remove(plan);
        self.forget_kept(plan);
    }
}

impl WavePlans {
    pub(crate) async fn observe_plan(&self, plan: &WavePlan, context: &Context) -> Result<Observed, Error> {
        let name: PlanName = plan.name_any().into();
        let read = self.read(&name, plan).await?;
        let kept = self.kept(&name, plan, context).await?;
        let (parsed, instead) = self.parsed(&name, plan, &read, &kept);
        let mut inventory: BTreeSet<_> = plan.status.iter().flat_map(|status| &status.inventory).map(written).collect();
        if is_unrecorded(plan) {
            inventory.extend(parsed.applied_kinds());
        }
        let kinds = Kinds {
            mentioned: self.live.served(&parsed.kinds).await,
            recorded: self.live.served_somehow(&inventory).await,
            held: self.live.served_somehow(&held(plan).iter().map(written_kind).collect()).await,
        };
        let subscription = self.subscription(&name, plan, read, instead, parsed.clone(), &kinds, context);
        let answer =
            |endpoint: &Endpoint| endpoint.observed(self.poll.answer(endpoint).map(|answered| answered.answer));
        let probes = plan.spec.waves.iter().map(|wave| Endpoint::of(plan, wave).iter().map(answer).collect());
        let mut observed = Observed {
            revision: parsed.revision.clone(),
            subscription,
            probes: probes.collect(),
            lost_kinds: kinds.lost(),
            unserved: kinds.unserved(),
            resync_at: self.resync(&name, plan, context.now()),
            rollbacks: rollbacks(kept, &parsed),
            home: context.reader().default_namespace().to_owned(),
            ..Observed::default()
        };
        self.read_index(plan, &mut observed, context.now());
        Ok(observed)
    }

    /// Looks up what is known of a plan's objects: nothing, until it has the subscription that it needs.
    pub(crate) fn read_index(&self, plan: &WavePlan, observed: &mut Observed, now: Timestamp) {
        let name: PlanName = plan.name_any().into();
        let denied = self.live.denied(&observed.subscription.scopes);
        observed.denied = denied.iter().map(|scope| observed.subscription.right_to_watch(scope)).collect();
        let mut index = self.live.index();
        observed.subscribed = index.subscription(&name);
        if observed.subscribed.as_ref().is_none_or(|subscribed| !Arc::ptr_eq(subscribed, &observed.subscription)) {
            return;
        }
        index.recheck(&name, now);
        let asked_since = |wave: &Wave| plan.status.as_ref()?.wave(&wave.name)?.asked_since();
        let asked_since: Vec<_> = plan.spec.waves.iter().map(asked_since).collect();
        let asking = Asking {
            everything: is_deleted(plan),
            most: usize::try_from(plan.spec.prune.limit).unwrap_or_default().saturating_add(1),
            confirmed: &plan.spec.prune.confirmed_kinds,
            asked_since: &asked_since,
            now,
        };
        observed.snapshot = index.snapshot(&name, &asking);
        observed.unreachable = index.troubles(&name);
        let subscription = &observed.subscription;
        let gap = |kind: &KindWatch| match &kind.watch {
            Err(why) => Some(why.clone()),
            Ok(scope) if denied.contains(scope) => {
                Some(format!("the operator is not allowed to {}", subscription.right_to_watch(scope)))
            }
            Ok(scope) => index.gap(scope),
        };
        let incomplete = subscription.recorded.iter().filter_map(|kind| Some((kind.kind.clone(), gap(kind)?)));
        observed.incomplete = incomplete.collect();
        observed.incomplete_gates = subscription.held_kinds.iter().find_map(gap);
    }

    /// The contents of a plan's sources: from the cache, if nothing new was reported.
    async fn read(&self, name: &PlanName, plan: &WavePlan) -> Result<Read, Error> {
        let version = self.live.version_of_sources();
        let known = self.memory.of(name, plan, |known| known.read.clone());
        if let Some(known) = known.as_ref().filter(|known| known.version == Some(version)) {
            return Ok(known.clone());
        }
        let (mut sources, mut all_reported) = (Sources::new(), true);
        for id in source_ids(plan) {
            let source = if let Some(reported) = self.live.reported_source(&id) {
                reported
            } else {
                all_reported = false;
                self.live.source(&id).await?
            };
            sources.insert((id.namespace.unwrap_or_default(), id.name), source);
        }
        let version = all_reported.then_some(version);
        // An unchanged value keeps its cache entry.
        match known {
            Some(known) if *known.sources == sources => {
                self.memory.of(name, plan, |known| known.read.version = version);
                Ok(Read { version, ..known })
            }
            _ => Ok(Read { sources: Arc::new(sources), version }),
        }
    }

    /// What is kept of the waves that can be rolled back. It is read once, and again with each resync.
    async fn kept(&self, name: &PlanName, plan: &WavePlan, context: &Context) -> Result<BTreeMap<String, Kept>, Error> {
        let rolls_back = |wave: &&Wave| wave.on_failure == OnFailure::Rollback && !is_deleted(plan);
        let mut kept = BTreeMap::new();
        for wave in plan.spec.waves.iter().filter(rolls_back) {
            let secret = kept_name(plan, &wave.name);
            let known = lock(&self.memory.kept).get(name).and_then(|of_plan| of_plan.get(&secret)).cloned();
            let text = if let Some(text) = known {
                text
            } else {
                let secrets = context.reader().default_namespaced::<Secret>();
                let text: Kept = secrets.get_opt(&secret).await?.as_ref().and_then(kept_in).map(Arc::new);
                lock(&self.memory.kept).entry(name.clone()).or_default().insert(secret, text.clone());
                text
            };
            kept.insert(wave.name.clone(), text);
        }
        Ok(kept)
    }

    /// The parsed plan, and the manifests of waves that were rolled back.
    fn parsed(
        &self,
        name: &PlanName,
        plan: &WavePlan,
        read: &Read,
        kept: &BTreeMap<String, Kept>,
    ) -> (Arc<ParsedPlan>, BTreeMap<String, Arc<String>>) {
        if is_deleted(plan) && !is_unrecorded(plan) {
            // Its spec does not matter any more: what it applied and what it holds is recorded.
            let known = self.memory.of(name, plan, |known| known.parsed.clone());
            return (known.unwrap_or_default(), BTreeMap::new());
        }
        let known = self.memory.of(name, plan, |known| {
            let same = Arc::ptr_eq(&known.read.sources, &read.sources);
            same.then(|| (known.parsed.clone(), known.instead.clone()))
        });
        let known = known.flatten();
        let revision = match &known {
            Some((parsed, _)) => parsed.revision.clone(),
            None => revision(&plan.spec, &read.sources),
        };
        let instead = taken_back(plan, kept, &revision);
        match known {
            Some((parsed, before)) if before == instead => (parsed, instead),
            _ => (Arc::new(parse_with(&plan.spec, &read.sources, &instead)), instead),
        }
    }

    /// The subscription that the plan needs: the same as before, as long as its inputs are the same.
    #[expect(clippy::too_many_arguments, reason = "each is one of the things it follows from")]
    fn subscription(
        &self,
        name: &PlanName,
        plan: &WavePlan,
        read: Read,
        instead: BTreeMap<String, Arc<String>>,
        parsed: Arc<ParsedPlan>,
        kinds: &Kinds,
        context: &Context,
    ) -> Arc<PlanSubscription> {
        let mut remembered = self.memory.lock();
        if let Some(known) = remembered.get(name)
            && known.is_of(plan)
            && Arc::ptr_eq(&known.parsed, &parsed)
            && known.kinds == *kinds
            && known.forgotten == known.subscription.forgotten(held(plan))
        {
            return known.subscription.clone();
        }
        let claimant = Claimant::acting_for(context.operator(), plan);
        let mut subscription = subscription::resolve(&parsed, &kinds.mentioned, &claimant);
        subscription.record(&kinds.recorded, context.operator());
        // While a plan is being deleted, known objects are not reported again: its teardown would wait for that.
        subscription.resync = (!is_deleted(plan)).then(|| plan.spec.resync().as_duration());
        subscription.completed = completed(plan, &parsed.revision);
        let forgotten = subscription.forgotten(held(plan));
        subscription.hold(&forgotten, &kinds.held);
        subscription.sources = source_ids(plan).collect();
        subscription.scopes.extend(
            subscription.sources.iter().filter_map(|id| id.namespace.as_deref()).map(subscription::config_maps),
        );
        let subscription = Arc::new(subscription);
        let resynced_at = remembered.get(name).map_or_else(|| context.now(), |known| known.resynced_at);
        let entry = Remembered {
            uid: plan.uid().unwrap_or_default(),
            generation: plan.metadata.generation,
            deleted: is_deleted(plan),
            read,
            instead,
            parsed,
            kinds: kinds.clone(),
            forgotten,
            subscription: subscription.clone(),
            resynced_at,
        };
        remembered.insert(name.clone(), entry);
        subscription
    }

    /// Rereads what is kept for a rollback with each resync. Returns the time of the next one; for a plan that is being
    /// deleted there is none.
    fn resync(&self, name: &PlanName, plan: &WavePlan, now: Timestamp) -> Option<Timestamp> {
        let every = (!is_deleted(plan)).then(|| plan.spec.resync())?;
        let mut remembered = self.memory.lock();
        let known = remembered.get_mut(name)?;
        if every.after(known.resynced_at) <= now {
            known.resynced_at = now;
            self.memory.forget_kept(name);
        }
        Some(every.after(known.resynced_at))
    }
}

impl Remembered {
    fn is_of(&self, plan: &WavePlan) -> bool {
        Some(&self.uid) == plan.metadata.uid.as_ref()
            && self.generation == plan.metadata.generation
            && self.deleted == is_deleted(plan)
    }
}

fn is_deleted(plan: &WavePlan) -> bool {
    plan.metadata.deletion_timestamp.is_some()
}

/// Whether a plan is being deleted and its status knows of no rollout, as when someone edited it. What it may have applied
/// is in its spec then, as far as anybody knows.
pub(crate) fn is_unrecorded(plan: &WavePlan) -> bool {
    is_deleted(plan) && plan.status.as_ref().is_none_or(|status| status.rollout.is_none())
}

/// The ConfigMaps that contain the manifests of a plan; a plan that is being deleted needs none.
fn source_ids(plan: &WavePlan) -> impl Iterator<Item = ObjectId> {
    let is_needed = !is_deleted(plan) || is_unrecorded(plan);
    let waves: &[Wave] = if is_needed { &plan.spec.waves } else { &[] };
    let members = waves.iter().flat_map(|wave| &wave.members).filter_map(|member| member.manifests.as_ref());
    let hooks = waves.iter().filter_map(|wave| wave.hooks.as_ref());
    let hooks = hooks.flat_map(|hooks| hooks.before.iter().chain(&hooks.after));
    members.chain(hooks).filter_map(|manifests| manifests.config_map_ref.as_ref()).map(|reference| ObjectId {
        kind: GroupKind { group: String::new(), kind: "ConfigMap".to_owned() },
        namespace: Some(reference.namespace.clone()),
        name: reference.name.clone(),
    })
}

/// The Jobs that were complete in this rollout, each with its wave, according to the published status.
fn completed(plan: &WavePlan, revision: &str) -> BTreeSet<(String, String)> {
    let status = plan.status.as_ref().filter(|status| status.is_about(revision));
    let waves = status.into_iter().flat_map(|status| &status.waves);
    waves.flat_map(|wave| wave.completed.iter().map(|job| (wave.name.clone(), job.clone()))).collect()
}

fn written(kind: &InventoryKind) -> WrittenKind {
    (kind.api_version.clone(), kind.kind.clone())
}

/// The objects that the plan is recorded to hold suspended.
fn held(plan: &WavePlan) -> &[HeldObject] {
    plan.status.as_ref().map_or(&[], |status| &status.held)
}

fn written_kind(held: &HeldObject) -> WrittenKind {
    (held.api_version.clone(), held.kind.clone())
}

/// The waves that were rolled back according to the published status, with the manifests that they have instead.
fn taken_back(plan: &WavePlan, kept: &BTreeMap<String, Kept>, revision: &str) -> BTreeMap<String, Arc<String>> {
    // A new rollout begins with the manifests of the spec.
    let status = plan.status.iter().filter(|status| status.is_about(revision));
    let waves = status.flat_map(|status| &status.waves).filter(|wave| wave.rolled_back);
    waves.filter_map(|wave| Some((wave.name.clone(), kept.get(&wave.name)?.clone()?))).collect()
}

fn rollbacks(kept: BTreeMap<String, Kept>, parsed: &ParsedPlan) -> BTreeMap<String, Rollback> {
    let wanted = |name: &str| parsed.waves.iter().find(|wave| wave.name == name).and_then(|wave| wave.to_keep.clone());
    kept.into_iter().map(|(name, kept)| (name.clone(), Rollback { kept, wanted: wanted(&name) })).collect()
}

#[cfg(test)]
mod tests {
    use opcore::act::{Attempt, Done, Outcome};
    use opcore::{Operator, Write};
    use opcore_testing::running::{Settings, context};
    use serde_json::json;

    use super::*;

    fn plan(finished_at: Option<&str>, phases: &[(&str, &str)]) -> WavePlan {
        let waves = phases.iter().map(|(name, phase)| json!({ "name": name, "phase": phase, "ready": 0, "total": 1 }));
        let rollout =
            json!({ "number": 1, "revision": "r", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": finished_at });
        let status = json!({ "rollout": rollout, "waves": waves.collect::<Vec<_>>() });
        serde_json::from_value(json!({
            "apiVersion": "waves.opcore.dev/v1alpha1", "kind": "WavePlan",
            "metadata": { "name": "p" }, "spec": { "waves": [] }, "status": status,
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn what_is_kept_for_a_rollback_is_read_once_and_again_when_it_is_written() {
        opcore::client::install_crypto_provider();
        let (_stop, stopping) = tokio::sync::watch::channel(false);
        // Nothing listens at this address: requests fail.
        let nowhere = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        let context = context("test", nowhere, &[], Settings::default(), stopping);
        let (operator, name) = (WavePlans::new(&context), PlanName::from("p"));
        let mut plan = plan(None, &[]);
        plan.metadata.uid = Some("uid".to_owned());
        let wave = json!({ "name": "a", "onFailure": "Rollback" });
        plan.spec.waves = vec![serde_json::from_value(wave).unwrap()];
        assert!(operator.kept(&name, &plan, &context).await.is_err());
        let text: Kept = Some(Arc::new("kind: Pod".to_owned()));
        let read = BTreeMap::from([("a.uid".to_owned(), text.clone())]);
        lock(&operator.memory.kept).insert(name.clone(), read);
        let kept = operator.kept(&name, &plan, &context).await.unwrap();
        assert_eq!(kept, BTreeMap::from([("a".to_owned(), text)]));

        let object = serde_json::from_value(json!({ "metadata": { "name": "a.uid" } })).unwrap();
        let write = Write::AddFinalizer(String::new());
        let outcome = Outcome::Applied { object: Box::new(object), changed: true };
        let done = Done { attempts: vec![Attempt { write: &write, outcome }], ..Done::default() };
        operator.after_writes(&plan, &mut plan.status.clone().unwrap(), &done, context.now());
        assert!(operator.kept(&name, &plan, &context).await.is_err());
    }
}
