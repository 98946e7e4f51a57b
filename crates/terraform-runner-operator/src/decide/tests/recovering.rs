//! Failures half-way that end well.

use opcore::act::{Refusal, RefusalReason};
use serde_json::json;

use super::{Play, lock};
use crate::api::v1alpha1::{Action, FINALIZER, Outcome, WorkspacePhase};
use crate::decide::refused;
use crate::observe::{JobEnd, PodSeen};
use crate::render::{self, Sources};
use crate::run::report::{Journal, Report, Stage};

/// Whether a deletion that has just begun ends without further input.
fn goes(play: &mut Play) -> bool {
    play.settle().last() == Some(&format!("remove finalizer {FINALIZER}"))
}

#[test]
fn a_lost_run_of_an_approved_plan_is_not_repeated_without_a_new_approval() {
    let mut play = Play::simple().with("approval", json!("Manual"));
    play.settle();
    play.ends(Outcome::Planned, |_| {}).settle();
    play.annotate("infra.opr8r/approve", "plan-1").settle();
    play.lose_job().settle();
    assert_eq!((play.run().number, play.reason().as_str()), (2, "RunLost"));
    play.wait(11).settle();
    assert_eq!((play.run().number, play.run().action), (3, Action::Plan), "what it did is not known: plan anew");
}

#[test]
fn what_a_lost_run_had_begun_to_make_is_reported() {
    let mut play = Play::simple().applied();
    play = play.with("variables", json!({ "size": 3 }));
    play.settle();
    let begun = |run: &str| {
        Some(Journal { run: run.to_owned(), begun: [("aws_vpc.next".to_owned(), "aws_vpc.next".to_owned())].into() })
    };
    let job = play.run().job.clone();
    play.lose_job();
    play.seen.journal = begun("of an older run");
    assert_eq!(play.decide().notes, []);
    play.seen.journal = begun(&job);
    let notes = play.decide().notes;
    assert_eq!((notes.len(), notes[0].reason.as_str()), (1, "ResourcesNotRecorded"));
    assert!(notes[0].message.contains("aws_vpc.next"), "{}", notes[0].message);
    play.settle();
    assert_eq!(play.reason(), "RunLost");
    assert_eq!(play.decide().notes, [], "once");
}

#[test]
fn how_long_the_stages_took_is_reported_for_each_run() {
    let mut play = Play::simple();
    play.settle();
    let spent = [(Stage::Prepare, 3), (Stage::Init, 60), (Stage::Plan, 1200)];
    play.ends(Outcome::Failed, |report| report.milliseconds = spent.into()).settle();
    let told = play.workspace.status.as_ref().unwrap().history[0].stages;
    assert_eq!(json!(told), json!({ "init": "60ms", "plan": "1s200ms" }));
}

#[test]
fn a_module_that_makes_nothing_in_a_backend_of_its_own_goes_without_a_destroy() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    let nothing = |empty: bool| {
        let mut play = Play::simple().with("backend", s3.clone());
        play.settle();
        let change = |report: &mut Report| (report.state, report.empty) = (None, empty);
        play.ends(Outcome::Unchanged, change).settle();
        assert_eq!(play.phase(), WorkspacePhase::Ready);
        play.delete();
        play
    };
    assert!(goes(&mut nothing(true)));
    let mut doubtful = nothing(false);
    doubtful.settle();
    assert_eq!(doubtful.run().action, Action::Destroy, "there may be something");
}

#[test]
fn a_workspace_that_is_deleted_before_its_job_is_made_goes() {
    let mut play = Play::simple();
    play.pass();
    assert_eq!(play.run().number, 1);
    assert!(play.seen.jobs.is_empty());
    play.delete();
    assert!(goes(&mut play), "{}", play.message());
}

#[test]
fn a_job_that_is_refused_ends_its_run_and_is_retried_later() {
    let mut play = Play::simple();
    play.pass();
    let refusal = Refusal {
        object: opcore::ObjectId::named::<k8s_openapi::api::batch::v1::Job>(Some("infra"), "tf-network-1"),
        reason: RefusalReason::Forbidden,
        message: "Job infra/tf-network-1 was refused: exceeded quota.".to_owned(),
    };
    let now = play.now;
    refused(play.workspace.status.as_mut().unwrap(), &refusal, now);
    assert_eq!(play.run().outcome, Some(Outcome::Failed));
    assert_eq!(play.workspace.status.as_ref().unwrap().begun_inputs, None, "nothing was applied");
    play.settle();
    assert_eq!(play.reason(), "RunFailed");
    assert!(play.message().contains("exceeded quota"), "{}", play.message());
    play.wait(11).settle();
    assert_eq!(play.run().number, 2);
}

