//! Policies on a real API server: they refuse requests, they are restored, and they never prevent deletions.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use opcore::admission::{Message, Params, Policy, Requests, Response, Rule, keep};
use serde_json::json;
use tokio::sync::watch;

use crate::stage::{PATIENCE, Settings, Stage, context, eventually, gone};

/// ConfigMaps of this stage must not say "no".
fn policy(stage: &Stage, response: Response) -> Policy {
    Policy {
        name: format!("{}-says-yes", stage.namespace),
        requests: vec![Requests {
            group: String::new(),
            versions: vec!["v1".to_owned()],
            resources: vec!["configmaps".to_owned()],
            operations: vec!["CREATE".to_owned(), "UPDATE".to_owned()],
        }],
        variables: vec![(
            "says".to_owned(),
            "has(object.data) && 'says' in object.data ? object.data.says : ''".to_owned(),
        )],
        rules: vec![Rule {
            expression: "variables.says != 'no'".to_owned(),
            message: Message::Computed("'ConfigMap ' + object.metadata.name + ' says ' + variables.says".to_owned()),
        }],
        response,
        namespaces: [("kubernetes.io/metadata.name".to_owned(), stage.namespace.clone())].into(),
        break_glass: Some("break-glass".to_owned()),
        ..Policy::default()
    }
}

fn says(name: &str, word: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"says": word}})).unwrap()
}

