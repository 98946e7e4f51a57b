//! What is recorded, and when.

use super::*;
use crate::observe::ObservedKey;

#[test]
fn what_came_of_a_run_is_published_before_anything_is_written_for_the_next() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation.ends(Outcome::Applied, |_| {});
    simulation = simulation.with("variables", json!({ "size": 2 }));
    let writes = simulation.pass();
    assert!(!writes.iter().any(|write| write.contains("-in-")), "{writes:?}");
    assert!(simulation.run().is_over() && simulation.run().number == 1);
    let status = simulation.workspace.status.clone().unwrap();
    assert!(status.last_applied.is_some() && status.history.len() == 1, "{status:?}");
    assert_eq!((simulation.phase(), simulation.reason().as_str()), (WorkspacePhase::Applying, "Applying"));
    simulation.settle();
    assert_eq!(simulation.run().number, 2);
}

#[test]
fn a_key_that_is_not_kept_is_put_into_its_secret_and_changes_nothing_else() {
    let mut simulation = Simulation::simple().applied();
    let before = simulation.workspace.status.clone();
    simulation.observed.key = Some(ObservedKey { value: "0".repeat(64), is_kept: false });
    let writes = simulation.pass();
    assert!(writes.iter().any(|write| write.starts_with("apply Secret") && write.ends_with("-key")), "{writes:?}");
    assert_eq!(simulation.workspace.status, before);
    simulation.observed.key = Some(ObservedKey { value: "0".repeat(64), is_kept: true });
    assert!(!simulation.pass().iter().any(|write| write.contains("-key")));
    simulation.delete().settle();
    simulation.ends(Outcome::Destroyed, |report| report.state = Some(StateReport::default())).settle();
    assert!(!simulation.observed.parts.iter().any(|part| part.part == "key"), "it goes with the workspace");
}
