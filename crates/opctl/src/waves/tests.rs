//! The output for sample plans and statuses.

use jiff::tz::TimeZone;
use kube::ResourceExt;
use wave_orchestrator::api::v1alpha1::{PlanPhase, WavePhase, WavePlan};

use super::plans::current;
use super::tree::{View, tree};
use super::{graph, list, status, verbs, verify};
use crate::output::Paint;

const FLEET: &str = include_str!("../../../../docs/samples/fleet.yaml");
const ROLLING_OUT: &str = include_str!("../../tests/statuses/rolling-out.yaml");
const TIMED_OUT: &str = include_str!("../../tests/statuses/timed-out.yaml");
const DONE: &str = include_str!("../../tests/statuses/done.yaml");

fn fleet(status: Option<&str>) -> WavePlan {
    let mut plan: WavePlan = serde_yaml::from_str(FLEET).unwrap();
    plan.metadata.generation = Some(1);
    plan.status = status.map(|status| serde_yaml::from_str(status).unwrap());
    plan
}

/// Ten minutes after the rollouts of the fixtures began.
fn view() -> View {
    View { now: "2026-01-01T12:10:00Z".parse().unwrap(), zone: TimeZone::UTC, paint: Paint::PLAIN, live: false }
}

fn drawn(plan: &WavePlan) -> String {
    tree(plan, &view()).into_iter().map(|line| line.text + "\n").collect()
}

#[test]
fn a_rollout_under_way_shows_what_runs_what_it_waits_for_and_how_long_it_will_take() {
    insta::assert_snapshot!(drawn(&fleet(Some(ROLLING_OUT))));
}

#[test]
fn a_wave_that_ran_out_of_time_shows_why_and_what_it_blocks() {
    insta::assert_snapshot!(drawn(&fleet(Some(TIMED_OUT))));
}

#[test]
fn a_rollout_that_is_through_shows_how_long_it_took_and_what_was_skipped_or_forced() {
    insta::assert_snapshot!(drawn(&fleet(Some(DONE))));
}

#[test]
fn a_plan_that_no_operator_has_seen_shows_what_is_planned_and_says_so() {
    insta::assert_snapshot!(drawn(&fleet(None)));
}

#[test]
fn a_status_about_an_older_spec_is_not_taken_for_the_present_one() {
    let mut plan = fleet(Some(DONE));
    plan.metadata.generation = Some(2);
    assert!(current(&plan).is_none());
    assert!(drawn(&plan).contains("the operator has not reconciled the change yet"));
    assert!(status::outcome(&plan).is_none(), "it is not over");
}

#[test]
fn waves_that_wait_for_each_other_are_drawn_all_the_same() {
    let mut plan = fleet(None);
    plan.spec.waves[0].depends_on = vec![depends_on("services")];
    let text = drawn(&plan);
    for wave in &plan.spec.waves {
        assert_eq!(text.matches(&format!(" {} ", wave.name)).count(), 1, "{}:\n{text}", wave.name);
    }
}

#[test]
fn a_wave_with_several_dependencies_stands_under_one_and_names_all() {
    let mut plan = fleet(None);
    plan.spec.waves[5].depends_on.push(depends_on("infrastructure-monitoring"));
    let text = drawn(&plan);
    let line = text.lines().find(|line| line.contains("─· services")).unwrap();
    assert!(line.contains("after database-workloads, infrastructure-monitoring"), "{line}");
}

#[test]
fn colours_are_there_only_when_asked_for() {
    let plan = fleet(Some(TIMED_OUT));
    assert!(!drawn(&plan).contains('\x1b'));
    let coloured = tree(&plan, &View { paint: Paint::COLOURED, ..view() });
    assert!(coloured.iter().any(|line| line.text.contains("\x1b[31mTimedOut\x1b[0m")));
}

#[test]
fn what_runs_turns_while_someone_watches() {
    let plan = fleet(Some(ROLLING_OUT));
    let live = View { live: true, ..view() };
    let later = View { now: "2026-01-01T12:10:01Z".parse().unwrap(), ..live.clone() };
    let running = |view: &View| {
        let lines = tree(&plan, view).into_iter().map(|line| line.text);
        lines.filter(|line| line.contains("database-workloads ★")).collect::<String>()
    };
    assert!(running(&live).contains("7m8s") && running(&later).contains("7m9s"), "{}", running(&later));
    assert_ne!(running(&live).split_whitespace().nth(1), running(&later).split_whitespace().nth(1));
}

