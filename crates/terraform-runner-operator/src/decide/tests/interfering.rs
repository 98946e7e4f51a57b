//! Changes that users make while something is in progress, and changes without an effect.

use opcore::act::{Refusal, RefusalReason};
use opcore::conditions::{READY, is_true};
use serde_json::json;

use super::{JobSeen, Play, Turn};
use crate::api::v1alpha1::{Action, Approval, Outcome, WorkspacePhase};
use crate::decide::refused;
use crate::observe::PodSeen;
use crate::render::Adopted;
use crate::run::report::{Report, Stage};
use crate::slots::Class;

fn manual() -> Play {
    Play::simple().with("approval", json!("Manual"))
}

/// A workspace whose first plan was approved and applied.
fn approved() -> Play {
    let mut play = manual();
    play.settle();
    play.ends(Outcome::Planned, |_| {}).settle();
    play.annotate("infra.opr8r/approve", "plan-1").settle();
    play.ends(Outcome::Applied, |_| {}).settle();
    play
}

/// The spec was changed again.
fn edited(mut play: Play, field: &str, value: serde_json::Value) -> Play {
    play.workspace.metadata.generation = play.workspace.metadata.generation.map(|generation| generation + 1);
    play.with(field, value)
}

fn refusal(job: &str) -> Refusal {
    let object = opcore::ObjectId::named::<k8s_openapi::api::batch::v1::Job>(Some("infra"), job);
    let message = format!("{object} was refused: exceeded quota.");
    Refusal { object, reason: RefusalReason::Forbidden, message }
}

#[test]
fn inputs_that_change_nothing_are_planned_once_and_ready() {
    let mut play = approved();
    play = edited(play, "variables", json!({ "size": 3 }));
    play.settle();
    assert_eq!((play.run().number, play.run().action), (3, Action::Plan));
    play.ends(Outcome::Unchanged, |_| {}).settle();
    assert_eq!((play.run().number, play.phase()), (3, WorkspacePhase::Ready));
    // A destroy works from what exists by now.
    let inputs = play.run().inputs.clone();
    play.delete().settle();
    assert_eq!((play.run().action, &play.run().inputs), (Action::Destroy, &inputs));
}

#[test]
fn a_module_in_a_backend_of_its_own_that_is_emptied_becomes_ready() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    let mut play = Play::simple().with("backend", s3);
    play.settle();
    play.ends(Outcome::Applied, |report| report.state = None).settle();
    play = edited(play, "variables", json!({ "size": 0 }));
    play.settle();
    let nothing = |report: &mut Report| (report.state, report.empty) = (None, true);
    play.ends(Outcome::Unchanged, nothing).settle();
    assert_eq!((play.run().number, play.phase()), (2, WorkspacePhase::Ready));
    play.delete().settle();
    assert_eq!(play.run().action, Action::Destroy, "there was something before");
}

#[test]
fn an_approved_plan_whose_job_is_refused_is_retried_with_growing_delays() {
    let mut play = manual();
    play.settle();
    play.ends(Outcome::Planned, |_| {}).settle();
    play.annotate("infra.opr8r/approve", "plan-1").pass();
    assert_eq!((play.run().number, play.run().action), (2, Action::Apply));
    let now = play.now;
    refused(play.workspace.status.as_mut().unwrap(), &refusal("tf-network-2"), now);
    play.settle();
    assert_eq!((play.run().number, play.reason().as_str()), (2, "RunFailed"));
    play.wait(11).settle();
    assert_eq!((play.run().number, play.run().plan.as_deref()), (3, Some("plan-1")), "the same plan: nothing was done");
}

#[test]
fn what_is_forbidden_before_the_job_is_made_is_not_done() {
    for (field, value) in [("approval", json!("Manual")), ("suspend", json!(true)), ("variables", json!({ "size": 3 }))]
    {
        let mut play = Play::simple().with("approval", json!("AutoUnlessDestroy"));
        play.pass();
        assert_eq!((play.run().number, play.run().action), (1, Action::Apply));
        play = edited(play, field, value);
        let writes = play.settle();
        let made = writes.iter().any(|write| write.starts_with("apply Job") && write.ends_with("-1"));
        assert!(!made, "{field}: {writes:?}");
        assert_eq!(play.workspace.status.as_ref().unwrap().history, [], "{field}: there is nothing to remember");
        match field {
            "approval" => assert_eq!((play.run().number, play.run().action), (2, Action::Plan)),
            "suspend" => assert_eq!((play.phase(), play.run().number), (WorkspacePhase::Suspended, 1)),
            _ => assert_eq!((play.run().number, play.run().action), (2, Action::Apply)),
        }
        assert_ne!(play.workspace.spec.approval, Approval::Auto);
    }
}

