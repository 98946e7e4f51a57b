//! What waits for a person, and what is not repeated without one.

use opcore::Write;
use opcore::act::{Refusal, RefusalReason};
use opcore::conditions::{STALLED, find, is_true};
use opcore::writes::Target;
use serde_json::json;

use super::Simulation;
use crate::api::v1alpha1::{Action, ApprovalReason, ChangedResource, Diagnostic, Outcome, Severity, WorkspacePhase};
use crate::decide::refused;
use crate::render;
use crate::run::report::{Report, Stage};

/// The spec is changed in a way that changes no inputs.
fn edited(mut simulation: Simulation) -> Simulation {
    let generation = simulation.workspace.metadata.generation.as_mut().unwrap();
    *generation += 1;
    let minutes = format!("{generation}m");
    simulation.with("timeouts", json!({ "plan": minutes }))
}

#[test]
fn what_the_same_inputs_bring_about_each_time_is_not_repeated_before_they_change_or_someone_asks() {
    let mut simulation = Simulation::simple();
    let fails = |simulation: &mut Simulation, number: i64| {
        simulation.settle();
        assert_eq!(simulation.run().number, number);
        simulation.ends(Outcome::Failed, |report| report.lasting = true).settle();
        simulation.wait(24 * 3600).settle();
        assert_eq!((simulation.run().number, simulation.reason().as_str()), (number, "RunFailed"));
        assert!(is_true(&simulation.workspace.status.as_ref().unwrap().conditions, STALLED));
        assert!(
            simulation.message().contains("not retried until the spec or the inputs change"),
            "{}",
            simulation.message()
        );
        assert_eq!(simulation.workspace.status.as_ref().unwrap().retry_at, None);
    };
    fails(&mut simulation, 1);
    simulation = edited(simulation);
    fails(&mut simulation, 2);
    simulation.annotate("infra.opr8r/replan", "now");
    fails(&mut simulation, 3);
    simulation = simulation.with("variables", json!({ "size": 3 }));
    fails(&mut simulation, 4);
    simulation = edited(simulation);
    simulation.settle();
    simulation.ends(Outcome::Applied, |_| {}).settle();
    assert_eq!((simulation.run().number, simulation.phase()), (5, WorkspacePhase::Ready));
}

#[test]
fn a_pod_template_that_is_refused_is_not_tried_before_the_spec_changes() {
    for (reason, number) in [(RefusalReason::Invalid, 1), (RefusalReason::Forbidden, 2)] {
        let mut simulation = Simulation::simple();
        simulation.pass();
        let message = "Job \"tf-network-1\" is invalid".to_owned();
        let object = opcore::ObjectId::named::<k8s_openapi::api::batch::v1::Job>(Some("infra"), "tf-network-1");
        let refusal = Refusal { object, reason, message };
        let now = simulation.now;
        refused(simulation.workspace.status.as_mut().unwrap(), &refusal, now);
        simulation.wait(24 * 3600).pass();
        assert_eq!(simulation.run().number, number, "{reason:?}");
        simulation = edited(simulation);
        simulation.wait(24 * 3600).settle();
        assert_eq!(simulation.run().number, number + 1);
    }
}

#[test]
fn what_a_failed_apply_left_incomplete_is_not_recreated_without_a_person() {
    let mut simulation = Simulation::simple();
    let fails = |simulation: &mut Simulation| {
        simulation.ends(Outcome::Failed, |report| report.stage = Stage::Apply).settle();
        simulation.wait(24 * 3600).settle();
    };
    simulation.settle();
    assert!(!simulation.run().repeats);
    fails(&mut simulation);
    assert_eq!((simulation.run().number, simulation.run().repeats), (2, true));
    // A repetition that did not get as far as a plan was not reviewed by a person.
    simulation.ends(Outcome::Interrupted, |_| {}).settle();
    simulation.wait(24 * 3600).settle();
    assert_eq!((simulation.run().number, simulation.run().repeats), (3, true));
    let tainted = |report: &mut Report| {
        let made = report.plan.as_mut().unwrap();
        (made.add, made.destroy, made.approval_reason) = (1, 1, Some(ApprovalReason::ReplacesTainted));
    };
    simulation.ends(Outcome::Planned, tainted).settle();
    assert_eq!(simulation.phase(), WorkspacePhase::AwaitingApproval, "although the approval is Auto");
    assert!(
        simulation.message().contains("resources that the failed apply left incomplete"),
        "{}",
        simulation.message()
    );
    simulation.wait(24 * 3600).settle();
    assert_eq!(simulation.run().number, 3);
    simulation.annotate("infra.opr8r/approve", "plan-3").settle();
    assert_eq!((simulation.run().action, simulation.run().plan.as_deref()), (Action::Apply, Some("plan-3")));
    fails(&mut simulation);
    assert_eq!(
        (simulation.run().number, simulation.run().repeats, simulation.run().plan.as_deref()),
        (5, true, None),
        "and so on"
    );
    // A person who changes the module, or requests a plan, has reviewed it.
    simulation.ends(Outcome::Planned, tainted).settle();
    simulation.annotate("infra.opr8r/replan", "now").settle();
    assert_eq!((simulation.run().number, simulation.run().repeats), (6, false));
    fails(&mut simulation);
    assert!(simulation.run().repeats);
    simulation.ends(Outcome::Failed, |_| {}).settle();
    simulation = simulation.with("variables", json!({ "size": 3 }));
    simulation.settle();
    assert!(!simulation.run().repeats);
}

