//! The controller: what wakes a plan, and how the steps from observing to concluding fit together.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use kube::ResourceExt;
use opcore::act::{Done, Outcome, Refusal};
use opcore::controller::{Wakes, Watches};
use opcore::poll::Poll;
use opcore::queue::Key;
use opcore::{Admission, Context, DecisionOf, Error, Operator};

use crate::api::v1alpha1::{FINALIZER, WavePlan, WavePlanStatus};
use crate::decide::{self, Claims};
use crate::index::PlanName;
use crate::live::Live;
use crate::metrics::PlanMetrics;
use crate::observe::{Memory, Observed};
use crate::probes::Endpoint;
use crate::subscription::GroupKind;

/// How many endpoints are probed at a time.
const ASKED_AT_ONCE: usize = 64;

/// The operator of [`WavePlan`]s.
pub struct WavePlans {
    pub(crate) live: Arc<Live>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) poll: Poll<Endpoint>,
    pub(crate) wakes: OnceLock<Wakes>,
    metrics: Option<PlanMetrics>,
}

impl WavePlans {
    /// An operator with an empty index.
    pub fn new(context: &Context) -> Self {
        Self::over(Live::new(context), context)
    }

    /// An operator that uses the index in `live`.
    pub fn over(live: Arc<Live>, context: &Context) -> Self {
        // Without metrics, plans are still rolled out.
        let metrics = PlanMetrics::new(context.metrics());
        let metrics = metrics.inspect_err(|error| tracing::error!(%error, "plans are not measured")).ok();
        Self { live, memory: Arc::default(), poll: Poll::new(ASKED_AT_ONCE), wakes: OnceLock::new(), metrics }
    }
}

impl Operator for WavePlans {
    type Object = WavePlan;
    type Observed = Observed;
    type Claims = Claims;

    const FINALIZER: &'static str = FINALIZER;

    fn watches(&self, watches: &mut Watches<WavePlan>) {
        let wakes = watches.wakes();
        let _ = self.wakes.set(wakes.clone());
        self.live.start(wakes);
    }

    async fn observe(&self, plan: &WavePlan, context: &Context) -> Result<Observed, Error> {
        self.observe_plan(plan, context).await
    }

    async fn admit(
        &self,
        plan: &WavePlan,
        claims: Claims,
        observed: &mut Observed,
        _: &Context,
        now: Timestamp,
    ) -> Result<Admission, Error> {
        Ok(self.grant(plan, claims, observed, now))
    }

    fn decide(&self, plan: &WavePlan, observed: &Observed, now: Timestamp) -> DecisionOf<Self> {
        decide::roll_out(plan, observed, now)
    }

    fn tear_down(&self, plan: &WavePlan, observed: &Observed, now: Timestamp) -> DecisionOf<Self> {
        decide::tear_down(plan, observed, now)
    }

    /// The API server's responses contain what the watch will report later. Refusals are reported by no watch.
    fn after_writes(&self, plan: &WavePlan, _: &mut WavePlanStatus, done: &Done<'_>, now: Timestamp) {
        let (name, uid): (PlanName, String) = (plan.name_any().into(), plan.uid().unwrap_or_default());
        let mut index = self.live.index();
        let mut wake = Vec::new();
        for attempt in &done.attempts {
            match &attempt.outcome {
                Outcome::Applied { object, changed } => {
                    if object.name_any().ends_with(&uid) {
                        // The Secrets that keep manifests for a rollback are named after the plan.
                        self.memory.forget_kept(&name);
                    }
                    let Ok(value) = serde_json::to_value(object) else { continue };
                    if let Some(types) = &object.types {
                        let kind = GroupKind::written(&types.api_version, &types.kind);
                        wake.extend(index.applied(&kind, &value, *changed, now));
                    }
                }
                Outcome::Refused(refusal) => index.refused(&name, refusal),
                _ => {}
            }
        }
        drop(index);
        self.live.wake(&wake);
    }

    fn published(&self, plan: &WavePlan, status: &WavePlanStatus, _: Timestamp) {
        if let Some(metrics) = &self.metrics {
            metrics.show(plan, status);
        }
    }

    fn remedy(&self, plan: &WavePlan, refusal: &Refusal) -> Option<String> {
        self.live.index().remedy(&plan.name_any().into(), refusal)
    }

    fn forget(&self, plan: &Key) {
        let name: PlanName = plan.name.as_str().into();
        self.live.forget(&name);
        self.memory.forget(&name);
        self.poll.forget(plan);
        if let Some(metrics) = &self.metrics {
            metrics.forget(&name);
        }
    }
}
