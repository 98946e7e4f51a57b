//! The conflict matrix: the API server refuses what contradicts itself, by policies; and the operator by itself, where
//! there are none.

use kube::api::PropagationPolicy;
use kube::{Resource, ResourceExt};
use lifecycle_operator::api::v1alpha1::{
    Provenance, SpireAgent, SpireServer, ZeroTrustWorkloadIdentityManager as Ztwim,
};
use opcore_testing::PATIENCE;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::stage::{PAUSE, Scene};

/// Tries until the API server, which takes a moment to learn a policy, refuses. Answers what it says.
async fn refused<K>(scene: &Scene, spec: Value) -> String
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let mut pause = tokio::time::interval(PAUSE);
    let refused = async {
        loop {
            if let Err(error) = scene.try_out::<K>(spec.clone()).await {
                return error.to_string();
            }
            pause.tick().await;
        }
    };
    let refused = tokio::time::timeout(PATIENCE, refused).await;
    refused.unwrap_or_else(|_| panic!("{} {spec} is not refused", K::kind(&())))
}

/// Writes what the API server takes a moment to accept: it has to learn of an operand, or to forget a policy.
pub async fn accepted<K>(scene: &Scene, spec: Value)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let mut pause = tokio::time::interval(PAUSE);
    let accepted = async {
        while scene.write::<K>(spec.clone()).await.is_err() {
            pause.tick().await;
        }
    };
    let accepted = tokio::time::timeout(PATIENCE, accepted).await;
    accepted.unwrap_or_else(|_| panic!("{} {spec} is refused", K::kind(&())));
}

fn of(trust_domain: &str) -> Value {
    json!({ "trustDomain": trust_domain })
}

/// Both values, both objects, and the words of the specification.
fn assert_names(words: &str, values: [&str; 2], kinds: [&str; 2]) {
    for part in
        values.map(|value| format!("\"{value}\"")).into_iter().chain(kinds.map(|kind| format!("{kind} cluster")))
    {
        assert!(words.contains(&part), "{part} is not in: {words}");
    }
}

const PARENT: &str = "ZeroTrustWorkloadIdentityManager";

#[tokio::test]
async fn the_api_server_refuses_what_is_in_conflict_and_names_both_values_and_both_objects() {
    let scene = Scene::new().await;
    let operator = scene.operator();

    // Nothing anywhere.
    let words = refused::<Ztwim>(&scene, json!({})).await;
    assert!(words.contains("must specify a trust domain"), "{words}");

    // Operands that disagree, and a parent that would have to choose.
    scene.write::<SpireServer>(of("old.io")).await.unwrap();
    scene.write::<SpireAgent>(of("new.io")).await.unwrap();
    let mut pause = tokio::time::interval(PAUSE);
    let disagreement = async {
        loop {
            let words = refused::<Ztwim>(&scene, json!({})).await;
            if words.contains("disagree") {
                return words;
            }
            pause.tick().await;
        }
    };
    let words = tokio::time::timeout(PATIENCE, disagreement).await.expect("the operands are known to disagree");
    assert_names(&words, ["old.io", "new.io"], ["SpireServer", "SpireAgent"]);

    // The parent with a value, an operand with another.
    let words = refused::<Ztwim>(&scene, of("new.io")).await;
    assert_names(&words, ["new.io", "old.io"], [PARENT, "SpireServer"]);
    assert!(words.contains("Conflict with ZeroTrustWorkloadIdentityManager config"), "{words}");
    let words = refused::<Ztwim>(&scene, of("old.io")).await;
    assert_names(&words, ["old.io", "new.io"], [PARENT, "SpireAgent"]);

    // The parent with the same.
    scene.delete::<SpireAgent>(PropagationPolicy::Background).await;
    scene.gone::<SpireAgent>().await;
    scene.write::<Ztwim>(of("old.io")).await.unwrap();

    // An operand with another than the parent, with the same, and without one.
    let words = refused::<SpireServer>(&scene, of("new.io")).await;
    assert_names(&words, ["new.io", "old.io"], ["SpireServer", PARENT]);
    assert!(words.contains("Conflict with ZeroTrustWorkloadIdentityManager config"), "{words}");
    let words = refused::<SpireAgent>(&scene, of("other.io")).await;
    assert_names(&words, ["other.io", "old.io"], ["SpireAgent", PARENT]);
    scene.try_out::<SpireServer>(of("old.io")).await.unwrap();
    scene.try_out::<SpireAgent>(of("old.io")).await.unwrap();
    scene.write::<SpireAgent>(json!({})).await.unwrap();
    let agent = scene.until("filled in", |agent: &SpireAgent| agent.spec.trust_domain.is_some()).await;
    assert_eq!(agent.spec.trust_domain.as_deref(), Some("old.io"));
    operator.stop().await;
}

