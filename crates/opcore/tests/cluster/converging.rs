//! What an operator does with its objects without faults, and what it does not do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use opcore::conditions::{self, READY, STALLED};
use opcore::controller::Limits;
use opcore::{Context, Decision, Error, Operator};
use serde_json::json;
use tokio::sync::Notify;

use crate::notebook::{Notebook, Notebooks, Shelf};
use crate::stage::{Settings, Stage, event, events, eventually, meddled, start, start_with};
use opcore_testing::proxy::{Fate, Passed, Proxy};

/// The notebook operator, with a decision that panics for some.
struct Panicky;

impl Operator for Panicky {
    type Object = Notebook;
    type Observed = Shelf;
    type Claims = ();

    const FINALIZER: &'static str = Notebooks::FINALIZER;

    async fn observe(&self, notebook: &Notebook, context: &Context) -> Result<Shelf, Error> {
        Notebooks.observe(notebook, context).await
    }

    fn decide(&self, notebook: &Notebook, observed: &Shelf, now: jiff::Timestamp) -> Decision<Notebook> {
        assert!(!notebook.name_any().starts_with("panics"), "made up");
        Notebooks.decide(notebook, observed, now)
    }

    fn tear_down(&self, notebook: &Notebook, observed: &Shelf, now: jiff::Timestamp) -> Decision<Notebook> {
        Notebooks.tear_down(notebook, observed, now)
    }
}

#[tokio::test]
async fn an_object_converges_with_the_fewest_writes_possible() {
    let stage = Stage::new("converge").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let running = stage.run_at(proxy.config());
    stage.write("diary", &[("monday", "rain"), ("tuesday", "sun")]).await;
    stage.ready("diary").await;
    assert_eq!(stage.pages("diary").await, ["cover", "monday", "tuesday"]);
    running.stop().await;
    let mut writes: Vec<_> =
        proxy.take().into_iter().filter(opcore_testing::proxy::Passed::writes).map(|w| w.path).collect();
    writes.retain(|path| !path.contains("/events"));
    let base = |path: &str| format!("/{path}");
    let ns = &stage.namespace;
    let notebook = format!("apis/example.opcore.dev/v1alpha1/namespaces/{ns}/notebooks/diary");
    let map = |name: &str| base(&format!("api/v1/namespaces/{ns}/configmaps/{name}"));
    writes[1..3].sort();
    let least = [
        base(&notebook),
        map("diary-monday"),
        map("diary-tuesday"),
        map("diary-cover"),
        base(&format!("{notebook}/status")),
    ];
    assert_eq!(writes, least, "the finalizer first, then the pages, then the cover, then the status, and nothing else");
}

#[tokio::test]
async fn a_restart_on_a_converged_cluster_writes_nothing() {
    let stage = Stage::new("converge").await;
    let first = stage.run();
    for name in ["a", "b", "c"] {
        stage.write(name, &[("monday", "rain")]).await;
        stage.ready(name).await;
    }
    first.stop().await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let second = stage.run_at(proxy.config());
    // Each notebook is reconciled: its pages are listed, then each of its objects is compared.
    let all_covers = |name: &str| format!("/configmaps/{name}-cover");
    proxy
        .until("all notebooks are reconciled", |passed| {
            ["a", "b", "c"].iter().all(|name| passed.iter().any(|p| p.path.ends_with(&all_covers(name))))
        })
        .await;
    second.stop().await;
    assert_eq!(proxy.writes(), []);
}

