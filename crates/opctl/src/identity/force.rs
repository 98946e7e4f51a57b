//! `opctl identity force`: gives up what is stuck in a teardown.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use kube::CustomResourceExt;
use kube::core::object::HasStatus;
use lifecycle_operator::api::v1alpha1::{OperandKind, SINGLETON};
use lifecycle_operator::config::PARENT;
use lifecycle_operator::decide::outline;
use opcore::finalizer::{FORCE_ANNOTATION, StepPhase, StepRecord, TakenDown, TeardownRecord};
use opcore::operator::Reconciled;

use super::stack::{CHART, Kinds, OperandName};
use crate::cluster::listed;
use crate::consent::Consent;
use crate::objects::{Answer, Objects, WaitFlags};
use crate::output;
use crate::phrases::printable;

/// An object with a teardown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// The parent: it no longer waits for an operand, which ends its own teardown alone
    #[value(alias = "ztwim", alias = "zerotrustworkloadidentitymanager")]
    Stack,
    /// The SPIRE server
    #[value(alias = "spireserver")]
    Server,
    /// The SPIRE agents
    #[value(alias = "spireagent")]
    Agent,
    /// The CSI driver
    #[value(alias = "spiffecsidriver")]
    Csi,
    /// The OIDC discovery provider
    #[value(alias = "spireoidcdiscoveryprovider")]
    Oidc,
}

#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The object that is being deleted, and stuck
    #[arg(value_enum, ignore_case = true)]
    operand: Target,
    /// The step to give up, which must be running [default: all steps that are not over]
    step: Option<String>,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    patience: WaitFlags,
}

/// The value of the annotation that gives up every step that is not over.
const ALL: &str = "all";

pub(super) async fn force(kinds: &Kinds, flags: &Flags) -> anyhow::Result<ExitCode> {
    match flags.operand {
        Target::Stack => give_up(&kinds.parents, None, flags).await,
        Target::Server => give_up(&kinds.servers, Some(OperandName::Server.kind()), flags).await,
        Target::Agent => give_up(&kinds.agents, Some(OperandName::Agent.kind()), flags).await,
        Target::Csi => give_up(&kinds.drivers, Some(OperandName::Csi.kind()), flags).await,
        Target::Oidc => give_up(&kinds.providers, Some(OperandName::Oidc.kind()), flags).await,
    }
}

async fn give_up<K>(objects: &Objects<K>, kind: Option<OperandKind>, flags: &Flags) -> anyhow::Result<ExitCode>
where
    K: Reconciled + HasStatus<Status: TakenDown> + CustomResourceExt,
{
    let object = objects.get(SINGLETON).await?;
    let step = flags.step.as_deref();
    let chosen = chosen(&object, kind, step)?;
    let title = title(kind);
    output::print_lines(&words(&title, kind, &chosen))?;
    let names: Vec<String> = chosen.iter().map(|step| step.name.clone()).collect();
    let what = format!("give up {} of the teardown of {title}", listed(&names));
    if !flags.consent.is_given(&what, "Give up? What is left behind stays until someone removes it.")? {
        bail!("Nothing was done: the teardown of {title} goes on as it was.");
    }
    let request = step.unwrap_or(ALL).to_owned();
    let change = |object: &K| {
        // Meanwhile it may be over.
        self::chosen(object, kind, step)?;
        Ok(vec![(FORCE_ANNOTATION, Some(request.clone()))])
    };
    let fulfilled = |object: &K| names.iter().all(|name| record(object).is_some_and(|record| is_over(record, name)));
    let after = match objects.request_until_gone(object, &flags.patience, change, fulfilled).await? {
        Answer::NotAwaited => return Ok(ExitCode::SUCCESS),
        Answer::Gone => {
            let events = "kubectl get events --all-namespaces --field-selector reason=TeardownLeaked";
            vec![format!("{title} is gone. What was left behind is in Events: {events}")]
        }
        Answer::Done(after) => outcome(&title, record(&*after), &names),
    };
    output::print_lines(&after)?;
    Ok(ExitCode::SUCCESS)
}

fn title(kind: Option<OperandKind>) -> String {
    format!("{} {SINGLETON}", kind.map_or(PARENT, OperandKind::as_str))
}