#[tokio::test]
async fn every_field_of_the_central_config_is_compared_and_not_the_trust_domain_alone() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    let parent = json!({
        "trustDomain": "a.org", "clusterName": "one", "bundleConfigMap": "bundle", "jwtIssuer": "https://a.org",
    });
    scene.write::<Ztwim>(parent).await.unwrap();
    for (field, value) in [("clusterName", "two"), ("bundleConfigMap", "other"), ("jwtIssuer", "https://b.org")] {
        let words = refused::<SpireServer>(&scene, json!({ field: value })).await;
        assert!(words.contains(&format!("spec.{field} of SpireServer cluster is \"{value}\"")), "{words}");
    }
    // The issuer does not concern the agent, which has no such field.
    scene.try_out::<SpireAgent>(json!({ "clusterName": "one" })).await.unwrap();
    operator.stop().await;
}

#[tokio::test]
async fn an_empty_parent_takes_over_once_what_a_pre_existing_operand_has() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.write::<SpireServer>(json!({ "trustDomain": "existing.io", "clusterName": "old" })).await.unwrap();
    accepted::<Ztwim>(&scene, json!({})).await;
    let filled = |parent: &Ztwim| parent.spec.trust_domain.is_some();
    let parent = scene.until("initialised", filled).await;
    assert_eq!(parent.spec.trust_domain.as_deref(), Some("existing.io"));
    assert_eq!(parent.spec.cluster_name.as_deref(), Some("old"));
    // From now on the parent has it: the operand cannot change it any more.
    let words = refused::<SpireServer>(&scene, json!({ "trustDomain": "third.io", "clusterName": "old" })).await;
    assert_names(&words, ["third.io", "existing.io"], ["SpireServer", PARENT]);
    // And applying the manifest of the empty parent again takes nothing away.
    scene.write::<Ztwim>(json!({})).await.unwrap();
    assert_eq!(scene.all::<Ztwim>().get("cluster").await.unwrap().spec.trust_domain.as_deref(), Some("existing.io"));
    operator.stop().await;
}

