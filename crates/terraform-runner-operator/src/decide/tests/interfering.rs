//! Changes that users make while something is in progress, and changes without an effect.

use opcore::act::{Refusal, RefusalReason};
use opcore::conditions::{READY, is_true};
use serde_json::json;

use super::{ObservedJob, Simulation, Turn};
use crate::api::v1alpha1::{Action, Approval, Outcome, WorkspacePhase};
use crate::decide::refused;
use crate::observe::ObservedPod;
use crate::render::Adopted;
use crate::run::report::{Report, Stage};
use crate::slots::Class;

fn manual() -> Simulation {
    Simulation::simple().with("approval", json!("Manual"))
}

/// A workspace whose first plan was approved and applied.
fn approved() -> Simulation {
    let mut simulation = manual();
    simulation.settle();
    simulation.ends(Outcome::Planned, |_| {}).settle();
    simulation.annotate("infra.opr8r/approve", "plan-1").settle();
    simulation.ends(Outcome::Applied, |_| {}).settle();
    simulation
}

/// The spec was changed again.
fn edited(mut simulation: Simulation, field: &str, value: serde_json::Value) -> Simulation {
    simulation.workspace.metadata.generation =
        simulation.workspace.metadata.generation.map(|generation| generation + 1);
    simulation.with(field, value)
}

fn refusal(job: &str) -> Refusal {
    let object = opcore::ObjectId::named::<k8s_openapi::api::batch::v1::Job>(Some("infra"), job);
    let message = format!("{object} was refused: exceeded quota.");
    Refusal { object, reason: RefusalReason::Forbidden, message }
}

#[test]
fn inputs_that_change_nothing_are_planned_once_and_ready() {
    let mut simulation = approved();
    simulation = edited(simulation, "variables", json!({ "size": 3 }));
    simulation.settle();
    assert_eq!((simulation.run().number, simulation.run().action), (3, Action::Plan));
    simulation.ends(Outcome::Unchanged, |_| {}).settle();
    assert_eq!((simulation.run().number, simulation.phase()), (3, WorkspacePhase::Ready));
    // A destroy works from what exists by now.
    let inputs = simulation.run().inputs.clone();
    simulation.delete().settle();
    assert_eq!((simulation.run().action, &simulation.run().inputs), (Action::Destroy, &inputs));
}

#[test]
fn a_module_in_a_backend_of_its_own_that_is_emptied_becomes_ready() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    let mut simulation = Simulation::simple().with("backend", s3);
    simulation.settle();
    simulation.ends(Outcome::Applied, |report| report.state = None).settle();
    simulation = edited(simulation, "variables", json!({ "size": 0 }));
    simulation.settle();
    let nothing = |report: &mut Report| (report.state, report.empty) = (None, true);
    simulation.ends(Outcome::Unchanged, nothing).settle();
    assert_eq!((simulation.run().number, simulation.phase()), (2, WorkspacePhase::Ready));
    simulation.delete().settle();
    assert_eq!(simulation.run().action, Action::Destroy, "there was something before");
}

#[test]
fn an_approved_plan_whose_job_is_refused_is_retried_with_growing_delays() {
    let mut simulation = manual();
    simulation.settle();
    simulation.ends(Outcome::Planned, |_| {}).settle();
    simulation.annotate("infra.opr8r/approve", "plan-1").pass();
    assert_eq!((simulation.run().number, simulation.run().action), (2, Action::Apply));
    let now = simulation.now;
    refused(simulation.workspace.status.as_mut().unwrap(), &refusal("tf-network-2"), now);
    simulation.settle();
    assert_eq!((simulation.run().number, simulation.reason().as_str()), (2, "RunFailed"));
    simulation.wait(11).settle();
    assert_eq!(
        (simulation.run().number, simulation.run().plan.as_deref()),
        (3, Some("plan-1")),
        "the same plan: nothing was done"
    );
}

