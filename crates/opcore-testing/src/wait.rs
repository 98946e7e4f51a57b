//! Waiting with a watch and a deadline; a timeout prints the state of the object.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use kube_runtime::wait::{await_condition, conditions};
use serde::de::DeserializeOwned;

use crate::PATIENCE;

/// Installs a kind, and waits until it is served.
pub async fn install(client: &Client, definition: &CustomResourceDefinition) {
    let (api, name) = (Api::<CustomResourceDefinition>::all(client.clone()), definition.name_any());
    api.patch(&name, &PatchParams::apply("tests").force(), &Patch::Apply(definition)).await.unwrap();
    let established = await_condition(api, &name, conditions::is_crd_established());
    tokio::time::timeout(PATIENCE, established).await.expect("the CRD is established").unwrap();
}

/// Waits, with a watch, until an object meets a condition. On a timeout, it panics with the last state of the object.
pub async fn eventually<K>(api: &Api<K>, name: &str, what: &str, condition: impl Fn(&K) -> bool) -> K
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    within(PATIENCE, api, name, what, condition).await
}

/// The same with another deadline, for tests in which the time matters.
pub async fn within<K>(patience: Duration, api: &Api<K>, name: &str, what: &str, condition: impl Fn(&K) -> bool) -> K
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let wait = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&condition));
    let Ok(found) = tokio::time::timeout(patience, wait).await else {
        panic!("{name} is not {what} after {patience:?}; it is {:#?}", api.get_opt(name).await)
    };
    found.unwrap().expect("the condition wants an object")
}

/// Waits, with a watch, until exactly this object is gone.
pub async fn gone<K>(api: &Api<K>, name: &str, uid: &str)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let wait = await_condition(api.clone(), name, conditions::is_deleted(uid));
    assert!(
        tokio::time::timeout(PATIENCE, wait).await.is_ok(),
        "{name} is not gone; it is {:#?}",
        api.get_opt(name).await
    );
}
