//! What holds whatever is deleted first, whoever gets the next turn, and whichever write a process crashes after.
//!
//! The cluster is made up; what is in it is what is rendered for a stack, and what is done is what is decided.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use opcore::Write;
use opcore::ownership::Claimant;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{UID, at, decider, found, read};
use crate::api::v1alpha1::{
    self as api, OperandKind, OperandStatus, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer,
    ZeroTrustWorkloadIdentityManager as Ztwim,
};
use crate::decide::keep::{self, Wants};
use crate::decide::stack;
use crate::decide::teardown::{self, TakenDown};
use crate::observe::{Consumer, Found, Observed};
use crate::operand::{Operand, Peer};
use crate::render::volume::DATA_CLAIM;
use crate::render::{self, Config, Platform};
use crate::volume::report::{Outcome, Report};

const PLATFORM: Platform =
    Platform { routes: false, security_context_constraints: false, http_routes: false, spiffe_ids: true };

/// Who may be deleted: the parent and the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Parent,
    One(OperandKind),
}

const ALL: [Who; 5] = [
    Who::Parent,
    Who::One(OperandKind::SpireServer),
    Who::One(OperandKind::SpireAgent),
    Who::One(OperandKind::SpiffeCSIDriver),
    Who::One(OperandKind::SpireOIDCDiscoveryProvider),
];

/// A cluster with a stack that runs.
#[derive(Clone)]
struct World {
    parent: Option<Value>,
    operands: BTreeMap<OperandKind, Value>,
    /// The same, as the others see them.
    peers: BTreeMap<OperandKind, Peer>,
    objects: Vec<(OperandKind, Found)>,
    /// The pods of the operands by their component, each with whether it is being deleted, and those of Jobs.
    pods: Vec<(&'static str, bool)>,
    reports: BTreeMap<String, Report>,
    /// How many turns the pod of somebody that uses the driver lives on.
    consumer: u8,
    agents: BTreeSet<String>,
    backups: BTreeSet<String>,
    /// Whether the server went on its way down before anybody asked for the agents to go.
    is_server_first: bool,
}

fn component(kind: OperandKind) -> &'static str {
    match kind {
        OperandKind::SpireServer => render::server::COMPONENT,
        OperandKind::SpireAgent => render::agent::COMPONENT,
        OperandKind::SpiffeCSIDriver => render::csi::COMPONENT,
        OperandKind::SpireOIDCDiscoveryProvider => render::oidc::COMPONENT,
    }
}

impl World {
    fn new(policy: &str, consumer: u8) -> Self {
        let owner = json!([{
            "apiVersion": "operator.openshift.io/v1alpha1", "kind": "ZeroTrustWorkloadIdentityManager",
            "name": "cluster", "uid": UID, "controller": true, "blockOwnerDeletion": true,
        }]);
        let operand = |kind: OperandKind| {
            let spec = match kind {
                OperandKind::SpireServer => json!({ "persistence": { "deletionPolicy": policy } }),
                _ => json!({}),
            };
            let meta =
                json!({ "name": "cluster", "uid": format!("uid-{kind}"), "generation": 1, "ownerReferences": owner });
            (kind, json!({ "metadata": meta, "spec": spec }))
        };
        let parent = json!({ "metadata": { "name": "cluster", "uid": UID }, "spec": { "trustDomain": "example.org" } });
        let operands: BTreeMap<_, _> = OperandKind::ALL.into_iter().map(operand).collect();
        let mut world = Self {
            parent: Some(parent),
            peers: operands.iter().map(|(kind, operand)| (*kind, peer(*kind, operand))).collect(),
            operands,
            objects: Vec::new(),
            pods: OperandKind::ALL.map(|kind| (component(kind), false)).into(),
            reports: BTreeMap::new(),
            consumer,
            agents: ["a", "b", "c"].map(|name| format!("spiffe://example.org/spire/agent/{name}")).into(),
            backups: BTreeSet::new(),
            is_server_first: false,
        };
        let (settings, platform) = (&decider().settings, &PLATFORM);
        let config = Config {
            trust_domain: "example.org".to_owned(),
            cluster_name: "c".to_owned(),
            bundle_config_map: "spire-bundle".to_owned(),
            jwt_issuer: "https://oidc.example.org".to_owned(),
        };
        let server: SpireServer = read(&world.operands[&OperandKind::SpireServer]);
        let agent: SpireAgent = read(&world.operands[&OperandKind::SpireAgent]);
        let driver: SpiffeCSIDriver = read(&world.operands[&OperandKind::SpiffeCSIDriver]);
        let provider: SpireOIDCDiscoveryProvider = read(&world.operands[&OperandKind::SpireOIDCDiscoveryProvider]);
        world.create(&server, &render::server::objects(&server, &config, settings, platform, true).unwrap());
        world.create(&agent, &render::agent::objects(&agent, &config, settings, platform).unwrap());
        world.create(&driver, &render::csi::objects(&driver, settings, platform).unwrap());
        world.create(&provider, &render::oidc::objects(&provider, &config, settings, platform).unwrap());
        let claim = render::volume::data_claim(&server, &config, settings);
        world.apply(OperandKind::SpireServer, &Write::apply(&claim).unwrap());
        world
    }

