//! `opctl tf state list`.

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use terraform_runner_operator::api::v1alpha1::TerraformWorkspace;
use terraform_runner_operator::store::places::Version;
use terraform_runner_operator::store::state;

use super::Which;
use super::workspaces::{View, Workspaces, message};
use crate::output::{self, Format, Output, table};
use crate::phrases::{ago, printable, size};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub which: Which,
    /// List the addresses of what the current version has instead, without any value
    #[arg(long)]
    resources: bool,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn list(workspaces: &Workspaces, flags: &Flags) -> anyhow::Result<ExitCode> {
    let workspace = workspaces.get(&flags.which.name).await?;
    let name = workspace.name_any();
    if let Some(custom) = &workspace.spec.backend.custom {
        bail!(
            "The state of TerraformWorkspace {name} is not in the cluster: ask its backend, which is {}.",
            custom.kind
        );
    }
    let store = workspaces.store(&workspace);
    let state = workspaces.kept(state::read_index(&store), "restore it").await?;
    let Some(newest) = state.index.current() else {
        bail!("TerraformWorkspace {name} has no state yet: {}", message(&workspace));
    };
    let json = flags.output.output == Format::Json;
    if !flags.resources {
        let versions = &state.index.versions;
        if json {
            output::print_json(&versions.iter().map(Entry::of).collect::<Vec<_>>())?;
        } else {
            output::print_lines(&rows(versions, &workspaces.view()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if newest.facts.resources.is_none() {
        bail!("The state of TerraformWorkspace {name} is encrypted: only its runs can read it.");
    }
    let remedy = format!("older versions are listed by opctl tf state list {name}");
    let bytes = workspaces.kept(state::load(&store, newest), &remedy).await?;
    let addresses = addresses(&workspace, &bytes)?;
    if json {
        output::print_json(&addresses)?;
    } else {
        output::print_lines(&addresses)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A version in the list, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    serial: i64,
    run: &'a str,
    time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<i64>,
    bytes: u64,
}

impl<'a> Entry<'a> {
    fn of(version: &'a Version) -> Self {
        Self {
            serial: version.facts.serial,
            run: &version.run,
            time: version.time,
            resources: version.facts.resources,
            bytes: version.sums.bytes,
        }
    }
}

pub(super) fn rows(versions: &[Version], view: &View) -> Vec<String> {
    let row = |(number, version): (usize, &Version)| {
        vec![
            version.facts.serial.to_string(),
            version.run.clone(),
            ago(version.time, view.now),
            version.facts.resources.map_or_else(|| "encrypted".to_owned(), |count| count.to_string()),
            size(i64::try_from(version.sums.bytes).unwrap_or(i64::MAX)),
            if number == 0 { view.paint.good("current") } else { String::new() },
        ]
    };
    let rows: Vec<Vec<String>> = versions.iter().enumerate().map(row).collect();
    table(&["SERIAL", "RUN", "SAVED", "RESOURCES", "SIZE", ""], &rows)
}

/// The addresses of everything that a state has.
fn addresses(workspace: &TerraformWorkspace, bytes: &[u8]) -> anyhow::Result<Vec<String>> {
    let all = state::addresses(bytes).map_err(|error| {
        let name = workspace.name_any();
        anyhow!(
            "The state of TerraformWorkspace {name} is not a valid state ({error}): restore it from an older version."
        )
    })?;
    Ok(all.iter().map(|address| printable(address)).collect())
}
