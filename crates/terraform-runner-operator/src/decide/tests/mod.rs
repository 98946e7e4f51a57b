//! The life of a workspace, pass by pass, with written-down responses of a cluster.

mod holding;
mod interfering;
mod keeping;
mod recovering;
mod refusing;
mod turns;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use opcore::conditions::{READY, STALLED, find, is_true};
use opcore::writes::Target;
use opcore::{Decision, Next, Write};
use serde_json::json;

use super::{Turn, keep_applied, tear_down};
use crate::api::v1alpha1::{
    Action, ChangedResource, Diagnostic, FINALIZER, Outcome, TerraformWorkspace, WorkspacePhase,
};
use crate::observe::{JobEnd, Observed, ObservedJob, ObservedLock, ObservedPart, ObservedPod};
use crate::render::{self, Settings, Sources};
use crate::run::report::{DriftReport, OutputValue, PlanReport, Report, Stage, StateReport};
use crate::slots::Class;

const START: &str = "2026-01-01T00:00:00Z";

/// A workspace and its surroundings.
struct Simulation {
    workspace: TerraformWorkspace,
    observed: Observed,
    now: Timestamp,
}

impl Simulation {
    #[expect(clippy::needless_pass_by_value, reason = "it reads better")]
    fn of(spec: serde_json::Value) -> Self {
        let workspace: TerraformWorkspace = serde_json::from_value(json!({
            "apiVersion": "infra.opr8r/v1alpha1", "kind": "TerraformWorkspace",
            "metadata": {
                "name": "network", "namespace": "infra", "uid": "u-1", "generation": 1, "finalizers": [FINALIZER],
            },
            "spec": spec,
        }))
        .unwrap();
        let inputs = render::inputs(&workspace.spec, &Sources::new());
        let observed = Observed {
            inputs,
            refused: None,
            jobs: Vec::new(),
            pod: ObservedPod::None,
            report: None,
            journal: None,
            outputs: None,
            outputs_fault: None,
            parts: Vec::new(),
            kept_places: None,
            lock: None,
            lease: None,
            adopted: None,
            waits_for: Vec::new(),
            circle: None,
            dependants: Vec::new(),
            turn: true,
            key: None,
            room: None,
        };
        Self { workspace, observed, now: START.parse().unwrap() }
    }

    fn simple() -> Self {
        Self::of(json!({ "module": { "inline": { "files": { "main.tf": "" } } } }))
    }

    fn with(mut self, field: &str, value: serde_json::Value) -> Self {
        let mut spec = json!(self.workspace.spec);
        spec[field] = value;
        self.workspace.spec = serde_json::from_value(spec).unwrap();
        self.refresh_inputs();
        self
    }

    fn refresh_inputs(&mut self) {
        self.observed.inputs = render::inputs(&self.workspace.spec, &Sources::new());
    }

    fn annotate(&mut self, key: &str, value: &str) -> &mut Self {
        self.workspace.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        self
    }

    fn decide(&self) -> Decision<TerraformWorkspace, Turn> {
        let settings = Settings::new("runner", "Never");
        let (workspace, observed) = (&self.workspace, &self.observed);
        let active = |now| keep_applied(workspace, observed, &settings, now);
        let terminating = |now| tear_down(workspace, observed, &settings, now);
        let decision = opcore::finalizer::decide(workspace, FINALIZER, self.now, active, terminating);
        decision.unwrap_or_else(|| Decision::say(workspace.status.clone().unwrap_or_default()))
    }

    /// One pass: applied objects exist afterwards, deleted objects are gone, and the status is published.
    fn pass(&mut self) -> Vec<String> {
        let decision = self.decide();
        let words = decision.writes.iter().map(ToString::to_string).collect();
        for write in decision.writes.iter() {
            match write {
                Write::Apply(apply) => self.exists(&apply.resource, &apply.object),
                Write::Delete(delete) => {
                    let name = &delete.target.name;
                    if self
                        .workspace
                        .status
                        .as_ref()
                        .and_then(|status| status.run.as_ref())
                        .is_some_and(|run| run.job == *name)
                    {
                        self.observed.pod = ObservedPod::None;
                    }
                    self.observed.jobs.retain(|job| job.target.name != *name);
                    self.observed.parts.retain(|part| part.target.name != *name);
                    self.observed.lock = self.observed.lock.take().filter(|lock| lock.target.name != *name);
                }
                Write::RemoveFinalizer(_) => self.workspace.metadata.finalizers = None,
                _ => {}
            }
        }
        self.workspace.status = Some(decision.status);
        words
    }

