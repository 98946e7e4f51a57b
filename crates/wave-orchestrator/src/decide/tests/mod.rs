//! Decisions on plans that a user could apply, with a cluster that the test controls.

mod asking;
mod claiming;
mod reaching;
mod steering;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use opcore::Write;
use serde_json::json;

use super::*;
use crate::api::v1alpha1::{
    CriticalPath, FINALIZER, FORCE_ANNOTATION, NotReady, PAUSE_ANNOTATION, PlanPhase, RESUME_ANNOTATION,
    RETRY_ANNOTATION, SKIP_ANNOTATION, WavePhase,
};
use crate::index::{ObservedGate, Snapshot, WaveSnapshot};
use crate::subscription::{AppliedKinds, GroupKind};
use opcore::duration::Span;

/// The decision, including the finalizer.
fn decide(plan: &WavePlan, observed: &Observed, now: Timestamp) -> DecisionOf<WavePlans> {
    let (active, terminating) = (|now| roll_out(plan, observed, now), |now| tear_down(plan, observed, now));
    opcore::finalizer::decide(plan, FINALIZER, now, active, terminating).expect("it holds the plan, or may")
}

const FLEET: &str = include_str!("../../../../../docs/samples/fleet.yaml");

/// A plan, the state of the cluster, and the time.
struct Simulation {
    plan: WavePlan,
    observed: Observed,
    now: Timestamp,
    notes: Vec<String>,
}

impl Simulation {
    fn of(yaml: &str) -> Self {
        let mut plan: WavePlan = serde_yaml::from_str(yaml).unwrap();
        plan.metadata.uid = Some("uid".to_owned());
        plan.metadata.generation = Some(1);
        plan.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        let one = || WaveSnapshot {
            total: 1,
            not_ready: vec![not_ready("Thing", false)],
            frontier: Some((0, crate::render::Stage::Rest)),
            ..WaveSnapshot::default()
        };
        let snapshot =
            Snapshot { waves: plan.spec.waves.iter().map(|_| one()).collect(), complete: true, ..Snapshot::default() };
        let probes = plan.spec.waves.iter().map(|_| Vec::new()).collect();
        let mut observed = Observed { revision: "r1".to_owned(), snapshot, probes, ..Observed::default() };
        observed.subscribed = Some(observed.subscription.clone());
        Self { plan, observed, now: "2026-01-01T00:00:00Z".parse().unwrap(), notes: Vec::new() }
    }

    fn fleet() -> Self {
        Self::of(FLEET)
    }

    fn number(&self, wave: &str) -> usize {
        self.plan.spec.waves.iter().position(|w| w.name == wave).unwrap()
    }

    fn snapshot(&mut self, wave: &str) -> &mut WaveSnapshot {
        let number = self.number(wave);
        &mut self.observed.snapshot.waves[number]
    }

    /// Everything in the wave becomes ready.
    fn ready(&mut self, wave: &str) -> &mut Self {
        let snapshot = self.snapshot(wave);
        (snapshot.ready, snapshot.failed, snapshot.frontier) = (snapshot.total, 0, None);
        snapshot.not_ready.clear();
        self
    }

    fn unready(&mut self, wave: &str) -> &mut Self {
        let snapshot = self.snapshot(wave);
        (snapshot.ready, snapshot.failed) = (0, 0);
        snapshot.not_ready = vec![not_ready("Thing", false)];
        self
    }

    fn fail(&mut self, wave: &str) -> &mut Self {
        let snapshot = self.snapshot(wave);
        snapshot.failed = 1;
        snapshot.not_ready = vec![not_ready("Thing", true)];
        self
    }

    fn annotate(&mut self, key: &str, value: &str) -> &mut Self {
        self.plan.annotations_mut().insert(key.to_owned(), value.to_owned());
        self
    }

    fn pass(&mut self, seconds: i64) -> &mut Self {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        self
    }