#[test]
fn what_is_forbidden_before_the_job_is_made_is_not_done() {
    for (field, value) in [("approval", json!("Manual")), ("suspend", json!(true)), ("variables", json!({ "size": 3 }))]
    {
        let mut simulation = Simulation::simple().with("approval", json!("AutoUnlessDestroy"));
        simulation.pass();
        assert_eq!((simulation.run().number, simulation.run().action), (1, Action::Apply));
        simulation = edited(simulation, field, value);
        let writes = simulation.settle();
        let made = writes.iter().any(|write| write.starts_with("apply Job") && write.ends_with("-1"));
        assert!(!made, "{field}: {writes:?}");
        assert_eq!(simulation.workspace.status.as_ref().unwrap().history, [], "{field}: there is nothing to remember");
        match field {
            "approval" => assert_eq!((simulation.run().number, simulation.run().action), (2, Action::Plan)),
            "suspend" => assert_eq!((simulation.phase(), simulation.run().number), (WorkspacePhase::Suspended, 1)),
            _ => assert_eq!((simulation.run().number, simulation.run().action), (2, Action::Apply)),
        }
        assert_ne!(simulation.workspace.spec.approval, Approval::Auto);
    }
}

#[test]
fn a_new_plan_takes_the_place_of_the_one_that_waited() {
    let mut simulation = manual();
    simulation.settle();
    simulation.ends(Outcome::Planned, |_| {}).settle();
    simulation.annotate("infra.opr8r/replan", "now").settle();
    simulation.ends(Outcome::Failed, |_| {}).settle();
    simulation.annotate("infra.opr8r/approve", "plan-1").settle();
    assert_eq!(
        (simulation.run().number, simulation.reason().as_str()),
        (2, "RunFailed"),
        "whoever asked for another one meant it"
    );
    simulation.wait(11).settle();
    assert_eq!((simulation.run().number, simulation.run().action), (3, Action::Plan));
}

#[test]
fn another_backend_can_be_planned_and_approved() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    let mut simulation = edited(approved(), "backend", s3);
    simulation.settle();
    assert_eq!(simulation.reason(), "BackendChanged");
    simulation.annotate("infra.opr8r/replan", "moved").settle();
    simulation.ends(Outcome::Planned, |_| {}).settle();
    assert_eq!(simulation.reason(), "AwaitingApproval");
    simulation.annotate("infra.opr8r/approve", "plan-3").settle();
    simulation.ends(Outcome::Applied, |report| report.state = None).settle();
    assert_eq!(simulation.phase(), WorkspacePhase::Ready);
}

#[test]
fn a_run_that_began_nothing_leaves_the_place_of_the_state_as_it_was() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    for force in [false, true] {
        let mut simulation = Simulation::simple().with("backend", s3.clone());
        simulation.settle();
        simulation.ends(Outcome::Applied, |report| report.state = None).settle();
        let applied = simulation.run().inputs.clone();
        simulation = edited(simulation, "backend", json!({ "managed": {} }));
        simulation.annotate("infra.opr8r/replan", "moved").settle();
        simulation.ends(Outcome::Failed, |report| (report.state, report.stage) = (None, Stage::Init)).settle();
        if force {
            simulation = edited(simulation, "deletionPolicy", json!("Force"));
        }
        simulation.delete().settle();
        assert_eq!(
            (simulation.run().action, &simulation.run().inputs),
            (Action::Destroy, &applied),
            "{}",
            simulation.message()
        );
    }
    let mut simulation = edited(Simulation::simple().applied(), "backend", s3);
    simulation.annotate("infra.opr8r/replan", "moved").settle();
    simulation.ends(Outcome::Failed, |report| report.stage = Stage::Plan).settle();
    simulation = edited(simulation, "backend", json!({ "managed": {} }));
    simulation.wait(3600).settle();
    assert_eq!(simulation.phase(), WorkspacePhase::Ready, "{}", simulation.message());
}