#[tokio::test]
async fn drift_is_corrected_as_it_happens() {
    let stage = Stage::new("converge").await;
    let running = stage.run();
    stage.write("diary", &[("monday", "rain")]).await;
    stage.ready("diary").await;
    let lost = stage.maps().get("diary-monday").await.unwrap();
    stage.maps().delete("diary-monday", &DeleteParams::default()).await.unwrap();
    eventually(&stage.maps(), "diary-monday", "back", |map| map.uid() != lost.uid()).await;
    let edit = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
    stage.maps().patch("diary-monday", &edit, &Patch::Merge(json!({"data": {"text": "snow"}}))).await.unwrap();
    let rain =
        |map: &k8s_openapi::api::core::v1::ConfigMap| map.data.as_ref().is_some_and(|data| data["text"] == "rain");
    eventually(&stage.maps(), "diary-monday", "what the notebook says", rain).await;
    running.stop().await;
}

#[tokio::test]
async fn bad_input_is_reported_in_status_and_picked_up_when_it_is_corrected() {
    let stage = Stage::new("converge").await;
    let running = stage.run();
    stage.write("diary", &[("Not A Name", "x")]).await;
    let stalled = |notebook: &Notebook| {
        notebook.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, STALLED))
    };
    let notebook = eventually(&stage.notebooks(), "diary", "stalled", stalled).await;
    let ready = conditions::find(&notebook.status.as_ref().unwrap().conditions, READY).unwrap().clone();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "InvalidPage"));
    assert!(ready.message.contains("spec.pages") && ready.message.contains("Not A Name"), "{}", ready.message);
    let mend = json!({"spec": {"pages": {"Not A Name": null, "monday": "rain"}}});
    stage.notebooks().patch("diary", &PatchParams::default(), &Patch::Merge(&mend)).await.unwrap();
    stage.ready("diary").await;
    running.stop().await;
}

#[tokio::test]
async fn a_refused_write_is_reported_in_status_with_its_remedy_and_done_when_the_way_is_free() {
    let stage = Stage::new("converge").await;
    let theirs = json!({"metadata": {"name": "diary-monday", "labels": {"app.kubernetes.io/managed-by": "Helm"}}});
    let theirs = serde_json::from_value(theirs).unwrap();
    stage.maps().create(&PostParams::default(), &theirs).await.unwrap();
    let running = stage.run();
    stage.write("diary", &[("monday", "rain")]).await;
    let refused = |notebook: &Notebook| {
        let ready = notebook.status.as_ref().and_then(|status| conditions::find(&status.conditions, READY));
        ready.is_some_and(|ready| ready.reason == "OwnedByAnother" && ready.message.contains("Helm"))
    };
    eventually(&stage.notebooks(), "diary", "refused", refused).await;
    assert_eq!(stage.pages("diary").await, ["monday"], "nothing was written after the refusal");
    stage.maps().delete("diary-monday", &DeleteParams::default()).await.unwrap();
    stage.ready("diary").await;
    running.stop().await;
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_reported_and_the_others_go_on() {
    let stage = Stage::new("converge").await;
    let running = stage.run();
    let odd = json!({
        "apiVersion": "example.opcore.dev/v1alpha1", "kind": "Notebook",
        "metadata": {"name": "odd"}, "spec": {"pages": "not a map"},
    });
    let resource = kube::api::ApiResource::erase::<Notebook>(&());
    let api: Api<kube::api::DynamicObject> = Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource);
    api.create(&PostParams::default(), &serde_json::from_value(odd).unwrap()).await.unwrap();
    stage.write("diary", &[("monday", "rain")]).await;
    stage.ready("diary").await;
    let note = event(&stage, "odd", "Unreadable").await.note.unwrap();
    assert!(note.contains("expected a map"), "{note}");
    let mend = json!({"spec": {"pages": {"monday": "rain"}}});
    api.patch("odd", &PatchParams::default(), &Patch::Merge(&mend)).await.unwrap();
    stage.ready("odd").await;
    running.stop().await;
}

