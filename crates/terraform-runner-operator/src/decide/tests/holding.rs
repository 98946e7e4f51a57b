//! What waits for a person, and what is not repeated without one.

use opcore::Write;
use opcore::act::{Refusal, RefusalReason};
use opcore::conditions::{STALLED, find, is_true};
use opcore::writes::Target;
use serde_json::json;

use super::Play;
use crate::api::v1alpha1::{Action, ApprovalReason, ChangedResource, Diagnostic, Outcome, Severity, WorkspacePhase};
use crate::decide::refused;
use crate::render;
use crate::run::report::{Report, Stage};

/// The spec is changed in a way that changes no inputs.
fn edited(mut play: Play) -> Play {
    let generation = play.workspace.metadata.generation.as_mut().unwrap();
    *generation += 1;
    let minutes = format!("{generation}m");
    play.with("timeouts", json!({ "plan": minutes }))
}

#[test]
fn what_the_same_inputs_bring_about_each_time_is_not_repeated_before_they_change_or_someone_asks() {
    let mut play = Play::simple();
    let fails = |play: &mut Play, number: i64| {
        play.settle();
        assert_eq!(play.run().number, number);
        play.ends(Outcome::Failed, |report| report.lasting = true).settle();
        play.wait(24 * 3600).settle();
        assert_eq!((play.run().number, play.reason().as_str()), (number, "RunFailed"));
        assert!(is_true(&play.workspace.status.as_ref().unwrap().conditions, STALLED));
        assert!(play.message().contains("not retried until the spec or the inputs change"), "{}", play.message());
        assert_eq!(play.workspace.status.as_ref().unwrap().retry_at, None);
    };
    fails(&mut play, 1);
    play = edited(play);
    fails(&mut play, 2);
    play.annotate("infra.opr8r/replan", "now");
    fails(&mut play, 3);
    play = play.with("variables", json!({ "size": 3 }));
    fails(&mut play, 4);
    play = edited(play);
    play.settle();
    play.ends(Outcome::Applied, |_| {}).settle();
    assert_eq!((play.run().number, play.phase()), (5, WorkspacePhase::Ready));
}

#[test]
fn a_pod_template_that_is_refused_is_not_tried_before_the_spec_changes() {
    for (reason, number) in [(RefusalReason::Invalid, 1), (RefusalReason::Forbidden, 2)] {
        let mut play = Play::simple();
        play.pass();
        let message = "Job \"tf-network-1\" is invalid".to_owned();
        let object = opcore::ObjectId::named::<k8s_openapi::api::batch::v1::Job>(Some("infra"), "tf-network-1");
        let refusal = Refusal { object, reason, message };
        let now = play.now;
        refused(play.workspace.status.as_mut().unwrap(), &refusal, now);
        play.wait(24 * 3600).pass();
        assert_eq!(play.run().number, number, "{reason:?}");
        play = edited(play);
        play.wait(24 * 3600).settle();
        assert_eq!(play.run().number, number + 1);
    }
}

#[test]
fn what_a_failed_apply_left_incomplete_is_not_recreated_without_a_person() {
    let mut play = Play::simple();
    let fails = |play: &mut Play| {
        play.ends(Outcome::Failed, |report| report.stage = Stage::Apply).settle();
        play.wait(24 * 3600).settle();
    };
    play.settle();
    assert!(!play.run().repeats);
    fails(&mut play);
    assert_eq!((play.run().number, play.run().repeats), (2, true));
    // A repetition that did not get as far as a plan was not looked at by a person.
    play.ends(Outcome::Interrupted, |_| {}).settle();
    play.wait(24 * 3600).settle();
    assert_eq!((play.run().number, play.run().repeats), (3, true));
    let tainted = |report: &mut Report| {
        let made = report.plan.as_mut().unwrap();
        (made.add, made.destroy, made.approval_reason) = (1, 1, Some(ApprovalReason::ReplacesTainted));
    };
    play.ends(Outcome::Planned, tainted).settle();
    assert_eq!(play.phase(), WorkspacePhase::AwaitingApproval, "although the approval is Auto");
    assert!(play.message().contains("resources that the failed apply left incomplete"), "{}", play.message());
    play.wait(24 * 3600).settle();
    assert_eq!(play.run().number, 3);
    play.annotate("infra.opr8r/approve", "plan-3").settle();
    assert_eq!((play.run().action, play.run().plan.as_deref()), (Action::Apply, Some("plan-3")));
    fails(&mut play);
    assert_eq!((play.run().number, play.run().repeats, play.run().plan.as_deref()), (5, true, None), "and so on");
    // A person who changes the module, or requests a plan, has looked.
    play.ends(Outcome::Planned, tainted).settle();
    play.annotate("infra.opr8r/replan", "now").settle();
    assert_eq!((play.run().number, play.run().repeats), (6, false));
    fails(&mut play);
    assert!(play.run().repeats);
    play.ends(Outcome::Failed, |_| {}).settle();
    play = play.with("variables", json!({ "size": 3 }));
    play.settle();
    assert!(!play.run().repeats);
}

