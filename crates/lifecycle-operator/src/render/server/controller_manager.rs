//! SPIRE's controller manager, which runs beside the server: its configuration, and the webhook that it serves.

use k8s_openapi::api::admissionregistration::v1::{
    RuleWithOperations, ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use serde_json::json;

use crate::api::v1alpha1::SpireServer;
use crate::render::common::Part;
use crate::render::{Config, Settings};

/// The name of its objects, and of its container.
pub(super) const NAME: &str = "spire-controller-manager";
/// The key in the ConfigMap.
pub(super) const FILE: &str = "controller-manager-config.yaml";
/// The webhook's configuration, and the Service in front of it.
pub(super) const WEBHOOK: &str = "spire-controller-manager-webhook";
/// The ports.
pub(super) const WEBHOOK_PORT: i32 = 9443;
pub(super) const HEALTH: i32 = 8083;
pub(super) const METRICS: i32 = 8082;
/// Where the server's private API is: its default.
pub(super) const SOCKET_DIRECTORY: &str = "/tmp/spire-server/private";
/// How often it compares the server's entries with what they should be. In nanoseconds, as it reads them. It must be
/// there: 0 would have it do nothing else.
const COMPARISON_INTERVAL: u64 = 10_000_000_000;
/// Namespaces of the platform, whose pods get no identity.
const IGNORED: [&str; 3] = ["^kube-system$", "^kube-public$", "^local-path-storage$"];
/// Those of OpenShift.
const OPENSHIFT: &str = "openshift-";

/// The text of its configuration: JSON, which is YAML.
pub(super) fn text(server: &SpireServer, config: &Config, settings: &Settings) -> String {
    let openshift = (!settings.namespace.starts_with(OPENSHIFT)).then(|| format!("^{OPENSHIFT}"));
    let ignored: Vec<String> = IGNORED.map(str::to_owned).into_iter().chain(openshift).collect();
    let document = json!({
        "apiVersion": "spire.spiffe.io/v1alpha1",
        "kind": "ControllerManagerConfig",
        "clusterName": config.cluster_name,
        "trustDomain": config.trust_domain,
        "className": settings.class_name,
        "watchClassless": false,
        "entryIDPrefix": config.cluster_name,
        "gcInterval": COMPARISON_INTERVAL,
        "ignoreNamespaces": ignored,
        "logLevel": server.spec.log_level.as_str(),
        "spireServerSocketPath": format!("{SOCKET_DIRECTORY}/api.sock"),
        "validatingWebhookConfigurationName": WEBHOOK,
        "leaderElection": { "leaderElect": false },
        "health": { "healthProbeBindAddress": format!("0.0.0.0:{HEALTH}") },
        "metrics": { "bindAddress": format!("0.0.0.0:{METRICS}") },
    });
    format!("{document:#}")
}

/// The webhook that checks ClusterSPIFFEIDs and ClusterFederatedTrustDomains. The controller manager adds the CA
/// certificate, and we must never own that. While nobody serves it, everything is allowed.
pub(super) fn webhook(part: &Part<'_>) -> ValidatingWebhookConfiguration {
    let kinds =
        [("clusterfederatedtrustdomain", "clusterfederatedtrustdomains"), ("clusterspiffeid", "clusterspiffeids")];
    let webhooks = kinds.map(|(kind, resource)| ValidatingWebhook {
        name: format!("v{kind}.kb.io"),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: WebhookClientConfig {
            service: Some(ServiceReference {
                name: WEBHOOK.to_owned(),
                namespace: part.settings.namespace.clone(),
                path: Some(format!("/validate-spire-spiffe-io-v1alpha1-{kind}")),
                port: None,
            }),
            ..WebhookClientConfig::default()
        },
        rules: Some(vec![RuleWithOperations {
            api_groups: Some(vec!["spire.spiffe.io".to_owned()]),
            api_versions: Some(vec!["v1alpha1".to_owned()]),
            operations: Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            // The default is spelled out: a list that is owned as a whole is compared as a whole.
            scope: Some("*".to_owned()),
        }]),
        failure_policy: Some("Ignore".to_owned()),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(5),
        ..ValidatingWebhook::default()
    });
    ValidatingWebhookConfiguration { metadata: part.cluster_meta(WEBHOOK), webhooks: Some(webhooks.into()) }
}
