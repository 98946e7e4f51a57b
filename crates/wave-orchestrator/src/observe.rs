//! Reads: sources, kinds, and what the index knows. Chooses nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use opcore::ownership::Claimant;
use opcore::{Context, Error};

use crate::api::v1alpha1::{HeldObject, InventoryKind, OnFailure, Rollout, Wave, WavePhase, WavePlan};
use crate::controller::WavePlans;
use crate::index::{Look, PlanName};
use crate::interest::{self, GroupKind, Interest, ObjectId, ScopeId, Served, WrittenKind};
use crate::live::Source;
use crate::lock::lock;
use crate::probes::ProbeSeen;
use crate::render::{Draft, Sources, draft_with, kept_in, kept_name, revision};

/// Everything that was read for a plan.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// A digest of the spec and of what its sources hold.
    pub revision: String,
    /// What is known of its objects.
    pub look: Look,
    /// What came of asking the endpoints of its waves, in the order of the spec.
    pub probes: Vec<Vec<ProbeSeen>>,
    /// Rights that are missing, as clauses with the cure: "list and watch secrets in shop (value rbac.read of the
    /// chart)".
    pub denied: Vec<String>,
    /// Kinds of the inventory that the cluster no longer has, in whichever version: with a kind go its objects.
    pub lost_kinds: BTreeSet<GroupKind>,
    /// Kinds of the inventory that are no longer served in the version in which they are recorded.
    pub unserved: BTreeSet<WrittenKind>,
    /// When everything is to be compared with the cluster again.
    pub resync_at: Option<Timestamp>,
    /// What is kept of waves for `onFailure: Rollback`, and what is to be kept of them.
    pub rollbacks: BTreeMap<String, Rollback>,
    /// The namespace of this operator, where it is kept.
    pub home: String,
}

/// What a wave can be taken back to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollback {
    /// Its manifests when it was last ready, if it ever was.
    pub kept: Option<String>,
    /// Its manifests now.
    pub wanted: Option<String>,
}

/// What does not change from one look to the next while the spec, its sources and the kinds stay the same.
#[derive(Debug, Default)]
pub struct Memory {
    plans: Mutex<HashMap<PlanName, Remembered>>,
}

#[derive(Debug)]
struct Remembered {
    uid: String,
    generation: Option<i64>,
    deleted: bool,
    sources: Sources,
    /// Manifests of waves that were taken back.
    instead: BTreeMap<String, String>,
    draft: Arc<Draft>,
    kinds: Kinds,
    /// What it holds suspended, and its waves no longer say so.
    forgotten: Vec<HeldObject>,
    interest: Arc<Interest>,
    resynced_at: Timestamp,
}

/// The kinds of a plan, as the API server has them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kinds {
    /// Those that it mentions.
    mentioned: BTreeMap<WrittenKind, Served>,
    /// Those of what it has applied, in whichever version they are served.
    recorded: BTreeMap<WrittenKind, Served>,
    /// Those of what it holds suspended, in whichever version they are served.
    held: BTreeMap<WrittenKind, Served>,
}

impl Kinds {
    fn lost(&self) -> BTreeSet<GroupKind> {
        let lost = self.recorded.iter().filter(|(_, served)| **served == Served::No);
        lost.map(|(written, _)| GroupKind::written(written)).collect()
    }

    fn unserved(&self) -> BTreeSet<WrittenKind> {
        let is_as_written = |(api_version, _): &WrittenKind, served: &Served| match served {
            Served::Yes { resource, .. } => resource.api_version == *api_version,
            Served::No => false,
        };
        let others = self.recorded.iter().filter(|(written, served)| !is_as_written(written, served));
        others.map(|(written, _)| written.clone()).collect()
    }
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, HashMap<PlanName, Remembered>> {
        lock(&self.plans)
    }

    /// The ConfigMaps that the manifests of a plan are in, unless the plan is another by now.
    fn source_ids(&self, name: &PlanName, plan: &WavePlan) -> Option<BTreeSet<ObjectId>> {
        self.lock().get(name).filter(|known| known.is_of(plan)).map(|known| known.interest.sources.clone())
    }

    /// A plan is gone.
    pub fn forget(&self, plan: &PlanName) {
        self.lock().remove(plan);
    }
}

