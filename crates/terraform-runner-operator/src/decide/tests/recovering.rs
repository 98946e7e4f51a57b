//! Failures half-way that end well.

use opcore::act::{Refusal, RefusalReason};
use serde_json::json;

use super::{Simulation, lock};
use crate::api::v1alpha1::{Action, FINALIZER, Outcome, WorkspacePhase};
use crate::decide::refused;
use crate::observe::{JobEnd, ObservedPod};
use crate::render::{self, Sources};
use crate::run::report::{Journal, Report, Stage};

/// Whether a deletion that has just begun ends without further input.
fn goes(simulation: &mut Simulation) -> bool {
    simulation.settle().last() == Some(&format!("remove finalizer {FINALIZER}"))
}

#[test]
fn a_lost_run_of_an_approved_plan_is_not_repeated_without_a_new_approval() {
    let mut simulation = Simulation::simple().with("approval", json!("Manual"));
    simulation.settle();
    simulation.ends(Outcome::Planned, |_| {}).settle();
    simulation.annotate("infra.opr8r/approve", "plan-1").settle();
    simulation.lose_job().settle();
    assert_eq!((simulation.run().number, simulation.reason().as_str()), (2, "RunLost"));
    simulation.wait(11).settle();
    assert_eq!(
        (simulation.run().number, simulation.run().action),
        (3, Action::Plan),
        "what it did is not known: plan again"
    );
}

#[test]
fn what_a_lost_run_had_begun_to_make_is_reported() {
    let mut simulation = Simulation::simple().applied();
    simulation = simulation.with("variables", json!({ "size": 3 }));
    simulation.settle();
    let begun = |run: &str| {
        Some(Journal { run: run.to_owned(), begun: [("aws_vpc.next".to_owned(), "aws_vpc.next".to_owned())].into() })
    };
    let job = simulation.run().job.clone();
    simulation.lose_job();
    simulation.observed.journal = begun("of an older run");
    assert_eq!(simulation.decide().notes, []);
    simulation.observed.journal = begun(&job);
    let notes = simulation.decide().notes;
    assert_eq!((notes.len(), notes[0].reason.as_str()), (1, "ResourcesNotRecorded"));
    assert!(notes[0].message.contains("aws_vpc.next"), "{}", notes[0].message);
    simulation.settle();
    assert_eq!(simulation.reason(), "RunLost");
    assert_eq!(simulation.decide().notes, [], "once");
}

#[test]
fn how_long_the_stages_took_is_reported_for_each_run() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    let spent = [(Stage::Prepare, 3), (Stage::Init, 60), (Stage::Plan, 1200)];
    simulation.ends(Outcome::Failed, |report| report.milliseconds = spent.into()).settle();
    let reported = simulation.workspace.status.as_ref().unwrap().history[0].stages;
    assert_eq!(json!(reported), json!({ "init": "60ms", "plan": "1s200ms" }));
}

#[test]
fn a_module_that_makes_nothing_in_a_backend_of_its_own_goes_without_a_destroy() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    let nothing = |empty: bool| {
        let mut simulation = Simulation::simple().with("backend", s3.clone());
        simulation.settle();
        let change = |report: &mut Report| (report.state, report.empty) = (None, empty);
        simulation.ends(Outcome::Unchanged, change).settle();
        assert_eq!(simulation.phase(), WorkspacePhase::Ready);
        simulation.delete();
        simulation
    };
    assert!(goes(&mut nothing(true)));
    let mut doubtful = nothing(false);
    doubtful.settle();
    assert_eq!(doubtful.run().action, Action::Destroy, "there may be something");
}

#[test]
fn a_workspace_that_is_deleted_before_its_job_is_made_goes() {
    let mut simulation = Simulation::simple();
    simulation.pass();
    assert_eq!(simulation.run().number, 1);
    assert!(simulation.observed.jobs.is_empty());
    simulation.delete();
    assert!(goes(&mut simulation), "{}", simulation.message());
}

