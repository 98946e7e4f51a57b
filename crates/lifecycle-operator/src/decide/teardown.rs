//! Taking an operand down: the steps of each kind, and what each of them waits for.
//!
//! The order is the reverse of the order of starts, and each operand keeps to it by itself: an operand waits for those
//! that were started after it while they are being deleted, too. So it does not matter in which order objects are
//! deleted, nor by whom.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::ResourceExt;
use opcore::conditions::{self, New, Summary};
use opcore::finalizer::{self, GraphError, OnExpiry, StepStatus, Teardown, TeardownState, step};
use opcore::readiness;
use opcore::{Decision, Note, Write};

use super::volume::{self, Answer};
use super::{Decider, gate, live};
use crate::api::v1alpha1::{
    Backup, OperandKind, OperandStatus, SINGLETON, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider,
    SpireServer, TeardownPolicy, VolumeDeletion,
};
use crate::config::{is_orphaning, is_owned_by};
use crate::observe::{Found, Observed};
use crate::operand::Operand;
use crate::render::volume::{DATA_CLAIM, job_name};
use crate::render::{self, Config};
use crate::volume::report::Outcome;

/// Says which objects of others are in the way of a deletion.
pub const DELETION_BLOCKED: &str = "DeletionBlocked";
/// The step in which an operand waits for those that go before it. It has no deadline of its own.
pub(super) const OTHERS: &str = "others";
/// The last step: whatever else was created.
const OBJECTS: &str = "objects";

/// A step, as it was observed, and what it writes when it may act.
pub struct StepOf {
    status: StepStatus,
    writes: Vec<Write>,
}

impl StepOf {
    fn done() -> Self {
        Self { status: StepStatus::Done, writes: Vec::new() }
    }

    fn pending(reason: impl Into<String>, writes: Vec<Write>) -> Self {
        Self { status: StepStatus::Pending { reason: reason.into(), retry: None }, writes }
    }

    /// Over when none of these objects is left; until then they are deleted.
    fn gone(objects: &[&Found]) -> Self {
        if objects.is_empty() {
            return Self::done();
        }
        let names: Vec<_> = objects.iter().map(|found| found.id().to_string()).collect();
        let writes = objects.iter().filter(|found| !found.is_deleting()).map(|found| found.delete()).collect();
        Self::pending(format!("{} still there", is_or_are(&names)), writes)
    }
}

fn is_or_are(names: &[String]) -> String {
    match names {
        [one] => format!("{one} is"),
        many => format!("{} are", many.join(", ")),
    }
}

/// What is seen of a teardown.
pub struct Scene<'a> {
    observed: &'a Observed,
    decider: &'a Decider,
    /// The objects that belong to the operand.
    mine: Vec<&'a Found>,
    now: Timestamp,
}

impl<'a> Scene<'a> {
    fn of_kind<K: kube::Resource<DynamicType = ()>>(&self) -> Vec<&'a Found> {
        self.mine.iter().copied().filter(|found| found.is::<K>()).collect()
    }

    fn named(&self, kinds: &[&str]) -> Vec<&'a Found> {
        self.mine.iter().copied().filter(|found| kinds.contains(&found.resource.kind.as_str())).collect()
    }

    /// Over when these workloads and all pods of a component are gone.
    fn drained(&self, workloads: &[&Found], component: &str) -> StepOf {
        if !workloads.is_empty() {
            return StepOf::gone(workloads);
        }
        let pods: Vec<_> = self.observed.pods_of(component).map(|pod| format!("Pod {}", pod.name_any())).collect();
        if pods.is_empty() {
            StepOf::done()
        } else {
            StepOf::pending(format!("{} still there", is_or_are(&pods)), Vec::new())
        }
    }

    /// Whatever is left, except for what outlives the operand.
    fn rest(&self) -> StepOf {
        let rest: Vec<_> = self.mine.iter().copied().filter(|found| !found.is::<PersistentVolumeClaim>()).collect();
        StepOf::gone(&rest)
    }
}

