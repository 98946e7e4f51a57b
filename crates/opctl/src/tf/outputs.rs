//! `opctl tf outputs`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;
use terraform_runner_operator::render::statuses;
use terraform_runner_operator::run::report::{OutputValue, OutputValues};
use terraform_runner_operator::store::report;

use super::Which;
use super::workspaces::{View, Workspaces, message};
use crate::cluster::listed;
use crate::output::{self, Format, Output, table};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub which: Which,
    /// The output whose value is printed as it is, sensitive or not
    key: Option<String>,
    /// Also show the values of sensitive outputs
    #[arg(long)]
    show_sensitive: bool,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn outputs(workspaces: &Workspaces, flags: &Flags) -> anyhow::Result<ExitCode> {
    let workspace = workspaces.get(&flags.which.name).await?;
    let (name, store) = (workspace.name_any(), workspaces.store(&workspace));
    let remedy = format!("have it written anew with opctl tf replan {name}");
    let Some(mut values) = workspaces.kept(report::outputs(&store), &remedy).await? else {
        bail!("TerraformWorkspace {name} has no outputs yet: {}", message(&workspace));
    };
    let asked_for = statuses(&workspace, &values);
    values.retain(|key, _| asked_for.iter().any(|output| output.name == *key));
    let json = flags.output.output == Format::Json;
    if let Some(key) = &flags.key {
        let Some(output) = values.get(key) else {
            let known: Vec<&String> = values.keys().collect();
            bail!("TerraformWorkspace {name} has no output {key}: it has {}.", listed(&known));
        };
        if json {
            output::print_json(&output.value)?;
        } else {
            output::print_lines(&[output.text()])?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if json {
        output::print_json(&shown(&values, flags.show_sensitive))?;
    } else if values.is_empty() {
        output::print_lines(&[format!("TerraformWorkspace {name} has no outputs.")])?;
    } else {
        output::print_lines(&rows(&values, flags.show_sensitive, &workspaces.view()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An output, as JSON.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
    sensitive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a Value>,
}

pub(super) fn shown(values: &OutputValues, show_sensitive: bool) -> BTreeMap<&str, Shown<'_>> {
    let shown = values.iter().map(|(name, OutputValue { value, sensitive })| {
        let value = Some(value).filter(|_| !sensitive || show_sensitive);
        (name.as_str(), Shown { sensitive: *sensitive, value })
    });
    shown.collect()
}

pub(super) fn rows(values: &OutputValues, show_sensitive: bool, view: &View) -> Vec<String> {
    let row = |(name, output): (&String, &OutputValue)| {
        let text =
            if output.sensitive && !show_sensitive { view.paint.faint("(sensitive)") } else { in_a_line(output) };
        vec![name.clone(), text]
    };
    let rows: Vec<Vec<String>> = values.iter().map(row).collect();
    table(&["NAME", "VALUE"], &rows)
}

/// A value in one line: a string as it is, unless it has several lines, anything else as JSON.
fn in_a_line(output: &OutputValue) -> String {
    let text = output.text();
    if text.chars().any(char::is_control) { output.value.to_string() } else { text }
}
