//! What a plan claims from the process: its subscription, and the endpoints to probe for it.

use super::*;
use crate::probes::ProbeSeen;

const PROBED: &str = "
apiVersion: waves.opcore.dev/v1alpha1
kind: WavePlan
metadata: { name: p }
spec:
  waves:
  - name: one
    members: [{ ref: { apiVersion: v1, kind: Pod, namespace: n, name: p } }]
    probes: [{ tcp: { host: h, port: 1 } }]";

fn claimed(play: &mut Play) -> usize {
    play.settle().claims.endpoints.len()
}

#[test]
fn a_plan_without_the_subscription_that_it_needs_claims_it_and_reports_nothing_new() {
    let mut fleet = Play::fleet();
    let before = fleet.settle().status;
    fleet.ready("infrastructure-core");
    let told_of_another = Some(Arc::new(crate::subscription::PlanSubscription::default()));
    for deleted in [false, true] {
        if deleted {
            fleet.plan.metadata.deletion_timestamp =
                Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        }
        for subscribed in [None, told_of_another.clone()] {
            fleet.seen.subscribed = subscribed;
            let decision = decide(&fleet.plan, &fleet.seen, fleet.now);
            assert!(Arc::ptr_eq(decision.claims.subscription.as_ref().unwrap(), &fleet.seen.subscription));
            assert!(decision.writes.iter().count() == 0 && !decision.release, "{:?}", decision.writes);
            assert_eq!(decision.status, before);
        }
    }
}

#[test]
fn an_endpoint_is_asked_once_everything_else_is_ready_and_no_longer_than_its_wave_runs() {
    let mut play = Play::of(PROBED);
    play.settle();
    let seen = |lack: Option<&str>| vec![vec![ProbeSeen { address: "h:1".to_owned(), lack: lack.map(str::to_owned) }]];
    play.seen.probes = seen(Some("not probed yet"));
    assert_eq!(claimed(&mut play), 0, "a member is not ready");
    assert_eq!(play.plan.status.as_ref().unwrap().waves[0].not_ready.len(), 1, "nor is it told");
    // Mere progress is written at intervals.
    play.ready("one").pass(10);
    assert_eq!(claimed(&mut play), 1);
    assert_eq!(play.plan.status.as_ref().unwrap().waves[0].not_ready[0].message, "h:1: not probed yet.");
    play.unready("one");
    assert_eq!(claimed(&mut play), 0);
    play.ready("one").seen.probes = seen(None);
    assert_eq!((play.phase("one"), claimed(&mut play)), (WavePhase::Ready, 0));
}

#[test]
fn an_endpoint_is_asked_again_for_each_start_of_its_wave() {
    let mut play = Play::of(PROBED);
    play.settle();
    play.ready("one");
    play.seen.probes = vec![vec![ProbeSeen { address: "h:1".to_owned(), lack: Some("no".to_owned()) }]];
    let first = play.settle().claims.endpoints;
    play.pass(3600).settle();
    assert_eq!(play.settle().claims.endpoints, first, "late, it is still asked");
    play.annotate(RETRY_ANNOTATION, "one@1");
    play.settle();
    let second = play.settle().claims.endpoints;
    assert!(second.len() == 1 && second != first, "{second:?}");
}
