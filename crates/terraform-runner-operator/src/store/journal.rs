//! What a run has begun to make and the state does not have yet: all that is left to tell of it when its pod is lost.

use super::{Store, StoreError, parsed, to_json, value};
use crate::run::report::{JOURNAL_KEY, Journal};

/// Who owns the journal: another than who owns the report, so that neither takes the other away.
const MANAGER: &str = "terraform-runner-operator-journal";

/// Keeps a journal beside the report.
pub async fn save(store: &Store, journal: &Journal) -> Result<(), StoreError> {
    let data = [(JOURNAL_KEY, to_json(journal)?)].into();
    store.write_as(MANAGER, &store.names.report(), data, None).await.map(drop)
}

/// Reads the last journal; none when there is none.
pub async fn load(store: &Store) -> Result<Option<Journal>, StoreError> {
    let name = store.names.report();
    let Some(secret) = store.secret(&name).await? else { return Ok(None) };
    value(&secret, JOURNAL_KEY).map(|_| parsed(&secret, &name, JOURNAL_KEY)).transpose()
}
