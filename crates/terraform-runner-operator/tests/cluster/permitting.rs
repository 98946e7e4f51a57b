//! The chart grants exactly what the operator uses or passes on to the pods of runs.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use opcore::ownership::{OPERATOR_LABEL, OWNER_ANNOTATION, OWNER_LABEL};
use opcore_testing::chart::{account, as_account, grant};
use opcore_testing::running::{Running, Settings};
use sandbox::{Options, Sandbox};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{SimpleResource, WorkspacePhase};
use terraform_runner_operator::controller::Workspaces;
use terraform_runner_operator::render::{self, OPERATOR};
use terraform_runner_operator::slots::Limits;
use terraform_runner_operator::typed::TypedKind;

use crate::stage::{Stage, eventually, gone};

/// Verb, group and resource, such as `patch infra.opr8r/terraformworkspaces/status`.
type Rights = BTreeSet<String>;

/// The operator with the rights of the ServiceAccount that the chart creates in this namespace.
fn start(stage: &Stage, home: &str, namespaces: &[&str]) -> [Running; 2] {
    let config = as_account(&stage.config, OPERATOR, home);
    let authors = render::Authors { own_modules: true, ..render::Authors::default() };
    let runs = render::Settings { authors, ..render::Settings::new("runner", "Never") };
    let workspaces = |context: &opcore::Context| Workspaces::new(runs, Limits::default()).measured(context.metrics());
    [
        Running::start(OPERATOR, config.clone(), namespaces, Settings::default(), workspaces),
        Running::start(OPERATOR, config, namespaces, Settings::default(), |_| TypedKind::<SimpleResource>::default()),
    ]
}

#[tokio::test]
async fn the_rights_that_the_chart_grants_are_those_that_are_used_or_handed_on() {
    let sandbox = Sandbox::start(Options { audit: true, ..Options::default() }).await.unwrap();
    let stage = Stage::on(&sandbox, "rights").await;
    let home = sandbox.namespace("home").await.unwrap();
    grant(&stage.client, OPERATOR, &home, &["rbac.aggregate=false"]).await;
    let running = start(&stage, &home, &[]);

    Box::pin(everything_it_can_do(&stage)).await;
    let handed_on = handed_on(&stage).await;
    assert!(!handed_on.is_empty());
    leave(&stage).await;
    let named =
        |text: &str| text.lines().any(|line| line.starts_with("opcore_terraform_workspace") && line.contains("net"));
    running[0].until("nothing is measured of a workspace that is gone", |text| !named(text)).await;

    let (used, refused) = requests(&std::fs::read_to_string(sandbox.audit_log().unwrap()).unwrap(), &home);
    assert!(refused.is_empty(), "the chart grants too little: {refused:?}");
    let role: ClusterRole = Api::all(stage.client.clone()).get(&format!("{home}:{OPERATOR}")).await.unwrap();
    let mut idle = rights(role.rules.unwrap());
    // An apply that creates an object is a patch for which the API server also requires the right to create.
    let applied = |right: &str| used.contains(&right.replacen("create ", "patch ", 1));
    // Whether an object is read again, and an Event is emitted twice, depends on timing.
    let by_chance = |right: &str| right == "get infra.opr8r/simpleresources" || right.contains("events");
    // This kind is not installed here, so there is nothing to watch.
    idle.remove("watch opcore.dev/ownershipcontracts");
    idle.retain(|right| !used.contains(right) && !applied(right) && !handed_on.contains(right) && !by_chance(right));
    assert!(idle.is_empty(), "the chart grants what nobody used: {idle:?}; used: {used:?}");
    for running in running {
        running.stop().await;
    }
}

#[tokio::test]
async fn with_watched_namespaces_it_works_there_and_has_no_rights_elsewhere() {
    let sandbox = Sandbox::shared().await.unwrap();
    let (stage, elsewhere) = (Stage::new("watched").await, Stage::new("elsewhere").await);
    let home = sandbox.namespace("home").await.unwrap();
    grant(&stage.client, OPERATOR, &home, &[&format!("rbac.aggregate=false,watchNamespaces={{{}}}", stage.namespace)])
        .await;
    let running = start(&stage, &home, &[&stage.namespace]);
    elsewhere.write("net", json!({})).await;
    stage.write("net", json!({})).await;
    stage.ready("net").await;
    leave(&stage).await;
    assert!(elsewhere.workspaces().get("net").await.unwrap().status.is_none(), "it is none of its business");
    for running in running {
        running.stop().await;
    }
}

