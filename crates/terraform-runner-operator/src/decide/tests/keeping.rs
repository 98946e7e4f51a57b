//! What is recorded, and when.

use super::*;
use crate::observe::KeySeen;

#[test]
fn what_came_of_a_run_is_published_before_anything_is_written_for_the_next() {
    let mut play = Play::simple();
    play.settle();
    play.ends(Outcome::Applied, |_| {});
    play = play.with("variables", json!({ "size": 2 }));
    let writes = play.pass();
    assert!(!writes.iter().any(|write| write.contains("-in-")), "{writes:?}");
    assert!(play.run().is_over() && play.run().number == 1);
    let status = play.workspace.status.clone().unwrap();
    assert!(status.last_applied.is_some() && status.history.len() == 1, "{status:?}");
    assert_eq!((play.phase(), play.reason().as_str()), (WorkspacePhase::Applying, "Applying"));
    play.settle();
    assert_eq!(play.run().number, 2);
}

#[test]
fn a_key_that_is_not_kept_is_put_into_its_secret_and_changes_nothing_else() {
    let mut play = Play::simple().applied();
    let before = play.workspace.status.clone();
    play.seen.key = Some(KeySeen { value: "0".repeat(64), is_kept: false });
    let writes = play.pass();
    assert!(writes.iter().any(|write| write.starts_with("apply Secret") && write.ends_with("-key")), "{writes:?}");
    assert_eq!(play.workspace.status, before);
    play.seen.key = Some(KeySeen { value: "0".repeat(64), is_kept: true });
    assert!(!play.pass().iter().any(|write| write.contains("-key")));
    play.delete().settle();
    play.ends(Outcome::Destroyed, |report| report.state = Some(StateReport::default())).settle();
    assert!(!play.seen.parts.iter().any(|part| part.part == "key"), "it goes with the workspace");
}
