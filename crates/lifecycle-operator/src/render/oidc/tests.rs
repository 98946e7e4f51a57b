#![allow(clippy::needless_pass_by_value, reason = "a spec is written where it is used")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::testing::{
    OPENSHIFT, PLAIN, WITH_GATEWAYS, config, file, hash, is_consistent, of_kind, operand, settings, values, yaml,
};
use super::*;

fn render(spec: Value, issuer: &str, platform: Platform) -> Result<Objects, Error> {
    let config = Config { jwt_issuer: issuer.to_owned(), ..config() };
    let objects = objects(&operand::<SpireOIDCDiscoveryProvider>(&spec), &config, &settings(), &platform)?;
    is_consistent(&objects);
    Ok(objects)
}

fn rendered(spec: Value, platform: Platform) -> Objects {
    render(spec, &config().jwt_issuer, platform).unwrap()
}

/// Manifests, by the names of their files. The real provider reads what becomes of them: see `tests/spire`.
macro_rules! samples {
    ($(($name:literal, $platform:expr)),+ $(,)?) => {
        [$(($name, include_str!(concat!("samples/", $name, ".yaml")), $platform)),+]
    };
}

const SAMPLES: [(&str, &str, Platform); 7] = samples![
    ("certificate", OPENSHIFT),
    ("default", PLAIN),
    ("everything", PLAIN),
    ("gateway", WITH_GATEWAYS),
    ("path", PLAIN),
    ("unmanaged", PLAIN),
    ("upstream", OPENSHIFT),
];

#[test]
fn each_way_to_make_it_reachable_has_these_objects() {
    for (name, text, platform) in SAMPLES {
        let spec = serde_yaml::from_str::<Value>(text).unwrap()["spec"].clone();
        let issuer = spec["jwtIssuer"].as_str().map_or(config().jwt_issuer, str::to_owned);
        insta::assert_snapshot!(name, yaml(&render(spec, &issuer, platform).unwrap()));
    }
}

fn behind_a_gateway() -> Value {
    json!({ "gateway": { "name": "public", "namespace": "gateways", "sectionName": "https" } })
}

fn kinds(objects: &Objects) -> Vec<String> {
    let route = ["Ingress", "HTTPRoute", "Route"];
    let kinds = values(objects).into_iter().map(|value| value["kind"].as_str().unwrap().to_owned());
    kinds.filter(|kind| route.contains(&kind.as_str())).collect()
}

#[test]
fn it_is_made_reachable_by_what_the_cluster_has() {
    assert_eq!(kinds(&rendered(json!({}), PLAIN)), ["Ingress"]);
    assert_eq!(kinds(&rendered(json!({}), WITH_GATEWAYS)), ["Ingress"]);
    assert_eq!(kinds(&rendered(json!({}), OPENSHIFT)), ["Route"]);
    assert_eq!(kinds(&rendered(behind_a_gateway(), WITH_GATEWAYS)), ["HTTPRoute"]);
    for platform in [PLAIN, WITH_GATEWAYS, OPENSHIFT] {
        let none = rendered(json!({ "managedRoute": "false" }), platform);
        assert!(none.routes.is_empty() && kinds(&none).is_empty());
        assert_eq!(none.workload.len(), 1);
    }
}

#[test]
fn what_cannot_be_made_reachable_names_the_field_and_the_cure() {
    let error = |spec: Value, issuer: &str, platform: Platform| render(spec, issuer, platform).unwrap_err();
    let issuer = "https://id.example.org";
    let without_api = error(behind_a_gateway(), issuer, PLAIN);
    assert!(without_api.contains("spec.gateway") && without_api.contains("Install the Gateway API"), "{without_api}");
    let mut both = behind_a_gateway();
    both["externalSecretRef"] = json!("oidc-tls");
    let both = error(both, issuer, WITH_GATEWAYS);
    assert!(both.contains("spec.externalSecretRef") && both.contains("Remove one of them"), "{both}");
    let address = error(json!({}), "https://10.0.0.1", PLAIN);
    assert!(address.contains("spec.jwtIssuer") && address.contains("managedRoute: \"false\""), "{address}");
    assert!(render(json!({ "managedRoute": "false" }), "https://10.0.0.1", PLAIN).is_ok());
}

/// The Secret with its certificate, if it serves HTTPS itself.
fn certificate(objects: &Objects) -> Option<String> {
    let pod = of_kind(objects, "Deployment")["spec"]["template"]["spec"].clone();
    let volumes = pod["volumes"].as_array().unwrap().clone();
    let secret = volumes.iter().find_map(|volume| volume["secret"]["secretName"].as_str()).map(str::to_owned);
    let file: Value = serde_json::from_str(&file(objects)).unwrap();
    assert_eq!(file["serving_cert_file"].is_object(), secret.is_some());
    assert_eq!(file["insecure_addr"].is_string(), secret.is_none());
    let (name, port) = if secret.is_some() { ("https", 443) } else { ("http", 80) };
    assert_eq!(of_kind(objects, "Service")["spec"]["ports"][0]["name"], name);
    assert_eq!(of_kind(objects, "Service")["spec"]["ports"][0]["port"], port);
    secret
}

