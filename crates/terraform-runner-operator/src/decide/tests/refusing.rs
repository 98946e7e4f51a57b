//! Requests that authors are not allowed to make are not carried out, whenever they were made.

use super::*;
use crate::render::Authors;

/// The spec requests something that is not allowed, or no longer allowed.
fn refused(mut simulation: Simulation) -> Simulation {
    let spec = json!({ "runner": { "podTemplate": { "spec": { "volumes": [{ "name": "n", "hostPath": { "path": "/" } }] } } } });
    simulation = simulation.with("runner", spec["runner"].clone());
    let problem = Authors::default().permit_pods(&simulation.workspace.spec).unwrap_err();
    simulation.observed.inputs = Err(problem.clone());
    simulation.observed.refused = Some(problem);
    simulation
}

#[test]
fn what_authors_may_not_ask_for_begins_no_run_and_is_reported_with_field_and_remedy() {
    let mut simulation = refused(Simulation::simple());
    assert_eq!(simulation.settle(), [""; 0]);
    assert_eq!(simulation.reason(), "InvalidSpec");
    let status = simulation.workspace.status.as_ref().unwrap();
    assert!(is_true(&status.conditions, STALLED), "{status:?}");
    let message = simulation.message();
    assert!(message.starts_with("spec.runner.podTemplate.spec.volumes[0]: hostPath is not allowed"), "{message}");
    assert!(message.contains("authors.volumeTypes"), "{message}");
}

#[test]
fn a_run_that_was_published_before_it_was_forbidden_has_no_job() {
    let mut simulation = Simulation::simple();
    simulation.pass();
    assert!(!simulation.run().is_over());
    simulation = refused(simulation);
    let done = simulation.settle();
    assert!(
        simulation.observed.jobs.is_empty() && !done.iter().any(|write| write.starts_with("apply Job")),
        "{done:?}"
    );
    assert!(simulation.run().is_over());
}

#[test]
fn who_deletes_a_workspace_gets_no_pod_that_he_may_not_have() {
    let mut simulation = refused(Simulation::simple().applied());
    let done = simulation.delete().settle();
    assert!(!done.iter().any(|write| write.starts_with("apply Job")), "{done:?}");
    assert_eq!(simulation.reason(), "DestroyBlocked");
    assert!(
        simulation.message().contains("hostPath is not allowed") && simulation.message().contains("Retain"),
        "{}",
        simulation.message()
    );
    simulation.observed.refused = None;
    simulation.settle();
    assert_eq!(simulation.run().action, Action::Destroy, "mended, it goes on");
}
