//! The parent: it creates operands, hands the central config down, sums up their states, and takes them down in order.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, ObjectMeta, TypeMeta};
use opcore::act::Comparison;
use opcore::conditions::{self, Condition, New, Summary};
use opcore::finalizer::{self, OnExpiry, StepStatus, Teardown, step};
use opcore::ownership::{Claimant, owner_reference};
use opcore::writes::Target;
use opcore::{Decision, Next, Write};
use serde_json::{Map, Value, json};

use super::teardown::DELETION_BLOCKED;
use super::{Decider, migration};
use crate::api::v1alpha1::{
    INHERITED_ANNOTATION, Migration, MigrationPhase, OperandKind, OperandSummary, SINGLETON,
    ZeroTrustWorkloadIdentityManager, ZeroTrustWorkloadIdentityManagerStatus,
};
use crate::config::{self, Conflict, Field, OperandConfig, is_orphaning};
use crate::observe::Observed;
use crate::operand::{Peer, resource_of};

/// Work is in progress; as upstream calls it.
const PROGRESSING: &str = "Progressing";
/// Something is wrong that does not mend itself; as upstream calls it.
const DEGRADED: &str = "Degraded";
/// The stack is being taken down.
const DELETING: &str = "Deleting";
/// All operands are ready.
const OPERANDS_AVAILABLE: &str = "OperandsAvailable";
/// It is safe to upgrade now.
const UPGRADEABLE: &str = "Upgradeable";

/// How long a parent that was just created waits before it creates operands: manifests that are applied together arrive
/// one after another, and some of their fields cannot be changed later.
const GRACE: SignedDuration = SignedDuration::from_secs(5);

type Parent = ZeroTrustWorkloadIdentityManager;

/// Decides for a parent that is not being deleted.
pub fn keep(parent: &Parent, observed: &Observed, decider: &Decider, now: Timestamp) -> Decision<Parent> {
    let mut decision: Decision<Parent> = Decision::say(parent.status.clone().unwrap_or_default());
    let offered: Vec<_> = observed.peers.iter().map(|peer| (peer.kind, peer.offered())).collect();
    let operands: Vec<(OperandKind, &OperandConfig)> = offered.iter().map(|(kind, config)| (*kind, config)).collect();
    decision.status.operands = observed.peers.iter().map(summarized).collect();
    // The parent as it was read last, with the fields that each manager manages.
    let read = observed.parent.as_ref().unwrap_or(parent);

    let adopted = config::adopted(parent, &operands);
    let disputed: Vec<Conflict> = config::disagreements(&operands)
        .into_iter()
        .filter(|conflict| conflict.field.asked(parent).is_none())
        .chain(observed.peers.iter().flat_map(|peer| config::conflicts(parent, peer.kind, &peer.config)))
        .collect();
    let trust_domain =
        Field::TrustDomain.asked(parent).or_else(|| adopted.get(&Field::TrustDomain).map(String::as_str));
    let summary = match (disputed.first(), trust_domain) {
        (Some(conflict), _) => Summary::stalled("ConfigConflict", conflict.to_string()),
        (None, None) => {
            let missing = config::Unusable::NoTrustDomain;
            Summary::stalled(missing.reason(), missing.to_string())
        }
        (None, Some(_)) if parent.spec.suspend => {
            Summary::reconciling("Suspended", "spec.suspend is true: everything is left as it is.")
        }
        (None, Some(asked)) if !adopted.is_empty() => {
            decision.writes.then(adopt(read, &adopted, decider));
            Summary::reconciling("Initializing", format!("Taking over trust domain {asked} from the operands."))
        }
        (None, Some(asked)) => run(parent, asked, observed, decider, &mut decision, now),
    };
    conclude(&summary, observed, &mut decision.status, parent.metadata.generation, now);
    decision
}

/// Creates operands, hands the config down, and takes a migration further.
fn run(
    parent: &Parent,
    asked: &str,
    observed: &Observed,
    decider: &Decider,
    decision: &mut Decision<Parent>,
    now: Timestamp,
) -> Summary {
    let in_effect = decision.status.trust_domain.clone();
    let mut problem = None;
    match (&in_effect, decision.status.migration.clone().filter(|it| it.phase != MigrationPhase::Done)) {
        (_, Some(migration)) => migrate(&migration, observed, &mut decision.status, now),
        (None, None) => decision.status.trust_domain = Some(asked.to_owned()),
        (Some(has), None) if has != asked => match may_migrate(parent, observed) {
            Ok(()) => decision.status.migration = Some(migration::begin(has, asked, now)),
            Err(why) => problem = Some(Summary::stalled("MigrationImpossible", why)),
        },
        (Some(_), None) => {}
    }
    for kind in OperandKind::ALL {
        match observed.peer(kind) {
            Some(peer) if peer.is_deleting() => {}
            Some(peer) => {
                decision.writes.together(hand_down(parent, peer, decider));
            }
            None if parent.spec.operands.contains(&kind) => match may_create(parent, kind, now) {
                Ok(()) => {
                    decision.writes.then(creation(parent, kind));
                }
                Err(later) => decision.next = Next::At(later),
            },
            None => {}
        }
    }
    if let Some(problem) = problem {
        return problem;
    }
    if let Some(migration) = decision.status.migration.as_ref().filter(|it| it.phase != MigrationPhase::Done) {
        return Summary::reconciling("Migrating", migration::message(migration));
    }
    of_operands(parent, observed)
}