#[test]
fn a_new_plan_takes_the_place_of_the_one_that_waited() {
    let mut play = manual();
    play.settle();
    play.ends(Outcome::Planned, |_| {}).settle();
    play.annotate("infra.opr8r/replan", "now").settle();
    play.ends(Outcome::Failed, |_| {}).settle();
    play.annotate("infra.opr8r/approve", "plan-1").settle();
    assert_eq!((play.run().number, play.reason().as_str()), (2, "RunFailed"), "whoever asked for another one meant it");
    play.wait(11).settle();
    assert_eq!((play.run().number, play.run().action), (3, Action::Plan));
}

#[test]
fn another_backend_can_be_planned_and_approved() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    let mut play = edited(approved(), "backend", s3);
    play.settle();
    assert_eq!(play.reason(), "BackendChanged");
    play.annotate("infra.opr8r/replan", "moved").settle();
    play.ends(Outcome::Planned, |_| {}).settle();
    assert_eq!(play.reason(), "AwaitingApproval");
    play.annotate("infra.opr8r/approve", "plan-3").settle();
    play.ends(Outcome::Applied, |report| report.state = None).settle();
    assert_eq!(play.phase(), WorkspacePhase::Ready);
}

#[test]
fn a_run_that_began_nothing_leaves_the_place_of_the_state_as_it_was() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    for force in [false, true] {
        let mut play = Play::simple().with("backend", s3.clone());
        play.settle();
        play.ends(Outcome::Applied, |report| report.state = None).settle();
        let applied = play.run().inputs.clone();
        play = edited(play, "backend", json!({ "managed": {} }));
        play.annotate("infra.opr8r/replan", "moved").settle();
        play.ends(Outcome::Failed, |report| (report.state, report.stage) = (None, Stage::Init)).settle();
        if force {
            play = edited(play, "deletionPolicy", json!("Force"));
        }
        play.delete().settle();
        assert_eq!((play.run().action, &play.run().inputs), (Action::Destroy, &applied), "{}", play.message());
    }
    let mut play = edited(Play::simple().applied(), "backend", s3);
    play.annotate("infra.opr8r/replan", "moved").settle();
    play.ends(Outcome::Failed, |report| report.stage = Stage::Plan).settle();
    play = edited(play, "backend", json!({ "managed": {} }));
    play.wait(3600).settle();
    assert_eq!(play.phase(), WorkspacePhase::Ready, "{}", play.message());
}

#[test]
fn force_gives_up_after_five_hold_ups_of_the_destroy_and_not_for_what_failed_before() {
    let mut play = Play::simple().with("deletionPolicy", json!("Force")).applied();
    play = edited(play, "variables", json!({ "size": 3 }));
    for _ in 0..6 {
        play.settle();
        play.ends(Outcome::Failed, |report| report.stage = Stage::Apply).settle();
        play.wait(3600);
    }
    play.delete().settle();
    for held_up in 1..=5 {
        assert_eq!(play.run().action, Action::Destroy, "{held_up}");
        assert!(play.workspace.metadata.finalizers.is_some(), "{held_up}");
        play.ends(Outcome::Interrupted, |_| {}).settle();
        play.wait(3600).settle();
    }
    assert!(play.workspace.metadata.finalizers.is_none(), "{}", play.message());
}

#[test]
fn a_destroy_whose_job_is_refused_is_held_up_under_force_and_has_not_failed() {
    let mut play = Play::simple().with("deletionPolicy", json!("Force")).applied();
    play.delete();
    while play.run().action != Action::Destroy {
        play.pass();
    }
    let now = play.now;
    refused(play.workspace.status.as_mut().unwrap(), &refusal("tf-network-2"), now);
    play.settle();
    assert!(play.workspace.metadata.finalizers.is_some(), "an API server that has just started forbids for a moment");
    play.wait(3600).settle();
    assert_eq!((play.run().number, play.run().action), (3, Action::Destroy));
}

