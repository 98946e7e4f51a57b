//! An operand that is not being deleted: what is applied, what waits, what is no longer wanted, and what is said.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use opcore::conditions::{self, Condition, New, ObjectState, Summary};
use opcore::ownership::Claimant;
use opcore::readiness::{self, ReadinessState};
use opcore::{Decision, Note, ObjectId, Write};

use super::{Decider, gate, is_applied, live, migration, pods, volume};
use crate::api::v1alpha1::{
    OperandKind, OperandStatus, SINGLETON, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer,
};
use crate::config::{self, Conflict};
use crate::observe::{Found, Observed};
use crate::operand::{Operand, Peer, config_of};
use crate::render::{self, Config, Objects};

/// What an operand wants beside the objects that are rendered for it.
#[derive(Debug, Default)]
pub struct Wanted {
    /// The objects.
    pub objects: Objects,
    /// What is said instead of the state of the workload.
    pub summary: Option<Summary>,
    /// What is said when the workload is ready, if that is not enough.
    pub instead_of_ready: Option<Summary>,
    /// Whether the workload is stopped on purpose: then it is not applied, and what there is of it goes.
    pub stopped: bool,
    /// Objects that are over.
    pub over: Vec<Write>,
    /// What may be wrong with the spec, though it is accepted.
    pub warnings: Vec<String>,
    /// Events.
    pub notes: Vec<Note>,
}

/// What an operand wants.
pub trait Wants: Operand {
    /// Decides it, and updates the fields of the status that only this kind has.
    ///
    /// # Errors
    ///
    /// When an object cannot be rendered, which is a bug.
    fn wants(
        &self,
        config: &Config,
        observed: &Observed,
        decider: &Decider,
        status: &mut OperandStatus,
        now: Timestamp,
    ) -> Result<Wanted, render::Error>;
}

impl Wants for SpireServer {
    fn wants(
        &self,
        config: &Config,
        observed: &Observed,
        decider: &Decider,
        status: &mut OperandStatus,
        now: Timestamp,
    ) -> Result<Wanted, render::Error> {
        let plan = volume::plan(self, config, observed, decider, now)?;
        let mut objects = render::server::objects(self, config, &decider.settings, &observed.platform, plan.running)?;
        objects.support.extend(plan.writes);
        let mut volume = plan.status;
        if plan.running {
            volume.claim = Some(render::volume::DATA_CLAIM.to_owned());
        }
        status.volume = Some(volume);
        // Ready means that agents can start.
        let instead_of_ready = (!gate::has_bundle(observed)).then(|| {
            let map = &config.bundle_config_map;
            let message = format!("The server has not yet put its trust bundle into ConfigMap {map}.");
            Summary::reconciling("WaitingForBundle", message)
        });
        let mut warnings = render::server::warnings(self);
        warnings.extend(render::server::prerequisites(self, &decider.settings, observed.platform));
        let (summary, over, notes) = (plan.summary, plan.over, plan.notes);
        Ok(Wanted { objects, summary, instead_of_ready, warnings, over, notes, stopped: false })
    }
}

impl Wants for SpireAgent {
    fn wants(
        &self,
        config: &Config,
        observed: &Observed,
        decider: &Decider,
        _: &mut OperandStatus,
        _: Timestamp,
    ) -> Result<Wanted, render::Error> {
        let objects = render::agent::objects(self, config, &decider.settings, &observed.platform)?;
        let migration = migration::of(observed.parent.as_ref());
        let stopped = migration::stops(observed.parent.as_ref());
        let summary = migration
            .filter(|_| stopped)
            .map(|migration| Summary::reconciling("Migrating", migration::message(migration)));
        Ok(Wanted { objects, summary, stopped, ..Wanted::default() })
    }
}

impl Wants for SpiffeCSIDriver {
    fn wants(
        &self,
        _: &Config,
        observed: &Observed,
        decider: &Decider,
        _: &mut OperandStatus,
        _: Timestamp,
    ) -> Result<Wanted, render::Error> {
        let objects = render::csi::objects(self, &decider.settings, &observed.platform)?;
        let agent = observed.peer(OperandKind::SpireAgent);
        let summary = agent.and_then(|agent| {
            let (one, other) = (agent.spec["socketPath"].as_str()?, self.spec.agent_socket_path.as_str());
            let names = ("SpireAgent", "spec.socketPath", "SpiffeCSIDriver", "spec.agentSocketPath");
            (one.trim_end_matches('/') != other.trim_end_matches('/')).then(|| differ(names, one, other))
        });
        Ok(Wanted { objects, summary, ..Wanted::default() })
    }
}

