//! Requests that authors are not allowed to make are not carried out, whenever they were made.

use super::*;
use crate::render::Authors;

/// The spec requests something that is not allowed, or no longer allowed.
fn refused(mut play: Play) -> Play {
    let spec = json!({ "runner": { "podTemplate": { "spec": { "volumes": [{ "name": "n", "hostPath": { "path": "/" } }] } } } });
    play = play.with("runner", spec["runner"].clone());
    let problem = Authors::default().permit_pods(&play.workspace.spec).unwrap_err();
    play.seen.inputs = Err(problem.clone());
    play.seen.refused = Some(problem);
    play
}

#[test]
fn what_authors_may_not_ask_for_begins_no_run_and_is_reported_with_field_and_remedy() {
    let mut play = refused(Play::simple());
    assert_eq!(play.settle(), [""; 0]);
    assert_eq!(play.reason(), "InvalidSpec");
    let status = play.workspace.status.as_ref().unwrap();
    assert!(is_true(&status.conditions, STALLED), "{status:?}");
    let message = play.message();
    assert!(message.starts_with("spec.runner.podTemplate.spec.volumes[0]: hostPath is not allowed"), "{message}");
    assert!(message.contains("authors.volumeTypes"), "{message}");
}

#[test]
fn a_run_that_was_published_before_it_was_forbidden_has_no_job() {
    let mut play = Play::simple();
    play.pass();
    assert!(!play.run().is_over());
    play = refused(play);
    let done = play.settle();
    assert!(play.seen.jobs.is_empty() && !done.iter().any(|write| write.starts_with("apply Job")), "{done:?}");
    assert!(play.run().is_over());
}

#[test]
fn who_deletes_a_workspace_gets_no_pod_that_he_may_not_have() {
    let mut play = refused(Play::simple().applied());
    let done = play.delete().settle();
    assert!(!done.iter().any(|write| write.starts_with("apply Job")), "{done:?}");
    assert_eq!(play.reason(), "DestroyBlocked");
    assert!(
        play.message().contains("hostPath is not allowed") && play.message().contains("Retain"),
        "{}",
        play.message()
    );
    play.seen.refused = None;
    play.settle();
    assert_eq!(play.run().action, Action::Destroy, "mended, it goes on");
}
