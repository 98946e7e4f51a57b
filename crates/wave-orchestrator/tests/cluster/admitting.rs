//! What the API server itself refuses, with words that name the field and the cure.

use crate::stage::{Stage, map};

#[tokio::test]
async fn bad_specs_are_refused_at_admission_with_the_cure() {
    let stage = Stage::new("admit").await;
    let wave = |rest: &str| format!("waves: [{{name: a, members: [{}], {rest}}}]", map("a"));
    let member = |member: &str| format!("waves: [{{name: a, members: [{member}]}}]");
    let cases = [
        (wave("dependsOn: [{wave: b}]"), "depends on one that is not in spec.waves"),
        (wave("dependsOn: [{wave: a}]"), "depends on itself"),
        (format!("waves: [{{name: a, members: [{0}]}}, {{name: a, members: [{0}]}}]", map("a")), "Duplicate value"),
        ("waves: []".to_owned(), "should have at least 1 items"),
        ("waves: [{name: a}]".to_owned(), "a wave needs members, hooks, healthChecks or probes"),
        (wave("timeout: soon"), "should match"),
        (wave("timeout: 5"), "must be of type string"),
        (wave("onFailure: Explode"), "supported values"),
        ("waves: [{name: Core, probes: [{tcp: {host: h, port: 1}}]}]".to_owned(), "should match"),
        (member("{}"), "a member has either ref or manifests"),
        (member("{ref: {apiVersion: v1, kind: Pod, name: p}, manifests: {inline: x}}"), "either ref or manifests"),
        (member("{manifests: {}}"), "either inline or from configMapRef"),
        (member("{mode: Nudge, manifests: {inline: x}}"), "mode goes with ref"),
        (member("{mode: Gate, ref: {apiVersion: v1, kind: Pod, name: p}}"), "are for Flux Kustomizations"),
        (format!("profile: production\nwaves: [{{name: a, members: [{}]}}]", map("a")), "not in spec.profiles"),
        (wave("probes: [{}]"), "either http or tcp"),
        (wave("probes: [{http: {url: \"ftp://x\"}}]"), "should match"),
        (wave("healthChecks: [{target: {apiVersion: v1, kind: Pod}, ready: \"true\"}]"), "either name or selector"),
        (wave("depndsOn: []"), "unknown field"),
    ];
    for (spec, words) in cases {
        let answer = stage.kubectl_create(&spec).await;
        assert!(answer.contains(words), "{spec}: {answer}");
    }
}
