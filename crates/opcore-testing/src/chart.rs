//! The rights that a chart grants: an operator in a test has these, and no others.

use std::path::Path;

use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config, ResourceExt};
use serde::Deserialize;

/// Grants what a chart grants when it is installed in this namespace with these values. Answers the objects that do.
pub async fn grant(client: &Client, chart: &str, home: &str, values: &[&str]) -> Vec<DynamicObject> {
    create(client, chart, home, values, |kind| kind.contains("Role")).await
}

/// Has the API server enforce what a chart has it enforce when it is installed in this namespace with these values. It takes
/// a moment to know it.
pub async fn enforce(client: &Client, chart: &str, home: &str, values: &[&str]) -> Vec<DynamicObject> {
    create(client, chart, home, values, |kind| kind.contains("AdmissionPolicy")).await
}

/// Creates the objects of these kinds that a chart has.
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
        // What is guessed of a name that ends like this is wrong.
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

/// The same way to the API server, as this person.
pub fn as_person(config: &Config, name: &str) -> Config {
    let mut config = config.clone();
    config.auth_info.impersonate = Some(name.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:authenticated".into()]);
    config
}
