//! Who owns an object: asked before every write and every delete.
//!
//! Several tools work on one cluster. Each leaves marks on what it manages: a controller reference, labels,
//! annotations, its name among the field managers. This module reads the marks and gives a [`OwnershipVerdict`] with
//! the evidence, so that a refusal can say *whose* the object is and how that is known.
//!
//! The first of these that speaks decides: the [`Contract`] while it is enforced, the controller reference, our
//! own marks, the marks of known tools, a person who hands it over, the manager that applied most of the fields. When
//! none speaks, nobody owns it.
//!
//! # What we promise others (guarantee)
//!
//! - An object that another tool owns is never written, deleted or taken over. The one exception is an annotation that
//!   its owner documents for others to set, such as a request to reconcile ([`crate::writes::Write::Annotate`]).
//! - What we do write carries our marks ([`OPERATOR_LABEL`], [`OWNER_LABEL`], [`OWNER_ANNOTATION`]), so that others
//!   can tell, and our field manager is the operator's name.
//! - We never force a field that another tool manages.
//!
//! # What we need from others (rely)
//!
//! - Nobody else sets the marks under `opcore.dev/`, except [`ADOPT_ANNOTATION`], which is how a person hands an
//!   object over.
//! - Tools leave their own usual marks; one that leaves none at all is seen only through its field manager.

pub mod contract;
pub(crate) mod in_force;
mod markers;
mod references;

pub use in_force::InForce;
pub(crate) use markers::is_person;
pub use markers::{Evidence, Signal, Tool};
pub use references::{IllegalReference, owner_reference};

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

use contract::{Contract, Enforcement};

/// Label on everything we apply: the operator that did.
pub const OPERATOR_LABEL: &str = "opcore.dev/operator";
/// Label on everything we apply for an object: that object's UID.
pub const OWNER_LABEL: &str = "opcore.dev/owner-uid";
/// Annotation on everything we apply for an object: that object in words, `Kind/namespace/name`.
pub const OWNER_ANNOTATION: &str = "opcore.dev/owner";
/// Annotation by which a person hands an unowned object over: `"true"`, or the name of the operator that may take it.
pub const ADOPT_ANNOTATION: &str = "opcore.dev/adopt";

/// On whose behalf someone wants to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The operator: its field manager and the value of [`OPERATOR_LABEL`].
    pub operator: String,
    /// The object it acts for, if it acts for one.
    pub owner: Option<Owner>,
}

impl Claimant {
    /// An operator that acts for an object which it reconciles.
    pub fn acting_for<K: Resource<DynamicType = ()>>(operator: &str, object: &K) -> Self {
        let words = match object.namespace() {
            Some(namespace) => format!("{}/{namespace}/{}", K::kind(&()), object.name_any()),
            None => format!("{}/{}", K::kind(&()), object.name_any()),
        };
        Self { operator: operator.to_owned(), owner: Some(Owner { uid: object.uid().unwrap_or_default(), words }) }
    }
}

/// The object that an operator acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its UID.
    pub uid: String,
    /// In words, `Kind/namespace/name` or `Kind/name`.
    pub words: String,
}

/// What an object is to a claimant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ownership {
    /// It is the claimant's.
    Ours,
    /// Nobody's yet, and the claimant may take it: a predecessor of the same name left it, the contract gives it,
    /// or a person handed it over.
    Adoptable,
    /// It is someone else's. Hands off.
    Foreign,
    /// Nobody's, as far as its marks say; nobody offered it either.
    Unowned,
}

/// A ownership with the evidence for it, strongest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnershipVerdict {
    /// What the object is to the claimant.
    pub ownership: Ownership,
    /// Why; empty when nothing speaks.
    pub evidence: Vec<Evidence>,
    /// Whether it carries the UID of the very object that the claimant acts for.
    made_for_claimant: bool,
}

