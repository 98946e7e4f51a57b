//! Members that cannot be read, because their API does not answer.

use opcore::finalizer::StepPhase;

use super::*;
use crate::index::OwnedObject;

/// Nothing in this wave can be read.
fn lose(simulation: &mut Simulation, wave: &str) {
    let snapshot = simulation.snapshot(wave);
    (snapshot.unread, snapshot.unreachable, snapshot.ready) = (1, 1, 0);
    snapshot.not_ready = vec![NotReady {
        object: "Thing".to_owned(),
        reason: "ApiUnavailable".to_owned(),
        message: "Thing: its API does not respond.".to_owned(),
        failed: false,
    }];
    simulation.observed.snapshot.complete = false;
    simulation.observed.unreachable =
        vec!["things.example.io cannot be listed and watched: service unavailable".to_owned()];
}

#[test]
fn a_wave_whose_member_cannot_be_read_runs_out_of_time_and_the_others_go_on() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.ready("infrastructure-core").settle();
    lose(&mut fleet, "infrastructure-monitoring");
    assert_eq!(fleet.phase("infrastructure-monitoring"), WavePhase::Running);
    fleet.ready("infrastructure-operators");
    assert_eq!(fleet.phase("database-workloads"), WavePhase::Running, "it does not depend on it");
    fleet.pass(3600);
    assert_eq!(fleet.phase("infrastructure-monitoring"), WavePhase::TimedOut);
    let (_, reason, message) = fleet.summary();
    assert_eq!(reason, "WaveTimedOut");
    assert!(message.contains("Thing: its API does not respond."), "{message}");
}

#[test]
fn a_wave_that_was_ready_stays_so_while_nobody_can_read_it() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    assert_eq!(fleet.ready("infrastructure-core").phase("infrastructure-core"), WavePhase::Ready);
    lose(&mut fleet, "infrastructure-core");
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::Ready);
}

/// A plan of three waves, each behind the one before. It has applied ConfigMaps in the first two of them, and Things in
/// the second and third; the API of Things does not answer.
fn three() -> Simulation {
    let mut simulation = Simulation::of(
        "{apiVersion: waves.opcore.dev/v1alpha1, kind: WavePlan, metadata: {name: p}, spec: {waves: [
            {name: one}, {name: two, dependsOn: [{wave: one}]}, {name: three}]}}",
    );
    let (maps, things) = (("v1", "ConfigMap"), ("example.io/v1", "Thing"));
    let kinds = [(maps, "one"), (maps, "two"), (things, "two"), (maps, "three")];
    let kinds: Vec<_> = kinds.into_iter().map(|((api_version, kind), wave)| (api_version, kind, wave)).collect();
    simulation.observed.snapshot.applied_kinds = applied(&kinds);
    simulation.settle();
    simulation.observed.snapshot.owned = ["one", "two", "three"]
        .map(|wave| OwnedObject { wave: wave.to_owned(), ..orphan("ConfigMap", wave, None) })
        .into();
    simulation.observed.snapshot.complete = false;
    let thing = GroupKind { group: "example.io".to_owned(), kind: "Thing".to_owned() };
    simulation.observed.incomplete.insert(thing, "the API of Thing does not respond: service unavailable".to_owned());
    simulation.plan.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    simulation
}

/// Deletes what is to be deleted until nothing more is, and returns the phases of the waves.
fn take_down(simulation: &mut Simulation) -> BTreeMap<String, StepPhase> {
    loop {
        let decision = simulation.settle();
        let deleted = decision.writes.iter().filter_map(|write| match write {
            Write::Delete(delete) => Some(delete.target.name.clone()),
            _ => None,
        });
        let deleted: Vec<String> = deleted.collect();
        let before = simulation.observed.snapshot.owned.len();
        simulation.observed.snapshot.owned.retain(|object| !deleted.contains(&object.target.name));
        if simulation.observed.snapshot.owned.len() == before {
            let steps = simulation.plan.status.as_ref().unwrap().teardown.as_ref().unwrap().steps.clone();
            return steps.into_iter().map(|step| (step.name, step.phase)).collect();
        }
    }
}

#[test]
fn a_kind_that_is_not_known_holds_up_the_waves_that_applied_it_and_those_before_them_and_no_others() {
    let mut simulation = three();
    let phases = take_down(&mut simulation);
    assert_eq!(phases["three"], StepPhase::Done, "it has no Things");
    assert_eq!(phases["two"], StepPhase::Running, "there may be Things of it");
    assert_eq!(phases["one"], StepPhase::Waiting, "it comes after the second");
    let (_, _, message) = simulation.summary();
    let why = "two: cannot determine which objects of kind Thing are left: the API of Thing does not respond";
    assert!(message.contains(why), "{message}");
    let left: Vec<&str> = simulation.observed.snapshot.owned.iter().map(|object| object.wave.as_str()).collect();
    assert_eq!(left, ["one"], "what is known of the second is deleted already");
    simulation.observed.incomplete.clear();
    assert!(take_down(&mut simulation).values().all(|phase| *phase == StepPhase::Done));
}