/// How an operand is taken down.
pub trait TakenDown: Operand {
    /// The names of the steps, and after which others each comes.
    const STEPS: &'static [(&'static str, &'static [&'static str])];
    /// The operands that go before it.
    const BEFORE: &'static [OperandKind];

    /// Observes a step.
    ///
    /// # Errors
    ///
    /// When an object cannot be rendered, which is a bug.
    fn observe(&self, step: &str, scene: &Scene<'_>, status: &mut OperandStatus) -> Result<StepOf, render::Error>;
}

impl TakenDown for SpireOIDCDiscoveryProvider {
    const STEPS: &'static [(&'static str, &'static [&'static str])] =
        &[(OTHERS, &[]), ("routes", &[OTHERS]), ("drain", &["routes"]), (OBJECTS, &["drain"])];
    const BEFORE: &'static [OperandKind] = &[];

    fn observe(&self, step: &str, scene: &Scene<'_>, _: &mut OperandStatus) -> Result<StepOf, render::Error> {
        Ok(match step {
            "routes" => StepOf::gone(&scene.named(&["Ingress", "Route", "HTTPRoute"])),
            // Without the Service no new requests arrive; the pods then end those they have.
            "drain" => {
                let workloads = [scene.of_kind::<Service>(), scene.of_kind::<Deployment>()].concat();
                scene.drained(&workloads, render::oidc::COMPONENT)
            }
            _ => scene.rest(),
        })
    }
}

impl TakenDown for SpiffeCSIDriver {
    const STEPS: &'static [(&'static str, &'static [&'static str])] = &[
        (OTHERS, &[]),
        ("volumes", &[OTHERS]),
        ("driver", &["volumes"]),
        ("registration", &["driver"]),
        (OBJECTS, &["registration"]),
    ];
    const BEFORE: &'static [OperandKind] = &[OperandKind::SpireOIDCDiscoveryProvider];

    fn observe(&self, step: &str, scene: &Scene<'_>, _: &mut OperandStatus) -> Result<StepOf, render::Error> {
        let observed = scene.observed;
        Ok(match step {
            // Without the driver the kubelet cannot unmount, and these pods would never end.
            "volumes" => match observed.consumers.as_slice() {
                [] => StepOf::done(),
                users => {
                    let by = users.iter().map(ToString::to_string).collect();
                    StepOf { status: StepStatus::Blocked { by, retry: Some(soon(scene.now)) }, writes: Vec::new() }
                }
            },
            "driver" => scene.drained(&scene.of_kind::<DaemonSet>(), render::csi::COMPONENT),
            "registration" => {
                let driver = scene.of_kind::<CSIDriver>();
                match (driver.is_empty(), observed.registered_on.as_slice()) {
                    (true, []) => StepOf::done(),
                    (false, _) => StepOf::gone(&driver),
                    (true, nodes) => {
                        let reason = format!("the driver is still registered on {}", nodes.join(", "));
                        let status = StepStatus::Pending { reason, retry: Some(soon(scene.now)) };
                        StepOf { status, writes: Vec::new() }
                    }
                }
            }
            _ => scene.rest(),
        })
    }
}

/// What no watch reports is looked at again after this long.
fn soon(now: Timestamp) -> Timestamp {
    now.saturating_add(SignedDuration::from_secs(2)).unwrap_or(now)
}

impl TakenDown for SpireAgent {
    const STEPS: &'static [(&'static str, &'static [&'static str])] = &[
        (OTHERS, &[]),
        ("clients", &[OTHERS]),
        ("sockets", &["clients"]),
        ("evict", &["clients"]),
        (OBJECTS, &["sockets", "evict"]),
    ];
    const BEFORE: &'static [OperandKind] = &[OperandKind::SpireOIDCDiscoveryProvider, OperandKind::SpiffeCSIDriver];

    fn observe(&self, step: &str, scene: &Scene<'_>, status: &mut OperandStatus) -> Result<StepOf, render::Error> {
        let is_cleanup = |found: &&Found| found.object.name_any() == render::agent::CLEANUP;
        Ok(match step {
            "clients" => {
                let agents: Vec<_> =
                    scene.of_kind::<DaemonSet>().into_iter().filter(|found| !is_cleanup(found)).collect();
                scene.drained(&agents, render::agent::COMPONENT)
            }
            "sockets" => sockets(self, scene)?,
            // Only after the agents have stopped: one that runs would attest itself again.
            "evict" => evict(scene, status),
            _ => scene.rest(),
        })
    }
}

