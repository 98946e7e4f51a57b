//! Teardowns one pass at a time.

use std::time::Duration;

use jiff::Timestamp;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The shape of an identity stack.
fn stack() -> Teardown {
    Teardown::graph([
        step("oidc").within(secs(30)),
        step("csi").after(["oidc"]).within(secs(30)),
        step("agent").after(["csi"]).within(secs(30)),
        step("server").after(["agent", "oidc"]).within(secs(30)),
    ])
    .unwrap()
}

fn pending(_: &str) -> StepStatus {
    StepStatus::Pending { reason: "still there".to_owned(), retry: None }
}

fn phases(progress: &Progress) -> Vec<(&str, StepPhase)> {
    progress.record.steps.iter().map(|step| (step.name.as_str(), step.phase)).collect()
}

#[test]
fn the_first_pass_writes_down_what_begins_and_acts_on_nothing() {
    let first = stack().advance(None, pending, &Force::None, at(0));
    assert_eq!(
        phases(&first),
        [
            ("oidc", StepPhase::Running),
            ("csi", StepPhase::Waiting),
            ("agent", StepPhase::Waiting),
            ("server", StepPhase::Waiting)
        ]
    );
    assert!(first.act.is_empty());
    assert_eq!(first.record.step("server").unwrap().message.as_deref(), Some("after agent, oidc"));
}

#[test]
fn the_end_of_a_step_and_the_start_of_the_next_are_one_status() {
    let first = stack().advance(None, pending, &Force::None, at(0));
    let second = stack().advance(Some(&first.record), |_| StepStatus::Done, &Force::None, at(5));
    assert_eq!(phases(&second)[..2], [("oidc", StepPhase::Done), ("csi", StepPhase::Running)]);
    assert!(second.act.is_empty(), "the next step acts only once it is published");
    let third = stack().advance(Some(&second.record), pending, &Force::None, at(6));
    assert_eq!(third.act, ["csi"]);
}

#[test]
fn steps_without_an_edge_between_them_run_side_by_side() {
    let teardown = Teardown::graph([step("a"), step("b"), step("c").after(["a", "b"])]).unwrap();
    let first = teardown.advance(None, pending, &Force::None, at(0));
    let second = teardown.advance(Some(&first.record), pending, &Force::None, at(1));
    assert_eq!(second.act, ["a", "b"]);
    let only_a = |step: &str| if step == "a" { StepStatus::Done } else { pending(step) };
    let third = teardown.advance(Some(&second.record), only_a, &Force::None, at(2));
    assert_eq!(third.record.step("c").unwrap().phase, StepPhase::Waiting);
}

#[test]
fn it_is_released_one_pass_after_the_last_step_was_published_as_done() {
    let teardown = Teardown::graph([step("only")]).unwrap();
    let first = teardown.advance(None, pending, &Force::None, at(0));
    let second = teardown.advance(Some(&first.record), |_| StepStatus::Done, &Force::None, at(1));
    assert_eq!(second.state, TeardownState::Running);
    let third = teardown.advance(Some(&second.record), |_| StepStatus::Done, &Force::None, at(2));
    assert_eq!(third.state, TeardownState::Released);
    assert_eq!(third.record, second.record);
}

#[test]
fn a_teardown_without_steps_is_recorded_and_released() {
    let teardown = Teardown::graph([]).unwrap();
    let first = teardown.advance(None, pending, &Force::None, at(0));
    assert_eq!(first.state, TeardownState::Running);
    assert_eq!(teardown.advance(Some(&first.record), pending, &Force::None, at(0)).state, TeardownState::Released);
}

#[test]
fn a_deadline_counts_from_the_published_start_and_is_announced() {
    let first = stack().advance(None, pending, &Force::None, at(100));
    let second = stack().advance(Some(&first.record), pending, &Force::None, at(110));
    assert_eq!(second.next, Some(at(130)));
    let late = stack().advance(Some(&second.record), pending, &Force::None, at(130));
    assert!(late.record.step("oidc").unwrap().overdue);
    assert_eq!((late.next, late.act.as_slice()), (None, ["oidc".to_owned()].as_slice()));
}