    fn exists(&mut self, resource: &kube::api::ApiResource, object: &kube::api::DynamicObject) {
        let mut target = Target::dynamic(resource, object);
        target.uid = format!("uid of {}", target.name);
        if resource.kind == "Job" && self.observed.job(&target.name).is_none() {
            self.observed.jobs.push(ObservedJob { target, made_at: Some(self.now), ended: None, deleting: false });
            self.observed.pod = ObservedPod::Started;
        } else if resource.kind == "Secret" {
            let part = object.metadata.labels.as_ref().unwrap()[render::PART_LABEL].clone();
            self.part(target, part);
        }
    }

    fn part(&mut self, target: Target, part: String) {
        self.observed.parts.retain(|known| known.target.name != target.name);
        self.observed.parts.push(ObservedPart { target, part, chunks: 1, version: "7".to_owned() });
    }

    /// Passes until nothing is written any more.
    fn settle(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..20 {
            let before = self.workspace.status.clone();
            let words: Vec<String> = self.pass().into_iter().filter(|word| !word.contains("-outputs")).collect();
            if words.is_empty() && before == self.workspace.status {
                return all;
            }
            all.extend(words);
        }
        panic!("it does not settle: {all:?}");
    }

    fn run(&self) -> &crate::api::v1alpha1::Run {
        self.workspace.status.as_ref().unwrap().run.as_ref().unwrap()
    }

    /// The active run ends with this outcome.
    fn ends(&mut self, outcome: Outcome, change: impl FnOnce(&mut Report)) -> &mut Self {
        let run = self.run().clone();
        let stage = if outcome.is_good() { Stage::Done } else { Stage::Plan };
        let mut report = Report {
            run: run.job.clone(),
            action: run.action,
            inputs: run.inputs,
            outcome,
            stage,
            lasting: false,
            plan: Some(PlanReport { id: format!("plan-{}", run.number), serial: 1, add: 2, ..PlanReport::default() }),
            drift: DriftReport::default(),
            diagnostics: Vec::new(),
            state: Some(StateReport { serial: 1, resources: 2, bytes: 100 }),
            empty: outcome == Outcome::Destroyed,
            unrecorded: Vec::new(),
            milliseconds: BTreeMap::new(),
            engine: String::new(),
        };
        change(&mut report);
        if report.state.is_some() {
            let names = render::names(&self.workspace);
            let resource = kube::api::ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&());
            let namespace = Some("infra".to_owned());
            for name in [names.state(), names.state_chunk(0, 0), names.report()] {
                let target = Target { resource: resource.clone(), namespace: namespace.clone(), name, uid: "s".into() };
                self.part(target, "kept".to_owned());
            }
        }
        self.observed.outputs =
            Some(BTreeMap::from([("id".to_owned(), OutputValue { value: json!("vpc-1"), sensitive: false })]));
        self.observed.report = Some(report);
        let job = self.observed.jobs.iter_mut().find(|job| job.target.name == run.job).unwrap();
        job.ended =
            Some(if outcome.is_good() { JobEnd::Complete } else { JobEnd::Failed("BackoffLimitExceeded".to_owned()) });
        self
    }

    fn applied(mut self) -> Self {
        self.settle();
        self.ends(Outcome::Applied, |_| {}).settle();
        self
    }

    fn wait(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    /// Someone deletes the Job of the active run, and its pod is deleted with it.
    fn lose_job(&mut self) -> &mut Self {
        self.observed.jobs.clear();
        self.observed.pod = ObservedPod::None;
        self
    }

    fn phase(&self) -> WorkspacePhase {
        self.workspace.status.as_ref().unwrap().phase
    }

    fn reason(&self) -> String {
        find(&self.workspace.status.as_ref().unwrap().conditions, READY).unwrap().reason.clone()
    }

    fn message(&self) -> String {
        find(&self.workspace.status.as_ref().unwrap().conditions, READY).unwrap().message.clone()
    }

    fn delete(&mut self) -> &mut Self {
        self.workspace.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now));
        self
    }
}