#[test]
fn a_run_whose_container_cannot_be_started_has_applied_nothing_and_its_workspace_can_go() {
    let unstartable = |play: &mut Play| {
        let job = play.run().job.clone();
        let job = play.seen.jobs.iter_mut().find(|known| known.target.name == job).unwrap();
        job.ended = Some(JobEnd::Failed("BackoffLimitExceeded".to_owned()));
        play.seen.pod = PodSeen::NeverRan("container terraform could not be started: StartError".to_owned());
        play.settle();
    };
    let mut play = Play::simple();
    play.settle();
    unstartable(&mut play);
    assert_eq!((play.reason().as_str(), play.run().outcome), ("RunFailed", Some(Outcome::Failed)));
    assert!(play.message().contains("container terraform could not be started: StartError"), "{}", play.message());
    assert_eq!(play.workspace.status.as_ref().unwrap().begun_inputs, None, "nothing was applied");
    play.wait(11).settle();
    assert_eq!(play.run().number, 2, "it is tried again");
    unstartable(&mut play);
    play.delete();
    assert!(goes(&mut play), "{}", play.message());

    // What was applied before stays to be destroyed.
    let mut play = Play::simple().applied().with("variables", json!({ "size": 3 }));
    let before = play.workspace.status.as_ref().unwrap().begun_inputs.clone();
    play.settle();
    unstartable(&mut play);
    assert_eq!(play.workspace.status.as_ref().unwrap().begun_inputs, before);
    play.delete().settle();
    assert_eq!(play.run().action, Action::Destroy);
}

#[test]
fn a_state_that_the_status_knows_nothing_of_is_kept_when_the_workspace_is_deleted() {
    let cases = ["Destroy", "Force", "Retain"].into_iter().flat_map(|policy| [(policy, false), (policy, true)]);
    for (policy, planned) in cases {
        let mut play = Play::simple().with("deletionPolicy", json!(policy)).applied();
        // Someone edits it, and what is wanted by then may not even be planned.
        play.workspace.status = None;
        if planned {
            play.lose_job().seen.report = None;
            play.settle();
            play.ends(Outcome::Failed, |_| {}).settle();
            assert_eq!(play.workspace.status.as_ref().unwrap().begun_inputs, None);
        }
        play.delete();
        assert_eq!(goes(&mut play), policy != "Destroy", "{policy}: {}", play.message());
        if policy == "Destroy" {
            assert_eq!(play.reason(), "DestroyBlocked");
            assert!(play.message().contains("-state has a state of it. To delete the workspace"), "{}", play.message());
        }
        assert!(play.seen.parts.iter().any(|part| part.target.name.ends_with("-state")), "{policy}");
    }
}

#[test]
fn a_report_about_other_inputs_is_not_taken_for_that_of_a_run_with_the_same_name() {
    let mut play = Play::simple().applied();
    // Someone edits the status, so that runs are counted from one again, and the spec is another one by then.
    play.workspace.status = None;
    play = play.with("variables", json!({ "size": 3 }));
    play.settle();
    assert_ne!(play.phase(), WorkspacePhase::Ready, "nothing of that was applied");
    play.wait(11).settle();
    assert_eq!((play.run().number, play.run().action), (2, Action::Apply));
    play.ends(Outcome::Applied, |_| {}).settle();
    assert_eq!(play.phase(), WorkspacePhase::Ready);
}

#[test]
fn a_run_whose_pod_does_not_start_is_reported_and_given_up_when_the_spec_is_corrected() {
    let mut play = Play::simple();
    play.settle();
    play.seen.pod = PodSeen::Stuck("container terraform is not starting: ErrImagePull".to_owned());
    play.settle();
    assert!(play.message().contains("ErrImagePull"), "{}", play.message());
    assert_eq!((play.reason().as_str(), play.seen.jobs.len()), ("PodNotStarting", 1), "it may start yet");
    play.workspace.metadata.generation = Some(2);
    assert_eq!(play.pass(), [""; 0], "that it has not started is published first");
    let writes = play.pass();
    assert!(writes.iter().any(|write| write.starts_with("delete Job")), "{writes:?}");
    play.seen.pod = PodSeen::None;
    play.settle();
    assert_eq!((play.run().number, play.phase()), (2, WorkspacePhase::Applying), "and at once");
}

