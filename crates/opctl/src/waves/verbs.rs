//! `opctl waves retry`, `skip`, `unskip`, `pause`, `resume` and `force`: requests by annotation, and what came of them.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use wave_orchestrator::api::v1alpha1::{
    FORCE_ANNOTATION, Handled, PAUSE_ANNOTATION, PlanPhase, RESUME_ANNOTATION, RETRY_ANNOTATION, SKIP_ANNOTATION,
    WavePhase, WavePlan, WaveStatus,
};

use super::plans::{Plans, phase};
use crate::cluster::listed;
use crate::objects::{Annotations, WaitFlags};
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// The plan
    name: String,
    #[command(flatten)]
    patience: WaitFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Skip {
    /// The plan
    name: String,
    /// The waves
    #[arg(required = true, value_name = "WAVE")]
    waves: Vec<String>,
    #[command(flatten)]
    patience: WaitFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Retry {
    /// The plan
    name: String,
    /// The waves, unless it is --all
    #[arg(value_name = "WAVE", required_unless_present = "all", conflicts_with = "all")]
    waves: Vec<String>,
    /// All waves that failed or timed out
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    patience: WaitFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Force {
    /// The plan
    name: String,
    /// The wave
    wave: String,
    #[command(flatten)]
    patience: WaitFlags,
}

pub(super) async fn retry(plans: &Plans, flags: &Retry) -> anyhow::Result<ExitCode> {
    let plan = plans.get(&flags.name).await?;
    let waves = if flags.all { in_trouble(&plan)? } else { known(&plan, &flags.waves)? };
    for wave in wave_statuses(&plan).filter(|wave| waves.contains(&wave.name)) {
        match wave.phase {
            WavePhase::Ready => bail!("Wave {} is ready: there is nothing to try again.", wave.name),
            WavePhase::Skipped => bail!("Wave {} is skipped: see opctl waves unskip.", wave.name),
            _ if wave.started_at.is_none() => {
                bail!("Wave {} has not started: there is nothing to try again.", wave.name)
            }
            _ => {}
        }
    }
    let request = format!("{}@{}", waves.join(","), Timestamp::now());
    let asked = [(RETRY_ANNOTATION, Some(request.clone()))];
    let fulfilled = |plan: &WavePlan| handled(plan, |handled| &handled.retry) == Some(&request);
    carry_out(plans, plan, &flags.patience, |_| asked.to_vec(), fulfilled, &waves).await
}

pub(super) async fn force(plans: &Plans, flags: &Force) -> anyhow::Result<ExitCode> {
    let plan = plans.get(&flags.name).await?;
    let (name, waves) = (plan.name_any(), known(&plan, std::slice::from_ref(&flags.wave))?);
    if plan.spec.suspend || is_paused(&plan) || phase(&plan) == Some(PlanPhase::Suspended) {
        bail!("WavePlan {name} is paused: no wave starts before it is resumed, see opctl waves resume.");
    }
    if plan.spec.waves.iter().any(|wave| wave.name == flags.wave && wave.suspend) {
        bail!("Wave {} is suspended by the spec: set its suspend to false.", flags.wave);
    }
    if let Some(wave) = wave_statuses(&plan).find(|wave| wave.name == flags.wave) {
        if wave.phase == WavePhase::Skipped {
            bail!("Wave {} is skipped: see opctl waves unskip.", wave.name);
        }
        if wave.started_at.is_some() {
            bail!("Wave {} has started already, and is {}: there is nothing to force.", wave.name, wave.phase);
        }
    }
    let request = format!("{}@{}", flags.wave, Timestamp::now());
    let asked = [(FORCE_ANNOTATION, Some(request.clone()))];
    let fulfilled = |plan: &WavePlan| handled(plan, |handled| &handled.force) == Some(&request);
    carry_out(plans, plan, &flags.patience, |_| asked.to_vec(), fulfilled, &waves).await
}

pub(super) async fn skip(plans: &Plans, flags: &Skip) -> anyhow::Result<ExitCode> {
    let plan = plans.get(&flags.name).await?;
    let waves = known(&plan, &flags.waves)?;
    let change = |plan: &WavePlan| {
        let mut skipped = skipped(plan);
        skipped.extend(waves.iter().cloned());
        vec![(SKIP_ANNOTATION, Some(joined(&skipped)))]
    };
    let fulfilled = |plan: &WavePlan| all_are(plan, &waves, |phase| phase == WavePhase::Skipped);
    carry_out(plans, plan, &flags.patience, change, fulfilled, &waves).await
}

pub(super) async fn unskip(plans: &Plans, flags: &Skip) -> anyhow::Result<ExitCode> {
    let plan = plans.get(&flags.name).await?;
    let waves = known(&plan, &flags.waves)?;
    let change = |plan: &WavePlan| {
        let mut skipped = skipped(plan);
        skipped.retain(|wave| !waves.contains(wave));
        vec![(SKIP_ANNOTATION, Some(joined(&skipped)).filter(|list| !list.is_empty()))]
    };
    let fulfilled = |plan: &WavePlan| all_are(plan, &waves, |phase| phase != WavePhase::Skipped);
    carry_out(plans, plan, &flags.patience, change, fulfilled, &waves).await
}

pub(super) async fn pause(plans: &Plans, flags: &Plan) -> anyhow::Result<ExitCode> {
    let plan = plans.get(&flags.name).await?;
    let asked = [(PAUSE_ANNOTATION, Some("true".to_owned()))];
    // A plan whose waves are through stays ready: the pause is for its next rollout.
    let fulfilled = |plan: &WavePlan| {
        is_paused(plan) && matches!(phase(plan), Some(PlanPhase::Suspended | PlanPhase::Ready | PlanPhase::Deleting))
    };
    carry_out(plans, plan, &flags.patience, |_| asked.to_vec(), fulfilled, &[]).await
}

pub(super) async fn resume(plans: &Plans, flags: &Plan) -> anyhow::Result<ExitCode> {
    let plan = plans.get(&flags.name).await?;
    if plan.spec.suspend {
        bail!("WavePlan {} is suspended by its spec: set spec.suspend to false.", plan.name_any());
    }
    let request = Timestamp::now().to_string();
    let asked = [(PAUSE_ANNOTATION, None), (RESUME_ANNOTATION, Some(request.clone()))];
    let fulfilled = |plan: &WavePlan| handled(plan, |handled| &handled.resume) == Some(&request);
    carry_out(plans, plan, &flags.patience, |_| asked.to_vec(), fulfilled, &[]).await
}

/// Writes the request, waits until the operator has carried it out, and prints the new state of the plan and of these waves.
async fn carry_out(
    plans: &Plans,
    plan: WavePlan,
    patience: &WaitFlags,
    change: impl Fn(&WavePlan) -> Annotations,
    fulfilled: impl Fn(&WavePlan) -> bool,
    waves: &[String],
) -> anyhow::Result<ExitCode> {
    let before = plan.clone();
    if let Some(after) = plans.request(plan, patience, |plan| Ok(change(plan)), fulfilled).await? {
        output::print_lines(&outcome(&before, &after, waves))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The new state of a plan and of these waves.
fn outcome(before: &WavePlan, after: &WavePlan, waves: &[String]) -> Vec<String> {
    let phase_of = |plan: &WavePlan, name: &str| {
        wave_statuses(plan).find(|wave| wave.name == name).map_or("unknown", |wave| wave.phase.as_str())
    };
    let said = waves.iter().map(|name| {
        let (was, is) = (phase_of(before, name), phase_of(after, name));
        if was == is { format!("Wave {name}: {is}") } else { format!("Wave {name}: {was} → {is}") }
    });
    let message = after.status.as_ref().and_then(|status| {
        let ready = opcore::conditions::find(&status.conditions, opcore::conditions::READY)?;
        Some(ready.message.clone())
    });
    let mut message = message.unwrap_or_default();
    if is_paused(after) && phase(after) == Some(PlanPhase::Ready) {
        message.push_str(" It is paused: no wave of its next rollout starts before it is resumed.");
    }
    said.chain([format!("WavePlan {}: {message}", after.name_any())]).collect()
}

fn wave_statuses(plan: &WavePlan) -> impl Iterator<Item = &WaveStatus> {
    plan.status.iter().flat_map(|status| &status.waves)
}

/// The request of a kind that was last carried out.
fn handled(plan: &WavePlan, which: impl Fn(&Handled) -> &Option<String>) -> Option<&String> {
    which(&plan.status.as_ref()?.handled).as_ref()
}

/// These waves, if the plan has them all.
fn known(plan: &WavePlan, waves: &[String]) -> anyhow::Result<Vec<String>> {
    let names: Vec<&str> = plan.spec.waves.iter().map(|wave| wave.name.as_str()).collect();
    match waves.iter().find(|wave| !names.contains(&wave.as_str())) {
        Some(unknown) => Err(anyhow!("WavePlan {} has no wave {unknown}: it has {}.", plan.name_any(), listed(&names))),
        None => Ok(waves.to_vec()),
    }
}

/// The waves that can be tried again. One that cannot be carried out as it is written has never started.
pub(super) fn in_trouble(plan: &WavePlan) -> anyhow::Result<Vec<String>> {
    let troubled: Vec<&WaveStatus> = wave_statuses(plan).filter(|wave| wave.phase.is_trouble()).collect();
    let started = troubled.iter().filter(|wave| wave.started_at.is_some());
    let waves: Vec<String> = started.map(|wave| wave.name.clone()).collect();
    match troubled.first() {
        Some(wave) if waves.is_empty() => {
            bail!("Wave {} has not started: there is nothing to try again. Correct the plan.", wave.name)
        }
        Some(_) => Ok(waves),
        None => {
            bail!("No wave of WavePlan {} failed or timed out: there is nothing to try again.", plan.name_any())
        }
    }
}

fn is_paused(plan: &WavePlan) -> bool {
    plan.annotations().get(PAUSE_ANNOTATION).is_some_and(|value| value == "true")
}

/// The waves that are to be passed over, as the annotation has them.
fn skipped(plan: &WavePlan) -> BTreeSet<String> {
    let list = plan.annotations().get(SKIP_ANNOTATION).map(String::as_str).unwrap_or_default();
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn joined(waves: &BTreeSet<String>) -> String {
    waves.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

fn all_are(plan: &WavePlan, waves: &[String], wanted: impl Fn(WavePhase) -> bool) -> bool {
    waves.iter().all(|name| wave_statuses(plan).any(|wave| &wave.name == name && wanted(wave.phase)))
}
