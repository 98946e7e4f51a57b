//! The report of the last run, and the outputs.

use k8s_openapi::ByteString;

use super::pack::{CHUNK_BYTES, gunzip, gzip};
use super::{Store, StoreError, parsed, to_json, value};
use crate::api::v1alpha1::{Diagnostic, Outcome};
use crate::run::report::{Journal, NAMED_DIAGNOSTICS, OUTPUTS_KEY, OutputValues, REPORT_KEY, Report};

/// The largest outputs as JSON: twice what a Secret holds, so that some of them can be selected.
pub const OUTPUTS_BYTES: usize = 2 << 20;
/// The most values in them: each takes many times its size once it is parsed.
const OUTPUTS_VALUES: usize = 20_000;
/// The largest report or journal that is read. What a runner writes is far smaller.
const REPORT_BYTES: usize = 512 << 10;

/// Writes a report. Outputs stay when there are no new ones; outputs that are too large make the run fail.
pub async fn save(store: &Store, report: &Report, outputs: Option<&OutputValues>) -> Result<(), StoreError> {
    let name = store.names.report();
    let mut report = report.clone().bounded();
    let kept = match outputs {
        Some(outputs) => match pack(&to_json(outputs)?.0) {
            Ok(bytes) => Some(ByteString(bytes)),
            Err(why) => {
                too_large(&mut report, &why);
                old(store, &name).await?
            }
        },
        None => old(store, &name).await?,
    };
    let report = (REPORT_KEY, to_json(&report)?);
    let data = std::iter::once(report).chain(kept.map(|outputs| (OUTPUTS_KEY, outputs))).collect();
    store.write(&name, data, None).await?;
    Ok(())
}

/// Reads the report of the last run; none if there is none.
pub async fn load(store: &Store) -> Result<Option<Report>, StoreError> {
    let name = store.names.report();
    let Some(secret) = store.secret(&name).await? else { return Ok(None) };
    // The Secret may contain only a journal so far.
    value(&secret, REPORT_KEY).map(|_| parsed(&secret, &name, REPORT_KEY)).transpose()
}

/// Reads the outputs; none if there are none.
pub async fn outputs(store: &Store) -> Result<Option<OutputValues>, StoreError> {
    let name = store.names.report();
    let Some(bytes) = old(store, &name).await? else { return Ok(None) };
    parse_outputs(&bytes.0).map(Some).map_err(|fault| StoreError::Damaged { secret: name, fault })
}

/// Parses the outputs from the value of their key. Whoever wrote it, no more is read than outputs may have.
///
/// # Errors
///
/// What is wrong with it, as a clause.
pub fn parse_outputs(bytes: &[u8]) -> Result<OutputValues, String> {
    let json = gunzip(bytes, OUTPUTS_BYTES as u64).map_err(|error| format!("they cannot be decompressed: {error}"))?;
    bounded(&json)?;
    serde_json::from_slice(&json).map_err(|error| format!("{OUTPUTS_KEY} cannot be parsed: {error}"))
}

/// Parses a report from the value of its key, cut to what a status can hold.
///
/// # Errors
///
/// What is wrong with it, as a clause.
pub fn parse_report(bytes: &[u8]) -> Result<Report, String> {
    small(bytes)?;
    serde_json::from_slice(bytes).map(Report::bounded).map_err(|error| format!("it cannot be parsed: {error}"))
}

/// Parses a journal from the value of its key.
///
/// # Errors
///
/// What is wrong with it, as a clause.
pub fn parse_journal(bytes: &[u8]) -> Result<Journal, String> {
    small(bytes)?;
    serde_json::from_slice(bytes).map(Journal::bounded).map_err(|error| format!("it cannot be parsed: {error}"))
}

fn small(bytes: &[u8]) -> Result<(), String> {
    let size = bytes.len();
    if size > REPORT_BYTES { Err(format!("it has {size} bytes, but may have at most {REPORT_BYTES}")) } else { Ok(()) }
}

