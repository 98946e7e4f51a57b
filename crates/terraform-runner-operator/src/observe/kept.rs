//! What is kept for a workspace: the reports of its runs, and the key for the hashes of its inputs.

use std::fmt;
use std::io::Read;

use k8s_openapi::api::core::v1::Secret;
use opcore::Error;
use opcore::digest;

use super::{ObservedPart, Reading};
use crate::api::v1alpha1::{OutputsWritten, TerraformWorkspace};
use crate::render::{self, Key};
use crate::run::bundle::Bundle;
use crate::run::report::{JOURNAL_KEY, Journal, OUTPUTS_KEY, OutputValues, REPORT_KEY, Report};
use crate::store;

/// The reports of runs.
#[derive(Default)]
pub(super) struct RunReports {
    pub report: Option<Report>,
    pub journal: Option<Journal>,
    pub outputs: Option<OutputValues>,
    pub outputs_fault: Option<String>,
}

/// The key for the hashes of a workspace's inputs.
#[derive(Clone, PartialEq, Eq)]
pub struct ObservedKey {
    /// Random digits.
    pub value: String,
    /// Whether it is in its Secret. Otherwise it is new, or was found in the kept inputs.
    pub is_kept: bool,
}

impl fmt::Debug for ObservedKey {
    /// Without the value: this may end up in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySeen(is_kept: {})", self.is_kept)
    }
}

impl ObservedKey {
    /// The key for the inputs of this workspace.
    pub(super) fn of_inputs(&self, workspace: &TerraformWorkspace) -> Key {
        Key { salt: self.value.clone(), known: known(workspace) }
    }

    /// A new random key.
    fn new() -> Result<Self, Error> {
        let mut random = [0; 32];
        let read = std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random));
        read.map_err(|error| Error::Outside(format!("/dev/urandom cannot be read: {error}")))?;
        // The digits of a digest have the required form.
        Ok(Self { value: digest::of_bytes(&random), is_kept: false })
    }
}

/// The hashes in the status, with the last applied one first.
fn known(workspace: &TerraformWorkspace) -> Vec<String> {
    let Some(status) = &workspace.status else { return Vec::new() };
    let applied = status.last_applied.iter().map(|applied| applied.hash.clone());
    let begun = status.begun_inputs.iter().cloned();
    let planned = status.plan.iter().map(|plan| plan.inputs.clone());
    applied.chain(begun).chain(planned).chain(status.run.iter().map(|run| run.inputs.clone())).collect()
}

impl Reading {
    /// The reports of the runs. They are read while a run is active, and when the Secret with the outputs may not be as
    /// it should be. For a workspace that is ready, nothing is read.
    pub(super) async fn run_reports(
        &self,
        workspace: &TerraformWorkspace,
        parts: &[ObservedPart],
    ) -> Result<RunReports, Error> {
        let Some(part) = parts.iter().find(|part| part.target.name == self.names.report()) else {
            return Ok(RunReports::default());
        };
        let status = workspace.status.as_ref();
        let run = status.and_then(|status| status.run.as_ref()).filter(|run| !run.is_over());
        let written = status.and_then(|status| status.outputs_written.as_ref());
        let deleting = workspace.metadata.deletion_timestamp.is_some();
        let differs = !deleting && !written.is_some_and(|written| are_in_place(workspace, written, parts));
        let are_new = !deleting && written.is_none_or(|written| written.report != part.version);
        if run.is_none() && !differs && !are_new {
            return Ok(RunReports::default());
        }
        let secrets = self.reader.namespaced::<Secret>(&self.namespace);
        let Some(secret) = secrets.get_opt(&self.names.report()).await? else { return Ok(RunReports::default()) };
        let value = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.as_slice());
        // An unreadable report counts as none: its run is lost, and the status says so.
        let report = value(REPORT_KEY).and_then(|bytes| store::report::parse_report(bytes).ok());
        let journal = value(JOURNAL_KEY).and_then(|bytes| store::report::parse_journal(bytes).ok());
        // The Secret also holds the journal of an active run; the rest of the previous run's report is unchanged.
        let has_reported = run.is_none_or(|run| report.as_ref().is_some_and(|report| report.run == run.job));
        let outputs = value(OUTPUTS_KEY).filter(|_| differs || (are_new && has_reported));
        let (outputs, outputs_fault) = match outputs.map(store::report::parse_outputs).transpose() {
            Ok(outputs) => (outputs, None),
            Err(fault) => (None, Some(fault)),
        };
        Ok(RunReports { report, journal, outputs, outputs_fault })
    }

    /// The key for the hashes of inputs. A lost key is recovered from the kept inputs: with another key, the applied
    /// inputs would seem to have changed.
    pub(super) async fn key(
        &self,
        workspace: &TerraformWorkspace,
        parts: &[ObservedPart],
    ) -> Result<ObservedKey, Error> {
        let is_there = |name: &str| parts.iter().any(|part| part.target.name == name);
        let secrets = self.reader.namespaced::<Secret>(&self.namespace);
        if is_there(&self.names.key())
            && let Some(value) = secrets.get_opt(&self.names.key()).await?.as_ref().and_then(render::key_of)
        {
            return Ok(ObservedKey { value, is_kept: true });
        }
        for hash in known(workspace) {
            let first = self.names.inputs_chunk(&hash, 0);
            let Some(count) = parts.iter().find(|part| part.target.name == first).map(|part| part.chunks) else {
                continue;
            };
            let mut chunks = Vec::new();
            for number in 0..count {
                let secret = secrets.get_opt(&self.names.inputs_chunk(&hash, number)).await?;
                let chunk = secret.and_then(|secret| secret.data?.remove("chunk"));
                chunks.extend(chunk.map(|chunk| chunk.0));
            }
            let bundle = store::inputs::join(&chunks).ok().and_then(|bytes| Bundle::parse(&bytes).ok());
            // Inputs that were kept before keys were introduced have none.
            if let Some(value) = bundle.map(|bundle| bundle.salt).filter(|salt| !salt.is_empty()) {
                return Ok(ObservedKey { value, is_kept: false });
            }
        }
        ObservedKey::new()
    }
}

/// Whether the Secret with the outputs is as it was last written, and no other Secret has them.
fn are_in_place(workspace: &TerraformWorkspace, written: &OutputsWritten, parts: &[ObservedPart]) -> bool {
    let name = render::outputs_name(workspace);
    let mut outputs = parts.iter().filter(|part| part.part == "outputs");
    Some(written.generation) == workspace.metadata.generation
        && outputs.next().is_some_and(|part| part.target.name == name && part.version == written.secret)
        && outputs.next().is_none()
}