#[test]
fn force_gives_up_after_five_hold_ups_of_the_destroy_and_not_for_what_failed_before() {
    let mut simulation = Simulation::simple().with("deletionPolicy", json!("Force")).applied();
    simulation = edited(simulation, "variables", json!({ "size": 3 }));
    for _ in 0..6 {
        simulation.settle();
        simulation.ends(Outcome::Failed, |report| report.stage = Stage::Apply).settle();
        simulation.wait(3600);
    }
    simulation.delete().settle();
    for held_up in 1..=5 {
        assert_eq!(simulation.run().action, Action::Destroy, "{held_up}");
        assert!(simulation.workspace.metadata.finalizers.is_some(), "{held_up}");
        simulation.ends(Outcome::Interrupted, |_| {}).settle();
        simulation.wait(3600).settle();
    }
    assert!(simulation.workspace.metadata.finalizers.is_none(), "{}", simulation.message());
}

#[test]
fn a_destroy_whose_job_is_refused_is_held_up_under_force_and_has_not_failed() {
    let mut simulation = Simulation::simple().with("deletionPolicy", json!("Force")).applied();
    simulation.delete();
    while simulation.run().action != Action::Destroy {
        simulation.pass();
    }
    let now = simulation.now;
    refused(simulation.workspace.status.as_mut().unwrap(), &refusal("tf-network-2"), now);
    simulation.settle();
    assert!(
        simulation.workspace.metadata.finalizers.is_some(),
        "an API server that has just started forbids for a moment"
    );
    simulation.wait(3600).settle();
    assert_eq!((simulation.run().number, simulation.run().action), (3, Action::Destroy));
}

#[test]
fn retain_stops_a_destroy_that_is_in_progress_and_waits_for_it() {
    let mut simulation = Simulation::simple().applied();
    simulation.delete().settle();
    assert_eq!(simulation.run().action, Action::Destroy);
    simulation = edited(simulation, "deletionPolicy", json!("Retain"));
    let decision = simulation.decide();
    let writes: Vec<String> = decision.writes.iter().map(ToString::to_string).collect();
    assert_eq!(writes.iter().filter(|write| write.starts_with("delete")).count(), 1, "{writes:?}");
    assert!(writes.iter().any(|write| write.starts_with("delete Job")), "the lock stays: {writes:?}");
    simulation.observed.jobs.clear();
    simulation.observed.pod =
        ObservedPod::Leaving { pod: "pod".to_owned(), node: "node".to_owned(), by: simulation.now };
    simulation.settle();
    assert!(simulation.workspace.metadata.finalizers.is_some(), "Terraform may still be saving");
    simulation.observed.pod = ObservedPod::None;
    simulation.settle();
    assert!(simulation.workspace.metadata.finalizers.is_none(), "{}", simulation.message());
}

#[test]
fn nothing_says_that_a_new_spec_is_applied_while_the_old_one_is_compared() {
    let mut simulation = Simulation::simple().with("drift", json!({ "interval": "10m" })).applied();
    simulation.wait(700).settle();
    assert_eq!((simulation.run().action, simulation.phase()), (Action::Check, WorkspacePhase::Ready));
    simulation = edited(simulation, "variables", json!({ "size": 3 }));
    simulation.settle();
    let status = simulation.workspace.status.as_ref().unwrap();
    assert_eq!(status.observed_generation, Some(2));
    assert!(!is_true(&status.conditions, READY), "{status:?}");
    assert_eq!(simulation.phase(), WorkspacePhase::Pending);
    simulation.ends(Outcome::Checked, |_| {}).settle();
    assert_eq!(simulation.run().action, Action::Apply);
}

#[test]
fn a_run_is_not_over_before_its_pod_is_gone() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation.observed.jobs.clear();
    simulation.settle();
    assert_eq!((simulation.run().number, simulation.reason().as_str()), (1, "Applying"), "its pod still runs");
    simulation.observed.pod = ObservedPod::None;
    simulation.settle();
    assert_eq!(simulation.reason(), "RunLost");
}

#[test]
fn a_pod_that_starts_after_all_was_not_given_up() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation.observed.pod = ObservedPod::Stuck("ErrImagePull".to_owned());
    simulation.delete();
    while !simulation.run().given_up {
        simulation.pass();
    }
    simulation.observed.jobs.clear();
    simulation.observed.pod = ObservedPod::Started;
    simulation.settle();
    simulation.observed.pod = ObservedPod::None;
    simulation.settle();
    assert_eq!(simulation.reason(), "DestroyBlocked", "what it made is not known: {}", simulation.message());
}

