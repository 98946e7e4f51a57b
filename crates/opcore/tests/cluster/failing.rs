//! Objects that cannot be reconciled: what is reported about them, and how often they are retried.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use opcore::conditions::{self, READY, Summary};
use opcore::controller::Limits;
use opcore::finalizer::OnExpiry;
use opcore::{Context, Decision, Error, Next, Operator};
use serde_json::json;

use crate::notebook::{Notebook, NotebookSpec, Notebooks};
use crate::stage::{Settings, Stage, event, events, eventually, start};
use opcore_testing::proxy::{Fate, Passed, Proxy};

/// The notebook operator, whose reads fail, each time with another message and reason; with the times of the attempts.
#[derive(Clone, Default)]
struct Fickle(Arc<Mutex<Vec<Instant>>>);

impl Operator for Fickle {
    type Object = Notebook;
    type Observed = ();
    type Claims = ();

    const FINALIZER: &'static str = Notebooks::FINALIZER;

    async fn observe(&self, _: &Notebook, _: &Context) -> Result<(), Error> {
        let mut tries = self.0.lock().unwrap();
        tries.push(Instant::now());
        let words = format!("made up for the {}. time", tries.len());
        Err(if tries.len().is_multiple_of(2) { Error::Bug(words) } else { Error::Outside(words) })
    }

    fn decide(&self, _: &Notebook, (): &(), _: jiff::Timestamp) -> Decision<Notebook> {
        unreachable!("nothing was read")
    }

    fn tear_down(&self, notebook: &Notebook, (): &(), now: jiff::Timestamp) -> Decision<Notebook> {
        self.decide(notebook, &(), now)
    }
}

#[tokio::test]
async fn a_failure_with_another_message_each_time_is_not_retried_more_often_for_it() {
    let stage = Stage::new("fail").await;
    let fickle = Fickle::default();
    let running = start(fickle.clone(), stage.config.clone(), &stage.namespace, Settings::default());
    stage.write("diary", &[]).await;
    // The first message may be followed by one reconcile at once: before it there was no status at all.
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
async fn a_refusal_that_lasts_is_reported_once_and_tried_by_its_own_backoff() {
    let stage = Stage::new("fail").await;
    let theirs = json!({"metadata": {"name": "diary-monday", "labels": {"app.kubernetes.io/managed-by": "Helm"}}});
    let theirs: ConfigMap = serde_json::from_value(theirs).unwrap();
    stage.maps().create(&PostParams::default(), &theirs).await.unwrap();
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let running = stage.run_at(proxy.config());
    stage.write("diary", &[("monday", "rain")]).await;
    let refused = |notebook: &Notebook| ready(notebook).is_some_and(|ready| ready.reason == "OwnedByAnother");
    let first = eventually(&stage.notebooks(), "diary", "refused", refused).await;
    let reads = |passed: &[Passed]| passed.iter().filter(|p| p.path.ends_with("/configmaps/diary-monday")).count() >= 4;
    proxy.until("the page is read four times", reads).await;
    running.stop().await;
    let last = stage.notebooks().get("diary").await.unwrap();
    assert_eq!(last.status.unwrap().conditions, first.status.unwrap().conditions, "nothing has changed");
    assert_eq!(proxy.writes().into_iter().filter(of_status).count(), 1, "and nothing was written of it");
}

#[tokio::test]
async fn what_is_forbidden_for_a_moment_is_not_reported_as_if_someone_had_to_act() {
    let stage = Stage::new("fail").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    // An API server that starts lists its roles last; the operator started its watch before.
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

/// The notebook operator, which always requests to be reconciled at a time in the past; with the times of its
/// reconciles.
#[derive(Clone, Default)]
struct Hasty(Arc<Mutex<Vec<Instant>>>);

impl Operator for Hasty {
    type Object = Notebook;
    type Observed = ();
    type Claims = ();

    const FINALIZER: &'static str = Notebooks::FINALIZER;

    async fn observe(&self, _: &Notebook, _: &Context) -> Result<(), Error> {
        self.0.lock().unwrap().push(Instant::now());
        Ok(())
    }

    fn decide(&self, notebook: &Notebook, (): &(), now: jiff::Timestamp) -> Decision<Notebook> {
        let status = notebook.status.clone().unwrap_or_default();
        Decision { next: Next::At(now), ..Decision::say(status) }
    }

    fn tear_down(&self, notebook: &Notebook, (): &(), now: jiff::Timestamp) -> Decision<Notebook> {
        self.decide(notebook, &(), now)
    }
}

#[tokio::test]
async fn a_decision_that_wants_to_be_asked_again_at_once_gets_a_pause_from_the_second_time_on() {
    let stage = Stage::new("fail").await;
    let hasty = Hasty::default();
    stage.write("diary", &[]).await;
    let running = start(hasty.clone(), stage.config.clone(), &stage.namespace, Settings::default());
    running.until("it was asked four times", |_| hasty.0.lock().unwrap().len() >= 4).await;
    running.stop().await;
    let times = hasty.0.lock().unwrap().clone();
    // The first status triggers one reconcile.
    let pause = times[3] - times[2];
    assert!(pause >= Duration::from_secs(1), "only {pause:?}: {times:?}");
}

/// While this is set, the status of a fragile notebook cannot be serialized.
static UNSPEAKABLE: AtomicBool = AtomicBool::new(false);

/// The same kind with another status.
mod fragile {
    use std::sync::atomic::Ordering;

    use kube::CustomResource;
    use opcore::conditions::Condition;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize, Serializer};

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.opcore.dev", version = "v1alpha1", kind = "Notebook", namespaced, status = "Status")]
    pub struct FragileSpec {}

    #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct Status {
        #[serde(default, serialize_with = "speak")]
        pub conditions: Vec<Condition>,
        pub observed_generation: Option<i64>,
    }
    opcore::impl_conditions!(Status);

    fn speak<S: Serializer>(conditions: &[Condition], to: S) -> Result<S::Ok, S::Error> {
        assert!(!super::UNSPEAKABLE.load(Ordering::SeqCst), "made up");
        conditions.serialize(to)
    }
}

