//! Metrics are served on the port in the pod spec.

use anyhow::{Context, ensure};
use e2e::{PATIENCE, notebook, scenario};
use kube::ResourceExt;
use serde_json::json;

#[tokio::test]
async fn metrics_are_answered_on_the_port_of_the_pod() -> anyhow::Result<()> {
    scenario("metrics_are_answered_on_the_port_of_the_pod", async |stage| {
        notebook::install(stage, json!({})).await?;
        notebook::written(stage, "diary", &["monday"]).await?;
        let pod = notebook::leader(stage, None, PATIENCE).await?;
        let mut ports = pod.spec.iter().flat_map(|spec| &spec.containers).flat_map(|c| c.ports.iter().flatten());
        let port = ports.find(|port| port.name.as_deref() == Some("metrics")).context("no port is called metrics")?;

        // Through the API server, as from anywhere.
        let (namespace, name, port) = (&stage.namespace, pod.name_any(), port.container_port);
        let ask = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics");
        let answer = stage.client.request_text(http::Request::get(ask).body(Vec::new())?).await?;
        for words in ["opcore_build_info{", "opcore_leader 1"] {
            ensure!(answer.contains(words), "{words:?} is missing in:\n{answer}");
        }
        Ok(())
    })
    .await
}
