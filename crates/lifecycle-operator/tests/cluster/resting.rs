//! Nothing is written when nothing has changed, and what is measured is so.

use kube::api::PropagationPolicy;
use lifecycle_operator::api::v1alpha1::{
    SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer, ZeroTrustWorkloadIdentityManager as Ztwim,
};
use serde_json::json;

use crate::operator::Running;
use crate::stage::Scene;

/// Asks for a look at everything, and waits until it is over.
async fn look_again(scene: &Scene, operator: &Running, word: &str) {
    let looks = || {
        let text = operator.context.metrics().text();
        let of_looks = |line: &&str| line.starts_with("opcore_reconciles_total");
        text.lines().filter(of_looks).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    let before = looks();
    let annotation = json!({ "metadata": { "annotations": { "opcore.dev/requestedAt": word } } });
    scene.patch::<Ztwim>(annotation.clone()).await.unwrap();
    scene.patch::<SpireServer>(annotation.clone()).await.unwrap();
    scene.patch::<SpireAgent>(annotation.clone()).await.unwrap();
    scene.patch::<SpiffeCSIDriver>(annotation.clone()).await.unwrap();
    scene.patch::<SpireOIDCDiscoveryProvider>(annotation).await.unwrap();
    scene.comes("everything is looked at", async || looks() >= before + 5.0).await;
}

fn is_of_object(passed: &&opcore_testing::proxy::Passed) -> bool {
    passed.writes() && !passed.path.contains("/events")
}

#[tokio::test]
async fn a_stack_at_rest_is_never_written_to_not_even_after_a_restart() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    look_again(&scene, &operator, "one").await;
    scene.ready::<Ztwim>().await;
    scene.proxy.take();
    look_again(&scene, &operator, "two").await;
    look_again(&scene, &operator, "three").await;
    operator.stop().await;
    let operator = scene.operator();
    look_again(&scene, &operator, "four").await;
    look_again(&scene, &operator, "five").await;
    let written: Vec<_> = scene.proxy.take();
    let written: Vec<_> = written.iter().filter(is_of_object).collect();
    assert!(written.is_empty(), "{written:#?}");
    operator.stop().await;
}

#[tokio::test]
async fn a_status_is_written_at_most_once_in_a_cycle() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    scene.all_gone().await;
    let text = operator.context.metrics().text();
    let passed = scene.proxy.take();
    for (kind, plural) in [
        ("ZeroTrustWorkloadIdentityManager", "zerotrustworkloadidentitymanagers"),
        ("SpireServer", "spireservers"),
        ("SpireAgent", "spireagents"),
        ("SpiffeCSIDriver", "spiffecsidrivers"),
        ("SpireOIDCDiscoveryProvider", "spireoidcdiscoveryproviders"),
    ] {
        let of_kind =
            |line: &&str| line.starts_with("opcore_reconciles_total") && line.contains(&format!("\"{kind}\""));
        let cycles: f64 =
            text.lines().filter(of_kind).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
        let path = format!("/apis/operator.openshift.io/v1alpha1/{plural}/cluster/status");
        let statuses = passed.iter().filter(|it| it.writes() && it.path == path).count();
        assert!(cycles > 0.0 && statuses > 0, "{kind}");
        #[expect(clippy::cast_precision_loss, reason = "they are few")]
        let at_most_one = statuses as f64 <= cycles;
        assert!(at_most_one, "{kind}: {statuses} writes in {cycles} cycles");
    }
    operator.stop().await;
}

#[tokio::test]
async fn the_metrics_say_what_is_ready_and_what_goes() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("example.org").await;
    let series = |name: &str, label: &str| {
        let text = operator.context.metrics().text();
        let wanted = format!("{name}{label} ");
        text.lines().find_map(|line| line.strip_prefix(&wanted).map(|value| value.parse::<f64>().unwrap()))
    };
    let kinds = [
        "SpireServer",
        "SpireAgent",
        "SpiffeCSIDriver",
        "SpireOIDCDiscoveryProvider",
        "ZeroTrustWorkloadIdentityManager",
    ];
    for kind in kinds {
        let label = format!("{{operand=\"{kind}\"}}");
        scene.comes("it counts as ready", async || series("opcore_identity_operand_ready", &label) == Some(1.0)).await;
        assert_eq!(series("opcore_identity_operand_stalled", &label), Some(0.0));
        assert_eq!(series("opcore_identity_teardown_started_timestamp_seconds", &label), None);
    }
    scene.patch::<SpiffeCSIDriver>(json!({ "spec": { "agentSocketPath": "/elsewhere" } })).await.unwrap();
    let words = scene.says::<SpiffeCSIDriver>("Stalled", "ConfigConflict").await;
    assert!(words.contains("\"/elsewhere\"") && words.contains("\"/run/spire/agent-sockets\""), "{words}");
    let label = "{operand=\"SpiffeCSIDriver\"}";
    scene.comes("it counts as stalled", async || series("opcore_identity_operand_stalled", label) == Some(1.0)).await;
    scene.patch::<SpiffeCSIDriver>(json!({ "spec": { "agentSocketPath": "/run/spire/agent-sockets" } })).await.unwrap();
    scene.ready::<Ztwim>().await;
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    scene.all_gone().await;
    for kind in kinds {
        let label = format!("{{operand=\"{kind}\"}}");
        scene
            .comes("nothing is measured of what is gone", async || {
                series("opcore_identity_operand_ready", &label).is_none()
            })
            .await;
    }
    scene
        .comes("the backup is measured", async || {
            series("opcore_identity_last_backup_timestamp_seconds", "").is_some_and(|at| at > 0.0)
        })
        .await;
    operator.stop().await;
}
