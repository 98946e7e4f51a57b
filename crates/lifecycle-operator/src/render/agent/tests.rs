#![allow(clippy::needless_pass_by_value, reason = "a spec is written where it is used")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::testing::{
    OPENSHIFT, PLAIN, config, file, hash, is_consistent, of_kind, operand, settings, values, yaml,
};
use super::*;

fn rendered(spec: Value, platform: Platform) -> Objects {
    objects(&operand::<SpireAgent>(&spec), &config(), &settings(), &platform).unwrap()
}

fn verified(kind: &str, file: Option<(&str, &str)>) -> Value {
    let mut verification = json!({ "type": kind });
    if let Some((directory, name)) = file {
        verification["hostCertBasePath"] = json!(directory);
        verification["hostCertFileName"] = json!(name);
    }
    json!({ "workloadAttestors": { "workloadAttestorsVerification": verification } })
}

/// Manifests, by the names of their files. Real SPIRE reads what becomes of them: see `tests/spire`.
macro_rules! samples {
    ($($name:literal),+ $(,)?) => { [$(($name, include_str!(concat!("samples/", $name, ".yaml")))),+] };
}

const SAMPLES: [(&str, &str); 6] =
    samples!["default", "everything", "not-verified", "upstream", "users-only", "verified-by-a-file"];

/// The spec of a manifest.
fn sample(name: &str) -> Value {
    let (_, text) = SAMPLES.iter().find(|(known, _)| *known == name).unwrap();
    serde_yaml::from_str::<Value>(text).unwrap()["spec"].clone()
}

/// All that a spec may say.
fn everything() -> Value {
    sample("everything")
}

#[test]
fn an_agent_that_says_nothing_has_these_objects() {
    insta::assert_snapshot!(yaml(&rendered(sample("default"), PLAIN)));
}

#[test]
fn an_agent_that_says_everything_has_these_objects() {
    insta::assert_snapshot!(yaml(&rendered(everything(), PLAIN)));
}

#[test]
fn on_openshift_an_agent_has_these_objects() {
    insta::assert_snapshot!(yaml(&rendered(sample("upstream"), OPENSHIFT)));
}

#[test]
fn these_pods_remove_what_an_agent_left() {
    let agent = operand::<SpireAgent>(&everything());
    insta::assert_snapshot!(serde_yaml::to_string(&cleanup(&agent, &settings(), &PLAIN)).unwrap());
}

#[test]
fn each_way_to_attest_workloads_has_this_configuration() {
    for (name, _) in SAMPLES {
        insta::assert_snapshot!(name, file(&rendered(sample(name), PLAIN)));
    }
}

/// What the attestor of workloads is told, and how the kubelet is reached.
fn kubelet(spec: Value, platform: Platform) -> (Value, String) {
    let objects = rendered(spec, platform);
    let file: Value = serde_json::from_str(&file(&objects)).unwrap();
    let data = file["plugins"]["WorkloadAttestor"][0]["k8s"]["plugin_data"].clone();
    let env = &of_kind(&objects, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["env"];
    assert_eq!(env[0]["name"], data["node_name_env"]);
    (data, env[0]["valueFrom"]["fieldRef"]["fieldPath"].as_str().unwrap().to_owned())
}

#[test]
fn a_kubelet_that_is_not_verified_is_reached_by_its_address() {
    for spec in [json!({}), json!({ "workloadAttestors": {} }), verified("skip", Some(("/etc/pki", "ca.crt")))] {
        let (data, host) = kubelet(spec, PLAIN);
        assert_eq!(data["skip_kubelet_verification"], true);
        assert_eq!(data["kubelet_ca_path"], Value::Null);
        assert_eq!(host, "status.hostIP");
    }
}

#[test]
fn a_kubelet_is_verified_by_the_ca_of_the_cluster_unless_a_file_is_named() {
    let (data, host) = kubelet(verified("auto", None), PLAIN);
    assert_eq!(data["skip_kubelet_verification"], false);
    // SPIRE's default is the CA of the cluster.
    assert_eq!(data["kubelet_ca_path"], Value::Null);
    assert_eq!(host, "status.hostIP");
}

#[test]
fn a_file_on_the_node_verifies_the_kubelet_by_the_name_of_the_node() {
    for kind in ["auto", "hostCert"] {
        let spec = verified(kind, Some(("/var/lib/kubelet/pki", "kubelet.crt")));
        let (data, host) = kubelet(spec.clone(), PLAIN);
        assert_eq!(data["skip_kubelet_verification"], false);
        assert_eq!(data["kubelet_ca_path"], "/run/spire/kubelet-ca/kubelet.crt");
        assert_eq!(host, "spec.nodeName");
        let pod = of_kind(&rendered(spec, PLAIN), "DaemonSet")["spec"]["template"]["spec"].clone();
        let volumes = pod["volumes"].as_array().unwrap();
        let ca = volumes.iter().find(|volume| volume["name"] == "kubelet-ca").unwrap();
        assert_eq!(ca["hostPath"], json!({ "path": "/var/lib/kubelet/pki", "type": "Directory" }));
    }
}

#[test]
fn on_openshift_the_ca_of_kubelets_is_the_one_of_openshift() {
    let (data, host) = kubelet(verified("auto", None), OPENSHIFT);
    assert_eq!(
        (data["kubelet_ca_path"].as_str(), host.as_str()),
        (Some("/run/spire/kubelet-ca/kubelet-ca.crt"), "spec.nodeName")
    );
    let (data, _) = kubelet(verified("auto", Some(("/etc/pki", "mine.crt"))), OPENSHIFT);
    assert_eq!(data["kubelet_ca_path"], "/run/spire/kubelet-ca/mine.crt");
    let (data, _) = kubelet(json!({}), OPENSHIFT);
    assert_eq!(data["skip_kubelet_verification"], true);
}

#[test]
fn an_agent_that_does_not_attest_by_pods_still_starts() {
    let objects = rendered(json!({ "workloadAttestors": { "k8sEnabled": "false" } }), PLAIN);
    let file: Value = serde_json::from_str(&file(&objects)).unwrap();
    assert_eq!(file["plugins"]["WorkloadAttestor"], json!([{ "unix": { "plugin_data": {} } }]));
}

#[test]
fn an_agent_may_ask_kubelets_for_pods_and_nothing_else() {
    let role = of_kind(&rendered(json!({}), PLAIN), "ClusterRole");
    assert_eq!(role["rules"], json!([{ "apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"] }]));
}

