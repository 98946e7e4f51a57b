//! What the chart grants is what the operator uses, or hands on to the operands: no less, and no more.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{ListParams, ObjectMeta, PostParams, PropagationPolicy};
use lifecycle_operator::api::v1alpha1::{BACKUP_ANNOTATION, SpireServer, ZeroTrustWorkloadIdentityManager as Ztwim};
use opcore::Context;
use opcore_testing::chart::{as_account, grant};
use serde_json::json;

use crate::operator::{NAME, Running, settings};
use crate::stage::Scene;

/// Verb and resource, such as `patch spireservers.operator.openshift.io/status`.
type Rights = BTreeSet<String>;

/// What only some clusters have, or ask for.
const ELSEWHERE: [&str; 5] = [
    "httproutes.gateway.networking.k8s.io",
    "route.openshift.io",
    "securitycontextconstraints.security.openshift.io",
    "certificaterequests.cert-manager.io",
    "/finalizers",
];

#[tokio::test]
async fn a_stack_lives_and_goes_with_the_rights_that_the_chart_grants_and_none_of_them_is_idle() {
    let scene = Scene::new().await;
    let home = format!("home-of-{}", scene.namespace);
    let metadata = ObjectMeta { name: Some(home.clone()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    scene.all::<Namespace>().create(&PostParams::default(), &namespace).await.unwrap();
    let operands = format!("operands.namespace.create=false,operands.namespace.name={}", scene.namespace);
    grant(&scene.client, NAME, &home, &["rbac.aggregate=false", &operands]).await;
    let start = |policies: bool| {
        Running::start(as_account(&scene.proxy.config(), NAME, &home), settings(&scene.namespace), policies)
    };

    let operator = start(true);
    let parent = json!({ "trustDomain": "example.org" });
    scene.stack_with(parent, json!({ "persistence": { "deletionPolicy": "Delete" } })).await;
    let handed_on = handed_on(&scene).await;
    let ask = json!({ "metadata": { "annotations": { BACKUP_ANNOTATION: "now" } } });
    scene.patch::<SpireServer>(ask).await.unwrap();
    let is_backed_up = |server: &SpireServer| {
        let volume = server.status.as_ref().and_then(|status| status.volume.as_ref());
        volume.is_some_and(|volume| volume.backup_request.as_deref() == Some("now") && volume.work.is_none())
    };
    scene.until("backed up", is_backed_up).await;
    scene.ready::<Ztwim>().await;
    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    scene.all_gone().await;
    let (mut used, mut refused) = requests(&operator.context);
    operator.stop().await;

    // One that was told to leave the policies out removes those of its predecessor.
    let operator = start(false);
    let policies = scene.all::<ValidatingAdmissionPolicy>();
    let are_gone = async || policies.list_metadata(&ListParams::default()).await.unwrap().items.is_empty();
    scene.comes("the policies are gone", are_gone).await;
    let (by_the_other, refused_to_it) = requests(&operator.context);
    operator.stop().await;
    used.extend(by_the_other);
    refused.extend(refused_to_it);

    assert!(refused.is_empty(), "the chart grants too little: {refused:?}");
    let cluster: ClusterRole = scene.all().get(&format!("{home}:{NAME}")).await.unwrap();
    let role: Role = scene.of().get(&format!("{NAME}-watched")).await.unwrap();
    let mut idle = rights(cluster.rules.into_iter().chain(role.rules).flatten());
    // An apply that brings something into being is a patch, for which the API server also asks the right to create. A
    // command begins with a get, which newer API servers also take for a create.
    let is_used = |right: &str| {
        let (verb, resource) = right.split_once(' ').unwrap();
        let counts_as: &[&str] = match verb {
            "create" => &["create", "patch", "connect"],
            "get" => &["get", "connect"],
            other => &[other],
        };
        counts_as.iter().any(|verb| used.contains(&format!("{verb} {resource}")))
    };
    // Whether an object is read anew, and an Event told twice, depends on how quickly one thing follows the other.
    let by_chance = |right: &str| right.starts_with("get ") || right.contains("events");
    // There is no such kind here, so that there is nothing to watch.
    idle.remove("watch ownershipcontracts.opcore.dev");
    idle.retain(|right| !is_used(right) && !handed_on.contains(right) && !by_chance(right));
    idle.retain(|right| !ELSEWHERE.iter().any(|elsewhere| right.contains(elsewhere)));
    assert!(idle.is_empty(), "the chart grants what nobody uses: {idle:#?}; used: {used:#?}");
}

/// What the operator gives to the operands, and must hold itself for that.
async fn handed_on(scene: &Scene) -> Rights {
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=spire");
    let cluster = scene.all::<ClusterRole>().list(&ours).await.unwrap().items;
    let own = scene.of::<Role>().list(&ours).await.unwrap().items;
    let rules = cluster.into_iter().filter_map(|role| role.rules);
    rights(rules.chain(own.into_iter().filter_map(|role| role.rules)).flatten())
}

fn rights(rules: impl IntoIterator<Item = PolicyRule>) -> Rights {
    let mut all = Rights::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            let dot = if group.is_empty() { "" } else { "." };
            for resource in rule.resources.iter().flatten() {
                let (name, subresource) = resource.split_at(resource.find('/').unwrap_or(resource.len()));
                all.extend(rule.verbs.iter().map(|verb| format!("{verb} {name}{dot}{group}{subresource}")));
            }
        }
    }
    all
}

/// What the operator asked for, and what it was refused, as its metrics count it.
fn requests(context: &Context) -> (Rights, Rights) {
    let (mut used, mut refused) = (Rights::new(), Rights::new());
    for family in context.metrics().registry().gather() {
        if family.name() != "opcore_api_requests_total" {
            continue;
        }
        for metric in family.get_metric() {
            let label = |name: &str| {
                let label = metric.get_label().iter().find(|label| label.name() == name).unwrap();
                label.value().to_owned()
            };
            let right = format!("{} {}", label("verb"), label("resource"));
            if label("code") == "403" {
                refused.insert(right);
            } else {
                used.insert(right);
            }
        }
    }
    assert!(!used.is_empty());
    (used, refused)
}
