//! The place of the state, as a string that can be compared.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde_json::{Value, json};

use crate::api::v1alpha1::TerraformWorkspaceSpec;
use crate::run::bundle::Bundle;
use crate::run::names::short;
use crate::run::order::{INPUTS_PATH, WORK_PATH};

/// The state is in Secrets of the workspace's namespace.
pub const MANAGED: &str = "managed";

/// Selects one of several states of the same backend. Terraform itself defines this variable.
pub(super) const WORKSPACE_VARIABLE: &str = "TF_WORKSPACE";

/// Settings for authentication that do not affect the place: they may change without moving the state. A setting that
/// is missing here counts as part of the place, which is the safe mistake.
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

/// Where the runner mounts its own volumes, which are deleted with the pod.
const OWN_MOUNTS: [&str; 4] = [INPUTS_PATH, WORK_PATH, "/run/tools", "/tmp"];
/// Volumes that are deleted with the pod. A volume without a source is of the first type.
const FLEETING: [&str; 2] = ["emptyDir", "ephemeral"];

/// Whether this backend keeps a state only in the memory of a process.
pub(super) fn forgets(kind: &str) -> bool {
    kind == "inmem"
}

/// The first setting that would put a state into a file that is lost with the pod.
pub(super) fn fleeting(spec: &TerraformWorkspaceSpec, bundle: &Bundle) -> Option<&'static str> {
    let backend = bundle.backend.as_ref().filter(|backend| backend.kind == "local")?;
    let workspace = bundle.env.get(WORKSPACE_VARIABLE).is_some_and(|name| !name.is_empty() && name != "default");
    let settings = ["path", "workspace_dir"].into_iter().take(1 + usize::from(workspace));
    let path = |setting: &str| backend.config.get(setting).and_then(Value::as_str).map(Path::new);
    settings.into_iter().find(|setting| !path(setting).is_some_and(|path| outlasts(spec, path)))
}

/// Whether a file is on a volume that outlasts the pod. The deepest mount counts, because it hides those above it.
fn outlasts(spec: &TerraformWorkspaceSpec, path: &Path) -> bool {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let Some(template) = spec.runner.pod_template.as_ref().filter(|_| path.is_absolute() && plain) else {
        return false;
    };
    let volumes = &template.spec.volumes;
    // A volume that does not exist prevents the pod from starting, which is reported separately.
    let lasts = |name: &Value| {
        let volume = volumes.iter().find(|volume| volume["name"] == *name).and_then(Value::as_object);
        let is_source = |key: &String| key != "name" && !FLEETING.contains(&key.as_str());
        volume.is_none_or(|volume| volume.keys().any(is_source))
    };
    let own = OWN_MOUNTS.iter().map(|at| (Path::new(at), false));
    let added = template.spec.volume_mounts.iter();
    let added = added.filter_map(|mount| Some((Path::new(mount["mountPath"].as_str()?), lasts(&mount["name"]))));
    let above = own.chain(added).filter(|(at, _)| path != *at && path.starts_with(at));
    above.max_by_key(|(at, _)| at.components().count()).is_some_and(|(_, lasts)| lasts)
}

/// The place of the state. Its settings may come from a Secret, so their digest is keyed like the hash of the inputs: a
/// bundle without a key gives one without.
pub(super) fn place(bundle: &Bundle) -> String {
    digest_of_place(bundle, Some(bundle.salt.as_str()).filter(|salt| !salt.is_empty()))
}

/// The place of the state as it was recorded before digests of places were keyed.
pub(super) fn unkeyed_place(bundle: &Bundle) -> String {
    digest_of_place(bundle, None)
}

fn digest_of_place(bundle: &Bundle, salt: Option<&str>) -> String {
    let Some(backend) = &bundle.backend else { return MANAGED.to_owned() };
    let is_place = |(name, _): &(&String, &Value)| !CREDENTIALS.contains(&name.as_str());
    let place: BTreeMap<&String, &Value> = backend.config.iter().filter(is_place).collect();
    let place = json!(place).to_string();
    let workspace = bundle.env.get(WORKSPACE_VARIABLE).map(String::as_str).unwrap_or_default();
    let parts: Vec<&str> = salt.into_iter().chain([place.as_str(), workspace]).collect();
    format!("{}-{}", backend.kind, short(&parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::bundle::BackendBundle;

    fn s3(settings: &Value, workspace: Option<&str>) -> String {
        let config = serde_json::from_value(settings.clone()).unwrap();
        let env = workspace.map(|name| (WORKSPACE_VARIABLE.to_owned(), name.to_owned())).into_iter().collect();
        let backend = Some(BackendBundle { kind: "s3".to_owned(), config });
        place(&Bundle { env, backend, ..Bundle::default() })
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

    #[test]
    fn the_digest_of_a_place_is_keyed_like_the_hash_of_the_inputs() {
        let config = serde_json::from_value(json!({ "bucket": "confidential" })).unwrap();
        let backend = Some(BackendBundle { kind: "s3".to_owned(), config });
        let of = |salt: &str| Bundle { salt: salt.to_owned(), backend: backend.clone(), ..Bundle::default() };
        assert_ne!(place(&of("one")), place(&of("two")));
        assert_ne!(place(&of("one")), unkeyed_place(&of("one")));
        assert_eq!(place(&of("one")), place(&of("one")));
        assert_eq!(place(&of("")), unkeyed_place(&of("one")), "inputs without a key have a place without one");
        let managed = Bundle { salt: "one".to_owned(), ..Bundle::default() };
        assert_eq!((place(&managed), unkeyed_place(&managed)), (MANAGED.to_owned(), MANAGED.to_owned()));
    }
}