/// With the number of reconciles.
#[derive(Clone, Default)]
struct Fragile(Arc<AtomicUsize>);

impl Operator for Fragile {
    type Object = fragile::Notebook;
    type Observed = ();
    type Claims = ();

    const FINALIZER: &'static str = Notebooks::FINALIZER;

    async fn observe(&self, _: &fragile::Notebook, _: &Context) -> Result<(), Error> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn decide(&self, notebook: &fragile::Notebook, (): &(), now: jiff::Timestamp) -> Decision<fragile::Notebook> {
        let mut status = notebook.status.clone().unwrap_or_default();
        Summary::ready("Written", "made up").write(&mut status, notebook.metadata.generation, now);
        Decision::say(status)
    }

    fn tear_down(&self, notebook: &fragile::Notebook, (): &(), now: jiff::Timestamp) -> Decision<fragile::Notebook> {
        self.decide(notebook, &(), now)
    }
}

#[tokio::test]
async fn an_object_whose_failure_cannot_be_reported_either_is_retried() {
    let stage = Stage::new("fail").await;
    UNSPEAKABLE.store(true, Ordering::SeqCst);
    let fragile = Fragile::default();
    let running = start(fragile.clone(), stage.config.clone(), &stage.namespace, Settings::default());
    stage.write("diary", &[]).await;
    running.until("it was tried again", |_| fragile.0.load(Ordering::SeqCst) >= 2).await;
    UNSPEAKABLE.store(false, Ordering::SeqCst);
    stage.ready("diary").await;
    running.stop().await;
}

