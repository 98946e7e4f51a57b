//! A real Prometheus can evaluate the queries of the chart's dashboards and alerts.

use opcore_testing::monitored::Monitored;
use sandbox::{Options, Sandbox};

use crate::stage::{NAME, Stage, map};

#[tokio::test]
async fn every_panel_and_every_alert_asks_for_something_that_there_is() {
    // Plans are cluster-scoped: next to other tests the operator would reconcile theirs.
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "monitored").await;
    let monitored = Monitored::start(env!("CARGO_BIN_EXE_wave-orchestrator"), sandbox.kubeconfig(), &[]);
    stage.plan(&format!("waves: [{{name: one, members: [{}]}}]", map("a"))).await;
    stage.ready().await;
    monitored.until("increase(opcore_waveplan_wave_duration_seconds_count[1m]) >= 0").await;
    let silent = monitored.ask_all(NAME).await;
    let (alerts, panels): (Vec<String>, Vec<String>) =
        silent.into_iter().partition(|place| place.starts_with("alerts: "));
    // Queries about failures that do not exist, and about waves that are already complete.
    let expected = [
        "control-plane: Failed reconciles by class",
        "objects: Estimated remaining time",
        "objects: Not ready now",
        "objects: Other conditions that are not true",
        "objects: Stalled now",
    ];
    assert_eq!(panels, expected);
    assert!(!alerts.is_empty(), "nothing is so bad yet");
}