    /// Decides and publishes, until there is nothing more to publish.
    fn settle(&mut self) -> DecisionOf<WavePlans> {
        for _ in 0..20 {
            let decision = decide(&self.plan, &self.observed, self.now);
            self.notes.extend(decision.notes.iter().map(|note| format!("{}: {}", note.reason, note.message)));
            let published = Some(decision.status.clone());
            if published == self.plan.status {
                return decision;
            }
            self.plan.status = published;
        }
        panic!("it does not come to rest: {:#?}", self.plan.status);
    }

    /// Decides, has a write refused, and publishes the remaining status.
    fn refuse(&mut self) {
        let before = self.plan.status.clone().unwrap_or_default().conditions;
        let mut status = decide(&self.plan, &self.observed, self.now).status;
        let summary = opcore::conditions::Summary::stalled("OwnedByAnother", "ConfigMap a was not changed.");
        summary.write(&mut status, self.plan.metadata.generation, self.now);
        for condition in &mut status.conditions {
            let was = opcore::conditions::find(&before, &condition.type_);
            if let Some(was) = was.filter(|was| was.status == condition.status) {
                condition.last_transition_time = was.last_transition_time.clone();
            }
        }
        self.plan.status = Some(status);
    }

    fn phases(&mut self) -> BTreeMap<String, WavePhase> {
        self.settle();
        let status = self.plan.status.as_ref().unwrap();
        status.waves.iter().map(|wave| (wave.name.clone(), wave.phase)).collect()
    }

    fn phase(&mut self, wave: &str) -> WavePhase {
        self.phases()[wave]
    }

    fn running(&mut self) -> Vec<String> {
        let is_running = |(name, phase): (String, WavePhase)| (phase == WavePhase::Running).then_some(name);
        self.phases().into_iter().filter_map(is_running).collect()
    }

    fn path(&mut self) -> CriticalPath {
        self.settle();
        self.plan.status.as_ref().unwrap().critical_path.clone().unwrap()
    }

    fn summary(&mut self) -> (PlanPhase, String, String) {
        self.settle();
        let status = self.plan.status.as_ref().unwrap();
        let ready = opcore::conditions::find(&status.conditions, "Ready").unwrap();
        (status.phase.unwrap(), ready.reason.clone(), ready.message.clone())
    }
}

fn not_ready(object: &str, failed: bool) -> NotReady {
    let (reason, message) = ("Because".to_owned(), format!("{object} is not there."));
    NotReady { object: object.to_owned(), reason, message, failed }
}

fn nudge(name: &str) -> crate::index::ObservedNudge {
    crate::index::ObservedNudge { member: 0, target: target(name), requested: None, refused_at: None }
}

/// The kinds that waves apply: apiVersion, kind, wave.
fn applied(kinds: &[(&str, &str, &str)]) -> Arc<AppliedKinds> {
    let mut all = AppliedKinds::new();
    for (api_version, kind, wave) in kinds {
        all.entry(((*api_version).to_owned(), (*kind).to_owned())).or_default().insert((*wave).to_owned());
    }
    Arc::new(all)
}

fn minutes(count: u64) -> Span {
    Span::from_secs(count * 60)
}

/// An object in the namespace of Flux.
fn target(name: &str) -> opcore::writes::Target {
    opcore::writes::Target {
        resource: kube::api::ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&()),
        namespace: Some("flux-system".to_owned()),
        name: name.to_owned(),
        uid: "u".to_owned(),
    }
}

#[test]
fn the_fleet_takes_forty_minutes_at_most_on_its_critical_path() {
    let path = Simulation::fleet().path();
    assert_eq!(path.waves, ["infrastructure-core", "infrastructure-operators", "database-workloads", "services"]);
    assert_eq!(path.total, minutes(40));
    assert_eq!(path.remaining, minutes(40));
    let slack: BTreeMap<_, _> = path.slack.into_iter().map(|slack| (slack.wave, slack.slack)).collect();
    assert_eq!(slack["services"], minutes(0));
    assert_eq!(slack["database-ui"], minutes(0), "it takes as long as services");
    assert_eq!(slack["infrastructure-config"], minutes(20));
    assert_eq!(slack["infrastructure-monitoring"], minutes(25));
}

