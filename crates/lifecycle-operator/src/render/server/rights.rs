//! What the server and its controller manager may do. They share a pod, and so an account.

use opcore::Write;

use super::{NAME, controller_manager};
use crate::api::v1alpha1::SpireServer;
use crate::render::common::{Part, rule};
use crate::render::{Config, Error, owned};

/// The Role on the ConfigMap with the trust bundle.
const BUNDLE: &str = "spire-bundle";
/// The Role on CertificateRequests of cert-manager.
const CERT_MANAGER: &str = "spire-server-cert-manager";
const READ: [&str; 3] = ["get", "list", "watch"];

/// All rights, with their bindings.
///
/// # Errors
///
/// When an object cannot be represented as JSON, which does not happen.
pub(super) fn all(server: &SpireServer, config: &Config, part: &Part<'_>) -> Result<Vec<Write>, Error> {
    let attestation = vec![
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("", &["nodes", "pods"], &["get", "list"]),
    ];
    let (role, binding) = part.cluster_rights(NAME, NAME, attestation);
    let mut writes = vec![owned(server, role)?, owned(server, binding)?];

    let (role, binding) = part.cluster_rights(controller_manager::NAME, NAME, entries());
    writes.extend([owned(server, role)?, owned(server, binding)?]);

    let mut bundle = rule("", &["configmaps"], &["get", "patch"]);
    bundle.resource_names = Some(vec![config.bundle_config_map.clone()]);
    let (role, binding) = part.rights(BUNDLE, NAME, vec![bundle]);
    writes.extend([owned(server, role)?, owned(server, binding)?]);

    if requests_certificates_here(server, part) {
        let requests = rule("cert-manager.io", &["certificaterequests"], &["create", "delete", "get", "list"]);
        let (role, binding) = part.rights(CERT_MANAGER, NAME, vec![requests]);
        writes.extend([owned(server, role)?, owned(server, binding)?]);
    }
    Ok(writes)
}

/// What the controller manager reads, and the states that it reports.
fn entries() -> Vec<k8s_openapi::api::rbac::v1::PolicyRule> {
    let kinds = ["clusterfederatedtrustdomains", "clusterspiffeids", "clusterstaticentries"];
    let mut webhook = rule("admissionregistration.k8s.io", &["validatingwebhookconfigurations"], &["get", "patch"]);
    webhook.resource_names = Some(vec![controller_manager::WEBHOOK.to_owned()]);
    vec![
        rule("", &["endpoints", "namespaces", "nodes", "pods"], &READ),
        rule("spire.spiffe.io", &kinds, &READ),
        rule("spire.spiffe.io", &["clusterspiffeids/status", "clusterstaticentries/status"], &["update"]),
        // It lists them all to find its own.
        rule("admissionregistration.k8s.io", &["validatingwebhookconfigurations"], &["list", "watch"]),
        webhook,
    ]
}

/// Whether CertificateRequests are made in the namespace of the operands. Rights in another one are for its owner to
/// give.
fn requests_certificates_here(server: &SpireServer, part: &Part<'_>) -> bool {
    let authority = server.spec.upstream_authority.as_ref();
    let issuer = authority.and_then(|authority| authority.cert_manager.as_ref());
    issuer.is_some_and(|issuer| issuer.namespace == part.settings.namespace)
}
