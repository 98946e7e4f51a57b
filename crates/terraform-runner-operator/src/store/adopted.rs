//! A state from elsewhere: of a workspace that is gone, or written by Terraform itself.

use super::pack::gunzip;
use super::state::INDEX_KEY;
use super::{Store, StoreError, state, value};
use crate::run::names::{Names, STATE_CHUNKS};

/// The keys under which a Secret may hold a state: our index, the key of the backend `kubernetes`, and that of a file.
pub const KEYS: [&str; 3] = [INDEX_KEY, BACKEND_KEY, FILE_KEY];
const BACKEND_KEY: &str = "tfstate";
const FILE_KEY: &str = "terraform.tfstate";
/// The largest state that is read.
const READ_BYTES: u64 = 1 << 30;
/// The most places in which a workspace may have left versions: twenty old ones, the current one, and the next.
const PLACES: usize = 22;

/// The names of the chunks that belong to the index of a state that a workspace left.
fn names(secret: &str) -> Option<Names> {
    secret.strip_suffix("-state").map(Names::with_stem)
}

/// Every Secret that may have to be read for it.
pub fn secrets(secret: &str) -> Vec<String> {
    let chunks = names(secret).into_iter().flat_map(|names| {
        let all = (0..PLACES).flat_map(|place| (0..STATE_CHUNKS).map(move |chunk| (place, chunk)));
        let all = all.map(|(place, chunk)| names.state_chunk(place, chunk));
        all.chain([names.lockfile()]).collect::<Vec<_>>()
    });
    std::iter::once(secret.to_owned()).chain(chunks).collect()
}

/// Reads the provider versions that a workspace left with it; none if it left none.
pub async fn lockfile(store: &Store, secret: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(names) = names(secret) else { return Ok(None) };
    super::lockfile::load(&Store { names, ..store.clone() }).await
}

/// Reads the state.
///
/// # Errors
///
/// When it is missing or damaged.
pub async fn load(store: &Store, name: &str) -> Result<Vec<u8>, StoreError> {
    let secret = store.secret(name).await?.ok_or_else(|| StoreError::Missing(name.to_owned()))?;
    if value(&secret, INDEX_KEY).is_some() {
        let left = Store { names: names(name).unwrap_or_else(|| Names::with_stem(name)), ..store.clone() };
        return state::current(&left).await?.ok_or_else(|| StoreError::damaged(name, "it refers to no state"));
    }
    if let Some(bytes) = value(&secret, BACKEND_KEY) {
        return gunzip(bytes, READ_BYTES)
            .map_err(|error| StoreError::damaged(name, format!("{BACKEND_KEY} cannot be decompressed: {error}")));
    }
    let bytes = value(&secret, FILE_KEY).ok_or_else(|| StoreError::damaged(name, "it contains no state"))?;
    Ok(bytes.to_vec())
}
