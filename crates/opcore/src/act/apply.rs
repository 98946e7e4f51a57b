//! Server-side apply with an ownership check before it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::{ResourceExt, Status};
use serde_json::{Value, json};

use super::{Actor, JUDGED_AT_MOST, NO_VERSION, Outcome, Refusal, RefusalReason, fields, refused};
use crate::error::Error;
use crate::object::{self, ObjectId};
use crate::ownership::{self, Claimant, Ownership, OwnershipVerdict};
use crate::writes::{Apply, Target};

impl Actor<'_> {
    /// Applies an object. If it changes in the meantime, it is judged again, up to a limit.
    pub(super) async fn apply(&self, apply: &Apply) -> Result<Outcome, Error> {
        if apply.object.metadata.name.as_deref().unwrap_or_default().is_empty() {
            return Err(Error::Bug(format!("cannot apply a {} without a name", apply.resource.kind)));
        }
        if let Some(refusal) = misnamed(apply) {
            return Ok(Outcome::Refused(refusal));
        }
        for _ in 0..JUDGED_AT_MOST {
            if let Some(outcome) = self.apply_as_judged(apply).await? {
                return Ok(outcome);
            }
        }
        Err(Error::Stale(apply.id().to_string()))
    }

    /// Judges and applies, onto the exact version that was judged: not onto a new object of the same name, not onto one
    /// whose owner changed, and not onto one that a new leader has written since. None if it changed in between.
    async fn apply_as_judged(&self, apply: &Apply) -> Result<Option<Outcome>, Error> {
        let id = apply.id();
        let api = self.api(&apply.resource, apply.object.namespace().as_deref());
        let live = match api.get_opt(&apply.object.name_any()).await {
            Ok(live) => live,
            Err(error) => return refused(&id, error).map(Some),
        };
        let mut desired = stamped(self.claimant, &apply.object);
        let Some(live) = live else {
            if let Some(verdict) = self.judge_new(&apply.resource, &desired) {
                return Ok(refusal(&id, &verdict).map(Outcome::Refused));
            }
            desired.metadata.resource_version = Some(NO_VERSION.to_owned());
            return match self.send(&api, &desired, false).await {
                Ok(object) => Ok(Some(Outcome::Applied { object: Box::new(object), changed: true })),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
                Err(error) => refused(&id, error).map(Some),
            };
        };

        let verdict = self.judge(&apply.resource, &live);
        if let Some(refusal) = refusal(&id, &verdict) {
            return Ok(Some(Outcome::Refused(refusal)));
        }
        if live.metadata.deletion_timestamp.is_some() {
            let message = format!("{id} is still being deleted; it is recreated when it is gone.");
            return Ok(Some(Outcome::Refused(Refusal { object: id, reason: RefusalReason::Terminating, message })));
        }
        if fields::is_applied(&value(&desired)?, &value(&live)?, &self.claimant.operator) {
            return Ok(Some(Outcome::Applied { object: Box::new(live), changed: false }));
        }
        desired.metadata.uid.clone_from(&live.metadata.uid);
        desired.metadata.resource_version.clone_from(&live.metadata.resource_version);
        let mut answer = self.send(&api, &desired, false).await;
        if let Err(kube::Error::Api(status)) = &answer
            && status.code == 409
        {
            let conflicts = conflicts(status);
            if conflicts.is_empty() {
                return Ok(None);
            }
            let by_hand = conflicts.iter().all(|conflict| ownership::is_person(&conflict.manager));
            if verdict.ownership != Ownership::Ours || !by_hand {
                return Ok(Some(Outcome::Refused(field_conflict(&id, &conflicts))));
            }
            tracing::info!(object = %id, ?conflicts, "reverting fields that were edited by hand");
            answer = self.send(&api, &desired, true).await;
        }
        match answer {
            Ok(object) => {
                let changed = object.resource_version() != live.resource_version();
                Ok(Some(Outcome::Applied { object: Box::new(object), changed }))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => refused(&id, error).map(Some),
        }
    }

    async fn send(
        &self,
        api: &Api<DynamicObject>,
        desired: &DynamicObject,
        force: bool,
    ) -> kube::Result<DynamicObject> {
        let params = PatchParams {
            field_manager: Some(self.claimant.operator.clone()),
            force,
            // The server would silently drop a field that it does not know.
            field_validation: Some(ValidationDirective::Strict),
            dry_run: false,
        };
        api.patch(&desired.name_any(), &params, &Patch::Apply(desired)).await
    }

    pub(super) async fn annotate(
        &self,
        target: &Target,
        annotations: &BTreeMap<String, Option<String>>,
    ) -> Result<Outcome, Error> {
        let live = match self.find(target).await {
            Ok(Some(live)) => live,
            Ok(None) => return Ok(Outcome::Gone),
            Err(error) => return refused(&target.id(), error),
        };
        if annotations.iter().all(|(key, value)| live.annotations().get(key) == value.as_ref()) {
            return Ok(Outcome::Unchanged);
        }
        let patch = json!({ "metadata": {
            "uid": target.uid,
            "resourceVersion": live.resource_version(),
            "annotations": annotations,
        }});
        let params = PatchParams { field_manager: Some(self.claimant.operator.clone()), ..PatchParams::default() };
        match self.target_api(target)?.patch(&target.name, &params, &Patch::Merge(&patch)).await {
            Ok(_) => Ok(Outcome::Changed),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Outcome::Gone),
            Err(error) => refused(&target.id(), error),
        }
    }
}

