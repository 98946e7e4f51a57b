//! Members that others own: when they are asked to reconcile, suspended, and released.

use super::*;
use crate::api::v1alpha1::FINALIZER;

#[test]
fn what_is_held_is_written_down_before_it_is_suspended_and_until_it_is_given_back() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.snapshot("services").gates.push(ObservedGate { member: 1, target: target("services"), held: false });
    let held =
        |status: &WavePlanStatus| -> Vec<String> { status.held.iter().map(|held| held.id().to_string()).collect() };
    let first = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert!(first.writes.is_empty(), "{:?}", first.writes);
    assert_eq!(held(&first.status), ["ConfigMap flux-system/services"]);
    let suspends = |write: &Write| matches!(write, Write::Claim { fields, .. } if *fields == json!({ "spec": { "suspend": true } }));
    assert!(fleet.settle().writes.iter().all(suspends));
    fleet.snapshot("services").gates[0].held = true;
    assert!(fleet.settle().writes.is_empty());
    // The gate is no longer in the spec, and not read again yet.
    fleet.snapshot("services").gates.clear();
    fleet.observed.snapshot.complete = false;
    assert_eq!(held(&fleet.settle().status), ["ConfigMap flux-system/services"]);
    fleet.observed.snapshot.complete = true;
    fleet.observed.snapshot.held.push(ObservedGate { member: 1, target: target("services"), held: true });
    let decision = fleet.settle();
    let writes: Vec<_> = decision.writes.iter().collect();
    assert!(matches!(writes.as_slice(), [Write::Claim { fields, .. }] if *fields == json!({})), "{writes:?}");
    assert_eq!(held(&decision.status), ["ConfigMap flux-system/services"]);
    fleet.observed.snapshot.held[0].held = false;
    let decision = fleet.settle();
    assert!(decision.writes.is_empty() && decision.status.held.is_empty(), "{decision:?}");
}

#[test]
fn a_gate_whose_wave_cannot_be_carried_out_stays_closed() {
    let mut simulation = Simulation::of(
        "{apiVersion: waves.opcore.dev/v1alpha1, kind: WavePlan, metadata: {name: p}, spec: {waves: [{name: a, members: [
            {mode: Gate, ref: {apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, namespace: flux-system, name: k}}]}]}}",
    );
    let gvk = kube::core::GroupVersionKind::gvk("kustomize.toolkit.fluxcd.io", "v1", "Kustomization");
    let gate = opcore::writes::Target { resource: kube::api::ApiResource::from_gvk(&gvk), ..target("k") };
    simulation.observed.snapshot.waves[0] =
        WaveSnapshot { problem: Some("it is broken".to_owned()), ..WaveSnapshot::default() };
    simulation.observed.snapshot.held.push(ObservedGate { member: 1, target: gate, held: true });
    let decision = simulation.settle();
    assert!(decision.writes.is_empty(), "{:?}", decision.writes);
    assert_eq!(decision.status.held.len(), 1);
    simulation.plan.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(simulation.now));
    assert_eq!(simulation.settle().writes.iter().count(), 1, "with its plan it is given back");
}

#[test]
fn a_plan_that_is_deleted_lets_its_gates_go_and_is_then_released() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.plan.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(fleet.now));
    fleet.observed.snapshot.held.push(ObservedGate { member: 1, target: target("services"), held: true });
    let decision = fleet.settle();
    let writes: Vec<_> = decision.writes.iter().collect();
    assert!(matches!(writes.as_slice(), [Write::Claim { fields, .. }] if *fields == json!({})), "{writes:?}");
    fleet.observed.snapshot.held[0].held = false;
    let decision = fleet.settle();
    assert_eq!(
        decision.writes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [format!("remove finalizer {FINALIZER}")]
    );
}

