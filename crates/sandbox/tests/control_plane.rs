//! It is a real Kubernetes: what only the real components do, happens.

use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use sandbox::Sandbox;
use serde_json::json;

const PATIENCE: Duration = Duration::from_mins(1);

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, ..ConfigMap::default() }
}

/// Waits until an object is gone, or fails with what is left of it.
async fn gone<K>(api: Api<K>, object: &K) -> anyhow::Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let name = object.name_any();
    let uid = object.uid().context("it has an identity")?;
    let deleted = await_condition(api.clone(), &name, conditions::is_deleted(&uid));
    if tokio::time::timeout(PATIENCE, deleted).await.is_err() {
        anyhow::bail!("{name} is still there: {:#?}", api.get_opt(&name).await?);
    }
    Ok(())
}

#[tokio::test]
async fn it_is_ready_when_it_is_given_out() -> anyhow::Result<()> {
    let sandbox = Sandbox::shared().await?;
    let client = sandbox.client().await?;
    let answer = client.request_text(http::Request::get("/readyz").body(Vec::new())?).await?;
    assert_eq!(answer, "ok");
    let version = client.apiserver_version().await?;
    ensure!(version.git_version.starts_with("v1."), "the version is stamped in: {}", version.git_version);
    Ok(())
}

#[tokio::test]
async fn every_test_gets_the_same_one_and_a_namespace_of_its_own() -> anyhow::Result<()> {
    let (one, other) = tokio::join!(Sandbox::shared(), Sandbox::shared());
    let (one, other) = (one?, other?);
    ensure!(std::ptr::eq(one, other), "two were started");

    let (a, b) = tokio::try_join!(one.namespace("mine"), other.namespace("mine"))?;
    assert_ne!(a, b);
    for namespace in [&a, &b] {
        ensure!(namespace.starts_with("mine-"), "{namespace}");
        Api::<ServiceAccount>::namespaced(one.client().await?, namespace).get("default").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_deleted_namespace_goes_with_all_that_is_in_it() -> anyhow::Result<()> {
    let sandbox = Sandbox::shared().await?;
    let client = sandbox.client().await?;
    let name = sandbox.namespace("going").await?;
    let objects: Api<ConfigMap> = Api::namespaced(client.clone(), &name);
    objects.create(&PostParams::default(), &config_map("content")).await?;

    let namespaces: Api<Namespace> = Api::all(client);
    let namespace = namespaces.get(&name).await?;
    namespaces.delete(&name, &DeleteParams::default()).await?;
    gone(namespaces, &namespace).await
}

#[tokio::test]
async fn an_object_goes_with_its_owner() -> anyhow::Result<()> {
    let sandbox = Sandbox::shared().await?;
    let namespace = sandbox.namespace("garbage").await?;
    let objects: Api<ConfigMap> = Api::namespaced(sandbox.client().await?, &namespace);
    let owner = objects.create(&PostParams::default(), &config_map("owner")).await?;
    let mut dependent = config_map("dependent");
    dependent.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: "owner".to_owned(),
        uid: owner.uid().context("it has an identity")?,
        ..OwnerReference::default()
    }]);
    let dependent = objects.create(&PostParams::default(), &dependent).await?;
    objects.delete("owner", &DeleteParams::background()).await?;
    gone(objects, &dependent).await
}

#[tokio::test]
async fn who_was_granted_nothing_may_do_nothing() -> anyhow::Result<()> {
    let sandbox = Sandbox::shared().await?;
    let namespace = sandbox.namespace("stranger").await?;
    let mut config = sandbox.config().await?;
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:default"));
    let stranger = Client::try_from(config)?;

    let refused = Api::<ConfigMap>::namespaced(stranger, &namespace)
        .create(&PostParams::default(), &config_map("mine"))
        .await
        .map(drop);
    ensure!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403 && status.reason == "Forbidden"),
        "{refused:?}"
    );
    Ok(())
}

#[tokio::test]
async fn an_admission_policy_refuses_what_it_forbids() -> anyhow::Result<()> {
    let sandbox = Sandbox::shared().await?;
    let client = sandbox.client().await?;
    let namespace = sandbox.namespace("policy").await?;
    let policy: ValidatingAdmissionPolicy = serde_json::from_value(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": namespace },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
            }]},
            "validations": [{ "expression": "object.metadata.name != 'forbidden'", "message": "not that one" }],
        },
    }))?;
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": namespace },
        "spec": {
            "policyName": namespace,
            "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } } },
        },
    }))?;
    Api::all(client.clone()).create(&PostParams::default(), &policy).await?;
    Api::all(client.clone()).create(&PostParams::default(), &binding).await?;

    // The API server takes a policy up in its own time, without saying when.
    let objects: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let refusal = async {
        loop {
            match objects.create(&dry_run, &config_map("forbidden")).await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => return error,
            }
        }
    };
    let refusal = tokio::time::timeout(PATIENCE, refusal).await.context("the policy never took effect")?;
    ensure!(refusal.to_string().contains("not that one"), "{refusal}");
    objects.create(&dry_run, &config_map("allowed")).await?;
    Ok(())
}