#[test]
fn a_run_is_published_before_its_job_is_made_and_its_inputs_are_kept_before_that() {
    let mut simulation = Simulation::simple();
    let first = simulation.pass();
    assert!(first[0].contains("Secret") && first[0].contains("-in-"), "{first:?}");
    assert!(!first.iter().any(|write| write.contains("Job")), "{first:?}");
    assert_eq!(simulation.run().number, 1);
    let second = simulation.pass();
    assert!(second.last().is_some_and(|write| write.starts_with("apply Job")), "{second:?}");
    assert_eq!(simulation.phase(), WorkspacePhase::Applying);
}

#[test]
fn the_same_inputs_that_are_ready_need_nothing() {
    let simulation = Simulation::simple().applied();
    assert_eq!(simulation.phase(), WorkspacePhase::Ready);
    let decision = simulation.decide();
    let writes: Vec<String> = decision.writes.iter().map(ToString::to_string).collect();
    assert_eq!(writes, ["apply Secret infra/network-outputs"], "which is compared, and not sent");
    assert_eq!(Some(decision.status), simulation.workspace.status);
}

#[test]
fn another_input_is_applied_and_an_older_job_goes() {
    let mut simulation = Simulation::simple().applied();
    let old = simulation.run().job.clone();
    simulation = simulation.with("variables", json!({ "size": 3 }));
    simulation.settle();
    assert_eq!((simulation.run().number, simulation.run().action), (2, Action::Apply));
    assert!(simulation.observed.job(&old).is_none(), "its result is recorded");
    assert_eq!(
        simulation.observed.parts.iter().filter(|part| part.part == "inputs").count(),
        2,
        "a destroy may need the old ones"
    );
    simulation.ends(Outcome::Applied, |_| {}).settle();
    assert_eq!(simulation.observed.parts.iter().filter(|part| part.part == "inputs").count(), 1);
}

#[test]
fn a_plan_waits_for_a_person_who_approves_exactly_that_plan() {
    let mut simulation = Simulation::simple().with("approval", json!("Manual"));
    simulation.settle();
    assert_eq!((simulation.phase(), simulation.run().action), (WorkspacePhase::Planning, Action::Plan));
    simulation.ends(Outcome::Planned, |_| {}).settle();
    assert_eq!(simulation.phase(), WorkspacePhase::AwaitingApproval);
    assert!(
        simulation.message().contains("plan-1") && simulation.message().contains("opctl tf approve network"),
        "{}",
        simulation.message()
    );
    simulation.annotate("infra.opr8r/approve", "plan-0").settle();
    assert_eq!(simulation.phase(), WorkspacePhase::AwaitingApproval, "that was another plan");
    assert!(simulation.message().contains("is for plan plan-0, not for this one"), "{}", simulation.message());
    simulation.annotate("infra.opr8r/approve", "plan-1").settle();
    assert_eq!((simulation.run().action, simulation.run().plan.as_deref()), (Action::Apply, Some("plan-1")));
    simulation.ends(Outcome::Applied, |_| {}).settle();
    assert_eq!(simulation.phase(), WorkspacePhase::Ready);
}

#[test]
fn a_changed_input_voids_an_approval() {
    let mut simulation = Simulation::simple().with("approval", json!("Manual"));
    simulation.settle();
    simulation.ends(Outcome::Planned, |_| {}).settle();
    simulation.annotate("infra.opr8r/approve", "plan-1");
    simulation = simulation.with("variables", json!({ "size": 3 }));
    simulation.settle();
    assert_eq!((simulation.run().action, simulation.run().plan.as_deref()), (Action::Plan, None));
}

