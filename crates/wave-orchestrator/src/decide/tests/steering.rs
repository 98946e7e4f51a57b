//! Members that others own: when they are asked to reconcile, suspended, and released.

use super::*;
use crate::api::v1alpha1::FINALIZER;

#[test]
fn what_is_held_is_written_down_before_it_is_suspended_and_until_it_is_given_back() {
    let mut fleet = Play::fleet();
    fleet.settle();
    fleet.look("services").gates.push(GateSeen { member: 1, target: target("services"), held: false });
    let held =
        |status: &WavePlanStatus| -> Vec<String> { status.held.iter().map(|held| held.id().to_string()).collect() };
    let first = decide(&fleet.plan, &fleet.seen, fleet.now);
    assert!(first.writes.is_empty(), "{:?}", first.writes);
    assert_eq!(held(&first.status), ["ConfigMap flux-system/services"]);
    let suspends = |write: &Write| matches!(write, Write::Claim { fields, .. } if *fields == json!({ "spec": { "suspend": true } }));
    assert!(fleet.settle().writes.iter().all(suspends));
    fleet.look("services").gates[0].held = true;
    assert!(fleet.settle().writes.is_empty());
    // The gate is no longer in the spec, and not read again yet.
    fleet.look("services").gates.clear();
    fleet.seen.look.complete = false;
    assert_eq!(held(&fleet.settle().status), ["ConfigMap flux-system/services"]);
    fleet.seen.look.complete = true;
    fleet.seen.look.held.push(GateSeen { member: 1, target: target("services"), held: true });
    let decision = fleet.settle();
    let writes: Vec<_> = decision.writes.iter().collect();
    assert!(matches!(writes.as_slice(), [Write::Claim { fields, .. }] if *fields == json!({})), "{writes:?}");
    assert_eq!(held(&decision.status), ["ConfigMap flux-system/services"]);
    fleet.seen.look.held[0].held = false;
    let decision = fleet.settle();
    assert!(decision.writes.is_empty() && decision.status.held.is_empty(), "{decision:?}");
}

#[test]
fn a_gate_whose_wave_cannot_be_carried_out_stays_closed() {
    let mut play = Play::of(
        "{apiVersion: waves.opcore.dev/v1alpha1, kind: WavePlan, metadata: {name: p}, spec: {waves: [{name: a, members: [
            {mode: Gate, ref: {apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, namespace: flux-system, name: k}}]}]}}",
    );
    let gvk = kube::core::GroupVersionKind::gvk("kustomize.toolkit.fluxcd.io", "v1", "Kustomization");
    let gate = opcore::writes::Target { resource: kube::api::ApiResource::from_gvk(&gvk), ..target("k") };
    play.seen.look.waves[0] = WaveLook { problem: Some("it is broken".to_owned()), ..WaveLook::default() };
    play.seen.look.held.push(GateSeen { member: 1, target: gate, held: true });
    let decision = play.settle();
    assert!(decision.writes.is_empty(), "{:?}", decision.writes);
    assert_eq!(decision.status.held.len(), 1);
    play.plan.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(play.now));
    assert_eq!(play.settle().writes.iter().count(), 1, "with its plan it is given back");
}

#[test]
fn a_plan_that_is_deleted_lets_its_gates_go_and_is_then_released() {
    let mut fleet = Play::fleet();
    fleet.settle();
    fleet.plan.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(fleet.now));
    fleet.seen.look.held.push(GateSeen { member: 1, target: target("services"), held: true });
    let decision = fleet.settle();
    let writes: Vec<_> = decision.writes.iter().collect();
    assert!(matches!(writes.as_slice(), [Write::Claim { fields, .. }] if *fields == json!({})), "{writes:?}");
    fleet.seen.look.held[0].held = false;
    let decision = fleet.settle();
    assert_eq!(
        decision.writes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [format!("remove finalizer {FINALIZER}")]
    );
}

/// Flux handles the last request of any of these plans. Returns how often it was requested.
fn flux(plays: &mut [Play], annotation: &mut Option<String>) -> usize {
    let mut asked = 0;
    for number in 0..plays.len() {
        // The other plans see the request at once, and Flux is slow.
        for play in &mut *plays {
            let look = play.look("infrastructure-core");
            look.nudges[0].requested.clone_from(annotation);
            (look.unanswered, look.ready) = (1, 0);
            play.pass(1);
        }
        let decision = plays[number].settle();
        for write in decision.writes.iter() {
            let Write::Annotate { annotations, .. } = write else { continue };
            annotation.clone_from(&annotations[crate::index::FLUX_REQUEST]);
            asked += 1;
        }
    }
    for play in plays {
        play.look("infrastructure-core").nudges[0].requested.clone_from(annotation);
        play.look("infrastructure-core").unanswered = 0;
        play.ready("infrastructure-core").settle();
    }
    asked
}