impl OwnershipVerdict {
    /// Whether the claimant may delete the object: it is the claimant's own, was made for the very object that it acts for,
    /// whatever a contract says of it by now, or was made by its predecessor of the same name. What is merely offered may
    /// be taken over, and deleted only after that.
    pub fn may_delete(&self) -> bool {
        match self.ownership {
            Ownership::Ours => true,
            _ if self.made_for_claimant => true,
            Ownership::Adoptable => self.evidence.iter().any(|evidence| matches!(evidence.tool, Tool::Opcore(_))),
            Ownership::Foreign | Ownership::Unowned => false,
        }
    }

    fn new(ownership: Ownership, evidence: Vec<Evidence>) -> Self {
        Self { ownership, evidence, made_for_claimant: false }
    }
}

impl fmt::Display for OwnershipVerdict {
    /// A clause such as "it belongs to Flux Kustomization flux-system/apps (label kustomize.toolkit.fluxcd.io/name)".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ownership, self.evidence.first()) {
            (Ownership::Ours, _) => f.write_str("it is ours"),
            (Ownership::Adoptable, Some(first)) => write!(f, "it may be taken over: {first}"),
            (Ownership::Adoptable, None) => f.write_str("it may be taken over"),
            (Ownership::Foreign, Some(first)) => write!(f, "it belongs to {first}"),
            (Ownership::Foreign, None) => f.write_str("it belongs to someone else"),
            (Ownership::Unowned, _) => f.write_str("it exists already and nobody is known to own it"),
        }
    }
}

/// What is judged: the parts of an object that tell its owner.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// API group, empty for the core group.
    pub group: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Name, namespace, labels, annotations, references and managers.
    pub meta: &'a ObjectMeta,
}

/// Judges what `subject` is to `claimant`.
///
/// # Guarantees
///
/// Pure and total. Never answers `Ours` on the strength of a name or of field managers alone: only a UID, or our
/// operator's mark on an object that has no single owner, makes an object ours.
pub fn judge(subject: Subject<'_>, claimant: &Claimant, contract: Option<&Contract>) -> OwnershipVerdict {
    let meta = subject.meta;
    let controller = meta.owner_references.iter().flatten().find(|reference| reference.controller == Some(true));
    let is_ours = |uid: &str| claimant.owner.as_ref().is_some_and(|owner| owner.uid == uid);
    if let Some((owner, evidence)) = by_contract(subject, contract) {
        if !owner.speaks_for(&claimant.operator) {
            // A contract that gives away what we made must not leave it behind for ever.
            let uid = meta.labels.as_ref().and_then(|labels| labels.get(OWNER_LABEL));
            let made_for_claimant =
                uid.is_some_and(|uid| is_ours(uid)) && controller.is_none_or(|reference| is_ours(&reference.uid));
            return OwnershipVerdict { made_for_claimant, ..OwnershipVerdict::new(Ownership::Foreign, vec![evidence]) };
        }
        // A contract speaks of tools. What a controller in the cluster made for another object stays that object's.
        if let Some(reference) = controller.filter(|reference| !is_ours(&reference.uid)) {
            return OwnershipVerdict::new(Ownership::Foreign, vec![Evidence::of_reference(reference)]);
        }
        // The contract gives it to us, but not to which of our objects.
        return match ours(meta, claimant) {
            Some(verdict) if verdict.ownership != Ownership::Unowned => verdict,
            _ => OwnershipVerdict::new(Ownership::Adoptable, vec![evidence]),
        };
    }
    if let Some(reference) = controller {
        let ownership = if is_ours(&reference.uid) { Ownership::Ours } else { Ownership::Foreign };
        return OwnershipVerdict::new(ownership, vec![Evidence::of_reference(reference)]);
    }
    if let Some(verdict) = ours(meta, claimant) {
        return verdict;
    }
    let evidence = markers::read(subject);
    if !evidence.is_empty() {
        return OwnershipVerdict::new(Ownership::Foreign, evidence);
    }
    if let Some(evidence) = offered(meta, &claimant.operator) {
        return OwnershipVerdict::new(Ownership::Adoptable, vec![evidence]);
    }
    match markers::majority_manager(meta) {
        // Our own work, whose labels someone removed. For which of our objects, only the annotation can tell.
        Some(evidence) if evidence.tool == Tool::Manager(claimant.operator.clone()) => {
            let words = meta.annotations.as_ref().and_then(|all| all.get(OWNER_ANNOTATION));
            let ownership = if claimant.owner.as_ref().map(|owner| &owner.words) == words {
                Ownership::Adoptable
            } else {
                Ownership::Unowned
            };
            OwnershipVerdict::new(ownership, vec![evidence])
        }
        Some(evidence) => OwnershipVerdict::new(Ownership::Foreign, vec![evidence]),
        None => OwnershipVerdict::new(Ownership::Unowned, Vec::new()),
    }
}