#[test]
fn the_fleet_starts_with_core_alone() {
    assert_eq!(Simulation::fleet().running(), ["infrastructure-core"]);
}

#[test]
fn monitoring_does_not_wait_for_operators() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.ready("infrastructure-core");
    assert_eq!(fleet.running(), ["infrastructure-monitoring", "infrastructure-operators"]);
}

#[test]
fn services_and_ui_start_together_the_moment_databases_is_ready_and_config_gates_nothing() {
    let mut fleet = Simulation::fleet();
    for wave in ["infrastructure-core", "infrastructure-operators", "database-workloads"] {
        fleet.settle();
        fleet.ready(wave);
    }
    assert_eq!(fleet.running(), ["database-ui", "infrastructure-config", "infrastructure-monitoring", "services"]);
}

#[test]
fn the_profile_scales_every_timeout() {
    let mut fleet = Simulation::fleet();
    fleet.plan.spec.profile = Some("development".to_owned());
    assert_eq!(fleet.path().total, minutes(80));
    assert_eq!(fleet.plan.spec.resync(), minutes(1));
}

#[test]
fn a_wave_that_may_start_writes_at_once_and_before_those_that_run() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.ready("infrastructure-core").settle();
    fleet.snapshot("infrastructure-monitoring").nudges.extend((0..40).map(|number| nudge(&format!("m{number}"))));
    fleet.snapshot("database-workloads").nudges.push(nudge("d0"));
    assert_eq!(fleet.settle().writes.iter().count(), 16, "not all of it at once");
    fleet.ready("infrastructure-operators");
    let start = decide(&fleet.plan, &fleet.observed, fleet.now);
    let words: Vec<String> = start.writes.iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), 16, "{words:?}");
    assert!(words[0].contains("d0"), "{words:?}");
    assert_eq!(start.status.wave("database-workloads").map(|wave| wave.phase), Some(WavePhase::Running));
}

#[test]
fn what_was_refused_before_comes_after_all_others_and_each_has_its_turn() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.ready("infrastructure-core").settle();
    let refused =
        |number: u64| crate::index::ObservedNudge { refused_at: Some(100 - number), ..nudge(&format!("r{number}")) };
    fleet.snapshot("infrastructure-operators").nudges.extend((0..40).map(refused));
    fleet.snapshot("infrastructure-monitoring").nudges.push(nudge("m0"));
    let writes = fleet.settle().writes.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(writes[0].contains("m0") && writes[1].contains("r39") && writes[2].contains("r38"), "{writes:?}");
}

#[test]
fn nothing_is_written_before_the_rollout_is_published() {
    let mut fleet = Simulation::fleet();
    fleet.snapshot("infrastructure-core").nudges.push(nudge("k"));
    let first = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert!(first.writes.is_empty(), "{:?}", first.writes);
    fleet.plan.status = Some(first.status);
    let second = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert!(matches!(second.writes.iter().next(), Some(Write::Annotate { .. })), "{:?}", second.writes);
}

#[test]
fn nothing_is_written_before_the_finalizer_is_there() {
    let mut fleet = Simulation::fleet();
    fleet.plan.metadata.finalizers = None;
    fleet.snapshot("infrastructure-core").nudges.push(nudge("k"));
    let first = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert!(first.writes.is_empty(), "{:?}", first.writes);
    fleet.plan.status = Some(first.status);
    let second = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert_eq!(second.writes.stages()[0], [Write::AddFinalizer(FINALIZER.to_owned())]);
    assert!(second.writes.stages().len() > 1, "{:?}", second.writes);
}