#[test]
fn a_job_that_is_refused_ends_its_run_and_is_retried_later() {
    let mut simulation = Simulation::simple();
    simulation.pass();
    let refusal = Refusal {
        object: opcore::ObjectId::named::<k8s_openapi::api::batch::v1::Job>(Some("infra"), "tf-network-1"),
        reason: RefusalReason::Forbidden,
        message: "Job infra/tf-network-1 was refused: exceeded quota.".to_owned(),
    };
    let now = simulation.now;
    refused(simulation.workspace.status.as_mut().unwrap(), &refusal, now);
    assert_eq!(simulation.run().outcome, Some(Outcome::Failed));
    assert_eq!(simulation.workspace.status.as_ref().unwrap().begun_inputs, None, "nothing was applied");
    simulation.settle();
    assert_eq!(simulation.reason(), "RunFailed");
    assert!(simulation.message().contains("exceeded quota"), "{}", simulation.message());
    simulation.wait(11).settle();
    assert_eq!(simulation.run().number, 2);
}

#[test]
fn a_run_whose_container_cannot_be_started_has_applied_nothing_and_its_workspace_can_go() {
    let unstartable = |simulation: &mut Simulation| {
        let job = simulation.run().job.clone();
        let job = simulation.observed.jobs.iter_mut().find(|known| known.target.name == job).unwrap();
        job.ended = Some(JobEnd::Failed("BackoffLimitExceeded".to_owned()));
        simulation.observed.pod =
            ObservedPod::NeverRan("container terraform could not be started: StartError".to_owned());
        simulation.settle();
    };
    let mut simulation = Simulation::simple();
    simulation.settle();
    unstartable(&mut simulation);
    assert_eq!((simulation.reason().as_str(), simulation.run().outcome), ("RunFailed", Some(Outcome::Failed)));
    assert!(
        simulation.message().contains("container terraform could not be started: StartError"),
        "{}",
        simulation.message()
    );
    assert_eq!(simulation.workspace.status.as_ref().unwrap().begun_inputs, None, "nothing was applied");
    simulation.wait(11).settle();
    assert_eq!(simulation.run().number, 2, "it is tried again");
    unstartable(&mut simulation);
    simulation.delete();
    assert!(goes(&mut simulation), "{}", simulation.message());

    // What was applied before stays to be destroyed.
    let mut simulation = Simulation::simple().applied().with("variables", json!({ "size": 3 }));
    let before = simulation.workspace.status.as_ref().unwrap().begun_inputs.clone();
    simulation.settle();
    unstartable(&mut simulation);
    assert_eq!(simulation.workspace.status.as_ref().unwrap().begun_inputs, before);
    simulation.delete().settle();
    assert_eq!(simulation.run().action, Action::Destroy);
}

#[test]
fn a_state_that_the_status_knows_nothing_of_is_kept_when_the_workspace_is_deleted() {
    let cases = ["Destroy", "Force", "Retain"].into_iter().flat_map(|policy| [(policy, false), (policy, true)]);
    for (policy, planned) in cases {
        let mut simulation = Simulation::simple().with("deletionPolicy", json!(policy)).applied();
        // Someone edits it, and what is wanted by then may not even be planned.
        simulation.workspace.status = None;
        if planned {
            simulation.lose_job().observed.report = None;
            simulation.settle();
            simulation.ends(Outcome::Failed, |_| {}).settle();
            assert_eq!(simulation.workspace.status.as_ref().unwrap().begun_inputs, None);
        }
        simulation.delete();
        assert_eq!(goes(&mut simulation), policy != "Destroy", "{policy}: {}", simulation.message());
        if policy == "Destroy" {
            assert_eq!(simulation.reason(), "DestroyBlocked");
            assert!(
                simulation.message().contains("-state contains a state. To delete the workspace"),
                "{}",
                simulation.message()
            );
        }
        assert!(simulation.observed.parts.iter().any(|part| part.target.name.ends_with("-state")), "{policy}");
    }
}