/// Why the trust domain cannot be changed.
fn may_migrate(parent: &Parent, observed: &Observed) -> Result<(), String> {
    if !parent.spec.allow_trust_domain_migration {
        return Err(format!(
            "spec.trustDomain was changed to {:?}, which is not in effect: set spec.allowTrustDomainMigration: true.",
            parent.spec.trust_domain.as_deref().unwrap_or_default(),
        ));
    }
    let database =
        observed.peer(OperandKind::SpireServer).and_then(|server| server.spec.pointer("/datastore/databaseType"));
    match database.and_then(Value::as_str) {
        None | Some("sql" | "sqlite3") => Ok(()),
        Some(other) => Err(format!(
            "spec.datastore.databaseType of SpireServer {SINGLETON} is {other}: its entries cannot be removed from here. \
             Point the server at an empty database, or use SQLite."
        )),
    }
}

fn migrate(
    migration: &Migration,
    observed: &Observed,
    status: &mut ZeroTrustWorkloadIdentityManagerStatus,
    now: Timestamp,
) {
    let next = migration::advance(migration, observed, now);
    if next.phase >= MigrationPhase::Switching {
        status.trust_domain = Some(next.to.clone());
    }
    status.migration = Some(next);
}

/// Takes values over from operands, once: those that are empty here.
fn adopt(read: &Parent, adopted: &BTreeMap<Field, String>, decider: &Decider) -> Write {
    // What was taken over before stays: an apply gives up what it no longer names.
    let before = config::managed_alone(OperandKind::SpireServer, &read.metadata, &decider.operator);
    let before = before.iter().filter_map(|field| Some((*field, field.asked(read)?.to_owned())));
    let values: BTreeMap<Field, String> = before.chain(adopted.clone()).collect();
    let spec: Map<String, Value> =
        values.into_iter().map(|(field, value)| (field.as_str().to_owned(), value.into())).collect();
    Write::Claim { target: Target::of(read), fields: json!({ "spec": spec }) }
}

/// The fields that an operand has from its parent.
fn inherited(parent: &Parent, kind: OperandKind, own: &BTreeSet<Field>) -> BTreeMap<Field, String> {
    let fields = Field::of(kind).iter().filter(|field| !own.contains(field));
    fields.filter_map(|field| Some((*field, field.central(parent)?.to_owned()))).collect()
}

/// What the parent manages of an operand: that it is its parent, and the fields that are inherited.
fn managed(parent: &Parent, inherited: &BTreeMap<Field, String>) -> Value {
    // As the garbage collector knows it: a deletion in the foreground waits for the operands.
    let reference = owner_reference(parent, None).ok();
    let reference = reference.map(|reference| OwnerReference { block_owner_deletion: Some(true), ..reference });
    let names: Vec<_> = inherited.keys().map(|field| field.as_str()).collect();
    let spec: Map<String, Value> =
        inherited.iter().map(|(field, value)| (field.as_str().to_owned(), value.clone().into())).collect();
    json!({
        "metadata": {
            "annotations": { INHERITED_ANNOTATION: names.join(",") },
            "ownerReferences": [reference],
        },
        "spec": spec,
    })
}

/// The write that hands the central config down to an operand; none if there is nothing to change.
fn hand_down(parent: &Parent, peer: &Peer, decider: &Decider) -> Option<Write> {
    let ours = peer.managed_alone(&decider.operator);
    // A field that has a value which is not only ours is the operand's own.
    let own = peer.config.values.keys().copied().filter(|field| !ours.contains(field)).collect();
    let fields = managed(parent, &inherited(parent, peer.kind, &own));
    let claimant = Claimant::acting_for(&decider.operator, parent);
    let apply = applied(peer.resource.clone(), peer.meta.name.as_deref().unwrap_or(SINGLETON), &fields);
    // What somebody else created is not ours until it says that we are its parent.
    if !peer.is_owned_by(&parent.uid().unwrap_or_default()) {
        return Some(Write::Claim { target: peer.target(), fields });
    }
    let Write::Apply(wanted) = &apply else { return None };
    let live = json!({
        "apiVersion": peer.resource.api_version, "kind": peer.resource.kind,
        "metadata": peer.meta, "spec": peer.spec,
    });
    let holds = Comparison::of(&claimant, wanted).is_ok_and(|wanted| wanted.holds(&live));
    (!holds).then_some(apply)
}