#[test]
fn a_list_reads_like_one_of_kubectl() {
    let plans = [fleet(Some(ROLLING_OUT)), fleet(Some(DONE)), fleet(None)];
    let mut plans = plans.map(|mut plan| {
        plan.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(view().now));
        plan
    });
    plans[1].metadata.name = Some("other".to_owned());
    insta::assert_snapshot!(list::rows(&plans, view().now, Paint::PLAIN).join("\n"));
}

#[test]
fn a_log_gets_a_line_for_each_wave_that_changes_and_none_for_one_that_does_not() {
    let mut plan = fleet(Some(ROLLING_OUT));
    let first = status::news(&plan, None, &view());
    insta::assert_snapshot!(first.join("\n"));
    let before = plan.clone();
    assert_eq!(status::news(&plan, Some(&before), &view()), [] as [&str; 0]);

    let known = plan.status.as_mut().unwrap();
    known.waves[4].ready = 3;
    known.phase = Some(PlanPhase::Suspended);
    let news = status::news(&plan, Some(&before), &view());
    assert_eq!(news.len(), 2, "{news:#?}");
    assert!(news[0].contains("database-workloads") && news[0].contains("3/5"), "{news:#?}");
    assert!(news[1].contains("WavePlan fleet: Suspended, 3/7 waves"), "{news:#?}");
}

#[test]
fn the_graph_is_shown_in_layers_for_graphviz_and_for_mermaid() {
    let mut plan = fleet(None);
    plan.spec.waves[6].depends_on[0].gate = wave_orchestrator::api::v1alpha1::Gate::FirstRollout;
    let picture = super::picture::Picture::of(&plan, view().now);
    insta::assert_snapshot!("graph_text", graph::text(&picture).join("\n"));
    insta::assert_snapshot!("graph_dot", graph::dot(&picture).join("\n"));
    insta::assert_snapshot!("graph_mermaid", graph::mermaid(&picture).join("\n"));
}

#[test]
fn each_fault_of_a_graph_is_told_once() {
    let mut plan = fleet(None);
    plan.spec.waves[0].depends_on = vec![depends_on("services")];
    plan.spec.waves[2].depends_on = vec![depends_on("nowhere")];
    plan.spec.profile = Some("staging".to_owned());
    let problems = graph::problems(&super::picture::Picture::of(&plan, view().now));
    insta::assert_snapshot!(problems.join("\n"));
}

#[test]
fn starting_in_order_passes_and_what_was_forced_or_skipped_is_excused() {
    insta::assert_snapshot!(verified(&fleet(Some(DONE))));
}

#[test]
fn starting_too_early_and_not_being_ready_fails() {
    let mut plan = fleet(Some(TIMED_OUT));
    let waves = &mut plan.status.as_mut().unwrap().waves;
    waves[1].started_at = "2026-01-01T12:00:10Z".parse().ok();
    insta::assert_snapshot!(verified(&plan));
}

#[test]
fn an_edge_of_the_first_rollout_and_a_failure_that_does_not_matter_are_excused() {
    use wave_orchestrator::api::v1alpha1::{Gate, OnFailure};
    let mut plan = fleet(Some(DONE));
    // Config ran before the operators were ready; operators failed, and databases did not mind.
    plan.spec.waves[2].depends_on[0].gate = Gate::FirstRollout;
    plan.spec.waves[1].on_failure = OnFailure::Continue;
    let waves = &mut plan.status.as_mut().unwrap().waves;
    (waves[1].phase, waves[1].ready_at, waves[1].rolled_out) = (WavePhase::Failed, None, false);
    let text = verified(&plan);
    assert!(text.contains("~ infrastructure-config started, and infrastructure-operators is Failed"), "{text}");
    assert!(text.contains("~ database-workloads started, and infrastructure-operators is Failed"), "{text}");

    plan.spec.waves[1].on_failure = OnFailure::Block;
    let text = verified(&plan);
    assert!(text.contains("is Failed: that counts in the first rollout only (gate: FirstRollout)"), "{text}");
    assert!(text.contains("✘ database-workloads started, and infrastructure-operators is Failed\n"), "{text}");

    // Never ready yet: then the edge did count.
    plan.status.as_mut().unwrap().waves[2].rolled_out = false;
    assert!(verified(&plan).contains("✘ infrastructure-config started, and infrastructure-operators is Failed\n"));
}

