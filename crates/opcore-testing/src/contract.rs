//! The kind of ownership contracts, for tests of operators that watch them.

use kube::Client;
use serde_json::json;

use crate::wait;

/// Installs the kind `OwnershipContract`, without a schema, and waits until it is served.
pub async fn install(client: &Client) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "ownershipcontracts.opcore.dev" },
        "spec": {
            "group": "opcore.dev", "scope": "Cluster",
            "names": { "plural": "ownershipcontracts", "singular": "ownershipcontract", "kind": "OwnershipContract" },
            "versions": [{ "name": "v1alpha1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    wait::install(client, &serde_json::from_value(definition).unwrap()).await;
}