/// Sockets that agents left on the nodes are removed by pods that run there for a moment.
fn sockets(agent: &SpireAgent, scene: &Scene<'_>) -> Result<StepOf, render::Error> {
    if !scene.observed.namespace_exists {
        return Ok(StepOf::done());
    }
    let cleanup = render::agent::cleanup(agent, &scene.decider.settings, &scene.observed.platform);
    let cleanup = Write::apply(&cleanup).map_err(|error| error.to_string())?;
    let found = cleanup.object().and_then(|id| live(scene.observed, &id));
    let Some(found) = found else {
        return Ok(StepOf::pending("sockets on the nodes are about to be removed", vec![cleanup]));
    };
    let readiness = readiness::of(&found.json, scene.now);
    if readiness.is_ready() {
        return Ok(StepOf::done());
    }
    Ok(StepOf::pending(format!("sockets on the nodes are being removed: {}", readiness.message), Vec::new()))
}

/// How many agents are evicted in one pass.
const EVICTED_AT_ONCE: usize = 8;
/// The program of the server.
const SPIRE_SERVER: &str = "/opt/spire/bin/spire-server";

/// Agents are evicted on the server, so that their certificates cannot be renewed.
fn evict(scene: &Scene<'_>, status: &mut OperandStatus) -> StepOf {
    let observed = scene.observed;
    let server = observed.peer(OperandKind::SpireServer);
    let mut pods = observed.pods_of(render::server::COMPONENT).filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let is_wanted = server.is_some_and(|server| !server.is_deleting() || observed.server_runs());
    let Some(pod) = pods.next() else {
        if is_wanted && observed.server.is_some() {
            return StepOf::pending("the server's pod is not there to evict agents", Vec::new());
        }
        // Without a server nobody could renew a certificate.
        status.attested_agents = Some(Vec::new());
        return StepOf::done();
    };
    // Without a trust bundle no agent was ever started: a server that never ran knows none, and cannot be asked.
    if !gate::has_bundle(observed) && does_not_run(pod) {
        status.attested_agents = Some(Vec::new());
        return StepOf::done();
    }
    let run = |arguments: &[&str]| {
        let command = std::iter::once(SPIRE_SERVER).chain(arguments.iter().copied());
        Write::exec(pod, render::server::CONTAINER, command)
    };
    let list = || run(&["agent", "list", "-output", "json"]);
    match status.attested_agents.as_deref() {
        Some([]) => StepOf::done(),
        None => StepOf::pending("the server is asked which agents it knows", vec![list()]),
        Some(agents) => {
            let evict = agents.iter().take(EVICTED_AT_ONCE);
            let evict = evict.map(|id| run(&["agent", "evict", "-spiffeID", id]));
            let writes = evict.chain([list()]).collect();
            StepOf::pending(format!("{} agents are still attested", agents.len()), writes)
        }
    }
}

/// Whether the kubelet, or nobody yet, says that the server's container does not run.
fn does_not_run(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let mut own = status.container_statuses.iter().flatten().filter(|it| it.name == render::server::CONTAINER);
    let waits = own.any(|container| container.state.as_ref().is_some_and(|state| state.running.is_none()));
    waits || status.phase.as_deref() == Some("Pending")
}