#[test]
fn the_deadline_of_the_whole_counts_too_and_every_step_gets_a_chance() {
    let teardown =
        Teardown::graph([step("a"), step("b").after(["a"])]).unwrap().within(secs(60)).on_expiry(OnExpiry::Force);
    let pass = |record: Option<&TeardownRecord>, second| teardown.advance(record, pending, &Force::None, at(second));
    let first = pass(None, 0);
    let second = pass(Some(&first.record), 1);
    let third = pass(Some(&second.record), 60);
    assert_eq!(phases(&third), [("a", StepPhase::Leaked), ("b", StepPhase::Running)]);
    let fourth = pass(Some(&third.record), 61);
    assert_eq!((fourth.act.as_slice(), phases(&fourth)[1].1), (["b".to_owned()].as_slice(), StepPhase::Running));
    let fifth = pass(Some(&fourth.record), 61);
    assert_eq!(phases(&fifth), [("a", StepPhase::Leaked), ("b", StepPhase::Leaked)]);
    assert_eq!(fifth.notes()[0].message, "b: given up when its deadline passed: still there");
}

#[test]
fn blocked_names_what_is_in_the_way() {
    let blocked = |_: &str| StepStatus::Blocked {
        by: vec!["Pod shop/front".to_owned(), "Pod shop/back".to_owned()],
        retry: None,
    };
    let first = stack().advance(None, blocked, &Force::None, at(0));
    let second = stack().advance(Some(&first.record), blocked, &Force::None, at(1));
    assert_eq!(second.words(), ("TeardownBlocked", "The teardown waits for Pod shop/front, Pod shop/back.".to_owned()));
}

#[test]
fn manual_stops_acting_and_says_how_to_go_on() {
    let teardown = stack().on_expiry(OnExpiry::Manual);
    let first = teardown.advance(None, pending, &Force::None, at(0));
    let late = teardown.advance(Some(&first.record), pending, &Force::None, at(30));
    assert_eq!(late.state, TeardownState::Stopped { steps: vec!["oidc".to_owned()] });
    assert!(late.act.is_empty() && late.words().1.contains("opcore.dev/force-teardown"));
    // What it waited for happened after all.
    let after_all = teardown.advance(Some(&late.record), |_| StepStatus::Done, &Force::None, at(31));
    assert_eq!(after_all.record.step("oidc").unwrap().phase, StepPhase::Done);
}

#[test]
fn a_step_that_stopped_is_still_observed_when_it_asks_for_it() {
    let teardown = stack().on_expiry(OnExpiry::Manual);
    let asks = |_: &str| StepStatus::Pending { reason: "still there".to_owned(), retry: Some(at(37)) };
    let first = teardown.advance(None, asks, &Force::None, at(0));
    let late = teardown.advance(Some(&first.record), asks, &Force::None, at(30));
    assert_eq!((late.state, late.next), (TeardownState::Stopped { steps: vec!["oidc".to_owned()] }, Some(at(37))));
}

#[test]
fn what_was_left_behind_is_reported_when_it_is_given_up_and_when_the_object_goes() {
    let teardown = Teardown::graph([step("a"), step("b").after(["a"])]).unwrap();
    let mut progress = teardown.advance(None, pending, &Force::None, at(0));
    let mut reported = Vec::new();
    for (second, force) in [(1, Force::Step("a".to_owned())), (2, Force::None), (3, Force::None)] {
        let see = |_: &str| if second == 1 { pending("a") } else { StepStatus::Done };
        progress = teardown.advance(Some(&progress.record), see, &force, at(second));
        reported.push(progress.notes().into_iter().map(|note| note.message).collect::<Vec<_>>());
    }
    let leaked = vec!["a: given up by annotation: still there".to_owned()];
    assert_eq!((progress.state, reported), (TeardownState::Released, vec![leaked.clone(), Vec::new(), leaked]));
}

#[test]
fn force_by_annotation_gives_up_the_named_step_only_while_it_runs() {
    let first = stack().advance(None, pending, &Force::None, at(0));
    let other = stack().advance(Some(&first.record), pending, &Force::Step("server".to_owned()), at(1));
    assert!(other.record.leaked().next().is_none(), "a step that has not begun has nothing to give up");
    let forced = stack().advance(Some(&first.record), pending, &Force::Step("oidc".to_owned()), at(1));
    let leaked = forced.record.leaked().next().unwrap();
    assert_eq!(leaked.message.as_deref(), Some("given up by annotation: still there"));
    assert_eq!(forced.notes().len(), 1);
}

#[test]
fn graphs_that_cannot_end_are_refused_when_they_are_built() {
    let refused = |steps: Vec<Step>| Teardown::graph(steps).unwrap_err().to_string();
    assert_eq!(
        refused(vec![step("a").after(["c"]), step("b").after(["a"]), step("c").after(["b"])]),
        "the teardown steps wait for each other: a → c → b → a"
    );
    assert_eq!(refused(vec![step("a").after(["a"])]), "the teardown steps wait for each other: a → a");
    assert_eq!(refused(vec![step("a").after(["z"])]), "teardown step \"a\" comes after \"z\", which is not a step");
    assert_eq!(refused(vec![step("a"), step("a")]), "two teardown steps have the name \"a\"");
}

