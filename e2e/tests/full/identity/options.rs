//! What a SpireServer may ask for: real SPIRE takes it, or the condition says what is missing outside.

use anyhow::ensure;
use e2e::identity::{NAMESPACE, api, complains, delete, install, ready, recreate_server, stack, write};
use e2e::{Stage, scenario};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{LogParams, PostParams};
use lifecycle_operator::api::v1alpha1::SpireServer;
use lifecycle_operator::render::server::CONTAINER;
use serde_json::{Value, json};

const NAME: &str = "every_option_of_the_server_reaches_ready_or_says_which_part_outside_is_missing";

#[tokio::test]
async fn every_option_of_the_server_reaches_ready_or_says_which_part_outside_is_missing() -> anyhow::Result<()> {
    scenario(NAME, async |stage| {
        install(stage).await?;
        stack(stage).await?;
        what_is_outside_is_missed_by_name(stage).await?;
        keys_subjects_and_lifetimes(stage).await?;
        federation_by_spiffe_id(stage).await?;
        federation_by_a_certificate_of_the_web(stage).await?;
        delete(stage).await
    })
    .await
}

/// Each is tried on a server that runs, and taken back. With keys in memory it must have a CA certificate at once; one that has a
/// CA needs nobody above it until that ends.
async fn what_is_outside_is_missed_by_name(stage: &Stage) -> anyhow::Result<()> {
    let postgres = "dbname=spire user=spire host=postgres.away.example sslmode=disable";
    let vault = json!({ "vaultAddr": "https://vault.away.example:8200", "k8sAuth": { "k8sAuthRoleName": "spire" } });
    let issuer = json!({ "namespace": NAMESPACE, "issuerName": "away" });
    let memory = json!({ "diskEnabled": "false", "memoryEnabled": "true" });
    for (spec, words) in [
        (json!({ "datastore": { "databaseType": "postgres", "connectionString": postgres } }), "postgres.away.example"),
        (json!({ "keyManager": memory, "upstreamAuthority": { "vault": vault } }), "vault.away.example"),
        (json!({ "keyManager": memory, "upstreamAuthority": { "certManager": issuer } }), "cert-manager.io"),
    ] {
        write::<SpireServer>(stage, spec).await?;
        complains::<SpireServer>(stage, &[words]).await?;
        write::<SpireServer>(stage, json!({})).await?;
        ready::<SpireServer>(stage).await?;
    }
    Ok(())
}

async fn keys_subjects_and_lifetimes(stage: &Stage) -> anyhow::Result<()> {
    let spec = json!({
        "keyManager": { "diskEnabled": "false", "memoryEnabled": "true" },
        "caKeyType": "ec-p384",
        "jwtKeyType": "rsa-4096",
        "caSubject": { "country": "DE", "organization": "Example", "commonName": "SPIRE" },
        "caValidity": "2h",
        "defaultX509Validity": "10m",
        "defaultJWTValidity": "2m",
        "logLevel": "debug",
        "logFormat": "json",
        "datastore": { "maxOpenConns": 10, "maxIdleConns": 5, "connMaxLifetime": 60 },
    });
    write::<SpireServer>(stage, spec).await?;
    ready::<SpireServer>(stage).await?;
    ensure!(log(stage).await?.contains(r#""level":"debug""#), "it does not log as it was asked to");
    Ok(())
}

/// Another trust domain that is away is none of this server's troubles.
async fn federation_by_spiffe_id(stage: &Stage) -> anyhow::Result<()> {
    let other = json!({
        "trustDomain": "other.example",
        "bundleEndpointUrl": "https://spire.other.example:8443",
        "bundleEndpointProfile": "https_spiffe",
        "endpointSpiffeId": "spiffe://other.example/spire/server",
    });
    let endpoint = json!({ "profile": "https_spiffe", "refreshHint": 120 });
    let federation = json!({ "bundleEndpoint": endpoint, "federatesWith": [other], "managedRoute": "false" });
    write::<SpireServer>(stage, json!({ "federation": federation })).await?;
    ready::<SpireServer>(stage).await?;
    it_serves_its_bundle(stage).await
}

/// How the endpoint proves who it is cannot be changed: this is another server.
async fn federation_by_a_certificate_of_the_web(stage: &Stage) -> anyhow::Result<()> {
    let certificate = rcgen::generate_simple_self_signed(["spire.example.org".to_owned()])?;
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": "endpoint" },
        "type": "kubernetes.io/tls",
        "stringData": { "tls.crt": certificate.cert.pem(), "tls.key": certificate.signing_key.serialize_pem() },
    }))?;
    api::<Secret>(stage).create(&PostParams::default(), &secret).await?;
    let web = json!({ "servingCert": { "externalSecretRef": "endpoint" } });
    let federation = |web: Value| {
        json!({ "federation": {
            "bundleEndpoint": { "profile": "https_web", "httpsWeb": web }, "managedRoute": "false",
        } })
    };
    recreate_server(stage, federation(web)).await?;
    ready::<SpireServer>(stage).await?;
    it_serves_its_bundle(stage).await
}

async fn it_serves_its_bundle(stage: &Stage) -> anyhow::Result<()> {
    let said = log(stage).await?;
    ensure!(said.contains("Serving bundle endpoint"), "it serves no bundle:\n{said}");
    Ok(())
}

async fn log(stage: &Stage) -> anyhow::Result<String> {
    let of_server = LogParams { container: Some(CONTAINER.to_owned()), ..LogParams::default() };
    Ok(api::<Pod>(stage).logs("spire-server-0", &of_server).await?)
}