#[test]
fn a_kind_that_was_recorded_without_its_waves_holds_up_all_of_them() {
    let mut simulation = three();
    for kind in &mut simulation.plan.status.as_mut().unwrap().inventory {
        kind.waves.clear();
    }
    let phases = take_down(&mut simulation);
    assert_eq!(phases["three"], StepPhase::Waiting);
    let removed =
        simulation.plan.status.as_ref().unwrap().teardown.as_ref().unwrap().step("Removed waves").unwrap().clone();
    assert!(removed.message.unwrap().contains("of kind Thing are left"));
}

#[test]
fn a_kind_of_a_wave_that_the_plan_no_longer_has_holds_up_the_others_which_come_after_it() {
    let mut simulation = three();
    simulation.plan.spec.waves.remove(1);
    simulation.observed.snapshot.waves.remove(1);
    let phases = take_down(&mut simulation);
    assert_eq!((phases["Removed waves"], phases["three"]), (StepPhase::Running, StepPhase::Waiting));
}

#[test]
fn within_a_wave_nothing_goes_before_what_was_applied_after_it_and_is_not_known() {
    let mut simulation = three();
    let namespace = OwnedObject {
        wave: "two".to_owned(),
        stage: crate::render::Stage::Definitions,
        ..orphan("Namespace", "of-the-things", None)
    };
    simulation.observed.snapshot.owned.push(namespace);
    take_down(&mut simulation);
    let is_there = |simulation: &Simulation| {
        simulation.observed.snapshot.owned.iter().any(|object| object.target.name == "of-the-things")
    };
    assert!(is_there(&simulation), "there may be Things in it");
    simulation.observed.incomplete.clear();
    take_down(&mut simulation);
    assert!(!is_there(&simulation));
}

#[test]
fn what_is_held_suspended_and_not_known_is_released_first() {
    let mut simulation = three();
    simulation.observed.incomplete.clear();
    simulation.observed.incomplete_gates =
        Some("the API of Kustomization does not respond: service unavailable".to_owned());
    let phases = take_down(&mut simulation);
    assert_eq!((phases["Gates"], phases["three"]), (StepPhase::Running, StepPhase::Waiting));
    assert!(simulation.summary().2.contains("cannot determine which objects are still suspended"));
}

#[test]
fn what_stays_need_not_be_known() {
    let mut simulation = three();
    simulation.plan.spec.deletion_policy = crate::api::v1alpha1::DeletionPolicy::Orphan;
    assert!(take_down(&mut simulation).values().all(|phase| *phase == StepPhase::Done));
}

#[test]
fn the_waves_of_a_kind_are_recorded_before_it_is_applied_and_until_nothing_of_it_is_left() {
    let mut simulation = three();
    simulation.plan.metadata.deletion_timestamp = None;
    let waves = |simulation: &mut Simulation, kind: &str| {
        simulation.settle();
        let inventory = &simulation.plan.status.as_ref().unwrap().inventory;
        inventory.iter().find(|recorded| recorded.kind == kind).map(|recorded| recorded.waves.join(" "))
    };
    assert_eq!(waves(&mut simulation, "ConfigMap").as_deref(), Some("one three two"));
    assert_eq!(waves(&mut simulation, "Thing").as_deref(), Some("two"));
    // The plan no longer has them, and it is not known what is left of them.
    simulation.observed.snapshot.applied_kinds =
        applied(&[("v1", "ConfigMap", "one"), ("example.io/v1", "Thing", "three")]);
    let counts = BTreeMap::from([("two".to_owned(), 1), ("one".to_owned(), 1)]);
    let maps = GroupKind { group: String::new(), kind: "ConfigMap".to_owned() };
    simulation.observed.snapshot.counts = Arc::new(BTreeMap::from([(maps, counts)]));
    assert_eq!(waves(&mut simulation, "ConfigMap").as_deref(), Some("one two"), "an object of the second is left");
    assert_eq!(waves(&mut simulation, "Thing").as_deref(), Some("three two"));
    // What an older version recorded stays open until everything of the kind is known.
    simulation.plan.status.as_mut().unwrap().inventory.iter_mut().for_each(|kind| kind.waves.clear());
    assert_eq!(waves(&mut simulation, "Thing").as_deref(), Some(""));
    assert_eq!(waves(&mut simulation, "ConfigMap").as_deref(), Some("one two"));
    simulation.observed.incomplete.clear();
    assert_eq!(waves(&mut simulation, "Thing").as_deref(), Some("three"));
}

#[test]
fn a_teardown_that_waits_for_what_is_not_known_goes_on_when_it_is_forced() {
    let mut fleet = three();
    take_down(&mut fleet);
    fleet.annotate(opcore::finalizer::FORCE_ANNOTATION, "all");
    let released = fleet.settle().writes.iter().any(|write| matches!(write, Write::RemoveFinalizer(_)));
    assert!(released, "{:?}", fleet.plan.status);
}

#[test]
fn a_missing_right_is_named_with_the_value_that_grants_it() {
    let mut fleet = Simulation::fleet();
    fleet.observed.denied =
        vec!["list and watch secrets in shop; the value rbac.read of the chart grants this right".to_owned()];
    let (_, reason, message) = fleet.summary();
    assert_eq!(reason, "Forbidden");
    assert_eq!(
        message,
        "The operator is not allowed to list and watch secrets in shop; the value rbac.read of the chart grants this right."
    );
}
