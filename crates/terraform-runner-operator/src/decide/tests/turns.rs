//! A turn is not kept by a workspace that does not use it.

use super::*;

/// A workspace whose Job exists, and whose pod cannot start.
fn stuck() -> Play {
    let mut play = Play::simple();
    play.settle();
    play.seen.pod = PodSeen::Stuck("container terraform is not starting: ErrImagePull".to_owned());
    play
}

#[test]
fn a_run_whose_pod_does_not_start_gives_up_its_turn_in_time_and_is_retried_later() {
    let mut play = stuck();
    assert_eq!(play.settle(), [""; 0]);
    let start_by = play.now + SignedDuration::from_secs(600);
    assert_eq!(play.decide().next, Next::At(start_by), "time alone changes that");
    assert_eq!(play.wait(599).settle(), [""; 0]);
    let done = play.wait(1).settle();
    assert!(done[0].contains("delete Job"), "{done:?}");
    assert!(play.run().is_over() && play.run().outcome == Some(Outcome::Failed), "its turn is free");
    assert_eq!(play.reason(), "RunFailed");
    let message = play.message();
    assert!(message.contains("did not start in time") && message.contains("ErrImagePull"), "{message}");
    let begun = play.workspace.status.as_ref().unwrap().begun_inputs.clone();
    assert_eq!(begun, None, "nothing was begun");
    play.wait(60).settle();
    assert_eq!(play.run().number, 2);
}

#[test]
fn a_pod_that_starts_at_the_last_moment_goes_on() {
    let mut play = stuck();
    play.wait(600).pass();
    assert!(play.run().given_up, "published before its Job goes");
    play.seen.pod = PodSeen::Started;
    assert_eq!(play.settle(), [""; 0]);
    assert!(!play.run().is_over() && !play.run().given_up);
}

#[test]
fn a_comparison_that_does_not_start_leaves_what_is_applied_ready() {
    let mut play = Play::simple().applied();
    play.wait(3600).settle();
    assert_eq!(play.run().action, Action::Check);
    play.seen.pod = PodSeen::Stuck("its pod cannot be scheduled: 0/3 nodes are available".to_owned());
    play.wait(600).settle();
    assert!(play.run().is_over());
    assert_eq!(play.phase(), WorkspacePhase::Ready);
}

#[test]
fn a_destroy_that_does_not_start_gives_up_its_turn_too() {
    let mut play = Play::simple().applied();
    play.delete().settle();
    assert_eq!(play.run().action, Action::Destroy);
    let number = play.run().number;
    play.seen.pod = PodSeen::Stuck("its pod cannot be scheduled: 0/3 nodes are available".to_owned());
    play.seen.turn = false;
    play.wait(600).settle();
    assert!(play.run().is_over() && play.run().number == number, "others come first");
    assert_eq!(play.reason(), "WaitingForTurn");
}