/// The outputs in stored form.
fn pack(json: &[u8]) -> Result<Vec<u8>, String> {
    bounded(json)?;
    let bytes = gzip(json);
    if bytes.len() > CHUNK_BYTES {
        return Err(format!(
            "they have {} bytes when compressed, but a Secret can hold only {CHUNK_BYTES}",
            bytes.len()
        ));
    }
    Ok(bytes)
}

/// Checks the size of outputs.
fn bounded(json: &[u8]) -> Result<(), String> {
    if json.len() > OUTPUTS_BYTES {
        return Err(format!("they have {} bytes as JSON, but may have at most {OUTPUTS_BYTES}", json.len()));
    }
    let values = values(json);
    if values > OUTPUTS_VALUES {
        return Err(format!("they have {values} values, but may have at most {OUTPUTS_VALUES}"));
    }
    Ok(())
}

/// The approximate number of values in JSON: each value except the first of a list or object follows a comma.
fn values(json: &[u8]) -> usize {
    let (mut is_text, mut is_escaped, mut count) = (false, false, 1);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => count += 1,
            _ => {}
        }
    }
    count
}

async fn old(store: &Store, name: &str) -> Result<Option<ByteString>, StoreError> {
    let secret = store.secret(name).await?;
    Ok(secret.and_then(|secret| value(&secret, OUTPUTS_KEY).map(|bytes| ByteString(bytes.to_vec()))))
}

fn too_large(report: &mut Report, why: &str) {
    report.outcome = Outcome::Failed;
    // They will be as large the next time.
    report.lasting = true;
    let detail = format!(
        "All outputs together: {why}. The applied resources are not affected. Make the outputs of the module smaller."
    );
    let summary = "The outputs are too large".to_owned();
    report.diagnostics.insert(0, Diagnostic { summary, detail: Some(detail), ..Diagnostic::default() });
    report.diagnostics.truncate(NAMED_DIAGNOSTICS);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_small_compressed_and_large_otherwise_is_neither_kept_nor_read() {
        let bomb = json!({ "zeros": { "value": "0".repeat(120 << 20) } }).to_string();
        let packed = gzip(bomb.as_bytes());
        assert!(packed.len() < CHUNK_BYTES, "{}", packed.len());
        assert!(pack(bomb.as_bytes()).unwrap_err().contains("bytes as JSON"));
        assert!(parse_outputs(&packed).unwrap_err().contains("more than 2097152 bytes"));
    }

    #[test]
    fn many_small_values_are_too_many_and_a_text_with_many_commas_is_one() {
        let of = |value: serde_json::Value| json!({ "it": { "value": value, "sensitive": true } }).to_string();
        let many = of(json!(vec![0; 100_000]));
        assert!(pack(many.as_bytes()).unwrap_err().contains("values, but may have"));
        assert!(parse_outputs(&gzip(many.as_bytes())).is_err());
        let text = of(json!(r#"[{"a\\":1},"#.repeat(50_000)));
        let outputs = parse_outputs(&pack(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(outputs["it"].text().len(), 11 * 50_000);
    }

    #[test]
    fn of_a_report_no_more_is_taken_than_a_status_has_room_for() {
        let diagnostics: Vec<_> =
            (0..400).map(|_| json!({ "severity": "Error", "summary": "ä".repeat(400) })).collect();
        let resource = json!({ "address": "a".repeat(4000), "action": "update" });
        let report = json!({
            "run": "tf-net-1", "action": "Apply", "inputs": "i", "outcome": "Failed", "stage": "plan",
            "diagnostics": diagnostics, "drift": { "count": 60, "resources": vec![resource; 30] },
            "unrecorded": vec!["x".repeat(10_000)],
        });
        let bytes = report.to_string().into_bytes();
        let read = parse_report(&bytes).unwrap();
        assert_eq!(read.diagnostics.len(), NAMED_DIAGNOSTICS);
        assert!(read.drift.resources.iter().all(|resource| resource.address.chars().count() <= 502));
        assert!(read.unrecorded[0].chars().count() <= 502);
        let larger = json!({ "run": "r".repeat(600 << 10) }).to_string();
        assert!(parse_report(larger.as_bytes()).unwrap_err().contains("bytes"));
    }
}