#[test]
fn a_wave_that_runs_out_of_time_blocks_its_descendants_and_nobody_else() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.ready("infrastructure-core").settle();
    fleet.pass(601);
    let phases = fleet.phases();
    assert_eq!(phases["infrastructure-operators"], WavePhase::TimedOut);
    assert_eq!(phases["infrastructure-config"], WavePhase::Blocked);
    assert_eq!(phases["services"], WavePhase::Blocked);
    assert_eq!(phases["infrastructure-monitoring"], WavePhase::TimedOut);
    let (phase, reason, message) = fleet.summary();
    assert_eq!((phase, reason.as_str()), (PlanPhase::Failed, "WaveTimedOut"));
    assert!(
        message.contains("infrastructure-operators was not ready by 2026-01-01T00:10:00Z: Thing is not there."),
        "{message}"
    );
}

#[test]
fn late_readiness_resumes() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.pass(301);
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::TimedOut);
    fleet.ready("infrastructure-core");
    assert_eq!(fleet.running(), ["infrastructure-monitoring", "infrastructure-operators"]);
}

#[test]
fn a_deadline_is_a_moment_in_the_status_and_the_next_reconcile_is_then() {
    let mut fleet = Simulation::fleet();
    let decision = fleet.settle();
    let deadline = fleet.plan.status.as_ref().unwrap().wave("infrastructure-core").unwrap().deadline.unwrap();
    assert_eq!(deadline.to_string(), "2026-01-01T00:05:00Z");
    assert_eq!(decision.next, Next::At(deadline));
}

#[test]
fn what_failed_fails_its_wave_at_once_and_what_is_slow_does_not() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.fail("infrastructure-core");
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::Failed);
    assert_eq!(fleet.phase("infrastructure-monitoring"), WavePhase::Blocked);
    fleet.unready("infrastructure-core");
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::Running, "it recovers");
}

#[test]
fn a_wave_that_recovers_writes_nothing_before_that_is_published() {
    let mut fleet = Simulation::fleet();
    fleet.snapshot("infrastructure-core").nudges.push(nudge("core"));
    fleet.settle();
    fleet.fail("infrastructure-core").settle();
    fleet.unready("infrastructure-core");
    let decision = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert_eq!(decision.status.wave("infrastructure-core").unwrap().phase, WavePhase::Running);
    assert!(decision.writes.is_empty(), "{:?}", decision.writes);
    assert_eq!(fleet.settle().writes.iter().count(), 1);
}

#[test]
fn on_failure_continue_lets_the_dependants_start() {
    let mut fleet = Simulation::fleet();
    fleet.plan.spec.waves[0].on_failure = crate::api::v1alpha1::OnFailure::Continue;
    fleet.settle();
    fleet.fail("infrastructure-core");
    assert_eq!(fleet.running(), ["infrastructure-monitoring", "infrastructure-operators"]);
}

#[test]
fn on_failure_pause_starts_nothing_until_someone_resumes() {
    let mut fleet = Simulation::fleet();
    let number = fleet.number("infrastructure-monitoring");
    fleet.plan.spec.waves[number].on_failure = crate::api::v1alpha1::OnFailure::Pause;
    fleet.settle();
    fleet.ready("infrastructure-core").settle();
    fleet.fail("infrastructure-monitoring").settle();
    fleet.ready("infrastructure-operators");
    assert_eq!(fleet.phase("database-workloads"), WavePhase::Suspended);
    assert_eq!(fleet.summary().1, "PausedByFailure");
    fleet.annotate(RESUME_ANNOTATION, "1");
    assert_eq!(fleet.phase("database-workloads"), WavePhase::Running);
    assert_eq!(fleet.phase("infrastructure-monitoring"), WavePhase::Failed);
}

