//! Waiting with a watch and a deadline. A timeout says what was expected, and prints the object.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use anyhow::anyhow;
use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use opcore::readiness;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Long enough for a pod to start on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// Waits until an object meets a condition, and returns it.
///
/// # Errors
/// When it does not before the deadline. The error says what was expected, and prints the object as YAML.
pub async fn until<K>(
    api: &Api<K>,
    name: &str,
    awaited: &str,
    deadline: Duration,
    fits: impl Fn(&K) -> bool,
) -> anyhow::Result<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
{
    Box::pin(observe(api, name, awaited, deadline, |object| object.filter(|object| fits(object)).cloned())).await
}

/// Waits until an object does not exist, or has another UID.
///
/// # Errors
/// When it still exists at the deadline. The error prints the object as YAML: its finalizers show who holds it.
pub async fn gone<K>(api: &Api<K>, name: &str, uid: Option<&str>, deadline: Duration) -> anyhow::Result<()>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
{
    let is_another = |object: &K| uid.is_some_and(|uid| object.meta().uid.as_deref() != Some(uid));
    Box::pin(observe(api, name, "gone", deadline, |object| object.is_none_or(is_another).then_some(()))).await
}

/// Waits until an object is ready by the rules of [`opcore::readiness`], which know all the usual kinds.
///
/// # Errors
/// When it is not ready before the deadline.
pub async fn ready<K>(api: &Api<K>, name: &str, deadline: Duration) -> anyhow::Result<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
{
    let is_ready = |object: &K| {
        let observed = serde_json::to_value(object).unwrap_or_default();
        readiness::of(&observed, jiff::Timestamp::now()).is_ready()
    };
    until(api, name, "ready", deadline, is_ready).await
}

/// Waits for the first object of a kind that meets a condition, and returns it.
///
/// # Errors
/// When there is none before the deadline. The error says what was expected, and names the existing objects.
pub async fn first<K>(
    api: &Api<K>,
    which: watcher::Config,
    awaited: &str,
    deadline: Duration,
    fits: impl Fn(&K) -> bool,
) -> anyhow::Result<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
{
    let mut observed = BTreeSet::new();
    let follow = async {
        let mut changes = pin!(watcher(api.clone(), which).default_backoff().applied_objects());
        while let Some(change) = changes.next().await {
            // A watch that breaks is restarted, until the deadline.
            let Ok(object) = change else { continue };
            if fits(&object) {
                return Some(object);
            }
            observed.insert(object.name_any());
        }
        None
    };
    if let Ok(Some(found)) = tokio::time::timeout(deadline, Box::pin(follow)).await {
        return Ok(found);
    }
    Err(anyhow!("no {awaited} within {} s; there is {observed:?}", deadline.as_secs()))
}

/// Whether a condition of an object of any kind is `True` for its current generation.
pub fn holds<K: Serialize>(object: &K, condition: &str) -> bool {
    let observed = serde_json::to_value(object).unwrap_or_default();
    let generation = &observed["metadata"]["generation"];
    let conditions = observed["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|found| {
        let of_now = found.get("observedGeneration").is_none_or(|observed| observed == generation);
        found["type"] == condition && found["status"] == "True" && of_now
    })
}

/// Watches an object until the function returns a result.
async fn observe<K, T>(
    api: &Api<K>,
    name: &str,
    awaited: &str,
    deadline: Duration,
    judge: impl Fn(Option<&K>) -> Option<T>,
) -> anyhow::Result<T>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
{
    let mut last = Err("no event about it arrived".to_owned());
    let follow = async {
        // A watch that breaks, or a kind that is not served yet, is retried until the deadline.
        let mut changes = pin!(watcher::watch_object(api.clone(), name).default_backoff());
        while let Some(change) = changes.next().await {
            match change {
                Ok(object) => {
                    if let Some(answer) = judge(object.as_ref()) {
                        return Some(answer);
                    }
                    last = Ok(object);
                }
                Err(error) => last = Err(format!("it cannot be watched: {error}")),
            }
        }
        None
    };
    if let Ok(Some(answer)) = tokio::time::timeout(deadline, follow).await {
        return Ok(answer);
    }
    let observed = match last {
        Ok(Some(object)) => format!("it is\n{}", yaml(&object)),
        Ok(None) => "it does not exist".to_owned(),
        Err(why) => why,
    };
    Err(anyhow!("{name} was not {awaited} within {} s; {observed}", deadline.as_secs()))
}

/// An object as YAML, without managedFields.
pub fn yaml<K: Serialize>(object: &K) -> String {
    let mut observed = serde_json::to_value(object).unwrap_or_default();
    if let Some(metadata) = observed["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    serde_yaml::to_string(&observed).unwrap_or_else(|error| format!("not to be shown as YAML: {error}"))
}
