//! There is a verdict for every object, and a malformed field counts as missing.

use std::time::Duration;

use opcore::readiness::{self, Fence, Options, ReadinessState};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{NOW, at, object};

const FIXTURES: &[&str] = &[
    "apiservice",
    "certificate",
    "cluster",
    "configmap",
    "cronjob",
    "customresourcedefinition",
    "daemonset",
    "deployment",
    "externalsecret",
    "helmrelease",
    "horizontalpodautoscaler",
    "ingress",
    "job",
    "kustomization",
    "namespace",
    "persistentvolume",
    "persistentvolumeclaim",
    "pod",
    "poddisruptionbudget",
    "replicaset",
    "service",
    "statefulset",
    "widget",
];

#[test]
fn every_fixture_is_ready_and_none_is_left_out() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readiness/objects");
    let count = std::fs::read_dir(folder).expect("the fixtures").count();
    assert_eq!(count, FIXTURES.len());
    for name in FIXTURES {
        let verdict = object(name).verdict();
        assert!(verdict.is_ready(), "{name}: {verdict:?}");
    }
}

#[test]
fn strings_where_numbers_are_expected_count_as_missing() {
    object("deployment").but("status: {readyReplicas: '3'}").is_in_progress("TooFewReady");
    object("daemonset").but("status: {observedGeneration: '1'}").is_in_progress("GenerationNotObserved");
}

#[test]
fn arrays_where_objects_are_expected_count_as_missing() {
    object("deployment").but("status: [1, 2]").is_in_progress("GenerationNotObserved");
    object("widget").but("status: [1, 2]").is_in_progress("NoStatusYet");
    object("pod")
        .but("status: {phase: Pending, containerStatuses: {name: app}, conditions: [[], 7, null]}")
        .is_in_progress("PodPending");
}

#[test]
fn huge_numbers_neither_overflow_nor_count() {
    object("deployment").but("spec: {replicas: 9223372036854775807}").is_in_progress("TooFewReplicas");
    object("deployment").but("status: {readyReplicas: 18446744073709551615}").is_in_progress("TooFewReady");
    object("statefulset")
        .but(
            "spec: {replicas: -9223372036854775808, updateStrategy: {rollingUpdate: {partition: 9223372036854775807}}}",
        )
        .is_in_progress("TooManyReplicas");
}

/// Words that the rules check for, so that random objects reach the rules.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "True",
            "False",
            "Unknown",
            "Ready",
            "Stalled",
            "Reconciling",
            "Running",
            "Pending",
            "Failed",
            "Bound",
            "OnDelete",
            "on",
            "oci",
            "1",
            "2-x",
            "LoadBalancer",
            "Unschedulable",
            "PodScheduled",
            "Available",
            "Cluster in healthy state",
            NOW,
        ])
        .prop_map(str::to_owned),
        ".{0,12}",
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        9 => prop::sample::select(vec![
            "metadata", "spec", "status", "conditions", "type", "reason", "message", "phase",
            "generation", "observedGeneration", "deletionTimestamp", "finalizers", "annotations",
            "replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "suspend",
            "managedFields", "subresource", "time", "resourceVersion", "uid", "state", "waiting",
            "containerStatuses", "loadBalancer", "ingress", "ip", "clusterIP", "updateStrategy",
            "rollingUpdate", "partition", "lastTransitionTime", "lastAppliedRevision", "history",
            "lastAttemptedRevision", "syncedResourceVersion", "names", "acceptedNames", "instances",
        ])
        .prop_map(str::to_owned),
        1 => word(),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2_i64..5).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Replaces the node that `turn` leads to.
fn spoil(target: &mut Value, mut turns: std::slice::Iter<'_, usize>, with: Value) {
    let next = match (turns.next(), &mut *target) {
        (Some(turn), Value::Object(fields)) if !fields.is_empty() => {
            let index = turn % fields.len();
            fields.values_mut().nth(index)
        }
        (Some(turn), Value::Array(items)) if !items.is_empty() => {
            let index = turn % items.len();
            items.get_mut(index)
        }
        _ => None,
    };
    match next {
        Some(child) => spoil(child, turns, with),
        None => *target = with,
    }
}

fn options(fenced: Option<&Value>) -> Options {
    Options {
        load_balancer_address: true,
        ingress_address: true,
        unschedulable_grace: Duration::from_secs(15),
        fence: fenced.and_then(|applied| Fence::after(None, applied, at("2026-08-01T11:59:58Z"), readiness::SETTLE)),
        ..Options::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn any_json_gets_a_verdict(object in any_json(), other in any_json()) {
        let verdict = readiness::with(&object, &options(Some(&other)), at(NOW));
        prop_assert!(!verdict.reason.is_empty());
        prop_assert!(!verdict.message.is_empty());
    }

    #[test]
    fn any_object_of_a_known_kind_gets_a_verdict(
        name in prop::sample::select(FIXTURES),
        metadata in any_json(),
        spec in any_json(),
        status in any_json(),
    ) {
        let mut subject = object(name).object;
        let before = subject.clone();
        for (part, value) in [("metadata", metadata), ("spec", spec), ("status", status)] {
            subject[part] = value;
        }
        let verdict = readiness::with(&subject, &options(Some(&before)), at(NOW));
        prop_assert!(!verdict.reason.is_empty());
        readiness::of(&subject, at(NOW));
    }

    #[test]
    fn a_ready_object_with_one_spoiled_field_gets_a_verdict_with_a_valid_reason(
        name in prop::sample::select(FIXTURES),
        turns in prop::collection::vec(any::<usize>(), 1..7),
        with in any_json(),
    ) {
        let mut subject = object(name).object;
        spoil(&mut subject, turns.iter(), with);
        let verdict = readiness::of(&subject, at(NOW));
        prop_assert!(verdict.reason.starts_with(|first: char| first.is_ascii_alphabetic()), "{:?}", verdict);
        prop_assert!(verdict.message.chars().count() <= 1025);
    }

    #[test]
    fn no_status_makes_a_deleted_or_unobserved_object_ready(
        name in prop::sample::select(FIXTURES),
        status in any_json(),
    ) {
        let mut deleted = object(name).object;
        deleted["status"] = status.clone();
        deleted["metadata"]["deletionTimestamp"] = json!("2026-08-01T11:00:00Z");
        prop_assert_eq!(readiness::of(&deleted, at(NOW)).state, ReadinessState::Terminating);

        let mut unobserved = object(name).object;
        unobserved["status"] = status;
        if unobserved["status"].is_object() {
            unobserved["metadata"]["generation"] = json!(7);
            unobserved["status"]["observedGeneration"] = json!(6);
            prop_assert_eq!(readiness::of(&unobserved, at(NOW)).state, ReadinessState::InProgress);
        }
    }

    #[test]
    fn a_verdict_that_names_a_moment_is_in_progress_and_changes_at_that_moment(
        name in prop::sample::select(vec!["cluster", "apiservice", "pod"]),
        turns in prop::collection::vec(any::<usize>(), 2..7),
        with in any_json(),
    ) {
        let applied = object(name).but("metadata: {resourceVersion: '1001'}").object;
        let mut observed = applied.clone();
        spoil(&mut observed, turns.iter(), with);
        let options = options(Some(&applied));
        let verdict = readiness::with(&observed, &options, at(NOW));
        if let Some(moment) = verdict.recheck_at {
            prop_assert_eq!(verdict.state, ReadinessState::InProgress);
            prop_assert!(moment > at(NOW));
            prop_assert_ne!(readiness::with(&observed, &options, moment), verdict);
        }
    }
}
