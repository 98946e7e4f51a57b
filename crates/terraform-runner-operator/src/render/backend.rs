//! Where the state is, in a word that can be compared.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::run::bundle::Bundle;
use crate::run::names::short;

/// The state is in Secrets of the same namespace.
pub const MANAGED: &str = "managed";

/// Chooses among several states of one backend, by Terraform's own doing.
pub(super) const WORKSPACE_VARIABLE: &str = "TF_WORKSPACE";

/// Settings that say who asks, and not where: they change without moving anything. One that is missing here is taken for a
/// place, which is the safe mistake.
const CREDENTIALS: [&str; 24] = [
    "access_key",
    "access_token",
    "ca_certificate",
    "client_ca_certificate_pem",
    "client_certificate",
    "client_certificate_password",
    "client_certificate_path",
    "client_certificate_pem",
    "client_id",
    "client_key",
    "client_private_key_pem",
    "client_secret",
    "cluster_ca_certificate",
    "credentials",
    "encryption_key",
    "oidc_request_token",
    "oidc_token",
    "password",
    "sas_token",
    "secret_key",
    "security_token",
    "session_token",
    "token",
    "username",
];

/// Where the state is.
pub(super) fn place(bundle: &Bundle) -> String {
    let Some(backend) = &bundle.backend else { return MANAGED.to_owned() };
    let is_place = |(name, _): &(&String, &Value)| !CREDENTIALS.contains(&name.as_str());
    let place: BTreeMap<&String, &Value> = backend.config.iter().filter(is_place).collect();
    let workspace = bundle.env.get(WORKSPACE_VARIABLE).map(String::as_str).unwrap_or_default();
    format!("{}-{}", backend.kind, short(&[&json!(place).to_string(), workspace]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::bundle::BackendBundle;

    fn s3(settings: &Value, workspace: Option<&str>) -> String {
        let config = serde_json::from_value(settings.clone()).unwrap();
        let env = workspace.map(|name| (WORKSPACE_VARIABLE.to_owned(), name.to_owned())).into_iter().collect();
        let backend = Some(BackendBundle { kind: "s3".to_owned(), config });
        place(&Bundle { backend, env, ..Bundle::default() })
    }

    #[test]
    fn other_credentials_are_the_same_place_and_everything_else_is_another() {
        let before = s3(&json!({ "bucket": "a", "key": "network", "secret_key": "old", "token": "old" }), None);
        assert_eq!(before, s3(&json!({ "bucket": "a", "key": "network", "secret_key": "new" }), None));
        assert_ne!(before, s3(&json!({ "bucket": "a", "key": "other", "secret_key": "old" }), None));
        assert_ne!(before, s3(&json!({ "bucket": "b", "key": "network" }), None));
        assert_ne!(before, s3(&json!({ "bucket": "a", "key": "network" }), Some("staging")));
        assert_eq!(place(&Bundle::default()), MANAGED);
    }
}
