//! `opctl tf approve`, `discard`, `replan`, `upgrade`, `suspend` and `resume`: requests by annotation, and what came of them.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use terraform_runner_operator::api::v1alpha1::{
    APPROVE_ANNOTATION, DISCARD_ANNOTATION, PlanStatus, REPLAN_ANNOTATION, SUSPEND_ANNOTATION, TerraformWorkspace,
    UPGRADE_ANNOTATION, WorkspacePhase,
};

use super::Which;
use super::plan::{PlanState, plan_state};
use super::workspaces::{Workspaces, current, message, reason, under_way};
use crate::objects::WaitFlags;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    patience: WaitFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Decide {
    #[command(flatten)]
    pub which: Which,
    /// The plan that was read: another one is refused [default: the one that waits]
    #[arg(long, value_name = "ID")]
    plan: Option<String>,
    #[command(flatten)]
    patience: WaitFlags,
}

pub(super) async fn approve(workspaces: &Workspaces, flags: &Decide) -> anyhow::Result<ExitCode> {
    let workspace = workspaces.get(&flags.which.name).await?;
    let plan = waiting(&workspace, flags.plan.as_deref())?.clone();
    let (id, name) = (plan.id.as_str(), workspace.name_any());
    // Someone else may have changed the workspace: what is approved is what was looked at first.
    let change = |workspace: &TerraformWorkspace| {
        waiting(workspace, Some(id))?;
        Ok(vec![(APPROVE_ANNOTATION, Some(id.to_owned()))])
    };
    let fulfilled = |workspace: &TerraformWorkspace| {
        let waits = status_plan(workspace).is_some_and(|plan| plan.id == id && plan.needs_approval);
        !(waits && phase(workspace) == Some(WorkspacePhase::AwaitingApproval))
            || under_way(workspace).is_some_and(|run| run.plan.as_deref() == Some(id))
    };
    let after = workspaces.objects.request(workspace, &flags.patience, change, fulfilled).await?;
    let done = format!("Plan {id} ({}) of TerraformWorkspace {name} is approved.", plan.summary);
    print_outcome(done, after.as_ref())
}

pub(super) async fn discard(workspaces: &Workspaces, flags: &Decide) -> anyhow::Result<ExitCode> {
    let workspace = workspaces.get(&flags.which.name).await?;
    let plan = waiting(&workspace, flags.plan.as_deref())?.clone();
    let (id, name) = (plan.id.as_str(), workspace.name_any());
    let change = |workspace: &TerraformWorkspace| {
        waiting(workspace, Some(id))?;
        let approved = workspace.annotations().get(APPROVE_ANNOTATION).is_some_and(|approved| approved == id);
        let withdrawn = approved.then_some((APPROVE_ANNOTATION, None));
        Ok([(DISCARD_ANNOTATION, Some(id.to_owned()))].into_iter().chain(withdrawn).collect())
    };
    let fulfilled =
        |workspace: &TerraformWorkspace| status_plan(workspace).is_none_or(|plan| plan.id != id || plan.discarded);
    let after = workspaces.objects.request(workspace, &flags.patience, change, fulfilled).await?;
    print_outcome(format!("Plan {id} ({}) of TerraformWorkspace {name} is discarded.", plan.summary), after.as_ref())
}

pub(super) async fn replan(workspaces: &Workspaces, flags: &Flags) -> anyhow::Result<ExitCode> {
    let workspace = workspaces.get(&flags.which.name).await?;
    if workspace.metadata.deletion_timestamp.is_some() {
        bail!("TerraformWorkspace {} is being deleted: no plan is made any more.", workspace.name_any());
    }
    let (request, name) = (Timestamp::now().to_string(), workspace.name_any());
    let change = |_: &TerraformWorkspace| Ok(vec![(REPLAN_ANNOTATION, Some(request.clone()))]);
    let fulfilled = |workspace: &TerraformWorkspace| {
        let handled = workspace.status.as_ref().and_then(|status| status.handled.replan.as_ref());
        handled == Some(&request) || is_held_up(workspace)
    };
    let after = workspaces.objects.request(workspace, &flags.patience, change, fulfilled).await?;
    print_outcome(format!("A new plan of TerraformWorkspace {name} is asked for."), after.as_ref())
}

pub(super) async fn upgrade(workspaces: &Workspaces, flags: &Flags) -> anyhow::Result<ExitCode> {
    let workspace = workspaces.get(&flags.which.name).await?;
    if workspace.metadata.deletion_timestamp.is_some() {
        bail!("TerraformWorkspace {} is being deleted: no plan is made any more.", workspace.name_any());
    }
    let (request, name) = (Timestamp::now().to_string(), workspace.name_any());
    let change = |_: &TerraformWorkspace| Ok(vec![(UPGRADE_ANNOTATION, Some(request.clone()))]);
    let fulfilled = |workspace: &TerraformWorkspace| {
        let handled = workspace.status.as_ref().and_then(|status| status.handled.upgrade.as_ref());
        handled == Some(&request) || is_held_up(workspace)
    };
    let after = workspaces.objects.request(workspace, &flags.patience, change, fulfilled).await?;
    print_outcome(format!("A plan of TerraformWorkspace {name} with newer providers is asked for."), after.as_ref())
}

