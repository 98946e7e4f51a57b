//! SPIRE's own configuration, as JSON: SPIRE refuses keys that it does not know.

use serde_json::{Map, Value, json};

use super::{DATA_DIRECTORY, datastore, federation, upstream};
use crate::api::v1alpha1::{CaSubject, SpireServer};
use crate::render::{Config, Settings, agent};

/// The key in the ConfigMap.
pub(super) const FILE: &str = "server.conf";
/// The ports.
pub(super) const GRPC: i32 = 8081;
pub(super) const HEALTH: i32 = 8080;
pub(super) const METRICS: i32 = 9402;
/// The key of the trust bundle in its ConfigMap.
const BUNDLE_KEY: &str = "bundle.crt";

/// The text of the file.
pub(super) fn text(server: &SpireServer, config: &Config, settings: &Settings) -> String {
    // SPIRE's parser takes `${` for the beginning of something, wherever it is, and so does `-expandEnv` with any `$`.
    let text = format!("{:#}", document(server, config, settings)).replace('$', r"\u0024");
    // Only these are references to variables. Nobody's value can look like one: its quotes would be escaped.
    datastore::VARIABLES.iter().fold(text, |text, (key, variable)| {
        text.replace(&format!(r#""{key}": "\u0024{{{variable}}}""#), &format!(r#""{key}": "${{{variable}}}""#))
    })
}

fn document(server: &SpireServer, config: &Config, settings: &Settings) -> Value {
    json!({
        "server": section(server, config),
        "plugins": plugins(server, config, settings),
        "health_checks": {
            "listener_enabled": true,
            "bind_address": "0.0.0.0",
            "bind_port": HEALTH.to_string(),
            "live_path": "/live",
            "ready_path": "/ready",
        },
        "telemetry": { "Prometheus": { "host": "0.0.0.0", "port": METRICS } },
    })
}

fn section(server: &SpireServer, config: &Config) -> Value {
    let spec = &server.spec;
    let mut section = json!({
        "trust_domain": config.trust_domain,
        "bind_address": "0.0.0.0",
        "bind_port": GRPC,
        "data_dir": DATA_DIRECTORY,
        "log_level": spec.log_level.as_str(),
        "log_format": spec.log_format.as_str(),
        "ca_ttl": spec.ca_validity.to_string(),
        "ca_key_type": spec.ca_key_type.as_str(),
        "default_x509_svid_ttl": spec.default_x509_validity.to_string(),
        "default_jwt_svid_ttl": spec.default_jwt_validity.to_string(),
        "jwt_issuer": config.jwt_issuer,
    });
    if let Some(key_type) = spec.jwt_key_type {
        section["jwt_key_type"] = json!(key_type.as_str());
    }
    if let Some(subject) = subject(&spec.ca_subject) {
        section["ca_subject"] = subject;
    }
    if let Some(federation) = &spec.federation {
        section["federation"] = federation::section(federation);
    }
    section
}

/// Without a subject, SPIRE has its own.
fn subject(subject: &CaSubject) -> Option<Value> {
    let given = |field: &Option<String>| field.clone().filter(|value| !value.is_empty());
    let mut names = Map::new();
    if let Some(country) = given(&subject.country) {
        names.insert("country".to_owned(), json!([country]));
    }
    if let Some(organization) = given(&subject.organization) {
        names.insert("organization".to_owned(), json!([organization]));
    }
    if let Some(name) = given(&subject.common_name) {
        names.insert("common_name".to_owned(), json!(name));
    }
    (!names.is_empty()).then(|| json!([names]))
}

fn plugins(server: &SpireServer, config: &Config, settings: &Settings) -> Value {
    let spec = &server.spec;
    let agents = format!("{}:{}", settings.namespace, agent::NAME);
    let cluster = json!({ "service_account_allow_list": [agents] });
    let in_memory = spec.key_manager.as_ref().is_some_and(|keys| keys.memory_enabled.is_on());
    let keys = if in_memory {
        plugin("memory", &json!({}))
    } else {
        plugin("disk", &json!({ "keys_path": format!("{DATA_DIRECTORY}/keys.json") }))
    };
    // The server does not start before it has written the bundle: when it is ready, agents can start.
    let bundle = json!({
        "namespace": settings.namespace, "config_map": config.bundle_config_map, "config_map_key": BUNDLE_KEY,
    });
    let mut plugins = json!({
        "DataStore": plugin("sql", &datastore::section(&spec.datastore)),
        "KeyManager": keys,
        "NodeAttestor": plugin("k8s_psat", &json!({ "clusters": [{ &config.cluster_name: cluster }] })),
        "Notifier": plugin("k8sbundle", &bundle),
    });
    if let Some((name, data)) = spec.upstream_authority.as_ref().and_then(upstream::section) {
        plugins["UpstreamAuthority"] = plugin(name, &data);
    }
    plugins
}

/// A list of one: JSON for what HCL calls a block with a label.
fn plugin(name: &str, data: &Value) -> Value {
    json!([{ name: { "plugin_data": data } }])
}
