//! The plan that waits for a person.

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};

use super::pack::{CHUNK_BYTES, Sums, gunzip, gzip, pack};
use super::state::{read_chunks, write_chunks};
use super::{Store, StoreError, parsed, to_json, value};
use crate::run::names::PLAN_CHUNKS;
use crate::run::report::PlanReport;

/// The key of a [`KeptPlan`] in its Secret.
pub const PLAN_KEY: &str = "plan.json";
/// The key of the plan's text for users, compressed by gzip.
pub const TEXT_KEY: &str = "plan.txt.gz";
/// The largest text, compressed.
const TEXT_BYTES: usize = 700_000;
/// The largest text that is read.
const READ_BYTES: u64 = 256 << 20;

/// A plan that is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptPlan {
    /// What the plan does.
    #[serde(flatten)]
    pub report: PlanReport,
    /// The inputs from which it was made.
    pub inputs: String,
    /// The run that made it.
    pub run: String,
    /// When it was made.
    pub time: jiff::Timestamp,
    /// The checksums of its chunks.
    pub file: Sums,
}

/// Keeps a plan, replacing the one before. `text` is the version for users, without confidential values.
pub async fn save(
    store: &Store,
    report: &PlanReport,
    inputs: &str,
    run: &str,
    file: &[u8],
    text: &str,
) -> Result<KeptPlan, StoreError> {
    let packed = pack(file);
    if packed.chunks.len() > PLAN_CHUNKS {
        let bytes = packed.chunks.iter().map(Vec::len).sum();
        return Err(StoreError::TooLarge { what: "The plan", bytes, limit: PLAN_CHUNKS * CHUNK_BYTES });
    }
    write_chunks(store, &packed, |chunk| (store.names.plan_chunk(chunk), None)).await?;
    let kept = KeptPlan {
        report: report.clone(),
        inputs: inputs.to_owned(),
        run: run.to_owned(),
        time: jiff::Timestamp::now(),
        file: packed.sums,
    };
    let text = ByteString(bounded(text, TEXT_BYTES));
    store.write(&store.names.plan(), [(PLAN_KEY, to_json(&kept)?), (TEXT_KEY, text)].into(), None).await?;
    Ok(kept)
}

/// Returns what is known of the kept plan; none if there is no plan.
pub async fn describe(store: &Store) -> Result<Option<KeptPlan>, StoreError> {
    let name = store.names.plan();
    store.secret(&name).await?.map(|secret| parsed(&secret, &name, PLAN_KEY)).transpose()
}

/// Returns the kept plan with its file; none if there is no plan.
pub async fn load(store: &Store) -> Result<Option<(KeptPlan, Vec<u8>)>, StoreError> {
    let Some(kept) = describe(store).await? else { return Ok(None) };
    let file = read_chunks(store, &kept.file, |chunk| store.names.plan_chunk(chunk)).await?;
    Ok(Some((kept, file)))
}

/// Returns the text of the kept plan; none if there is no plan.
pub async fn text(store: &Store) -> Result<Option<String>, StoreError> {
    let name = store.names.plan();
    let Some(secret) = store.secret(&name).await? else { return Ok(None) };
    let bytes =
        value(&secret, TEXT_KEY).ok_or_else(|| StoreError::damaged(&name, format!("it has no key {TEXT_KEY}")))?;
    let text = gunzip(bytes, READ_BYTES)
        .map_err(|error| StoreError::damaged(&name, format!("{TEXT_KEY} cannot be decompressed: {error}")))?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// Compresses as many lines as fit.
fn bounded(text: &str, limit: usize) -> Vec<u8> {
    let whole = gzip(text.as_bytes());
    if whole.len() <= limit {
        return whole;
    }
    let mut keep = text.len();
    loop {
        keep /= 2;
        let cut = text.get(..text.floor_char_boundary(keep)).unwrap_or_default();
        let lines = cut.rfind('\n').map_or(cut, |end| &cut[..=end]);
        let note = format!("… cut here: the plan has {} bytes. To see all of it, run the plan by hand.\n", text.len());
        let short = gzip(format!("{lines}{note}").as_bytes());
        if short.len() <= limit || keep == 0 {
            return short;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_cut_and_says_so() {
        let lines: Vec<String> = (0..100_000).map(|number| format!("line {number}")).collect();
        let text = lines.join("\n");
        let short = gunzip(&bounded(&text, 50_000), READ_BYTES).unwrap();
        let short = String::from_utf8(short).unwrap();
        assert!(short.starts_with("line 0\nline 1\n") && short.lines().last().unwrap().starts_with("… cut here"));
        assert_eq!(gunzip(&bounded("short\n", 50_000), READ_BYTES).unwrap(), b"short\n");
    }
}
