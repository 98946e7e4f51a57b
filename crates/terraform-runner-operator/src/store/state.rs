//! The state: versions in places, and an index that says which is current.

use std::collections::BTreeSet;

use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::ByteString;
use kube::ResourceExt;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::pack::{CHUNK_BYTES, Packed, unpack};
use super::places::{Facts, Index, SaveCheck, Version};
use super::{Store, StoreError, parsed, to_json, value};
use crate::api::v1alpha1::History;
use crate::run::names::STATE_CHUNKS;
use crate::run::report::StateReport;

/// The key of the [`Index`] in its Secret.
pub const INDEX_KEY: &str = "index.json";
/// The key of the data in the Secret of a chunk.
pub const CHUNK_KEY: &str = "data";
/// A version that no Secret has: an apply that names it either creates the Secret or is refused with a conflict.
const NEVER: &str = "1";
/// How many chunks are written at a time.
const AT_ONCE: usize = 4;

/// The index as it was read.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The index.
    pub index: Index,
    /// The version of its Secret; none if it does not exist.
    version: Option<String>,
}

/// Reads the index. It is empty if it does not exist.
pub async fn read_index(store: &Store) -> Result<Observed, StoreError> {
    let name = store.names.state();
    let Some(secret) = store.secret(&name).await? else { return Ok(Observed::default()) };
    // The Secret was created, but its creator did not get to the next step.
    let index = if value(&secret, INDEX_KEY).is_none() { Index::default() } else { parsed(&secret, &name, INDEX_KEY)? };
    Ok(Observed { index, version: secret.resource_version() })
}

/// Returns what is known of the current version; none if there is no state.
pub async fn summary(store: &Store) -> Result<Option<StateReport>, StoreError> {
    Ok(read_index(store).await?.index.current().map(report))
}

/// A version in the form for reports. -1 resources: the number is not known.
pub fn report(version: &Version) -> StateReport {
    StateReport {
        serial: version.facts.serial,
        resources: version.facts.resources.unwrap_or(-1),
        bytes: i64::try_from(version.sums.bytes).unwrap_or(i64::MAX),
    }
}

/// Reads a version.
///
/// # Errors
///
/// When a chunk is missing or damaged: the error names it.
pub async fn load(store: &Store, version: &Version) -> Result<Vec<u8>, StoreError> {
    let name = |chunk| store.names.state_chunk(version.place, chunk);
    read_chunks(store, &version.sums, name).await
}

/// Reads the current version; none if there is no state.
///
/// # Errors
///
/// When a chunk is missing or damaged. No other version is used instead: see [`last_intact`].
pub async fn current(store: &Store) -> Result<Option<Vec<u8>>, StoreError> {
    match read_index(store).await?.index.current() {
        Some(version) => load(store, version).await.map(Some),
        None => Ok(None),
    }
}

/// Reads the newest undamaged version, for a person who knows that it may not be the current one.
pub async fn last_intact(store: &Store) -> Result<Option<(Version, Vec<u8>)>, StoreError> {
    let mut first_fault = None;
    for version in read_index(store).await?.index.versions {
        match load(store, &version).await {
            Ok(bytes) => return Ok(Some((version, bytes))),
            Err(fault @ StoreError::Api(_)) => return Err(fault),
            Err(fault) => first_fault = first_fault.or(Some(fault)),
        }
    }
    first_fault.map_or(Ok(None), Err)
}

/// Parses what Terraform reports about a state.
///
/// # Errors
///
/// When this is not a state.
pub fn facts(bytes: &[u8]) -> Result<Facts, StoreError> {
    let state: State = serde_json::from_slice(bytes)
        .map_err(|error| StoreError::Refused(format!("the data to save is not a state: {error}")))?;
    let managed = |resource: &&Resource| resource.mode == "managed";
    let count: usize = state.resources.iter().filter(managed).map(|resource| resource.instances.len()).sum();
    let resources = state.encrypted_data.is_none().then(|| i64::try_from(count).unwrap_or(i64::MAX));
    Ok(Facts { serial: state.serial, lineage: state.lineage, resources })
}