#[test]
fn a_run_whose_pod_has_started_goes_on_although_the_spec_changes() {
    let mut play = Play::simple();
    play.settle();
    play.seen.pod = PodSeen::Stuck("it waits".to_owned());
    play.workspace.metadata.generation = Some(2);
    play.pass();
    play.seen.pod = PodSeen::Started;
    assert!(play.settle().is_empty());
    assert_eq!((play.run().number, play.seen.jobs.len()), (1, 1));
}

#[test]
fn a_workspace_whose_first_pod_never_started_goes_when_it_is_deleted() {
    let mut play = Play::simple();
    play.settle();
    play.seen.pod = PodSeen::Stuck("its pod cannot be scheduled".to_owned());
    play.delete();
    assert!(goes(&mut play), "{}", play.message());
}

#[test]
fn a_job_without_a_pod_is_reported_after_a_while() {
    let mut play = Play::simple();
    play.settle();
    play.seen.pod = PodSeen::None;
    play.settle();
    assert_eq!(play.reason(), "Applying");
    play.wait(11).settle();
    assert!(play.message().contains("kubectl describe job"), "{}", play.message());
}

#[test]
fn the_inputs_before_a_change_that_failed_half_way_are_applied_again() {
    let mut play = Play::simple().applied();
    play = play.with("variables", json!({ "size": 3 }));
    play.settle();
    play.ends(Outcome::Failed, |report| report.stage = Stage::Apply).settle();
    play = play.with("variables", json!({}));
    play.settle();
    assert_eq!((play.run().number, play.run().action), (3, Action::Apply));
    play.ends(Outcome::Applied, |_| {}).settle();
    assert_eq!(play.phase(), WorkspacePhase::Ready);
}

#[test]
fn a_failure_of_inputs_that_nobody_wants_any_more_is_forgotten() {
    let mut play = Play::simple().applied();
    play = play.with("variables", json!({ "size": 3 }));
    play.settle();
    play.ends(Outcome::Failed, |_| {}).settle();
    assert_eq!(play.workspace.status.as_ref().unwrap().failures, 1);
    play = play.with("variables", json!({}));
    play.settle();
    let status = play.workspace.status.as_ref().unwrap();
    assert_eq!((play.phase(), status.failures, status.diagnostics.len()), (WorkspacePhase::Ready, 0, 0));
}

#[test]
fn another_backend_is_reported_and_nothing_is_recreated_unless_asked_for() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    let mut play = Play::simple().applied();
    play = play.with("backend", s3);
    play.settle();
    assert_eq!((play.reason().as_str(), play.run().number), ("BackendChanged", 1));
    assert!(play.message().contains("spec.backend") && play.message().contains("replan"), "{}", play.message());
    play.annotate("infra.opr8r/replan", "moved").settle();
    assert_eq!(play.run().number, 2);
    play.ends(Outcome::Applied, |report| report.state = None).settle();
    assert_eq!(play.phase(), WorkspacePhase::Ready);
    // The state here describes what a destroy there leaves untouched.
    play.delete().settle();
    play.ends(Outcome::Destroyed, |report| report.state = None);
    assert!(goes(&mut play), "{}", play.message());
    assert!(play.seen.parts.iter().any(|part| part.target.name.ends_with("-state")), "{:?}", play.seen.parts);
}

#[test]
fn a_place_that_was_recorded_without_a_key_is_the_same_place_and_is_recorded_with_it() {
    let s3 = |bucket: &str| json!({ "custom": { "type": "s3", "config": { "bucket": bucket } } });
    let mut play = Play::simple().with("backend", s3("b")).applied();
    // An older version keyed the hash of the inputs, and not the place.
    let look = |play: &mut Play| {
        let salt = "0123456789abcdef0123456789abcdef".to_owned();
        let key = render::Key { salt, known: Vec::new() };
        play.seen.inputs = render::keyed_inputs(&play.workspace.spec, &Sources::new(), &key);
        play.seen.inputs.clone().unwrap()
    };
    let inputs = look(&mut play);
    let status = play.workspace.status.as_mut().unwrap();
    let run = status.run.as_mut().unwrap();
    assert_eq!(status.begun_backend.as_ref(), Some(&inputs.unkeyed_backend));
    assert_ne!(inputs.backend, inputs.unkeyed_backend);
    (run.inputs, run.previous_backend) = (inputs.hash.clone(), status.begun_backend.clone());
    status.last_applied.as_mut().unwrap().hash = inputs.hash.clone();
    status.begun_inputs = Some(inputs.hash);
    play.settle();
    assert_eq!((play.phase(), play.run().number), (WorkspacePhase::Ready, 1), "{}", play.message());
    let now = Some(inputs.backend);
    assert_eq!(play.workspace.status.as_ref().unwrap().begun_backend, now);
    assert_eq!((play.run().backend.clone(), play.run().previous_backend.clone()), (now.clone(), now));
    let everything = serde_json::to_string(&play.workspace.status).unwrap();
    assert!(!everything.contains(&inputs.unkeyed_backend), "{everything}");

    play = play.with("backend", s3("other"));
    look(&mut play);
    play.settle();
    assert_eq!((play.reason().as_str(), play.run().number), ("BackendChanged", 1), "another place is another place");
}

