//! A failure explains itself to someone who did not watch the test.

use std::time::Duration;

use anyhow::{Context, ensure};
use e2e::{PATIENCE, notebook, scenario, until};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

/// Long enough for one attempt: the expected state is never reached.
const ONE_ATTEMPT: Duration = Duration::from_secs(3);

fn says(text: &str, words: &[&str]) -> anyhow::Result<()> {
    for word in words {
        ensure!(text.contains(word), "{word:?} is missing in:\n{text}");
    }
    Ok(())
}

#[tokio::test]
async fn an_image_that_does_not_exist_is_named_with_pod_event_and_deployment() -> anyhow::Result<()> {
    scenario("an_image_that_does_not_exist_is_named_with_pod_event_and_deployment", async |stage| {
        let image = json!({ "repository": "ghcr.io/opcore-dev/no-such-operator", "tag": "v9", "pullPolicy": "Never" });
        let release = stage.begin("broken-notebook-operator", notebook::CHART, &json!({ "image": image })).await?;
        let pod = release.first_pod(stage, PATIENCE).await?.name_any();
        until(&stage.api::<Pod>(), &pod, "without its image", PATIENCE, |pod| {
            let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            let mut waiting = containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref());
            waiting.any(|waiting| waiting.reason.as_deref() == Some("ErrImageNeverPull"))
        })
        .await?;

        let failed = release.ready(stage, ONE_ATTEMPT).await.err().context("it cannot become ready")?;
        says(&format!("{failed:#}"), &["broken-notebook-operator was not ready within 3 s", "kind: Deployment"])?;
        let explained = stage.explain().await;
        says(
            &explained,
            &[
                "--- Pods",
                &format!("{pod}: Pending"),
                "container operator: waiting: ErrImageNeverPull: Container image \
                 \"ghcr.io/opcore-dev/no-such-operator:v9\" is not present",
                "--- Events, oldest first",
                &format!("Normal  Pod/{pod}: Scheduled: Successfully assigned"),
                &format!("Warning Pod/{pod}: ErrImageNeverPull: "),
                "--- Logs\nnone\n",
                "--- Objects",
                "Deployment/broken-notebook-operator\n",
                "  Available=False: MinimumReplicasUnavailable: Deployment does not have minimum availability.",
                "ServiceAccount: broken-notebook-operator, default",
            ],
        )
    })
    .await
}

#[tokio::test]
async fn an_operator_that_ends_at_once_is_shown_with_the_end_of_its_log() -> anyhow::Result<()> {
    scenario("an_operator_that_ends_at_once_is_shown_with_the_end_of_its_log", async |stage| {
        let values = stage.with_image(notebook::OPERATOR, json!({ "extraArgs": ["--no-such-flag"] })).await?;
        let release = stage.begin(notebook::RELEASE, notebook::CHART, &values).await?;
        let pod = release.first_pod(stage, PATIENCE).await?.name_any();
        until(&stage.api::<Pod>(), &pod, "restarted", PATIENCE, |pod| {
            let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            containers.map(|container| container.restart_count).sum::<i32>() > 0
        })
        .await?;
        says(
            &stage.explain().await,
            &[
                &format!("{pod}: Running"),
                "restarted ",
                "before that ended with code 2: Error",
                &format!("{pod}, container operator, before its last restart:"),
                "  error: unexpected argument '--no-such-flag' found",
            ],
        )
    })
    .await
}

#[tokio::test]
async fn what_helm_refuses_is_reported_with_the_message_of_helm() -> anyhow::Result<()> {
    scenario("what_helm_refuses_is_reported_with_the_message_of_helm", async |stage| {
        let refused = stage.begin(notebook::RELEASE, notebook::CHART, &json!({ "replicaCount": "many" })).await;
        let words = refused.err().map(|error| format!("{error:#}")).context("the chart checks its values")?;
        says(&words, &["helm upgrade --install notebook-operator", "replicaCount"])
    })
    .await
}