/// The addresses of all resources in a state; none if it is encrypted.
///
/// # Errors
///
/// When this is not a state.
pub fn addresses(state: &[u8]) -> Result<BTreeSet<String>, serde_json::Error> {
    let mut all = BTreeSet::new();
    let state: Addresses = serde_json::from_slice(state)?;
    for Named { module, mode, kind, name, instances } in state.resources {
        let module = module.map(|module| format!("{module}.")).unwrap_or_default();
        let mode = if mode == "data" { "data." } else { "" };
        for instance in instances {
            let key = instance.index_key.map(|key| format!("[{key}]")).unwrap_or_default();
            all.insert(format!("{module}{mode}{kind}.{name}{key}"));
        }
    }
    Ok(all)
}

/// Whether an address belongs to a data source.
pub fn is_data(address: &str) -> bool {
    let mut rest = address;
    while let Some(module) = rest.strip_prefix("module.") {
        // A key may contain any character.
        let end = match (module.find('.'), module.find("[\"")) {
            (Some(dot), Some(key)) if key < dot => module.find("\"].").map(|end| end + 2),
            (dot, _) => dot,
        };
        rest = end.and_then(|end| module.get(end + 1..)).unwrap_or_default();
    }
    rest.starts_with("data.")
}

/// The part of a state that is parsed.
#[derive(Deserialize)]
struct State {
    serial: i64,
    lineage: String,
    #[serde(default)]
    resources: Vec<Resource>,
    encrypted_data: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Resource {
    mode: String,
    #[serde(default)]
    instances: Vec<IgnoredAny>,
}

/// The part of a state that the addresses of its resources consist of.
#[derive(Deserialize)]
struct Addresses {
    #[serde(default)]
    resources: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    module: Option<String>,
    mode: String,
    #[serde(rename = "type")]
    kind: String,
    name: String,
    #[serde(default)]
    instances: Vec<Keyed>,
}

#[derive(Deserialize)]
struct Keyed {
    index_key: Option<Value>,
}

/// A state to save.
pub struct Save<'a> {
    /// The state, compressed.
    pub packed: &'a Packed,
    /// What Terraform reports about it.
    pub facts: &'a Facts,
    /// The run that saves it.
    pub run: &'a str,
    /// How many old versions are kept.
    pub history: &'a History,
}

/// The place for the next version, and its current contents.
#[derive(Clone, Debug)]
pub struct Aim {
    observed: Observed,
    place: usize,
    /// The version of each Secret for a chunk.
    versions: Vec<String>,
}

/// Determines the place for the next version.
///
/// # Errors
///
/// When it is too large for any place.
pub async fn aim(store: &Store, save: &Save<'_>) -> Result<Aim, StoreError> {
    if save.packed.chunks.len() > STATE_CHUNKS {
        let bytes = save.packed.chunks.iter().map(Vec::len).sum();
        return Err(StoreError::TooLarge { what: "The state", bytes, limit: STATE_CHUNKS * CHUNK_BYTES });
    }
    let observed = read_index(store).await?;
    let place = observed.index.free_place(usize::try_from(save.history.states).unwrap_or(1));
    let versions = (0..save.packed.chunks.len()).map(|chunk| async move {
        let secret = store.secrets.get_metadata_opt(&store.names.state_chunk(place, chunk)).await?;
        Ok::<_, StoreError>(secret.and_then(|secret| secret.resource_version()).unwrap_or_else(|| NEVER.to_owned()))
    });
    let versions = try_join_all(versions).await?;
    Ok(Aim { observed, place, versions })
}

