//! How the provider is made reachable from outside, and what it listens to for that.
//!
//! | Spec | Cluster | Made | TLS ends at |
//! |---|---|---|---|
//! | `gateway` | Gateway API | HTTPRoute | the Gateway, with its own certificate |
//! | – | OpenShift | Route | the router, with the certificate of `externalSecretRef` or its own, and begins anew to the pod |
//! | – | others | Ingress | the Ingress, with the certificate of `externalSecretRef` or its own |
//! | `managedRoute: "false"` | any | nothing | the pod, with the certificate of `externalSecretRef` |

use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    IngressTLS, ServiceBackendPort,
};
use opcore::Write;
use serde_json::json;

use super::super::common::{Part, in_order_dynamic};
use super::{Error, Issuer, NAME, Platform, in_order};
use crate::api::v1alpha1::{GatewayRef, SpireOIDCDiscoveryProvider};
use crate::observe::{http_routes, routes};

/// The Secret into which OpenShift puts a certificate for the Service.
const OPENSHIFT_CERTIFICATE: &str = "oidc-serving-cert";
/// The name of the Route: that of the upstream operator, since two Routes cannot have the same host.
const ROUTE: &str = "spire-oidc-discovery-provider";

/// What makes the provider reachable from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exposure<'a> {
    /// An HTTPRoute to this Gateway.
    HttpRoute(&'a GatewayRef),
    /// A Route of OpenShift, with the certificate in this Secret.
    Route { certificate: Option<&'a str> },
    /// An Ingress of this class, with the certificate in this Secret.
    Ingress { class: Option<&'a str>, certificate: Option<&'a str> },
    /// Nothing of ours: whoever makes it reachable finds this behind the Service.
    Unmanaged(Listener<'a>),
}

/// What the provider's pods listen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener<'a> {
    /// Plain HTTP, behind what ends TLS.
    Http,
    /// HTTPS.
    Https {
        /// The Secret with the certificate.
        secret: &'a str,
        /// Whether OpenShift makes it.
        of_openshift: bool,
    },
}

impl Listener<'_> {
    /// The name of the port.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https { .. } => "https",
        }
    }

    /// The port of the pods.
    pub(super) fn port(self) -> i32 {
        match self {
            Self::Http => 8080,
            Self::Https { .. } => 8443,
        }
    }

    /// The port of the Service.
    pub(super) fn service_port(self) -> i32 {
        match self {
            Self::Http => 80,
            Self::Https { .. } => 443,
        }
    }
}

impl<'a> Exposure<'a> {
    /// Decides it.
    ///
    /// # Errors
    ///
    /// When the spec asks for what this cluster does not have, or for what contradicts itself.
    pub(super) fn of(
        provider: &'a SpireOIDCDiscoveryProvider,
        issuer: &Issuer,
        platform: Platform,
    ) -> Result<Self, Error> {
        let spec = &provider.spec;
        let set = |value: &'a Option<String>| value.as_deref().filter(|value| !value.is_empty());
        let certificate = set(&spec.external_secret_ref);
        if !spec.managed_route.is_on() {
            let of_openshift = platform.routes.then_some((OPENSHIFT_CERTIFICATE, true));
            let certificate = certificate.map(|secret| (secret, false)).or(of_openshift);
            let listener =
                certificate.map_or(Listener::Http, |(secret, of_openshift)| Listener::Https { secret, of_openshift });
            return Ok(Self::Unmanaged(listener));
        }
        if !issuer.is_named() {
            return Err(format!(
                "The host of spec.jwtIssuer is the address {}, and what makes the provider reachable needs a name. Use a \
                 name, or set spec.managedRoute: \"false\".",
                issuer.host
            ));
        }
        match &spec.gateway {
            Some(_) if !platform.http_routes => Err(
                "spec.gateway is set, but this cluster has no HTTPRoutes (gateway.networking.k8s.io/v1). Install the \
                 Gateway API, or remove spec.gateway."
                    .to_owned(),
            ),
            Some(_) if certificate.is_some() => {
                Err("spec.externalSecretRef has no effect beside spec.gateway: the listener of the Gateway names the \
                 certificate. Remove one of them."
                    .to_owned())
            }
            Some(gateway) => Ok(Self::HttpRoute(gateway)),
            None if platform.routes => Ok(Self::Route { certificate }),
            None => Ok(Self::Ingress { class: set(&spec.ingress_class_name), certificate }),
        }
    }