impl WavePlans {
    pub(crate) async fn look(&self, plan: &WavePlan, context: &Context) -> Result<Seen, Error> {
        let name: PlanName = plan.name_any().into();
        let sources = self.sources(&name, plan).await?;
        let kept = kept(plan, context).await?;
        let instead = taken_back(plan, &kept, &revision(&plan.spec, &sources));
        let draft = self.draft(&name, plan, &sources, &instead);
        let inventory = plan.status.iter().flat_map(|status| &status.inventory).map(written).collect();
        let kinds = Kinds {
            mentioned: self.live.served(&draft.kinds).await?,
            recorded: self.live.served_somehow(&inventory).await?,
            held: self.live.served_somehow(&held(plan).iter().map(written_kind).collect()).await?,
        };
        let interest = self.interest(&name, plan, &sources, instead, draft.clone(), &kinds, context);
        let denied = self.live.watch(&name, &interest.scopes).await;
        let denied = denied.iter().map(|scope| interest.right_to_watch(scope)).collect();
        let resync_at = self.resync(&name, plan, &interest, context.now());

        self.live.index().recheck(&name, context.now());
        let most = usize::try_from(plan.spec.prune.limit).unwrap_or_default().saturating_add(1);
        let look = self.live.index().look(&name, is_deleted(plan), most);
        let probes = if is_deleted(plan) {
            self.prober.forget(&name);
            Vec::new()
        } else {
            self.ask_probes(&name, plan, &look)
        };
        Ok(Seen {
            revision: draft.revision.clone(),
            look,
            probes,
            denied,
            lost_kinds: kinds.lost(),
            unserved: kinds.unserved(),
            resync_at,
            rollbacks: rollbacks(kept, &draft),
            home: context.client().default_namespace().to_owned(),
        })
    }

    async fn sources(&self, name: &PlanName, plan: &WavePlan) -> Result<Sources, Error> {
        let mut sources = Sources::new();
        let known = self.memory.source_ids(name, plan);
        for id in known.unwrap_or_else(|| source_ids(plan).collect()) {
            let source: Source = self.live.source(&id).await?;
            sources.insert((id.namespace.unwrap_or_default(), id.name), source);
        }
        Ok(sources)
    }

    fn draft(
        &self,
        name: &PlanName,
        plan: &WavePlan,
        sources: &Sources,
        instead: &BTreeMap<String, String>,
    ) -> Arc<Draft> {
        let remembered = self.memory.lock();
        match remembered.get(name) {
            Some(known) if known.is_of(plan) && known.sources == *sources && known.instead == *instead => {
                known.draft.clone()
            }
            // What its spec asks for matters no more: what it applied and what it holds is recorded.
            _ if is_deleted(plan) => Arc::default(),
            _ => Arc::new(draft_with(&plan.spec, sources, instead)),
        }
    }

    /// What the plan wants to hear of; told to the index when it is not what it was.
    #[expect(clippy::too_many_arguments, reason = "each is one of the things it follows from")]
    fn interest(
        &self,
        name: &PlanName,
        plan: &WavePlan,
        sources: &Sources,
        instead: BTreeMap<String, String>,
        draft: Arc<Draft>,
        kinds: &Kinds,
        context: &Context,
    ) -> Arc<Interest> {
        let mut remembered = self.memory.lock();
        if let Some(known) = remembered.get(name)
            && known.is_of(plan)
            && Arc::ptr_eq(&known.draft, &draft)
            && known.kinds == *kinds
            && known.forgotten == known.interest.forgotten(held(plan))
        {
            return known.interest.clone();
        }
        let claimant = Claimant::acting_for(context.operator(), plan);
        let mut interest = interest::resolve(&draft, &kinds.mentioned, &claimant);
        let recorded = kinds.recorded.values().filter_map(|served| match served {
            Served::Yes { resource, .. } => Some(ScopeId::of_ours(resource)),
            Served::No => None,
        });
        interest.scopes.extend(recorded);
        let forgotten = interest.forgotten(held(plan));
        interest.hold(&forgotten, &kinds.held);
        interest.sources = source_ids(plan).collect();
        interest
            .scopes
            .extend(interest.sources.iter().filter_map(|id| id.namespace.as_deref()).map(ScopeId::of_config_maps));
        let interest = Arc::new(interest);
        let again = self.live.index().subscribe(name, interest.clone(), &may_have_written(plan), context.now());
        self.live.reopen(&again);
        let resynced_at = remembered.get(name).map_or_else(|| context.now(), |known| known.resynced_at);
        let entry = Remembered {
            uid: plan.uid().unwrap_or_default(),
            generation: plan.metadata.generation,
            deleted: is_deleted(plan),
            sources: sources.clone(),
            instead,
            draft,
            kinds: kinds.clone(),
            forgotten,
            interest: interest.clone(),
            resynced_at,
        };
        remembered.insert(name.clone(), entry);
        interest
    }

    /// Has everything reported anew when it is time.
    fn resync(&self, name: &PlanName, plan: &WavePlan, interest: &Interest, now: Timestamp) -> Option<Timestamp> {
        let every = plan.spec.resync();
        let mut remembered = self.memory.lock();
        let known = remembered.get_mut(name)?;
        if every.after(known.resynced_at) <= now {
            known.resynced_at = now;
            self.live.reopen(&interest.scopes);
        }
        Some(every.after(known.resynced_at))
    }