#[test]
fn a_version_of_the_state_that_was_dropped_goes_unless_someone_writes_it_again() {
    let mut play = Play::simple().applied();
    let names = render::names(&play.workspace);
    let resource = kube::api::ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&());
    for place in [0, 1, 2] {
        let namespace = Some("infra".to_owned());
        let target =
            Target { resource: resource.clone(), namespace, name: names.state_chunk(place, 0), uid: "s".into() };
        play.part(target, "kept".to_owned());
    }
    play.seen.kept_places = Some([1, 2].into());
    let decision = play.decide();
    let deleted = decision.writes.iter().filter_map(|write| match write {
        Write::Delete(delete) => Some((delete.target.name.clone(), delete.resource_version.clone())),
        _ => None,
    });
    assert_eq!(deleted.collect::<Vec<_>>(), [(names.state_chunk(0, 0), Some("7".to_owned()))]);
}

#[test]
fn a_check_block_that_fails_is_reported_once_and_in_a_condition_as_long_as_it_does() {
    let mut play = Play::simple().with("drift", json!({ "interval": "10m" })).applied();
    let failed = || Diagnostic {
        severity: Severity::Warning,
        summary: "Check block assertion failed".to_owned(),
        detail: Some("The page is down".to_owned()),
        at: Some("main.tf:9".to_owned()),
        ..Diagnostic::default()
    };
    let condition = |play: &Play| {
        let conditions = play.workspace.status.as_ref().unwrap().conditions.clone();
        find(&conditions, "ChecksFailed").map(|condition| condition.message.clone())
    };
    for (expected, fails) in [(1, true), (0, true), (0, false)] {
        play.wait(12 * 60).settle();
        assert_eq!(play.run().action, Action::Check);
        play.ends(Outcome::Checked, |report| report.diagnostics = fails.then(failed).into_iter().collect());
        let told: Vec<_> = play.decide().notes.into_iter().filter(|note| note.reason == "CheckFailed").collect();
        assert_eq!(told.len(), expected, "{told:?}");
        play.settle();
        assert_eq!(play.phase(), WorkspacePhase::Ready, "it is applied all the same");
        let expected = fails.then(|| "Check block assertion failed (main.tf:9): The page is down.".to_owned());
        assert_eq!(condition(&play), expected);
    }
}

#[test]
fn newer_providers_are_taken_once_when_someone_asks_and_not_again_when_they_fail() {
    let mut play = Play::simple().applied();
    play.annotate("infra.opr8r/upgrade", "now").settle();
    assert_eq!((play.run().number, play.run().action, play.run().upgrade), (2, Action::Apply, true));
    assert!(play.run().expects_state, "whoever asks for it does not ask for everything to be made anew");
    play.ends(Outcome::Interrupted, |_| {}).settle();
    play.wait(3600).settle();
    assert!(play.run().upgrade, "it was not tried yet");
    play.ends(Outcome::Failed, |report| report.lasting = true).settle();
    play.wait(3600).settle();
    assert_eq!((play.run().number, play.run().upgrade), (4, false), "the old ones may do");
    play.ends(Outcome::Unchanged, |_| {}).settle();
    assert_eq!((play.run().number, play.phase()), (4, WorkspacePhase::Ready));
    // A plan that waits is made again.
    let mut play = Play::simple().with("approval", json!("Manual"));
    play.settle();
    play.ends(Outcome::Planned, |_| {}).settle();
    play.annotate("infra.opr8r/upgrade", "now").settle();
    assert_eq!((play.run().number, play.run().action, play.run().upgrade), (2, Action::Plan, true));
    play.ends(Outcome::Planned, |_| {}).settle();
    play.annotate("infra.opr8r/approve", "plan-2").settle();
    assert_eq!((play.run().number, play.run().upgrade), (3, false), "it is applied by what it was made with");
}

#[test]
fn forgetting_is_counted_reported_and_waits_under_auto_unless_destroy() {
    let mut play = Play::simple().with("approval", json!("AutoUnlessDestroy"));
    play.settle();
    let forgets = |report: &mut Report| {
        let made = report.plan.as_mut().unwrap();
        (made.add, made.import, made.moved, made.forget) = (0, 1, 0, 2);
        made.approval_reason = Some(ApprovalReason::Forgets);
        made.resources = vec![ChangedResource { address: "aws_vpc.it".to_owned(), action: "forget".to_owned() }];
    };
    play.ends(Outcome::Planned, forgets).settle();
    assert_eq!(play.phase(), WorkspacePhase::AwaitingApproval);
    let told = play.workspace.status.as_ref().unwrap().plan.clone().unwrap();
    assert_eq!((told.summary.as_str(), told.forget), ("+0 ~0 -0, 1 to import, 2 to forget", 2));
    assert!(
        play.message().contains("it removes resources from the state without destroying them"),
        "{}",
        play.message()
    );
    play.annotate("infra.opr8r/approve", "plan-1").settle();
    play.ends(Outcome::Applied, forgets);
    let told = play.decide().notes;
    assert!(
        told[0].message.contains("2 to forget. Removed from the state, but not destroyed: aws_vpc.it."),
        "{told:?}"
    );
}