#[test]
fn a_report_about_other_inputs_is_not_taken_for_that_of_a_run_with_the_same_name() {
    let mut simulation = Simulation::simple().applied();
    // Someone edits the status, so that runs are counted from one again, and the spec is another one by then.
    simulation.workspace.status = None;
    simulation = simulation.with("variables", json!({ "size": 3 }));
    simulation.settle();
    assert_ne!(simulation.phase(), WorkspacePhase::Ready, "nothing of that was applied");
    simulation.wait(11).settle();
    assert_eq!((simulation.run().number, simulation.run().action), (2, Action::Apply));
    simulation.ends(Outcome::Applied, |_| {}).settle();
    assert_eq!(simulation.phase(), WorkspacePhase::Ready);
}

#[test]
fn a_run_whose_pod_does_not_start_is_reported_and_given_up_when_the_spec_is_corrected() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation.observed.pod = ObservedPod::Stuck("container terraform is not starting: ErrImagePull".to_owned());
    simulation.settle();
    assert!(simulation.message().contains("ErrImagePull"), "{}", simulation.message());
    assert_eq!(
        (simulation.reason().as_str(), simulation.observed.jobs.len()),
        ("PodNotStarting", 1),
        "it may start yet"
    );
    simulation.workspace.metadata.generation = Some(2);
    assert_eq!(simulation.pass(), [""; 0], "that it has not started is published first");
    let writes = simulation.pass();
    assert!(writes.iter().any(|write| write.starts_with("delete Job")), "{writes:?}");
    simulation.observed.pod = ObservedPod::None;
    simulation.settle();
    assert_eq!((simulation.run().number, simulation.phase()), (2, WorkspacePhase::Applying), "and at once");
}

#[test]
fn a_run_whose_pod_has_started_goes_on_although_the_spec_changes() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation.observed.pod = ObservedPod::Stuck("it waits".to_owned());
    simulation.workspace.metadata.generation = Some(2);
    simulation.pass();
    simulation.observed.pod = ObservedPod::Started;
    assert!(simulation.settle().is_empty());
    assert_eq!((simulation.run().number, simulation.observed.jobs.len()), (1, 1));
}

#[test]
fn a_workspace_whose_first_pod_never_started_goes_when_it_is_deleted() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation.observed.pod = ObservedPod::Stuck("its pod cannot be scheduled".to_owned());
    simulation.delete();
    assert!(goes(&mut simulation), "{}", simulation.message());
}

#[test]
fn a_job_without_a_pod_is_reported_after_a_while() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation.observed.pod = ObservedPod::None;
    simulation.settle();
    assert_eq!(simulation.reason(), "Applying");
    simulation.wait(11).settle();
    assert!(simulation.message().contains("kubectl describe job"), "{}", simulation.message());
}

#[test]
fn the_inputs_before_a_change_that_failed_half_way_are_applied_again() {
    let mut simulation = Simulation::simple().applied();
    simulation = simulation.with("variables", json!({ "size": 3 }));
    simulation.settle();
    simulation.ends(Outcome::Failed, |report| report.stage = Stage::Apply).settle();
    simulation = simulation.with("variables", json!({}));
    simulation.settle();
    assert_eq!((simulation.run().number, simulation.run().action), (3, Action::Apply));
    simulation.ends(Outcome::Applied, |_| {}).settle();
    assert_eq!(simulation.phase(), WorkspacePhase::Ready);
}

#[test]
fn a_failure_of_inputs_that_nobody_wants_any_more_is_forgotten() {
    let mut simulation = Simulation::simple().applied();
    simulation = simulation.with("variables", json!({ "size": 3 }));
    simulation.settle();
    simulation.ends(Outcome::Failed, |_| {}).settle();
    assert_eq!(simulation.workspace.status.as_ref().unwrap().failures, 1);
    simulation = simulation.with("variables", json!({}));
    simulation.settle();
    let status = simulation.workspace.status.as_ref().unwrap();
    assert_eq!((simulation.phase(), status.failures, status.diagnostics.len()), (WorkspacePhase::Ready, 0, 0));
}

