//! The report of the last run, and the outputs.

use k8s_openapi::ByteString;

use super::pack::{CHUNK_BYTES, gunzip, gzip};
use super::{Store, StoreError, parsed, to_json, value};
use crate::api::v1alpha1::{Diagnostic, Outcome};
use crate::run::report::{OUTPUTS_KEY, OutputValues, REPORT_KEY, Report};

/// How large outputs are read at most.
const READ_BYTES: u64 = 256 << 20;

/// Writes a report. Outputs stay when there are no new ones; those that are too large make the run a failed one.
pub async fn save(store: &Store, report: &Report, outputs: Option<&OutputValues>) -> Result<(), StoreError> {
    let name = store.names.report();
    let mut report = report.clone();
    let kept = match outputs {
        Some(outputs) => {
            let bytes = gzip(&to_json(outputs)?.0);
            if bytes.len() <= CHUNK_BYTES {
                Some(ByteString(bytes))
            } else {
                too_large(&mut report, bytes.len());
                old(store, &name).await?
            }
        }
        None => old(store, &name).await?,
    };
    let report = (REPORT_KEY, to_json(&report)?);
    let data = std::iter::once(report).chain(kept.map(|outputs| (OUTPUTS_KEY, outputs))).collect();
    store.write(&name, data, None).await?;
    Ok(())
}

/// Reads the report of the last run; none when there is none.
pub async fn load(store: &Store) -> Result<Option<Report>, StoreError> {
    let name = store.names.report();
    let Some(secret) = store.secret(&name).await? else { return Ok(None) };
    // A journal may be all that there is yet.
    value(&secret, REPORT_KEY).map(|_| parsed(&secret, &name, REPORT_KEY)).transpose()
}

/// Reads the outputs; none when there are none.
pub async fn outputs(store: &Store) -> Result<Option<OutputValues>, StoreError> {
    let name = store.names.report();
    let Some(bytes) = old(store, &name).await? else { return Ok(None) };
    parse_outputs(&bytes.0).map(Some).map_err(|fault| StoreError::Damaged { secret: name, fault })
}

/// The outputs, from the value of their key.
///
/// # Errors
///
/// Says what is wrong with it.
pub fn parse_outputs(bytes: &[u8]) -> Result<OutputValues, String> {
    let json = gunzip(bytes, READ_BYTES).map_err(|error| format!("{OUTPUTS_KEY} cannot be decompressed: {error}"))?;
    serde_json::from_slice(&json).map_err(|error| format!("{OUTPUTS_KEY} is not what it should be: {error}"))
}

async fn old(store: &Store, name: &str) -> Result<Option<ByteString>, StoreError> {
    let secret = store.secret(name).await?;
    Ok(secret.and_then(|secret| value(&secret, OUTPUTS_KEY).map(|bytes| ByteString(bytes.to_vec()))))
}

fn too_large(report: &mut Report, bytes: usize) {
    report.outcome = Outcome::Failed;
    let detail = format!(
        "They take {bytes} bytes compressed, and a Secret holds {CHUNK_BYTES}. What was applied stays applied. Make the \
         outputs of the module smaller."
    );
    let summary = "The outputs are too large".to_owned();
    report.diagnostics.insert(0, Diagnostic { summary, detail: Some(detail), ..Diagnostic::default() });
}
