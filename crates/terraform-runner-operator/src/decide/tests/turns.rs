//! A turn is not kept by a workspace that does not use it.

use super::*;

/// A workspace whose Job exists, and whose pod cannot start.
fn stuck() -> Simulation {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation.observed.pod = ObservedPod::Stuck("container terraform is not starting: ErrImagePull".to_owned());
    simulation
}

#[test]
fn a_run_whose_pod_does_not_start_gives_up_its_turn_in_time_and_is_retried_later() {
    let mut simulation = stuck();
    assert_eq!(simulation.settle(), [""; 0]);
    let start_by = simulation.now + SignedDuration::from_secs(600);
    assert_eq!(simulation.decide().next, Next::At(start_by), "time alone changes that");
    assert_eq!(simulation.wait(599).settle(), [""; 0]);
    let done = simulation.wait(1).settle();
    assert!(done[0].contains("delete Job"), "{done:?}");
    assert!(simulation.run().is_over() && simulation.run().outcome == Some(Outcome::Failed), "its turn is free");
    assert_eq!(simulation.reason(), "RunFailed");
    let message = simulation.message();
    assert!(message.contains("did not start in time") && message.contains("ErrImagePull"), "{message}");
    let begun = simulation.workspace.status.as_ref().unwrap().begun_inputs.clone();
    assert_eq!(begun, None, "nothing was begun");
    simulation.wait(60).settle();
    assert_eq!(simulation.run().number, 2);
}

#[test]
fn a_pod_that_starts_at_the_last_moment_goes_on() {
    let mut simulation = stuck();
    simulation.wait(600).pass();
    assert!(simulation.run().given_up, "published before its Job goes");
    simulation.observed.pod = ObservedPod::Started;
    assert_eq!(simulation.settle(), [""; 0]);
    assert!(!simulation.run().is_over() && !simulation.run().given_up);
}

#[test]
fn a_comparison_that_does_not_start_leaves_what_is_applied_ready() {
    let mut simulation = Simulation::simple().applied();
    simulation.wait(3600).settle();
    assert_eq!(simulation.run().action, Action::Check);
    simulation.observed.pod = ObservedPod::Stuck("its pod cannot be scheduled: 0/3 nodes are available".to_owned());
    simulation.wait(600).settle();
    assert!(simulation.run().is_over());
    assert_eq!(simulation.phase(), WorkspacePhase::Ready);
}

#[test]
fn a_destroy_that_does_not_start_gives_up_its_turn_too() {
    let mut simulation = Simulation::simple().applied();
    simulation.delete().settle();
    assert_eq!(simulation.run().action, Action::Destroy);
    let number = simulation.run().number;
    simulation.observed.pod = ObservedPod::Stuck("its pod cannot be scheduled: 0/3 nodes are available".to_owned());
    simulation.observed.turn = false;
    simulation.wait(600).settle();
    assert!(simulation.run().is_over() && simulation.run().number == number, "others come first");
    assert_eq!(simulation.reason(), "WaitingForTurn");
}