#[test]
fn steps_may_be_written_in_any_order() {
    let teardown = Teardown::graph([step("last").after(["first"]), step("first")]).unwrap();
    let first = teardown.advance(None, pending, &Force::None, at(0));
    assert_eq!(phases(&first), [("first", StepPhase::Running), ("last", StepPhase::Waiting)]);
}

#[test]
fn a_graph_that_gained_a_step_since_it_was_recorded_takes_it_too() {
    let old = Teardown::graph([step("a")]).unwrap();
    let first = old.advance(None, pending, &Force::None, at(0));
    let done = old.advance(Some(&first.record), |_| StepStatus::Done, &Force::None, at(1));
    let new = Teardown::graph([step("a"), step("b").after(["a"])]).unwrap();
    let next = new.advance(Some(&done.record), pending, &Force::None, at(2));
    assert_eq!(next.state, TeardownState::Running);
    assert_eq!(phases(&next), [("a", StepPhase::Done), ("b", StepPhase::Running)]);
}

#[test]
fn a_graph_that_lost_a_step_since_it_was_recorded_forgets_nothing() {
    let old = Teardown::graph([step("a"), step("b").after(["a"])]).unwrap();
    let first = old.advance(None, pending, &Force::None, at(0));
    let leaked = old.advance(Some(&first.record), pending, &Force::Step("a".to_owned()), at(1));
    let new = Teardown::graph([step("c")]).unwrap();
    let next = new.advance(Some(&leaked.record), |_| StepStatus::Done, &Force::None, at(2));
    assert_eq!(next.record.leaked().next().map(|step| step.name.as_str()), Some("a"));
    // The old version had begun a step that this version does not know: only a person can judge it.
    let done = new.advance(Some(&next.record), |_| StepStatus::Done, &Force::None, at(3));
    assert_eq!(done.state, TeardownState::Stopped { steps: vec!["b".to_owned()] });
    let given_up = new.advance(Some(&done.record), |_| StepStatus::Done, &Force::All, at(4));
    assert_eq!(new.advance(Some(&given_up.record), pending, &Force::All, at(5)).state, TeardownState::Released);
}

#[test]
fn a_running_step_waits_again_when_the_graph_now_puts_something_before_it() {
    let first = Teardown::graph([step("a")]).unwrap().advance(None, pending, &Force::None, at(0));
    let new = Teardown::graph([step("before"), step("a").after(["before"])]).unwrap();
    let next = new.advance(Some(&first.record), pending, &Force::None, at(1));
    assert!(next.act.is_empty());
    assert_eq!(phases(&next), [("before", StepPhase::Running), ("a", StepPhase::Waiting)]);
}

#[test]
fn the_record_survives_being_stored() {
    let first = stack().advance(None, pending, &Force::None, Timestamp::now());
    let stored = serde_json::to_string(&first.record).unwrap();
    assert_eq!(serde_json::from_str::<TeardownRecord>(&stored).unwrap(), first.record);
}

#[test]
fn force_all_gives_up_at_once_what_runs_and_what_has_not_begun() {
    let first = stack().advance(None, pending, &Force::None, at(0));
    let forced = stack().advance(Some(&first.record), pending, &Force::All, at(1));
    assert!(forced.record.steps.iter().all(|step| step.phase == StepPhase::Leaked), "{:?}", phases(&forced));
    assert_eq!(forced.notes().len(), 4, "each is reported");
}

#[test]
fn a_step_that_no_watch_reports_is_observed_when_it_asks_for_it() {
    let asks = |_: &str| StepStatus::Pending { reason: "still there".to_owned(), retry: Some(at(7)) };
    let first = stack().advance(None, asks, &Force::None, at(0));
    assert_eq!(stack().advance(Some(&first.record), asks, &Force::None, at(1)).next, Some(at(7)));
}

#[test]
fn the_annotation_names_a_step_or_all() {
    let annotated = |value: Option<&str>| {
        let mut map = k8s_openapi::api::core::v1::ConfigMap::default();
        map.metadata.annotations = value.map(|value| [(FORCE_ANNOTATION.to_owned(), value.to_owned())].into());
        force(&map)
    };
    assert_eq!((annotated(None), annotated(Some(""))), (Force::None, Force::None));
    assert_eq!((annotated(Some("oidc")), annotated(Some("all"))), (Force::Step("oidc".to_owned()), Force::All));
}
