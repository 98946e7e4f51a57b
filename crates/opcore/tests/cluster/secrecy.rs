//! What must not be told: values of fields, whatever goes wrong with them.

use k8s_openapi::api::core::v1::Secret;
use kube::api::ApiResource;
use opcore::act::{self, Actor, RefusalReason};
use opcore::ownership::Claimant;
use opcore::{Plan, Write};
use serde_json::json;

use crate::stage::Stage;

#[tokio::test]
async fn a_secret_that_the_api_server_refuses_is_named_without_its_values() {
    let stage = Stage::new("secrecy").await;
    let claimant = Claimant { operator: "notebook-operator".to_owned(), owner: None };
    let actor = Actor { client: &stage.client, claimant: &claimant, contract: None };
    for (field, value) in [
        ("stringData", json!({"pin": 4711})),
        ("data", json!({"pin": "4711 is no base64"})),
        ("immutable", json!("4711")),
    ] {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "front", "namespace": stage.namespace},
        });
        secret[field] = value;
        let secret = serde_json::from_value(secret).unwrap();
        let write = Write::apply_dynamic(ApiResource::erase::<Secret>(&()), secret);
        let done = act::run(&actor, None, &Plan::from_iter([write])).await.unwrap();
        let refusal = done.refusal().unwrap_or_else(|| panic!("{field} was not refused: {:?}", done.outcomes));
        assert_eq!(refusal.reason, RefusalReason::Invalid, "{refusal:?}");
        assert!(refusal.message.contains("Secret") && !refusal.message.contains("4711"), "{}", refusal.message);
    }
}