/// Flux handles the last request of any of these plans. Returns how often it was requested.
fn flux(simulations: &mut [Simulation], annotation: &mut Option<String>) -> usize {
    let mut asked = 0;
    for number in 0..simulations.len() {
        // The other plans see the request at once, and Flux is slow.
        for simulation in &mut *simulations {
            let snapshot = simulation.snapshot("infrastructure-core");
            snapshot.nudges[0].requested.clone_from(annotation);
            (snapshot.unanswered, snapshot.ready) = (1, 0);
            simulation.pass(1);
        }
        let decision = simulations[number].settle();
        for write in decision.writes.iter() {
            let Write::Annotate { annotations, .. } = write else { continue };
            annotation.clone_from(&annotations[crate::index::FLUX_REQUEST]);
            asked += 1;
        }
    }
    for simulation in simulations {
        simulation.snapshot("infrastructure-core").nudges[0].requested.clone_from(annotation);
        simulation.snapshot("infrastructure-core").unanswered = 0;
        simulation.ready("infrastructure-core").settle();
    }
    asked
}

#[test]
fn two_plans_over_one_flux_member_come_to_rest() {
    let mut simulations = [Simulation::fleet(), Simulation::fleet()];
    for simulation in &mut simulations {
        simulation.snapshot("infrastructure-core").nudges.push(nudge("k"));
    }
    let mut annotation = None;
    let asked: Vec<usize> = (0..4).map(|_| flux(&mut simulations, &mut annotation)).collect();
    assert_eq!(asked, [2, 0, 0, 0], "each asks once at most");
    assert_eq!(simulations.map(|mut simulation| simulation.phase("infrastructure-core")), [WavePhase::Ready; 2]);
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
        let mut fleet = Simulation::fleet();
        fleet.settle();
        fleet.pass(60).ready("infrastructure-core");
        let theirs = crate::index::ObservedNudge { requested: Some(requested.to_owned()), ..nudge("k") };
        fleet.snapshot("infrastructure-core").nudges.push(theirs);
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
    let mut fleet = Simulation::fleet();
    fleet.snapshot("infrastructure-core").nudges.push(nudge("k"));
    fleet.settle();
    fleet.snapshot("infrastructure-core").nudges[0].requested = Some(fleet.now.to_string());
    fleet.ready("infrastructure-core").settle();
    let snapshot = fleet.pass(100).snapshot("infrastructure-core");
    snapshot.nudges[0].requested = Some("2026-01-01T00:01:00Z".to_owned());
    (snapshot.unanswered, snapshot.ready) = (1, 0);
    let published = fleet.plan.status.clone();
    let decision = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert_eq!((Some(decision.status), decision.writes.iter().count()), (published, 0));
    // Only the result counts.
    fleet.snapshot("infrastructure-core").unanswered = 0;
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::Running);
}

#[test]
fn a_wave_that_is_no_longer_ready_does_not_ask_again_unless_it_is_retried() {
    let mut fleet = Simulation::fleet();
    fleet.snapshot("infrastructure-core").nudges.push(nudge("k"));
    fleet.settle();
    fleet.snapshot("infrastructure-core").nudges[0].requested = Some(fleet.now.to_string());
    fleet.ready("infrastructure-core").settle();
    fleet.pass(600).unready("infrastructure-core");
    assert_eq!((fleet.settle().writes.iter().count(), fleet.phase("infrastructure-core")), (0, WavePhase::Running));
    fleet.pass(1).annotate(RETRY_ANNOTATION, "infrastructure-core@1").settle();
    assert_eq!(fleet.settle().writes.iter().count(), 1);
}

fn gate(member: usize, name: &str) -> crate::index::ObservedGate {
    crate::index::ObservedGate { member, target: nudge(name).target, held: true }
}

#[test]
fn gates_of_a_sequential_wave_open_one_after_another() {
    let mut fleet = Simulation::fleet();
    fleet.plan.spec.waves[0].parallelism = crate::api::v1alpha1::Parallelism::Sequential;
    let snapshot = fleet.snapshot("infrastructure-core");
    // The state of the second member from before it was suspended does not count.
    (snapshot.total, snapshot.ready, snapshot.frontier) = (2, 1, Some((1, crate::render::Stage::Rest)));
    snapshot.gates = vec![gate(1, "first"), gate(2, "second")];
    let opened = |fleet: &mut Simulation| -> Vec<String> {
        let decision = fleet.settle();
        decision.writes.iter().map(ToString::to_string).collect()
    };
    assert_eq!(opened(&mut fleet).len(), 1);
    assert!(opened(&mut fleet)[0].contains("first"), "{:?}", opened(&mut fleet));
    fleet.snapshot("infrastructure-core").gates[0].held = false;
    assert_eq!(opened(&mut fleet), [""; 0], "the first is not ready yet");
    fleet.snapshot("infrastructure-core").frontier = None;
    assert!(opened(&mut fleet)[0].contains("second"), "{:?}", opened(&mut fleet));
}

