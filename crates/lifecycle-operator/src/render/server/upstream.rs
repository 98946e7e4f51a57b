//! A CA above the server's own.

use k8s_openapi::api::core::v1::{
    KeyToPath, ProjectedVolumeSource, SecretVolumeSource, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use serde_json::{Value, json};

use super::Needs;
use crate::api::v1alpha1::{CertManager, UpstreamAuthority, Vault};
use crate::render::common::{read_only, secret_volume};

/// Where the CA certificate of the Vault is.
const VAULT_CA: &str = "/run/spire/vault-ca";
/// Where the token for the Vault is.
const VAULT_TOKEN: &str = "/run/spire/vault-token";
/// How long the token is valid; the kubelet renews it.
const TOKEN_SECONDS: i64 = 3600;

/// The name of the plugin, and its data.
pub(super) fn section(authority: &UpstreamAuthority) -> Option<(&'static str, Value)> {
    let cert_manager = || authority.cert_manager.as_ref().map(|issuer| ("cert-manager", cert_manager(issuer)));
    authority.vault.as_ref().map(|at| ("vault", vault(at))).or_else(cert_manager)
}

fn cert_manager(issuer: &CertManager) -> Value {
    json!({
        "namespace": issuer.namespace,
        "issuer_name": issuer.issuer_name,
        "issuer_kind": issuer.issuer_kind,
        "issuer_group": issuer.issuer_group,
    })
}

fn vault(at: &Vault) -> Value {
    let login = json!({
        "k8s_auth_mount_point": at.k8s_auth.k8s_auth_mount_point,
        "k8s_auth_role_name": at.k8s_auth.k8s_auth_role_name,
        "token_path": format!("{VAULT_TOKEN}/token"),
    });
    let mut data = json!({
        "vault_addr": at.vault_addr,
        "pki_mount_point": at.pki_mount_point,
        "k8s_auth": [login],
    });
    if at.ca_cert_secret_ref.is_some() {
        data["ca_cert_path"] = json!(format!("{VAULT_CA}/ca.crt"));
    }
    data
}

/// What the plugin needs: a token for the Vault, and its CA certificate.
pub(super) fn needs(authority: &UpstreamAuthority) -> Needs {
    let mut needs = Needs::default();
    let Some(at) = &authority.vault else { return needs };
    needs.volumes.push(token(&at.k8s_auth.audience));
    needs.mounts.push(read_only("vault-token", VAULT_TOKEN));
    if let Some(secret) = &at.ca_cert_secret_ref {
        let item = KeyToPath { key: secret.key.clone(), path: "ca.crt".to_owned(), mode: None };
        let mut volume = secret_volume("vault-ca", &secret.name);
        volume.secret = volume.secret.map(|source| SecretVolumeSource { items: Some(vec![item]), ..source });
        needs.volumes.push(volume);
        needs.mounts.push(read_only("vault-ca", VAULT_CA));
    }
    needs
}

fn token(audience: &str) -> Volume {
    let token = ServiceAccountTokenProjection {
        audience: Some(audience.to_owned()),
        expiration_seconds: Some(TOKEN_SECONDS),
        path: "token".to_owned(),
    };
    let source = VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() };
    let projected = ProjectedVolumeSource { sources: Some(vec![source]), ..ProjectedVolumeSource::default() };
    Volume { name: "vault-token".to_owned(), projected: Some(projected), ..Volume::default() }
}