#[tokio::test]
async fn a_decision_that_panics_costs_its_own_object_only() {
    let stage = Stage::new("converge").await;
    let running = start(Panicky, stage.config.clone(), &stage.namespace, Settings::default());
    stage.write("panics", &[]).await;
    stage.write("diary", &[("monday", "rain")]).await;
    stage.ready("diary").await;
    stage.write("another", &[("monday", "rain")]).await;
    stage.ready("another").await;
    let metrics = running.metrics.text();
    assert!(metrics.contains(r#"opcore_reconcile_errors_total{class="bug",kind="Notebook"}"#), "{metrics}");
    running.stop().await;
}

#[tokio::test]
async fn an_event_is_emitted_once_when_an_object_becomes_ready_and_its_metrics_go_with_it() {
    let stage = Stage::new("converge").await;
    let running = stage.run();
    let notebook = stage.write("diary", &[("monday", "rain")]).await;
    stage.ready("diary").await;
    assert_eq!(event(&stage, "diary", "Written").await.type_.as_deref(), Some("Normal"));
    let series = r#"opcore_condition{kind="Notebook",name="diary",namespace=""#;
    assert!(running.metrics.text().contains(series), "{}", running.metrics.text());
    // A reconcile that changes nothing emits nothing.
    let poke = json!({"metadata": {"annotations": {"opcore.dev/requestedAt": "now"}}});
    stage.notebooks().patch("diary", &PatchParams::default(), &Patch::Merge(&poke)).await.unwrap();
    stage.delete("diary").await;
    stage.gone("diary", &notebook.uid().unwrap()).await;
    let written = events(&stage, "diary").await.into_iter().filter(|event| event.reason.as_deref() == Some("Written"));
    assert_eq!(written.map(|event| event.series).collect::<Vec<_>>(), [None]);
    running.until("the series are gone", |metrics| !metrics.contains(series)).await;
    running.stop().await;
}

/// The notebook operator, which counts how many objects it observes concurrently.
#[derive(Clone, Default)]
struct Counting {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Operator for Counting {
    type Object = Notebook;
    type Observed = Shelf;
    type Claims = ();

    const FINALIZER: &'static str = Notebooks::FINALIZER;

    async fn observe(&self, notebook: &Notebook, context: &Context) -> Result<Shelf, Error> {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let observed = Notebooks.observe(notebook, context).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        observed
    }

    fn decide(&self, notebook: &Notebook, observed: &Shelf, now: jiff::Timestamp) -> Decision<Notebook> {
        Notebooks.decide(notebook, observed, now)
    }

    fn tear_down(&self, notebook: &Notebook, observed: &Shelf, now: jiff::Timestamp) -> Decision<Notebook> {
        Notebooks.tear_down(notebook, observed, now)
    }
}

#[tokio::test]
async fn no_more_objects_are_worked_on_at_once_than_allowed() {
    let stage = Stage::new("converge").await;
    for n in 0..8 {
        stage.write(&format!("diary-{n}"), &[]).await;
    }
    let limits = Limits { concurrency: 2, ..Limits::default() };
    let (counting, settings) = (Counting::default(), Settings { limits, ..Settings::default() });
    let running = start(counting.clone(), stage.config.clone(), &stage.namespace, settings);
    for n in 0..8 {
        stage.ready(&format!("diary-{n}")).await;
    }
    running.stop().await;
    assert_eq!(counting.most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_may_not_be_read_is_reported_in_status_and_picked_up_when_it_may() {
    let stage = Stage::new("converge").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let of_maps = |passed: &Passed| passed.path.ends_with("/configmaps");
    proxy.rule(move |passed| if of_maps(passed) { Fate::Answer(403) } else { Fate::Pass });
    let running = stage.run_at(proxy.config());
    stage.write("diary", &[("monday", "rain")]).await;
    let forbidden = |notebook: &Notebook| {
        let ready = notebook.status.as_ref().and_then(|status| conditions::find(&status.conditions, READY));
        ready.is_some_and(|ready| ready.reason == "Forbidden" && ready.message.contains("made up"))
    };
    eventually(&stage.notebooks(), "diary", "forbidden", forbidden).await;
    proxy.rule(|_| Fate::Pass);
    stage.ready("diary").await;
    running.stop().await;
}

#[tokio::test]
async fn a_reconcile_that_is_in_progress_is_finished_before_the_process_stops() {
    let stage = Stage::new("converge").await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let writes_a_page = |request: &http::Request<kube::client::Body>| {
        request.method() == http::Method::PATCH && request.uri().path().ends_with("/configmaps/diary-monday")
    };
    let client = meddled(&stage.client, writes_a_page, {
        let (begun, go) = (begun.clone(), go.clone());
        async move {
            begun.notify_one();
            go.notified().await;
        }
    });
    let running = start_with(Notebooks, client, &stage.namespace);
    stage.write("diary", &[("monday", "rain")]).await;
    begun.notified().await;
    // The operator is stopped first, and then the write that it waits for continues.
    tokio::join!(running.stop(), async { go.notify_one() });
    let left = stage.notebooks().get("diary").await.unwrap();
    let conditions = left.status.unwrap_or_default().conditions;
    assert!(conditions::is_true(&conditions, READY), "it was cut off: {conditions:?}");
}

#[tokio::test]
async fn an_object_that_can_no_longer_be_read_is_left_alone_as_it_was() {
    let stage = Stage::new("converge").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let running = stage.run_at(proxy.config());
    stage.write("odd", &[("monday", "rain")]).await;
    stage.ready("odd").await;
    let spoil = json!({"spec": {"pages": "not a map"}});
    let resource = kube::api::ApiResource::erase::<Notebook>(&());
    let api: Api<kube::api::DynamicObject> = Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource);
    api.patch("odd", &PatchParams::default(), &Patch::Merge(&spoil)).await.unwrap();
    event(&stage, "odd", "Unreadable").await;
    // A reconcile in progress is over before another notebook is written.
    stage.write("diary", &[("monday", "rain")]).await;
    stage.ready("diary").await;
    proxy.take();
    stage.maps().delete("odd-monday", &DeleteParams::default()).await.unwrap();
    // A page of another notebook that is deleted after that is noticed and restored.
    let lost = stage.maps().get("diary-monday").await.unwrap();
    stage.maps().delete("diary-monday", &DeleteParams::default()).await.unwrap();
    eventually(&stage.maps(), "diary-monday", "back", |map| map.uid() != lost.uid()).await;
    running.stop().await;
    let of_odd = proxy.writes().into_iter().filter(|write| write.path.contains("/odd"));
    assert_eq!(of_odd.collect::<Vec<_>>(), []);
}

#[tokio::test]
async fn an_object_that_is_too_deep_to_be_read_is_reported_and_the_others_go_on() {
    let stage = Stage::new("converge").await;
    stage.write_deep("before").await;
    stage.write("diary", &[("monday", "rain")]).await;
    let running = stage.run();
    stage.ready("diary").await;
    let note = event(&stage, "before", "Unreadable").await.note.unwrap();
    assert!(note.contains("nested more than 100 levels deep"), "{note}");
    stage.write_deep("meanwhile").await;
    event(&stage, "meanwhile", "Unreadable").await;
    stage.write("another", &[("monday", "rain")]).await;
    stage.ready("another").await;
    // A corrected object is reconciled, and so is the replacement of a deleted one.
    stage.flatten("before").await;
    stage.ready("before").await;
    stage.delete("meanwhile").await;
    stage.write("meanwhile", &[("monday", "rain")]).await;
    stage.ready("meanwhile").await;
    let metrics = running.metrics.text();
    assert!(!metrics.contains("opcore_watch_errors_total{"), "a change went by unread: {metrics}");
    running.stop().await;
}

#[tokio::test]
async fn an_object_that_became_too_deep_to_be_read_is_left_alone_and_goes_once_it_is_corrected() {
    let stage = Stage::new("converge").await;
    let running = stage.run();
    let uid = stage.write("odd", &[("monday", "rain")]).await.uid().unwrap();
    stage.ready("odd").await;
    stage.deepen("odd").await;
    event(&stage, "odd", "Unreadable").await;
    let delete = stage.request().delete("odd", &DeleteParams::default()).unwrap();
    stage.send(delete).await;
    running.until("it is reported again", |metrics| metrics.contains(r#"class="invalid",kind="Notebook"} 2"#)).await;
    assert_eq!(stage.pages("odd").await, ["cover", "monday"]);
    stage.flatten("odd").await;
    stage.gone("odd", &uid).await;
    assert_eq!(stage.pages("odd").await, [""; 0]);
    running.stop().await;
}

#[tokio::test]
async fn an_object_that_turns_out_too_deep_when_it_is_read_again_is_no_failure() {
    let stage = Stage::new("converge").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    // The operator never receives the events of its own writes, and so reads the notebook again.
    let silent = |passed: &Passed| passed.watch && passed.path.ends_with("/notebooks");
    let reads = |passed: &Passed| passed.method == "GET" && passed.path.ends_with("/notebooks/odd");
    proxy.rule(move |passed| match passed {
        passed if silent(passed) => Fate::Silence,
        passed if reads(passed) => Fate::Hold,
        _ => Fate::Pass,
    });
    stage.write("odd", &[("monday", "rain")]).await;
    let running = stage.run_at(proxy.config());
    stage.ready("odd").await;
    stage.maps().delete("odd-monday", &DeleteParams::default()).await.unwrap();
    proxy.until_held(1).await;
    stage.deepen("odd").await;
    proxy.take();
    proxy.rule(move |passed| if silent(passed) { Fate::Silence } else { Fate::Pass });
    proxy.release(1);
    proxy.until("it is read again", |passed| passed.iter().any(reads)).await;
    let metrics = running.metrics.clone();
    // The reconcile in progress ends before the operator stops.
    running.stop().await;
    assert!(!metrics.text().contains("opcore_reconcile_errors_total{"), "{}", metrics.text());
    assert_eq!(proxy.writes(), [], "it was decided on what it was");
}

#[tokio::test]
async fn two_processes_that_both_believe_to_lead_do_not_undo_each_others_work() {
    let stage = Stage::new("converge").await;
    let (one, other) = (stage.run(), stage.run());
    for n in 0..5 {
        stage.write(&format!("diary-{n}"), &[("monday", "rain"), ("tuesday", "sun")]).await;
    }
    let mut uids = Vec::new();
    for n in 0..5 {
        uids.push(stage.ready(&format!("diary-{n}")).await.uid().unwrap());
        assert_eq!(stage.pages(&format!("diary-{n}")).await, ["cover", "monday", "tuesday"]);
        stage.delete(&format!("diary-{n}")).await;
    }
    for (n, uid) in uids.iter().enumerate() {
        stage.gone(&format!("diary-{n}"), uid).await;
        assert_eq!(stage.pages(&format!("diary-{n}")).await, [""; 0]);
    }
    one.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn nothing_is_made_for_an_object_that_vanished_before_it_was_guarded() {
    let stage = Stage::new("converge").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    proxy.rule(
        |passed| if passed.method == "PATCH" && passed.path.ends_with("/diary") { Fate::Hold } else { Fate::Pass },
    );
    let running = stage.run_at(proxy.config());
    let notebook = stage.write("diary", &[("monday", "rain")]).await;
    proxy.until_held(1).await;
    stage.delete("diary").await;
    stage.gone("diary", &notebook.uid().unwrap()).await;
    proxy.release(1);
    proxy.until("the finalizer is refused", |passed| passed.iter().any(|p| p.writes() && p.code == Some(404))).await;
    running.stop().await;
    assert_eq!(stage.pages("diary").await, [""; 0]);
    let others = proxy.writes().into_iter().filter(|write| !write.path.ends_with("/diary")).collect::<Vec<_>>();
    assert_eq!(others, []);
}

#[tokio::test]
async fn a_write_in_flight_when_leadership_changes_cannot_undo_the_new_leaders() {
    let stage = Stage::new("converge").await;
    stage.write("diary", &[("monday", "rain")]).await;
    let first = stage.run();
    stage.ready("diary").await;
    first.stop().await;
    // The old leader decides on the second text, and its write is in flight.
    let text = |text: &str| json!({"spec": {"pages": {"monday": text}}});
    let (notebooks, params) = (stage.notebooks(), PatchParams::default());
    notebooks.patch("diary", &params, &Patch::Merge(text("second"))).await.unwrap();
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    proxy.rule(|passed| {
        if passed.method == "PATCH" && passed.path.ends_with("/diary-monday") { Fate::Hold } else { Fate::Pass }
    });
    let old = stage.run_at(proxy.config());
    proxy.until_held(1).await;
    // The new leader applies the second text, and then the third.
    let new = stage.run();
    stage.ready("diary").await;
    notebooks.patch("diary", &params, &Patch::Merge(text("third"))).await.unwrap();
    stage.ready("diary").await;
    let written = stage.maps().get("diary-monday").await.unwrap();
    assert_eq!(written.data.as_ref().unwrap()["text"], "third");
    proxy.release(1);
    proxy.until("the old write is refused", |passed| passed.iter().any(|p| p.writes() && p.code == Some(409))).await;
    old.crash().await;
    assert_eq!(stage.maps().get("diary-monday").await.unwrap().resource_version(), written.resource_version());
    new.stop().await;
}

#[tokio::test]
async fn a_creation_in_flight_when_leadership_changes_cannot_undo_the_new_leaders() {
    let stage = Stage::new("converge").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    proxy.rule(|passed| {
        if passed.method == "PATCH" && passed.path.ends_with("/diary-monday") { Fate::Hold } else { Fate::Pass }
    });
    let old = stage.run_at(proxy.config());
    stage.write("diary", &[("monday", "first")]).await;
    proxy.until_held(1).await;
    // The new leader writes the page, and then its second text.
    let new = stage.run();
    stage.ready("diary").await;
    let edit = json!({"spec": {"pages": {"monday": "second"}}});
    stage.notebooks().patch("diary", &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    stage.ready("diary").await;
    let written = stage.maps().get("diary-monday").await.unwrap();
    proxy.release(1);
    proxy.until("the old write is refused", |passed| passed.iter().any(|p| p.writes() && p.code == Some(409))).await;
    old.crash().await;
    assert_eq!(stage.maps().get("diary-monday").await.unwrap().resource_version(), written.resource_version());
    new.stop().await;
}

#[tokio::test]
async fn an_object_that_goes_before_its_status_is_published_is_no_failure() {
    let stage = Stage::new("converge").await;
    let went = Arc::new(Notify::new());
    let publishes = |request: &http::Request<kube::client::Body>| request.uri().path().ends_with("/status");
    let client = meddled(&stage.client, publishes, {
        let (notebooks, went) = (stage.notebooks(), went.clone());
        async move {
            let uid = notebooks.get("diary").await.unwrap().uid().unwrap();
            let release = json!({"metadata": {"finalizers": null}});
            notebooks.patch("diary", &PatchParams::default(), &Patch::Merge(&release)).await.unwrap();
            notebooks.delete("diary", &DeleteParams::default()).await.unwrap();
            crate::stage::gone(&notebooks, "diary", &uid).await;
            went.notify_one();
        }
    });
    let running = start_with(Notebooks, client, &stage.namespace);
    let metrics = running.metrics.clone();
    stage.write("diary", &[("monday", "rain")]).await;
    went.notified().await;
    // The reconcile in progress ends before the operator stops.
    running.stop().await;
    assert!(!metrics.text().contains("opcore_reconcile_errors_total{"), "{}", metrics.text());
}
