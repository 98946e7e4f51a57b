//! A real Prometheus can evaluate the queries of the chart's dashboards and alerts.

use opcore_testing::monitored::Monitored;
use sandbox::Sandbox;
use serde_json::json;

use crate::stage::Stage;

#[tokio::test]
async fn every_panel_and_every_alert_asks_for_something_that_there_is() {
    let stage = Stage::new("monitored").await;
    let kubeconfig = Sandbox::shared().await.unwrap().kubeconfig().to_owned();
    let program = env!("CARGO_BIN_EXE_terraform-runner-operator");
    let monitored = Monitored::start(
        program,
        &kubeconfig,
        &[&format!("--watch-namespaces={}", stage.namespace), "--authors-modules=Any"],
    );
    stage.write("good", json!({ "variables": { "size": 1 } })).await;
    stage.write("bad", json!({ "variables": { "outcome": "Failed" } })).await;
    stage.ready("good").await;
    stage.says("bad", "RunFailed").await;
    // By then it was reconciled more than once.
    monitored.until("increase(opcore_terraform_runs_total{outcome=\"Failed\"}[1m]) >= 0").await;
    monitored.until("opcore_terraform_workspace_failures > 0").await;
    let silent = monitored.ask_all("terraform-runner-operator").await;
    let (alerts, panels): (Vec<String>, Vec<String>) =
        silent.into_iter().partition(|place| place.starts_with("alerts: "));
    // Queries about failures that do not exist.
    let expected = [
        "control-plane: Failed reconciles by class",
        "objects: Other conditions that are not true",
        "objects: Resources that differ from the state",
    ];
    assert_eq!(panels, expected);
    assert!(!alerts.is_empty(), "nothing is so bad yet");
}
