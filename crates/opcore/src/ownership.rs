//! Who owns an object: asked before every write and every delete.
//!
//! Several tools work on one cluster. Each leaves marks on what it manages: a controller reference, labels,
//! annotations, its name among the field managers. This module reads the marks and gives a [`Verdict`] with
//! the evidence, so that a refusal can say *whose* the object is and how that is known.
//!
//! The first of these that speaks decides: the [`Contract`] while it is enforced, the controller reference, our
//! own marks, the marks of known tools, a person who hands it over, the manager that applied most of the fields. When
//! none speaks, nobody owns it.
//!
//! # What we promise others (guarantee)
//!
//! - An object that another tool owns is never written, deleted or taken over. The one exception is an annotation that
//!   its owner documents for others to set, such as a request to reconcile ([`crate::plan::Write::Annotate`]).
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
pub enum Standing {
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

/// A standing with the evidence for it, strongest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What the object is to the claimant.
    pub standing: Standing,
    /// Why; empty when nothing speaks.
    pub evidence: Vec<Evidence>,
    /// Whether it carries the UID of the very object that the claimant acts for.
    made_for_claimant: bool,
}

impl Verdict {
    /// Whether the claimant may delete the object: it is the claimant's own, was made for the very object that it acts for,
    /// whatever a contract says of it by now, or was made by its predecessor of the same name. What is merely offered may
    /// be taken over, and deleted only after that.
    pub fn may_delete(&self) -> bool {
        match self.standing {
            Standing::Ours => true,
            _ if self.made_for_claimant => true,
            Standing::Adoptable => self.evidence.iter().any(|evidence| matches!(evidence.tool, Tool::Opcore(_))),
            Standing::Foreign | Standing::Unowned => false,
        }
    }

    fn new(standing: Standing, evidence: Vec<Evidence>) -> Self {
        Self { standing, evidence, made_for_claimant: false }
    }
}

impl fmt::Display for Verdict {
    /// A clause such as "it belongs to Flux Kustomization flux-system/apps (label kustomize.toolkit.fluxcd.io/name)".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.standing, self.evidence.first()) {
            (Standing::Ours, _) => f.write_str("it is ours"),
            (Standing::Adoptable, Some(first)) => write!(f, "it may be taken over: {first}"),
            (Standing::Adoptable, None) => f.write_str("it may be taken over"),
            (Standing::Foreign, Some(first)) => write!(f, "it belongs to {first}"),
            (Standing::Foreign, None) => f.write_str("it belongs to someone else"),
            (Standing::Unowned, _) => f.write_str("it exists already and nobody is known to own it"),
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
pub fn judge(subject: Subject<'_>, claimant: &Claimant, contract: Option<&Contract>) -> Verdict {
    let meta = subject.meta;
    let controller = meta.owner_references.iter().flatten().find(|reference| reference.controller == Some(true));
    let is_ours = |uid: &str| claimant.owner.as_ref().is_some_and(|owner| owner.uid == uid);
    // Until a contract is enforced it is there to be compared with what is; the marks decide.
    let enforced = contract.filter(|contract| contract.enforcement == Enforcement::Deny);
    if let Some(owner) = enforced.and_then(|contract| contract.owner_of(subject)) {
        let evidence = Evidence::new(Signal::Contract(owner.rule.clone()), Tool::Named(owner.name.clone()), "");
        if !owner.speaks_for(&claimant.operator) {
            // A contract that gives away what we made must not leave it behind for ever.
            let uid = meta.labels.as_ref().and_then(|labels| labels.get(OWNER_LABEL));
            let made_for_claimant =
                uid.is_some_and(|uid| is_ours(uid)) && controller.is_none_or(|reference| is_ours(&reference.uid));
            return Verdict { made_for_claimant, ..Verdict::new(Standing::Foreign, vec![evidence]) };
        }
        // A contract speaks of tools. What a controller in the cluster made for another object stays that object's.
        if let Some(reference) = controller.filter(|reference| !is_ours(&reference.uid)) {
            return Verdict::new(Standing::Foreign, vec![Evidence::of_reference(reference)]);
        }
        // The contract gives it to us, but not to which of our objects.
        return match ours(meta, claimant) {
            Some(verdict) if verdict.standing != Standing::Unowned => verdict,
            _ => Verdict::new(Standing::Adoptable, vec![evidence]),
        };
    }
    if let Some(reference) = controller {
        let standing = if is_ours(&reference.uid) { Standing::Ours } else { Standing::Foreign };
        return Verdict::new(standing, vec![Evidence::of_reference(reference)]);
    }
    if let Some(verdict) = ours(meta, claimant) {
        return verdict;
    }
    let evidence = markers::read(subject);
    if !evidence.is_empty() {
        return Verdict::new(Standing::Foreign, evidence);
    }
    if let Some(evidence) = offered(meta, &claimant.operator) {
        return Verdict::new(Standing::Adoptable, vec![evidence]);
    }
    match markers::majority_manager(meta) {
        // Our own work, whose labels someone removed. For which of our objects, only the annotation can tell.
        Some(evidence) if evidence.tool == Tool::Manager(claimant.operator.clone()) => {
            let words = meta.annotations.as_ref().and_then(|all| all.get(OWNER_ANNOTATION));
            let standing = if claimant.owner.as_ref().map(|owner| &owner.words) == words {
                Standing::Adoptable
            } else {
                Standing::Unowned
            };
            Verdict::new(standing, vec![evidence])
        }
        Some(evidence) => Verdict::new(Standing::Foreign, vec![evidence]),
        None => Verdict::new(Standing::Unowned, Vec::new()),
    }
}

/// Judges by the marks of this project alone.
fn ours(meta: &ObjectMeta, claimant: &Claimant) -> Option<Verdict> {
    let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key));
    let uid = label(OWNER_LABEL);
    if let (Some(owner), Some(uid)) = (&claimant.owner, uid)
        && owner.uid == *uid
    {
        let evidence =
            Evidence::new(Signal::Label(OWNER_LABEL.to_owned()), Tool::Opcore(claimant.operator.clone()), &owner.words);
        return Some(Verdict::new(Standing::Ours, vec![evidence]));
    }
    let operator = label(OPERATOR_LABEL)?;
    let words = meta.annotations.as_ref().and_then(|all| all.get(OWNER_ANNOTATION)).cloned().unwrap_or_default();
    let evidence = Evidence::new(Signal::Label(OPERATOR_LABEL.to_owned()), Tool::Opcore(operator.clone()), &words);
    let (standing, evidence) = match (&claimant.owner, uid, offered(meta, &claimant.operator)) {
        _ if *operator != claimant.operator => (Standing::Foreign, evidence),
        (None, None, _) => (Standing::Ours, evidence),
        // The same object by name, under another UID: the one that made this is gone.
        (Some(owner), Some(_), _) if owner.words == words => (Standing::Adoptable, evidence),
        // Another's, who offers it: that is a reason to take it over, and none to delete it.
        (_, _, Some(offer)) => (Standing::Adoptable, offer),
        _ => (Standing::Foreign, evidence),
    };
    Some(Verdict::new(standing, vec![evidence]))
}

fn offered(meta: &ObjectMeta, operator: &str) -> Option<Evidence> {
    let to = meta.annotations.as_ref()?.get(ADOPT_ANNOTATION)?;
    (to == "true" || to == operator)
        .then(|| Evidence::new(Signal::Annotation(ADOPT_ANNOTATION.to_owned()), Tool::Person, "handed over"))
}

#[cfg(test)]
mod tests;