impl Wants for SpireOIDCDiscoveryProvider {
    fn wants(
        &self,
        config: &Config,
        observed: &Observed,
        decider: &Decider,
        _: &mut OperandStatus,
        _: Timestamp,
    ) -> Result<Wanted, render::Error> {
        let objects = render::oidc::objects(self, config, &decider.settings, &observed.platform)?;
        let driver = observed.peer(OperandKind::SpiffeCSIDriver);
        if driver.is_some_and(Peer::is_deleting) {
            // Its pods cannot end after the driver, and the driver does not go before them.
            let message = format!(
                "{} {SINGLETON} is being deleted: the pods of the provider, which need it to end, are stopped until it is back.",
                OperandKind::SpiffeCSIDriver
            );
            let summary = Some(Summary::reconciling("WaitingForDriver", message));
            return Ok(Wanted { objects, summary, stopped: true, ..Wanted::default() });
        }
        let summary = driver.and_then(|driver| {
            let (one, other) = (driver.spec["pluginName"].as_str()?, self.spec.csi_driver_name.as_str());
            let names = ("SpiffeCSIDriver", "spec.pluginName", "SpireOIDCDiscoveryProvider", "spec.csiDriverName");
            (one != other).then(|| differ(names, one, other))
        });
        Ok(Wanted { objects, summary, ..Wanted::default() })
    }
}

/// Two operands that name the same thing differently.
fn differ((one, field, other, its): (&str, &str, &str, &str), this: &str, that: &str) -> Summary {
    Summary::stalled(
        "ConfigConflict",
        format!(
            "{field} of {one} {SINGLETON} is {this:?}, but {its} of {other} {SINGLETON} is {that:?}. Make them equal."
        ),
    )
}

/// The condition that says what may be wrong with a spec that is accepted.
pub const WARNING: &str = "ConfigurationWarning";

/// Decides for an operand that is not being deleted.
pub fn keep<K: Wants>(operand: &K, observed: &Observed, decider: &Decider, now: Timestamp) -> Decision<K> {
    let mut decision: Decision<K> = Decision::say(operand.status().cloned().unwrap_or_default());
    let generation = operand.meta().generation;
    let summary = match config::effective(K::KIND, &config_of(operand), observed.parent.as_ref()) {
        Err(unusable) => Summary::stalled(unusable.reason(), unusable.to_string()),
        Ok(_) if !observed.namespace_exists => Summary::reconciling(
            "NamespaceMissing",
            format!("Namespace {} must exist first: the operands run in it.", decider.settings.namespace),
        ),
        Ok((config, values)) => {
            decision.status.config = values;
            match operand.wants(&config, observed, decider, &mut decision.status, now) {
                Ok(wanted) => apply(operand, wanted, observed, decider, &mut decision, now),
                Err(error) => Summary::stalled("InvalidSpec", error),
            }
        }
    };
    summary.write(&mut decision.status, generation, now);
    decision
}

/// Adds the writes for what is wanted, and returns what is to be said.
fn apply<K: Wants>(
    operand: &K,
    wanted: Wanted,
    observed: &Observed,
    decider: &Decider,
    decision: &mut Decision<K>,
    now: Timestamp,
) -> Summary {
    let claimant = Claimant::acting_for(&decider.operator, operand);
    let Wanted { objects, summary, instead_of_ready, stopped, over, warnings, notes } = wanted;
    decision.notes.extend(notes);
    warn(&warnings, &mut decision.status.conditions, operand.meta().generation, now);
    let conflict = summary.as_ref().is_some_and(|summary| summary.reason == "ConfigConflict");
    let wait = if stopped || conflict {
        None
    } else {
        gate::wait(K::KIND, &objects.workload, observed, &decider.settings, now)
    };
    let missing = |writes: &[Write]| -> Vec<Write> {
        writes.iter().filter(|write| !is_applied(write, observed, &claimant)).cloned().collect()
    };
    let unapplied = match (stopped || wait.is_some() || conflict, missing(&objects.support)) {
        (true, support) => [support, Vec::new(), Vec::new()],
        (false, support) => [support, missing(&objects.workload), missing(&objects.routes)],
    };
    let pending: Vec<ObjectId> = unapplied.iter().flatten().filter_map(Write::object).collect();
    let unwanted = unwanted(&objects, stopped, observed);
    if operand.is_suspended() {
        return suspended(&pending, &objects, observed, now);
    }
    if conflict {
        // Nothing that runs is changed by values that contradict each other.
        return summary.unwrap_or_else(|| Summary::stalled("ConfigConflict", ""));
    }
    let [support, workload, routes] = unapplied;
    // Who does not have all rights may give only those of a role that is there.
    let (bindings, support) = support.into_iter().partition(is_binding);
    for writes in [support, bindings, workload, routes] {
        decision.writes.together(writes);
    }
    decision.writes.together(unwanted.into_iter().chain(over));
    summary
        .or_else(|| wait.map(|wait| Summary::reconciling(wait.reason, wait.message)))
        .or_else(|| applying(&pending))
        .unwrap_or_else(|| match state(&objects, observed, decision, now) {
            ready if ready.state == ObjectState::Ready => instead_of_ready.unwrap_or(ready),
            unready => unready,
        })
}