/// Retries until the API server enforces the policy, which takes a moment. Returns its message.
async fn refusal(stage: &Stage, client: &Client) -> String {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &stage.namespace);
    let refused = async {
        loop {
            let params = PostParams { dry_run: true, ..PostParams::default() };
            if let Err(error) = api.create(&params, &says("front", "no")).await {
                return error.to_string();
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("the policy is in force")
}

/// An operator that maintains this policy. Policies are cluster-scoped, so each stage has its own operator name.
fn keeping(stage: &Stage, policy: Policy) -> watch::Sender<bool> {
    keeping_all(stage, vec![policy])
}

fn keeping_all(stage: &Stage, policies: Vec<Policy>) -> watch::Sender<bool> {
    let (stop, stopping) = watch::channel(false);
    let operator = format!("{}-operator", stage.namespace);
    let context = context(&operator, stage.config.clone(), &[&stage.namespace], Settings::default(), stopping);
    tokio::spawn(async move { keep(&context, &policies).await.unwrap() });
    stop
}

#[tokio::test]
async fn a_policy_refuses_with_its_message_and_comes_back_when_edited_or_deleted() {
    let stage = Stage::new("policy").await;
    let name = policy(&stage, Response::Deny).name;
    let stop = keeping(&stage, policy(&stage, Response::Deny));
    let message = refusal(&stage, &stage.client).await;
    assert!(message.contains("ConfigMap front says no"), "{message}");

    let policies: Api<ValidatingAdmissionPolicy> = Api::all(stage.client.clone());
    let lame = json!({"spec": {"validations": [{"expression": "true"}]}});
    let by_hand = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
    policies.patch(&name, &by_hand, &Patch::Merge(&lame)).await.unwrap();
    let healed = |policy: &ValidatingAdmissionPolicy| {
        let validations = policy.spec.as_ref().and_then(|spec| spec.validations.as_ref());
        validations.is_some_and(|all| all.iter().any(|one| one.expression == "variables.says != 'no'"))
    };
    eventually(&policies, &name, "healed", healed).await;

    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(stage.client.clone());
    let old = bindings.get(&name).await.unwrap();
    bindings.delete(&name, &DeleteParams::default()).await.unwrap();
    eventually(&bindings, &name, "back", |binding| binding.uid() != old.uid()).await;

    let unmarked = json!({"metadata": {"labels": {"opcore.dev/operator": null}}});
    policies.patch(&name, &PatchParams::default(), &Patch::Merge(&unmarked)).await.unwrap();
    eventually(&policies, &name, "marked again", |policy| policy.labels().contains_key("opcore.dev/operator")).await;
    stop.send_replace(true);
}

#[tokio::test]
async fn a_policy_lets_pass_what_is_being_deleted_and_who_may_break_the_glass() {
    let stage = Stage::new("policy").await;
    let mut held = says("held", "no");
    held.metadata.finalizers = Some(vec!["example.opcore.dev/held".to_owned()]);
    let held = stage.maps().create(&PostParams::default(), &held).await.unwrap();
    let stop = keeping(&stage, policy(&stage, Response::Deny));
    refusal(&stage, &stage.client).await;
    stage.maps().delete("held", &DeleteParams::default()).await.unwrap();
    let release = json!({"metadata": {"finalizers": null}});
    stage.maps().patch("held", &PatchParams::default(), &Patch::Merge(&release)).await.unwrap();
    gone(&stage.maps(), "held", &held.uid().unwrap()).await;

    let mut config = stage.config.clone();
    config.auth_info.impersonate = Some("someone".to_owned());
    config.auth_info.impersonate_groups = Some(vec!["break-glass".to_owned(), "system:masters".to_owned()]);
    let breaker: Api<ConfigMap> = Api::namespaced(Client::try_from(config).unwrap(), &stage.namespace);
    breaker.create(&PostParams::default(), &says("front", "no")).await.unwrap();
    stop.send_replace(true);
}

#[tokio::test]
async fn a_policy_that_only_warns_lets_pass() {
    let stage = Stage::new("policy").await;
    let stop = keeping(&stage, policy(&stage, Response::Warn));
    // The request is accepted before and after the policy is in force; once it is, there is a warning.
    let warned = async {
        loop {
            let path = format!("/api/v1/namespaces/{}/configmaps?dryRun=All", stage.namespace);
            let body = serde_json::to_vec(&says("front", "no")).unwrap();
            let request = http::Request::post(path).header("content-type", "application/json").body(body.into());
            let answer = stage.client.send(request.unwrap()).await.unwrap();
            assert_eq!(answer.status(), 201);
            if let Some(warning) = answer.headers().get("warning") {
                return warning.to_str().unwrap().to_owned();
            }
            tokio::task::yield_now().await;
        }
    };
    let warning = tokio::time::timeout(PATIENCE, warned).await.expect("the policy is in force");
    assert!(warning.contains("ConfigMap front says no"), "{warning}");
    stop.send_replace(true);
}

#[tokio::test]
async fn a_policy_without_the_object_that_its_rules_read_lets_pass() {
    let stage = Stage::new("policy").await;
    let rules = json!({"metadata": {"name": "rules"}, "data": {"forbidden": "no"}});
    stage.maps().create(&PostParams::default(), &serde_json::from_value(rules).unwrap()).await.unwrap();
    let mut by_params = policy(&stage, Response::Deny);
    by_params.params = Some(Params {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: None,
        name: "rules".to_owned(),
    });
    by_params.rules[0].expression = "variables.says != params.data.forbidden".to_owned();
    let stop = keeping(&stage, by_params);
    refusal(&stage, &stage.client).await;
    stage.maps().delete("rules", &DeleteParams::default()).await.unwrap();
    let passes = async {
        while stage.maps().create(&PostParams::default(), &says("front", "no")).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, passes).await.expect("a policy without its params blocks nobody");
    stop.send_replace(true);
}

#[tokio::test]
async fn a_rule_that_cannot_be_evaluated_refuses() {
    let stage = Stage::new("policy").await;
    let mut broken = policy(&stage, Response::Deny);
    broken.rules[0].expression = "object.data.nowhere == 'x'".to_owned();
    let stop = keeping(&stage, broken);
    let message = refusal(&stage, &stage.client).await;
    assert!(message.contains("nowhere"), "{message}");
    stop.send_replace(true);
}

#[tokio::test]
async fn a_policy_that_is_not_ours_keeps_no_other_out() {
    let stage = Stage::new("policy").await;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(stage.client.clone());
    let foreign = Policy { name: format!("{}-a-foreign-one", stage.namespace), ..policy(&stage, Response::Deny) };
    let theirs = json!({
        "metadata": {"name": foreign.name, "labels": {"app.kubernetes.io/managed-by": "Helm"}},
        "spec": {"validations": [{"expression": "true"}], "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
        }]}},
    });
    policies.create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
    let stop = keeping_all(&stage, vec![foreign.clone(), policy(&stage, Response::Deny)]);
    let message = refusal(&stage, &stage.client).await;
    assert!(message.contains("ConfigMap front says no"), "{message}");
    let left_alone = policies.get(&foreign.name).await.unwrap();
    assert_eq!(left_alone.spec.unwrap().validations.unwrap()[0].expression, "true");
    stop.send_replace(true);
    policies.delete(&foreign.name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_policy_that_is_no_longer_wanted_goes_with_its_binding_and_no_other() {
    let stage = Stage::new("policy").await;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(stage.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(stage.client.clone());
    let (kept, dropped) = (policy(&stage, Response::Deny), format!("{}-dropped", stage.namespace));
    let old = Policy { name: dropped.clone(), ..policy(&stage, Response::Warn) };
    let stop = keeping_all(&stage, vec![kept.clone(), old]);
    let old = eventually(&bindings, &dropped, "there", |_| true).await.uid().unwrap();
    let old_policy = policies.get(&dropped).await.unwrap().uid().unwrap();
    stop.send_replace(true);
    let unchanged = policies.get(&kept.name).await.unwrap();
    let stop = keeping(&stage, kept.clone());
    gone(&bindings, &dropped, &old).await;
    gone(&policies, &dropped, &old_policy).await;
    assert_eq!(policies.get(&kept.name).await.unwrap().uid(), unchanged.uid());
    stop.send_replace(true);
}