/// Whether an operand may be created now, or else when. One that was there before is created again at once.
fn may_create(parent: &Parent, kind: OperandKind, now: Timestamp) -> Result<(), Timestamp> {
    let created = parent.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let from = created.saturating_add(GRACE).unwrap_or(now);
    let was_there =
        parent.status.as_ref().is_some_and(|status| status.operands.iter().any(|operand| operand.kind == kind));
    if now < from && !was_there { Err(from) } else { Ok(()) }
}

/// The write that creates an operand.
fn creation(parent: &Parent, kind: OperandKind) -> Write {
    let resource = resource_of(kind);
    let fields = managed(parent, &inherited(parent, kind, &BTreeSet::new()));
    applied(resource, SINGLETON, &fields)
}

/// The write that applies what the parent manages of an operand.
fn applied(resource: ApiResource, name: &str, fields: &Value) -> Write {
    let metadata = serde_json::from_value(fields["metadata"].clone()).unwrap_or_default();
    let object = DynamicObject {
        types: Some(TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() }),
        metadata: ObjectMeta { name: Some(name.to_owned()), ..metadata },
        data: json!({ "spec": fields["spec"] }),
    };
    Write::apply_dynamic(resource, object)
}

/// The state of an operand, as the parent repeats it.
fn summarized(peer: &Peer) -> OperandSummary {
    OperandSummary {
        name: peer.meta.name.clone().unwrap_or_default(),
        kind: peer.kind,
        ready: peer.is_ready().to_string(),
        message: (!peer.is_ready()).then(|| peer.message()),
        conditions: peer.status.conditions.clone(),
    }
}

/// The state of the stack: that of its operands.
fn of_operands(parent: &Parent, observed: &Observed) -> Summary {
    let missing: Vec<_> =
        parent.spec.operands.iter().filter(|kind| observed.peer(**kind).is_none()).map(ToString::to_string).collect();
    if !missing.is_empty() {
        return Summary::reconciling("CreatingOperands", format!("Creating {}.", missing.join(", ")));
    }
    let deleting: Vec<_> =
        observed.peers.iter().filter(|peer| peer.is_deleting()).map(|peer| peer.kind.to_string()).collect();
    if !deleting.is_empty() {
        return Summary::reconciling("OperandsDeleting", format!("{} is being deleted.", deleting.join(", ")));
    }
    let unready = |stalled: bool| {
        observed.peers.iter().find(|peer| {
            !peer.is_ready() && conditions::is_true(&peer.status.conditions, conditions::STALLED) == stalled
        })
    };
    if let Some(peer) = unready(true) {
        return Summary::stalled("OperandStalled", format!("{} {SINGLETON}: {}", peer.kind, peer.message()));
    }
    if let Some(peer) = unready(false) {
        return Summary::reconciling("OperandsNotReady", format!("{} {SINGLETON}: {}", peer.kind, peer.message()));
    }
    Summary::ready("Ready", format!("All {} operands are ready.", observed.peers.len()))
}

/// Writes the summary and the conditions that upstream's users know.
fn conclude(
    summary: &Summary,
    observed: &Observed,
    status: &mut ZeroTrustWorkloadIdentityManagerStatus,
    generation: Option<i64>,
    now: Timestamp,
) {
    summary.write(status, generation, now);
    let all_ready = observed.peers.iter().all(Peer::is_ready) && !observed.peers.is_empty();
    let conditions = &mut status.conditions;
    let mut say = |kind: &'static str, truth: bool| {
        let (reason, message) = (summary.reason.as_ref(), summary.message.as_str());
        if truth {
            conditions::set(conditions, New { kind, status: "True", reason, message }, generation, now);
        } else {
            conditions::remove(conditions, kind);
        }
    };
    say(PROGRESSING, summary.state == conditions::ObjectState::Reconciling);
    say(DEGRADED, summary.state == conditions::ObjectState::Stalled);
    let words = if all_ready {
        ("Ready", "All operands are ready.")
    } else {
        ("OperandsNotReady", "Not all operands are ready.")
    };
    let truth = if all_ready { "True" } else { "False" };
    for kind in [OPERANDS_AVAILABLE, UPGRADEABLE] {
        conditions::set(conditions, New { kind, status: truth, reason: words.0, message: words.1 }, generation, now);
    }
}