fn is_binding(write: &Write) -> bool {
    write.object().is_some_and(|object| object.kind.kind.ends_with("RoleBinding"))
}

fn applying(pending: &[ObjectId]) -> Option<Summary> {
    let names: Vec<_> = pending.iter().map(ToString::to_string).collect();
    (!names.is_empty()).then(|| Summary::reconciling("Applying", format!("Applying {}.", names.join(", "))))
}

fn suspended(pending: &[ObjectId], objects: &Objects, observed: &Observed, now: Timestamp) -> Summary {
    let said = if pending.is_empty() {
        "Nothing waits.".to_owned()
    } else {
        format!("{} objects wait to be applied.", pending.len())
    };
    let runs = objects.workload.iter().all(|write| readiness_of(write, observed, now).is_some_and(|it| it.is_ready()));
    if runs && pending.is_empty() {
        Summary::ready("Suspended", "spec.suspend is true: everything is left as it is.")
    } else {
        Summary::reconciling("Suspended", format!("spec.suspend is true: everything is left as it is. {said}"))
    }
}

/// Objects that carry our marks and are not wanted. Claims are never among them: they hold data. Nor are Jobs, which are
/// the work on a volume.
fn unwanted(objects: &Objects, stopped: bool, observed: &Observed) -> Vec<Write> {
    let workload = if stopped { &[][..] } else { &objects.workload };
    let wanted: Vec<_> =
        objects.support.iter().chain(workload).chain(&objects.routes).filter_map(Write::object).collect();
    let gone = |found: &&Found| {
        !found.is::<PersistentVolumeClaim>()
            && !found.is::<Job>()
            && !found.is_deleting()
            && !wanted.contains(&found.id())
    };
    observed.found.iter().filter(gone).map(Found::delete).collect()
}

fn readiness_of(write: &Write, observed: &Observed, now: Timestamp) -> Option<readiness::Readiness> {
    Some(readiness::of(&live(observed, &write.object()?)?.json, now))
}

/// The state of the workload, as Kubernetes reports it.
fn state<K: Wants>(objects: &Objects, observed: &Observed, decision: &mut Decision<K>, now: Timestamp) -> Summary {
    for write in &objects.workload {
        let Some(readiness) = readiness_of(write, observed, now) else { continue };
        if let Some(at) = readiness.recheck_at {
            decision.next = Some(at).into();
        }
        match readiness.state {
            ReadinessState::Ready => {}
            ReadinessState::InProgress | ReadinessState::Terminating => {
                return Summary::reconciling(readiness.reason, and_why::<K>(readiness.message, observed));
            }
            ReadinessState::Failed => {
                return Summary::stalled(readiness.reason, and_why::<K>(readiness.message, observed));
            }
        }
    }
    Summary::ready("Running", format!("{} {SINGLETON} runs as its spec asks.", K::KIND))
}

/// What is said about a workload that is not ready, and why its pods do not run.
fn and_why<K: Operand>(message: String, observed: &Observed) -> String {
    let Some(of_pods) = pods::trouble_of(K::KIND, observed) else { return message };
    // Only of a server: nobody else has claims.
    let of_claims = observed.claims.iter().find_map(volume::unbound);
    [Some(message), Some(of_pods), of_claims].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn warn(warnings: &[String], conditions: &mut Vec<Condition>, generation: Option<i64>, now: Timestamp) {
    if warnings.is_empty() {
        return conditions::remove(conditions, WARNING);
    }
    let message = warnings.join(" ");
    let condition = New { kind: WARNING, status: "True", reason: "CheckTheSpec", message: &message };
    conditions::set(conditions, condition, generation, now);
}

/// The conflicts of the operands that exist with their parent.
pub fn conflicts(observed: &Observed) -> Vec<Conflict> {
    let Some(parent) = &observed.parent else { return Vec::new() };
    observed.peers.iter().flat_map(|peer| config::conflicts(parent, peer.kind, &peer.config)).collect()
}
