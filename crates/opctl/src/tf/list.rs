//! `opctl tf list`.

use std::io::stdout;
use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use opcore::conditions;
use serde::Serialize;
use terraform_runner_operator::api::v1alpha1::{TerraformWorkspace, WorkspacePhase};

use super::Namespace;
use super::workspaces::{CHART, Workspaces, phase_words, resources};
use crate::cluster::Cluster;
use crate::objects::Objects;
use crate::output::{self, Format, Output, Paint};
use crate::phrases::{ago, since};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    namespace: Namespace,
    /// Those of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn list(cluster: Cluster, flags: &Flags) -> anyhow::Result<ExitCode> {
    let objects = if flags.all_namespaces {
        Objects::everywhere(cluster, CHART)
    } else {
        Workspaces::within(cluster, &flags.namespace).objects
    };
    let all = objects.all().await?;
    match flags.output.output {
        Format::Json => output::print_json(&all.iter().map(Entry::of).collect::<Vec<_>>())?,
        Format::Text if all.is_empty() => {
            output::print_lines(&[format!("There is no TerraformWorkspace{}.", objects.place())])?;
        }
        Format::Text => {
            let rows = rows(&all, flags.all_namespaces, Timestamp::now(), Paint::detect(&stdout()));
            output::print_lines(&rows)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A workspace in the list, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<WorkspacePhase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drift: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    applied_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
}

impl Entry {
    fn of(workspace: &TerraformWorkspace) -> Self {
        let status = workspace.status.as_ref();
        let condition = status.and_then(|status| conditions::find(&status.conditions, conditions::READY));
        Self {
            namespace: workspace.namespace(),
            name: workspace.name_any(),
            ready: condition.is_some_and(|condition| condition.status == "True"),
            phase: status.map(|status| status.phase),
            message: condition.map(|condition| condition.message.clone()),
            plan: status.and_then(|status| Some(status.plan.as_ref()?.summary.clone())),
            drift: status.and_then(|status| Some(status.drift.as_ref()?.summary.clone())),
            resources: status.and_then(|status| Some(status.state.as_ref()?.resources)),
            applied_at: status.and_then(|status| Some(status.last_applied.as_ref()?.time)),
            created_at: workspace.creation_timestamp().map(|time| time.0),
        }
    }
}

pub(super) fn rows(all: &[TerraformWorkspace], with_namespace: bool, now: Timestamp, paint: Paint) -> Vec<String> {
    let none = || "-".to_owned();
    let row = |workspace: &TerraformWorkspace| {
        let entry = Entry::of(workspace);
        let drift = entry.drift.map_or_else(none, |drift| if drift == "None" { drift } else { paint.odd(drift) });
        let mut row = vec![
            entry.name,
            if entry.ready { "True" } else { "False" }.to_owned(),
            entry.phase.map_or_else(none, |phase| phase_words(phase, paint)),
            entry.plan.unwrap_or_else(none),
            drift,
            entry.resources.map_or_else(none, resources),
            entry.applied_at.map_or_else(none, |at| ago(at, now)),
            entry.created_at.map_or_else(none, |at| since(at, now)),
        ];
        if with_namespace {
            row.insert(0, entry.namespace.unwrap_or_default());
        }
        row
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let mut header = vec!["NAME", "READY", "STATUS", "PLAN", "DRIFT", "STATE", "APPLIED", "AGE"];
    if with_namespace {
        header.insert(0, "NAMESPACE");
    }
    output::table(&header, &rows)
}