#[test]
fn a_destroy_whose_pod_does_not_start_says_so_and_starts_again_when_the_spec_is_corrected() {
    let mut simulation = Simulation::simple().applied();
    simulation.delete().settle();
    assert_eq!((simulation.run().number, simulation.reason().as_str()), (2, "Destroying"));
    simulation.observed.pod = ObservedPod::Stuck("container terraform is not starting: ErrImagePull".to_owned());
    simulation.settle();
    assert_eq!(simulation.reason(), "PodNotStarting");
    simulation = edited(simulation, "engine", json!({ "image": "one/that:is-there" }));
    simulation.settle();
    assert_eq!((simulation.run().number, simulation.run().action), (3, Action::Destroy));
}

#[test]
fn force_gives_up_a_destroy_whose_pod_does_not_start_in_time() {
    let mut simulation = Simulation::simple().with("deletionPolicy", json!("Force")).applied();
    simulation.delete().settle();
    simulation.observed.pod = ObservedPod::Stuck("its pod cannot be scheduled".to_owned());
    simulation.wait(119).settle();
    assert!(simulation.workspace.metadata.finalizers.is_some(), "it may start yet");
    assert!(simulation.decide().next != opcore::Next::OnEvent);
    simulation.wait(2).settle();
    assert!(simulation.workspace.metadata.finalizers.is_none(), "{}", simulation.message());
}

#[test]
fn a_pod_whose_node_does_not_answer_is_reported_with_what_helps() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation.observed.pod =
        ObservedPod::Leaving { pod: "tf-1".to_owned(), node: "node-7".to_owned(), by: simulation.now };
    simulation.settle();
    assert_eq!(simulation.reason(), "Applying");
    simulation.wait(61).settle();
    assert_eq!(simulation.reason(), "PodNotEnding");
    assert!(
        simulation.message().contains("node-7") && simulation.message().contains("out-of-service"),
        "{}",
        simulation.message()
    );
}

#[test]
fn a_job_of_no_run_goes_and_one_that_has_reported_may_end() {
    let mut simulation = Simulation::simple().applied();
    // Kubernetes has not yet noticed that it is over.
    simulation.observed.jobs[0].ended = None;
    simulation = edited(simulation, "variables", json!({ "size": 3 }));
    simulation.settle();
    assert_eq!((simulation.run().number, simulation.observed.jobs.len()), (2, 2));
    simulation.ends(Outcome::Applied, |_| {}).settle();
    let mut stray: ObservedJob = simulation.observed.jobs[0].clone();
    stray.target.name = "tf-network-stray".to_owned();
    stray.ended = None;
    simulation.observed.jobs.push(stray);
    assert_eq!(simulation.settle(), ["delete Job infra/tf-network-stray"]);
}

#[test]
fn a_plan_that_no_longer_fits_is_made_again_at_once() {
    let mut simulation = manual();
    simulation.settle();
    simulation.ends(Outcome::Planned, |_| {}).settle();
    simulation.annotate("infra.opr8r/approve", "plan-1").settle();
    simulation.ends(Outcome::Stale, |_| {}).settle();
    assert_eq!((simulation.run().number, simulation.run().action), (3, Action::Plan));
}

#[test]
fn what_is_wrong_with_a_spec_is_reported_with_its_field_until_it_is_corrected() {
    let mut simulation = Simulation::simple().applied();
    simulation = edited(simulation, "module", json!({ "builtin": "nothing" }));
    simulation.settle();
    let reported = simulation.workspace.status.as_ref().unwrap().diagnostics.clone();
    assert_eq!((reported.len(), reported[0].field.as_deref()), (1, Some("spec.module.builtin")), "{reported:?}");
    simulation = edited(simulation, "module", json!({ "inline": { "files": { "main.tf": "" } } }));
    simulation.settle();
    let status = simulation.workspace.status.as_ref().unwrap();
    assert_eq!((status.phase, status.diagnostics.len()), (WorkspacePhase::Ready, 0));
}

