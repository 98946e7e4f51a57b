//! Requests of users while the operator starts, and whether waves started in order.

use super::*;

#[test]
fn a_retry_that_is_asked_before_anything_is_read_is_carried_out_once() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.pass(301);
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::TimedOut);
    // The operator restarts, and has nothing read when it has to decide.
    fleet.snapshot("infrastructure-core").unread = 1;
    fleet.annotate(RETRY_ANNOTATION, "infrastructure-core@1").pass(1).settle();
    fleet.pass(1).snapshot("infrastructure-core").unread = 0;
    fleet.settle();
    let core = fleet.plan.status.as_ref().unwrap().wave("infrastructure-core").unwrap();
    assert_eq!((core.phase, core.attempts), (WavePhase::Running, 1));
}

#[test]
fn a_retry_of_what_is_ready_changes_nothing_even_before_it_is_read() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.ready("infrastructure-core").settle();
    fleet.snapshot("infrastructure-core").unread = 1;
    fleet.annotate(RETRY_ANNOTATION, "infrastructure-core@1");
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::Ready);
    assert_eq!(fleet.plan.status.as_ref().unwrap().wave("infrastructure-core").unwrap().attempts, 0);
}

#[test]
fn a_resume_that_is_asked_before_the_failed_wave_is_read_holds() {
    let mut fleet = Simulation::fleet();
    let number = fleet.number("infrastructure-monitoring");
    fleet.plan.spec.waves[number].on_failure = crate::api::v1alpha1::OnFailure::Pause;
    fleet.settle();
    fleet.ready("infrastructure-core").settle();
    fleet.fail("infrastructure-monitoring").settle();
    fleet.snapshot("infrastructure-monitoring").unread = 1;
    fleet.annotate(RESUME_ANNOTATION, "1").settle();
    fleet.snapshot("infrastructure-monitoring").unread = 0;
    fleet.ready("infrastructure-operators");
    assert_eq!(fleet.phase("database-workloads"), WavePhase::Running);
    assert_eq!(fleet.phase("infrastructure-monitoring"), WavePhase::Failed);
}

fn is_in_order(simulation: &mut Simulation) -> bool {
    simulation.settle();
    let conditions = &simulation.plan.status.as_ref().unwrap().conditions;
    opcore::conditions::find(conditions, "StartedInOrder").unwrap().status == "True"
}

#[test]
fn an_edge_for_the_first_rollout_counts_in_the_first_rollout() {
    let mut fleet = Simulation::fleet();
    let number = fleet.number("services");
    fleet.plan.spec.waves[number].depends_on[0].gate = crate::api::v1alpha1::Gate::FirstRollout;
    fleet.annotate(FORCE_ANNOTATION, "services@1").settle();
    fleet.ready("services").settle();
    // As if something had gone wrong.
    let status = fleet.plan.status.as_mut().unwrap();
    status.waves.iter_mut().find(|wave| wave.name == "services").unwrap().forced = false;
    assert!(!is_in_order(&mut fleet), "although it is ready by now");
    for wave in fleet.plan.spec.waves.clone() {
        fleet.settle();
        fleet.ready(&wave.name);
    }
    fleet.settle();
    fleet.pass(60).unready("database-workloads").unready("services").observed.revision = "r2".to_owned();
    assert!(is_in_order(&mut fleet), "later it does not");
}

#[test]
fn a_wave_that_runs_again_while_one_before_it_does_so_too_has_started_in_order_all_the_same() {
    let mut fleet = Simulation::fleet();
    for wave in fleet.plan.spec.waves.clone() {
        fleet.settle();
        fleet.ready(&wave.name);
    }
    fleet.settle();
    fleet.pass(3600).unready("infrastructure-core").settle();
    fleet.pass(1).unready("infrastructure-operators").settle();
    assert!(is_in_order(&mut fleet));
    fleet.pass(60).ready("infrastructure-core").settle();
    fleet.ready("infrastructure-operators");
    assert!(is_in_order(&mut fleet));
    // A start that a user requests another time is not reported either.
    fleet.pass(60).unready("infrastructure-core").unready("infrastructure-operators").settle();
    fleet.pass(1).annotate(RETRY_ANNOTATION, "infrastructure-operators@1");
    assert!(is_in_order(&mut fleet));
}