#[test]
fn a_plan_that_was_discarded_comes_again_only_when_asked_for() {
    let mut simulation = Simulation::simple().with("approval", json!("Manual"));
    simulation.settle();
    simulation.ends(Outcome::Planned, |_| {}).settle();
    simulation.annotate("infra.opr8r/discard", "plan-1").settle();
    assert_eq!(simulation.reason(), "PlanDiscarded");
    simulation.annotate("infra.opr8r/approve", "plan-1").settle();
    assert_eq!(simulation.reason(), "PlanDiscarded", "who discards a plan means it");
    simulation.annotate("infra.opr8r/replan", "now").settle();
    assert_eq!((simulation.run().number, simulation.phase()), (2, WorkspacePhase::Planning));
    simulation.ends(Outcome::Planned, |_| {}).settle();
    assert_eq!(simulation.phase(), WorkspacePhase::AwaitingApproval, "a request is carried out once");
}

#[test]
fn a_plan_that_destroys_waits_under_auto_unless_destroy_and_no_other() {
    let mut simulation = Simulation::simple().with("approval", json!("AutoUnlessDestroy"));
    simulation.settle();
    assert_eq!(simulation.run().action, Action::Apply);
    simulation.ends(Outcome::Planned, |report| report.plan.as_mut().unwrap().destroy = 1).settle();
    assert_eq!(simulation.phase(), WorkspacePhase::AwaitingApproval);
    assert_eq!(simulation.workspace.status.as_ref().unwrap().begun_inputs, None, "nothing was applied");
}

#[test]
fn a_failed_run_is_reported_with_file_and_line_and_retried_with_growing_delays() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    let fails = |simulation: &mut Simulation| {
        let diagnostic = Diagnostic {
            summary: "Unsupported argument".to_owned(),
            detail: Some("An argument named \"lenght\" is not expected here.".to_owned()),
            at: Some("main.tf:4".to_owned()),
            ..Diagnostic::default()
        };
        simulation.ends(Outcome::Failed, |report| report.diagnostics = vec![diagnostic]).settle();
    };
    fails(&mut simulation);
    assert_eq!((simulation.phase(), simulation.reason().as_str()), (WorkspacePhase::Failed, "RunFailed"));
    assert!(
        simulation.message().contains("Unsupported argument (main.tf:4): An argument named"),
        "{}",
        simulation.message()
    );
    assert!(is_true(&simulation.workspace.status.as_ref().unwrap().conditions, STALLED));
    simulation.wait(9).settle();
    assert_eq!(simulation.run().number, 1);
    simulation.wait(2).settle();
    assert_eq!(simulation.run().number, 2);
    fails(&mut simulation);
    simulation.wait(19).settle();
    assert_eq!(simulation.run().number, 2, "twice as long");
    simulation = simulation.with("variables", json!({ "size": 3 }));
    simulation.settle();
    assert_eq!(simulation.run().number, 3, "another input need not wait");
}

#[test]
fn failed_jobs_are_kept_by_count() {
    let mut simulation = Simulation::simple().with("history", json!({ "failedJobs": 2 }));
    for _ in 0..5 {
        simulation.settle();
        simulation.ends(Outcome::Failed, |_| {}).settle();
        simulation.wait(3600);
    }
    assert_eq!(simulation.observed.jobs.iter().filter(|job| job.ended.is_some()).count(), 2);
}

#[test]
fn a_run_whose_job_is_gone_without_a_report_is_lost_and_retried() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation.lose_job().settle();
    assert_eq!(simulation.reason(), "RunLost");
    assert!(simulation.message().contains("deleted while it ran"), "{}", simulation.message());
    assert!(simulation.workspace.status.as_ref().unwrap().begun_inputs.is_some(), "nobody knows what it did");
    simulation.wait(11).settle();
    assert_eq!(simulation.run().number, 2);
}

#[test]
fn drift_is_checked_at_varied_intervals_and_reported() {
    let mut simulation = Simulation::simple().with("drift", json!({ "interval": "10m" })).applied();
    simulation.wait(530).settle();
    assert_eq!(simulation.run().action, Action::Apply);
    simulation.wait(140).settle();
    assert_eq!((simulation.run().action, simulation.phase()), (Action::Check, WorkspacePhase::Ready));
    assert!(
        is_true(&simulation.workspace.status.as_ref().unwrap().conditions, READY),
        "nothing is taken away from what is ready"
    );
    let differs = |report: &mut Report| {
        report.drift = DriftReport {
            count: 1,
            resources: vec![ChangedResource { address: "local_file.a".to_owned(), action: "delete".to_owned() }],
        };
    };
    simulation.ends(Outcome::Checked, differs);
    let notes = simulation.decide().notes;
    assert!(
        notes.iter().any(|note| note.reason == "DriftDetected" && note.message.contains("local_file.a")),
        "{notes:?}"
    );
    simulation.settle();
    assert_eq!((simulation.phase(), simulation.run().action), (WorkspacePhase::Ready, Action::Check));
    assert!(simulation.message().contains("local_file.a"), "{}", simulation.message());
}