#[test]
fn retain_stops_a_destroy_that_is_in_progress_and_waits_for_it() {
    let mut play = Play::simple().applied();
    play.delete().settle();
    assert_eq!(play.run().action, Action::Destroy);
    play = edited(play, "deletionPolicy", json!("Retain"));
    let decision = play.decide();
    let writes: Vec<String> = decision.writes.iter().map(ToString::to_string).collect();
    assert_eq!(writes.iter().filter(|write| write.starts_with("delete")).count(), 1, "{writes:?}");
    assert!(writes.iter().any(|write| write.starts_with("delete Job")), "the lock stays: {writes:?}");
    play.seen.jobs.clear();
    play.seen.pod = PodSeen::Leaving { pod: "pod".to_owned(), node: "node".to_owned(), by: play.now };
    play.settle();
    assert!(play.workspace.metadata.finalizers.is_some(), "Terraform may still be saving");
    play.seen.pod = PodSeen::None;
    play.settle();
    assert!(play.workspace.metadata.finalizers.is_none(), "{}", play.message());
}

#[test]
fn nothing_says_that_a_new_spec_is_applied_while_the_old_one_is_compared() {
    let mut play = Play::simple().with("drift", json!({ "interval": "10m" })).applied();
    play.wait(700).settle();
    assert_eq!((play.run().action, play.phase()), (Action::Check, WorkspacePhase::Ready));
    play = edited(play, "variables", json!({ "size": 3 }));
    play.settle();
    let status = play.workspace.status.as_ref().unwrap();
    assert_eq!(status.observed_generation, Some(2));
    assert!(!is_true(&status.conditions, READY), "{status:?}");
    assert_eq!(play.phase(), WorkspacePhase::Pending);
    play.ends(Outcome::Checked, |_| {}).settle();
    assert_eq!(play.run().action, Action::Apply);
}

#[test]
fn a_run_is_not_over_before_its_pod_is_gone() {
    let mut play = Play::simple();
    play.settle();
    play.seen.jobs.clear();
    play.settle();
    assert_eq!((play.run().number, play.reason().as_str()), (1, "Applying"), "its pod still runs");
    play.seen.pod = PodSeen::None;
    play.settle();
    assert_eq!(play.reason(), "RunLost");
}

#[test]
fn a_pod_that_starts_after_all_was_not_given_up() {
    let mut play = Play::simple();
    play.settle();
    play.seen.pod = PodSeen::Stuck("ErrImagePull".to_owned());
    play.delete();
    while !play.run().given_up {
        play.pass();
    }
    play.seen.jobs.clear();
    play.seen.pod = PodSeen::Started;
    play.settle();
    play.seen.pod = PodSeen::None;
    play.settle();
    assert_eq!(play.reason(), "DestroyBlocked", "what it made is not known: {}", play.message());
}

#[test]
fn a_destroy_whose_pod_does_not_start_says_so_and_starts_again_when_the_spec_is_corrected() {
    let mut play = Play::simple().applied();
    play.delete().settle();
    assert_eq!((play.run().number, play.reason().as_str()), (2, "Destroying"));
    play.seen.pod = PodSeen::Stuck("container terraform is not starting: ErrImagePull".to_owned());
    play.settle();
    assert_eq!(play.reason(), "PodNotStarting");
    play = edited(play, "engine", json!({ "image": "one/that:is-there" }));
    play.settle();
    assert_eq!((play.run().number, play.run().action), (3, Action::Destroy));
}

#[test]
fn force_gives_up_a_destroy_whose_pod_does_not_start_in_time() {
    let mut play = Play::simple().with("deletionPolicy", json!("Force")).applied();
    play.delete().settle();
    play.seen.pod = PodSeen::Stuck("its pod cannot be scheduled".to_owned());
    play.wait(119).settle();
    assert!(play.workspace.metadata.finalizers.is_some(), "it may start yet");
    assert!(play.decide().next != opcore::Next::OnEvent);
    play.wait(2).settle();
    assert!(play.workspace.metadata.finalizers.is_none(), "{}", play.message());
}

#[test]
fn a_pod_whose_node_does_not_answer_is_reported_with_what_helps() {
    let mut play = Play::simple();
    play.settle();
    play.seen.pod = PodSeen::Leaving { pod: "tf-1".to_owned(), node: "node-7".to_owned(), by: play.now };
    play.settle();
    assert_eq!(play.reason(), "Applying");
    play.wait(61).settle();
    assert_eq!(play.reason(), "PodNotEnding");
    assert!(play.message().contains("node-7") && play.message().contains("out-of-service"), "{}", play.message());
}

