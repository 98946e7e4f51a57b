//! What a plan claims of this process: what it is told of, and which endpoints are asked for it.

use std::sync::Arc;

use opcore::{Decision, DecisionOf};

use crate::api::v1alpha1::{Wave, WavePhase, WavePlan, WavePlanStatus};
use crate::controller::WavePlans;
use crate::index::WaveLook;
use crate::observe::Observed;
use crate::probes::Endpoint;
use crate::subscription::PlanSubscription;

/// What a plan claims.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// What it is to be told of from now on, where it is told of something else until now. Nothing more is decided before.
    pub subscription: Option<Arc<PlanSubscription>>,
    /// The endpoints that are asked for it, and no others.
    pub endpoints: Vec<Endpoint>,
}

/// A plan that is not told of what it has to hear of claims that, and nothing else.
pub(super) fn subscription(plan: &WavePlan, seen: &Observed) -> Option<DecisionOf<WavePlans>> {
    let is_subscribed = seen.subscribed.as_ref().is_some_and(|subscribed| Arc::ptr_eq(subscribed, &seen.subscription));
    let claims = || Claims { subscription: Some(seen.subscription.clone()), endpoints: Vec::new() };
    (!is_subscribed).then(|| Decision { claims: claims(), ..Decision::say(plan.status.clone().unwrap_or_default()) })
}

/// The endpoints of all waves that are to be asked now.
pub(super) fn endpoints(plan: &WavePlan, old: &WavePlanStatus, seen: &Observed) -> Vec<Endpoint> {
    let waves = plan.spec.waves.iter().zip(&seen.look.waves);
    waves.filter(|(wave, look)| is_asked_for(old, wave, look)).flat_map(|(wave, _)| Endpoint::of(plan, wave)).collect()
}

/// Endpoints are asked once everything else in a running wave is ready, and no longer than it runs.
pub(super) fn is_asked_for(old: &WavePlanStatus, wave: &Wave, look: &WaveLook) -> bool {
    let is_running = |phase| matches!(phase, WavePhase::Running | WavePhase::TimedOut);
    let rest_is_ready = look.problem.is_none() && look.ready == look.total && look.due.is_empty();
    !wave.probes.is_empty() && rest_is_ready && old.wave(&wave.name).is_some_and(|was| is_running(was.phase))
}
