//! `opctl tf unlock`.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use kube::ResourceExt;
use serde_json::Value;
use terraform_runner_operator::api::v1alpha1::{LockStatus, TerraformWorkspace, UNLOCK_ANNOTATION};
use terraform_runner_operator::store::lock::{self, Holder};

use super::Which;
use super::workspaces::{View, Workspaces, message};
use crate::consent::Consent;
use crate::objects::WaitFlags;
use crate::output;
use crate::phrases::{printable, since};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    consent: Consent,
    /// Also release it while the pod that holds it runs: what the pod has not saved is lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    patience: WaitFlags,
}

pub(super) async fn unlock(workspaces: &Workspaces, flags: &Flags) -> anyhow::Result<ExitCode> {
    let workspace = workspaces.get(&flags.which.name).await?;
    let name = workspace.name_any();
    let store = workspaces.store(&workspace);
    let Some(holder) = workspaces.kept(lock::read(&store), "restore it").await? else {
        bail!("Nobody holds the lock of the state of TerraformWorkspace {name}: there is nothing to unlock.");
    };
    let pod = workspaces.running_pod(&holder.pod).await?;
    let words = words(&holder, pod.as_ref().map(ResourceExt::name_any).as_deref(), &workspaces.view());
    if let Some(pod) = pod.filter(|_| !flags.force) {
        let remedy = "wait for it, or release the lock all the same with --force";
        bail!("{words}. Pod {} still runs: {remedy}.", pod.name_any());
    }
    output::print_lines(&[format!("{words}.")])?;
    let what = format!("release the lock of TerraformWorkspace {name}");
    if !flags.consent.is_given(&what, "Release it? Two processes that work on one state can corrupt it.")? {
        bail!("Nothing was done: the lock of the state of TerraformWorkspace {name} stays.");
    }
    let blocks = workspace.status.as_ref().is_some_and(|status| status.lock.is_some());
    // This very lock: the same holder's next one is to stay.
    let request = LockStatus { holder: holder.pod.clone(), since: holder.since }.words();
    let change = |_: &TerraformWorkspace| Ok(vec![(UNLOCK_ANNOTATION, Some(request.clone()))]);
    let fulfilled = |workspace: &TerraformWorkspace| {
        let Some(status) = &workspace.status else { return false };
        // A lock that keeps no run from starting is taken away when one is to start.
        !blocks || (status.handled.unlock.as_ref() == Some(&request) && status.lock.is_none())
    };
    if let Some(after) = workspaces.objects.request(workspace, &flags.patience, change, fulfilled).await? {
        let done = if blocks { "The lock is released." } else { "The lock is released when the next run starts." };
        output::print_lines(&[done.to_owned(), format!("TerraformWorkspace {name}: {}", message(&after))])?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Who holds the lock, since when, and what for.
pub(super) fn words(holder: &Holder, pod: Option<&str>, view: &View) -> String {
    let who = pod.map_or_else(|| printable(&holder.pod), |name| format!("{name} ({})", holder.pod));
    let long = holder.since.map(|at| format!(" for {}", since(at, view.now))).unwrap_or_default();
    let what = match &holder.info["Operation"] {
        Value::String(what) if !what.is_empty() => format!(", for {}", printable(what)),
        _ => String::new(),
    };
    format!("{who} has held the lock of the state{long}{what}")
}
