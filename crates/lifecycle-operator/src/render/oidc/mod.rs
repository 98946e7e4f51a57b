//! The OIDC discovery provider.

mod config;
mod exposure;
mod issuer;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    CSIVolumeSource, Container, Lifecycle, LifecycleHandler, PodSpec, SleepAction, Volume,
};
use opcore::Write;
use serde_json::json;

use super::common::{
    Part, config_hash, config_volume, container_port, http_probe, read_only, secret_volume, service_port, words,
};
use super::{Config, Error, Objects, Platform, Settings, in_order, owned};
use crate::api::v1alpha1::SpireOIDCDiscoveryProvider;
use exposure::{Exposure, Listener};
use issuer::Issuer;

/// The name of the provider's objects in the namespace.
pub const NAME: &str = "spire-spiffe-oidc-discovery-provider";
/// The component of its pods, by the label `app.kubernetes.io/component`.
pub const COMPONENT: &str = "discovery";
/// The ClusterSPIFFEID that gives it its identity.
pub const IDENTITY: &str = "zero-trust-workload-identity-manager-spire-oidc-discovery-provider";

/// The file with its configuration, in its ConfigMap.
const CONFIG_FILE: &str = "oidc-discovery-provider.conf";
/// Where its container finds the configuration.
const CONFIG_DIRECTORY: &str = "/run/spire/oidc/config";
/// Where it finds the Workload API.
const WORKLOAD_API_DIRECTORY: &str = "/spiffe-workload-api";
/// Where it finds its certificate.
const TLS_DIRECTORY: &str = "/etc/oidc/tls";
/// The port on which it says whether it is healthy.
const HEALTH_PORT: i32 = 8008;
/// How long a pod goes on serving after it was told to end. The provider itself ends at once, in the middle of requests,
/// and it takes a moment until nobody sends it new ones.
const FAREWELL_SECONDS: i64 = 5;
/// OpenShift puts a certificate for a Service into the Secret that this annotation names.
const SERVING_CERTIFICATE_ANNOTATION: &str = "service.beta.openshift.io/serving-cert-secret-name";

/// All objects of the provider.
///
/// # Errors
///
/// When an object cannot be rendered.
pub fn objects(
    provider: &SpireOIDCDiscoveryProvider,
    config: &Config,
    settings: &Settings,
    platform: &Platform,
) -> Result<Objects, Error> {
    let name = "spiffe-oidc-discovery-provider";
    let part = Part { name, component: COMPONENT, placement: &provider.spec.placement, settings, platform };
    let issuer = Issuer::parse(&config.jwt_issuer)?;
    let exposure = Exposure::of(provider, &issuer, *platform)?;
    let listener = exposure.listener();
    let content = config::render(provider, config, settings, &issuer, listener)?;
    let hash = config_hash(&[&content]);

    let mut service = part.service(NAME, vec![service_port(listener.name(), listener.service_port())]);
    if let Listener::Https { secret, of_openshift: true } = listener {
        let annotation = (SERVING_CERTIFICATE_ANNOTATION.to_owned(), secret.to_owned());
        service.metadata.annotations = Some(BTreeMap::from([annotation]));
    }
    let mut support = vec![
        owned(provider, part.service_account(NAME))?,
        owned(provider, part.config_map(NAME, [(CONFIG_FILE, content)]))?,
        owned(provider, service)?,
    ];
    if platform.spiffe_ids {
        support.push(identity(provider, &part, &issuer)?);
    }
    let workload = Deployment {
        metadata: part.meta(NAME),
        spec: Some(DeploymentSpec {
            replicas: Some(provider.spec.replica_count),
            selector: part.label_selector(),
            template: part.template(Some(hash), pod(provider, &part, listener)),
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    };
    let routes = exposure.route(&part, &issuer)?.into_iter().collect();
    Ok(Objects { support, workload: vec![in_order(&workload)?], routes })
}

/// Its identity, without which the Workload API does not answer it. Its certificate is good for the names by which it is
/// reached.
fn identity(provider: &SpireOIDCDiscoveryProvider, part: &Part<'_>, issuer: &Issuer) -> Result<Write, Error> {
    let namespace = &part.settings.namespace;
    let mut names = vec![format!("{NAME}.{namespace}"), format!("{NAME}.{namespace}.svc")];
    if issuer.is_named() {
        names.push(issuer.host.clone());
    }
    let spec = json!({
        "spiffeIDTemplate": "spiffe://{{ .TrustDomain }}/ns/{{ .PodMeta.Namespace }}/sa/{{ .PodSpec.ServiceAccountName }}",
        "dnsNameTemplates": names,
        "hint": "oidc-discovery-provider",
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
        "podSelector": { "matchLabels": part.selector() },
    });
    part.cluster_spiffe_id(provider, IDENTITY, spec)
}

fn pod(provider: &SpireOIDCDiscoveryProvider, part: &Part<'_>, listener: Listener<'_>) -> PodSpec {
    let driver = provider.spec.csi_driver_name.clone();
    let workload_api = CSIVolumeSource { driver, read_only: Some(true), ..CSIVolumeSource::default() };
    let mut mounts =
        vec![read_only("config", CONFIG_DIRECTORY), read_only("spiffe-workload-api", WORKLOAD_API_DIRECTORY)];
    let mut volumes = vec![
        config_volume("config", NAME),
        Volume { name: "spiffe-workload-api".to_owned(), csi: Some(workload_api), ..Volume::default() },
    ];
    if let Listener::Https { secret, .. } = listener {
        mounts.push(read_only("tls", TLS_DIRECTORY));
        volumes.push(secret_volume("tls", secret));
    }
    let sleep =
        LifecycleHandler { sleep: Some(SleepAction { seconds: FAREWELL_SECONDS }), ..LifecycleHandler::default() };
    let mut live = http_probe("/live", "health");
    live.period_seconds = Some(10);
    let mut ready = http_probe("/ready", "health");
    ready.period_seconds = Some(3);
    let container = Container {
        args: words(["-config", &format!("{CONFIG_DIRECTORY}/{CONFIG_FILE}")]),
        ports: Some(vec![container_port(listener.name(), listener.port()), container_port("health", HEALTH_PORT)]),
        liveness_probe: Some(live),
        readiness_probe: Some(ready),
        lifecycle: Some(Lifecycle { pre_stop: Some(sleep), ..Lifecycle::default() }),
        resources: part.resources(),
        volume_mounts: Some(mounts),
        ..part.container("spiffe-oidc-discovery-provider", &part.settings.images.oidc)
    };
    // It does not talk to the API server.
    PodSpec { automount_service_account_token: Some(false), ..part.pod(Some(NAME), vec![container], volumes) }
}