#[test]
fn two_plans_over_one_flux_member_come_to_rest() {
    let mut plays = [Play::fleet(), Play::fleet()];
    for play in &mut plays {
        play.look("infrastructure-core").nudges.push(nudge("k"));
    }
    let mut annotation = None;
    let asked: Vec<usize> = (0..4).map(|_| flux(&mut plays, &mut annotation)).collect();
    assert_eq!(asked, [2, 0, 0, 0], "each asks once at most");
    assert_eq!(plays.map(|mut play| play.phase("infrastructure-core")), [WavePhase::Ready; 2]);
}

#[test]
fn a_request_of_someone_else_counts_when_it_is_of_the_time_since_the_wave_started() {
    for (requested, counts) in [
        ("2026-01-01T00:00:30.5+00:00", true),
        ("2026-01-01T01:00:00+01:00", true),
        ("2025-12-31T23:59:59Z", false),
        ("2026-01-01T00:02:00Z", false),
        ("now", false),
    ] {
        let mut fleet = Play::fleet();
        fleet.settle();
        fleet.pass(60).ready("infrastructure-core");
        let theirs = crate::index::NudgeSeen { requested: Some(requested.to_owned()), ..nudge("k") };
        fleet.look("infrastructure-core").nudges.push(theirs);
        let writes = fleet.settle().writes.iter().count();
        assert_eq!(
            (fleet.phase("infrastructure-core") == WavePhase::Ready, writes == 0),
            (counts, counts),
            "{requested}"
        );
    }
}

#[test]
fn a_ready_wave_stays_so_while_flux_answers_a_person_and_is_not_asked_again() {
    let mut fleet = Play::fleet();
    fleet.look("infrastructure-core").nudges.push(nudge("k"));
    fleet.settle();
    fleet.look("infrastructure-core").nudges[0].requested = Some(fleet.now.to_string());
    fleet.ready("infrastructure-core").settle();
    let look = fleet.pass(100).look("infrastructure-core");
    look.nudges[0].requested = Some("2026-01-01T00:01:00Z".to_owned());
    (look.unanswered, look.ready) = (1, 0);
    let published = fleet.plan.status.clone();
    let decision = decide(&fleet.plan, &fleet.seen, fleet.now);
    assert_eq!((Some(decision.status), decision.writes.iter().count()), (published, 0));
    // Only the result counts.
    fleet.look("infrastructure-core").unanswered = 0;
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::Running);
}

#[test]
fn a_wave_that_is_no_longer_ready_does_not_ask_again_unless_it_is_retried() {
    let mut fleet = Play::fleet();
    fleet.look("infrastructure-core").nudges.push(nudge("k"));
    fleet.settle();
    fleet.look("infrastructure-core").nudges[0].requested = Some(fleet.now.to_string());
    fleet.ready("infrastructure-core").settle();
    fleet.pass(600).unready("infrastructure-core");
    assert_eq!((fleet.settle().writes.iter().count(), fleet.phase("infrastructure-core")), (0, WavePhase::Running));
    fleet.pass(1).annotate(RETRY_ANNOTATION, "infrastructure-core@1").settle();
    assert_eq!(fleet.settle().writes.iter().count(), 1);
}

fn gate(member: usize, name: &str) -> crate::index::GateSeen {
    crate::index::GateSeen { member, target: nudge(name).target, held: true }
}

#[test]
fn gates_of_a_sequential_wave_open_one_after_another() {
    let mut fleet = Play::fleet();
    fleet.plan.spec.waves[0].parallelism = crate::api::v1alpha1::Parallelism::Sequential;
    let look = fleet.look("infrastructure-core");
    // The state of the second member from before it was suspended does not count.
    (look.total, look.ready, look.frontier) = (2, 1, Some((1, crate::render::Stage::Rest)));
    look.gates = vec![gate(1, "first"), gate(2, "second")];
    let opened = |fleet: &mut Play| -> Vec<String> {
        let decision = fleet.settle();
        decision.writes.iter().map(ToString::to_string).collect()
    };
    assert_eq!(opened(&mut fleet).len(), 1);
    assert!(opened(&mut fleet)[0].contains("first"), "{:?}", opened(&mut fleet));
    fleet.look("infrastructure-core").gates[0].held = false;
    assert_eq!(opened(&mut fleet), [""; 0], "the first is not ready yet");
    fleet.look("infrastructure-core").frontier = None;
    assert!(opened(&mut fleet)[0].contains("second"), "{:?}", opened(&mut fleet));
}

