//! Invalid plans: rejected by the API server if it can detect the error, otherwise by the operator, with the place and
//! the remedy.

use wave_orchestrator::api::v1alpha1::PlanPhase;

use crate::stage::{Stage, map, words};

#[tokio::test]
async fn bad_specs_are_refused_at_admission_with_the_remedy() {
    let stage = Stage::new("admit").await;
    let wave = |rest: &str| format!("waves: [{{name: a, members: [{}], {rest}}}]", map("a"));
    let member = |member: &str| format!("waves: [{{name: a, members: [{member}]}}]");
    let cases = [
        (wave("dependsOn: [{wave: b}]"), "depends on a wave that is not in spec.waves"),
        (wave("dependsOn: [{wave: a}]"), "depends on itself"),
        (format!("waves: [{{name: a, members: [{0}]}}, {{name: a, members: [{0}]}}]", map("a")), "Duplicate value"),
        ("waves: []".to_owned(), "should have at least 1 items"),
        ("waves: [{name: a}]".to_owned(), "a wave needs members, hooks, healthChecks or probes"),
        (wave("timeout: soon"), "should match"),
        (wave("timeout: 5"), "must be of type string"),
        (format!("resync: 0s\n{}", wave("timeout: 5s")), "resync must be at least 10s"),
        (format!("profiles: {{test: {{resync: 9s999ms}}}}\n{}", wave("timeout: 5s")), "resync must be at least 10s"),
        (wave("onFailure: Explode"), "supported values"),
        ("waves: [{name: Core, probes: [{tcp: {host: h, port: 1}}]}]".to_owned(), "should match"),
        (member("{}"), "set exactly one of ref and manifests"),
        (
            member("{ref: {apiVersion: v1, kind: Pod, name: p}, manifests: {inline: x}}"),
            "exactly one of ref and manifests",
        ),
        (member("{manifests: {}}"), "exactly one of inline and configMapRef"),
        (member("{mode: Nudge, manifests: {inline: x}}"), "mode can only be set together with ref"),
        (member("{mode: Gate, ref: {apiVersion: v1, kind: Pod, name: p}}"), "are only for Flux Kustomizations"),
        (format!("profile: production\nwaves: [{{name: a, members: [{}]}}]", map("a")), "not in spec.profiles"),
        (wave("probes: [{}]"), "exactly one of http and tcp"),
        (wave("probes: [{http: {url: \"ftp://x\"}}]"), "should match"),
        (
            wave("healthChecks: [{target: {apiVersion: v1, kind: Pod}, ready: \"true\"}]"),
            "exactly one of name and selector",
        ),
        (wave("depndsOn: []"), "unknown field"),
    ];
    for (spec, words) in cases {
        let answer = stage.kubectl_create(&spec).await;
        assert!(answer.contains(words), "{spec}: {answer}");
    }
}

#[tokio::test]
async fn what_only_the_operator_can_detect_stalls_the_plan_with_the_place() {
    let one = |wave: &str| format!("waves: [{{name: one, {wave}}}]");
    let cases = [
        (
            format!(
                "waves: [{{name: a, dependsOn: [{{wave: c}}], members: [{}]}}, {{name: b, dependsOn: [{{wave: a}}], members: [{}]}}, {{name: c, dependsOn: [{{wave: b}}], members: [{}]}}]",
                map("x"),
                map("y"),
                map("z")
            ),
            "spec.waves: these waves wait for each other: a → c → b → a; remove one of the dependencies.",
        ),
        (
            one(
                "healthChecks: [{target: {apiVersion: v1, kind: Pod, namespace: NS, name: p}, ready: \"status.phase ==\"}]",
            ),
            "Wave one: healthChecks[0].ready does not compile: 1:16",
        ),
        (
            one("members: [{name: base, manifests: {inline: \"kind: ConfigMap\\ndata: [1\"}}]"),
            "Wave one: member base: inline, line 2: this is not YAML",
        ),
    ];
    for (spec, place) in cases {
        let stage = Stage::new("stalled").await;
        stage.plan(&spec).await;
        let plan = stage.until("stalled", |plan| words(plan).0 == "InvalidSpec").await;
        let status = plan.status.as_ref().unwrap();
        let stalled = opcore::conditions::find(&status.conditions, opcore::conditions::STALLED).unwrap();
        assert!(stalled.status == "True" && stalled.message.contains(place), "{stalled:?}");
        assert_eq!(status.phase, Some(PlanPhase::Invalid));
        assert_eq!(stage.applied().await, [""; 0]);
    }
}