    fn create<K: Operand>(&mut self, operand: &K, objects: &render::Objects) {
        // They carry the marks of what they were made for.
        let owner = Claimant::acting_for("lifecycle-operator", operand).owner.unwrap();
        assert_eq!(owner.uid, format!("uid-{}", K::KIND));
        for write in objects.iter() {
            self.apply(K::KIND, write);
        }
    }

    fn apply(&mut self, kind: OperandKind, write: &Write) {
        let Write::Apply(apply) = write else { panic!("{write}") };
        if self.objects.iter().any(|(_, found)| found.id() == apply.id()) {
            return;
        }
        let mut object = serde_json::to_value(&apply.object).unwrap();
        object["metadata"]["uid"] = format!("uid-{}", apply.id()).into();
        object["metadata"]["generation"] = 1.into();
        object["status"] = match apply.resource.kind.as_str() {
            "PersistentVolumeClaim" => json!({ "phase": "Bound" }),
            "DaemonSet" => json!({
                "observedGeneration": 1, "desiredNumberScheduled": 1, "currentNumberScheduled": 1,
                "updatedNumberScheduled": 1, "numberReady": 1, "numberAvailable": 1, "numberMisscheduled": 0,
            }),
            _ => json!({}),
        };
        self.objects.push((kind, found(object)));
    }

    fn is_deleting(&self, kind: OperandKind) -> bool {
        self.operands.get(&kind).is_some_and(|operand| !operand["metadata"]["deletionTimestamp"].is_null())
    }

    fn runs(&self, component: &str) -> bool {
        self.pods.iter().any(|(name, _)| *name == component)
    }