#[test]
fn a_state_that_was_adopted_is_destroyed_whatever_became_of_the_run_that_did() {
    let adopting = || {
        let adopt = json!({ "managed": { "adopt": { "secretRef": { "name": "old-state" } } } });
        let mut simulation = Simulation::simple().with("backend", adopt).with("approval", json!("AutoUnlessDestroy"));
        let keys = Some(vec!["index.json".to_owned()]);
        simulation.observed.adopted = Some(Adopted { secret: "old-state".to_owned(), keys, ..Adopted::default() });
        simulation
    };
    let mut simulation = adopting();
    simulation.observed.adopted.as_mut().unwrap().keys = None;
    assert!(simulation.settle().is_empty());
    assert_eq!(simulation.reason(), "InputNotFound");
    assert!(simulation.message().contains("Secret old-state does not exist"), "{}", simulation.message());

    for outcome in [Outcome::Planned, Outcome::Failed, Outcome::Unchanged] {
        let mut simulation = adopting();
        simulation.settle();
        assert_eq!(simulation.run().adopts.as_deref(), Some("old-state"));
        simulation.ends(outcome, |report| report.plan.as_mut().unwrap().destroy = 1);
        simulation.observed.adopted = None;
        simulation.settle();
        simulation.delete().settle();
        assert_eq!(simulation.run().action, Action::Destroy, "{outcome:?}: {}", simulation.message());
    }
    // Its pod is lost after that, or before.
    for saved in [true, false] {
        let mut simulation = adopting();
        simulation.settle();
        if saved {
            simulation.ends(Outcome::Lost, |_| {}).observed.report = None;
            simulation.observed.adopted = None;
        }
        simulation.lose_job().settle();
        simulation.delete().settle();
        assert_eq!(
            simulation.reason(),
            if saved { "Destroying" } else { "DestroyBlocked" },
            "{}",
            simulation.message()
        );
    }
}

#[test]
fn what_is_left_is_reported_for_every_kind_of_state() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    let left = |mut simulation: Simulation, change: fn(&mut Report)| {
        simulation = simulation.with("deletionPolicy", json!("Retain"));
        simulation.settle();
        simulation.ends(Outcome::Applied, change).settle();
        simulation.delete();
        let mut notes = Vec::new();
        while simulation.workspace.metadata.finalizers.is_some() {
            notes.extend(simulation.decide().notes);
            simulation.pass();
        }
        notes.into_iter().find(|note| note.reason == "Retained").unwrap().message
    };
    let reported = left(Simulation::simple().with("backend", s3), |report| report.state = None);
    assert!(reported.contains("its resources") && reported.contains("s3") && reported.contains("-in-"), "{reported}");
    let reported = left(Simulation::simple(), |report| report.state.as_mut().unwrap().resources = -1);
    assert!(
        reported.contains("its resources") && reported.contains("-state") && reported.contains("-in-"),
        "{reported}"
    );
    let reported = left(Simulation::simple(), |report| report.state.as_mut().unwrap().resources = 1);
    assert!(reported.contains("one resource as it is"), "{reported}");
}

#[test]
fn what_a_run_that_begins_nothing_returns_to_is_kept_for_it() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    let first = simulation.run().inputs.clone();
    simulation.ends(Outcome::Failed, |report| report.stage = Stage::Apply).settle();
    simulation = edited(simulation, "variables", json!({ "size": 3 }));
    simulation.settle();
    simulation.ends(Outcome::Failed, |report| report.stage = Stage::Plan).settle();
    simulation.delete().settle();
    assert_eq!(
        (simulation.run().action, &simulation.run().inputs),
        (Action::Destroy, &first),
        "{}",
        simulation.message()
    );
}