/// Makes this the current version. `aim` must be read before the lock is found to be ours: then a process that saves
/// after that, and a delayed process that held the lock before, cannot interfere with each other.
///
/// # Errors
///
/// When a newer or different state is kept; when another process saved in the meantime (409).
pub async fn save(store: &Store, aim: Aim, save: &Save<'_>) -> Result<(), StoreError> {
    let Aim { observed, place, versions } = aim;
    let Save { packed, facts, run, history } = save;
    match observed.index.judge(facts, &packed.sums.sha256, run) {
        SaveCheck::Save => {}
        SaveCheck::Saved => return Ok(()),
        SaveCheck::Refuse(reason) => return Err(StoreError::Refused(reason)),
    }
    let keep = usize::try_from(history.states).unwrap_or(1);
    let chunk = |number: usize| (store.names.state_chunk(place, number), versions.get(number).map(String::as_str));
    write_chunks(store, packed, chunk).await?;
    let version = Version {
        place,
        facts: (*facts).clone(),
        sums: packed.sums.clone(),
        run: (*run).to_owned(),
        time: jiff::Timestamp::now(),
    };
    let name = store.names.state();
    let fence = if observed.version.is_some() {
        observed.version
    } else {
        let made = store.make(&name).await?;
        if value(&made, INDEX_KEY).is_some() {
            return Err(StoreError::Raced(name));
        }
        made.resource_version()
    };
    let index = to_json(&observed.index.with(version, keep))?;
    store.write(&name, [(INDEX_KEY, index)].into(), fence.as_deref()).await?;
    Ok(())
}

/// Writes chunks into the Secrets of these names; if a version is given, only if they still have that version.
pub(super) async fn write_chunks<'a>(
    store: &Store,
    packed: &Packed,
    target: impl Fn(usize) -> (String, Option<&'a str>),
) -> Result<(), StoreError> {
    let named = packed.chunks.iter().enumerate().map(|(number, chunk)| (target(number), chunk));
    let writes = named.map(|((name, version), chunk)| async move {
        store.write(&name, [(CHUNK_KEY, ByteString(chunk.clone()))].into(), version).await
    });
    let writes: Vec<_> = writes.collect();
    stream::iter(writes).buffer_unordered(AT_ONCE).try_for_each(|_| async { Ok(()) }).await
}

/// Reads chunks from the Secrets of these names, and checks them.
pub(super) async fn read_chunks(
    store: &Store,
    sums: &super::pack::Sums,
    name: impl Fn(usize) -> String,
) -> Result<Vec<u8>, StoreError> {
    let reads = (0..sums.chunks.len()).map(|number| {
        let name = name(number);
        async move {
            let secret = store.secret(&name).await?.ok_or_else(|| StoreError::Missing(name.clone()))?;
            let data = value(&secret, CHUNK_KEY).map(<[u8]>::to_vec);
            data.ok_or_else(|| StoreError::damaged(&name, format!("it has no key {CHUNK_KEY}")))
        }
    });
    unpack(&try_join_all(reads).await?, sums, name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_state_reports_how_many_resources_are_managed() {
        let state = br#"{"version":4,"serial":3,"lineage":"l","outputs":{},"resources":[
            {"mode":"managed","type":"a","name":"b","instances":[{},{}]},{"mode":"data","type":"a","name":"b","instances":[{}]}]}"#;
        assert_eq!(facts(state).unwrap(), Facts { serial: 3, lineage: "l".to_owned(), resources: Some(2) });
        let encrypted = br#"{"serial":3,"lineage":"l","meta":{},"encrypted_data":"x","encryption_version":"v0"}"#;
        assert_eq!(facts(encrypted).unwrap().resources, None);
        assert!(facts(b"{}").is_err());
    }

    #[test]
    fn resources_have_the_addresses_that_terraform_prints() {
        let state = json!({ "resources": [
            { "mode": "managed", "type": "random_pet", "name": "a", "instances": [{}] },
            { "mode": "managed", "type": "random_pet", "name": "b", "instances": [{ "index_key": 0 }, { "index_key": 1 }] },
            { "mode": "data", "module": "module.m", "type": "local_file", "name": "c", "instances": [{ "index_key": "k" }] },
        ]});
        let expected = ["random_pet.a", "random_pet.b[0]", "random_pet.b[1]", "module.m.data.local_file.c[\"k\"]"];
        assert_eq!(addresses(state.to_string().as_bytes()).unwrap(), expected.map(str::to_owned).into());
        let read: Vec<bool> = expected.iter().map(|address| is_data(address)).collect();
        assert_eq!(read, [false, false, false, true]);
        assert!(is_data("data.a.b") && is_data("module.m[\"a.b\"].module.n[0].data.a.b"));
        assert!(!is_data("module.m[\"x.data.y\"].a.b") && !is_data("module.data.a.b"));
        assert!(addresses(br#"{ "encrypted_data": "x" }"#).unwrap().is_empty());
    }
}