#[test]
fn drift_is_corrected_when_that_is_asked_for_and_only_once() {
    let mut simulation =
        Simulation::simple().with("drift", json!({ "interval": "10m", "action": "Correct" })).applied();
    simulation.wait(700).settle();
    simulation.ends(Outcome::Checked, |report| report.drift.count = 1);
    simulation.wait(2).settle();
    assert_eq!(simulation.run().action, Action::Apply);
    simulation.ends(Outcome::Applied, |_| {}).settle();
    assert_eq!(simulation.workspace.status.as_ref().unwrap().drift.as_ref().unwrap().summary, "None");
    simulation.wait(60).settle();
    assert_eq!((simulation.run().number, simulation.phase()), (3, WorkspacePhase::Ready));
}

#[test]
fn no_comparison_is_made_when_drift_is_off() {
    let mut simulation = Simulation::simple().with("drift", json!({ "action": "Off" })).applied();
    simulation.wait(1_000_000).settle();
    assert_eq!(simulation.run().number, 1);
}

#[test]
fn who_waits_for_a_turn_says_so_and_starts_nothing() {
    let mut simulation = Simulation::simple();
    assert_eq!(simulation.decide().claims, Turn::Take(Class::Run));
    simulation.observed.turn = false;
    assert_eq!(simulation.decide().claims, Turn::Await);
    assert!(simulation.settle().is_empty());
    assert_eq!((simulation.phase(), simulation.reason().as_str()), (WorkspacePhase::Pending, "WaitingForTurn"));
}

fn lock(alive: bool, expires_in: i64) -> ObservedLock {
    let start: Timestamp = START.parse().unwrap();
    let resource = kube::api::ApiResource::erase::<k8s_openapi::api::coordination::v1::Lease>(&());
    ObservedLock {
        target: Target { resource, namespace: Some("infra".to_owned()), name: "lock".to_owned(), uid: "l".to_owned() },
        version: Some("7".to_owned()),
        holder: "pod-1".to_owned(),
        since: None,
        expires_at: Some(start + SignedDuration::from_secs(expires_in)),
        is_alive: alive,
    }
}

#[test]
fn a_lock_is_taken_away_only_when_it_is_expired_and_its_holder_is_gone() {
    for (alive, expires_in, taken) in [(true, -5, false), (false, 30, false), (true, 30, false), (false, -5, true)] {
        let mut simulation = Simulation::simple();
        simulation.observed.lock = Some(lock(alive, expires_in));
        let writes = simulation.pass();
        assert_eq!(writes == ["delete Lease infra/lock"], taken, "{alive} {expires_in}: {writes:?}");
        assert_eq!(simulation.reason(), "StateLocked");
        simulation.settle();
        assert_eq!(simulation.workspace.status.as_ref().unwrap().run.is_some(), taken);
    }
}

#[test]
fn a_person_takes_a_lock_away_by_naming_its_holder() {
    let mut simulation = Simulation::simple();
    simulation.observed.lock = Some(lock(true, 30));
    simulation.annotate("infra.opr8r/unlock", "somebody-else").settle();
    assert_eq!(simulation.reason(), "StateLocked");
    assert!(simulation.message().contains("pod-1 holds the lock"), "{}", simulation.message());
    assert_eq!(simulation.annotate("infra.opr8r/unlock", "pod-1").pass(), ["delete Lease infra/lock"]);
}

#[test]
fn nothing_starts_while_suspended_and_what_runs_ends() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation = simulation.with("suspend", json!(true));
    simulation.settle();
    assert_eq!(simulation.phase(), WorkspacePhase::Applying);
    simulation.ends(Outcome::Failed, |_| {}).wait(100).settle();
    assert_eq!((simulation.phase(), simulation.run().number), (WorkspacePhase::Suspended, 1));
}