#[test]
fn an_edge_of_the_first_rollout_counts_in_the_first_rollout_also_when_the_wave_is_ready() {
    let mut plan = fleet(Some(DONE));
    plan.spec.waves[2].depends_on[0].gate = wave_orchestrator::api::v1alpha1::Gate::FirstRollout;
    let status = plan.status.as_mut().unwrap();
    (status.waves[1].phase, status.waves[1].ready_at) = (WavePhase::Failed, None);
    status.rollout.as_mut().unwrap().number = 1;
    let text = verified(&plan);
    assert!(text.contains("✘ infrastructure-config started, and infrastructure-operators is Failed\n"), "{text}");
}

#[test]
fn what_counts_is_when_a_wave_first_started_and_who_is_tried_again_is_excused() {
    let mut plan = fleet(Some(DONE));
    let waves = &mut plan.status.as_mut().unwrap().waves;
    // Both ran again, the second a moment after the first.
    waves[2].begun_at = waves[2].started_at;
    (waves[1].phase, waves[1].ready_at) = (WavePhase::Running, None);
    waves[1].started_at = "2026-01-01T12:30:00Z".parse().ok();
    waves[2].started_at = "2026-01-01T12:30:01Z".parse().ok();
    let text = verified(&plan);
    assert!(text.contains("~ infrastructure-config started, and infrastructure-operators is Running"), "{text}");
    let waves = &mut plan.status.as_mut().unwrap().waves;
    (waves[2].begun_at, waves[2].attempts) = (waves[2].started_at, 1);
    let words = "infrastructure-operators is Running: it was tried again, whatever it depends on";
    assert!(verified(&plan).contains(words), "{}", verified(&plan));
}

#[test]
fn a_retry_of_all_leaves_out_what_cannot_be_carried_out_as_it_is_written() {
    let mut plan = fleet(Some(TIMED_OUT));
    let waves = &mut plan.status.as_mut().unwrap().waves;
    let invalid = waves.iter_mut().find(|wave| wave.name == "services").unwrap();
    (invalid.phase, invalid.started_at) = (WavePhase::Failed, None);
    assert_eq!(verbs::in_trouble(&plan).unwrap(), ["database-workloads"]);
    plan.status.as_mut().unwrap().waves.retain(|wave| wave.name == "services");
    let words = "Wave services has not started: there is nothing to try again. Correct the plan.";
    assert_eq!(verbs::in_trouble(&plan).unwrap_err().to_string(), words);
}

#[test]
fn a_wave_that_runs_again_says_nothing_of_how_those_behind_it_started() {
    let mut plan = fleet(Some(DONE));
    let waves = &mut plan.status.as_mut().unwrap().waves;
    (waves[0].phase, waves[0].ready_at) = (WavePhase::Running, None);
    waves[0].started_at = "2026-01-01T12:30:00Z".parse().ok();
    let text = verified(&plan);
    let words = "~ infrastructure-operators started, and infrastructure-core is Running: that has started since";
    assert!(text.contains(words), "{text}");
}

#[test]
fn nothing_is_verified_by_a_status_that_is_missing_or_old() {
    assert!(verified(&fleet(None)).contains("✘ The operator has not reconciled this plan yet"));
    let mut plan = fleet(Some(DONE));
    plan.metadata.generation = Some(2);
    assert!(verified(&plan).contains("✘ The spec has changed"));
    assert_eq!(plan.name_any(), "fleet");
}

#[test]
fn the_page_about_it_shows_what_it_prints() {
    let page = include_str!("../../../../docs/opctl.md");
    let fleet_at_work = fleet(Some(ROLLING_OUT));
    let picture = super::picture::Picture::of(&fleet_at_work, view().now);
    for shown in [
        drawn(&fleet_at_work),
        drawn(&fleet(Some(TIMED_OUT))),
        verified(&fleet(Some(DONE))),
        graph::text(&picture).join("\n"),
        status::news(&fleet_at_work, None, &view()).join("\n"),
    ] {
        let indented: Vec<String> =
            shown.lines().map(|line| if line.is_empty() { String::new() } else { format!("    {line}") }).collect();
        assert!(page.contains(&indented.join("\n")), "docs/opctl.md does not show:\n{}", indented.join("\n"));
    }
}

fn verified(plan: &WavePlan) -> String {
    verify::text(plan, &verify::recorded(plan), Paint::PLAIN).join("\n")
}

fn depends_on(wave: &str) -> wave_orchestrator::api::v1alpha1::Dependency {
    wave_orchestrator::api::v1alpha1::Dependency { wave: wave.to_owned(), ..Default::default() }
}