#[test]
fn another_backend_is_reported_and_nothing_is_recreated_unless_asked_for() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    let mut simulation = Simulation::simple().applied();
    simulation = simulation.with("backend", s3);
    simulation.settle();
    assert_eq!((simulation.reason().as_str(), simulation.run().number), ("BackendChanged", 1));
    assert!(
        simulation.message().contains("spec.backend") && simulation.message().contains("replan"),
        "{}",
        simulation.message()
    );
    simulation.annotate("infra.opr8r/replan", "moved").settle();
    assert_eq!(simulation.run().number, 2);
    simulation.ends(Outcome::Applied, |report| report.state = None).settle();
    assert_eq!(simulation.phase(), WorkspacePhase::Ready);
    // The state here describes what a destroy there leaves untouched.
    simulation.delete().settle();
    simulation.ends(Outcome::Destroyed, |report| report.state = None);
    assert!(goes(&mut simulation), "{}", simulation.message());
    assert!(
        simulation.observed.parts.iter().any(|part| part.target.name.ends_with("-state")),
        "{:?}",
        simulation.observed.parts
    );
}

#[test]
fn a_place_that_was_recorded_without_a_key_is_the_same_place_and_is_recorded_with_it() {
    let s3 = |bucket: &str| json!({ "custom": { "type": "s3", "config": { "bucket": bucket } } });
    let mut simulation = Simulation::simple().with("backend", s3("b")).applied();
    // An older version keyed the hash of the inputs, and not the place.
    let upgrade = |simulation: &mut Simulation| {
        let salt = "0123456789abcdef0123456789abcdef".to_owned();
        let key = render::Key { salt, known: Vec::new() };
        simulation.observed.inputs = render::keyed_inputs(&simulation.workspace.spec, &Sources::new(), &key);
        simulation.observed.inputs.clone().unwrap()
    };
    let inputs = upgrade(&mut simulation);
    let status = simulation.workspace.status.as_mut().unwrap();
    let run = status.run.as_mut().unwrap();
    assert_eq!(status.begun_backend.as_ref(), Some(&inputs.unkeyed_backend));
    assert_ne!(inputs.backend, inputs.unkeyed_backend);
    (run.inputs, run.previous_backend) = (inputs.hash.clone(), status.begun_backend.clone());
    status.last_applied.as_mut().unwrap().hash = inputs.hash.clone();
    status.begun_inputs = Some(inputs.hash);
    simulation.settle();
    assert_eq!((simulation.phase(), simulation.run().number), (WorkspacePhase::Ready, 1), "{}", simulation.message());
    let now = Some(inputs.backend);
    assert_eq!(simulation.workspace.status.as_ref().unwrap().begun_backend, now);
    assert_eq!((simulation.run().backend.clone(), simulation.run().previous_backend.clone()), (now.clone(), now));
    let everything = serde_json::to_string(&simulation.workspace.status).unwrap();
    assert!(!everything.contains(&inputs.unkeyed_backend), "{everything}");

    simulation = simulation.with("backend", s3("other"));
    upgrade(&mut simulation);
    simulation.settle();
    assert_eq!(
        (simulation.reason().as_str(), simulation.run().number),
        ("BackendChanged", 1),
        "another place is another place"
    );
}

#[test]
fn a_managed_backend_may_be_written_out_or_left_out() {
    let mut simulation = Simulation::simple().applied();
    simulation = simulation.with("backend", json!({ "managed": {} }));
    simulation.settle();
    assert_eq!(simulation.phase(), WorkspacePhase::Ready);
}

