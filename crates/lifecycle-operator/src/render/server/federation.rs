//! Federation: the endpoint with the bundle of this trust domain, how others reach it, and whose bundles are fetched.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    IngressTLS, ServiceBackendPort,
};
use opcore::Write;
use serde_json::{Map, Value, json};

use super::{NAME, Needs};
use crate::api::v1alpha1::{EndpointProfile, Federation, HttpsWeb, ServingCert, SpireServer};
use crate::observe::routes;
use crate::render::common::{Part, in_order_dynamic, read_only, secret_volume};
use crate::render::{Config, Error, in_order};

/// The port of the endpoint, and its name.
pub(super) const PORT: i32 = 8443;
pub(super) const PORT_NAME: &str = "federation";
/// The Route or Ingress.
const ROUTE: &str = "spire-server-federation";
/// Where the certificate of the endpoint is.
const CERTIFICATE: &str = "/run/spire/server-tls";
/// The Secret that OpenShift makes for a Service that is annotated with it.
pub(super) const OPENSHIFT_SECRET: &str = "spire-server-serving-cert";

/// The section of SPIRE's configuration.
pub(super) fn section(federation: &Federation) -> Value {
    let endpoint = &federation.bundle_endpoint;
    let profile = match (endpoint.profile, &endpoint.https_web) {
        (EndpointProfile::HttpsWeb, Some(web)) => json!({ "https_web": https_web(web) }),
        _ => json!({ "https_spiffe": {} }),
    };
    let mut section = json!({
        "bundle_endpoint": {
            "address": "0.0.0.0",
            "port": PORT,
            "refresh_hint": format!("{}s", endpoint.refresh_hint),
            "profile": [profile],
        },
    });
    let others: Map<String, Value> = federation
        .federates_with
        .iter()
        .map(|other| {
            let profile = match other.bundle_endpoint_profile {
                EndpointProfile::HttpsWeb => json!({ "https_web": {} }),
                EndpointProfile::HttpsSpiffe => {
                    json!({ "https_spiffe": { "endpoint_spiffe_id": other.endpoint_spiffe_id } })
                }
            };
            let with =
                json!({ "bundle_endpoint_url": other.bundle_endpoint_url, "bundle_endpoint_profile": [profile] });
            (other.trust_domain.clone(), with)
        })
        .collect();
    if !others.is_empty() {
        section["federates_with"] = others.into();
    }
    section
}

fn https_web(web: &HttpsWeb) -> Value {
    match (&web.acme, &web.serving_cert) {
        (Some(acme), _) => json!({ "acme": {
            "directory_url": acme.directory_url,
            "domain_name": acme.domain_name,
            "email": acme.email,
            "tos_accepted": acme.tos_accepted.is_on(),
        }}),
        (None, Some(cert)) => json!({ "serving_cert_file": {
            "cert_file_path": format!("{CERTIFICATE}/tls.crt"),
            "key_file_path": format!("{CERTIFICATE}/tls.key"),
            "file_sync_interval": format!("{}s", cert.file_sync_interval),
        }}),
        (None, None) => json!({}),
    }
}

/// The certificate from a Secret, if that is what the endpoint has.
pub(super) fn serving_cert(federation: &Federation) -> Option<&ServingCert> {
    let endpoint = &federation.bundle_endpoint;
    let web = endpoint.https_web.as_ref().filter(|_| endpoint.profile == EndpointProfile::HttpsWeb)?;
    web.serving_cert.as_ref().filter(|_| web.acme.is_none())
}

/// The Secret with the certificate that the user names.
pub(super) fn secret(cert: &ServingCert) -> Option<&str> {
    cert.external_secret_ref.as_deref().filter(|name| !name.is_empty())
}

/// What the endpoint needs: its certificate.
pub(super) fn needs(federation: &Federation) -> Needs {
    let Some(cert) = serving_cert(federation) else { return Needs::default() };
    Needs {
        volumes: vec![secret_volume("server-tls", secret(cert).unwrap_or(OPENSHIFT_SECRET))],
        mounts: vec![read_only("server-tls", CERTIFICATE)],
        ..Needs::default()
    }
}

/// How the endpoint is reached from outside.
///
/// # Errors
///
/// When it cannot be represented as JSON, which does not happen.
pub(super) fn route(server: &SpireServer, config: &Config, part: &Part<'_>) -> Result<Option<Write>, Error> {
    let Some(federation) = server.spec.federation.as_ref().filter(|it| it.managed_route.is_on()) else {
        return Ok(None);
    };
    let web = federation.bundle_endpoint.https_web.as_ref();
    let acme = web.and_then(|web| web.acme.as_ref());
    let host = acme.map_or_else(|| format!("federation.{}", config.trust_domain), |acme| acme.domain_name.clone());
    if part.platform.routes {
        return Ok(Some(openshift(federation, &host, part)));
    }
    in_order(&ingress(&host, part)).map(Some)
}

/// The endpoint ends TLS itself, since its certificate is what others know it by; unless it has one that only OpenShift
/// knows.
fn openshift(federation: &Federation, host: &str, part: &Part<'_>) -> Write {
    let is_internal = serving_cert(federation).is_some_and(|cert| secret(cert).is_none());
    let termination = if is_internal { "reencrypt" } else { "passthrough" };
    let spec = json!({
        "host": host,
        "to": { "kind": "Service", "name": NAME, "weight": 100 },
        "port": { "targetPort": PORT_NAME },
        "tls": { "termination": termination, "insecureEdgeTerminationPolicy": "Redirect" },
        "wildcardPolicy": "None",
    });
    in_order_dynamic(routes(), part.meta(ROUTE), json!({ "spec": spec }))
}

/// An Ingress that leaves TLS to the endpoint. There is no field for that: each controller has an annotation of its own.
fn ingress(host: &str, part: &Part<'_>) -> Ingress {
    let annotations = [
        ("haproxy.org/ssl-passthrough", "true"),
        ("haproxy-ingress.github.io/ssl-passthrough", "true"),
        ("nginx.ingress.kubernetes.io/backend-protocol", "HTTPS"),
        ("nginx.ingress.kubernetes.io/ssl-passthrough", "true"),
    ];
    let mut metadata = part.meta(ROUTE);
    metadata.annotations = Some(BTreeMap::from(annotations.map(|(key, value)| (key.to_owned(), value.to_owned()))));
    let named = ServiceBackendPort { name: Some(PORT_NAME.to_owned()), number: None };
    let service = IngressServiceBackend { name: NAME.to_owned(), port: Some(named) };
    let path = HTTPIngressPath {
        path: Some("/".to_owned()),
        path_type: "Prefix".to_owned(),
        backend: IngressBackend { service: Some(service), ..IngressBackend::default() },
    };
    let rule = IngressRule { host: Some(host.to_owned()), http: Some(HTTPIngressRuleValue { paths: vec![path] }) };
    let tls = IngressTLS { hosts: Some(vec![host.to_owned()]), secret_name: None };
    let spec = IngressSpec { rules: Some(vec![rule]), tls: Some(vec![tls]), ..IngressSpec::default() };
    Ingress { metadata, spec: Some(spec), ..Ingress::default() }
}
