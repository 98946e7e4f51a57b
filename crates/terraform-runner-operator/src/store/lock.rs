//! The lock of the state: a Lease whose holder is a pod, by its UID.
//!
//! A pod takes it when nobody holds it, or when it holds it already. It is never stolen here: the operator removes a
//! lock that has expired and whose pod is gone. Every write names the version that was read, so two pods never both get
//! it.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{MAKER, MANAGER, Store, StoreError};

/// Annotation on the Lease: what Terraform reports about its lock, as JSON.
pub const INFO_ANNOTATION: &str = "infra.opr8r/lock-info";
/// How long the lock lasts after its last renewal.
pub const LASTS_SECONDS: i32 = 60;

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// The UID of the pod.
    pub pod: String,
    /// Since when the lock is held.
    pub since: Option<Timestamp>,
    /// What Terraform reports about its lock.
    pub info: Value,
}

impl Holder {
    /// The holder of this Lease; none if it is free.
    pub fn of(lease: &Lease) -> Option<Self> {
        let spec = lease.spec.as_ref()?;
        let pod = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
        let text = lease.metadata.annotations.as_ref().and_then(|all| all.get(INFO_ANNOTATION));
        let info = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
        Some(Self { pod, since: spec.acquire_time.as_ref().map(|time| time.0), info })
    }

    /// The id that Terraform gave its lock.
    pub fn id(&self) -> Option<&str> {
        self.info["ID"].as_str()
    }

    /// The holder in the form that Terraform expects.
    pub fn as_json(&self) -> Value {
        let mut info = if self.info.is_object() { self.info.clone() } else { json!({ "ID": self.pod }) };
        info["Who"] = format!("pod {}", self.pod).into();
        info
    }
}

/// Returns the holder of the lock; none if it is free.
pub async fn read(store: &Store) -> Result<Option<Holder>, StoreError> {
    Ok(store.leases.get_opt(&store.names.lease()).await?.as_ref().and_then(Holder::of))
}

/// Takes the lock for a pod. If another holds it, returns that holder.
pub async fn take(store: &Store, pod: &str, info: &Value) -> Result<Result<(), Holder>, StoreError> {
    let name = store.names.lease();
    let lease = match store.leases.get_opt(&name).await? {
        Some(lease) => lease,
        None => make(store, &name).await?,
    };
    match Holder::of(&lease) {
        Some(holder) if holder.pod != pod => return Ok(Err(holder)),
        Some(holder) if holder.info == *info => return Ok(Ok(())),
        _ => {}
    }
    let now = Some(MicroTime(Timestamp::now()));
    let spec = LeaseSpec {
        holder_identity: Some(pod.to_owned()),
        lease_duration_seconds: Some(LASTS_SECONDS),
        acquire_time: now.clone(),
        renew_time: now,
        ..LeaseSpec::default()
    };
    replace(store, lease, spec, Some(info)).await.map(Ok)
}

/// Renews the lock of a pod. Returns whether the pod holds it.
pub async fn renew(store: &Store, pod: &str) -> Result<bool, StoreError> {
    let Some((lease, holder)) = held(store, pod).await? else { return Ok(false) };
    let renew_time = Some(MicroTime(Timestamp::now()));
    let spec = LeaseSpec { renew_time, ..lease.spec.clone().unwrap_or_default() };
    replace(store, lease, spec, Some(&holder.info)).await?;
    Ok(true)
}

/// Releases the lock of a pod. If another holds it, returns that holder.
pub async fn release(store: &Store, pod: &str, id: &str) -> Result<Result<(), Holder>, StoreError> {
    let Some(lease) = store.leases.get_opt(&store.names.lease()).await? else { return Ok(Ok(())) };
    match Holder::of(&lease) {
        None => Ok(Ok(())),
        Some(holder) if holder.pod == pod && holder.id() == Some(id) => {
            replace(store, lease, LeaseSpec::default(), None).await.map(Ok)
        }
        Some(holder) => Ok(Err(holder)),
    }
}

/// Checks that this pod holds the lock with this id.
///
/// # Errors
///
/// When it does not.
pub async fn require(store: &Store, pod: &str, id: &str) -> Result<(), StoreError> {
    match held(store, pod).await? {
        Some((_, holder)) if holder.id() == Some(id) => Ok(()),
        Some(_) => Err(StoreError::Refused(format!("the lock of the state is not held under the id {id:?}"))),
        None => Err(StoreError::Refused("the lock of the state is no longer held by this pod".to_owned())),
    }
}

async fn held(store: &Store, pod: &str) -> Result<Option<(Lease, Holder)>, StoreError> {
    let lease = store.leases.get_opt(&store.names.lease()).await?;
    let held = lease.and_then(|lease| Holder::of(&lease).map(|holder| (lease, holder)));
    Ok(held.filter(|(_, holder)| holder.pod == pod))
}

async fn make(store: &Store, name: &str) -> Result<Lease, StoreError> {
    let metadata = store.metadata(name, None);
    let body = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata });
    Ok(store.leases.patch(name, &PatchParams::apply(MAKER).force(), &Patch::Apply(&body)).await?)
}

/// Replaces a Lease, if it is unchanged since it was read.
async fn replace(store: &Store, mut lease: Lease, spec: LeaseSpec, info: Option<&Value>) -> Result<(), StoreError> {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    match info {
        Some(info) => annotations.insert(INFO_ANNOTATION.to_owned(), info.to_string()),
        None => annotations.remove(INFO_ANNOTATION),
    };
    lease.spec = Some(spec);
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    store.leases.replace(&store.names.lease(), &params, &lease).await?;
    Ok(())
}
