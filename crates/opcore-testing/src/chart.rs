//! The rights that a chart grants: an operator in a test has these, and no others.

use std::path::Path;

use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config, ResourceExt};
use serde::Deserialize;

/// Grants what a chart grants when it is installed in this namespace with these values. Answers the objects that do.
pub async fn grant(client: &Client, chart: &str, home: &str, values: &[&str]) -> Vec<DynamicObject> {
    let helm = sandbox::program("helm").await.unwrap();
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts");
    let run = async |words: &[&str]| {
        let done = tokio::process::Command::new(&helm).args(words).current_dir(&charts).output().await.unwrap();
        assert!(done.status.success(), "helm {words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    run(&["dependency", "update", "--skip-refresh", chart]).await;
    let set = values.iter().flat_map(|value| ["--set", *value]);
    let words: Vec<&str> = ["template", chart, chart, "--namespace", home].into_iter().chain(set).collect();
    let rendered = run(&words).await;
    let mut granted = Vec::new();
    for text in serde_yaml::Deserializer::from_str(&rendered) {
        let object = DynamicObject::deserialize(text).unwrap();
        let types = object.types.clone().unwrap();
        if !types.kind.contains("Role") {
            continue;
        }
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        api.create(&PostParams::default(), &object).await.unwrap();
        granted.push(object);
    }
    granted
}

/// The account that a chart makes in this namespace, as the API server calls it.
pub fn account(chart: &str, home: &str) -> String {
    format!("system:serviceaccount:{home}:{chart}")
}

/// The same way to the API server, as that account.
pub fn as_account(config: &Config, chart: &str, home: &str) -> Config {
    let mut config = config.clone();
    config.auth_info.impersonate = Some(account(chart, home));
    config.auth_info.impersonate_groups = Some(vec!["system:serviceaccounts".into(), "system:authenticated".into()]);
    config
}