#[test]
fn a_job_of_no_run_goes_and_one_that_has_reported_may_end() {
    let mut play = Play::simple().applied();
    // Kubernetes has not yet noticed that it is over.
    play.seen.jobs[0].ended = None;
    play = edited(play, "variables", json!({ "size": 3 }));
    play.settle();
    assert_eq!((play.run().number, play.seen.jobs.len()), (2, 2));
    play.ends(Outcome::Applied, |_| {}).settle();
    let mut stray: JobSeen = play.seen.jobs[0].clone();
    stray.target.name = "tf-network-stray".to_owned();
    stray.ended = None;
    play.seen.jobs.push(stray);
    assert_eq!(play.settle(), ["delete Job infra/tf-network-stray"]);
}

#[test]
fn a_plan_that_no_longer_fits_is_made_again_at_once() {
    let mut play = manual();
    play.settle();
    play.ends(Outcome::Planned, |_| {}).settle();
    play.annotate("infra.opr8r/approve", "plan-1").settle();
    play.ends(Outcome::Stale, |_| {}).settle();
    assert_eq!((play.run().number, play.run().action), (3, Action::Plan));
}

#[test]
fn what_is_wrong_with_a_spec_is_reported_with_its_field_until_it_is_corrected() {
    let mut play = Play::simple().applied();
    play = edited(play, "module", json!({ "builtin": "nothing" }));
    play.settle();
    let told = play.workspace.status.as_ref().unwrap().diagnostics.clone();
    assert_eq!((told.len(), told[0].field.as_deref()), (1, Some("spec.module.builtin")), "{told:?}");
    play = edited(play, "module", json!({ "inline": { "files": { "main.tf": "" } } }));
    play.settle();
    let status = play.workspace.status.as_ref().unwrap();
    assert_eq!((status.phase, status.diagnostics.len()), (WorkspacePhase::Ready, 0));
}

#[test]
fn a_state_that_was_adopted_is_destroyed_whatever_became_of_the_run_that_did() {
    let adopting = || {
        let adopt = json!({ "managed": { "adopt": { "secretRef": { "name": "old-state" } } } });
        let mut play = Play::simple().with("backend", adopt).with("approval", json!("AutoUnlessDestroy"));
        let keys = Some(vec!["index.json".to_owned()]);
        play.seen.adopted = Some(Adopted { secret: "old-state".to_owned(), keys, ..Adopted::default() });
        play
    };
    let mut play = adopting();
    play.seen.adopted.as_mut().unwrap().keys = None;
    assert!(play.settle().is_empty());
    assert_eq!(play.reason(), "InputNotFound");
    assert!(play.message().contains("Secret old-state does not exist"), "{}", play.message());

    for outcome in [Outcome::Planned, Outcome::Failed, Outcome::Unchanged] {
        let mut play = adopting();
        play.settle();
        assert_eq!(play.run().adopts.as_deref(), Some("old-state"));
        play.ends(outcome, |report| report.plan.as_mut().unwrap().destroy = 1);
        play.seen.adopted = None;
        play.settle();
        play.delete().settle();
        assert_eq!(play.run().action, Action::Destroy, "{outcome:?}: {}", play.message());
    }
    // Its pod is lost after that, or before.
    for saved in [true, false] {
        let mut play = adopting();
        play.settle();
        if saved {
            play.ends(Outcome::Lost, |_| {}).seen.report = None;
            play.seen.adopted = None;
        }
        play.lose_job().settle();
        play.delete().settle();
        assert_eq!(play.reason(), if saved { "Destroying" } else { "DestroyBlocked" }, "{}", play.message());
    }
}

#[test]
fn what_is_left_is_reported_for_every_kind_of_state() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    let left = |mut play: Play, change: fn(&mut Report)| {
        play = play.with("deletionPolicy", json!("Retain"));
        play.settle();
        play.ends(Outcome::Applied, change).settle();
        play.delete();
        let mut notes = Vec::new();
        while play.workspace.metadata.finalizers.is_some() {
            notes.extend(play.decide().notes);
            play.pass();
        }
        notes.into_iter().find(|note| note.reason == "Retained").unwrap().message
    };
    let told = left(Play::simple().with("backend", s3), |report| report.state = None);
    assert!(told.contains("its resources") && told.contains("s3") && told.contains("-in-"), "{told}");
    let told = left(Play::simple(), |report| report.state.as_mut().unwrap().resources = -1);
    assert!(told.contains("its resources") && told.contains("-state") && told.contains("-in-"), "{told}");
    let told = left(Play::simple(), |report| report.state.as_mut().unwrap().resources = 1);
    assert!(told.contains("one resource as it is"), "{told}");
}