impl TakenDown for SpireServer {
    const STEPS: &'static [(&'static str, &'static [&'static str])] =
        &[(OTHERS, &[]), ("drain", &[OTHERS]), ("backup", &["drain"]), ("volume", &["backup"]), (OBJECTS, &["volume"])];
    const BEFORE: &'static [OperandKind] =
        &[OperandKind::SpireOIDCDiscoveryProvider, OperandKind::SpiffeCSIDriver, OperandKind::SpireAgent];

    fn observe(&self, step: &str, scene: &Scene<'_>, status: &mut OperandStatus) -> Result<StepOf, render::Error> {
        match step {
            "drain" => Ok(scene.drained(&scene.of_kind::<StatefulSet>(), render::server::COMPONENT)),
            "backup" => backup(self, scene, status),
            "volume" => Ok(release_volume(self, scene, status)),
            _ => Ok(scene.rest()),
        }
    }
}

/// The name of the backup that is made before a server goes.
fn backup_before_deletion(server: &SpireServer) -> String {
    let at = server.metadata.deletion_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    volume::backup_name("deletion", at)
}

fn backup(server: &SpireServer, scene: &Scene<'_>, status: &mut OperandStatus) -> Result<StepOf, render::Error> {
    let has_data = scene.observed.claims.iter().any(|claim| {
        claim.name_any() == DATA_CLAIM && claim.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Bound")
    });
    if !server.spec.backup.on_delete || !has_data || !scene.observed.namespace_exists {
        return Ok(StepOf::done());
    }
    let name = backup_before_deletion(server);
    let mut volume = status.volume.clone().unwrap_or_default();
    if volume.last_backup.as_ref().is_some_and(|last| last.name == name) {
        return Ok(StepOf::done());
    }
    let work = volume::backup_job(server, &name);
    let job = job_name(&work);
    match volume::answer(&job, scene.observed) {
        Answer::Over(report) if matches!(report.result, Outcome::BackedUp | Outcome::Empty) => {
            volume.last_backup = Some(Backup { name: name.clone(), ..volume::backup_of(&report, &name) });
            status.volume = Some(volume);
            // It is over when the status that names the backup is published.
            Ok(StepOf::pending(report.message, Vec::new()))
        }
        Answer::Over(report) => Ok(StepOf::pending(
            format!("{} Mend that, and delete Job {} to try again.", report.message, job),
            Vec::new(),
        )),
        Answer::Lost => {
            let jobs = scene.of_kind::<Job>().into_iter().filter(|found| found.object.name_any() == job);
            Ok(StepOf::pending("the backup is made once more: its result was lost", jobs.map(Found::delete).collect()))
        }
        Answer::Running(trouble) => {
            Ok(StepOf::pending(trouble.unwrap_or_else(|| format!("backup {name} is being made")), Vec::new()))
        }
        Answer::NotAsked => {
            let config = config_of_data(server, scene.observed);
            let writes = vec![
                volume::claim(&render::volume::backup_claim(server, &scene.decider.settings))?,
                volume::job(server, &config, scene.observed, scene.decider, &work)?,
            ];
            Ok(StepOf::pending(format!("backup {name} is about to be made"), writes))
        }
    }
}

/// The config under which the data was written, as the status says.
fn config_of_data(server: &SpireServer, observed: &Observed) -> Config {
    let values = server.status.as_ref().map_or(&[][..], |status| &status.config);
    let value = |name: &str| {
        values.iter().find(|value| value.name == name).map(|value| value.value.clone()).unwrap_or_default()
    };
    Config {
        trust_domain: volume::trust_domain_of_data(observed).map_or_else(|| value("trustDomain"), str::to_owned),
        cluster_name: value("clusterName"),
        bundle_config_map: value("bundleConfigMap"),
        jwt_issuer: value("jwtIssuer"),
    }
}

