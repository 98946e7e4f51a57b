//! Who owns an object: checked before every write and every delete.
//!
//! Several tools work on one cluster. Each leaves marks on what it manages: a controller reference, labels,
//! annotations, its name among the field managers. This module reads the marks and returns an [`OwnershipVerdict`] with
//! the evidence, so that a refusal can say *who* owns the object and how that is known.
//!
//! The first of these that says anything decides: the [`Contract`] while it is enforced, the controller reference, our
//! own marks, the marks of known tools, a person who offers the object for adoption, the manager that applied most of
//! the fields. If none does, the object has no owner.
//!
//! # What we promise others (guarantee)
//!
//! - An object that another tool owns is never written, deleted or taken over. The one exception is an annotation that
//!   its owner documents for others to set, such as a request to reconcile ([`crate::writes::Write::Annotate`]).
//! - Objects that we write carry our marks ([`OPERATOR_LABEL`], [`OWNER_LABEL`], [`OWNER_ANNOTATION`]), so that others
//!   can recognize them. Our field manager is the operator's name.
//! - We never force a field that another tool manages.
//!
//! # What we need from others (rely)
//!
//! - Nobody else sets the marks under `opcore.dev/`, except [`ADOPT_ANNOTATION`], with which a person offers an object
//!   for adoption.
//! - Tools leave their usual marks. A tool that leaves none is recognized only by its field manager.

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

/// Label on every object that we apply: the operator that applied it.
pub const OPERATOR_LABEL: &str = "opcore.dev/operator";
/// Label on every object that we apply on behalf of another object: that object's UID.
pub const OWNER_LABEL: &str = "opcore.dev/owner-uid";
/// Annotation on every object that we apply on behalf of another object: that object as text, `Kind/namespace/name`.
pub const OWNER_ANNOTATION: &str = "opcore.dev/owner";
/// Annotation with which a person offers an unowned object for adoption: `"true"`, or the name of the operator that may
/// take it.
pub const ADOPT_ANNOTATION: &str = "opcore.dev/adopt";

/// Who wants to write, and on behalf of which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The operator: its field manager and the value of [`OPERATOR_LABEL`].
    pub operator: String,
    /// The object it acts for, if it acts for one.
    pub owner: Option<Owner>,
}

impl Claimant {
    /// An operator that acts for an object that it reconciles.
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
    /// The object as text, `Kind/namespace/name` or `Kind/name`.
    pub words: String,
}

/// The relation of an object to a claimant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ownership {
    /// The object is the claimant's.
    Ours,
    /// The object has no owner yet, and the claimant may take it: a predecessor of the same name left it, the contract
    /// gives it to the claimant, or a person offered it for adoption.
    Adoptable,
    /// The object belongs to someone else. It must not be changed.
    Foreign,
    /// The object has no owner, as far as its marks say, and it was not offered for adoption.
    Unowned,
}

/// An ownership with the evidence for it, strongest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnershipVerdict {
    /// The relation of the object to the claimant.
    pub ownership: Ownership,
    /// The evidence; empty if there is none.
    pub evidence: Vec<Evidence>,
    /// Whether the object carries the UID of the object that the claimant acts for.
    made_for_claimant: bool,
}

impl OwnershipVerdict {
    /// Whether the claimant may delete the object. It may if the object is its own, if it was created for the object
    /// that the claimant acts for (whatever a contract now says), or if it was created by the predecessor of the same
    /// name. An object that is only offered may be adopted, and deleted only after that.
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
            (Ownership::Adoptable, Some(first)) => write!(f, "it may be adopted: {first}"),
            (Ownership::Adoptable, None) => f.write_str("it may be adopted"),
            (Ownership::Foreign, Some(first)) => write!(f, "it belongs to {first}"),
            (Ownership::Foreign, None) => f.write_str("it belongs to someone else"),
            (Ownership::Unowned, _) => f.write_str("it already exists, and its owner is unknown"),
        }
    }
}

/// What is judged: the parts of an object that show its owner.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// API group, empty for the core group.
    pub group: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Name, namespace, labels, annotations, references and managers.
    pub meta: &'a ObjectMeta,
}

/// Judges the relation of `subject` to `claimant`.
///
/// # Guarantees
///
/// Pure and total. Never returns `Ours` because of a name or of field managers alone: only a UID, or our operator's
/// mark on an object that has no single owner, makes an object ours.
pub fn judge(subject: Subject<'_>, claimant: &Claimant, contract: Option<&Contract>) -> OwnershipVerdict {
    let meta = subject.meta;
    let controller = meta.owner_references.iter().flatten().find(|reference| reference.controller == Some(true));
    let is_ours = |uid: &str| claimant.owner.as_ref().is_some_and(|owner| owner.uid == uid);
    if let Some((owner, evidence)) = by_contract(subject, contract) {
        if !owner.speaks_for(&claimant.operator) {
            // Even if a contract gives away what we created, it must not be left behind for ever.
            let uid = meta.labels.as_ref().and_then(|labels| labels.get(OWNER_LABEL));
            let made_for_claimant =
                uid.is_some_and(|uid| is_ours(uid)) && controller.is_none_or(|reference| is_ours(&reference.uid));
            return OwnershipVerdict { made_for_claimant, ..OwnershipVerdict::new(Ownership::Foreign, vec![evidence]) };
        }
        // A contract is about tools. What a controller in the cluster created for another object stays that object's.
        if let Some(reference) = controller.filter(|reference| !is_ours(&reference.uid)) {
            return OwnershipVerdict::new(Ownership::Foreign, vec![Evidence::of_reference(reference)]);
        }
        // The contract gives the object to us, but does not say to which of our objects.
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
        // Our own work, whose labels someone removed. Only the annotation can say for which of our objects it was.
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

/// Judges an object that does not exist yet and is about to be created. It has no marks, so only a contract can give it
/// to someone else. None: nothing prevents the creation.
pub fn judge_new(subject: Subject<'_>, claimant: &Claimant, contract: Option<&Contract>) -> Option<OwnershipVerdict> {
    let (_, evidence) = by_contract(subject, contract).filter(|(owner, _)| !owner.speaks_for(&claimant.operator))?;
    Some(OwnershipVerdict::new(Ownership::Foreign, vec![evidence]))
}

/// The owner that the contract names for an object. Until the contract is enforced, it only serves for comparison and
/// the marks decide.
fn by_contract<'a>(
    subject: Subject<'_>,
    contract: Option<&'a Contract>,
) -> Option<(contract::NamedOwner<'a>, Evidence)> {
    let enforced = contract.filter(|contract| contract.enforcement == Enforcement::Deny)?;
    let owner = enforced.owner_of(subject)?;
    let evidence = Evidence::new(Signal::Contract(owner.rule.clone()), Tool::Named(owner.name.clone()), "");
    Some((owner, evidence))
}

/// Judges only by this project's own marks.
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
        // The same object by name, with another UID: the object that created this one is gone.
        (Some(owner), Some(_), _) if owner.words == words => (Ownership::Adoptable, evidence),
        // It belongs to another owner who offers it. That is a reason to adopt it, but not to delete it.
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
