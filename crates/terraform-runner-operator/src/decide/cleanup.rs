//! What is maintained besides runs: the Secret with the outputs, and the removal of Jobs, inputs and plans that are no
//! longer needed.

use std::collections::BTreeSet;

use opcore::Write;
use opcore::writes::{Delete, Dependants, Target};

use crate::api::v1alpha1::{OutputsWritten, TerraformWorkspace, TerraformWorkspaceStatus};
use crate::observe::{JobEnd, Observed, ObservedJob};
use crate::render;

/// The most that a Secret can hold in Kubernetes.
const SECRET_BYTES: usize = 1 << 20;

/// The Secret with the outputs as last reported; other Secrets that had them are deleted.
///
/// # Errors
///
/// When they do not fit into a Secret, as a sentence.
pub(super) fn outputs(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    status: &mut TerraformWorkspaceStatus,
) -> Result<Vec<Write>, String> {
    // One of our own names is refused, because the Secret of that name holds other data.
    let may_write = status.last_applied.is_some() && workspace.spec.outputs.taken().is_none();
    let name = render::outputs_name(workspace);
    if let Some(fault) = observed.outputs_fault.as_ref().filter(|_| may_write) {
        return Err(format!(
            "The outputs of the last run cannot be used: {fault}. Secret {name} is not written. Make the outputs of the module smaller."
        ));
    }
    let Some(outputs) = observed.outputs.as_ref().filter(|_| may_write) else { return Ok(Vec::new()) };
    let secret = render::outputs_secret(workspace, outputs);
    let bytes: usize = secret.data.iter().flatten().map(|(_, value)| value.0.len()).sum();
    if bytes > SECRET_BYTES {
        return Err(format!(
            "The outputs have {bytes} bytes, but a Secret can hold only {SECRET_BYTES}. Secret {name} is not written. Select the required outputs with spec.outputs.include. The applied resources are not affected."
        ));
    }
    status.outputs = render::statuses(workspace, outputs);
    status.outputs_secret = Some(name.clone());
    let report = render::names(workspace).report();
    status.outputs_written = Some(OutputsWritten {
        generation: workspace.metadata.generation.unwrap_or_default(),
        report: observed
            .parts
            .iter()
            .find(|part| part.target.name == report)
            .map(|part| part.version.clone())
            .unwrap_or_default(),
        // The code that writes the Secret fills in its name.
        secret: String::new(),
    });
    let old = observed.parts.iter().filter(|part| part.part == "outputs" && part.target.name != name);
    let old = old.map(|part| delete(part.target.clone()));
    Ok(Write::apply(&secret).into_iter().chain(old).collect())
}

/// The deletes of Jobs whose result is recorded, and of inputs that no run and no destroy needs any more.
pub(super) fn leftovers(
    workspace: &TerraformWorkspace,
    observed: &Observed,
    status: &TerraformWorkspaceStatus,
) -> Vec<Write> {
    let mut writes = Vec::new();
    // A result must be published before its Job is deleted.
    let published = workspace.status.as_ref();
    if published.and_then(|published| published.run.as_ref()) != status.run.as_ref() {
        return writes;
    }
    let current = status.run.as_ref().map(|run| run.job.as_str());
    let mut over: Vec<&ObservedJob> = observed.jobs.iter().filter(|job| job.ended.is_some() && !job.deleting).collect();
    over.sort_by_key(|job| std::cmp::Reverse(job.made_at));
    let keep = usize::try_from(workspace.spec.history.failed_jobs).unwrap_or_default();
    let mut failed = 0;
    for job in over {
        let has_failed = matches!(job.ended, Some(JobEnd::Failed(_)));
        failed += usize::from(has_failed);
        let kept = Some(job.target.name.as_str()) == current || (has_failed && failed <= keep);
        if !kept {
            writes.push(delete(job.target.clone()));
        }
    }
    // A run is published before its Job is created. A Job that is not in the status was created by a process that did
    // not learn in time that its run was no longer wanted.
    let names = render::names(workspace);
    let remembered: BTreeSet<String> = status.history.iter().map(|record| names.job(record.number)).collect();
    let strays = observed.jobs.iter().filter(|job| job.ended.is_none() && !job.deleting);
    let strays = strays.filter(|job| {
        let name = &job.target.name;
        Some(name.as_str()) != current && !remembered.contains(name)
    });
    writes.extend(strays.map(|job| delete(job.target.clone())));
    let needed: BTreeSet<&str> = [
        status.run.as_ref().filter(|run| !run.is_over()).map(|run| run.inputs.as_str()),
        // If the run begins nothing, a destroy works from these again.
        status.run.as_ref().filter(|run| !run.is_over()).and_then(|run| run.previous_inputs.as_deref()),
        status.begun_inputs.as_deref(),
        status.last_applied.as_ref().map(|applied| applied.hash.as_str()),
        status.plan.as_ref().filter(|plan| plan.needs_approval).map(|plan| plan.inputs.as_str()),
    ]
    .into_iter()
    .flatten()
    .collect();
    let begins: Vec<String> = needed.iter().map(|hash| names.inputs_chunk(hash, 0)).collect();
    let is_needed = |name: &str| begins.iter().any(|first| name.starts_with(first.trim_end_matches('0')));
    let inputs = observed.parts.iter().filter(|part| part.part == "inputs" && !is_needed(&part.target.name));
    writes.extend(inputs.map(|part| delete(part.target.clone())));
    // A new version goes into its own place; the one that it replaces holds values unnecessarily.
    let counts = |place| observed.kept_places.as_ref().is_none_or(|kept| kept.contains(&place));
    let dropped =
        observed.parts.iter().filter(|part| names.place_of(&part.target.name).is_some_and(|place| !counts(place)));
    writes.extend(dropped.map(|part| {
        // If a process writes into it at this moment, it stays.
        let resource_version = Some(part.version.clone());
        Write::Delete(Delete { target: part.target.clone(), resource_version, dependants: Dependants::Background })
    }));
    // A plan contains the planned values in plain text.
    let is_needed = status.plan.as_ref().is_some_and(|plan| plan.needs_approval && !plan.discarded)
        || status.run.as_ref().is_some_and(|run| !run.is_over());
    let plans = observed.parts.iter().filter(|part| !is_needed && is_of_plan(&names.plan(), &part.target.name));
    writes.extend(plans.map(|part| delete(part.target.clone())));
    writes
}

fn is_of_plan(plan: &str, name: &str) -> bool {
    name.strip_prefix(plan).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

pub(super) fn delete(target: Target) -> Write {
    Write::Delete(Delete { target, resource_version: None, dependants: Dependants::Background })
}
