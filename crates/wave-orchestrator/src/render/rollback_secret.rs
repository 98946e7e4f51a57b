//! The contents of a wave when it was last ready, kept for `onFailure: Rollback`. Manifests may contain anything, so
//! they are kept in a Secret.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use opcore::ownership::owner_reference;

use super::{ParsedItem, ParsedTask};
use crate::api::v1alpha1::WavePlan;

/// The limit, because a Secret cannot hold more.
pub(super) const KEPT_AT_MOST: usize = 900_000;
/// The key of the manifests in the Secret.
const KEY: &str = "manifests";

/// The manifests of a wave as one text. JSON is YAML.
pub(super) fn kept_text(items: &[ParsedItem]) -> String {
    // The work of a hook is not repeated.
    let objects = items.iter().filter(|item| !item.stage.is_hook()).filter_map(|item| match &item.task {
        ParsedTask::Apply(object) => serde_json::to_string(object).ok(),
        _ => None,
    });
    objects.collect::<Vec<_>>().join("\n---\n")
}

/// The name of the Secret that keeps the manifests of a wave.
pub fn kept_name(plan: &WavePlan, wave: &str) -> String {
    format!("{wave}.{}", plan.uid().unwrap_or_default())
}

/// The manifests that a Secret keeps.
pub fn kept_in(secret: &Secret) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(KEY)?.0.clone()).ok()
}

/// The Secret that keeps the manifests of a wave. It is deleted with the plan.
pub fn kept_secret(plan: &WavePlan, namespace: &str, wave: &str, text: &str) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(kept_name(plan, wave)),
            namespace: Some(namespace.to_owned()),
            owner_references: owner_reference(plan, Some(namespace)).ok().map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(text.as_bytes().to_vec()))])),
        ..Secret::default()
    }
}
