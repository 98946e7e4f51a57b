//! What the API server itself rejects, with messages that name the field and the remedy.

use serde_json::json;

use crate::stage::Stage;

#[tokio::test]
async fn bad_specs_are_refused_at_admission_with_the_remedy() {
    let stage = Stage::new("admit").await;
    let files = json!({ "main.tf": "" });
    let cases = [
        (json!({ "module": {} }), "set exactly one of inline, configMapRef and builtin"),
        (json!({ "module": { "builtin": "a", "inline": { "files": files } } }), "set exactly one of inline"),
        (json!({ "variablesFrom": [{}] }), "set exactly one of secretRef and configMapRef"),
        (json!({ "env": [{ "name": "A-B", "value": "x" }] }), "spec.env[0].name"),
        (json!({ "env": [{ "name": "A", "value": "x", "valueFrom": {} }] }), "set at most one of value and valueFrom"),
        (json!({ "approval": "Sometimes" }), "supported values"),
        (json!({ "drift": { "interval": "often" } }), "spec.drift.interval"),
        (json!({ "drift": { "interval": "0s" } }), "interval must be at least 1s"),
        (json!({ "timeouts": { "plan": 5 } }), "spec.timeouts.plan"),
        (json!({ "timeouts": { "destroy": "0s" } }), "a timeout must be at least 1s"),
        (json!({ "engine": { "binary": "pulumi" } }), "supported values"),
        (json!({ "backend": { "managed": {}, "custom": { "type": "s3" } } }), "set at most one of managed and custom"),
        (json!({ "backend": { "custom": { "type": "s3\" {}" } } }), "spec.backend.custom.type"),
        (json!({ "history": { "states": 0 } }), "spec.history.states"),
        (json!({ "outputs": { "secretName": "Not A Name" } }), "spec.outputs.secretName"),
        (json!({ "outputs": { "secretName": "tf-network-0123abcd-state" } }), "choose another name"),
        (json!({ "outputs": { "secretName": "tf-network-0123abcd-in-0123456789-0" } }), "choose another name"),
        (json!({ "dependson": [] }), "dependson"),
    ];
    for (spec, words) in cases {
        let answer = stage.try_write("bad", spec.clone()).await.unwrap_err().to_string();
        assert!(answer.contains(words), "{spec}: {answer}");
    }
}

#[tokio::test]
async fn a_reference_that_names_no_object_is_refused_at_admission_with_its_field() {
    let stage = Stage::new("refer").await;
    let key = |name: &str| json!({ "name": name, "key": "k" });
    let env = |from: &str, name: &str| json!({ "env": [{ "name": "A", "valueFrom": { from: key(name) } }] });
    let pods = |spec: serde_json::Value| json!({ "runner": { "podTemplate": { "spec": spec } } });
    for name in ["my secret", "a/b", "?x", "../x", "a..b", ".a", "a-", "Upper", "", "a\n"] {
        let from = json!({ "secretRef": { "name": name } });
        let backend = json!({ "custom": { "type": "s3", "configFrom": from } });
        let cases = [
            (json!({ "module": { "configMapRef": { "name": name } } }), "spec.module.configMapRef.name"),
            (json!({ "variablesFrom": [from] }), "spec.variablesFrom[0].secretRef.name"),
            (
                json!({ "variablesFrom": [{ "configMapRef": { "name": name } }] }),
                "spec.variablesFrom[0].configMapRef.name",
            ),
            (env("secretKeyRef", name), "spec.env[0].valueFrom.secretKeyRef.name"),
            (env("configMapKeyRef", name), "spec.env[0].valueFrom.configMapKeyRef.name"),
            (json!({ "backend": backend }), "spec.backend.custom.configFrom.secretRef.name"),
            (pods(json!({ "serviceAccountName": name })), "spec.runner.podTemplate.spec.serviceAccountName"),
            (
                pods(json!({ "imagePullSecrets": [{ "name": name }] })),
                "spec.runner.podTemplate.spec.imagePullSecrets[0].name",
            ),
            (json!({ "dependsOn": [{ "name": name }] }), "spec.dependsOn[0].name"),
            (json!({ "outputs": { "secretName": name } }), "spec.outputs.secretName"),
        ];
        for (spec, field) in cases {
            let answer = stage.try_write("bad", spec.clone()).await.unwrap_err().to_string();
            assert!(answer.contains(field), "{spec}: {answer}");
        }
    }
    let fit =
        json!({ "variablesFrom": [{ "secretRef": { "name": "a.b-1.c" } }], "outputs": { "secretName": "tf-a-b" } });
    stage.try_write("good", fit).await.unwrap();
}
