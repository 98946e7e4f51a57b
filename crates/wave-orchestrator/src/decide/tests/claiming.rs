//! What a plan claims from the process: its subscription, and the endpoints to probe for it.

use super::*;
use crate::probes::ProbeResult;

const PROBED: &str = "
apiVersion: waves.opcore.dev/v1alpha1
kind: WavePlan
metadata: { name: p }
spec:
  waves:
  - name: one
    members: [{ ref: { apiVersion: v1, kind: Pod, namespace: n, name: p } }]
    probes: [{ tcp: { host: h, port: 1 } }]";

fn claimed(simulation: &mut Simulation) -> usize {
    simulation.settle().claims.endpoints.len()
}

#[test]
fn a_plan_without_the_subscription_that_it_needs_claims_it_and_reports_nothing_new() {
    let mut fleet = Simulation::fleet();
    let before = fleet.settle().status;
    fleet.ready("infrastructure-core");
    let reported_to_another = Some(Arc::new(crate::subscription::PlanSubscription::default()));
    for deleted in [false, true] {
        if deleted {
            fleet.plan.metadata.deletion_timestamp =
                Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        }
        for subscribed in [None, reported_to_another.clone()] {
            fleet.observed.subscribed = subscribed;
            let decision = decide(&fleet.plan, &fleet.observed, fleet.now);
            assert!(Arc::ptr_eq(decision.claims.subscription.as_ref().unwrap(), &fleet.observed.subscription));
            assert!(decision.writes.iter().count() == 0 && !decision.release, "{:?}", decision.writes);
            assert_eq!(decision.status, before);
        }
    }
}

#[test]
fn an_endpoint_is_asked_once_everything_else_is_ready_and_no_longer_than_its_wave_runs() {
    let mut simulation = Simulation::of(PROBED);
    simulation.settle();
    let observed =
        |lack: Option<&str>| vec![vec![ProbeResult { address: "h:1".to_owned(), failure: lack.map(str::to_owned) }]];
    simulation.observed.probes = observed(Some("not probed yet"));
    assert_eq!(claimed(&mut simulation), 0, "a member is not ready");
    assert_eq!(simulation.plan.status.as_ref().unwrap().waves[0].not_ready.len(), 1, "nor is it reported");
    // Mere progress is written at intervals.
    simulation.ready("one").pass(10);
    assert_eq!(claimed(&mut simulation), 1);
    assert_eq!(simulation.plan.status.as_ref().unwrap().waves[0].not_ready[0].message, "h:1: not probed yet.");
    simulation.unready("one");
    assert_eq!(claimed(&mut simulation), 0);
    simulation.ready("one").observed.probes = observed(None);
    assert_eq!((simulation.phase("one"), claimed(&mut simulation)), (WavePhase::Ready, 0));
}

#[test]
fn an_endpoint_is_asked_again_for_each_start_of_its_wave() {
    let mut simulation = Simulation::of(PROBED);
    simulation.settle();
    simulation.ready("one");
    simulation.observed.probes = vec![vec![ProbeResult { address: "h:1".to_owned(), failure: Some("no".to_owned()) }]];
    let first = simulation.settle().claims.endpoints;
    simulation.pass(3600).settle();
    assert_eq!(simulation.settle().claims.endpoints, first, "late, it is still asked");
    simulation.annotate(RETRY_ANNOTATION, "one@1");
    simulation.settle();
    let second = simulation.settle().claims.endpoints;
    assert!(second.len() == 1 && second != first, "{second:?}");
}