    fn observed(&self, kind: OperandKind) -> Observed {
        let pod = |name: String, labels: Value, status: Value| -> k8s_openapi::api::core::v1::Pod {
            read(
                &json!({ "metadata": { "name": name, "namespace": "spire", "uid": "p", "labels": labels }, "status": status }),
            )
        };
        let of_operands = self.pods.iter().map(|(component, _)| {
            let status = json!({ "containerStatuses": [{
                "name": render::server::CONTAINER, "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
                "state": { "running": {} },
            }]});
            pod(format!("{component}-0"), json!({ "app.kubernetes.io/component": component }), status)
        });
        let of_jobs = self.reports.iter().map(|(job, report)| {
            let ended = json!({ "exitCode": 0, "startedAt": "2027-01-15T08:00:00Z", "message": report.to_json() });
            let status = json!({ "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": { "terminated": ended },
            }]});
            pod(format!("{job}-x"), json!({ "batch.kubernetes.io/job-name": job }), status)
        });
        let objects = || self.objects.iter().map(|(_, found)| found);
        Observed {
            parent: self.parent.as_ref().map(read::<Ztwim>),
            peers: self.peers.values().cloned().collect(),
            found: self.objects.iter().filter(|(its, _)| *its == kind).map(|(_, found)| found.clone()).collect(),
            pods: of_operands.chain(of_jobs).collect(),
            claims: objects().filter(|it| it.is::<PersistentVolumeClaim>()).map(|it| read(&it.json)).collect(),
            server: objects().find(|it| it.is::<StatefulSet>()).map(|it| read(&it.json)),
            platform: PLATFORM,
            namespace_exists: true,
            consumers: self.consumers(),
            registered_on: if self.runs(render::csi::COMPONENT) { vec!["node".to_owned()] } else { Vec::new() },
            ..Observed::default()
        }
    }

    fn consumers(&self) -> Vec<Consumer> {
        let pod = |is: bool, name: &str| is.then(|| Consumer { namespace: "n".to_owned(), name: name.to_owned() });
        pod(self.consumer > 0, "shop").into_iter().chain(pod(self.runs(render::oidc::COMPONENT), "provider")).collect()
    }

    /// Whether an operand waits for no others any more.
    fn is_on_its_way(&self, kind: OperandKind) -> bool {
        let Some(peer) = self.peers.get(&kind) else { return true };
        let others = peer.status.teardown.as_ref().and_then(|it| it.step("others"));
        others.is_some_and(|step| step.phase.is_over())
    }

    /// Somebody deletes something.
    fn delete(&mut self, who: Who) {
        let agent = OperandKind::SpireAgent;
        if who == Who::One(agent) && !self.is_deleting(agent) {
            self.is_server_first |= self.is_on_its_way(OperandKind::SpireServer);
        }
        let object = match who {
            Who::Parent => self.parent.as_mut(),
            Who::One(kind) => self.operands.get_mut(&kind),
        };
        let Some(object) = object else { return };
        let meta = object["metadata"].as_object_mut().unwrap();
        meta.entry("deletionTimestamp").or_insert_with(|| "2027-01-15T08:00:00Z".into());
        if let Who::One(kind) = who {
            self.peers.insert(kind, peer(kind, &self.operands[&kind]));
        }
    }

    /// One turn of a controller, which crashes after so many writes.
    fn turn(&mut self, who: Who, crash: Option<usize>) -> Result<(), TestCaseError> {
        match who {
            Who::Parent => self.turn_of_parent(crash),
            Who::One(OperandKind::SpireServer) => self.turn_of::<SpireServer>(crash),
            Who::One(OperandKind::SpireAgent) => self.turn_of::<SpireAgent>(crash),
            Who::One(OperandKind::SpiffeCSIDriver) => self.turn_of::<SpiffeCSIDriver>(crash),
            Who::One(OperandKind::SpireOIDCDiscoveryProvider) => self.turn_of::<SpireOIDCDiscoveryProvider>(crash),
        }
    }

    fn turn_of_parent(&mut self, crash: Option<usize>) -> Result<(), TestCaseError> {
        let Some(parent) = self.parent.as_ref().map(read::<Ztwim>) else { return Ok(()) };
        if parent.metadata.deletion_timestamp.is_none() {
            return Ok(());
        }
        let decision = stack::tear_down(&parent, &self.observed(OperandKind::SpireServer), at(0));
        for (number, write) in decision.writes.iter().enumerate() {
            if crash == Some(number) {
                return Ok(());
            }
            let Write::Delete(delete) = write else { panic!("{write}") };
            let kind = OperandKind::ALL.into_iter().find(|kind| kind.as_str() == delete.target.resource.kind).unwrap();
            self.delete(Who::One(kind));
        }
        if decision.release {
            prop_assert!(self.operands.is_empty(), "the parent is released while {:?} are there", self.operands.keys());
            self.parent = None;
        } else if crash.is_none() {
            self.parent.as_mut().unwrap()["status"] = serde_json::to_value(&decision.status).unwrap();
        }
        Ok(())
    }

    fn turn_of<K: TakenDown + Wants>(&mut self, crash: Option<usize>) -> Result<(), TestCaseError> {
        let Some(operand) = self.operands.get(&K::KIND).map(read::<K>) else { return Ok(()) };
        let observed = self.observed(K::KIND);
        if !self.is_deleting(K::KIND) {
            // Of what keeps an operand running, only that matters here which stops it.
            if K::KIND != OperandKind::SpireOIDCDiscoveryProvider || !self.is_deleting(OperandKind::SpiffeCSIDriver) {
                return Ok(());
            }
            let decision = keep::keep(&operand, &observed, &decider(), at(0));
            let deletes = decision.writes.iter().filter(|write| matches!(write, Write::Delete(_)));
            for write in deletes {
                self.commit(K::KIND, write)?;
            }
            return Ok(());
        }
        let decision = teardown::tear_down(&operand, &observed, &decider(), at(0));
        let mut status: OperandStatus = decision.status;
        for (number, write) in decision.writes.iter().enumerate() {
            if crash == Some(number) {
                return Ok(());
            }
            if let Some(agents) = self.commit(K::KIND, write)? {
                status.attested_agents = Some(agents);
            }
        }
        if decision.release {
            let left: Vec<_> = self
                .objects
                .iter()
                .filter(|(kind, found)| *kind == K::KIND && !found.is::<PersistentVolumeClaim>())
                .collect();
            prop_assert!(left.is_empty(), "{} is released while {:?} is there", K::KIND, left[0].1.id());
            prop_assert!(!self.runs(component(K::KIND)));
            self.operands.remove(&K::KIND);
            self.peers.remove(&K::KIND);
        } else if crash.is_none() {
            let others = |status: Option<&OperandStatus>| {
                status.and_then(|it| it.teardown.as_ref()?.step("others")).is_some_and(|step| step.phase.is_over())
            };
            if others(Some(&status)) && !others(operand.status()) {
                let first = K::BEFORE.iter().find(|kind| self.is_deleting(**kind));
                prop_assert_eq!(first, None, "{} does not wait", K::KIND);
            }
            self.operands.get_mut(&K::KIND).unwrap()["status"] = serde_json::to_value(&status).unwrap();
            self.peers.insert(K::KIND, peer(K::KIND, &self.operands[&K::KIND]));
        }
        Ok(())
    }

    /// Does one write, and checks what holds at every moment. Answers the agents that the server told of.
    fn commit(&mut self, kind: OperandKind, write: &Write) -> Result<Option<Vec<String>>, TestCaseError> {
        match write {
            Write::Apply(apply) => {
                self.apply(kind, write);
                if apply.resource.kind == "Job" && !self.reports.contains_key(&apply.object.name_any()) {
                    prop_assert!(!self.runs(render::server::COMPONENT), "a volume is worked on while the server runs");
                    let name = apply.object.name_any();
                    self.backups.insert(name.clone());
                    self.reports.insert(name, Report::new(Outcome::BackedUp, "It is backed up."));
                }
            }
            Write::Delete(delete) => {
                let place = self.objects.iter().position(|(its, found)| {
                    *its == kind
                        && found.id() == delete.target.id()
                        && found.object.uid().as_ref() == Some(&delete.target.uid)
                });
                let Some(place) = place else {
                    return Err(TestCaseError::fail(format!("{write} is of nothing that was seen")));
                };
                let (_, gone) = self.objects.remove(place);
                self.check_order(kind, &gone)?;
                let is_workload = ["Deployment", "StatefulSet", "DaemonSet"].contains(&gone.resource.kind.as_str());
                if is_workload && gone.object.name_any() != render::agent::CLEANUP {
                    self.pods
                        .iter_mut()
                        .filter(|(name, _)| *name == component(kind))
                        .for_each(|(_, going)| *going = true);
                }
                if gone.is::<Job>() {
                    self.reports.remove(&gone.object.name_any());
                }
            }
            Write::Exec(exec) => {
                prop_assert!(self.runs(render::server::COMPONENT), "nobody is there to do it");
                prop_assert!(!self.runs(render::agent::COMPONENT), "an agent that runs would attest itself again");
                if exec.command.iter().any(|word| word == "evict") {
                    self.agents.remove(exec.command.last().unwrap());
                } else {
                    return Ok(Some(self.agents.iter().cloned().collect()));
                }
            }
            other => panic!("{other}"),
        }
        Ok(None)
    }

    fn check_order(&self, kind: OperandKind, gone: &Found) -> Result<(), TestCaseError> {
        match kind {
            OperandKind::SpiffeCSIDriver if gone.is::<DaemonSet>() => {
                prop_assert!(self.consumers().is_empty(), "the driver goes before {:?}", self.consumers());
            }
            OperandKind::SpireServer if gone.is::<PersistentVolumeClaim>() => {
                prop_assert_eq!(gone.object.name_any(), DATA_CLAIM, "backups are never deleted");
                prop_assert!(!self.backups.is_empty(), "a volume goes without a backup");
                let server: SpireServer = read(&self.operands[&kind]);
                prop_assert_eq!(server.spec.persistence.deletion_policy, api::VolumeDeletion::Delete);
                let status = server.status.unwrap();
                prop_assert!(status.volume.is_some_and(|it| it.last_backup.is_some()), "before that is published");
            }
            _ => {}
        }
        Ok(())
    }

    /// Time passes: what is being deleted goes, unless it needs a driver that is not there.
    fn tick(&mut self) {
        let driver = self.runs(render::csi::COMPONENT);
        self.pods.retain(|(name, going)| !going || (*name == render::oidc::COMPONENT && !driver));
        self.consumer = self.consumer.saturating_sub(1);
    }

    fn is_gone(&self) -> bool {
        self.parent.is_none() && self.operands.is_empty()
    }
}

