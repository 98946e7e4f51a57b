//! Objects that cannot be brought where they shall be: what is said of them, and how often they are tried.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use opcore::conditions::{self, READY};
use serde_json::json;

use crate::notebook::Notebook;
use crate::proxy::{Passed, Proxy};
use crate::stage::{Stage, eventually};

fn ready(notebook: &Notebook) -> Option<&conditions::Condition> {
    conditions::find(&notebook.status.as_ref()?.conditions, READY)
}

fn of_status(passed: &Passed) -> bool {
    passed.writes() && passed.path.ends_with("/status")
}

#[tokio::test]
async fn a_refusal_that_lasts_is_told_once_and_tried_by_its_own_backoff() {
    let stage = Stage::new("fail").await;
    let theirs = json!({"metadata": {"name": "diary-monday", "labels": {"app.kubernetes.io/managed-by": "Helm"}}});
    let theirs: ConfigMap = serde_json::from_value(theirs).unwrap();
    stage.maps().create(&PostParams::default(), &theirs).await.unwrap();
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let running = stage.run_at(proxy.config());
    stage.write("diary", &[("monday", "rain")]).await;
    let refused = |notebook: &Notebook| ready(notebook).is_some_and(|ready| ready.reason == "OwnedByAnother");
    let first = eventually(&stage.notebooks(), "diary", "refused", refused).await;
    let looks = |passed: &[Passed]| passed.iter().filter(|p| p.path.ends_with("/configmaps/diary-monday")).count() >= 4;
    proxy.until("four looks at the page", looks).await;
    running.stop().await;
    let last = stage.notebooks().get("diary").await.unwrap();
    assert_eq!(last.status.unwrap().conditions, first.status.unwrap().conditions, "nothing has changed");
    assert_eq!(proxy.writes().into_iter().filter(of_status).count(), 1, "and nothing was written of it");
}
