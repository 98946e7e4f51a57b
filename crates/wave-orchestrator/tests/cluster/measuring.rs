//! What the chart's dashboards and alerts ask, a real Prometheus can answer.

use opcore_testing::monitored::Monitored;
use sandbox::{Options, Sandbox};

use crate::stage::{NAME, Stage, map};

#[tokio::test]
async fn every_panel_and_every_alert_asks_for_something_that_there_is() {
    // Plans have no namespace: beside other tests it would work on theirs.
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "monitored").await;
    let monitored = Monitored::start(env!("CARGO_BIN_EXE_wave-orchestrator"), sandbox.kubeconfig(), &[]);
    stage.plan(&format!("waves: [{{name: one, members: [{}]}}]", map("a"))).await;
    stage.ready().await;
    monitored.until("increase(opcore_waveplan_wave_duration_seconds_count[1m]) >= 0").await;
    let silent = monitored.ask_all(NAME).await;
    let (alerts, panels): (Vec<String>, Vec<String>) =
        silent.into_iter().partition(|place| place.starts_with("alerts: "));
    // What nothing is wrong with, and what takes no time any more.
    let expected = [
        "control-plane: Failed reconciles by class",
        "objects: Not ready now",
        "objects: Other conditions that are not true",
        "objects: Stalled now",
        "objects: Estimated remaining time",
    ];
    assert_eq!(panels, expected);
    assert!(!alerts.is_empty(), "nothing is so bad yet");
}
