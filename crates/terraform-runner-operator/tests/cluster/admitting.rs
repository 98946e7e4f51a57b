//! What the API server itself refuses, with words that name the field and the cure.

use serde_json::json;

use crate::stage::Stage;

#[tokio::test]
async fn bad_specs_are_refused_at_admission_with_the_cure() {
    let stage = Stage::new("admit").await;
    let files = json!({ "main.tf": "" });
    let cases = [
        (json!({ "module": {} }), "name exactly one of inline, configMapRef and builtin"),
        (json!({ "module": { "builtin": "a", "inline": { "files": files } } }), "name exactly one of inline"),
        (json!({ "variablesFrom": [{}] }), "name exactly one of secretRef and configMapRef"),
        (json!({ "env": [{ "name": "A-B", "value": "x" }] }), "spec.env[0].name"),
        (json!({ "env": [{ "name": "A", "value": "x", "valueFrom": {} }] }), "name value or valueFrom, not both"),
        (json!({ "approval": "Sometimes" }), "supported values"),
        (json!({ "drift": { "interval": "often" } }), "spec.drift.interval"),
        (json!({ "drift": { "interval": "0s" } }), "interval is at least 1s"),
        (json!({ "timeouts": { "plan": 5 } }), "spec.timeouts.plan"),
        (json!({ "timeouts": { "destroy": "0s" } }), "a timeout is at least 1s"),
        (json!({ "engine": { "binary": "pulumi" } }), "supported values"),
        (json!({ "backend": { "managed": {}, "custom": { "type": "s3" } } }), "name managed or custom, not both"),
        (json!({ "backend": { "custom": { "type": "s3\" {}" } } }), "spec.backend.custom.type"),
        (json!({ "history": { "states": 0 } }), "spec.history.states"),
        (json!({ "outputs": { "secretName": "Not A Name" } }), "spec.outputs.secretName"),
        (json!({ "dependson": [] }), "dependson"),
    ];
    for (spec, words) in cases {
        let answer = stage.try_write("bad", spec.clone()).await.unwrap_err().to_string();
        assert!(answer.contains(words), "{spec}: {answer}");
    }
}