pub(super) async fn suspend(workspaces: &Workspaces, flags: &Flags) -> anyhow::Result<ExitCode> {
    let workspace = workspaces.get(&flags.which.name).await?;
    let name = workspace.name_any();
    let mut done = format!("TerraformWorkspace {name} is suspended: no further run starts before it is resumed.");
    if workspace.spec.suspend {
        done.push_str(" Its spec suspends it, too: resuming it takes spec.suspend: false.");
    }
    let change = |_: &TerraformWorkspace| Ok(vec![(SUSPEND_ANNOTATION, Some("true".to_owned()))]);
    let fulfilled = |workspace: &TerraformWorkspace| {
        matches!(phase(workspace), Some(WorkspacePhase::Suspended | WorkspacePhase::Deleting))
            || under_way(workspace).is_some()
    };
    let after = workspaces.objects.request(workspace, &flags.patience, change, fulfilled).await?;
    if let Some(run) = after.as_ref().and_then(under_way) {
        done = format!("{done} Job {} ends as it would have.", run.job);
    }
    print_outcome(done, after.as_ref())
}

pub(super) async fn resume(workspaces: &Workspaces, flags: &Flags) -> anyhow::Result<ExitCode> {
    let workspace = workspaces.get(&flags.which.name).await?;
    let name = workspace.name_any();
    if workspace.spec.suspend {
        bail!("TerraformWorkspace {name} is suspended by its spec: set spec.suspend to false.");
    }
    if !workspace.annotations().contains_key(SUSPEND_ANNOTATION) {
        bail!("TerraformWorkspace {name} is not suspended: there is nothing to resume.");
    }
    let change = |_: &TerraformWorkspace| Ok(vec![(SUSPEND_ANNOTATION, None)]);
    let fulfilled = |workspace: &TerraformWorkspace| {
        phase(workspace).is_some_and(|phase| phase != WorkspacePhase::Suspended)
            && reason(workspace) != Some("Suspended")
    };
    let after = workspaces.objects.request(workspace, &flags.patience, change, fulfilled).await?;
    print_outcome(format!("TerraformWorkspace {name} is resumed."), after.as_ref())
}

/// Prints what was done, and the message of the operator after it.
fn print_outcome(done: String, after: Option<&TerraformWorkspace>) -> anyhow::Result<ExitCode> {
    if let Some(after) = after {
        output::print_lines(&[done, format!("TerraformWorkspace {}: {}", after.name_any(), message(after))])?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The plan that waits, if it is this one.
///
/// # Errors
///
/// None waits, or another one; the error says what happened to it.
pub(super) fn waiting<'a>(workspace: &'a TerraformWorkspace, wanted: Option<&str>) -> anyhow::Result<&'a PlanStatus> {
    let name = workspace.name_any();
    let Some(plan) = status_plan(workspace) else {
        bail!("TerraformWorkspace {name} has no plan that waits for approval: {}", message(workspace));
    };
    let (id, look) = (&plan.id, format!("look at it with opctl tf show {name}"));
    if let Some(wanted) = wanted.filter(|wanted| wanted != id) {
        bail!(
            "Plan {wanted} of TerraformWorkspace {name} is not the last one, which is {id}: read it with opctl tf plan show {name}."
        );
    }
    match plan_state(workspace, plan) {
        PlanState::Waits | PlanState::Approved => Ok(plan),
        PlanState::Discarded => {
            bail!(
                "Plan {id} of TerraformWorkspace {name} was discarded: ask for a new one with opctl tf replan {name}."
            )
        }
        PlanState::Applies { job } => {
            bail!("Plan {id} of TerraformWorkspace {name} is being applied by Job {job}: {look}.")
        }
        PlanState::Applied => {
            bail!("TerraformWorkspace {name} has no plan that waits: {id} was applied already; {look}.")
        }
        PlanState::Spent(outcome) => {
            bail!("TerraformWorkspace {name} has no plan that waits: the run of {id} ended as {outcome:?}; {look}.")
        }
        PlanState::Void(why) => bail!("Plan {id} of TerraformWorkspace {name} is void, {why}: wait for a new one."),
    }
}

fn status_plan(workspace: &TerraformWorkspace) -> Option<&PlanStatus> {
    workspace.status.as_ref()?.plan.as_ref()
}

/// The phase of a workspace, unless its status is about an older spec.
fn phase(workspace: &TerraformWorkspace) -> Option<WorkspacePhase> {
    current(workspace).map(|status| status.phase)
}

/// Whether the operator reports something that keeps a run from starting, which may last.
fn is_held_up(workspace: &TerraformWorkspace) -> bool {
    let discarded = reason(workspace) == Some("PlanDiscarded");
    under_way(workspace).is_some()
        || match phase(workspace) {
            Some(WorkspacePhase::Pending) => !discarded,
            Some(WorkspacePhase::Suspended | WorkspacePhase::Deleting) => true,
            _ => false,
        }
}