/// Uses every function: an input that is created late, a plan that is approved, a comparison, an abandoned lock,
/// another name for the outputs, and a typed resource.
async fn everything_it_can_do(stage: &Stage) {
    stage.write("net", json!({ "module": { "configMapRef": { "name": "module" } }, "approval": "Manual" })).await;
    stage.says("net", "InputNotFound").await;
    let module = json!({ "metadata": { "name": "module" }, "data": { "main.tf": "" } });
    let module: ConfigMap = serde_json::from_value(module).unwrap();
    stage.of::<ConfigMap>().create(&PostParams::default(), &module).await.unwrap();
    let waiting = |phase: WorkspacePhase| phase == WorkspacePhase::AwaitingApproval;
    let planned = stage.until("net", "planned", |status| waiting(status.phase)).await;
    stage.annotate("net", "infra.opr8r/approve", &planned.status.unwrap().plan.unwrap().id).await;
    stage.ready("net").await;
    let spec = json!({
        "module": { "configMapRef": { "name": "module" } }, "drift": { "interval": "1s", "action": "Report" },
        "outputs": { "secretName": "mine" },
    });
    stage.write("net", spec).await;
    let checked = |number: i64| {
        move |status: &terraform_runner_operator::api::v1alpha1::TerraformWorkspaceStatus| {
            status.history.iter().any(|record| record.number > number && record.action.word() == "check")
        }
    };
    stage.until("net", "compared", checked(0)).await;

    // A pod that is gone held the lock, and the lock has expired.
    let workspace = stage.workspaces().get("net").await.unwrap();
    let names = render::names(&workspace);
    let lease = json!({
        "metadata": {
            "name": names.lease(),
            "labels": { OPERATOR_LABEL: OPERATOR, OWNER_LABEL: workspace.uid() },
            "annotations": { OWNER_ANNOTATION: format!("TerraformWorkspace/{}/net", stage.namespace) },
        },
        "spec": { "holderIdentity": "gone", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z" },
    });
    let lease: Lease = serde_json::from_value(lease).unwrap();
    let lease = stage.of::<Lease>().create(&PostParams::default(), &lease).await.unwrap();
    stage.write("net", json!({ "variables": { "size": 2 } })).await;
    gone(&stage.of::<Lease>(), &names.lease(), &lease.uid().unwrap()).await;
    stage.ready("net").await;

    let simple = json!({
        "apiVersion": "infra.opr8r/v1alpha1", "kind": "SimpleResource",
        "metadata": { "name": "simple" }, "spec": { "length": 8 },
    });
    let simple: SimpleResource = serde_json::from_value(simple).unwrap();
    let resources = stage.of::<SimpleResource>();
    resources.create(&PostParams::default(), &simple).await.unwrap();
    let is_ready = |simple: &SimpleResource| {
        simple.status.as_ref().is_some_and(|status| opcore::conditions::is_true(&status.conditions, "Ready"))
    };
    let simple = eventually(&resources, "simple", "ready", is_ready).await;
    resources.delete("simple", &DeleteParams::default()).await.unwrap();
    gone(&resources, "simple", &simple.uid().unwrap()).await;
}

async fn leave(stage: &Stage) {
    stage.delete("net").await;
}

/// The rights that the operator grants to the pods of a run, and must therefore have itself.
async fn handed_on(stage: &Stage) -> Rights {
    let roles = stage.of::<Role>().list(&ListParams::default()).await.unwrap();
    rights(roles.items.into_iter().filter_map(|role| role.rules).flatten().collect())
}

fn rights(rules: Vec<PolicyRule>) -> Rights {
    let mut all = Rights::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                all.extend(rule.verbs.iter().map(|verb| right(verb, group, resource)));
            }
        }
    }
    all
}

fn right(verb: &str, group: &str, resource: &str) -> String {
    format!("{verb} {}/{resource}", if group.is_empty() { "core" } else { group })
}

/// The requests of the operator, and those that were refused.
fn requests(audit_log: &str, home: &str) -> (Rights, Rights) {
    let (mut used, mut refused) = (Rights::new(), Rights::new());
    // The last line may be incomplete.
    for request in audit_log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if request["impersonatedUser"]["username"] != account(OPERATOR, home).as_str() {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let about = &request["objectRef"];
        let resource = match text(&about["subresource"]) {
            none if none.is_empty() => text(&about["resource"]),
            subresource => format!("{}/{subresource}", text(&about["resource"])),
        };
        let right = right(&text(&request["verb"]), &text(&about["apiGroup"]), &resource);
        if request["annotations"]["authorization.k8s.io/decision"] == "allow" {
            used.insert(right);
        } else {
            refused.insert(format!("{right}: {request}"));
        }
    }
    assert!(!used.is_empty(), "no request of {} is in the audit log", account(OPERATOR, home));
    (used, refused)
}
