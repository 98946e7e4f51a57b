//! The versions of the providers, as Terraform itself writes them down, beside the state that was written by them.

use k8s_openapi::ByteString;

use super::{Store, StoreError, value};

/// The key in its Secret.
pub const LOCKFILE_KEY: &str = "terraform.lock.hcl";
/// A larger one is refused: a provider takes some kilobytes.
const LARGEST: usize = 700_000;

/// Reads it; none when there is none.
pub async fn load(store: &Store) -> Result<Option<Vec<u8>>, StoreError> {
    let secret = store.secret(&store.names.lockfile()).await?;
    Ok(secret.and_then(|secret| value(&secret, LOCKFILE_KEY).map(<[u8]>::to_vec)))
}

/// Keeps it, in place of the one before.
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
