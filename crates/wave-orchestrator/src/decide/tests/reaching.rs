//! Members that cannot be read, because their API does not answer.

use super::*;

/// Nothing in this wave can be read.
fn lose(play: &mut Play, wave: &str) {
    let look = play.look(wave);
    (look.unread, look.unreachable, look.ready) = (1, 1, 0);
    look.not_ready = vec![NotReady {
        object: "Thing".to_owned(),
        reason: "ApiUnavailable".to_owned(),
        message: "Thing: its API does not answer.".to_owned(),
        failed: false,
    }];
    play.seen.look.complete = false;
    play.seen.unreachable = vec!["things.example.io cannot be listed and watched: service unavailable".to_owned()];
}

#[test]
fn a_wave_whose_member_cannot_be_looked_at_runs_out_of_time_and_the_others_go_on() {
    let mut fleet = Play::fleet();
    fleet.settle();
    fleet.ready("infrastructure-core").settle();
    lose(&mut fleet, "infrastructure-monitoring");
    assert_eq!(fleet.phase("infrastructure-monitoring"), WavePhase::Running);
    fleet.ready("infrastructure-operators");
    assert_eq!(fleet.phase("database-workloads"), WavePhase::Running, "it does not depend on it");
    fleet.pass(3600);
    assert_eq!(fleet.phase("infrastructure-monitoring"), WavePhase::TimedOut);
    let (_, reason, message) = fleet.summary();
    assert_eq!(reason, "WaveTimedOut");
    assert!(message.contains("Thing: its API does not answer."), "{message}");
}

#[test]
fn a_wave_that_was_ready_stays_so_while_nobody_can_look() {
    let mut fleet = Play::fleet();
    fleet.settle();
    assert_eq!(fleet.ready("infrastructure-core").phase("infrastructure-core"), WavePhase::Ready);
    lose(&mut fleet, "infrastructure-core");
    assert_eq!(fleet.phase("infrastructure-core"), WavePhase::Ready);
}

#[test]
fn a_teardown_says_what_cannot_be_told_and_goes_on_when_it_is_forced() {
    let mut fleet = Play::fleet();
    fleet.settle();
    lose(&mut fleet, "infrastructure-core");
    fleet.plan.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    let (_, _, message) = fleet.summary();
    assert!(message.contains("what is left cannot be told: things.example.io cannot be listed"), "{message}");
    fleet.annotate(opcore::finalizer::FORCE_ANNOTATION, "all");
    let released = fleet.settle().writes.iter().any(|write| matches!(write, Write::RemoveFinalizer(_)));
    assert!(released, "{:?}", fleet.plan.status);
}

#[test]
fn a_missing_right_is_named_with_the_value_that_grants_it() {
    let mut fleet = Play::fleet();
    fleet.seen.denied = vec!["list and watch secrets in shop (value rbac.read of the chart)".to_owned()];
    let (_, reason, message) = fleet.summary();
    assert_eq!(reason, "Forbidden");
    assert_eq!(message, "The right to list and watch secrets in shop (value rbac.read of the chart) is missing.");
}
