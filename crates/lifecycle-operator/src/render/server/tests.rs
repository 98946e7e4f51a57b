//! What becomes of a SpireServer: its objects, as files; and what holds for all of them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::render::testing::{OPENSHIFT, PLAIN, config, settings, shown};

/// A manifest, by the name of its file.
macro_rules! samples {
    ($($name:literal),+ $(,)?) => { [$(($name, include_str!(concat!("samples/", $name, ".yaml")))),+] };
}

const SAMPLES: [(&str, &str); 15] = samples![
    "aws-mysql",
    "aws-postgresql",
    "cert-manager",
    "default",
    "everything",
    "federation-acme",
    "federation-serving-cert",
    "federation-spiffe",
    "memory",
    "mysql",
    "postgres",
    "postgres-password",
    "sql",
    "upstream",
    "vault",
];

fn sample(name: &str) -> SpireServer {
    let (_, text) = SAMPLES.iter().find(|(known, _)| *known == name).unwrap();
    serde_yaml::from_str(text).unwrap()
}

fn server(spec: &Value) -> SpireServer {
    let object = json!({ "metadata": { "name": "cluster", "uid": "u-1" }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

fn rendered(server: &SpireServer, platform: Platform) -> Objects {
    objects(server, &config(), &settings(), &platform, true).unwrap()
}

fn shown_all(server: &SpireServer) -> BTreeMap<String, Value> {
    shown(rendered(server, PLAIN).iter())
}

fn pod(objects: &BTreeMap<String, Value>) -> &Value {
    objects["StatefulSet spire-server"].pointer("/spec/template").unwrap()
}

/// The text of SPIRE's configuration.
fn conf(server: &SpireServer) -> String {
    config::text(server, &config(), &settings())
}

#[test]
fn a_server_that_says_nothing_has_these_objects() {
    insta::assert_yaml_snapshot!(shown_all(&sample("default")));
}

#[test]
fn a_server_that_says_everything_has_these_objects() {
    let server = sample("everything");
    let own =
        Config { bundle_config_map: "trust".to_owned(), jwt_issuer: "https://oidc.example.org".to_owned(), ..config() };
    let objects = objects(&server, &own, &settings(), &PLAIN, true).unwrap();
    insta::assert_yaml_snapshot!(shown(objects.iter()));
}

#[test]
fn each_database_has_its_configuration_and_its_files() {
    for name in ["sql", "postgres", "postgres-password", "mysql", "aws-postgresql", "aws-mysql"] {
        insta::assert_yaml_snapshot!(name, differences(name));
    }
}

#[test]
fn each_upstream_authority_has_its_configuration_its_files_and_its_rights() {
    for name in ["cert-manager", "vault"] {
        insta::assert_yaml_snapshot!(name, differences(name));
    }
}

#[test]
fn each_kind_of_endpoint_has_its_configuration_its_files_and_its_route() {
    for name in ["federation-spiffe", "federation-acme", "federation-serving-cert"] {
        insta::assert_yaml_snapshot!(name, differences(name));
    }
}

#[test]
fn keys_in_memory_are_what_the_configuration_says() {
    insta::assert_yaml_snapshot!("memory", differences("memory"));
}

#[test]
fn a_manifest_of_the_upstream_operator_means_what_it_meant() {
    insta::assert_yaml_snapshot!("upstream", differences("upstream"));
}

/// What a sample has that a server that says nothing has not.
fn differences(name: &str) -> BTreeMap<String, Value> {
    let all = shown_all(&sample("default"));
    let mut others = shown_all(&sample(name));
    others.retain(|key, object| {
        let Some(same) = all.get(key) else { return true };
        remove_equal(object, same);
        object.as_object().is_some_and(|fields| !fields.is_empty())
    });
    others
}

fn remove_equal(object: &mut Value, same: &Value) {
    match (object, same) {
        (Value::Object(fields), Value::Object(others)) => fields.retain(|key, value| {
            let Some(other) = others.get(key) else { return true };
            remove_equal(value, other);
            let is_empty = value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty);
            value != other && !is_empty && key != "ztwim.io/config-hash"
        }),
        (Value::Array(items), Value::Array(others)) => {
            let named = |item: &Value| item["name"].as_str().map(str::to_owned);
            for item in items.iter_mut() {
                let twin = others.iter().find(|other| named(other).is_some() && named(other) == named(item));
                if let (Some(twin), Some(name)) = (twin, named(item)) {
                    remove_equal(item, twin);
                    if item.as_object().is_some_and(|fields| !fields.is_empty()) {
                        item["name"] = json!(name);
                    }
                }
            }
            items.retain(|item| !others.contains(item) && item.as_object().is_none_or(|fields| !fields.is_empty()));
        }
        _ => {}
    }
}

#[test]
fn where_there_are_routes_the_endpoint_has_one() {
    let routes = |name: &str| {
        let mut server = sample(name);
        server.spec.federation.as_mut().unwrap().managed_route = crate::api::v1alpha1::Switch::True;
        shown(&rendered(&server, OPENSHIFT).routes)
    };
    insta::assert_yaml_snapshot!(routes("federation-spiffe"));
    assert_eq!(routes("federation-acme")["Route spire-server-federation"]["spec"]["host"], "bundle.example.org");
    let of_user = routes("federation-serving-cert");
    assert_eq!(of_user["Route spire-server-federation"]["spec"]["tls"]["termination"], "passthrough");
}

#[test]
fn on_openshift_a_certificate_that_nobody_names_comes_from_the_platform() {
    let web = json!({ "profile": "https_web", "httpsWeb": { "servingCert": {} } });
    let server = server(&json!({ "federation": { "bundleEndpoint": web } }));
    let all = shown(rendered(&server, OPENSHIFT).iter());
    let secret = "spire-server-serving-cert";
    let annotations = &all["Service spire-server"]["metadata"]["annotations"];
    assert_eq!(annotations["service.beta.openshift.io/serving-cert-secret-name"], secret);
    assert_eq!(all["Route spire-server-federation"]["spec"]["tls"]["termination"], "reencrypt");
    assert!(pod(&all)["spec"]["volumes"].as_array().unwrap().iter().any(|it| it["secret"]["secretName"] == secret));
    let error = objects(&server, &config(), &settings(), &PLAIN, true).unwrap_err();
    assert!(error.contains("servingCert.externalSecretRef must name a Secret"), "{error}");
}

#[test]
fn openshift_chooses_the_user_of_the_pod() {
    let all = shown(rendered(&sample("default"), OPENSHIFT).iter());
    let context = &pod(&all)["spec"]["securityContext"];
    assert_eq!(
        (&context["runAsUser"], &context["fsGroup"], &context["runAsNonRoot"]),
        (&Value::Null, &Value::Null, &json!(true))
    );
}

#[test]
fn a_server_that_is_stopped_has_no_pod() {
    let replicas = |running| {
        let objects = objects(&sample("default"), &config(), &settings(), &PLAIN, running).unwrap();
        shown(&objects.workload)["StatefulSet spire-server"]["spec"]["replicas"].clone()
    };
    assert_eq!((replicas(true), replicas(false)), (json!(1), json!(0)));
}

#[test]
fn the_trust_bundle_is_left_to_the_server() {
    let bundle = &shown_all(&sample("default"))["ConfigMap spire-bundle"];
    assert_eq!((bundle.get("data"), bundle.get("binaryData")), (None, None));
}

#[test]
fn workloads_and_routes_have_no_owner_reference_and_all_else_has_one() {
    let objects = rendered(&sample("federation-spiffe"), PLAIN);
    let has_owner = |object: &Value| object["metadata"]["ownerReferences"][0]["uid"].is_string();
    assert!(shown(&objects.support).values().all(has_owner));
    assert!(!shown(objects.workload.iter().chain(&objects.routes)).values().any(has_owner));
}

#[test]
fn no_two_ports_of_the_pod_have_the_same_name_or_number() {
    for (name, _) in SAMPLES {
        let all = shown_all(&sample(name));
        let containers = pod(&all)["spec"]["containers"].as_array().unwrap();
        let ports: Vec<_> = containers.iter().flat_map(|it| it["ports"].as_array().unwrap()).collect();
        for key in ["name", "containerPort"] {
            let distinct: BTreeSet<_> = ports.iter().map(|port| port[key].to_string()).collect();
            assert_eq!(distinct.len(), ports.len(), "{name}: {ports:?}");
        }
        assert!(ports.iter().all(|port| port["name"].as_str().unwrap().len() <= 15), "{name}: {ports:?}");
    }
}

#[test]
fn every_volume_that_is_mounted_is_there_and_every_volume_is_mounted() {
    for (name, _) in SAMPLES {
        let all = shown_all(&sample(name));
        let spec = &pod(&all)["spec"];
        let names = |items: &Value| -> BTreeSet<String> {
            items.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
        };
        let containers = spec["containers"].as_array().unwrap();
        let mounted: BTreeSet<_> = containers.iter().flat_map(|it| names(&it["volumeMounts"])).collect();
        assert_eq!(mounted, names(&spec["volumes"]), "{name}");
    }
}

#[test]
fn a_password_is_in_no_config_map() {
    let connections = [
        ("postgres", "dbname=spire user=spire password=s3cr3t host=db"),
        ("postgres", "dbname=spire password = s3cr3t"),
        ("postgres", "postgres://spire:s3cr3t@db.example.org/spire?sslmode=disable"),
        ("mysql", "spire:s3cr3t@tcp(db.example.org:3306)/spire?parseTime=true"),
        ("aws_mysql", "spire:s3cr3t@tcp(spire.a.eu-west-1.rds.amazonaws.com)/spire?parseTime=true"),
        ("aws_postgresql", "user=spire password=s3cr3t host=spire.a.eu-west-1.rds.amazonaws.com"),
    ];
    for (kind, connection) in connections {
        let server = server(&json!({ "datastore": { "databaseType": kind, "connectionString": connection } }));
        for (name, object) in shown_all(&server) {
            assert!(!name.starts_with("ConfigMap") || !object.to_string().contains("s3cr3t"), "{kind}: {name}");
        }
        let warnings = warnings(&server);
        assert!(warnings[0].contains("connectionStringSecretRef"), "{kind}: {warnings:?}");
    }
}

#[test]
fn what_needs_no_password_is_in_the_config_map_without_a_warning() {
    for name in ["default", "sql", "postgres", "aws-postgresql", "upstream"] {
        assert_eq!(warnings(&sample(name)), [""; 0], "{name}");
        assert!(!conf(&sample(name)).contains('$'), "{name}");
        let all = shown_all(&sample(name));
        assert!(!pod(&all).to_string().contains("-expandEnv"), "{name}");
    }
}

#[test]
fn only_our_own_variables_are_expanded() {
    let spec = json!({
        "caSubject": { "commonName": "${SPIRE_DATASTORE_CONNECTION_STRING}", "organization": "$HOME ${" },
        "datastore": { "databaseType": "postgres", "connectionStringSecretRef": { "name": "db", "key": "c" } },
    });
    let text = conf(&server(&spec));
    assert_eq!(text.matches('$').count(), 1, "{text}");
    assert!(text.contains(r#""connection_string": "${SPIRE_DATASTORE_CONNECTION_STRING}""#), "{text}");
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["server"]["ca_subject"][0]["common_name"], "${SPIRE_DATASTORE_CONNECTION_STRING}");
    assert_eq!(read["server"]["ca_subject"][0]["organization"][0], "$HOME ${");
}

#[test]
fn a_password_arrives_as_it_was_written() {
    let server = sample("postgres-password");
    let all = shown_all(&server);
    let value = pod(&all).pointer("/spec/containers/0/env/0/value").unwrap().as_str().unwrap();
    // Kubernetes expands $(…) in it, and SPIRE puts it between the quotes of its configuration.
    assert!(!value.contains('$'), "{value}");
    let text = conf(&server).replace("${SPIRE_DATASTORE_CONNECTION_STRING}", value);
    let read: Value = serde_json::from_str(&text).unwrap();
    let arrived = read.pointer("/plugins/DataStore/0/sql/plugin_data/connection_string").unwrap();
    assert_eq!(arrived, &json!(server.spec.datastore.connection_string));
}

#[test]
fn what_should_be_changed_is_said_with_the_field_and_the_remedy() {
    let cases = [
        (
            json!({ "keyManager": { "diskEnabled": "false", "memoryEnabled": "true" } }),
            "spec.keyManager.memoryEnabled",
            "diskEnabled",
        ),
        (
            json!({ "datastore": { "connectionString": "/tmp/entries.sqlite3" } }),
            "spec.datastore.connectionString",
            "/run/spire/data",
        ),
        (
            json!({ "datastore": { "connectionString": "file:memdb?mode=memory" } }),
            "spec.datastore.connectionString",
            "/run/spire/data",
        ),
        (
            json!({ "defaultX509Validity": "5h" }),
            "spec.defaultX509Validity",
            "set it to 4h or less, or spec.caValidity to 30h or more",
        ),
        (json!({ "caValidity": "6h", "defaultJWTValidity": "90m" }), "spec.defaultJWTValidity", "set it to 1h or less"),
        (
            json!({ "caValidity": "9000h", "defaultX509Validity": "200h" }),
            "spec.defaultX509Validity",
            "set it to 168h or less.",
        ),
        (
            json!({ "upstreamAuthority": { "vault": { "vaultAddr": "http://vault", "k8sAuth": { "k8sAuthRoleName": "spire" } } } }),
            "spec.upstreamAuthority.vault.vaultAddr",
            "https",
        ),
    ];
    for (spec, field, remedy) in cases {
        let said = warnings(&server(&spec));
        assert_eq!(said.len(), 1, "{spec}: {said:?}");
        assert!(said[0].starts_with(field) && said[0].contains(remedy), "{spec}: {}", said[0]);
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_field_and_the_remedy() {
    let domains = |names: &[&str]| {
        let others = names.iter().map(|name| {
            json!({ "trustDomain": name, "bundleEndpointUrl": "https://b.example.com", "bundleEndpointProfile": "https_web" })
        });
        server(&json!({ "federation": { "bundleEndpoint": {}, "federatesWith": others.collect::<Vec<_>>() } }))
    };
    let refused =
        |server: &SpireServer, config: &Config| objects(server, config, &settings(), &PLAIN, true).unwrap_err();
    let own = refused(&domains(&["a.example.com", "example.org"]), &config());
    assert!(
        own.starts_with("spec.federation.federatesWith[1].trustDomain is \"example.org\"") && own.contains("remove it"),
        "{own}"
    );
    let twice = refused(&domains(&["a.example.com", "a.example.com"]), &config());
    assert!(twice.contains("federatesWith[1]") && twice.contains("there already"), "{twice}");
    let taken = refused(&sample("default"), &Config { bundle_config_map: NAME.to_owned(), ..config() });
    assert!(
        taken.starts_with("spec.bundleConfigMap is \"spire-server\"") && taken.contains("choose another"),
        "{taken}"
    );
}

#[test]
fn without_the_kind_of_cluster_spiffe_ids_none_is_written_and_that_is_said() {
    let platform = Platform { spiffe_ids: false, ..PLAIN };
    let without = shown(rendered(&sample("default"), platform).iter());
    assert!(without.keys().all(|name| !name.starts_with("ClusterSPIFFEID")));
    let said = prerequisites(&sample("default"), &settings(), platform);
    assert!(said.len() == 1 && said[0].contains("ClusterSPIFFEID"), "{said:?}");
    assert_eq!(prerequisites(&sample("default"), &settings(), PLAIN), [""; 0]);
}

#[test]
fn rights_to_request_certificates_elsewhere_are_for_others_to_give() {
    let mut server = sample("cert-manager");
    assert_eq!(prerequisites(&server, &settings(), PLAIN), [""; 0]);
    let issuer = server.spec.upstream_authority.as_mut().unwrap().cert_manager.as_mut().unwrap();
    issuer.namespace = "certificates".to_owned();
    let said = prerequisites(&server, &settings(), PLAIN);
    assert!(said[0].starts_with("spec.upstreamAuthority.certManager.namespace is \"certificates\""), "{said:?}");
    assert!(!shown_all(&server).contains_key("Role spire-server-cert-manager"));
}

#[test]
fn the_controller_manager_never_spins() {
    let text = controller_manager::text(&sample("default"), &config(), &settings());
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["gcInterval"], 10_000_000_000_u64, "in nanoseconds");
}

#[test]
fn the_namespace_of_the_operands_is_never_ignored() {
    let ignored = |namespace: &str| {
        let settings = Settings { namespace: namespace.to_owned(), ..settings() };
        let text = controller_manager::text(&sample("default"), &config(), &settings);
        serde_json::from_str::<Value>(&text).unwrap()["ignoreNamespaces"].to_string()
    };
    assert!(ignored("spire").contains("^openshift-"));
    assert!(!ignored("openshift-spire").contains("openshift"));
}

fn hash_of(server: &SpireServer, config: &Config) -> String {
    let all = shown(objects(server, config, &settings(), &PLAIN, true).unwrap().iter());
    pod(&all)["metadata"]["annotations"]["ztwim.io/config-hash"].as_str().unwrap().to_owned()
}

#[test]
fn the_pods_are_replaced_exactly_when_what_they_read_changes() {
    let before = hash_of(&sample("default"), &config());
    let same = [
        json!({ "backup": { "keep": 1 } }),
        json!({ "persistence": { "deletionPolicy": "Delete" } }),
        json!({ "suspend": true }),
    ];
    for spec in same {
        assert_eq!(hash_of(&server(&spec), &config()), before, "{spec}");
    }
    let different = [
        json!({ "caValidity": "25h" }),
        json!({ "logLevel": "debug" }),
        json!({ "keyManager": { "diskEnabled": "false", "memoryEnabled": "true" } }),
    ];
    for spec in different {
        assert_ne!(hash_of(&server(&spec), &config()), before, "{spec}");
    }
    for config in [
        Config { trust_domain: "example.net".to_owned(), ..config() },
        Config { cluster_name: "staging".to_owned(), ..config() },
        Config { bundle_config_map: "trust".to_owned(), ..config() },
        Config { jwt_issuer: "https://issuer.example.org".to_owned(), ..config() },
    ] {
        assert_ne!(hash_of(&sample("default"), &config), before, "{config:?}");
    }
}

/// Any text that the API accepts where it says nothing about it.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[${}\"\\\\a-zA-Z_ =:@/.-]{0,40}"]
}

prop_compose! {
    fn any_spec()(
        name in any_text(),
        connection in any_text().prop_filter("it has at least one character", |text| !text.is_empty()),
        kind in prop::sample::select(vec!["sql", "sqlite3", "postgres", "mysql", "aws_postgresql", "aws_mysql"]),
        secret in any::<bool>(),
        tls in prop::option::of("[a-z]{0,5}"),
        seconds in 60_u32..10_000_000,
        domain in "[a-z0-9._-]{1,20}",
        federates in any::<bool>(),
        labels in prop::collection::btree_map("[a-z]{1,5}(/[a-z]{1,5})?", "[a-z]{0,5}", 0..3),
    ) -> Value {
        let mut spec = json!({
            "caSubject": { "commonName": name, "organization": name },
            "caValidity": format!("{seconds}s"),
            "datastore": { "databaseType": kind, "connectionString": connection, "tlsSecretName": tls },
            "labels": labels,
        });
        if secret {
            spec["datastore"]["connectionStringSecretRef"] = json!({ "name": "db", "key": "connection" });
        }
        if federates {
            let with = json!({ "trustDomain": domain, "bundleEndpointUrl": "https://b.example.com", "bundleEndpointProfile": "https_web" });
            spec["federation"] = json!({ "bundleEndpoint": { "profile": "https_spiffe" }, "federatesWith": [with] });
        }
        spec
    }
}

proptest! {
    #[test]
    fn whatever_is_asked_for_is_rendered_and_always_the_same(spec in any_spec()) {
        let server = server(&spec);
        let first = objects(&server, &config(), &settings(), &PLAIN, true).unwrap();
        prop_assert_eq!(&first, &objects(&server, &config(), &settings(), &PLAIN, true).unwrap());
        let text = conf(&server);
        let read: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&read["server"]["ca_ttl"], &json!(server.spec.ca_validity.to_string()));
        let variables = datastore::has_variables(&server.spec.datastore);
        prop_assert_eq!(text.contains('$'), variables, "{}", text);
        let all = shown(first.iter());
        prop_assert_eq!(pod(&all).to_string().contains("-expandEnv"), variables);
        prop_assert_eq!(&pod(&all)["metadata"]["labels"]["app.kubernetes.io/part-of"], "spire");
    }

    #[test]
    fn two_servers_have_the_same_hash_exactly_when_they_have_the_same_configuration(one in any_spec(), other in any_spec()) {
        let (one, other) = (server(&one), server(&other));
        prop_assert_eq!(hash_of(&one, &config()) == hash_of(&other, &config()), conf(&one) == conf(&other));
    }
}