/// Judges an object that is not there yet and is to be made: it has no marks, so that only a contract can give it to someone
/// else. None: nothing speaks against it.
pub fn judge_new(subject: Subject<'_>, claimant: &Claimant, contract: Option<&Contract>) -> Option<OwnershipVerdict> {
    let (_, evidence) = by_contract(subject, contract).filter(|(owner, _)| !owner.speaks_for(&claimant.operator))?;
    Some(OwnershipVerdict::new(Ownership::Foreign, vec![evidence]))
}

/// Whom the contract names for an object. Until it is enforced it is there to be compared with what is; the marks decide.
fn by_contract<'a>(
    subject: Subject<'_>,
    contract: Option<&'a Contract>,
) -> Option<(contract::NamedOwner<'a>, Evidence)> {
    let enforced = contract.filter(|contract| contract.enforcement == Enforcement::Deny)?;
    let owner = enforced.owner_of(subject)?;
    let evidence = Evidence::new(Signal::Contract(owner.rule.clone()), Tool::Named(owner.name.clone()), "");
    Some((owner, evidence))
}

/// Judges by the marks of this project alone.
fn ours(meta: &ObjectMeta, claimant: &Claimant) -> Option<OwnershipVerdict> {
    let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key));
    let uid = label(OWNER_LABEL);
    if let (Some(owner), Some(uid)) = (&claimant.owner, uid)
        && owner.uid == *uid
    {
        let evidence =
            Evidence::new(Signal::Label(OWNER_LABEL.to_owned()), Tool::Opcore(claimant.operator.clone()), &owner.words);
        return Some(OwnershipVerdict::new(Ownership::Ours, vec![evidence]));
    }
    let operator = label(OPERATOR_LABEL)?;
    let words = meta.annotations.as_ref().and_then(|all| all.get(OWNER_ANNOTATION)).cloned().unwrap_or_default();
    let evidence = Evidence::new(Signal::Label(OPERATOR_LABEL.to_owned()), Tool::Opcore(operator.clone()), &words);
    let (ownership, evidence) = match (&claimant.owner, uid, offered(meta, &claimant.operator)) {
        _ if *operator != claimant.operator => (Ownership::Foreign, evidence),
        (None, None, _) => (Ownership::Ours, evidence),
        // The same object by name, under another UID: the one that made this is gone.
        (Some(owner), Some(_), _) if owner.words == words => (Ownership::Adoptable, evidence),
        // Another's, who offers it: that is a reason to take it over, and none to delete it.
        (_, _, Some(offer)) => (Ownership::Adoptable, offer),
        _ => (Ownership::Foreign, evidence),
    };
    Some(OwnershipVerdict::new(ownership, vec![evidence]))
}

fn offered(meta: &ObjectMeta, operator: &str) -> Option<Evidence> {
    let to = meta.annotations.as_ref()?.get(ADOPT_ANNOTATION)?;
    (to == "true" || to == operator)
        .then(|| Evidence::new(Signal::Annotation(ADOPT_ANNOTATION.to_owned()), Tool::Person, "handed over"))
}

#[cfg(test)]
mod tests;