    /// Endpoints are asked once everything else in a running wave is ready, and no longer than it runs.
    fn ask_probes(&self, name: &PlanName, plan: &WavePlan, look: &Look) -> Vec<Vec<ProbeSeen>> {
        let mut seen = Vec::new();
        for (wave, look) in plan.spec.waves.iter().zip(&look.waves) {
            let status = plan.status.as_ref().and_then(|status| status.wave(&wave.name));
            let started = status.and_then(|status| status.started_at);
            let running = status.is_some_and(|s| matches!(s.phase, WavePhase::Running | WavePhase::TimedOut));
            let rest_is_ready = look.problem.is_none() && look.ready == look.total && look.due.is_empty();
            if let Some(started) = started.filter(|_| running && rest_is_ready && !wave.probes.is_empty()) {
                let start = format!("{started} {}", status.map_or(0, |status| status.attempts));
                seen.push(self.prober.ask(name, &wave.name, &start, &wave.probes, self.wakes.get()));
            } else {
                self.prober.leave(name, &wave.name);
                seen.push(Vec::new());
            }
        }
        seen
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

/// The waves that may have written something which nobody remembers, as after a restart. A wave may write before it is
/// published that it runs, so that all of an unfinished rollout are among them, but for those that are through, and those
/// in trouble, which write nothing until it is published that they run again.
fn may_have_written(plan: &WavePlan) -> BTreeSet<String> {
    let is_unfinished = |rollout: &Rollout| rollout.finished_at.is_none();
    let status = plan.status.iter().filter(|status| status.rollout.as_ref().is_some_and(is_unfinished));
    let waves =
        status.flat_map(|status| &status.waves).filter(|wave| !wave.phase.is_through() && !wave.phase.is_trouble());
    waves.map(|wave| wave.name.clone()).collect()
}

/// The ConfigMaps that the manifests of a plan are in; one that is deleted needs none.
fn source_ids(plan: &WavePlan) -> impl Iterator<Item = ObjectId> {
    let waves: &[Wave] = if is_deleted(plan) { &[] } else { &plan.spec.waves };
    let members = waves.iter().flat_map(|wave| &wave.members).filter_map(|member| member.manifests.as_ref());
    let hooks = waves.iter().filter_map(|wave| wave.hooks.as_ref());
    let hooks = hooks.flat_map(|hooks| hooks.before.iter().chain(&hooks.after));
    members.chain(hooks).filter_map(|manifests| manifests.config_map_ref.as_ref()).map(|reference| ObjectId {
        kind: GroupKind { group: String::new(), kind: "ConfigMap".to_owned() },
        namespace: Some(reference.namespace.clone()),
        name: reference.name.clone(),
    })
}

fn written(kind: &InventoryKind) -> WrittenKind {
    (kind.api_version.clone(), kind.kind.clone())
}

/// What the plan is recorded to hold suspended.
fn held(plan: &WavePlan) -> &[HeldObject] {
    plan.status.as_ref().map_or(&[], |status| &status.held)
}

fn written_kind(held: &HeldObject) -> WrittenKind {
    (held.api_version.clone(), held.kind.clone())
}

/// What is kept of the waves that can be taken back.
async fn kept(plan: &WavePlan, context: &Context) -> Result<BTreeMap<String, Option<String>>, Error> {
    let api: Api<Secret> = Api::default_namespaced(context.client().clone());
    let mut kept = BTreeMap::new();
    let rolls_back = |wave: &&Wave| wave.on_failure == OnFailure::Rollback && !is_deleted(plan);
    for wave in plan.spec.waves.iter().filter(rolls_back) {
        let secret = api.get_opt(&kept_name(plan, &wave.name)).await?;
        kept.insert(wave.name.clone(), secret.as_ref().and_then(kept_in));
    }
    Ok(kept)
}

/// The waves that the published status says were taken back, with the manifests that they have instead.
fn taken_back(plan: &WavePlan, kept: &BTreeMap<String, Option<String>>, revision: &str) -> BTreeMap<String, String> {
    let is_of = |rollout: &Rollout| rollout.revision == revision;
    // A new rollout begins with what the spec says.
    let status = plan.status.iter().filter(|status| status.rollout.as_ref().is_some_and(is_of));
    let waves = status.flat_map(|status| &status.waves).filter(|wave| wave.rolled_back);
    waves.filter_map(|wave| Some((wave.name.clone(), kept.get(&wave.name)?.clone()?))).collect()
}

fn rollbacks(kept: BTreeMap<String, Option<String>>, draft: &Draft) -> BTreeMap<String, Rollback> {
    let wanted = |name: &str| draft.waves.iter().find(|wave| wave.name == name).and_then(|wave| wave.to_keep.clone());
    kept.into_iter().map(|(name, kept)| (name.clone(), Rollback { kept, wanted: wanted(&name) })).collect()
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_wave_of_an_unfinished_rollout_may_have_written_before_it_was_published_that_it_runs() {
        let phases =
            [("a", "Ready"), ("b", "Running"), ("c", "Waiting"), ("d", "TimedOut"), ("e", "Skipped"), ("f", "Blocked")];
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(may_have_written(&plan(None, &phases)), names(&["b", "c", "f"]));
        assert_eq!(may_have_written(&plan(Some("2026-01-01T00:01:00Z"), &phases)), names(&[]));
    }
}