#[test]
fn a_managed_backend_may_be_written_out_or_left_out() {
    let mut play = Play::simple().applied();
    play = play.with("backend", json!({ "managed": {} }));
    play.settle();
    assert_eq!(play.phase(), WorkspacePhase::Ready);
}

#[test]
fn a_plan_without_the_state_that_is_gone_can_be_approved() {
    let mut play = Play::simple().with("approval", json!("Manual"));
    play.settle();
    play.ends(Outcome::Planned, |_| {}).settle();
    play.annotate("infra.opr8r/approve", "plan-1").settle();
    play.ends(Outcome::Applied, |_| {}).settle();
    play.seen.parts.retain(|part| !part.target.name.contains("-state"));
    play.settle();
    assert_eq!(play.reason(), "StateMissing");
    play.annotate("infra.opr8r/replan", "anew").settle();
    play.ends(Outcome::Planned, |report| {
        report.state = None;
        report.plan.as_mut().unwrap().serial = 0;
    });
    play.settle();
    assert_eq!(play.phase(), WorkspacePhase::AwaitingApproval);
}

#[test]
fn a_comparison_that_fails_leaves_what_was_known_of_drift_and_off_ends_it() {
    let mut play = Play::simple().with("drift", json!({ "interval": "10m" })).applied();
    let drifted = |play: &Play| {
        let status = play.workspace.status.as_ref().unwrap();
        status.conditions.iter().any(|condition| condition.type_ == "Drifted" && condition.status == "True")
    };
    play.wait(700).settle();
    play.ends(Outcome::Checked, |report| report.drift.count = 1).settle();
    assert!(drifted(&play));
    play.wait(700).settle();
    play.ends(Outcome::Failed, |_| {}).settle();
    assert!(drifted(&play), "nobody could look");
    play = play.with("drift", json!({ "action": "Off" }));
    play.settle();
    assert!(!drifted(&play) && play.workspace.status.as_ref().unwrap().drift.is_none());
}

#[test]
fn a_destroy_whose_end_is_not_verified_is_a_failed_one() {
    let mut play = Play::simple().applied();
    play.delete().settle();
    play.ends(Outcome::Destroyed, |report| report.empty = false);
    assert!(!goes(&mut play));
    assert_eq!(play.reason(), "DestroyFailed");
    assert!(play.message().contains("could not be verified"), "{}", play.message());
    assert_eq!(play.run().number, 2, "it is not tried again at once");
}

#[test]
fn force_does_not_give_up_what_was_only_held_up() {
    let mut play = Play::simple().with("deletionPolicy", json!("Force")).applied();
    play.delete().settle();
    for _ in 0..4 {
        play.ends(Outcome::Interrupted, |_| {});
        assert!(!goes(&mut play), "a drained node is no reason to leave everything behind");
        play.wait(3600).settle();
    }
    play.ends(Outcome::Interrupted, |_| {});
    assert!(goes(&mut play), "{}", play.message());
}

#[test]
fn jobs_of_destroys_that_failed_are_kept_by_count_too() {
    let mut play = Play::simple().with("history", json!({ "failedJobs": 1 })).applied();
    play.delete();
    for _ in 0..4 {
        play.settle();
        play.ends(Outcome::Failed, |_| {}).settle();
        play.wait(3600);
    }
    assert!(play.seen.jobs.len() <= 2, "{:?}", play.seen.jobs.len());
}

#[test]
fn a_request_to_unlock_is_carried_out_once() {
    let mut play = Play::simple();
    play.seen.lock = Some(lock(true, 30));
    play.annotate("infra.opr8r/unlock", "pod-1");
    assert_eq!(play.pass(), ["delete Lease infra/lock"]);
    play.seen.lock = Some(lock(true, 30));
    assert_eq!(play.pass(), [""; 0], "its next lock is another one");
    let mut next = lock(true, 30);
    next.since = Some(play.now);
    let exactly = next.words();
    play.seen.lock = Some(next);
    play.annotate("infra.opr8r/unlock", &exactly);
    assert_eq!(play.pass(), ["delete Lease infra/lock"]);
}
