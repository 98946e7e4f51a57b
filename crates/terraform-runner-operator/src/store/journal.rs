//! The journal: what a run has begun to create and is not in the state yet. It is the only record of that when the pod
//! is lost.

use super::{Store, StoreError, parsed, to_json, value};
use crate::run::report::{JOURNAL_KEY, Journal};

/// The field manager of the journal: another one than that of the report, so that neither removes the other.
const MANAGER: &str = "terraform-runner-operator-journal";

/// Keeps a journal beside the report.
pub async fn save(store: &Store, journal: &Journal) -> Result<(), StoreError> {
    let data = [(JOURNAL_KEY, to_json(journal)?)].into();
    store.write_as(MANAGER, &store.names.report(), data, None).await.map(drop)
}

/// Reads the last journal; none if it does not exist.
pub async fn load(store: &Store) -> Result<Option<Journal>, StoreError> {
    let name = store.names.report();
    let Some(secret) = store.secret(&name).await? else { return Ok(None) };
    value(&secret, JOURNAL_KEY).map(|_| parsed(&secret, &name, JOURNAL_KEY)).transpose()
}