/// The steps of the stack's teardown: one for each operand, in the reverse order of their start.
pub(super) const STEPS: [(&str, OperandKind, &[&str]); 4] = [
    ("oidc", OperandKind::SpireOIDCDiscoveryProvider, &[]),
    ("csi", OperandKind::SpiffeCSIDriver, &["oidc"]),
    ("agent", OperandKind::SpireAgent, &["csi"]),
    ("server", OperandKind::SpireServer, &["agent", "oidc"]),
];

/// Decides how to take the stack down. The operands are deleted from here: Kubernetes itself deletes dependants only
/// after their owner is gone, and this owner waits for them.
pub fn tear_down(parent: &Parent, observed: &Observed, now: Timestamp) -> Decision<Parent> {
    let mut status = parent.status.clone().unwrap_or_default();
    status.operands = observed.peers.iter().map(summarized).collect();
    let generation = parent.metadata.generation;
    if is_orphaning(parent) {
        let mut decision = Decision::say(status);
        let message = "Kubernetes is releasing the operands, as --cascade=orphan asks.";
        Summary::reconciling("Orphaning", message).write(&mut decision.status, generation, now);
        return decision;
    }
    let uid = parent.uid().unwrap_or_default();
    // What --cascade=orphan released is no longer ours.
    let ours = |kind: OperandKind| observed.peer(kind).filter(|peer| peer.is_owned_by(&uid));
    let policy = &parent.spec.teardown;
    let steps = STEPS.map(|(name, kind, after)| {
        let by_itself = ours(kind).is_some_and(gives_up_by_itself);
        let on_expiry =
            if by_itself && policy.on_expiry == OnExpiry::Force { OnExpiry::Wait } else { policy.on_expiry };
        step(name).after(after.iter().copied()).on_expiry(on_expiry)
    });
    let steps = Teardown::graph(steps).map(|steps| steps.within(policy.timeout.as_duration()));
    let kind_of = |name: &str| STEPS.iter().find(|(step, ..)| *step == name).map(|(_, kind, _)| *kind);
    let observe = |name: &str| match kind_of(name).and_then(ours) {
        None => StepStatus::Done,
        Some(peer) => waits_for(peer),
    };
    let (mut decision, progress) = finalizer::pass(parent, status, steps, observe, now);
    let goes = progress.act.iter().filter_map(|name| ours(kind_of(name)?)).filter(|peer| !peer.is_deleting());
    decision.writes.together(goes.map(Peer::delete));

    let conditions = &mut decision.status.conditions;
    let (reason, message) = progress.words();
    conditions::set(conditions, New { kind: DELETING, status: "True", reason, message: &message }, generation, now);
    for kind in [PROGRESSING, DEGRADED] {
        conditions::remove(conditions, kind);
    }
    let blocked = observed.peers.iter().find_map(|peer| conditions::find(&peer.status.conditions, DELETION_BLOCKED));
    repeat(conditions, blocked.filter(|blocked| blocked.status == "True"), generation, now);
    decision
}

/// Whether an operand that takes too long gives up its own steps: its finalizer is still there. The parent then stays
/// until it has done so. One that only somebody else's finalizer holds is given up by the parent.
fn gives_up_by_itself(peer: &Peer) -> bool {
    peer.is_deleting() && peer.meta.finalizers.iter().flatten().any(|finalizer| finalizer.starts_with("ztwim.io/"))
}

/// What a step of the stack waits for: what its operand says.
fn waits_for(peer: &Peer) -> StepStatus {
    if !peer.is_deleting() {
        return StepStatus::Pending { reason: format!("{} {SINGLETON} is to be deleted", peer.kind), retry: None };
    }
    let blocked = conditions::find(&peer.status.conditions, DELETION_BLOCKED).filter(|it| it.status == "True");
    match blocked {
        Some(blocked) => StepStatus::Blocked {
            by: vec![format!("{} {SINGLETON}: {}", peer.kind, blocked.message.trim_end_matches('.'))],
            retry: None,
        },
        None => StepStatus::Pending {
            reason: format!("{} {SINGLETON}: {}", peer.kind, peer.message().trim_end_matches('.')),
            retry: None,
        },
    }
}

fn repeat(conditions: &mut Vec<Condition>, blocked: Option<&Condition>, generation: Option<i64>, now: Timestamp) {
    match blocked {
        Some(blocked) => {
            let (reason, message) = (blocked.reason.as_str(), blocked.message.as_str());
            conditions::set(
                conditions,
                New { kind: DELETION_BLOCKED, status: "True", reason, message },
                generation,
                now,
            );
        }
        None => conditions::remove(conditions, DELETION_BLOCKED),
    }
}
