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

fn with_jobs() -> Desk {
    let mut desk = Desk::new();
    desk.serve("batch/v1", "Job", true);
    desk.subscribe("p", JOBS);
    desk
}

impl Desk {
    /// Which waves have everything that they need.
    fn ready(&self) -> Vec<bool> {
        self.look().waves.iter().map(|wave| wave.ready == wave.total && wave.due.is_empty()).collect()
    }
}

#[test]
fn a_job_that_was_complete_is_done_even_when_it_goes() {
    let mut desk = with_jobs();
    desk.sync("p");
    desk.apply(&complete());
    assert_eq!(desk.ready(), [true; 3]);
    // The Job's time to live is over: its pods are deleted first.
    let mut going = complete();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    going["metadata"]["resourceVersion"] = json!("2");
    desk.see(&going);
    assert_eq!(desk.ready(), [true; 3]);
    desk.lose(&going);
    assert_eq!(desk.ready(), [true; 3]);
    assert_eq!(desk.look().waves.iter().map(|wave| wave.completed.join(" ")).collect::<Vec<_>>(), ["Job shop/j"; 3]);
    // Someone recreates it.
    let mut again = job(&json!([]));
    (again["metadata"]["uid"], again["status"]) = (json!("another"), json!({}));
    desk.see(&again);
    assert_eq!(desk.ready(), [false; 3]);
    desk.lose(&again);
    assert_eq!(desk.ready(), [false; 3]);
}

#[test]
fn a_job_that_went_before_it_was_complete_is_recreated() {
    for conditions in [json!([]), json!([{ "type": "Suspended", "status": "True" }])] {
        let mut desk = with_jobs();
        desk.sync("p");
        let mut begun = job(&conditions);
        begun["spec"] = json!({ "suspend": true });
        desk.apply(&begun);
        desk.lose(&begun);
        assert_eq!((desk.ready(), desk.counts(0)), (vec![false; 3], [1, 0, 0, 0, 1]), "{conditions}");
    }
}

#[test]
fn after_a_restart_a_job_that_the_status_calls_complete_is_done() {
    let mut desk = Desk::new();
    desk.serve("batch/v1", "Job", true);
    let mut subscription = desk.subscription("p", JOBS);
    let done = ["maps", "theirs", "asked"].map(|wave| (wave.to_owned(), "Job shop/j".to_owned()));
    subscription.completed = BTreeSet::from(done);
    desk.index.subscribe(&"p".into(), Arc::new(subscription), &desk.written, desk.now);
    assert_eq!(desk.ready(), [false; 3], "nobody has looked yet");
    desk.sync("p");
    assert_eq!(desk.ready(), [true; 3]);
    // The Job exists, and was recreated while it was not watched.
    desk.see(&job(&json!([])));
    assert!(!desk.ready()[0]);
}

#[test]
fn a_job_that_is_gone_is_recreated_in_the_next_rollout() {
    let mut desk = with_jobs();
    desk.sync("p");
    desk.apply(&complete());
    desk.lose(&complete());
    desk.subscribe("p", JOBS);
    assert_eq!(desk.ready(), [true; 3], "the same rollout");
    desk.subscribe("p", &JOBS.replace("succeeded == 1", "succeeded > 0"));
    assert_eq!(desk.counts(0), [1, 0, 0, 0, 1]);
}

#[test]
fn a_job_that_is_there_needs_not_be_run_again_in_the_next_rollout() {
    let mut desk = with_jobs();
    desk.sync("p");
    desk.apply(&complete());
    desk.subscribe("p", &JOBS.replace("succeeded == 1", "succeeded > 0"));
    assert_eq!(desk.counts(0), [1, 0, 1, 0, 0]);
    desk.lose(&complete());
    assert_eq!(desk.counts(0), [1, 0, 1, 0, 0], "it was complete in this one, too");
}
