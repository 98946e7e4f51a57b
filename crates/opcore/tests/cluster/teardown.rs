//! Teardowns on a real API server: in order, with deadlines, and never incomplete without a report.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube_runtime::watcher;
use opcore::conditions::{self, READY};
use opcore::finalizer::{FORCE_ANNOTATION, StepPhase};
use serde_json::json;

use crate::notebook::{Notebook, Notebooks};
use crate::stage::{PATIENCE, Stage, eventually, meddled, start_with};
use opcore_testing::proxy::{Passed, Proxy};

/// Sets a finalizer of someone else on a page, so that it cannot be deleted.
async fn hold(stage: &Stage, page: &str, held: bool) {
    let finalizers = if held { json!(["example.opcore.dev/someone-else"]) } else { json!(null) };
    let patch = json!({"metadata": {"finalizers": finalizers}});
    stage.maps().patch(page, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn notebook(stage: &Stage, name: &str, on_expiry: &str) -> String {
    stage.write(name, &[("monday", "rain"), ("tuesday", "sun")]).await;
    let spec = json!({"spec": {"teardownSeconds": 1, "onExpiry": on_expiry}});
    stage.notebooks().patch(name, &PatchParams::default(), &Patch::Merge(&spec)).await.unwrap();
    let uid = stage.ready(name).await.uid().unwrap();
    hold(stage, &format!("{name}-monday"), true).await;
    uid
}

fn step(notebook: &Notebook, name: &str) -> Option<opcore::finalizer::StepRecord> {
    notebook.status.as_ref()?.teardown.as_ref()?.step(name).cloned()
}

fn reason(notebook: &Notebook) -> Option<(String, String)> {
    let ready = conditions::find(&notebook.status.as_ref()?.conditions, READY)?;
    Some((ready.reason.clone(), ready.message.clone()))
}

#[tokio::test]
async fn steps_go_in_order_and_the_object_last() {
    let stage = Stage::new("teardown").await;
    let running = stage.run();
    stage.write("diary", &[("monday", "rain"), ("tuesday", "sun")]).await;
    let uid = stage.ready("diary").await.uid().unwrap();
    let changes = watcher(stage.maps(), watcher::Config::default());
    let mut changes = std::pin::pin!(changes);
    // The watch knows the pages before the first one is deleted.
    while !matches!(changes.next().await.unwrap().unwrap(), watcher::Event::InitDone) {}
    let mut order = Vec::new();
    stage.delete("diary").await;
    let all_gone = async {
        while order.len() < 3 {
            if let watcher::Event::Delete(map) = changes.next().await.unwrap().unwrap() {
                order.push(map.name_any());
                let live = stage.notebooks().get_opt("diary").await.unwrap();
                assert!(live.is_some() || order.len() == 3, "the notebook went before {order:?}");
            }
        }
    };
    tokio::time::timeout(PATIENCE, all_gone).await.expect("all pages go");
    assert_eq!(order.last().map(String::as_str), Some("diary-cover"), "{order:?}");
    stage.gone("diary", &uid).await;
    running.stop().await;
}

#[tokio::test]
async fn wait_keeps_waiting_past_the_deadline_and_says_so() {
    let stage = Stage::new("teardown").await;
    let running = stage.run();
    let uid = notebook(&stage, "diary", "Wait").await;
    stage.delete("diary").await;
    let overdue = |notebook: &Notebook| step(notebook, "pages").is_some_and(|step| step.overdue);
    let observed = eventually(&stage.notebooks(), "diary", "overdue", overdue).await;
    let pages = step(&observed, "pages").unwrap();
    assert_eq!(pages.phase, StepPhase::Running);
    assert!(pages.message.unwrap().contains("diary-monday"));
    assert_eq!(step(&observed, "cover").unwrap().phase, StepPhase::Waiting);
    hold(&stage, "diary-monday", false).await;
    stage.gone("diary", &uid).await;
    running.stop().await;
}

#[tokio::test]
async fn force_goes_on_after_the_deadline_and_records_what_was_left_behind() {
    let stage = Stage::new("teardown").await;
    let running = stage.run();
    let uid = notebook(&stage, "diary", "Force").await;
    // Keep the notebook, so that its last status can be read.
    let keep = json!({"metadata": {"finalizers": ["example.opcore.dev/notebook", "example.opcore.dev/keep"]}});
    stage.notebooks().patch("diary", &PatchParams::default(), &Patch::Merge(&keep)).await.unwrap();
    stage.delete("diary").await;
    let released = |notebook: &Notebook| notebook.finalizers() == ["example.opcore.dev/keep"];
    let observed = eventually(&stage.notebooks(), "diary", "released", released).await;
    let pages = step(&observed, "pages").unwrap();
    assert_eq!(pages.phase, StepPhase::Leaked);
    assert!(pages.message.as_ref().unwrap().contains("diary-monday"), "{pages:?}");
    assert!(step(&observed, "cover").unwrap().phase.is_over(), "{observed:#?}");
    let release = json!({"metadata": {"finalizers": null}});
    stage.notebooks().patch("diary", &PatchParams::default(), &Patch::Merge(&release)).await.unwrap();
    stage.gone("diary", &uid).await;
    hold(&stage, "diary-monday", false).await;
    running.stop().await;
}

#[tokio::test]
async fn manual_stops_at_the_deadline_and_goes_on_by_annotation() {
    let stage = Stage::new("teardown").await;
    let running = stage.run();
    let uid = notebook(&stage, "diary", "Manual").await;
    stage.delete("diary").await;
    let stopped = |notebook: &Notebook| reason(notebook).is_some_and(|(reason, _)| reason == "TeardownStopped");
    let observed = eventually(&stage.notebooks(), "diary", "stopped", stopped).await;
    let (_, message) = reason(&observed).unwrap();
    assert!(message.contains(FORCE_ANNOTATION) && message.contains("pages"), "the remedy is missing: {message}");
    assert!(stage.maps().get_opt("diary-cover").await.unwrap().is_some(), "it went on by itself");
    let force = json!({"metadata": {"annotations": {FORCE_ANNOTATION: "pages"}}});
    stage.notebooks().patch("diary", &PatchParams::default(), &Patch::Merge(&force)).await.unwrap();
    stage.gone("diary", &uid).await;
    let left: Vec<ConfigMap> = stage.maps().list(&ListParams::default()).await.unwrap().items;
    let left: Vec<_> = left.iter().map(ResourceExt::name_any).filter(|name| name.starts_with("diary")).collect();
    assert_eq!(left, ["diary-monday"], "what was given up stays, and only that");
    hold(&stage, "diary-monday", false).await;
    running.stop().await;
}

#[tokio::test]
async fn what_someone_recreates_under_the_same_name_survives_the_teardown() {
    let stage = Stage::new("teardown").await;
    let running = stage.run();
    stage.write("diary", &[("monday", "rain")]).await;
    let uid = stage.ready("diary").await.uid().unwrap();
    let page = stage.maps().get("diary-monday").await.unwrap();
    hold(&stage, "diary-cover", true).await;
    stage.delete("diary").await;
    crate::stage::gone(&stage.maps(), "diary-monday", &page.uid().unwrap()).await;
    let mut new = page.clone();
    new.metadata = kube::api::ObjectMeta { name: page.metadata.name.clone(), ..Default::default() };
    let new = stage.maps().create(&PostParams::default(), &new).await.unwrap();
    hold(&stage, "diary-cover", false).await;
    stage.gone("diary", &uid).await;
    assert_eq!(stage.maps().get("diary-monday").await.unwrap().uid(), new.uid());
    running.stop().await;
}

#[tokio::test]
async fn a_record_that_another_process_published_in_the_meantime_is_not_overwritten() {
    let stage = Stage::new("teardown").await;
    let running = stage.run();
    let uid = notebook(&stage, "diary", "Wait").await;
    running.stop().await;
    stage.delete("diary").await;
    let notebooks = stage.notebooks();
    // Right before the first status is published: the decision was made on a state that is outdated by then.
    let publishes = |request: &http::Request<kube::client::Body>| request.uri().path().ends_with("/status");
    let client = meddled(&stage.client, publishes, async move {
        let theirs = json!({"status": {"teardown": {"startedAt": "2020-02-02T02:02:02Z", "steps": []}}});
        notebooks.patch_status("diary", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    });
    let running = start_with(Notebooks, client, &stage.namespace);
    let begun = |notebook: &Notebook| step(notebook, "pages").is_some_and(|step| step.phase == StepPhase::Running);
    let observed = eventually(&stage.notebooks(), "diary", "begun", begun).await;
    let record = observed.status.unwrap().teardown.unwrap();
    assert_eq!(record.started_at.to_string(), "2020-02-02T02:02:02Z");
    hold(&stage, "diary-monday", false).await;
    stage.gone("diary", &uid).await;
    running.stop().await;
}

#[tokio::test]
async fn nothing_is_written_about_an_object_after_it_was_released() {
    let stage = Stage::new("teardown").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let running = stage.run_at(proxy.config());
    stage.write("diary", &[("monday", "rain")]).await;
    let uid = stage.ready("diary").await.uid().unwrap();
    stage.delete("diary").await;
    stage.gone("diary", &uid).await;
    // The reconcile in progress ends before the operator stops.
    running.stop().await;
    let of_diary = |write: &Passed| write.path.contains("/notebooks/diary");
    let last = proxy.writes().into_iter().rfind(of_diary).unwrap();
    assert!(last.path.ends_with("/notebooks/diary"), "{last:?} came after the release");
}