#[tokio::test]
async fn without_policies_the_operator_reports_every_row_of_the_matrix_by_itself() {
    let scene = Scene::new().await;
    let operator = scene.operator_without_policies();

    // Nothing anywhere.
    accepted::<Ztwim>(&scene, json!({})).await;
    let words = scene.says::<Ztwim>("Stalled", "MissingTrustDomain").await;
    assert!(words.contains("must specify a trust domain"), "{words}");

    // Operands that disagree.
    scene.write::<SpireServer>(of("old.io")).await.unwrap();
    scene.write::<SpireAgent>(of("new.io")).await.unwrap();
    // What the server had first may have been taken over by then; the other is then in conflict with that.
    let words = scene.says::<Ztwim>("Stalled", "ConfigConflict").await;
    assert!(words.contains("\"old.io\"") && words.contains("\"new.io\""), "{words}");
    assert!(words.contains("SpireAgent cluster"), "{words}");
    scene.write::<SpireAgent>(of("old.io")).await.unwrap();

    // The parent is initialised, once, and the conflict is over.
    let parent = scene.until("initialised", |parent: &Ztwim| parent.spec.trust_domain.is_some()).await;
    assert_eq!(parent.spec.trust_domain.as_deref(), Some("old.io"));
    let agreed = |parent: &Ztwim| {
        let conditions = &parent.status.as_ref().unwrap().conditions;
        opcore::conditions::find(conditions, "Stalled").is_none()
    };
    scene.until("in agreement", agreed).await;

    // An operand with another than the parent: nothing of it is changed, and both say so.
    scene.write::<SpireServer>(of("new.io")).await.unwrap();
    let words = scene.says::<SpireServer>("Stalled", "ConfigConflict").await;
    assert_names(&words, ["old.io", "new.io"], [PARENT, "SpireServer"]);
    let words = scene.says::<Ztwim>("Stalled", "ConfigConflict").await;
    assert_names(&words, ["old.io", "new.io"], [PARENT, "SpireServer"]);

    // Without a value of its own it inherits, and says from where.
    scene.write::<SpireServer>(json!({})).await.unwrap();
    let inherits = |server: &SpireServer| {
        let values = server.status.as_ref().map_or(&[][..], |status| &status.config);
        values.iter().any(|it| it.name == "trustDomain" && it.value == "old.io" && it.from == Provenance::Inherited)
    };
    scene.until("inheriting", inherits).await;
    let filled = |server: &SpireServer| server.spec.trust_domain.as_deref() == Some("old.io");
    let server = scene.until("filled in", filled).await;
    assert!(server.annotations()["ztwim.io/inherited"].contains("trustDomain"));
    operator.stop().await;
}

#[tokio::test]
async fn nothing_that_was_accepted_or_is_being_deleted_is_refused_even_while_the_operator_is_away() {
    let scene = Scene::new().await;
    // In conflict from before there were policies.
    scene.write::<SpireServer>(of("old.io")).await.unwrap();
    accepted::<Ztwim>(&scene, of("new.io")).await;
    let operator = scene.operator();
    scene.says::<SpireServer>("Stalled", "ConfigConflict").await;
    refused::<SpireServer>(&scene, of("third.io")).await;
    refused::<SpireAgent>(&scene, of("third.io")).await;
    refused::<Ztwim>(&scene, json!({ "trustDomain": "third.io", "allowTrustDomainMigration": true })).await;
    operator.stop().await;

    // Other fields can be edited, whoever does it and how.
    scene.patch::<SpireServer>(json!({ "metadata": { "labels": { "team": "a" } } })).await.unwrap();
    scene.patch::<SpireServer>(json!({ "spec": { "logLevel": "debug" } })).await.unwrap();
    scene.patch::<Ztwim>(json!({ "spec": { "suspend": true } })).await.unwrap();
    scene.write::<SpireServer>(json!({ "trustDomain": "old.io", "logFormat": "json" })).await.unwrap();
    // The conflict itself can be ended.
    scene.try_out::<SpireServer>(of("new.io")).await.unwrap();
    scene.try_out::<SpireServer>(json!({ "logFormat": "json" })).await.unwrap();

    // And what is being deleted can lose its finalizers, though it is in conflict.
    for kind in ["server", "parent"] {
        let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
        let free = json!({ "metadata": { "finalizers": null }, "spec": { "trustDomain": "fourth.io", "allowTrustDomainMigration": true } });
        if kind == "server" {
            scene.patch::<SpireServer>(held).await.unwrap();
            scene.delete::<SpireServer>(PropagationPolicy::Background).await;
            let free = json!({ "metadata": { "finalizers": null }, "spec": { "trustDomain": "fourth.io" } });
            scene.patch::<SpireServer>(free).await.unwrap();
            scene.gone::<SpireServer>().await;
        } else {
            scene.patch::<Ztwim>(held).await.unwrap();
            scene.delete::<Ztwim>(PropagationPolicy::Background).await;
            scene.patch::<Ztwim>(free).await.unwrap();
            scene.gone::<Ztwim>().await;
        }
    }
    // With nothing there, everything can be made.
    scene.write::<SpireServer>(of("fifth.io")).await.unwrap();
    scene.write::<Ztwim>(of("fifth.io")).await.unwrap();
}
