#![allow(clippy::needless_pass_by_value, reason = "a spec is written where it is used")]

use serde_json::{Value, json};

use super::super::testing::{OPENSHIFT, PLAIN, is_consistent, of_kind, operand, placed, settings, values, yaml};
use super::*;

fn rendered(spec: Value, platform: Platform) -> Objects {
    let objects = objects(&operand::<SpiffeCSIDriver>(&spec), &settings(), &platform).unwrap();
    is_consistent(&objects);
    objects
}

fn everything() -> Value {
    placed(json!({ "agentSocketPath": "/var/run/identity", "pluginName": "identity.example.org" }))
}

#[test]
fn goldens() {
    insta::assert_snapshot!("default", yaml(&rendered(json!({}), PLAIN)));
    insta::assert_snapshot!("everything", yaml(&rendered(everything(), PLAIN)));
    insta::assert_snapshot!("openshift", yaml(&rendered(json!({}), OPENSHIFT)));
}

#[test]
fn the_driver_is_called_as_the_spec_says_wherever_it_is_named() {
    let objects = rendered(everything(), PLAIN);
    assert_eq!(of_kind(&objects, "CSIDriver")["metadata"]["name"], "identity.example.org");
    let pod = of_kind(&objects, "DaemonSet")["spec"]["template"]["spec"].clone();
    let text = pod.to_string();
    assert!(!text.contains("csi.spiffe.io"), "{text}");
    assert_eq!(pod["containers"][0]["args"][3], "identity.example.org");
    assert_eq!(pod["containers"][1]["args"][3], "/var/lib/kubelet/plugins/identity.example.org/csi.sock");
}

#[test]
fn what_must_not_go_before_the_pods_that_use_it_has_no_owner_reference() {
    for value in values(&rendered(json!({}), OPENSHIFT)) {
        let owners = value["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
        let in_order = value["kind"] == "DaemonSet" || value["kind"] == "CSIDriver";
        assert_eq!(owners, usize::from(!in_order), "{value}");
    }
}

#[test]
fn restricted_pods_of_openshift_may_use_it() {
    let labels = of_kind(&rendered(everything(), OPENSHIFT), "CSIDriver")["metadata"]["labels"].clone();
    assert_eq!(labels["security.openshift.io/csi-ephemeral-volume-profile"], "restricted");
    assert_eq!(labels["team"], "identity");
}

#[test]
fn rendering_again_changes_nothing() {
    for platform in [PLAIN, OPENSHIFT] {
        assert_eq!(rendered(everything(), platform), rendered(everything(), platform));
    }
}
