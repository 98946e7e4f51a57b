//! Objects that cannot be brought where they shall be: what is said of them, and how often they are tried.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use opcore::conditions::{self, READY};
use opcore::{Context, Decision, Error, Operator};
use serde_json::json;

use crate::notebook::Notebook;
use crate::proxy::{Fate, Passed, Proxy};
use crate::stage::{Running, Settings, Stage, eventually};

/// The notebook operator, whose reads fail, each time in other words and for another reason; with when it tried.
#[derive(Clone, Default)]
struct Fickle(Arc<Mutex<Vec<Instant>>>);

impl Operator for Fickle {
    type Object = Notebook;
    type Seen = ();

    async fn observe(&self, _: &Notebook, _: &Context) -> Result<(), Error> {
        let mut tries = self.0.lock().unwrap();
        tries.push(Instant::now());
        let words = format!("made up for the {}. time", tries.len());
        Err(if tries.len().is_multiple_of(2) { Error::Bug(words) } else { Error::Outside(words) })
    }

    fn decide(&self, _: &Notebook, (): &(), _: jiff::Timestamp) -> Decision<Notebook> {
        unreachable!("nothing was read")
    }
}

#[tokio::test]
async fn a_failure_that_is_told_in_other_words_each_time_is_not_tried_more_often_for_it() {
    let stage = Stage::new("fail").await;
    let fickle = Fickle::default();
    let running = Running::start(fickle.clone(), stage.config.clone(), &stage.namespace, Settings::default());
    stage.write("diary", &[]).await;
    // The first words may be followed by one look at once: before them there was no status at all.
    let failed = |notebook: &Notebook| ready(notebook).is_some_and(|ready| ready.message.contains("the 5. time"));
    eventually(&stage.notebooks(), "diary", "failed five times", failed).await;
    running.stop().await;
    let tries = fickle.0.lock().unwrap().clone();
    let pauses: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (pause, least) in pauses[2..].iter().zip([2000, 4000]) {
        assert!(*pause >= Duration::from_millis(least), "only {pause:?} after a failure, not {least} ms: {pauses:?}");
    }
}

fn ready(notebook: &Notebook) -> Option<&conditions::Condition> {
    conditions::find(&notebook.status.as_ref()?.conditions, READY)
}

fn of_status(passed: &Passed) -> bool {
    passed.writes() && passed.path.ends_with("/status")
}

#[tokio::test]
async fn a_refusal_that_lasts_is_told_once_and_tried_by_its_own_backoff() {
    let stage = Stage::new("fail").await;
    let theirs = json!({"metadata": {"name": "diary-monday", "labels": {"app.kubernetes.io/managed-by": "Helm"}}});
    let theirs: ConfigMap = serde_json::from_value(theirs).unwrap();
    stage.maps().create(&PostParams::default(), &theirs).await.unwrap();
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let running = stage.run_at(proxy.config());
    stage.write("diary", &[("monday", "rain")]).await;
    let refused = |notebook: &Notebook| ready(notebook).is_some_and(|ready| ready.reason == "OwnedByAnother");
    let first = eventually(&stage.notebooks(), "diary", "refused", refused).await;
    let looks = |passed: &[Passed]| passed.iter().filter(|p| p.path.ends_with("/configmaps/diary-monday")).count() >= 4;
    proxy.until("four looks at the page", looks).await;
    running.stop().await;
    let last = stage.notebooks().get("diary").await.unwrap();
    assert_eq!(last.status.unwrap().conditions, first.status.unwrap().conditions, "nothing has changed");
    assert_eq!(proxy.writes().into_iter().filter(of_status).count(), 1, "and nothing was written of it");
}

#[tokio::test]
async fn what_is_forbidden_for_a_moment_is_not_told_as_if_someone_had_to_act() {
    let stage = Stage::new("fail").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    // An API server that starts lists its roles last; the watch of the operator listed before.
    let mut left = 2;
    let running = stage.run_at(proxy.config());
    proxy.until("its first list", |passed| passed.iter().any(|p| p.path.ends_with("/configmaps") && p.watch)).await;
    proxy.rule(move |passed| {
        let of_maps = passed.path.ends_with("/configmaps") && !passed.watch;
        if of_maps && left > 0 {
            left -= 1;
            return if left == 1 { Fate::Answer(401) } else { Fate::Answer(403) };
        }
        Fate::Pass
    });
    proxy.take();
    stage.write("diary", &[("monday", "rain")]).await;
    stage.ready("diary").await;
    running.stop().await;
    let passed = proxy.take();
    assert_eq!(passed.iter().filter(|p| matches!(p.code, Some(401 | 403))).count(), 2, "{passed:#?}");
    assert_eq!(passed.into_iter().filter(of_status).count(), 1, "only that it is ready");
}