/// The refusal of an object that no request can be about. Names come from users, and become part of the path of a request
/// as they are: with some of them it could not be sent, with others it would be about something else.
fn misnamed(apply: &Apply) -> Option<Refusal> {
    let meta = &apply.object.metadata;
    let parts = [("name", &meta.name), ("namespace", &meta.namespace)];
    let (field, part) = parts
        .into_iter()
        .find_map(|(field, part)| Some((field, part.as_deref().filter(|part| !object::is_path_segment(part))?)))?;
    let object = apply.id();
    let message = format!(
        "{object} was refused: metadata.{field}: {part:?} cannot be the {field} of an object; use letters, digits, '-' and '.'."
    );
    Some(Refusal { object, reason: RefusalReason::Invalid, message })
}

/// The object with our marks, and without the fields that only the server may set.
fn stamped(claimant: &Claimant, object: &DynamicObject) -> DynamicObject {
    let mut object = object.clone();
    let meta = &mut object.metadata;
    meta.managed_fields = None;
    meta.resource_version = None;
    meta.uid = None;
    meta.creation_timestamp = None;
    meta.generation = None;
    let labels = meta.labels.get_or_insert_default();
    labels.insert(ownership::OPERATOR_LABEL.to_owned(), claimant.operator.clone());
    if let Some(owner) = &claimant.owner {
        labels.insert(ownership::OWNER_LABEL.to_owned(), owner.uid.clone());
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert(ownership::OWNER_ANNOTATION.to_owned(), owner.words.clone());
    }
    object
}

/// The intended result of an apply, prepared for comparison with objects from a watch: if they match, no request is
/// needed.
#[derive(Clone)]
pub struct Comparison {
    desired: Value,
    manager: String,
}

impl Comparison {
    /// The result that this apply would have for this claimant.
    ///
    /// # Errors
    ///
    /// When the object cannot be represented as JSON. Every Kubernetes object can.
    pub fn of(claimant: &Claimant, apply: &Apply) -> Result<Self, Error> {
        Ok(Self { desired: value(&stamped(claimant, &apply.object))?, manager: claimant.operator.clone() })
    }

    /// Whether `live` matches already, so that the apply would write nothing.
    pub fn holds(&self, live: &Value) -> bool {
        fields::is_applied(&self.desired, live, &self.manager)
    }

    /// A digest of the intended result, comparable within this process.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.desired.hash(&mut hasher);
        hasher.finish()
    }
}

/// Why a verdict forbids the write, as text with a remedy.
fn refusal(id: &ObjectId, verdict: &OwnershipVerdict) -> Option<Refusal> {
    let (reason, remedy) = match verdict.ownership {
        Ownership::Ours | Ownership::Adoptable => return None,
        Ownership::Foreign => {
            (RefusalReason::Foreign, "Remove it from this object, or have its owner release it first.".to_owned())
        }
        Ownership::Unowned => {
            (RefusalReason::Unowned, format!("To hand it over, annotate it with {}=true.", ownership::ADOPT_ANNOTATION))
        }
    };
    let message = format!("{id} was not changed: {verdict}. {remedy}");
    Some(Refusal { object: id.clone(), reason, message })
}

/// A field that we want to set and another manager owns.
#[derive(Debug)]
pub(super) struct Conflict {
    field: String,
    manager: String,
}

/// The fields in conflict: a field that several managers own gives several conflicts.
pub(super) fn conflicts(status: &Status) -> Vec<Conflict> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| {
            // conflict with "kubectl-edit" using apps/v1
            let manager = cause.message.split('"').nth(1).unwrap_or(&cause.message);
            Conflict { field: cause.field.clone(), manager: manager.to_owned() }
        })
        .collect()
}

pub(super) fn field_conflict(id: &ObjectId, conflicts: &[Conflict]) -> Refusal {
    let fields: Vec<_> = conflicts.iter().map(|c| format!("{} ({})", c.field, c.manager)).collect();
    let message = format!(
        "{id} was not changed: other field managers own {}. Remove the fields from this object, or have their managers release them.",
        fields.join(", ")
    );
    Refusal { object: id.clone(), reason: RefusalReason::FieldConflict, message }
}

fn value(object: &DynamicObject) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|error| Error::Bug(format!("cannot serialize an object: {error}")))
}