    /// What the pods listen to.
    pub(super) fn listener(self) -> Listener<'a> {
        match self {
            Self::HttpRoute(_) | Self::Ingress { .. } => Listener::Http,
            Self::Route { .. } => Listener::Https { secret: OPENSHIFT_CERTIFICATE, of_openshift: true },
            Self::Unmanaged(listener) => listener,
        }
    }

    /// The write of what makes it reachable.
    ///
    /// # Errors
    ///
    /// When it cannot be rendered.
    pub(super) fn route(self, part: &Part<'_>, issuer: &Issuer) -> Result<Option<Write>, Error> {
        Ok(match self {
            Self::HttpRoute(gateway) => Some(http_route(part, issuer, gateway, self.listener())),
            Self::Route { certificate } => Some(route(part, issuer, certificate, self.listener())),
            Self::Ingress { class, certificate } => {
                Some(in_order(&ingress(part, issuer, class, certificate, self.listener()))?)
            }
            Self::Unmanaged(_) => None,
        })
    }
}

/// The path under which the provider serves.
fn path(issuer: &Issuer) -> &str {
    if issuer.path.is_empty() { "/" } else { &issuer.path }
}

fn ingress(
    part: &Part<'_>,
    issuer: &Issuer,
    class: Option<&str>,
    certificate: Option<&str>,
    listener: Listener<'_>,
) -> Ingress {
    let of_service = ServiceBackendPort { name: Some(listener.name().to_owned()), number: None };
    let service = IngressServiceBackend { name: NAME.to_owned(), port: Some(of_service) };
    let path = HTTPIngressPath {
        path: Some(path(issuer).to_owned()),
        path_type: "Prefix".to_owned(),
        backend: IngressBackend { service: Some(service), resource: None },
    };
    let rule = IngressRule { host: Some(issuer.host.clone()), http: Some(HTTPIngressRuleValue { paths: vec![path] }) };
    // Without a Secret, the certificate is the default one of whoever serves the Ingress.
    let tls = IngressTLS { hosts: Some(vec![issuer.host.clone()]), secret_name: certificate.map(str::to_owned) };
    Ingress {
        metadata: part.meta(NAME),
        spec: Some(IngressSpec {
            ingress_class_name: class.map(str::to_owned),
            rules: Some(vec![rule]),
            tls: (issuer.is_https || certificate.is_some()).then(|| vec![tls]),
            ..IngressSpec::default()
        }),
        ..Ingress::default()
    }
}

fn http_route(part: &Part<'_>, issuer: &Issuer, gateway: &GatewayRef, listener: Listener<'_>) -> Write {
    let namespace = gateway.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    let mut parent = json!({
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "name": gateway.name,
        "namespace": namespace.unwrap_or(&part.settings.namespace),
    });
    if let Some(section) = gateway.section_name.as_deref().filter(|section| !section.is_empty()) {
        parent["sectionName"] = json!(section);
    }
    let spec = json!({
        "parentRefs": [parent],
        "hostnames": [issuer.host],
        "rules": [{
            "matches": [{ "path": { "type": "PathPrefix", "value": path(issuer) } }],
            "backendRefs": [{ "group": "", "kind": "Service", "name": NAME, "port": listener.service_port(), "weight": 1 }],
        }],
    });
    in_order_dynamic(http_routes(), part.meta(NAME), json!({ "spec": spec }))
}

fn route(part: &Part<'_>, issuer: &Issuer, certificate: Option<&str>, listener: Listener<'_>) -> Write {
    let plain = if issuer.is_https { "Redirect" } else { "Allow" };
    let mut tls = json!({ "termination": "reencrypt", "insecureEdgeTerminationPolicy": plain });
    if let Some(secret) = certificate {
        tls["externalCertificate"] = json!({ "name": secret });
    }
    let mut spec = json!({
        "host": issuer.host,
        "to": { "kind": "Service", "name": NAME, "weight": 100 },
        "port": { "targetPort": listener.name() },
        "tls": tls,
        "wildcardPolicy": "None",
    });
    if !issuer.path.is_empty() {
        spec["path"] = json!(issuer.path);
    }
    in_order_dynamic(routes(), part.meta(ROUTE), json!({ "spec": spec }))
}
