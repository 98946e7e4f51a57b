//! Setting fields that the owner of an object leaves to us.

use kube::api::{DynamicObject, ObjectMeta, Patch, PatchParams, TypeMeta};
use kube::core::ResourceExt;
use serde_json::Value;

use super::apply::{conflicts, field_conflict};
use super::{Actor, Outcome, fields, refused};
use crate::error::Error;
use crate::writes::Target;

impl Actor<'_> {
    /// Applies the fields with our field manager, without force, onto exactly the object that was named.
    pub(super) async fn claim(&self, target: &Target, wanted: &Value) -> Result<Outcome, Error> {
        let id = target.id();
        let live = match self.find(target).await {
            Ok(Some(live)) => live,
            Ok(None) => return Ok(Outcome::Gone),
            Err(error) => return refused(&id, error),
        };
        let mut desired = DynamicObject {
            types: Some(TypeMeta {
                api_version: target.resource.api_version.clone(),
                kind: target.resource.kind.clone(),
            }),
            metadata: ObjectMeta {
                name: Some(target.name.clone()),
                namespace: target.namespace.clone(),
                ..ObjectMeta::default()
            },
            data: wanted.clone(),
        };
        let json = |object: &DynamicObject| {
            serde_json::to_value(object).map_err(|error| Error::Bug(format!("cannot serialize an object: {error}")))
        };
        let nothing_wanted = wanted.as_object().is_none_or(serde_json::Map::is_empty);
        let owns_nothing = !fields::manages_any(&json(&live)?, &self.claimant.operator);
        if (nothing_wanted && owns_nothing)
            || fields::is_applied(&json(&desired)?, &json(&live)?, &self.claimant.operator)
        {
            return Ok(Outcome::Unchanged);
        }
        desired.metadata.uid = Some(target.uid.clone());
        desired.metadata.resource_version = live.resource_version();
        let params = PatchParams { field_manager: Some(self.claimant.operator.clone()), ..PatchParams::default() };
        match self.target_api(target)?.patch(&target.name, &params, &Patch::Apply(&desired)).await {
            Ok(_) => Ok(Outcome::Changed),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Outcome::Gone),
            Err(kube::Error::Api(status)) if status.code == 409 => match conflicts(&status).as_slice() {
                [] => Err(Error::Stale(id.to_string())),
                conflicts => Ok(Outcome::Refused(field_conflict(&id, conflicts))),
            },
            Err(error) => refused(&id, error),
        }
    }
}