#[test]
fn who_asked_to_go_on_without_a_state_need_not_ask_again() {
    let stateless = |mut simulation: Simulation| {
        simulation.observed.parts.retain(|part| !part.target.name.contains("-state"));
        simulation = edited(simulation, "variables", json!({ "size": 3 }));
        simulation.settle();
        assert_eq!(simulation.reason(), "StateMissing");
        simulation.annotate("infra.opr8r/replan", "anew").settle();
        assert!(!simulation.run().expects_state);
        simulation
    };
    let mut simulation = stateless(approved());
    simulation.ends(Outcome::Planned, |report| report.state = None).settle();
    simulation.workspace.status.as_mut().unwrap().plan.as_mut().unwrap().serial = 0;
    simulation.annotate("infra.opr8r/approve", "plan-3").settle();
    assert_eq!((simulation.run().number, simulation.run().plan.as_deref()), (4, Some("plan-3")));
    assert!(!simulation.run().expects_state, "Terraform compares an approved plan with what there is");

    let mut simulation = Simulation::simple().applied();
    simulation = edited(simulation, "variables", json!({ "size": 2 }));
    simulation.settle();
    assert!(simulation.run().expects_state);
    simulation.ends(Outcome::Applied, |_| {}).settle();
    let mut simulation = stateless(simulation);
    simulation.ends(Outcome::Failed, |report| (report.state, report.stage) = (None, Stage::Init)).settle();
    assert_eq!(simulation.reason(), "RunFailed");
    simulation.wait(3600).settle();
    assert!(simulation.run().number == 4 && !simulation.run().expects_state, "{:?}", simulation.run());
}

#[test]
fn a_destroy_that_waited_for_its_operator_has_its_time_to_start() {
    let mut simulation = Simulation::simple().with("deletionPolicy", json!("Force")).applied();
    simulation.delete();
    while simulation.run().action != Action::Destroy {
        simulation.pass();
    }
    simulation.wait(600).pass();
    assert_eq!(
        simulation.observed.jobs.iter().filter(|job| job.ended.is_none()).count(),
        1,
        "its Job is made just now"
    );
    simulation.observed.pod = ObservedPod::None;
    simulation.settle();
    assert_eq!(
        simulation.observed.jobs.iter().filter(|job| job.ended.is_none()).count(),
        1,
        "{}",
        simulation.message()
    );
    assert!(simulation.workspace.metadata.finalizers.is_some());
}

#[test]
fn a_pod_that_takes_too_long_to_start_is_reported_and_given_up_as_one_that_says_why() {
    let mut simulation = Simulation::simple().with("deletionPolicy", json!("Force")).applied();
    simulation.delete().settle();
    simulation.observed.pod = ObservedPod::Starting { pod: "tf-2".to_owned(), since: Some(simulation.now) };
    simulation.settle();
    assert_eq!(simulation.reason(), "Destroying");
    simulation.wait(61).settle();
    assert_eq!(simulation.reason(), "PodNotStarting");
    assert!(simulation.message().contains("kubectl describe pod tf-2"), "{}", simulation.message());
    simulation.wait(60).settle();
    assert!(simulation.workspace.metadata.finalizers.is_none(), "{}", simulation.message());
}

#[test]
fn a_destroy_that_waits_for_its_job_keeps_its_turn() {
    let mut simulation = Simulation::simple().applied();
    simulation = edited(simulation, "variables", json!({ "size": 3 }));
    simulation.delete();
    while simulation.run().action != Action::Destroy {
        simulation.pass();
    }
    assert_eq!(simulation.decide().claims, Turn::Keep(Class::Run));
}

#[test]
fn a_comparison_whose_pod_does_not_start_takes_nothing_away_and_is_reported() {
    let mut simulation = Simulation::simple().with("drift", json!({ "interval": "10m" })).applied();
    simulation.wait(700).settle();
    assert_eq!(simulation.run().action, Action::Check);
    simulation.observed.pod = ObservedPod::Stuck("its pod cannot be scheduled".to_owned());
    simulation.settle();
    assert_eq!(simulation.phase(), WorkspacePhase::Ready);
    assert!(
        simulation.message().contains("not being compared with the state")
            && simulation.message().contains("cannot be scheduled")
    );
    simulation.lose_job();
    let notes = simulation.decide().notes;
    assert_eq!(notes[0].reason, "DriftCheckFailed");
    simulation.settle();
    let status = simulation.workspace.status.as_ref().unwrap();
    assert_eq!((status.phase, status.diagnostics.len()), (WorkspacePhase::Ready, 0));
    assert_eq!(status.drift.as_ref().unwrap().summary, "Unknown");
}
