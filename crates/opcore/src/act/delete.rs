//! Deletes that can hit only what was judged.

use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::core::ResourceExt;

use super::{Actor, Outcome, Refusal, RefusalReason, refused};
use crate::error::Error;
use crate::ownership::Standing;
use crate::plan::{Delete, Dependants};

/// How often an object that keeps changing is judged anew before the next reconcile has to.
const JUDGED_AT_MOST: usize = 3;

impl Actor<'_> {
    pub(super) async fn delete(&self, delete: &Delete) -> Result<Outcome, Error> {
        let target = &delete.target;
        let api = self.target_api(target)?;
        for _ in 0..JUDGED_AT_MOST {
            let Some(live) = self.find(target).await? else { return Ok(Outcome::Gone) };
            if live.metadata.deletion_timestamp.is_some() {
                return Ok(Outcome::Deleting);
            }
            let resource_version = live.resource_version();
            if delete.resource_version.is_some() && delete.resource_version != resource_version {
                return Err(Error::Stale(target.to_string()));
            }
            let verdict = self.judge(&target.resource, &live);
            if !matches!(verdict.standing, Standing::Ours | Standing::Adoptable) {
                let message = format!("{target} was not deleted: {verdict}. If it is to go, its owner must delete it.");
                let reason = match verdict.standing {
                    Standing::Unowned => RefusalReason::Unowned,
                    _ => RefusalReason::Foreign,
                };
                return Ok(Outcome::Refused(Refusal { reason, message }));
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
                // The API server answers with the object while finalizers hold it, else with a status.
                Ok(answer) => return Ok(if answer.is_left() { Outcome::Deleting } else { Outcome::Gone }),
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Outcome::Gone),
                // It changed between the look and the delete: look again.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return refused(&target.to_string(), error),
            }
        }
        Err(Error::Stale(target.to_string()))
    }
}