/// The volume is deleted only if that was asked for, and only with a verified backup of exactly this deletion.
fn release_volume(server: &SpireServer, scene: &Scene<'_>, status: &OperandStatus) -> StepOf {
    if server.spec.persistence.deletion_policy != VolumeDeletion::Delete {
        return StepOf::done();
    }
    let last = status.volume.as_ref().and_then(|volume| volume.last_backup.as_ref());
    let is_backed_up = last.is_some_and(|last| last.name == backup_before_deletion(server));
    let is_data = |found: &&&Found| found.is::<PersistentVolumeClaim>() && found.object.name_any() == DATA_CLAIM;
    let claims: Vec<_> = scene.observed.found.iter().by_ref().filter(|found| is_data(&found)).collect();
    if claims.is_empty() {
        return StepOf::done();
    }
    if !is_backed_up {
        let words = format!(
            "PersistentVolumeClaim {DATA_CLAIM} is kept: there is no verified backup of it. Set spec.backup.onDelete, or \
             spec.persistence.deletionPolicy: Retain"
        );
        return StepOf::pending(words, Vec::new());
    }
    // Kubernetes keeps a claim as long as there is a pod that names it, even one that has ended: the Job's goes with the Job,
    // whose result is in the status by now.
    StepOf::gone(&[scene.of_kind::<Job>(), claims].concat())
}

/// The teardown of a kind of operand, as a graph. When the time of the whole stack is up and what takes too long is to be
/// given up, each step that is left has no time but for one try.
fn graph<K: TakenDown>(policy: &TeardownPolicy, is_time_up: bool) -> Result<Teardown, GraphError> {
    let gives_up = is_time_up && policy.on_expiry == OnExpiry::Force;
    let within: Duration = if gives_up { Duration::ZERO } else { policy.operand_timeout.as_duration() };
    let steps = K::STEPS.iter().map(|(name, after)| {
        let step = step(*name).after(after.iter().copied());
        // How long the others take is measured on them.
        if *name == OTHERS { step } else { step.within(within) }
    });
    Ok(Teardown::graph(steps)?.on_expiry(policy.on_expiry))
}

/// Whether the time of the teardown of the whole stack is up.
fn is_time_up(observed: &Observed, now: Timestamp) -> bool {
    let deadline = observed.parent.as_ref().and_then(|parent| {
        let started = parent.status.as_ref()?.teardown.as_ref()?.started_at;
        let within = SignedDuration::try_from(parent.spec.teardown.timeout.as_duration()).ok()?;
        started.checked_add(within).ok()
    });
    deadline.is_some_and(|deadline| deadline <= now)
}

/// The operands that must be gone before this one.
fn others<K: TakenDown>(observed: &Observed) -> StepOf {
    let stack_goes = observed
        .parent
        .as_ref()
        .is_some_and(|parent| parent.metadata.deletion_timestamp.is_some() && !is_orphaning(parent));
    let uid = observed.parent.as_ref().and_then(|parent| parent.metadata.uid.as_deref()).unwrap_or_default();
    let first = |kind: &&OperandKind| {
        observed.peer(**kind).is_some_and(|peer| peer.is_deleting() || (stack_goes && peer.is_owned_by(uid)))
    };
    let names: Vec<_> = K::BEFORE.iter().filter(first).map(|kind| format!("{kind} {SINGLETON}")).collect();
    if names.is_empty() {
        StepOf::done()
    } else {
        StepOf::pending(format!("{} to go first", is_or_are(&names)), Vec::new())
    }
}

/// Whether `--cascade=orphan` released the objects of an operand: Kubernetes has taken the owner references away that
/// every ServiceAccount of ours has.
fn is_released<K: TakenDown>(operand: &K, observed: &Observed) -> bool {
    // It was seen under way. Kubernetes may overlook an object that it does not know yet.
    let ready = operand.status().and_then(|status| conditions::find(&status.conditions, conditions::READY));
    if ready.is_some_and(|ready| ready.reason == ORPHANING) {
        return true;
    }
    let uid = operand.uid().unwrap_or_default();
    let mut accounts = observed.found.iter().filter(|found| found.is::<ServiceAccount>());
    accounts.any(|account| !is_owned_by(&account.object.metadata, &uid))
}

/// The reason of an operand whose objects stay.
const ORPHANING: &str = "Orphaning";

fn orphaning() -> Summary {
    let message = "Kubernetes is releasing the objects of this operand, as --cascade=orphan asks.";
    Summary::reconciling(ORPHANING, message)
}