#[test]
fn a_version_of_the_state_that_was_dropped_goes_unless_someone_writes_it_again() {
    let mut simulation = Simulation::simple().applied();
    let names = render::names(&simulation.workspace);
    let resource = kube::api::ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&());
    for place in [0, 1, 2] {
        let namespace = Some("infra".to_owned());
        let target =
            Target { resource: resource.clone(), namespace, name: names.state_chunk(place, 0), uid: "s".into() };
        simulation.part(target, "kept".to_owned());
    }
    simulation.observed.kept_places = Some([1, 2].into());
    let decision = simulation.decide();
    let deleted = decision.writes.iter().filter_map(|write| match write {
        Write::Delete(delete) => Some((delete.target.name.clone(), delete.resource_version.clone())),
        _ => None,
    });
    assert_eq!(deleted.collect::<Vec<_>>(), [(names.state_chunk(0, 0), Some("7".to_owned()))]);
}

#[test]
fn a_check_block_that_fails_is_reported_once_and_in_a_condition_as_long_as_it_does() {
    let mut simulation = Simulation::simple().with("drift", json!({ "interval": "10m" })).applied();
    let failed = || Diagnostic {
        severity: Severity::Warning,
        summary: "Check block assertion failed".to_owned(),
        detail: Some("The page is down".to_owned()),
        at: Some("main.tf:9".to_owned()),
        ..Diagnostic::default()
    };
    let condition = |simulation: &Simulation| {
        let conditions = simulation.workspace.status.as_ref().unwrap().conditions.clone();
        find(&conditions, "ChecksFailed").map(|condition| condition.message.clone())
    };
    for (expected, fails) in [(1, true), (0, true), (0, false)] {
        simulation.wait(12 * 60).settle();
        assert_eq!(simulation.run().action, Action::Check);
        simulation.ends(Outcome::Checked, |report| report.diagnostics = fails.then(failed).into_iter().collect());
        let reported: Vec<_> =
            simulation.decide().notes.into_iter().filter(|note| note.reason == "CheckFailed").collect();
        assert_eq!(reported.len(), expected, "{reported:?}");
        simulation.settle();
        assert_eq!(simulation.phase(), WorkspacePhase::Ready, "it is applied all the same");
        let expected = fails.then(|| "Check block assertion failed (main.tf:9): The page is down.".to_owned());
        assert_eq!(condition(&simulation), expected);
    }
}

#[test]
fn newer_providers_are_taken_once_when_someone_asks_and_not_again_when_they_fail() {
    let mut simulation = Simulation::simple().applied();
    simulation.annotate("infra.opr8r/upgrade", "now").settle();
    assert_eq!((simulation.run().number, simulation.run().action, simulation.run().upgrade), (2, Action::Apply, true));
    assert!(simulation.run().expects_state, "requesting it does not request that everything is created again");
    simulation.ends(Outcome::Interrupted, |_| {}).settle();
    simulation.wait(3600).settle();
    assert!(simulation.run().upgrade, "it was not tried yet");
    simulation.ends(Outcome::Failed, |report| report.lasting = true).settle();
    simulation.wait(3600).settle();
    assert_eq!((simulation.run().number, simulation.run().upgrade), (4, false), "the old ones may do");
    simulation.ends(Outcome::Unchanged, |_| {}).settle();
    assert_eq!((simulation.run().number, simulation.phase()), (4, WorkspacePhase::Ready));
    // A plan that waits is made again.
    let mut simulation = Simulation::simple().with("approval", json!("Manual"));
    simulation.settle();
    simulation.ends(Outcome::Planned, |_| {}).settle();
    simulation.annotate("infra.opr8r/upgrade", "now").settle();
    assert_eq!((simulation.run().number, simulation.run().action, simulation.run().upgrade), (2, Action::Plan, true));
    simulation.ends(Outcome::Planned, |_| {}).settle();
    simulation.annotate("infra.opr8r/approve", "plan-2").settle();
    assert_eq!(
        (simulation.run().number, simulation.run().upgrade),
        (3, false),
        "it is applied by what it was made with"
    );
}

#[test]
fn forgetting_is_counted_reported_and_waits_under_auto_unless_destroy() {
    let mut simulation = Simulation::simple().with("approval", json!("AutoUnlessDestroy"));
    simulation.settle();
    let forgets = |report: &mut Report| {
        let made = report.plan.as_mut().unwrap();
        (made.add, made.import, made.moved, made.forget) = (0, 1, 0, 2);
        made.approval_reason = Some(ApprovalReason::Forgets);
        made.resources = vec![ChangedResource { address: "aws_vpc.it".to_owned(), action: "forget".to_owned() }];
    };
    simulation.ends(Outcome::Planned, forgets).settle();
    assert_eq!(simulation.phase(), WorkspacePhase::AwaitingApproval);
    let reported = simulation.workspace.status.as_ref().unwrap().plan.clone().unwrap();
    assert_eq!((reported.summary.as_str(), reported.forget), ("+0 ~0 -0, 1 to import, 2 to forget", 2));
    assert!(
        simulation.message().contains("it removes resources from the state without destroying them"),
        "{}",
        simulation.message()
    );
    simulation.annotate("infra.opr8r/approve", "plan-1").settle();
    simulation.ends(Outcome::Applied, forgets);
    let reported = simulation.decide().notes;
    assert!(
        reported[0].message.contains("2 to forget. Removed from the state, but not destroyed: aws_vpc.it."),
        "{reported:?}"
    );
}
