//! Decisions, based only on the plan, what was read, and the time.
//!
//! Nothing is written before the rollout is published: what must survive a crash is recorded first.

mod claims;
mod critical_path;
mod gates;
mod graph;
mod publish;
mod requests;
mod teardown;
mod waves;
mod writes;

pub use claims::Claims;
pub use critical_path::critical_path;
pub use graph::{Graph, graph};
pub use teardown::tear_down;

use jiff::Timestamp;
use kube::ResourceExt;
use opcore::duration::Span;
use opcore::{Decision, DecisionOf, Next};

use crate::api::v1alpha1::{Rollout, RolloutRecord, WavePlan, WavePlanStatus};
use crate::controller::WavePlans;
use crate::observe::Observed;
use requests::Requests;
use waves::RolloutContext;

/// How many past rollouts are remembered.
const REMEMBERED: usize = 10;

/// Decides how a plan proceeds.
pub fn roll_out(plan: &WavePlan, observed: &Observed, now: Timestamp) -> DecisionOf<WavePlans> {
    if let Some(decision) = claims::subscription(plan, observed) {
        return decision;
    }
    let nothing = WavePlanStatus::default();
    let old = plan.status.as_ref().unwrap_or(&nothing);
    let graph = graph(&plan.spec.waves);
    let (requests, mut handled) = Requests::of(plan);
    let same_rollout = old.is_about(&observed.revision);
    let mut rollout = match &old.rollout {
        Some(rollout) if same_rollout => rollout.clone(),
        before => Rollout {
            number: before.as_ref().map_or(1, |before| before.number.saturating_add(1)),
            revision: observed.revision.clone(),
            started_at: now,
            finished_at: None,
        },
    };
    let failed = waves::paused_by(plan).filter(|_| same_rollout && !requests.resume);
    let rollout_context = RolloutContext {
        spec: &plan.spec,
        old,
        graph: &graph,
        observed,
        requests: &requests,
        same_rollout,
        paused: plan.spec.suspend || requests.paused,
        held: failed.is_some(),
        now,
    };
    if rollout_context.paused || rollout_context.held {
        // The request is carried out when the plan is resumed.
        handled.force.clone_from(&old.handled.force);
    }
    let waves = rollout_context.waves();
    let (writes, prune_held) = writes::writes(plan, observed, &rollout_context, &waves);

    let through = waves.iter().all(|wave| wave.phase.is_through());
    let mut history = old.history.clone();
    if through && rollout.finished_at.is_none() {
        rollout.finished_at = Some(now);
        remember(&mut history, &rollout, now, "Ready");
    }
    if let Some(before) = old.rollout.as_ref().filter(|before| !same_rollout && before.finished_at.is_none()) {
        remember(&mut history, before, now, "Superseded");
    }
    let mut status = WavePlanStatus {
        critical_path: Some(critical_path(&plan.spec, &graph, &waves, Some(rollout.started_at), now)),
        inventory: writes::inventory(old, observed),
        held: gates::record(old, observed, &waves),
        rollout: Some(rollout),
        prune_held,
        handled,
        history,
        conditions: old.conditions.clone(),
        progressed_at: old.progressed_at,
        ..WavePlanStatus::default()
    };
    let next = times(&waves, observed).min();
    status.waves = graph.order.iter().map(|number| waves[*number].clone()).collect();
    publish::describe(plan, observed, &graph, &requests, failed.as_deref(), &mut status, now);
    let notes = publish::notes(old, &status, &requests, same_rollout);
    let (status, settled) = publish::settle(old, status, now);
    let next = next.into_iter().chain(settled).min().map_or(Next::OnEvent, Next::At);
    let claims = Claims { subscription: None, endpoints: claims::endpoints(plan, old, observed) };
    Decision { writes, status, notes, next, claims, release: false }
}

/// The times at which something changes without any event.
fn times<'a>(
    waves: &'a [crate::api::v1alpha1::WaveStatus],
    observed: &'a Observed,
) -> impl Iterator<Item = Timestamp> + 'a {
    use crate::api::v1alpha1::WavePhase::Running;
    let deadlines = waves.iter().filter(|wave| wave.phase == Running).filter_map(|wave| wave.deadline);
    let retries = waves.iter().filter_map(|wave| wave.retry_at);
    let rechecks = observed.snapshot.waves.iter().filter_map(|wave| wave.recheck_at);
    deadlines.chain(retries).chain(rechecks).chain(observed.resync_at)
}

fn remember(history: &mut Vec<RolloutRecord>, rollout: &Rollout, now: Timestamp, outcome: &str) {
    let record = RolloutRecord {
        number: rollout.number,
        revision: rollout.revision.clone(),
        started_at: rollout.started_at,
        duration: Span::between(rollout.started_at, now).rounded(),
        outcome: outcome.to_owned(),
    };
    opcore::history::remember(history, record, REMEMBERED);
}

/// The plan as text.
fn words(plan: &WavePlan) -> String {
    format!("WavePlan {}", plan.name_any())
}

#[cfg(test)]
mod tests;