fn peer(kind: OperandKind, operand: &Value) -> Peer {
    match kind {
        OperandKind::SpireServer => Peer::of(&read::<SpireServer>(operand)),
        OperandKind::SpireAgent => Peer::of(&read::<SpireAgent>(operand)),
        OperandKind::SpiffeCSIDriver => Peer::of(&read::<SpiffeCSIDriver>(operand)),
        OperandKind::SpireOIDCDiscoveryProvider => Peer::of(&read::<SpireOIDCDiscoveryProvider>(operand)),
    }
    .unwrap()
}

/// Lets everybody have turns until everything is gone.
fn ends(world: &mut World) -> Result<(), TestCaseError> {
    for _ in 0..100 {
        for who in ALL {
            world.turn(who, None)?;
        }
        world.tick();
        if world.is_gone() {
            let left: BTreeSet<_> = world.objects.iter().map(|(_, found)| found.object.name_any()).collect();
            prop_assert!(left.iter().all(|name| name == DATA_CLAIM || name == api::BACKUP_CLAIM), "{left:?} is left");
            let evicted = world.agents.is_empty() || world.is_server_first;
            prop_assert!(evicted, "{:?} could renew their certificates", world.agents);
            prop_assert_eq!(world.backups.len(), 1);
            return Ok(());
        }
    }
    let left: Vec<_> =
        world.operands.iter().map(|(kind, operand)| format!("{kind}: {}", operand["status"]["teardown"])).collect();
    Err(TestCaseError::fail(format!("it never ends: {left:#?}")))
}