#[test]
fn what_a_run_that_begins_nothing_returns_to_is_kept_for_it() {
    let mut play = Play::simple();
    play.settle();
    let first = play.run().inputs.clone();
    play.ends(Outcome::Failed, |report| report.stage = Stage::Apply).settle();
    play = edited(play, "variables", json!({ "size": 3 }));
    play.settle();
    play.ends(Outcome::Failed, |report| report.stage = Stage::Plan).settle();
    play.delete().settle();
    assert_eq!((play.run().action, &play.run().inputs), (Action::Destroy, &first), "{}", play.message());
}

#[test]
fn who_asked_to_go_on_without_a_state_need_not_ask_again() {
    let stateless = |mut play: Play| {
        play.seen.parts.retain(|part| !part.target.name.contains("-state"));
        play = edited(play, "variables", json!({ "size": 3 }));
        play.settle();
        assert_eq!(play.reason(), "StateMissing");
        play.annotate("infra.opr8r/replan", "anew").settle();
        assert!(!play.run().expects_state);
        play
    };
    let mut play = stateless(approved());
    play.ends(Outcome::Planned, |report| report.state = None).settle();
    play.workspace.status.as_mut().unwrap().plan.as_mut().unwrap().serial = 0;
    play.annotate("infra.opr8r/approve", "plan-3").settle();
    assert_eq!((play.run().number, play.run().plan.as_deref()), (4, Some("plan-3")));
    assert!(!play.run().expects_state, "Terraform compares an approved plan with what there is");

    let mut play = Play::simple().applied();
    play = edited(play, "variables", json!({ "size": 2 }));
    play.settle();
    assert!(play.run().expects_state);
    play.ends(Outcome::Applied, |_| {}).settle();
    let mut play = stateless(play);
    play.ends(Outcome::Failed, |report| (report.state, report.stage) = (None, Stage::Init)).settle();
    assert_eq!(play.reason(), "RunFailed");
    play.wait(3600).settle();
    assert!(play.run().number == 4 && !play.run().expects_state, "{:?}", play.run());
}

#[test]
fn a_destroy_that_waited_for_its_operator_has_its_time_to_start() {
    let mut play = Play::simple().with("deletionPolicy", json!("Force")).applied();
    play.delete();
    while play.run().action != Action::Destroy {
        play.pass();
    }
    play.wait(600).pass();
    assert_eq!(play.seen.jobs.iter().filter(|job| job.ended.is_none()).count(), 1, "its Job is made just now");
    play.seen.pod = PodSeen::None;
    play.settle();
    assert_eq!(play.seen.jobs.iter().filter(|job| job.ended.is_none()).count(), 1, "{}", play.message());
    assert!(play.workspace.metadata.finalizers.is_some());
}

#[test]
fn a_pod_that_takes_too_long_to_start_is_reported_and_given_up_as_one_that_says_why() {
    let mut play = Play::simple().with("deletionPolicy", json!("Force")).applied();
    play.delete().settle();
    play.seen.pod = PodSeen::Starting { pod: "tf-2".to_owned(), since: Some(play.now) };
    play.settle();
    assert_eq!(play.reason(), "Destroying");
    play.wait(61).settle();
    assert_eq!(play.reason(), "PodNotStarting");
    assert!(play.message().contains("kubectl describe pod tf-2"), "{}", play.message());
    play.wait(60).settle();
    assert!(play.workspace.metadata.finalizers.is_none(), "{}", play.message());
}

#[test]
fn a_destroy_that_waits_for_its_job_keeps_its_turn() {
    let mut play = Play::simple().applied();
    play = edited(play, "variables", json!({ "size": 3 }));
    play.delete();
    while play.run().action != Action::Destroy {
        play.pass();
    }
    assert_eq!(play.decide().claims, Turn::Keep(Class::Run));
}

#[test]
fn a_comparison_whose_pod_does_not_start_takes_nothing_away_and_is_reported() {
    let mut play = Play::simple().with("drift", json!({ "interval": "10m" })).applied();
    play.wait(700).settle();
    assert_eq!(play.run().action, Action::Check);
    play.seen.pod = PodSeen::Stuck("its pod cannot be scheduled".to_owned());
    play.settle();
    assert_eq!(play.phase(), WorkspacePhase::Ready);
    assert!(
        play.message().contains("not being compared with the state") && play.message().contains("cannot be scheduled")
    );
    play.lose_job();
    let notes = play.decide().notes;
    assert_eq!(notes[0].reason, "DriftCheckFailed");
    play.settle();
    let status = play.workspace.status.as_ref().unwrap();
    assert_eq!((status.phase, status.diagnostics.len()), (WorkspacePhase::Ready, 0));
    assert_eq!(status.drift.as_ref().unwrap().summary, "Unknown");
}