#[test]
fn it_serves_https_itself_where_nothing_ends_tls_before_it() {
    let own = json!({ "externalSecretRef": "oidc-tls" });
    let unmanaged = |mut spec: Value| {
        spec["managedRoute"] = json!("false");
        spec
    };
    assert_eq!(certificate(&rendered(own.clone(), PLAIN)), None);
    assert_eq!(certificate(&rendered(behind_a_gateway(), WITH_GATEWAYS)), None);
    assert_eq!(certificate(&rendered(unmanaged(json!({})), PLAIN)), None);
    assert_eq!(certificate(&rendered(unmanaged(own.clone()), PLAIN)).as_deref(), Some("oidc-tls"));
    assert_eq!(certificate(&rendered(unmanaged(own.clone()), OPENSHIFT)).as_deref(), Some("oidc-tls"));
    for spec in [json!({}), own, unmanaged(json!({}))] {
        let objects = rendered(spec, OPENSHIFT);
        assert_eq!(certificate(&objects).as_deref(), Some("oidc-serving-cert"));
        let annotations = of_kind(&objects, "Service")["metadata"]["annotations"].clone();
        assert_eq!(annotations["service.beta.openshift.io/serving-cert-secret-name"], "oidc-serving-cert");
    }
}

#[test]
fn the_certificate_of_its_host_is_where_tls_ends() {
    let own = json!({ "externalSecretRef": "oidc-tls" });
    let ingress = of_kind(&rendered(own.clone(), PLAIN), "Ingress");
    assert_eq!(ingress["spec"]["tls"], json!([{ "hosts": ["oidc-discovery.example.org"], "secretName": "oidc-tls" }]));
    let ingress = of_kind(&rendered(json!({}), PLAIN), "Ingress");
    assert_eq!(ingress["spec"]["tls"], json!([{ "hosts": ["oidc-discovery.example.org"] }]));
    let route = of_kind(&rendered(own, OPENSHIFT), "Route");
    assert_eq!(route["spec"]["tls"]["externalCertificate"]["name"], "oidc-tls");
}

#[test]
fn tokens_of_a_path_are_verified_under_that_path() {
    let objects = render(json!({}), "https://ID.example.org/team/a/", PLAIN).unwrap();
    let file: Value = serde_json::from_str(&file(&objects)).unwrap();
    assert_eq!(file["jwt_issuer"], "https://ID.example.org/team/a/");
    assert_eq!(file["jwks_uri"], "https://ID.example.org/team/a/keys");
    assert_eq!(file["server_path_prefix"], "/team/a");
    let rule = of_kind(&objects, "Ingress")["spec"]["rules"][0].clone();
    assert_eq!(
        (rule["host"].as_str(), rule["http"]["paths"][0]["path"].as_str()),
        (Some("id.example.org"), Some("/team/a"))
    );
}

#[test]
fn it_gets_an_identity_where_there_are_such() {
    let identity = of_kind(&rendered(json!({}), PLAIN), "ClusterSPIFFEID");
    let deployment = of_kind(&rendered(json!({}), PLAIN), "Deployment");
    assert_eq!(identity["metadata"]["name"], IDENTITY);
    assert_eq!(identity["spec"]["className"], "identities");
    assert_eq!(identity["spec"]["podSelector"], deployment["spec"]["selector"]);
    assert_eq!(
        identity["spec"]["dnsNameTemplates"],
        json!([
            "spire-spiffe-oidc-discovery-provider.spire",
            "spire-spiffe-oidc-discovery-provider.spire.svc",
            "oidc-discovery.example.org",
        ])
    );
    let without = Platform { spiffe_ids: false, ..PLAIN };
    assert!(values(&rendered(json!({}), without)).iter().all(|value| value["kind"] != "ClusterSPIFFEID"));
}

#[test]
fn it_serves_on_until_nobody_sends_it_requests_any_more() {
    let pod = of_kind(&rendered(json!({}), PLAIN), "Deployment")["spec"]["template"]["spec"].clone();
    let sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"].as_i64().unwrap();
    assert!(sleep > 0 && sleep < pod["terminationGracePeriodSeconds"].as_i64().unwrap());
}

#[test]
fn what_must_not_go_before_its_turn_has_no_owner_reference() {
    for (spec, platform) in [(json!({}), PLAIN), (json!({}), OPENSHIFT), (behind_a_gateway(), WITH_GATEWAYS)] {
        for value in values(&rendered(spec.clone(), platform)) {
            let owners = value["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
            let in_order = ["Deployment", "Ingress", "Route", "HTTPRoute"].iter().any(|kind| value["kind"] == *kind);
            assert_eq!(owners, usize::from(!in_order), "{value}");
        }
    }
}

prop_compose! {
    fn any_spec()(
        log_level in prop::sample::select(vec!["debug", "info", "warn", "error"]),
        replicas in 1..=5,
        managed: bool,
        secret in prop::option::of("[a-z]{1,5}"),
        class in prop::option::of("[a-z]{1,5}"),
        gateway: bool,
    ) -> Value {
        let mut spec = json!({ "logLevel": log_level, "replicaCount": replicas, "managedRoute": managed.to_string() });
        if let Some(secret) = secret {
            spec["externalSecretRef"] = json!(secret);
        }
        if let Some(class) = class {
            spec["ingressClassName"] = json!(class);
        }
        if gateway {
            spec["gateway"] = behind_a_gateway()["gateway"].clone();
        }
        spec
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_spec_is_rendered_always_in_the_same_way(spec in any_spec(), platform in prop::sample::select(vec![PLAIN, WITH_GATEWAYS, OPENSHIFT])) {
        let once = render(spec.clone(), "https://id.example.org", platform);
        prop_assert_eq!(once, render(spec, "https://id.example.org", platform));
    }

    #[test]
    fn pods_are_replaced_exactly_when_their_configuration_changes(one in any_spec(), other in any_spec()) {
        let (one, other) = (render(one, "https://a.org", PLAIN), render(other, "https://a.org", PLAIN));
        if let (Ok(one), Ok(other)) = (one, other) {
            prop_assert_eq!(file(&one) == file(&other), hash(&one, "Deployment") == hash(&other, "Deployment"));
        }
    }
}