#[test]
fn a_plan_without_the_state_that_is_gone_can_be_approved() {
    let mut simulation = Simulation::simple().with("approval", json!("Manual"));
    simulation.settle();
    simulation.ends(Outcome::Planned, |_| {}).settle();
    simulation.annotate("infra.opr8r/approve", "plan-1").settle();
    simulation.ends(Outcome::Applied, |_| {}).settle();
    simulation.observed.parts.retain(|part| !part.target.name.contains("-state"));
    simulation.settle();
    assert_eq!(simulation.reason(), "StateMissing");
    simulation.annotate("infra.opr8r/replan", "anew").settle();
    simulation.ends(Outcome::Planned, |report| {
        report.state = None;
        report.plan.as_mut().unwrap().serial = 0;
    });
    simulation.settle();
    assert_eq!(simulation.phase(), WorkspacePhase::AwaitingApproval);
}

#[test]
fn a_comparison_that_fails_leaves_what_was_known_of_drift_and_off_ends_it() {
    let mut simulation = Simulation::simple().with("drift", json!({ "interval": "10m" })).applied();
    let drifted = |simulation: &Simulation| {
        let status = simulation.workspace.status.as_ref().unwrap();
        status.conditions.iter().any(|condition| condition.type_ == "Drifted" && condition.status == "True")
    };
    simulation.wait(700).settle();
    simulation.ends(Outcome::Checked, |report| report.drift.count = 1).settle();
    assert!(drifted(&simulation));
    simulation.wait(700).settle();
    simulation.ends(Outcome::Failed, |_| {}).settle();
    assert!(drifted(&simulation), "the comparison failed");
    simulation = simulation.with("drift", json!({ "action": "Off" }));
    simulation.settle();
    assert!(!drifted(&simulation) && simulation.workspace.status.as_ref().unwrap().drift.is_none());
}

#[test]
fn a_destroy_whose_end_is_not_verified_is_a_failed_one() {
    let mut simulation = Simulation::simple().applied();
    simulation.delete().settle();
    simulation.ends(Outcome::Destroyed, |report| report.empty = false);
    assert!(!goes(&mut simulation));
    assert_eq!(simulation.reason(), "DestroyFailed");
    assert!(simulation.message().contains("could not be verified"), "{}", simulation.message());
    assert_eq!(simulation.run().number, 2, "it is not tried again at once");
}

#[test]
fn force_does_not_give_up_what_was_only_held_up() {
    let mut simulation = Simulation::simple().with("deletionPolicy", json!("Force")).applied();
    simulation.delete().settle();
    for _ in 0..4 {
        simulation.ends(Outcome::Interrupted, |_| {});
        assert!(!goes(&mut simulation), "a drained node is no reason to leave everything behind");
        simulation.wait(3600).settle();
    }
    simulation.ends(Outcome::Interrupted, |_| {});
    assert!(goes(&mut simulation), "{}", simulation.message());
}

#[test]
fn jobs_of_destroys_that_failed_are_kept_by_count_too() {
    let mut simulation = Simulation::simple().with("history", json!({ "failedJobs": 1 })).applied();
    simulation.delete();
    for _ in 0..4 {
        simulation.settle();
        simulation.ends(Outcome::Failed, |_| {}).settle();
        simulation.wait(3600);
    }
    assert!(simulation.observed.jobs.len() <= 2, "{:?}", simulation.observed.jobs.len());
}

#[test]
fn a_request_to_unlock_is_carried_out_once() {
    let mut simulation = Simulation::simple();
    simulation.observed.lock = Some(lock(true, 30));
    simulation.annotate("infra.opr8r/unlock", "pod-1");
    assert_eq!(simulation.pass(), ["delete Lease infra/lock"]);
    simulation.observed.lock = Some(lock(true, 30));
    assert_eq!(simulation.pass(), [""; 0], "its next lock is another one");
    let mut next = lock(true, 30);
    next.since = Some(simulation.now);
    let exactly = next.words();
    simulation.observed.lock = Some(next);
    simulation.annotate("infra.opr8r/unlock", &exactly);
    assert_eq!(simulation.pass(), ["delete Lease infra/lock"]);
}