fn permutations(of: &[Who]) -> Vec<Vec<Who>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let first = |place: usize| {
        let others: Vec<_> = of[..place].iter().chain(&of[place + 1..]).copied().collect();
        permutations(&others).into_iter().map(move |rest| [vec![of[place]], rest].concat())
    };
    (0..of.len()).flat_map(first).collect()
}

#[test]
fn every_order_of_deleting_the_five_ends_with_nothing_left_and_nothing_released_early() {
    let orders = permutations(&ALL);
    assert_eq!(orders.len(), 120);
    let new = World::new("Delete", 3);
    for (number, order) in orders.into_iter().enumerate() {
        // All at once, or each when those before it had some time.
        let turns = [0, 3][number % 2];
        let mut world = new.clone();
        let mut run = || {
            for who in &order {
                world.delete(*who);
                for _ in 0..turns {
                    ALL.into_iter().try_for_each(|who| world.turn(who, None))?;
                    world.tick();
                }
            }
            ends(&mut world)
        };
        run().unwrap_or_else(|error| panic!("{order:?}, {turns} turns apart: {error}"));
    }
}

#[test]
fn each_operand_deleted_alone_goes_and_what_it_needs_stays() {
    for kind in OperandKind::ALL {
        let mut world = World::new("Retain", 3);
        world.delete(Who::One(kind));
        for _ in 0..60 {
            ALL.into_iter().try_for_each(|who| world.turn(who, None)).unwrap();
            world.tick();
        }
        assert_eq!(world.operands.len(), 3, "{kind} does not go: {}", world.operands[&kind]["status"]);
        for other in world.operands.keys().filter(|other| **other != OperandKind::SpireOIDCDiscoveryProvider) {
            assert!(world.runs(component(*other)), "{other} was stopped for {kind}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn whatever_crashes_whenever_it_ends_in_order(
        order in Just(ALL.to_vec()).prop_shuffle(),
        gaps in proptest::collection::vec(0..12usize, 5),
        turns in proptest::collection::vec((0..5usize, proptest::option::of(0..4usize)), 60),
        consumer in 0..30u8,
        policy in prop_oneof![Just("Retain"), Just("Delete")],
    ) {
        let mut world = World::new(policy, consumer);
        let mut turns = turns.into_iter();
        for (who, gap) in order.into_iter().zip(gaps) {
            world.delete(who);
            for (turn, crash) in turns.by_ref().take(gap) {
                world.turn(ALL[turn], crash)?;
                world.tick();
            }
        }
        for (turn, crash) in turns {
            world.turn(ALL[turn], crash)?;
            world.tick();
        }
        ends(&mut world)?;
    }
}