#[test]
fn in_a_sequential_wave_nothing_comes_before_a_member_that_is_yet_to_be_asked_or_let_go() {
    let mut fleet = Play::fleet();
    fleet.plan.spec.waves[0].parallelism = crate::api::v1alpha1::Parallelism::Sequential;
    let look = fleet.look("infrastructure-core");
    // All of them were ready before.
    (look.ready, look.frontier) = (look.total, None);
    look.nudges = vec![crate::index::NudgeSeen { member: 1, ..nudge("asked") }];
    look.gates = vec![gate(2, "gated")];
    look.nudges.push(crate::index::NudgeSeen { member: 3, ..nudge("later") });
    let writes = |fleet: &mut Play| fleet.settle().writes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let first = writes(&mut fleet);
    assert!(first.len() == 1 && first[0].contains("asked"), "{first:?}");
    fleet.look("infrastructure-core").nudges[0].requested = Some(fleet.now.to_string());
    let second = writes(&mut fleet);
    assert!(second.len() == 1 && second[0].contains("gated"), "{second:?}");
    fleet.look("infrastructure-core").gates[0].held = false;
    let third = writes(&mut fleet);
    assert!(third.len() == 1 && third[0].contains("later"), "{third:?}");
}

/// A ConfigMap to apply, as the fourth member of a wave.
fn due(fleet: &Play, stage: crate::render::Stage) -> crate::index::Due {
    let target = nudge("done").target;
    let object = kube::core::DynamicObject::new("done", &target.resource).within("shop");
    let apply = opcore::writes::Apply { resource: target.resource, object };
    let claimant = opcore::ownership::Claimant::acting_for("wave-orchestrator", &fleet.plan);
    let comparison = opcore::act::Comparison::of(&claimant, &apply).unwrap();
    let wanted = std::sync::Arc::new(crate::subscription::Wanted { apply, comparison, digest: 1 });
    crate::index::Due { member: 3, stage, wanted, refused_at: None }
}

#[test]
fn nothing_is_applied_before_it_is_recorded_that_this_wave_applies_its_kind() {
    let mut fleet = Play::fleet();
    let of = |wave: &str| applied(&[("v1", "ConfigMap", wave)]);
    fleet.seen.look.applied_kinds = of("infrastructure-monitoring");
    fleet.settle();
    fleet.seen.look.applied_kinds = of("infrastructure-core");
    let due = due(&fleet, crate::render::Stage::Rest);
    let look = fleet.look("infrastructure-core");
    (look.frontier, look.due) = (Some((3, due.stage)), vec![due]);
    let first = decide(&fleet.plan, &fleet.seen, fleet.now);
    assert!(!first.writes.iter().any(|write| matches!(write, Write::Apply(_))), "{:?}", first.writes);
    assert_eq!(first.status.inventory[0].waves, ["infrastructure-core"]);
    fleet.plan.status = Some(first.status);
    let second = decide(&fleet.plan, &fleet.seen, fleet.now);
    assert!(second.writes.iter().any(|write| matches!(write, Write::Apply(_))), "{:?}", second.writes);
}

#[test]
fn what_a_hook_applies_at_the_end_waits_until_every_member_was_asked_and_let_go() {
    let mut fleet = Play::fleet();
    fleet.plan.spec.waves[0].parallelism = crate::api::v1alpha1::Parallelism::Concurrent;
    let stage = crate::render::Stage::After;
    let due = due(&fleet, stage);
    fleet.seen.look.applied_kinds = applied(&[("v1", "ConfigMap", "infrastructure-core")]);
    let look = fleet.look("infrastructure-core");
    look.due.push(due);
    // The members were ready before.
    look.frontier = Some((3, stage));
    look.nudges = vec![crate::index::NudgeSeen { member: 1, ..nudge("asked") }];
    look.gates = vec![gate(2, "gated")];
    let applies = |fleet: &mut Play| fleet.settle().writes.iter().any(|write| matches!(write, Write::Apply(_)));
    assert!(!applies(&mut fleet));
    fleet.look("infrastructure-core").nudges[0].requested = Some(fleet.now.to_string());
    assert!(!applies(&mut fleet));
    fleet.look("infrastructure-core").gates[0].held = false;
    assert!(applies(&mut fleet));
}

#[test]
fn a_plan_from_before_there_was_a_minimum_is_not_compared_with_the_cluster_all_the_time() {
    let mut fleet = Play::fleet();
    for text in ["0s", "1ms", "9s"] {
        fleet.plan.spec.profile = None;
        fleet.plan.spec.resync = Some(text.parse().unwrap());
        assert_eq!(fleet.plan.spec.resync(), Span::from_secs(10), "{text}");
    }
}
