//! Deletes that can affect only the object that was judged.

use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::core::ResourceExt;

use super::{Actor, JUDGED_AT_MOST, Outcome, Refusal, RefusalReason, refused};
use crate::error::Error;
use crate::ownership::Ownership;
use crate::writes::{Delete, Dependants};

impl Actor<'_> {
    pub(super) async fn delete(&self, delete: &Delete) -> Result<Outcome, Error> {
        let target = &delete.target;
        let api = self.target_api(target)?;
        for _ in 0..JUDGED_AT_MOST {
            let live = match self.find(target).await {
                Ok(Some(live)) => live,
                Ok(None) => return Ok(Outcome::Gone),
                Err(error) => return refused(&target.id(), error),
            };
            if live.metadata.deletion_timestamp.is_some() {
                return Ok(Outcome::Deleting);
            }
            let resource_version = live.resource_version();
            if delete.resource_version.is_some() && delete.resource_version != resource_version {
                return Err(Error::Stale(target.to_string()));
            }
            let verdict = self.judge(&target.resource, &live);
            if !verdict.may_delete() {
                let message = format!("{target} was not deleted: {verdict}. Only its owner may delete it.");
                let reason = match verdict.ownership {
                    Ownership::Foreign => RefusalReason::Foreign,
                    _ => RefusalReason::Unowned,
                };
                return Ok(Outcome::Refused(Refusal { object: target.id(), reason, message }));
            }
            let params = DeleteParams {
                preconditions: Some(Preconditions { uid: Some(target.uid.clone()), resource_version }),
                propagation_policy: Some(match delete.dependants {
                    Dependants::Background => PropagationPolicy::Background,
                    Dependants::Foreground => PropagationPolicy::Foreground,
                    Dependants::Orphan => PropagationPolicy::Orphan,
                }),
                ..DeleteParams::default()
            };
            match api.delete(&target.name, &params).await {
                // The API server returns the object while finalizers hold it, and a status otherwise.
                Ok(answer) => return Ok(if answer.is_left() { Outcome::Deleting } else { Outcome::Gone }),
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Outcome::Gone),
                // The object changed between the read and the delete: read it again.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return refused(&target.id(), error),
            }
        }
        Err(Error::Stale(target.to_string()))
    }
}