#[tokio::test]
async fn reporting_a_failure_has_a_deadline_too() {
    let stage = Stage::new("fail").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let mut hang = true;
    proxy.rule(move |passed| if of_status(passed) && std::mem::take(&mut hang) { Fate::Hang } else { Fate::Pass });
    let limits = Limits { reconcile: Duration::from_secs(1), ..Limits::default() };
    let settings = Settings { limits, request_deadline: Duration::from_mins(10) };
    let running = start(Fickle::default(), proxy.config(), &stage.namespace, settings);
    stage.write("diary", &[]).await;
    let reported = |notebook: &Notebook| ready(notebook).is_some_and(|ready| ready.reason == "InternalError");
    eventually(&stage.notebooks(), "diary", "reported in the end", reported).await;
    running.stop().await;
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_reported_once_and_again_when_it_changes() {
    let stage = Stage::new("fail").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let expired = Arc::new(AtomicUsize::new(0));
    let count = expired.clone();
    // The operator has to list its notebooks again, several times.
    proxy.rule(move |passed| {
        let of_notebooks = passed.watch && passed.path.ends_with("/notebooks");
        if of_notebooks && count.fetch_add(1, Ordering::SeqCst) < 3 { Fate::Expired } else { Fate::Pass }
    });
    let resource = kube::api::ApiResource::erase::<Notebook>(&());
    let odd = json!({
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": "odd", "finalizers": ["example.opcore.dev/notebook"]}, "spec": {"pages": "not a map"},
    });
    let api: kube::Api<kube::api::DynamicObject> =
        kube::Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource);
    let odd = api.create(&PostParams::default(), &serde_json::from_value(odd).unwrap()).await.unwrap();
    let running = stage.run_at(proxy.config());
    event(&stage, "odd", "Unreadable").await;
    running.until("it listed again", |_| expired.load(Ordering::SeqCst) > 3).await;
    api.delete("odd", &DeleteParams::default()).await.unwrap();
    let of_events = |passed: &Passed| passed.writes() && passed.path.contains("/events");
    proxy.until("two Events", |passed| passed.iter().filter(|p| of_events(p)).count() >= 2).await;
    running.stop().await;
    assert_eq!(proxy.take().into_iter().filter(of_events).count(), 2, "one for each version of it");
    let notes = events(&stage, "odd").await.into_iter().filter_map(|event| event.note).collect::<Vec<_>>();
    assert!(notes.iter().any(|note| note.contains("Until then it is not deleted")), "{notes:?}");
    let release = json!({"metadata": {"finalizers": null}});
    api.patch("odd", &PatchParams::default(), &Patch::Merge(&release)).await.unwrap();
    crate::stage::gone(&stage.notebooks(), "odd", &odd.metadata.uid.unwrap()).await;
}

#[tokio::test]
async fn a_delete_that_keeps_failing_does_not_keep_the_time_of_its_step_from_running_out() {
    let stage = Stage::new("fail").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    // As when a webhook is not available: the API server responds with an error.
    proxy.rule(|passed| {
        let of_page = passed.method == "DELETE" && passed.path.ends_with("/configmaps/diary-monday");
        if of_page { Fate::Answer(500) } else { Fate::Pass }
    });
    let running = stage.run_at(proxy.config());
    let pages = [("monday".to_owned(), "rain".to_owned())].into();
    let spec = NotebookSpec { pages, teardown_seconds: Some(1), on_expiry: OnExpiry::Force };
    let notebook = stage.notebooks().create(&PostParams::default(), &Notebook::new("diary", spec)).await.unwrap();
    stage.ready("diary").await;
    stage.delete("diary").await;
    stage.gone("diary", &notebook.uid().unwrap()).await;
    assert!(event(&stage, "diary", "TeardownLeaked").await.note.unwrap().contains("diary-monday"));
    running.stop().await;
}

#[tokio::test]
async fn a_write_that_fails_once_does_not_make_an_object_look_ready_or_broken() {
    let stage = Stage::new("fail").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let mut fails = 2;
    proxy.rule(move |passed| {
        let of_page = passed.writes() && passed.path.ends_with("/configmaps/diary-monday");
        fails -= i32::from(of_page);
        if of_page && fails >= 0 { Fate::Answer(500) } else { Fate::Pass }
    });
    let running = stage.run_at(proxy.config());
    stage.write("diary", &[("monday", "rain")]).await;
    stage.ready("diary").await;
    running.stop().await;
    assert_eq!(stage.pages("diary").await, ["cover", "monday"]);
    let reported: Vec<_> = events(&stage, "diary").await.into_iter().filter_map(|event| event.reason).collect();
    assert_eq!(reported, ["Written"], "it became ready, and nothing else");
}