#[test]
fn in_a_sequential_wave_nothing_comes_before_a_member_that_is_yet_to_be_asked_or_let_go() {
    let mut fleet = Simulation::fleet();
    fleet.plan.spec.waves[0].parallelism = crate::api::v1alpha1::Parallelism::Sequential;
    let snapshot = fleet.snapshot("infrastructure-core");
    // All of them were ready before.
    (snapshot.ready, snapshot.frontier) = (snapshot.total, None);
    snapshot.nudges = vec![crate::index::ObservedNudge { member: 1, ..nudge("asked") }];
    snapshot.gates = vec![gate(2, "gated")];
    snapshot.nudges.push(crate::index::ObservedNudge { member: 3, ..nudge("later") });
    let writes = |fleet: &mut Simulation| fleet.settle().writes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let first = writes(&mut fleet);
    assert!(first.len() == 1 && first[0].contains("asked"), "{first:?}");
    fleet.snapshot("infrastructure-core").nudges[0].requested = Some(fleet.now.to_string());
    let second = writes(&mut fleet);
    assert!(second.len() == 1 && second[0].contains("gated"), "{second:?}");
    fleet.snapshot("infrastructure-core").gates[0].held = false;
    let third = writes(&mut fleet);
    assert!(third.len() == 1 && third[0].contains("later"), "{third:?}");
}

/// A ConfigMap to apply, as the fourth member of a wave.
fn due(fleet: &Simulation, stage: crate::render::Stage) -> crate::index::Due {
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
    let mut fleet = Simulation::fleet();
    let of = |wave: &str| applied(&[("v1", "ConfigMap", wave)]);
    fleet.observed.snapshot.applied_kinds = of("infrastructure-monitoring");
    fleet.settle();
    fleet.observed.snapshot.applied_kinds = of("infrastructure-core");
    let due = due(&fleet, crate::render::Stage::Rest);
    let snapshot = fleet.snapshot("infrastructure-core");
    (snapshot.frontier, snapshot.due) = (Some((3, due.stage)), vec![due]);
    let first = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert!(!first.writes.iter().any(|write| matches!(write, Write::Apply(_))), "{:?}", first.writes);
    assert_eq!(first.status.inventory[0].waves, ["infrastructure-core"]);
    fleet.plan.status = Some(first.status);
    let second = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert!(second.writes.iter().any(|write| matches!(write, Write::Apply(_))), "{:?}", second.writes);
}

#[test]
fn what_a_hook_applies_at_the_end_waits_until_every_member_was_asked_and_let_go() {
    let mut fleet = Simulation::fleet();
    fleet.plan.spec.waves[0].parallelism = crate::api::v1alpha1::Parallelism::Concurrent;
    let stage = crate::render::Stage::After;
    let due = due(&fleet, stage);
    fleet.observed.snapshot.applied_kinds = applied(&[("v1", "ConfigMap", "infrastructure-core")]);
    let snapshot = fleet.snapshot("infrastructure-core");
    snapshot.due.push(due);
    // The members were ready before.
    snapshot.frontier = Some((3, stage));
    snapshot.nudges = vec![crate::index::ObservedNudge { member: 1, ..nudge("asked") }];
    snapshot.gates = vec![gate(2, "gated")];
    let applies = |fleet: &mut Simulation| fleet.settle().writes.iter().any(|write| matches!(write, Write::Apply(_)));
    assert!(!applies(&mut fleet));
    fleet.snapshot("infrastructure-core").nudges[0].requested = Some(fleet.now.to_string());
    assert!(!applies(&mut fleet));
    fleet.snapshot("infrastructure-core").gates[0].held = false;
    assert!(applies(&mut fleet));
}

#[test]
fn a_plan_from_before_there_was_a_minimum_is_not_compared_with_the_cluster_all_the_time() {
    let mut fleet = Simulation::fleet();
    for text in ["0s", "1ms", "9s"] {
        fleet.plan.spec.profile = None;
        fleet.plan.spec.resync = Some(text.parse().unwrap());
        assert_eq!(fleet.plan.spec.resync(), Span::from_secs(10), "{text}");
    }
}
