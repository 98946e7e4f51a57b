//! A crash between any two writes: the next process completes whatever was started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use opcore::finalizer::{FORCE_ANNOTATION, StepPhase, StepRecord};
use serde_json::json;

use crate::notebook::Notebook;
use crate::stage::{Stage, event, eventually};
use opcore_testing::crashing::{CUTS, crash_at};
use opcore_testing::proxy::{Fate, Proxy};

fn record(notebook: &Notebook, step: &str) -> Option<StepRecord> {
    notebook.status.as_ref()?.teardown.as_ref()?.step(step).cloned()
}

#[tokio::test]
async fn what_was_left_behind_is_reported_although_a_crash_came_right_after_it_was_recorded() {
    let stage = Stage::new("crash").await;
    let running = stage.run();
    stage.write("diary", &[("monday", "rain")]).await;
    let uid = stage.ready("diary").await.uid().unwrap();
    running.stop().await;
    let held = json!({"metadata": {"finalizers": ["example.opcore.dev/someone-else"]}});
    stage.maps().patch("diary-monday", &PatchParams::default(), &Patch::Merge(&held)).await.unwrap();
    stage.delete("diary").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    // No Event gets out, and after the record of what leaked no request at all.
    let (leaks, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (aimed, over) = (leaks.clone(), is_over.clone());
    proxy.rule(move |passed| match passed.writes() {
        true if passed.path.contains("/events") || over.load(Ordering::SeqCst) => Fate::LoseRequest,
        true if passed.path.ends_with("/status") && aimed.load(Ordering::SeqCst) => {
            over.store(true, Ordering::SeqCst);
            Fate::Pass
        }
        _ => Fate::Pass,
    });
    let running = stage.run_at(proxy.config());
    let begun = |notebook: &Notebook| record(notebook, "pages").is_some_and(|step| step.message.is_some());
    eventually(&stage.notebooks(), "diary", "at work", begun).await;
    leaks.store(true, Ordering::SeqCst);
    let force = json!({"metadata": {"annotations": {FORCE_ANNOTATION: "pages"}}});
    stage.notebooks().patch("diary", &PatchParams::default(), &Patch::Merge(&force)).await.unwrap();
    let leaked = |notebook: &Notebook| record(notebook, "pages").is_some_and(|step| step.phase == StepPhase::Leaked);
    eventually(&stage.notebooks(), "diary", "recorded as leaked", leaked).await;
    running.crash().await;
    let running = stage.run();
    stage.gone("diary", &uid).await;
    running.stop().await;
    let note = event(&stage, "diary", "TeardownLeaked").await.note.unwrap();
    assert!(note.contains("diary-monday"), "{note}");
    let release = json!({"metadata": {"finalizers": null}});
    stage.maps().patch("diary-monday", &PatchParams::default(), &Patch::Merge(&release)).await.unwrap();
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_creation_is_resumed() {
    let stage = Stage::new("crash").await;
    for cut in CUTS {
        for n in 1.. {
            let name = format!("{}-{n}", format!("{cut:?}").to_lowercase());
            stage.write(&name, &[("monday", "rain"), ("tuesday", "sun")]).await;
            let ready = async { drop(stage.ready(&name).await) };
            let crashed = crash_at(&stage.client, n, cut, |config| stage.run_at(config), ready).await;
            let running = stage.run();
            let notebook = stage.ready(&name).await;
            assert_eq!(stage.pages(&name).await, ["cover", "monday", "tuesday"]);
            stage.delete(&name).await;
            stage.gone(&name, &notebook.uid().unwrap()).await;
            running.stop().await;
            if !crashed {
                assert!(n > 5, "only {} writes were cut", n - 1);
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_teardown_is_resumed_and_nothing_is_left() {
    let stage = Stage::new("crash").await;
    for cut in CUTS {
        for n in 1.. {
            let name = format!("{}-{n}", format!("{cut:?}").to_lowercase());
            let running = stage.run();
            stage.write(&name, &[("monday", "rain"), ("tuesday", "sun")]).await;
            let uid = stage.ready(&name).await.uid().unwrap();
            running.stop().await;
            stage.delete(&name).await;
            let crashed = crash_at(&stage.client, n, cut, |config| stage.run_at(config), stage.gone(&name, &uid)).await;
            let running = stage.run();
            stage.gone(&name, &uid).await;
            assert_eq!(stage.pages(&name).await, [""; 0]);
            running.stop().await;
            if !crashed {
                assert!(n > 6, "only {} writes were cut", n - 1);
                break;
            }
        }
    }
}