#[test]
fn on_failure_retry_retries_after_a_growing_pause_and_then_gives_up() {
    let mut fleet = Simulation::fleet();
    (fleet.plan.spec.waves[0].on_failure, fleet.plan.spec.waves[0].retries) =
        (crate::api::v1alpha1::OnFailure::Retry, 2);
    fleet.settle();
    fleet.fail("infrastructure-core");
    let mut pauses = Vec::new();
    for _ in 0..2 {
        let decision = fleet.settle();
        assert_eq!(fleet.phase("infrastructure-operators"), WavePhase::Waiting, "it is not hopeless yet");
        let Next::At(at) = decision.next else { panic!("{:?}", decision.next) };
        pauses.push(at.duration_since(fleet.now).as_secs());
        fleet.now = at;
    }
    assert_eq!(pauses, [5, 10]);
    fleet.settle();
    let core = fleet.plan.status.as_ref().unwrap().wave("infrastructure-core").unwrap().clone();
    assert_eq!((core.phase, core.attempts, core.retry_at), (WavePhase::Failed, 2, None));
    assert_eq!(fleet.phase("infrastructure-operators"), WavePhase::Blocked);
}

#[test]
fn on_failure_rollback_reverts_the_wave_once_and_blocks_what_depends_on_it() {
    let mut fleet = Simulation::fleet();
    fleet.plan.spec.waves[0].on_failure = crate::api::v1alpha1::OnFailure::Rollback;
    let rollback =
        crate::observe::Rollback { kept: Some(Arc::new("old".to_owned())), wanted: Some(Arc::new("new".to_owned())) };
    fleet.observed.rollbacks.insert("infrastructure-core".to_owned(), rollback);
    fleet.settle();
    fleet.fail("infrastructure-core");
    let decision = decide(&fleet.plan, &fleet.observed, fleet.now);
    let core = decision.status.wave("infrastructure-core").unwrap().clone();
    assert_eq!((core.phase, core.rolled_back), (WavePhase::Running, true));
    fleet.plan.status = Some(decision.status);
    fleet.ready("infrastructure-core");
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::Failed, "what was asked for is not there");
    assert_eq!(fleet.phase("infrastructure-operators"), WavePhase::Blocked);
    assert!(fleet.summary().2.contains("were reverted to those with which it was last ready"), "{:?}", fleet.summary());
    fleet.annotate(RETRY_ANNOTATION, "infrastructure-core@1");
    let decision = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert!(!decision.status.wave("infrastructure-core").unwrap().rolled_back);
}

#[test]
fn a_wave_that_never_was_ready_is_not_reverted() {
    let mut fleet = Simulation::fleet();
    fleet.plan.spec.waves[0].on_failure = crate::api::v1alpha1::OnFailure::Rollback;
    let rollback = crate::observe::Rollback { kept: None, wanted: Some(Arc::new("new".to_owned())) };
    fleet.observed.rollbacks.insert("infrastructure-core".to_owned(), rollback);
    fleet.settle();
    fleet.fail("infrastructure-core");
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::Failed);
}

#[test]
fn retry_skip_force_and_pause_are_asked_by_annotation() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.pass(301).settle();
    fleet.annotate(RETRY_ANNOTATION, "infrastructure-core@1");
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::Running);
    fleet.pass(301);
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::TimedOut, "the same request is not carried out twice");
    fleet.annotate(SKIP_ANNOTATION, "infrastructure-core");
    assert_eq!(fleet.running(), ["infrastructure-monitoring", "infrastructure-operators"]);
    fleet.annotate(FORCE_ANNOTATION, "services@1");
    assert_eq!(fleet.phase("services"), WavePhase::Running);
    fleet.annotate(PAUSE_ANNOTATION, "true").ready("infrastructure-operators");
    assert_eq!(fleet.phase("database-workloads"), WavePhase::Suspended);
    assert_eq!(fleet.summary().0, PlanPhase::Suspended);
    fleet.plan.annotations_mut().remove(PAUSE_ANNOTATION);
    assert_eq!(fleet.phase("database-workloads"), WavePhase::Running);
}

#[test]
fn a_retry_of_all_leaves_those_alone_that_run() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    let started =
        |fleet: &Simulation| fleet.plan.status.as_ref().unwrap().wave("infrastructure-core").unwrap().started_at;
    let before = started(&fleet);
    fleet.pass(60).annotate(RETRY_ANNOTATION, "*@1").settle();
    assert_eq!(started(&fleet), before);
}

