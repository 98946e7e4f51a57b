//! Jobs run once in a rollout.

use super::*;

/// The Job as the API server has it.
fn job(conditions: &Value) -> Value {
    let mut job = map("p", "j", "rain");
    (job["apiVersion"], job["kind"]) = (json!("batch/v1"), json!("Job"));
    job["status"] = json!({ "conditions": conditions, "succeeded": 1, "completionTime": "2026-01-01T00:00:00Z" });
    job
}

fn complete() -> Value {
    job(&json!([{ "type": "Complete", "status": "True" }]))
}

fn with_jobs() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.serve("batch/v1", "Job", true);
    fixture.subscribe("p", JOBS);
    fixture
}

impl Fixture {
    /// Which waves have everything that they need.
    fn ready(&self) -> Vec<bool> {
        self.snapshot().waves.iter().map(|wave| wave.ready == wave.total && wave.due.is_empty()).collect()
    }
}

#[test]
fn a_job_that_was_complete_is_done_even_when_it_goes() {
    let mut fixture = with_jobs();
    fixture.sync("p");
    fixture.apply(&complete());
    assert_eq!(fixture.ready(), [true; 3]);
    // The Job's time to live is over: its pods are deleted first.
    let mut going = complete();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    going["metadata"]["resourceVersion"] = json!("2");
    fixture.report(&going);
    assert_eq!(fixture.ready(), [true; 3]);
    fixture.report_gone(&going);
    assert_eq!(fixture.ready(), [true; 3]);
    assert_eq!(
        fixture.snapshot().waves.iter().map(|wave| wave.completed.join(" ")).collect::<Vec<_>>(),
        ["Job shop/j"; 3]
    );
    // Someone recreates it.
    let mut again = job(&json!([]));
    (again["metadata"]["uid"], again["status"]) = (json!("another"), json!({}));
    fixture.report(&again);
    assert_eq!(fixture.ready(), [false; 3]);
    fixture.report_gone(&again);
    assert_eq!(fixture.ready(), [false; 3]);
}

#[test]
fn a_job_that_went_before_it_was_complete_is_recreated() {
    for conditions in [json!([]), json!([{ "type": "Suspended", "status": "True" }])] {
        let mut fixture = with_jobs();
        fixture.sync("p");
        let mut begun = job(&conditions);
        begun["spec"] = json!({ "suspend": true });
        fixture.apply(&begun);
        fixture.report_gone(&begun);
        assert_eq!((fixture.ready(), fixture.counts(0)), (vec![false; 3], [1, 0, 0, 0, 1]), "{conditions}");
    }
}

#[test]
fn after_a_restart_a_job_that_the_status_calls_complete_is_done() {
    let mut fixture = Fixture::new();
    fixture.serve("batch/v1", "Job", true);
    let mut subscription = fixture.subscription("p", JOBS);
    let done = ["maps", "theirs", "asked"].map(|wave| (wave.to_owned(), "Job shop/j".to_owned()));
    subscription.completed = BTreeSet::from(done);
    fixture.index.subscribe(&"p".into(), Arc::new(subscription), &fixture.written, fixture.now);
    assert_eq!(fixture.ready(), [false; 3], "nothing was read yet");
    fixture.sync("p");
    assert_eq!(fixture.ready(), [true; 3]);
    // The Job exists, and was recreated while it was not watched.
    fixture.report(&job(&json!([])));
    assert!(!fixture.ready()[0]);
}

#[test]
fn a_job_that_is_gone_is_recreated_in_the_next_rollout() {
    let mut fixture = with_jobs();
    fixture.sync("p");
    fixture.apply(&complete());
    fixture.report_gone(&complete());
    fixture.subscribe("p", JOBS);
    assert_eq!(fixture.ready(), [true; 3], "the same rollout");
    fixture.subscribe("p", &JOBS.replace("succeeded == 1", "succeeded > 0"));
    assert_eq!(fixture.counts(0), [1, 0, 0, 0, 1]);
}

#[test]
fn a_job_that_is_there_needs_not_be_run_again_in_the_next_rollout() {
    let mut fixture = with_jobs();
    fixture.sync("p");
    fixture.apply(&complete());
    fixture.subscribe("p", &JOBS.replace("succeeded == 1", "succeeded > 0"));
    assert_eq!(fixture.counts(0), [1, 0, 1, 0, 0]);
    fixture.report_gone(&complete());
    assert_eq!(fixture.counts(0), [1, 0, 1, 0, 0], "it was complete in this one, too");
}
