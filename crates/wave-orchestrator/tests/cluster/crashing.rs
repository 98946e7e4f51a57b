//! Restarts and crashes: nothing is done twice, nothing is left undone.

use sandbox::{Options, Sandbox};

use crate::stage::{Running, Stage, map};

/// Writes that were answered with success, as the metrics count them; Events and leases aside.
fn writes(running: &Running) -> Vec<String> {
    let text = running.metrics.text();
    let of_writes = |line: &&str| {
        line.starts_with("opcore_api_requests_total")
            && ["\"patch\"", "\"create\"", "\"delete\"", "\"update\""]
                .iter()
                .any(|verb| line.contains(&format!("verb={verb}")))
            && !line.contains("resource=\"events")
    };
    text.lines().filter(of_writes).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_restart_on_a_converged_cluster_writes_nothing() {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "restart").await;
    let running = Running::start(stage.config.clone());
    stage
        .plan(&format!(
            "resync: 1s\nwaves: [{{name: first, members: [{}]}}, {{name: last, dependsOn: [{{wave: first}}], members: [{}]}}]",
            map("a"),
            map("b")
        ))
        .await;
    let before = stage.ready().await;
    running.stop().await;
    let running = Running::start(stage.config.clone());
    // It has compared everything anew at least twice.
    let compared = async {
        let lists = |text: &str| {
            let line = text
                .lines()
                .find(|line| line.contains("resource=\"configmaps\",verb=\"list\""))
                .unwrap_or_default()
                .to_owned();
            line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok()).unwrap_or_default()
        };
        while lists(&running.metrics.text()) < 4.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::stage::PATIENCE, compared).await.expect("it compares");
    assert_eq!(writes(&running), [""; 0]);
    running.stop().await;
    let after = stage.plans().get(&stage.name()).await.unwrap();
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version);
}