#[test]
fn a_force_while_the_plan_is_paused_is_carried_out_when_it_goes_on() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.annotate(PAUSE_ANNOTATION, "true").annotate(FORCE_ANNOTATION, "services@1");
    assert_eq!(fleet.phase("services"), WavePhase::Suspended);
    fleet.plan.annotations_mut().remove(PAUSE_ANNOTATION);
    assert_eq!(fleet.phase("services"), WavePhase::Running);
}

#[test]
fn who_started_before_its_dependency_was_ready_is_reported_unless_that_was_asked_for() {
    let in_order = |simulation: &mut Simulation| {
        simulation.settle();
        opcore::conditions::find(&simulation.plan.status.as_ref().unwrap().conditions, "StartedInOrder").unwrap().status
            == "True"
    };
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.annotate(FORCE_ANNOTATION, "services@1");
    assert!(in_order(&mut fleet), "it was forced");
    // As if something had gone wrong.
    let status = fleet.plan.status.as_mut().unwrap();
    status.waves.iter_mut().find(|wave| wave.name == "services").unwrap().forced = false;
    assert!(!in_order(&mut fleet));
}

#[test]
fn a_request_for_a_wave_that_does_not_exist_is_answered() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.annotate(RETRY_ANNOTATION, "servces@1").settle();
    assert!(
        fleet.notes.iter().any(|note| note.starts_with("UnknownWave") && note.contains("servces")),
        "{:?}",
        fleet.notes
    );
}

#[test]
fn a_wave_to_skip_that_does_not_exist_is_answered_once() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.annotate(SKIP_ANNOTATION, "servces").settle();
    // The Event is not repeated while the annotation stays, nor when another request is made.
    fleet.pass(60).settle();
    fleet.annotate(RETRY_ANNOTATION, "*@1").settle();
    let reported: Vec<_> = fleet.notes.iter().filter(|note| note.starts_with("UnknownWave")).collect();
    assert_eq!(reported, ["UnknownWave: An annotation names servces, which is not a wave of this plan."]);
    fleet.annotate(SKIP_ANNOTATION, "services, databses").settle();
    assert!(fleet.notes.iter().any(|note| note.contains("names databses")), "{:?}", fleet.notes);
    assert_eq!(fleet.phase("services"), WavePhase::Skipped);
}