#[test]
fn a_dependency_that_is_not_ready_is_waited_for_by_name() {
    let mut simulation = Simulation::simple();
    simulation.observed.waits_for = vec!["TerraformWorkspace vpc to be ready".to_owned()];
    assert!(simulation.settle().is_empty());
    assert_eq!(simulation.message(), "Waiting for TerraformWorkspace vpc to be ready.");
}

#[test]
fn what_is_applied_stays_ready_when_a_dependency_is_not() {
    let mut simulation = Simulation::simple().applied();
    simulation.observed.waits_for = vec!["TerraformWorkspace vpc to be ready".to_owned()];
    simulation.settle();
    assert_eq!(simulation.phase(), WorkspacePhase::Ready);
    simulation = simulation.with("variables", json!({ "size": 3 }));
    simulation.settle();
    assert_eq!((simulation.reason().as_str(), simulation.run().number), ("DependencyNotReady", 1));
}

#[test]
fn an_input_that_cannot_be_used_is_reported_with_its_field() {
    let mut simulation = Simulation::of(json!({ "module": { "builtin": "nothing" } }));
    assert!(simulation.settle().is_empty());
    assert_eq!((simulation.phase(), simulation.reason().as_str()), (WorkspacePhase::Failed, "InvalidSpec"));
    assert!(simulation.message().starts_with("spec.module.builtin"), "{}", simulation.message());
}

#[test]
fn a_deletion_destroys_from_the_inputs_that_were_applied_even_when_others_are_wanted_by_now() {
    let mut simulation = Simulation::simple().applied();
    let applied = simulation.run().inputs.clone();
    simulation.observed.inputs = Err(render::inputs(
        &Simulation::of(json!({ "module": { "configMapRef": { "name": "gone" } } })).workspace.spec,
        &Sources::new(),
    )
    .unwrap_err());
    simulation.delete().settle();
    assert_eq!(
        (simulation.run().action, &simulation.run().inputs, simulation.phase()),
        (Action::Destroy, &applied, WorkspacePhase::Deleting)
    );
    simulation.ends(Outcome::Destroyed, |_| {});
    let writes = simulation.settle();
    assert_eq!(writes.last().unwrap(), &format!("remove finalizer {FINALIZER}"), "{writes:?}");
    assert!(
        simulation.observed.jobs.is_empty() && simulation.observed.parts.iter().all(|part| part.part == "outputs"),
        "{:?}",
        simulation.observed.parts
    );
}

#[test]
fn a_workspace_that_never_began_goes_at_once() {
    let mut simulation = Simulation::of(json!({ "module": { "builtin": "nothing" } }));
    simulation.settle();
    assert_eq!(simulation.delete().settle().last().unwrap(), &format!("remove finalizer {FINALIZER}"));
}

#[test]
fn a_module_without_resources_has_no_state_and_goes_at_once() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation.ends(Outcome::Unchanged, |report| report.state = None).settle();
    assert_eq!(simulation.phase(), WorkspacePhase::Ready);
    let writes = simulation.delete().settle();
    assert_eq!(writes.last(), Some(&format!("remove finalizer {FINALIZER}")), "{writes:?}");
}

#[test]
fn a_deletion_waits_for_the_run_that_is_in_progress() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    assert!(simulation.delete().settle().is_empty());
    assert!(simulation.message().contains("is still in progress"), "{}", simulation.message());
    simulation.ends(Outcome::Applied, |_| {}).settle();
    assert_eq!(simulation.run().action, Action::Destroy);
}

#[test]
fn no_state_after_an_apply_began_is_not_nothing_to_do() {
    let mut simulation = Simulation::simple();
    simulation.settle();
    simulation.lose_job().settle();
    simulation.delete().settle();
    assert_eq!(simulation.reason(), "DestroyBlocked");
    assert!(
        simulation.message().contains("there is no state") && simulation.message().contains("Retain"),
        "{}",
        simulation.message()
    );
    simulation = simulation.with("deletionPolicy", json!("Retain"));
    let notes = &mut Vec::new();
    for _ in 0..10 {
        notes.extend(simulation.decide().notes);
        simulation.pass();
    }
    assert!(notes.iter().any(|note| note.reason == "Retained" && note.message.contains("no state")), "{notes:?}");
}

