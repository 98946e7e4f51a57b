//! What a plan claims from this process: its subscription, and the endpoints to probe for it.

use std::sync::Arc;

use opcore::{Decision, DecisionOf};

use crate::api::v1alpha1::{Wave, WavePhase, WavePlan, WavePlanStatus};
use crate::controller::WavePlans;
use crate::index::WaveSnapshot;
use crate::observe::Observed;
use crate::probes::Endpoint;
use crate::subscription::PlanSubscription;

/// What a plan claims.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// The subscription that it needs, if it has another one now. Nothing more is decided before it is granted.
    pub subscription: Option<Arc<PlanSubscription>>,
    /// The endpoints to probe for it, and no others.
    pub endpoints: Vec<Endpoint>,
}

/// A plan without the subscription that it needs claims it, and nothing else.
pub(super) fn subscription(plan: &WavePlan, observed: &Observed) -> Option<DecisionOf<WavePlans>> {
    let is_subscribed =
        observed.subscribed.as_ref().is_some_and(|subscribed| Arc::ptr_eq(subscribed, &observed.subscription));
    let claims = || Claims { subscription: Some(observed.subscription.clone()), endpoints: Vec::new() };
    (!is_subscribed).then(|| Decision { claims: claims(), ..Decision::say(plan.status.clone().unwrap_or_default()) })
}

/// The endpoints of all waves that must be probed now.
pub(super) fn endpoints(plan: &WavePlan, old: &WavePlanStatus, observed: &Observed) -> Vec<Endpoint> {
    let waves = plan.spec.waves.iter().zip(&observed.snapshot.waves);
    waves
        .filter(|(wave, snapshot)| is_asked_for(old, wave, snapshot))
        .flat_map(|(wave, _)| Endpoint::of(plan, wave))
        .collect()
}

/// Endpoints are probed once everything else in a running wave is ready, and only while the wave runs.
pub(super) fn is_asked_for(old: &WavePlanStatus, wave: &Wave, snapshot: &WaveSnapshot) -> bool {
    let is_running = |phase| matches!(phase, WavePhase::Running | WavePhase::TimedOut);
    let rest_is_ready = snapshot.problem.is_none() && snapshot.ready == snapshot.total && snapshot.due.is_empty();
    !wave.probes.is_empty() && rest_is_ready && old.wave(&wave.name).is_some_and(|was| is_running(was.phase))
}
