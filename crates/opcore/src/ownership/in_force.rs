//! Which contract is in force: read from the cluster, and kept up to date.
//!
//! # Guarantees
//!
//! - Until it is known whether there is a contract, nothing is written: see [`crate::Context::actor`].
//! - Of several contracts, the oldest is in force.
//! - Where the API server does not have the kind, there is no contract. One that is installed later is noticed within
//!   about a minute.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, ResourceExt};
use tokio::sync::watch;

use super::contract::Contract;
use crate::backoff::Backoff;
use crate::controller::Context;
use crate::error::{Class, Error};
use crate::queue::Key;
use crate::watch::{Change, Scope, objects};

/// How often to check whether the API server has the kind by now: there is no event for that.
const ASK_AGAIN: Duration = Duration::from_mins(1);

/// What is known of the contract in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum InForce {
    /// Not asked yet.
    #[default]
    NotAsked,
    /// The contract could not be read, for this reason.
    Unknown(String),
    /// There is no contract.
    Absent,
    /// This contract is in force.
    Known(Arc<Contract>),
}

impl InForce {
    /// The contract to judge by, if there is one.
    ///
    /// # Errors
    ///
    /// While it is not known whether there is one.
    pub fn contract(&self) -> Result<Option<Arc<Contract>>, Error> {
        match self {
            Self::Known(contract) => Ok(Some(contract.clone())),
            Self::Absent => Ok(None),
            Self::Unknown(why) => Err(Error::Contract(why.clone())),
            Self::NotAsked => Err(Error::Contract("it was not requested yet".to_owned())),
        }
    }

    /// The contract in force among these objects.
    fn of<'a>(objects: impl IntoIterator<Item = &'a DynamicObject>) -> Self {
        let made = |object: &DynamicObject| object.creation_timestamp().map(|time| time.0);
        let first = objects.into_iter().min_by_key(|object| (made(object), object.name_any()));
        let Some(object) = first else { return Self::Absent };
        match serde_json::from_value(object.data["spec"].clone()) {
            Ok(contract) => Self::Known(Arc::new(contract)),
            Err(error) => Self::Unknown(format!(
                "OwnershipContract {} cannot be read: {}. Correct it, or delete it",
                object.name_any(),
                crate::error::values::of_serde(&error.to_string())
            )),
        }
    }
}

/// The kind of the objects that carry contracts.
fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("opcore.dev", "v1alpha1", "OwnershipContract");
    ApiResource::from_gvk_with_plural(&kind, "ownershipcontracts")
}

/// Keeps what is known up to date, for ever.
pub(crate) async fn follow(context: Context, known: watch::Sender<InForce>) {
    let contracts: Api<DynamicObject> = Api::all_with(context.client().clone(), &resource());
    let mut backoff = Backoff::default();
    loop {
        let pause = match contracts.list(&ListParams::default()).await.map_err(Error::from) {
            Ok(list) => {
                publish(&known, InForce::of(&list.items));
                break;
            }
            Err(error) if error.is_not_found() => {
                publish(&known, InForce::Absent);
                ASK_AGAIN
            }
            Err(error) => {
                let remedy = match error.class() {
                    Class::Forbidden => ". Grant this operator list and watch on ownershipcontracts.opcore.dev",
                    _ => "",
                };
                tracing::warn!(%error, "the ownership contract cannot be read; nothing is written until it can be");
                publish(&known, InForce::Unknown(format!("{error}{remedy}")));
                backoff.failed(&())
            }
        };
        tokio::time::sleep(pause).await;
    }
    let scope = Scope { resource: resource(), namespace: None, labels: None, lives: context.limits().watch };
    let mut changes = std::pin::pin!(objects(context.client(), &scope, context.metrics()));
    let (mut all, mut is_whole) = (std::collections::BTreeMap::new(), false);
    while let Some(change) = changes.next().await {
        match change {
            Change::Observed(object) => drop(all.insert(Key::of(&object), object)),
            Change::Gone(key) => drop(all.remove(&key)),
            Change::Synced => is_whole = true,
        }
        // An incomplete list says nothing about the objects that are not in it.
        if is_whole {
            publish(&known, InForce::of(all.values()));
        }
    }
}

fn publish(known: &watch::Sender<InForce>, now: InForce) {
    known.send_if_modified(|before| {
        let changed = *before != now;
        *before = now;
        changed
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, made: &str, spec: &serde_json::Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "opcore.dev/v1alpha1", "kind": "OwnershipContract",
            "metadata": { "name": name, "creationTimestamp": made }, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn of_several_contracts_the_one_that_was_made_first_is_in_force() {
        let one = |rule: &str| json!({ "rules": [{ "name": rule, "owner": "flux" }] });
        let later = object("a", "2026-01-02T00:00:00Z", &one("later"));
        let first = object("b", "2026-01-01T00:00:00Z", &one("first"));
        let InForce::Known(contract) = InForce::of([&later, &first]) else { panic!("one is in force") };
        assert_eq!(contract.rules[0].name, "first");
        assert_eq!(InForce::of([]), InForce::Absent);
    }

    #[test]
    fn a_contract_that_cannot_be_read_is_unknown_and_not_absent() {
        let broken = object("a", "2026-01-01T00:00:00Z", &json!({ "rules": "none" }));
        let error = InForce::of([&broken]).contract().unwrap_err().to_string();
        assert!(error.contains("OwnershipContract a cannot be read"), "{error}");
        assert!(InForce::NotAsked.contract().is_err());
        assert_eq!(InForce::Absent.contract().unwrap(), None);
    }
}