#[test]
fn a_new_revision_starts_a_new_rollout_and_what_is_ready_passes_in_one_reconcile() {
    let mut fleet = Simulation::fleet();
    for wave in fleet.plan.spec.waves.clone() {
        fleet.settle();
        fleet.ready(&wave.name);
    }
    assert_eq!(fleet.summary().0, PlanPhase::Ready);
    fleet.pass(60);
    fleet.observed.revision = "r2".to_owned();
    let decision = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert_eq!(decision.status.phase, Some(PlanPhase::Ready));
    let rollout = decision.status.rollout.unwrap();
    assert_eq!((rollout.number, rollout.finished_at), (2, Some(fleet.now)));
    assert_eq!(decision.status.history.iter().map(|record| record.number).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn an_edge_for_the_first_rollout_gates_no_later_one() {
    let mut fleet = Simulation::fleet();
    let number = fleet.number("infrastructure-monitoring");
    fleet.plan.spec.waves[number].depends_on[0].gate = crate::api::v1alpha1::Gate::FirstRollout;
    for wave in fleet.plan.spec.waves.clone() {
        fleet.settle();
        fleet.ready(&wave.name);
    }
    fleet.settle();
    fleet.observed.revision = "r2".to_owned();
    fleet.unready("infrastructure-core").unready("infrastructure-monitoring").unready("infrastructure-operators");
    assert_eq!(fleet.running(), ["infrastructure-core", "infrastructure-monitoring"]);
}

#[test]
fn a_wave_that_is_no_longer_ready_runs_again_and_its_dependants_stay_as_they_are() {
    let mut fleet = Simulation::fleet();
    for wave in fleet.plan.spec.waves.clone() {
        fleet.settle();
        fleet.ready(&wave.name);
    }
    fleet.settle();
    fleet.pass(3600).unready("infrastructure-core");
    let phases = fleet.phases();
    assert_eq!(phases["infrastructure-core"], WavePhase::Running);
    assert_eq!(phases["services"], WavePhase::Ready);
    let core = fleet.plan.status.as_ref().unwrap().wave("infrastructure-core").unwrap();
    assert_eq!(core.deadline, core.started_at.map(|at| minutes(5).after(at)), "its timeout starts again");
}

#[test]
fn what_nobody_has_read_yet_changes_nothing_that_is_published() {
    let mut fleet = Simulation::fleet();
    for wave in fleet.plan.spec.waves.clone() {
        fleet.settle();
        fleet.ready(&wave.name);
    }
    fleet.settle();
    let published = fleet.plan.status.clone();
    fleet.pass(60).unready("services").snapshot("services").unread = 1;
    assert_eq!(Some(decide(&fleet.plan, &fleet.observed, fleet.now).status), published);
}

#[test]
fn mere_progress_is_written_at_most_every_five_seconds_and_time_alone_never() {
    let mut fleet = Simulation::fleet();
    fleet.snapshot("infrastructure-core").total = 100;
    fleet.settle();
    let published = fleet.plan.status.clone();
    fleet.pass(1).snapshot("infrastructure-core").ready = 40;
    let decision = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert_eq!(Some(&decision.status), published.as_ref());
    assert_eq!(decision.next, Next::At("2026-01-01T00:00:05Z".parse().unwrap()));
    fleet.pass(4);
    let decision = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert_eq!(decision.status.wave("infrastructure-core").unwrap().ready, 40);
    fleet.settle();
    fleet.pass(100);
    let decision = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert_eq!(Some(decision.status), fleet.plan.status);
}

#[test]
fn a_cycle_stalls_the_plan_with_its_path_and_the_other_waves_go_on() {
    let mut simulation = Simulation::of(
        "{apiVersion: waves.opcore.dev/v1alpha1, kind: WavePlan, metadata: {name: p}, spec: {waves: [
            {name: a, dependsOn: [{wave: b}], probes: [{tcp: {host: h, port: 1}}]},
            {name: b, dependsOn: [{wave: a}], probes: [{tcp: {host: h, port: 1}}]},
            {name: behind, dependsOn: [{wave: b}], probes: [{tcp: {host: h, port: 1}}]},
            {name: free, members: [{ref: {apiVersion: v1, kind: Pod, namespace: n, name: p}}]}]}}",
    );
    assert_eq!(simulation.running(), ["free"]);
    simulation.ready("free");
    let (phase, reason, message) = simulation.summary();
    assert_eq!((phase, reason.as_str()), (PlanPhase::Invalid, "InvalidSpec"));
    assert!(message.contains("a → b → a"), "{message}");
    assert_eq!(simulation.phase("behind"), WavePhase::Blocked);
    assert_eq!(simulation.phase("free"), WavePhase::Ready);
}

#[test]
fn a_version_that_is_served_no_more_goes_from_the_record_when_another_one_of_its_kind_is_in_it() {
    let mut fleet = Simulation::fleet();
    let kind = |version: &str, kind: &str| (format!("example.io/{version}"), kind.to_owned());
    let (old, wave) = ("example.io/v1beta1", "infrastructure-core");
    let recorded = |fleet: &mut Simulation| -> Vec<String> {
        fleet.settle();
        let inventory = &fleet.plan.status.as_ref().unwrap().inventory;
        inventory.iter().map(|kind| format!("{} {}", kind.api_version, kind.kind)).collect()
    };
    let there = |kind: &str| {
        let id = GroupKind { group: "example.io".to_owned(), kind: kind.to_owned() };
        (id, BTreeMap::from([(wave.to_owned(), 1)]))
    };
    fleet.observed.snapshot.counts = Arc::new([there("Widget"), there("Gadget")].into());
    fleet.observed.snapshot.applied_kinds = applied(&[(old, "Widget", wave), (old, "Gadget", wave)]);
    assert_eq!(recorded(&mut fleet), ["example.io/v1beta1 Gadget", "example.io/v1beta1 Widget"]);
    // The plan changes to another version of one of the kinds, and the cluster no longer serves the old one.
    fleet.observed.snapshot.applied_kinds = applied(&[("example.io/v1", "Widget", wave)]);
    fleet.observed.unserved = [kind("v1beta1", "Widget"), kind("v1beta1", "Gadget")].into();
    assert_eq!(recorded(&mut fleet), ["example.io/v1 Widget", "example.io/v1beta1 Gadget"]);
}