fn record<K: HasStatus<Status: TakenDown>>(object: &K) -> Option<&TeardownRecord> {
    object.status()?.teardown()
}

fn is_over(record: &TeardownRecord, name: &str) -> bool {
    record.step(name).is_some_and(|step| step.phase.is_over())
}

/// The steps to give up.
///
/// # Errors
///
/// There is nothing to give up; the error says why.
pub(super) fn chosen<K>(object: &K, kind: Option<OperandKind>, step: Option<&str>) -> anyhow::Result<Vec<StepRecord>>
where
    K: Reconciled + HasStatus<Status: TakenDown>,
{
    let title = title(kind);
    if object.meta().deletion_timestamp.is_none() {
        let what = kind.map_or_else(String::new, |kind| format!(" {}", OperandName::of(kind)));
        bail!(
            "{title} is not being deleted: there is nothing to give up; opctl identity teardown plan{what} shows what a \
             deletion would do."
        );
    }
    let Some(record) = record(object) else {
        bail!("The operator has not begun the teardown of {title}: is {CHART} running?");
    };
    let open: Vec<&StepRecord> = record.steps.iter().filter(|step| !step.phase.is_over()).collect();
    let Some(name) = step else {
        if open.is_empty() {
            bail!("Every step of the teardown of {title} is over: it is about to go.");
        }
        return Ok(open.into_iter().cloned().collect());
    };
    let Some(found) = record.step(name) else {
        let names: Vec<&str> = record.steps.iter().map(|step| step.name.as_str()).collect();
        bail!("The teardown of {title} has no step {name}: it has {}.", listed(&names));
    };
    match found.phase {
        StepPhase::Running => Ok(vec![found.clone()]),
        StepPhase::Done => bail!("Step {name} of {title} is done: there is nothing to give up."),
        StepPhase::Leaked => bail!("Step {name} of {title} was given up already: {}.", said(found)),
        StepPhase::Waiting => {
            let running: Vec<&str> = record
                .steps
                .iter()
                .filter(|step| step.phase == StepPhase::Running)
                .map(|step| step.name.as_str())
                .collect();
            bail!("Step {name} of {title} has not begun, it is {}: give up {} first.", said(found), listed(&running))
        }
    }
}

fn said(step: &StepRecord) -> String {
    step.message.as_deref().map(printable).unwrap_or_default()
}

/// The steps that are given up, with what each may leave behind.
pub(super) fn words(title: &str, kind: Option<OperandKind>, steps: &[StepRecord]) -> Vec<String> {
    let mut lines = vec![format!("{title}: giving up means that this may be left behind:")];
    let of_operand = |kind: OperandKind, step: &StepRecord| {
        let known = outline::of(kind).steps.into_iter().find(|known| known.name == step.name);
        known.map_or_else(|| "something that this opctl does not know".to_owned(), |known| known.leaves.to_owned())
    };
    let of_stack = |step: &StepRecord| {
        let known = outline::of_stack().into_iter().find(|outline| outline.name == step.name);
        let operand = known.map_or_else(|| step.name.clone(), |outline| format!("{} {SINGLETON}", outline.kind));
        format!("{operand}, and all that belongs to it; its own teardown goes on")
    };
    let leaves = |step: &StepRecord| kind.map_or_else(|| of_stack(step), |kind| of_operand(kind, step));
    let line = |step: &StepRecord| {
        let now = if step.phase == StepPhase::Running { said(step) } else { "not begun".to_owned() };
        let now = if now.is_empty() { now } else { format!(" ({now})") };
        format!("  {}{now}: {}", step.name, leaves(step))
    };
    lines.extend(steps.iter().map(line));
    lines
}

/// The result of each step.
pub(super) fn outcome(title: &str, record: Option<&TeardownRecord>, names: &[String]) -> Vec<String> {
    let step = |name: &String| {
        let step = record?.step(name)?;
        let words = match step.phase {
            StepPhase::Leaked => said(step),
            _ => "done after all".to_owned(),
        };
        Some(format!("Step {name} of {title}: {words}"))
    };
    names.iter().filter_map(step).collect()
}
