//! The rights that a chart grants: an operator in a test has exactly these.

use std::path::Path;

use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config, ResourceExt};
use serde::Deserialize;

/// Creates the roles and bindings of a chart, as installed in this namespace with these values. Returns the created
/// objects.
pub async fn grant(client: &Client, chart: &str, home: &str, values: &[&str]) -> Vec<DynamicObject> {
    create(client, chart, home, values, |kind| kind.contains("Role")).await
}

/// Creates the admission policies of a chart, as installed in this namespace with these values. The API server takes a
/// moment to enforce them.
pub async fn enforce(client: &Client, chart: &str, home: &str, values: &[&str]) -> Vec<DynamicObject> {
    create(client, chart, home, values, |kind| kind.contains("AdmissionPolicy")).await
}

/// Creates the objects of these kinds in a chart.
async fn create(
    client: &Client,
    chart: &str,
    home: &str,
    values: &[&str],
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<DynamicObject> {
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
    let mut created = Vec::new();
    for text in serde_yaml::Deserializer::from_str(&rendered) {
        let object = DynamicObject::deserialize(text).unwrap();
        let types = object.types.clone().unwrap();
        if !is_wanted(&types.kind) {
            continue;
        }
        let mut resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
        // The plural that kube guesses for names with this ending is wrong.
        resource.plural = resource.plural.replace("policys", "policies");
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        api.create(&PostParams::default(), &object).await.unwrap();
        created.push(object);
    }
    created
}

/// The ServiceAccount that a chart creates in this namespace, as the API server names the user.
pub fn account(chart: &str, home: &str) -> String {
    format!("system:serviceaccount:{home}:{chart}")
}

/// A configuration that impersonates this account.
pub fn as_account(config: &Config, chart: &str, home: &str) -> Config {
    let mut config = config.clone();
    config.auth_info.impersonate = Some(account(chart, home));
    config.auth_info.impersonate_groups = Some(vec!["system:serviceaccounts".into(), "system:authenticated".into()]);
    config
}

/// A configuration that impersonates this user.
pub fn as_person(config: &Config, name: &str) -> Config {
    let mut config = config.clone();
    config.auth_info.impersonate = Some(name.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:authenticated".into()]);
    config
}