#[test]
fn workloads_have_no_owner_reference_and_everything_else_has_one() {
    for value in values(&rendered(json!({}), OPENSHIFT)) {
        let owners = value["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
        assert_eq!(owners, usize::from(value["kind"] != "DaemonSet"), "{value}");
    }
}

#[test]
fn sockets_are_removed_before_a_pod_counts_as_ready_on_the_nodes_of_the_agent() {
    let agent = operand::<SpireAgent>(&everything());
    let cleanup = serde_json::to_value(cleanup(&agent, &settings(), &PLAIN)).unwrap();
    let pod = &cleanup["spec"]["template"]["spec"];
    let agent = of_kind(&rendered(everything(), PLAIN), "DaemonSet")["spec"]["template"]["spec"].clone();
    for field in ["nodeSelector", "tolerations", "affinity"] {
        assert_eq!(pod[field], agent[field], "{field}");
    }
    let directory = |pod: &Value| {
        let volumes = pod["volumes"].as_array().unwrap().clone();
        volumes.into_iter().find(|volume| volume["name"] == "sockets").unwrap()
    };
    assert_eq!(directory(pod), directory(&agent));
    assert_eq!(pod["initContainers"][0]["args"], json!(["sockets", "--directory", "/tmp/spire-agent/public"]));
    assert_eq!(
        pod["containers"][0]["args"],
        json!(["sockets", "--directory", "/tmp/spire-agent/public", "--then-wait"])
    );
    // The account goes with the agent, and pods of an account that is gone are not created.
    assert_eq!(pod["serviceAccountName"], Value::Null);
    assert!(cleanup["metadata"]["ownerReferences"].is_null());
}

prop_compose! {
    fn any_spec()(
        log_level in prop::sample::select(vec!["debug", "info", "warn", "error"]),
        log_format in prop::sample::select(vec!["text", "json"]),
        attestors in prop::option::of((any::<bool>(), any::<bool>(), any::<bool>())),
        verification in prop::option::of((prop::sample::select(vec!["auto", "hostCert", "skip"]), "(/[a-z]{1,5}){1,3}", "[a-z.]{1,8}")),
        socket in "(/[a-z]{1,5}){1,3}",
        label in "[a-z]{0,5}",
    ) -> Value {
        let mut spec = json!({ "logLevel": log_level, "logFormat": log_format, "socketPath": socket, "labels": { "a": label } });
        if let Some((k8s, selectors, locator)) = attestors {
            spec["workloadAttestors"] = json!({
                "k8sEnabled": k8s.to_string(),
                "disableContainerSelectors": selectors.to_string(),
                "useNewContainerLocator": locator.to_string(),
            });
            if let Some((kind, directory, file)) = verification {
                spec["workloadAttestors"]["workloadAttestorsVerification"] =
                    json!({ "type": kind, "hostCertBasePath": directory, "hostCertFileName": file });
            }
        }
        spec
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_spec_is_rendered_always_in_the_same_way(spec in any_spec(), openshift: bool) {
        let platform = if openshift { OPENSHIFT } else { PLAIN };
        let once = rendered(spec.clone(), platform);
        is_consistent(&once);
        prop_assert_eq!(once, rendered(spec, platform));
    }

    #[test]
    fn pods_are_replaced_exactly_when_their_configuration_changes(one in any_spec(), other in any_spec()) {
        let (one, other) = (rendered(one, PLAIN), rendered(other, PLAIN));
        prop_assert_eq!(file(&one) == file(&other), hash(&one, "DaemonSet") == hash(&other, "DaemonSet"));
    }

    #[test]
    fn another_issuer_does_not_concern_the_agent(spec in any_spec(), issuer in "https://[a-z]{1,9}") {
        let agent = operand::<SpireAgent>(&spec);
        let other = Config { jwt_issuer: issuer, ..config() };
        let render = |config: &Config| objects(&agent, config, &settings(), &PLAIN).unwrap();
        prop_assert_eq!(render(&config()), render(&other));
    }
}

#[test]
fn another_trust_domain_or_cluster_replaces_the_pods() {
    let agent = operand::<SpireAgent>(&json!({}));
    let render = |config: Config| hash(&objects(&agent, &config, &settings(), &PLAIN).unwrap(), "DaemonSet");
    let hashes = [
        render(config()),
        render(Config { trust_domain: "other.org".to_owned(), ..config() }),
        render(Config { cluster_name: "other".to_owned(), ..config() }),
    ];
    assert_eq!(hashes.iter().collect::<BTreeSet<_>>().len(), 3);
}
