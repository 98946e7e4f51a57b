//! What the API server itself refuses, with words that name the field and the cure; and what it takes as it is.

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::GroupVersionKind;
use kube::{Api, Resource, ResourceExt};
use lifecycle_operator::api::v1alpha1::{
    SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer, ZeroTrustWorkloadIdentityManager as Ztwim,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::stage::Scene;

async fn refused<K>(scene: &Scene, cases: &[(Value, &str)])
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut wrong = Vec::new();
    for (spec, words) in cases {
        match scene.try_out::<K>(spec.clone()).await {
            Ok(_) => wrong.push(format!("{spec} is accepted")),
            Err(answer) if answer.to_string().contains(words) => {}
            Err(answer) => wrong.push(format!("{spec}: not {words:?}, but: {answer}")),
        }
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", K::kind(&()));
}

#[tokio::test]
async fn bad_specs_are_refused_at_admission_with_the_field_and_the_cure() {
    let scene = Scene::new().await;
    let domain = |value: &str| json!({ "trustDomain": value });
    refused::<Ztwim>(
        &scene,
        &[
            (domain("Example.org"), "spec.trustDomain"),
            (domain("-example.org"), "spec.trustDomain"),
            (domain("example.org/path"), "spec.trustDomain"),
            (domain("spiffe://example.org"), "spec.trustDomain"),
            (domain("with space"), "spec.trustDomain"),
            (domain(&"a".repeat(256)), "spec.trustDomain"),
            (json!({ "trustDomain": "a.org", "clusterName": "Not A Name" }), "spec.clusterName"),
            (json!({ "trustDomain": "a.org", "bundleConfigMap": "Not_A_Name" }), "spec.bundleConfigMap"),
            (json!({ "trustDomain": "a.org", "jwtIssuer": "oidc.a.org" }), "spec.jwtIssuer"),
            (json!({ "trustDomain": "a.org", "jwtIssuer": "ftp://oidc.a.org" }), "spec.jwtIssuer"),
            (json!({ "trustDomain": "a.org", "jwtIssuer": "https://oidc.a.org?x=y" }), "spec.jwtIssuer"),
            (json!({ "trustDomain": "a.org", "operands": ["SpireSever"] }), "supported values"),
            (
                json!({ "trustDomain": "a.org", "operands": ["SpireAgent", "SpireAgent"] }),
                "spec.operands: duplicate entries",
            ),
            (
                json!({ "trustDomain": "a.org", "teardown": { "operandTimeout": "soon" } }),
                "spec.teardown.operandTimeout",
            ),
            (
                json!({ "trustDomain": "a.org", "teardown": { "operandTimeout": "0s" } }),
                "operandTimeout must be at least 1s",
            ),
            (json!({ "trustDomain": "a.org", "teardown": { "timeout": "-2m" } }), "spec.teardown.timeout"),
            (json!({ "trustDomain": "a.org", "teardown": { "onExpiry": "Hope" } }), "supported values"),
            (json!({ "trustdomain": "a.org" }), "trustdomain"),
        ],
    )
    .await;
    refused::<SpireServer>(&scene, &[
        (domain("Example.org"), "spec.trustDomain"),
        (json!({ "caValidity": "a day" }), "spec.caValidity"),
        (json!({ "caValidity": "0s" }), "caValidity must be at least 1m"),
        (json!({ "caValidity": "-24h" }), "spec.caValidity"),
        (json!({ "caValidity": 24 }), "spec.caValidity"),
        (json!({ "defaultX509Validity": "1s" }), "defaultX509Validity must be at least 1m"),
        (json!({ "defaultJWTValidity": "1s" }), "defaultJWTValidity must be at least 10s"),
        (json!({ "caKeyType": "rsa-1024" }), "supported values"),
        (json!({ "jwtKeyType": "ed25519" }), "supported values"),
        (json!({ "keyManager": { "diskEnabled": "true", "memoryEnabled": "true" } }), "exactly one of diskEnabled and memoryEnabled"),
        (json!({ "keyManager": { "diskEnabled": "maybe" } }), "supported values"),
        (json!({ "keyManager": { "diskEnabled": true } }), "spec.keyManager.diskEnabled"),
        (json!({ "caSubject": { "country": "Germany" } }), "spec.caSubject.country"),
        (json!({ "persistence": { "size": "-1Gi" } }), "spec.persistence.size"),
        (json!({ "persistence": { "size": "0Gi" } }), "spec.persistence.size"),
        (json!({ "persistence": { "size": "big" } }), "spec.persistence.size"),
        (json!({ "persistence": { "accessMode": "ReadOnlyMany" } }), "supported values"),
        (json!({ "persistence": { "deletionPolicy": "Burn" } }), "supported values"),
        (json!({ "datastore": { "databaseType": "oracle" } }), "supported values"),
        (json!({ "datastore": { "maxOpenConns": -1 } }), "spec.datastore.maxOpenConns"),
        (json!({ "datastore": { "maxIdleConns": -1 } }), "spec.datastore.maxIdleConns"),
        (json!({ "datastore": { "connectionString": "host=db", "connectionStringSecretRef": { "name": "db", "key": "k" } } }), "exclude each other"),
        (json!({ "backup": { "keep": 0 } }), "spec.backup.keep"),
        (json!({ "backup": { "size": "-5Gi" } }), "spec.backup.size"),
        (json!({ "restoreFrom": { "name": "../other" } }), "spec.restoreFrom.name"),
        (json!({ "upstreamAuthority": {} }), "exactly one of certManager and vault"),
        (json!({ "federation": { "bundleEndpoint": { "refreshHint": 5 } } }), "spec.federation.bundleEndpoint.refreshHint"),
        (json!({ "federation": { "bundleEndpoint": { "profile": "https_web" } } }), "httpsWeb is required"),
        (json!({ "federation": { "bundleEndpoint": {}, "federatesWith": [{ "trustDomain": "b.org", "bundleEndpointUrl": "http://b.org", "bundleEndpointProfile": "https_web" }] } }), "bundleEndpointUrl"),
        (json!({ "federation": { "bundleEndpoint": {}, "federatesWith": [{ "trustDomain": "b.org", "bundleEndpointUrl": "https://b.org", "bundleEndpointProfile": "https_spiffe" }] } }), "endpointSpiffeId is required"),
    ])
    .await;
    refused::<SpireAgent>(
        &scene,
        &[
            (json!({ "socketPath": "run/spire" }), "spec.socketPath"),
            (json!({ "nodeAttestor": { "k8sPSATEnabled": "false" } }), "k8sPSATEnabled must be"),
            (
                json!({ "workloadAttestors": { "workloadAttestorsVerification": { "type": "hostCert" } } }),
                "hostCertBasePath is required",
            ),
            (json!({ "logLevel": "loud" }), "supported values"),
        ],
    )
    .await;
    refused::<SpiffeCSIDriver>(
        &scene,
        &[
            (json!({ "agentSocketPath": "" }), "spec.agentSocketPath"),
            (json!({ "pluginName": "Csi Spiffe" }), "spec.pluginName"),
        ],
    )
    .await;
    refused::<SpireOIDCDiscoveryProvider>(
        &scene,
        &[
            (json!({ "replicaCount": 0 }), "spec.replicaCount"),
            (json!({ "replicaCount": 6 }), "spec.replicaCount"),
            (json!({ "jwtIssuer": "not a url" }), "spec.jwtIssuer"),
            (json!({ "externalSecretRef": "Not A Name" }), "spec.externalSecretRef"),
            (json!({ "managedRoute": "yes" }), "supported values"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_second_instance_is_refused_because_there_is_one_named_cluster() {
    async fn second<K>(scene: &Scene)
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let object = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": { "name": "second" }, "spec": {},
        });
        let params = PatchParams::apply("kubectl");
        let answer = scene.all::<K>().patch("second", &params, &Patch::Apply(&object)).await.unwrap_err().to_string();
        let words = format!("there is one {} in a cluster: metadata.name must be 'cluster'", K::kind(&()));
        assert!(answer.contains(&words), "{answer}");
    }
    let scene = Scene::new().await;
    second::<Ztwim>(&scene).await;
    second::<SpireServer>(&scene).await;
    second::<SpireAgent>(&scene).await;
    second::<SpiffeCSIDriver>(&scene).await;
    second::<SpireOIDCDiscoveryProvider>(&scene).await;
}

#[tokio::test]
async fn a_field_that_cannot_change_says_so_and_names_the_way_out() {
    let scene = Scene::new().await;
    let parent = json!({ "trustDomain": "a.org", "clusterName": "one", "bundleConfigMap": "bundle" });
    scene.write::<Ztwim>(parent).await.unwrap();
    let changed = |field: &str, value: &str| json!({ "spec": { field: value } });
    for (patch, words) in [
        (changed("clusterName", "two"), "spec.clusterName cannot be changed"),
        (changed("bundleConfigMap", "other"), "spec.bundleConfigMap cannot be changed"),
        (changed("trustDomain", "b.org"), "set spec.allowTrustDomainMigration: true with the new trust domain"),
        (json!({ "spec": { "clusterName": null } }), "spec.clusterName cannot be changed"),
        (json!({ "spec": { "trustDomain": null } }), "spec.trustDomain cannot be changed"),
    ] {
        let answer = scene.patch::<Ztwim>(patch.clone()).await.unwrap_err().to_string();
        assert!(answer.contains(words), "{patch}: {answer}");
    }
    let server = json!({
        "persistence": { "size": "2Gi" },
        "federation": { "bundleEndpoint": { "profile": "https_web", "httpsWeb": { "servingCert": {} } } },
    });
    scene.write::<SpireServer>(server).await.unwrap();
    let endpoint = |value: Value| json!({ "spec": { "federation": { "bundleEndpoint": value } } });
    let acme = json!({ "directoryUrl": "https://acme.example.org", "domainName": "a.org", "email": "me@a.org" });
    for (patch, words) in [
        (json!({ "spec": { "persistence": { "size": "4Gi" } } }), "restore into a new one"),
        (json!({ "spec": { "persistence": { "accessMode": "ReadWriteMany" } } }), "restore into a new one"),
        (json!({ "spec": { "persistence": { "storageClass": "fast" } } }), "restore into a new one"),
        (json!({ "spec": { "federation": null } }), "spec.federation cannot be removed"),
        (endpoint(json!({ "profile": "https_spiffe" })), "profile cannot be changed"),
        (
            endpoint(json!({ "httpsWeb": { "servingCert": null, "acme": acme } })),
            "acme and servingCert cannot be exchanged",
        ),
    ] {
        let answer = scene.patch::<SpireServer>(patch.clone()).await.unwrap_err().to_string();
        assert!(answer.contains(words), "{patch}: {answer}");
    }
    // What may change beside it does.
    scene.patch::<SpireServer>(json!({ "spec": { "persistence": { "deletionPolicy": "Delete" } } })).await.unwrap();
}

#[tokio::test]
async fn manifests_of_the_upstream_operator_apply_unchanged_and_keep_every_field() {
    let scene = Scene::new().await;
    for text in serde_yaml::Deserializer::from_str(include_str!("manifests/upstream.yaml")) {
        let object = DynamicObject::deserialize(text).unwrap();
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap());
        let api: Api<DynamicObject> = Api::all_with(scene.client.clone(), &kind);
        // As strictly as kubectl: a field that is unknown is an error, and not dropped.
        let params =
            PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply("kubectl") };
        let stored = api.patch("cluster", &params, &Patch::Apply(&object)).await.unwrap();
        assert_holds(&stored.data["spec"], &object.data["spec"], &kind.kind);
        let again = api.patch("cluster", &params, &Patch::Apply(&object)).await.unwrap();
        assert_eq!(again.resource_version(), stored.resource_version(), "applying {} again changes nothing", kind.kind);
    }
    // And the operator's own types read and write the same.
    let server = scene.all::<SpireServer>().get("cluster").await.unwrap();
    let read = serde_json::to_value(&server.spec).unwrap();
    assert_eq!(read["keyManager"], json!({ "diskEnabled": "true", "memoryEnabled": "false" }));
    assert_eq!(read["federation"]["federatesWith"][0]["endpointSpiffeId"], "spiffe://other.example.org/spire/server");
}

/// That everything which was written is there.
fn assert_holds(stored: &Value, written: &Value, path: &str) {
    match (stored, written) {
        (Value::Object(stored), Value::Object(written)) => {
            for (key, value) in written {
                assert_holds(stored.get(key).unwrap_or(&Value::Null), value, &format!("{path}.{key}"));
            }
        }
        _ => assert_eq!(stored, written, "{path}"),
    }
}
