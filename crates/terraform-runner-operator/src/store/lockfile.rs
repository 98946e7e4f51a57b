//! The provider versions, in the file that Terraform itself writes, stored beside the state that they wrote.

use k8s_openapi::ByteString;

use super::{Store, StoreError, value};

/// The key in its Secret.
pub const LOCKFILE_KEY: &str = "terraform.lock.hcl";
/// The limit for the file: a provider takes a few kilobytes.
const LARGEST: usize = 700_000;

/// Reads it; none if it does not exist.
pub async fn load(store: &Store) -> Result<Option<Vec<u8>>, StoreError> {
    let secret = store.secret(&store.names.lockfile()).await?;
    Ok(secret.and_then(|secret| value(&secret, LOCKFILE_KEY).map(<[u8]>::to_vec)))
}

/// Stores it, replacing the previous one.
///
/// # Errors
///
/// When it is too large.
pub async fn save(store: &Store, text: &[u8]) -> Result<(), StoreError> {
    if text.len() > LARGEST {
        return Err(StoreError::TooLarge { what: "The dependency lock file", bytes: text.len(), limit: LARGEST });
    }
    store.write(&store.names.lockfile(), [(LOCKFILE_KEY, ByteString(text.to_vec()))].into(), None).await.map(drop)
}
