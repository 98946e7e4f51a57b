//! Grants what plans claim: opens their subscriptions and probes their endpoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use opcore::Admission;
use opcore::queue::Key;

use crate::api::v1alpha1::{Rollout, WavePlan};
use crate::controller::WavePlans;
use crate::decide::Claims;
use crate::index::PlanName;
use crate::observe::Observed;
use crate::subscription::PlanSubscription;

impl WavePlans {
    /// Once a plan is subscribed to its objects, looks up what is known of them, so that the decision is repeated.
    pub(crate) fn grant(&self, plan: &WavePlan, claims: Claims, observed: &mut Observed, now: Timestamp) -> Admission {
        if let Some(subscription) = claims.subscription {
            self.subscribe(plan, &subscription, now);
            self.read_index(plan, observed, now);
            return Admission::DecideAnew;
        }
        if let Some(wakes) = self.wakes.get() {
            self.poll.want(&Key::of(plan), claims.endpoints, wakes);
        }
        Admission::Granted
    }

    fn subscribe(&self, plan: &WavePlan, subscription: &Arc<PlanSubscription>, now: Timestamp) {
        let name: PlanName = plan.name_any().into();
        let again = self.live.index().subscribe(&name, subscription.clone(), &may_have_written(plan), now);
        self.live.reopen(&again);
        self.live.watch(&name, &subscription.scopes, subscription.resync);
    }
}

/// The waves that may have written something that this process does not remember, as after a restart. A wave may write
/// before its start is published, so this covers all waves of an unfinished rollout, except those that are through and
/// those in trouble, which write nothing until it is published that they run again.
fn may_have_written(plan: &WavePlan) -> BTreeSet<String> {
    let is_unfinished = |rollout: &Rollout| rollout.finished_at.is_none();
    let status = plan.status.iter().filter(|status| status.rollout.as_ref().is_some_and(is_unfinished));
    let waves =
        status.flat_map(|status| &status.waves).filter(|wave| !wave.phase.is_through() && !wave.phase.is_trouble());
    waves.map(|wave| wave.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(finished_at: Option<&str>, phases: &[(&str, &str)]) -> WavePlan {
        let waves = phases.iter().map(|(name, phase)| json!({ "name": name, "phase": phase, "ready": 0, "total": 1 }));
        let rollout =
            json!({ "number": 1, "revision": "r", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": finished_at });
        let status = json!({ "rollout": rollout, "waves": waves.collect::<Vec<_>>() });
        serde_json::from_value(json!({
            "apiVersion": "waves.opcore.dev/v1alpha1", "kind": "WavePlan",
            "metadata": { "name": "p" }, "spec": { "waves": [] }, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_wave_of_an_unfinished_rollout_may_have_written_before_it_was_published_that_it_runs() {
        let phases =
            [("a", "Ready"), ("b", "Running"), ("c", "Waiting"), ("d", "TimedOut"), ("e", "Skipped"), ("f", "Blocked")];
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(may_have_written(&plan(None, &phases)), names(&["b", "c", "f"]));
        assert_eq!(may_have_written(&plan(Some("2026-01-01T00:01:00Z"), &phases)), names(&[]));
    }
}
