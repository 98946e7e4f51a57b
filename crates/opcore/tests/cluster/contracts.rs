//! The ownership contract: read from the cluster, and checked before every write.

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use opcore::conditions::{self, READY, RECONCILING};
use serde_json::json;

use crate::notebook::Notebook;
use crate::stage::{Stage, event, eventually};
use opcore_testing::contract::install;
use opcore_testing::proxy::{Fate, Proxy};

fn contracts(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("opcore.dev", "v1alpha1", "OwnershipContract");
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "ownershipcontracts"))
}

/// Says that Flux owns the ConfigMaps of a namespace.
async fn give_away(client: &Client, namespace: &str, enforcement: &str) {
    let contract = json!({
        "apiVersion": "opcore.dev/v1alpha1", "kind": "OwnershipContract", "metadata": { "name": "test" },
        "spec": {
            "enforcement": enforcement,
            "rules": [{ "name": "maps", "owner": "flux", "select": { "kinds": ["ConfigMap"], "namespaces": [namespace] } }],
        },
    });
    let params = PatchParams::apply("test").force();
    contracts(client).patch("test", &params, &Patch::Apply(&contract)).await.unwrap();
}

fn reason(notebook: &Notebook) -> &str {
    let status = notebook.status.as_ref();
    let ready = status.and_then(|status| conditions::find(&status.conditions, READY));
    ready.map_or("", |ready| ready.reason.as_str())
}

/// One test, because a contract applies to all operators of the cluster, and the oldest contract is in force.
#[tokio::test]
async fn a_contract_blocks_only_while_it_is_enforced_and_never_keeps_us_from_taking_down_what_we_made() {
    let stage = Stage::new("contract").await;
    install(&stage.client).await;
    let running = stage.run();
    let diary = stage.write("diary", &[("monday", "rain")]).await;
    stage.ready("diary").await;

    give_away(&stage.client, &stage.namespace, "Warn").await;
    let pages = |text: &str| Patch::Merge(json!({ "spec": { "pages": { "tuesday": text } } }));
    stage.notebooks().patch("diary", &PatchParams::default(), &pages("sun")).await.unwrap();
    stage.ready("diary").await;
    assert_eq!(stage.pages("diary").await, ["cover", "monday", "tuesday"]);

    give_away(&stage.client, &stage.namespace, "Deny").await;
    // Another notebook shows whether the operator knows the contract yet.
    let mut refused = None;
    for number in 0..100 {
        let name = format!("try-{number}");
        stage.write(&name, &[("monday", "rain")]).await;
        let decided = |notebook: &Notebook| !reason(notebook).is_empty();
        let reported = eventually(&stage.notebooks(), &name, "decided", decided).await;
        if reason(&reported) == "OwnedByAnother" {
            refused = Some(name);
            break;
        }
    }
    let refused = refused.expect("the contract is enforced");
    event(&stage, &refused, "OwnedByAnother").await;
    stage.notebooks().patch("diary", &PatchParams::default(), &pages("hail")).await.unwrap();
    eventually(&stage.notebooks(), "diary", "refused", |diary| reason(diary) == "OwnedByAnother").await;

    stage.delete("diary").await;
    stage.gone("diary", &diary.uid().unwrap()).await;
    assert_eq!(stage.pages("diary").await, [""; 0], "what we made is ours to delete");

    contracts(&stage.client).delete("test", &DeleteParams::default()).await.unwrap();
    stage.ready(&refused).await;
    running.stop().await;
}

#[tokio::test]
async fn nothing_is_written_until_it_is_known_whether_a_contract_is_in_force() {
    let stage = Stage::new("contract").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let contracts = |path: &str| path.contains("ownershipcontracts");
    proxy.rule(move |request| if contracts(&request.path) { Fate::Answer(403) } else { Fate::Pass });
    let running = stage.run_at(proxy.config());
    stage.write("diary", &[("monday", "rain")]).await;
    let waits = |notebook: &Notebook| {
        let status = notebook.status.as_ref();
        let reconciling = status.and_then(|status| conditions::find(&status.conditions, RECONCILING));
        reconciling.is_some_and(|condition| {
            condition.message.contains("nothing is written until the ownership contract is known")
                && condition.message.contains("Grant this operator list and watch on ownershipcontracts.opcore.dev")
        })
    };
    eventually(&stage.notebooks(), "diary", "waiting", waits).await;
    assert_eq!(stage.pages("diary").await, [""; 0]);
    assert!(stage.notebooks().get("diary").await.unwrap().finalizers().is_empty());
    proxy.rule(|_| Fate::Pass);
    stage.ready("diary").await;
    running.stop().await;
}
