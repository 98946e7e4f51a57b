//! The exact request of each write: on a real API server one precondition hides the absence of another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::*;
use crate::ownership::{OPERATOR_LABEL, OWNER_LABEL, Owner};

fn claimant() -> Claimant {
    let owner = Owner { uid: "owner".to_owned(), words: "Notebook/shop/a".to_owned() };
    Claimant { operator: "us".to_owned(), owner: Some(owner) }
}

/// An object of ours, as it is read.
fn live() -> Value {
    let labels = json!({OPERATOR_LABEL: "us", OWNER_LABEL: "owner"});
    let metadata =
        json!({"name": "front", "namespace": "shop", "uid": "uid", "resourceVersion": "7", "labels": labels});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}})
}

fn map(object: Value) -> ConfigMap {
    serde_json::from_value(object).unwrap()
}

/// The requests of these writes: queries and bodies.
async fn written(writes: Writes, answers: Vec<(u16, Value)>) -> Vec<(String, Value)> {
    let (done, sent) = tried(writes, answers).await;
    done.unwrap();
    sent
}

/// Runs the writes against an API server that has only this object and returns these responses to the first writes.
/// Returns the result and the requests.
async fn tried(writes: Writes, mut answers: Vec<(u16, Value)>) -> (Result<(), Error>, Vec<(String, Value)>) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let (log, answers) = (sent.clone(), {
        answers.reverse();
        Arc::new(Mutex::new(answers))
    });
    let service = service_fn(move |request: Request<Body>| {
        let (log, answers) = (log.clone(), answers.clone());
        async move {
            let (head, body) = request.into_parts();
            let mut answer = (200, live());
            if head.method != Method::GET {
                let body = serde_json::from_slice(&body.collect_bytes().await?)?;
                log.lock().unwrap().push((head.uri.query().unwrap_or_default().to_owned(), body));
                answer = answers.lock().unwrap().pop().unwrap_or(answer);
            }
            let body = Body::from(serde_json::to_vec(&answer.1)?);
            Ok::<_, BoxError>(Response::builder().status(answer.0).body(body)?)
        }
    });
    let (client, claimant) = (Client::new(service, "shop"), claimant());
    let actor = Actor::new(&client, &claimant, None);
    let done = run(&actor, Some(&mut ReconciledObject::of(&map(live()))), &writes).await;
    (done.whole().map(|_| ()), std::mem::take(&mut *sent.lock().unwrap()))
}

#[tokio::test]
async fn a_delete_names_the_uid_and_the_version_that_were_judged() {
    // A delete without a version is fenced, too.
    let mut delete = Write::delete(&map(live()));
    if let Write::Delete(delete) = &mut delete {
        delete.resource_version = None;
    }
    let [(_, body)] = &written(Writes::from_iter([delete]), Vec::new()).await[..] else { panic!("one write") };
    assert_eq!(body["preconditions"], json!({"uid": "uid", "resourceVersion": "7"}));
}

#[tokio::test]
async fn a_change_of_finalizers_names_the_uid_and_the_version_that_were_read() {
    let add = Write::AddFinalizer("example.opcore.dev/ours".to_owned());
    let [(_, body)] = &written(Writes::from_iter([add]), Vec::new()).await[..] else { panic!("one write") };
    assert_eq!((&body["metadata"]["uid"], &body["metadata"]["resourceVersion"]), (&json!("uid"), &json!("7")));
}

#[tokio::test]
async fn an_annotation_names_the_uid_of_its_object() {
    let annotations = BTreeMap::from([("example.opcore.dev/note".to_owned(), Some("x".to_owned()))]);
    let annotate = Write::Annotate { target: Target::of(&map(live())), annotations };
    let [(_, body)] = &written(Writes::from_iter([annotate]), Vec::new()).await[..] else { panic!("one write") };
    assert_eq!(body["metadata"]["uid"], "uid");
}

#[tokio::test]
async fn an_apply_names_the_uid_and_the_version_that_were_judged() {
    let cause =
        json!({"reason": "FieldManagerConflict", "field": ".data.a", "message": r#"conflict with "kubectl-edit""#});
    let conflict = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409, "reason": "Conflict",
        "details": {"causes": [cause]}});
    let mut wanted = map(live());
    wanted.data = Some(BTreeMap::from([("a".to_owned(), "2".to_owned())]));
    let apply = Write::apply(&wanted).unwrap();
    let [(gently, first), (by_force, second)] = &written(Writes::from_iter([apply]), vec![(409, conflict)]).await[..]
    else {
        panic!("two writes")
    };
    assert!(!gently.contains("force=true") && by_force.contains("force=true"), "{gently} {by_force}");
    // The server must not silently drop a field that it does not know.
    assert!(gently.contains("fieldValidation=Strict") && by_force.contains("fieldValidation=Strict"), "{gently}");
    assert_eq!((&first["metadata"]["uid"], &second["metadata"]["uid"]), (&json!("uid"), &json!("uid")));
    let version = |sent: &Value| sent["metadata"]["resourceVersion"].clone();
    assert_eq!((version(first), version(second)), (json!("7"), json!("7")));
}

#[tokio::test]
async fn an_object_whose_name_the_server_would_have_to_make_is_not_applied() {
    for name in [None, Some(String::new())] {
        let mut nameless = map(live());
        nameless.metadata.name = name;
        nameless.metadata.generate_name = Some("front-".to_owned());
        let (done, sent) = tried(Writes::from_iter([Write::apply(&nameless).unwrap()]), Vec::new()).await;
        let error = done.unwrap_err().to_string();
        assert_eq!((error.as_str(), sent.len()), ("internal error: cannot apply a ConfigMap without a name", 0));
    }
}