#[test]
fn a_state_that_is_gone_is_reported_and_nothing_is_recreated_unless_asked_for() {
    let mut simulation = Simulation::simple().applied();
    simulation.observed.parts.retain(|part| !part.target.name.contains("-state"));
    simulation = simulation.with("variables", json!({ "size": 3 }));
    simulation.settle();
    assert_eq!((simulation.reason().as_str(), simulation.run().number), ("StateMissing", 1));
    simulation.annotate("infra.opr8r/replan", "anew").settle();
    assert_eq!(simulation.run().number, 2);
}

#[test]
fn a_suspended_workspace_is_not_let_go_under_force() {
    let mut simulation = Simulation::simple().with("deletionPolicy", json!("Force")).applied();
    simulation = simulation.with("suspend", json!(true));
    assert!(simulation.delete().settle().is_empty());
    assert!(simulation.message().contains("spec.suspend"), "{}", simulation.message());
}

#[test]
fn a_destroy_that_fails_is_retried_under_destroy_and_let_go_under_force() {
    let failed = |policy: &str| {
        let mut simulation = Simulation::simple().with("deletionPolicy", json!(policy)).applied();
        simulation.delete().settle();
        simulation.ends(Outcome::Failed, |_| {});
        let writes = simulation.settle();
        (simulation, writes)
    };
    let (mut simulation, writes) = failed("Destroy");
    assert!(!writes.iter().any(|write| write.starts_with("remove finalizer")), "{writes:?}");
    assert_eq!(simulation.reason(), "DestroyFailed");
    simulation.wait(3600).settle();
    assert_eq!((simulation.run().number, simulation.run().action), (3, Action::Destroy));
    let (simulation, writes) = failed("Force");
    assert!(writes.iter().any(|write| write.starts_with("remove finalizer")), "{writes:?}");
    let left: Vec<&str> = simulation.observed.parts.iter().map(|part| part.target.name.as_str()).collect();
    assert!(
        left.iter().any(|name| name.ends_with("-state")) && left.iter().any(|name| name.contains("-in-")),
        "{left:?}"
    );
}

#[test]
fn retain_leaves_what_was_made_with_its_state_and_says_so() {
    let mut simulation = Simulation::simple().with("deletionPolicy", json!("Retain")).applied();
    simulation.delete();
    let mut notes = Vec::new();
    for _ in 0..10 {
        notes.extend(simulation.decide().notes);
        simulation.pass();
    }
    let note = notes.iter().find(|note| note.reason == "Retained").unwrap();
    assert!(note.message.contains("2 resources") && note.message.contains("-state"), "{}", note.message);
    assert!(simulation.observed.parts.iter().any(|part| part.target.name.ends_with("-state")));
}

#[test]
fn others_that_depend_on_it_are_destroyed_first() {
    let mut simulation = Simulation::simple().applied();
    simulation.observed.dependants = vec!["app".to_owned()];
    assert!(simulation.delete().settle().is_empty());
    assert!(simulation.message().contains("TerraformWorkspace app"), "{}", simulation.message());
    simulation.observed.dependants.clear();
    simulation.settle();
    assert_eq!(simulation.run().action, Action::Destroy);
}

#[test]
fn outputs_for_which_a_secret_has_no_room_are_reported_with_the_field_that_helps() {
    let mut simulation = Simulation::simple().applied();
    let large = OutputValue { value: json!("x".repeat(2 << 20)), sensitive: false };
    simulation.observed.outputs.get_or_insert_default().insert("manifest".to_owned(), large);
    assert_eq!(simulation.pass(), [""; 0], "the old ones stay");
    assert_eq!((simulation.phase(), simulation.reason().as_str()), (WorkspacePhase::Failed, "OutputsTooLarge"));
    assert!(simulation.message().contains("spec.outputs.include"), "{}", simulation.message());
    simulation = simulation.with("outputs", json!({ "include": ["id"] }));
    simulation.settle();
    assert_eq!(simulation.phase(), WorkspacePhase::Ready);
}