/// Decides how to take an operand down.
pub fn tear_down<K: TakenDown>(operand: &K, observed: &Observed, decider: &Decider, now: Timestamp) -> Decision<K> {
    let mut status = operand.status().cloned().unwrap_or_default();
    let generation = operand.meta().generation;
    if is_orphaning(operand) {
        let mut decision = Decision::say(status);
        orphaning().write(&mut decision.status, generation, now);
        return decision;
    }
    let released = is_released(operand, observed);
    let scene = Scene { observed, decider, mine: observed.found.iter().collect(), now };
    let policy = observed.parent.as_ref().map(|parent| parent.spec.teardown.clone()).unwrap_or_default();

    let mut writes = std::collections::BTreeMap::new();
    let observe = |name: &str| {
        let step = match name {
            // What was released stays as it is.
            _ if released => Ok(StepOf::done()),
            OTHERS => Ok(others::<K>(observed)),
            _ => operand.observe(name, &scene, &mut status),
        };
        let step = step.unwrap_or_else(|bug| StepOf::pending(format!("this cannot be rendered: {bug}"), Vec::new()));
        writes.insert(name.to_owned(), step.writes);
        step.status
    };
    let before = operand.status().cloned().unwrap_or_default();
    let steps = graph::<K>(&policy, is_time_up(observed, now));
    let (mut decision, progress) = finalizer::pass(operand, before, steps, observe, now);
    // What only this kind has was updated while its steps were observed.
    decision.status.volume = status.volume;
    decision.status.attested_agents = status.attested_agents;
    decision.notes.extend(backed_up(operand.status(), &decision.status));
    // One stage: a write that is refused in one step must not delay the others. A command and what asks for its effect
    // come one after the other.
    let (commands, others): (Vec<_>, Vec<_>) = progress
        .act
        .iter()
        .flat_map(|step| writes.remove(step).unwrap_or_default())
        .partition(|write| matches!(write, Write::Exec(_)));
    decision.writes.together(others);
    for command in commands {
        decision.writes.then(command);
    }
    if released {
        orphaning().write(&mut decision.status, generation, now);
    }
    let conditions = &mut decision.status.conditions;
    if let TeardownState::Blocked { by } = &progress.state {
        let message = format!("Still in use by {}. Delete what uses it, or let it end.", by.join(", "));
        conditions::set(
            conditions,
            New { kind: DELETION_BLOCKED, status: "True", reason: "InUse", message: &message },
            generation,
            now,
        );
    } else {
        conditions::remove(conditions, DELETION_BLOCKED);
    }
    decision
}

/// The event of a backup that was made just now: it outlives the status that names it.
fn backed_up(before: Option<&OperandStatus>, now: &OperandStatus) -> Option<Note> {
    let last = |status: &OperandStatus| status.volume.as_ref().and_then(|volume| volume.last_backup.clone());
    let made = last(now).filter(|made| made.files > 0 && before.and_then(last).as_ref() != Some(made))?;
    let Backup { name, claim, files, bytes, .. } = made;
    let message =
        format!("Backup {name} in {claim} holds {files} files with {bytes} bytes; their checksums are right.");
    Some(Note::normal("BackedUp", message))
}

/// What the server said about its agents, from the output of `agent list`.
///
/// # Errors
///
/// When it is not what the program prints.
pub fn agents_in(output: &str) -> Result<Vec<String>, serde_json::Error> {
    #[derive(serde::Deserialize)]
    struct List {
        #[serde(default)]
        agents: Vec<Agent>,
    }
    #[derive(serde::Deserialize)]
    struct Agent {
        id: Id,
    }
    #[derive(serde::Deserialize)]
    struct Id {
        trust_domain: String,
        path: String,
    }
    let list: List = serde_json::from_str(output)?;
    let mut ids: Vec<_> =
        list.agents.into_iter().map(|agent| format!("spiffe://{}{}", agent.id.trust_domain, agent.id.path)).collect();
    ids.sort();
    Ok(ids)
}
