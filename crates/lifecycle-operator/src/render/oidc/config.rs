//! The provider's configuration.

use serde_json::json;

use super::{HEALTH_PORT, Issuer, Listener, NAME, TLS_DIRECTORY, WORKLOAD_API_DIRECTORY};
use crate::api::v1alpha1::SpireOIDCDiscoveryProvider;
use crate::render::agent::SOCKET;
use crate::render::{Config, Error, Settings};

/// How often it asks for new keys. It also asks at first only this long after it was refused, since its identity takes a
/// moment to reach the agent of its node.
const POLL_INTERVAL: &str = "5s";

/// The content of the configuration file.
pub(super) fn render(
    provider: &SpireOIDCDiscoveryProvider,
    config: &Config,
    settings: &Settings,
    issuer: &Issuer,
    listener: Listener<'_>,
) -> Result<String, Error> {
    let namespace = &settings.namespace;
    let domains = [
        NAME.to_owned(),
        format!("{NAME}.{namespace}"),
        format!("{NAME}.{namespace}.svc"),
        format!("{NAME}.{namespace}.svc.cluster.local"),
        issuer.host.clone(),
    ];
    let mut file = json!({
        "log_level": provider.spec.log_level.as_str(),
        "log_format": provider.spec.log_format.as_str(),
        "domains": domains,
        // By whatever name it is asked: tokens name this one.
        "jwt_issuer": issuer.url,
        "jwks_uri": format!("{}/keys", issuer.url.trim_end_matches('/')),
        "workload_api": {
            "socket_path": format!("{WORKLOAD_API_DIRECTORY}/{SOCKET}"),
            "trust_domain": config.trust_domain,
            "poll_interval": POLL_INTERVAL,
        },
        "health_checks": { "bind_port": HEALTH_PORT, "live_path": "/live", "ready_path": "/ready" },
    });
    if !issuer.path.is_empty() {
        file["server_path_prefix"] = json!(issuer.path);
    }
    let address = format!(":{}", listener.port());
    match listener {
        Listener::Http => file["insecure_addr"] = json!(address),
        Listener::Https { .. } => {
            file["serving_cert_file"] = json!({
                "addr": address,
                "cert_file_path": format!("{TLS_DIRECTORY}/tls.crt"),
                "key_file_path": format!("{TLS_DIRECTORY}/tls.key"),
            });
        }
    }
    serde_json::to_string_pretty(&file).map_err(|error| error.to_string())
}