#[test]
fn a_write_that_is_refused_again_and_again_changes_nothing_that_is_published() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.refuse();
    let published = fleet.plan.status.clone();
    for seconds in [1, 60, 3] {
        fleet.pass(seconds).refuse();
        assert_eq!(fleet.plan.status, published, "else its own words would wake it before its time");
    }
}

#[test]
fn what_is_no_longer_refused_is_no_longer_reported_even_while_progress_waits() {
    let mut fleet = Simulation::fleet();
    fleet.snapshot("infrastructure-core").total = 100;
    fleet.settle();
    fleet.refuse();
    fleet.pass(1).snapshot("infrastructure-core").ready = 40;
    let decision = decide(&fleet.plan, &fleet.observed, fleet.now);
    assert_eq!(decision.status.wave("infrastructure-core").unwrap().ready, 0);
    assert!(!opcore::conditions::is_true(&decision.status.conditions, "Stalled"));
    assert_eq!(opcore::conditions::find(&decision.status.conditions, "Ready").unwrap().reason, "RollingOut");
}

fn orphan(kind: &str, name: &str, protected: Option<crate::api::v1alpha1::ProtectedKind>) -> crate::index::OwnedObject {
    let mut target = nudge(name).target;
    kind.clone_into(&mut target.resource.kind);
    target.namespace = None;
    crate::index::OwnedObject {
        target,
        wave: "gone".to_owned(),
        stage: crate::render::Stage::Rest,
        deleting: false,
        protected,
    }
}

#[test]
fn what_stays_anyway_does_not_count_towards_the_limit_of_a_prune() {
    let mut fleet = Simulation::fleet();
    fleet.plan.spec.prune.limit = 1;
    for wave in fleet.plan.spec.waves.clone() {
        fleet.settle();
        fleet.ready(&wave.name);
    }
    fleet.settle();
    let snapshot = &mut fleet.observed.snapshot;
    snapshot.kept = vec![orphan("Namespace", "shop", Some(crate::api::v1alpha1::ProtectedKind::Namespace))];
    snapshot.kept_count = 9;
    (snapshot.orphans, snapshot.orphan_count) = (vec![orphan("ConfigMap", "old", None)], 1);
    let writes: Vec<String> = fleet.settle().writes.iter().map(ToString::to_string).collect();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert!(writes[0].contains("ConfigMap old"), "{writes:?}");
    let held = fleet.plan.status.as_ref().unwrap().prune_held.clone().unwrap();
    assert!(
        held.starts_with("Namespace shop and 8 more were not deleted, because data would be deleted with them"),
        "{held}"
    );
    fleet.observed.snapshot.orphan_count = 2;
    assert_eq!(fleet.settle().writes.iter().count(), 0);
    let held = fleet.plan.status.as_ref().unwrap().prune_held.clone().unwrap();
    assert!(held.starts_with("2 objects are no longer in the plan, which is more than spec.prune.limit (1)"), "{held}");
}

#[test]
fn which_jobs_were_complete_is_in_the_status() {
    let mut fleet = Simulation::fleet();
    fleet.settle();
    fleet.snapshot("infrastructure-core").completed = vec!["Job shop/migrate".to_owned()];
    fleet.settle();
    let core = fleet.plan.status.as_ref().unwrap().wave("infrastructure-core").unwrap();
    assert_eq!(core.completed, ["Job shop/migrate"]);
}
