//! The effects of a workspace, apart from what happens in its pods.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use opcore_testing::wait::eventually;
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{TerraformWorkspaceStatus, WorkspacePhase};
use terraform_runner_operator::render;
use terraform_runner_operator::slots::Limits;
use terraform_runner_operator::store::{self, Store};

use crate::stage::Stage;

fn text(secret: &Secret, key: &str) -> Option<String> {
    Some(String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).unwrap())
}

#[tokio::test]
async fn outputs_are_kept_in_order() {
    let stage = Stage::new("outputs").await;
    let running = stage.start();
    stage.write("net", json!({ "variables": { "size": { "a": [1, true] } } })).await;
    let workspace = stage.ready("net").await;
    let status = workspace.status.unwrap();
    let reported: Vec<(&str, bool)> =
        status.outputs.iter().map(|output| (output.name.as_str(), output.sensitive)).collect();
    assert_eq!(reported, [("key", true), ("size", false)]);
    let secrets = stage.of::<Secret>();
    let secret = secrets.get("net-outputs").await.unwrap();
    assert_eq!(text(&secret, "key").as_deref(), Some("hunter2"));
    assert_eq!(text(&secret, "size").as_deref(), Some(r#"{"a":[1,true]}"#), "what is no string is JSON");

    // Deleted by hand: it is recreated.
    secrets.delete("net-outputs", &DeleteParams::default()).await.unwrap();
    eventually(&secrets, "net-outputs", "back", |new| new.uid() != secret.uid()).await;

    // Another name, fewer outputs: the old Secret is deleted.
    stage.write("net", json!({ "variables": { "size": { "a": [1, true] } }, "outputs": { "secretName": "mine", "include": ["size"] } })).await;
    let mine = eventually(&secrets, "mine", "there", |_| true).await;
    assert_eq!((text(&mine, "key"), text(&mine, "size").is_some()), (None, true));
    opcore_testing::wait::gone(
        &secrets,
        "net-outputs",
        &secrets.get("net-outputs").await.map(|s| s.uid().unwrap()).unwrap_or_default(),
    )
    .await;
    assert_eq!(stage.names::<Job>().await.len(), 1, "none of this took a run");
    running.stop().await;
}

#[tokio::test]
async fn there_are_no_more_versions_of_a_state_than_its_history_says() {
    let stage = Stage::new("versions").await;
    let running = stage.start();
    let spec = |size: i32| json!({ "variables": { "size": size }, "history": { "states": 2 } });
    let mut workspace = stage.write("net", spec(1)).await;
    for size in 2..6 {
        stage.ready("net").await;
        workspace = stage.write("net", spec(size)).await;
    }
    stage.ready("net").await;
    let names = render::names(&workspace);
    let is_chunk = |name: &String| names.place_of(name).is_some();
    let until_tidy = async {
        loop {
            let kept: Vec<String> = stage.names::<Secret>().await.into_iter().filter(is_chunk).collect();
            if kept.len() == 2 {
                return kept;
            }
            tokio::task::yield_now().await;
        }
    };
    let kept = tokio::time::timeout(crate::stage::PATIENCE, until_tidy).await.expect("one of three goes");
    let store = Store::new(stage.client.clone(), &stage.namespace, names.clone());
    let index = store::state::read_index(&store).await.unwrap().index;
    assert_eq!(index.versions.len(), 2);
    for version in &index.versions {
        assert!(kept.contains(&names.state_chunk(version.place, 0)), "{kept:?}");
        store::state::load(&store, version).await.unwrap();
    }
    running.stop().await;
}

#[tokio::test]
async fn a_secret_of_someone_else_is_not_taken_for_outputs() {
    let stage = Stage::new("foreign").await;
    let running = stage.start();
    let theirs: Secret =
        serde_json::from_value(json!({ "metadata": { "name": "net-outputs" }, "stringData": { "a": "b" } })).unwrap();
    stage.of::<Secret>().create(&PostParams::default(), &theirs).await.unwrap();
    stage.write("net", json!({})).await;
    let message = stage.says("net", "ExistsUnowned").await;
    let status = stage.workspaces().get("net").await.unwrap().status.unwrap();
    assert_eq!(status.phase, WorkspacePhase::Failed, "the column says what the condition says");
    assert!(message.contains("net-outputs"), "{message}");
    assert_eq!(text(&stage.of::<Secret>().get("net-outputs").await.unwrap(), "a").as_deref(), Some("b"));
    running.stop().await;
}

#[tokio::test]
async fn a_pod_gets_no_token_but_for_its_store_which_may_do_only_what_it_needs_by_name() {
    let stage = Stage::new("rights").await;
    // The API server itself checks whether the pod is restricted enough.
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(stage.client.clone());
    let enforce = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    namespaces.patch(&stage.namespace, &PatchParams::default(), &Patch::Merge(&enforce)).await.unwrap();
    let running = stage.start();
    stage.write("net", json!({ "engine": { "image": "mine" } })).await;
    stage.ready("net").await;
    let pods = stage.of::<Pod>();
    let job = stage.names::<Job>().await.remove(0);
    let mut pod = None;
    while pod.is_none() {
        pod = pods.list(&ListParams::default().labels(&format!("job-name={job}"))).await.unwrap().items.pop();
        tokio::task::yield_now().await;
    }
    let spec = pod.unwrap().spec.unwrap();
    assert_eq!(spec.automount_service_account_token, Some(false));
    let mounts = |name: &str| -> Vec<String> {
        let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let container = all.into_iter().find(|container| container.name == name).unwrap();
        container.volume_mounts.iter().flatten().map(|mount| mount.name.clone()).collect()
    };
    assert_eq!(mounts("store"), ["token"]);
    assert_eq!(mounts("terraform"), ["inputs", "work", "tmp", "tools"]);
    assert_eq!(mounts("install"), ["tools"]);

    let role = stage.of::<Role>().list(&ListParams::default()).await.unwrap().items.remove(0);
    for rule in role.rules.unwrap() {
        let names = rule.resource_names.unwrap();
        assert!(!names.is_empty() && names.iter().all(|name| name.starts_with(&job[..job.len() - 2])), "{names:?}");
        assert_eq!(rule.verbs, ["create", "get", "patch", "update"]);
    }
    stage.delete("net").await;
    assert_eq!(stage.names::<Job>().await, [""; 0]);
    // Owned objects are deleted with their owner.
    let owned = async {
        loop {
            let (roles, bindings) = (stage.names::<Role>().await, stage.names::<RoleBinding>().await);
            let (secrets, accounts) = (stage.names::<Secret>().await, stage.names::<ServiceAccount>().await);
            if roles.is_empty() && bindings.is_empty() && secrets.is_empty() && accounts == ["default"] {
                break;
            }
        }
    };
    tokio::time::timeout(crate::stage::PATIENCE, owned).await.expect("rights go with the workspace");
    running.stop().await;
}

#[tokio::test]
async fn a_config_map_that_comes_later_is_picked_up_and_one_that_changes_is_applied() {
    let stage = Stage::new("sources").await;
    let running = stage.start();
    stage.write("net", json!({ "module": { "configMapRef": { "name": "module" } } })).await;
    let message = stage.says("net", "InputNotFound").await;
    assert_eq!(message, "spec.module.configMapRef: ConfigMap module does not exist.");
    let maps = stage.of::<ConfigMap>();
    let map = |text: &str| -> ConfigMap {
        serde_json::from_value(json!({ "metadata": { "name": "module" }, "data": { "main.tf": text } })).unwrap()
    };
    maps.create(&PostParams::default(), &map("# one")).await.unwrap();
    let first = stage.ready("net").await.status.unwrap().last_applied.unwrap().hash;
    maps.patch("module", &PatchParams::default(), &Patch::Merge(&map("# two"))).await.unwrap();
    stage
        .until("net", "applied again", |status| {
            status.last_applied.as_ref().is_some_and(|applied| applied.hash != first)
        })
        .await;
    running.stop().await;
}

#[tokio::test]
async fn dependencies_are_applied_first_and_destroyed_last_and_circles_are_reported() {
    let stage = Stage::new("depends").await;
    let running = stage.start();
    let from = json!([{ "secretRef": { "name": "net-outputs" }, "keys": ["size"] }]);
    stage.write("app", json!({ "dependsOn": [{ "name": "net" }], "variablesFrom": from })).await;
    // An object that cannot be parsed is no dependency.
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let _ = stage.try_write("deep", json!({ "variables": { "deep": deep } })).await;
    stage.workspaces().get_metadata("deep").await.unwrap();
    let message = stage.says("app", "DependencyNotReady").await;
    assert!(message.contains("net, which does not exist"), "{message}");
    stage.write("net", json!({})).await;
    stage.ready("app").await;
    stage.workspaces().delete("net", &DeleteParams::default()).await.unwrap();
    let message = stage.says("net", "TeardownBlocked").await;
    assert!(message.contains("TerraformWorkspace app"), "{message}");
    stage.delete("app").await;
    let uid = stage.workspaces().get_opt("net").await.unwrap().and_then(|net| net.uid()).unwrap_or_default();
    crate::stage::gone(&stage.workspaces(), "net", &uid).await;

    for (name, other) in [("a", "b"), ("b", "c"), ("c", "a"), ("x", "y"), ("y", "x")] {
        stage.write(name, json!({ "dependsOn": [{ "name": other }] })).await;
    }
    for (name, circle) in [("c", "c → a → b → c"), ("x", "x → y → x")] {
        let message = stage.says(name, "DependencyCycle").await;
        assert!(message.contains(circle), "{message}");
    }
    // No workspace of a cycle is first: each can still be deleted.
    for name in ["a", "b", "c", "x", "y"] {
        stage.delete(name).await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_state_is_adopted_the_moment_its_workspace_is_gone() {
    let stage = Stage::new("heirs").await;
    let running = stage.start();
    stage.write("old", json!({ "deletionPolicy": "Retain" })).await;
    let secret = stage.ready("old").await.status.unwrap().state.unwrap().secret;
    let adopt = json!({ "managed": { "adopt": { "secretRef": { "name": secret } } } });
    stage.write("heir", json!({ "backend": adopt })).await;
    let message = stage.says("heir", "InputNotFound").await;
    assert!(message.contains("TerraformWorkspace old, which still exists"), "{message}");
    stage.delete("old").await;
    let heir = stage.ready("heir").await;
    assert_eq!(heir.status.unwrap().run.unwrap().adopts.as_deref(), Some(secret.as_str()));

    stage.write("twin", json!({ "backend": adopt })).await;
    let message = stage.says("twin", "InputNotFound").await;
    assert!(message.contains("TerraformWorkspace heir also refers to"), "{message}");
    stage.write("heir", json!({ "backend": { "managed": {} } })).await;
    stage.ready("twin").await;
    running.stop().await;
}

#[tokio::test]
async fn a_workspace_goes_the_moment_nobody_depends_on_it_any_more() {
    let stage = Stage::new("depends").await;
    let running = stage.start();
    stage.write("net", json!({})).await;
    stage.write("app", json!({ "dependsOn": [{ "name": "net" }] })).await;
    let uid = stage.ready("net").await.uid().unwrap();
    stage.ready("app").await;
    stage.workspaces().delete("net", &DeleteParams::default()).await.unwrap();
    stage.says("net", "TeardownBlocked").await;
    stage.write("app", json!({})).await;
    crate::stage::gone(&stage.workspaces(), "net", &uid).await;
    running.stop().await;
}

#[tokio::test]
async fn a_job_that_is_refused_is_reported_holds_up_nobody_and_does_not_keep_its_workspace() {
    let stage = Stage::new("refused").await;
    let running = stage.start_on(stage.config.clone(), Limits { runs: 1, share: 1, checks: 1 });
    let toleration = json!([{ "key": "no such key!", "operator": "Exists" }]);
    let template = json!({ "podTemplate": { "spec": { "tolerations": toleration } } });
    stage.write("odd", json!({ "runner": template })).await;
    let message = stage.says("odd", "Invalid").await;
    assert!(message.contains("tolerations"), "{message}");
    // There is one turn, and it is free.
    stage.write("net", json!({})).await;
    stage.ready("net").await;
    stage.delete("odd").await;
    running.stop().await;
}

#[tokio::test]
async fn no_more_run_at_a_time_than_may_and_all_have_their_turn() {
    let stage = Stage::new("turns").await;
    let running = stage.start_on(stage.config.clone(), Limits { runs: 2, share: 2, checks: 1 });
    for name in ["a", "b"] {
        stage.write(name, json!({ "variables": { "outcome": "Silence" } })).await;
    }
    for name in ["a", "b"] {
        stage.until(name, "applying", |status| status.run.as_ref().is_some_and(|run| run.job_uid.is_some())).await;
    }
    for number in 0..8 {
        stage.write(&format!("w{number}"), json!({})).await;
    }
    stage.says("w7", "WaitingForTurn").await;
    assert_eq!(stage.names::<Job>().await.len(), 2);
    // One run ends because its Job is deleted; the other workspaces then share one turn.
    let lost = stage.workspaces().get("a").await.unwrap().status.unwrap().run.unwrap().job;
    stage.write("a", json!({ "suspend": true, "variables": { "outcome": "Silence" } })).await;
    stage.of::<Job>().delete(&lost, &DeleteParams::background()).await.unwrap();
    for number in 0..8 {
        stage.ready(&format!("w{number}")).await;
    }
    running.stop().await;
}

#[tokio::test]
async fn one_namespace_does_not_have_all_turns() {
    let (stage, other) = (Stage::new("greedy").await, Stage::new("modest").await);
    let namespaces = [stage.namespace.as_str(), other.namespace.as_str()];
    let limits = Limits { runs: 2, share: 1, checks: 1 };
    let running = crate::stage::start_in(&namespaces, stage.config.clone(), limits);
    for name in ["a", "b", "c"] {
        stage.write(name, json!({ "variables": { "outcome": "Silence" } })).await;
    }
    let waits = async {
        // Their order is not defined.
        loop {
            let all = stage.workspaces().list(&ListParams::default()).await.unwrap().items;
            let waits =
                |status: &TerraformWorkspaceStatus| status.conditions.iter().any(|c| c.reason == "WaitingForTurn");
            if all.iter().filter(|workspace| workspace.status.as_ref().is_some_and(waits)).count() == 2 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::stage::PATIENCE, waits).await.expect("two of three wait");
    other.write("net", json!({})).await;
    other.ready("net").await;
    assert_eq!(stage.names::<Job>().await.len(), 1);
    running.stop().await;
}

#[tokio::test]
async fn a_timeout_that_is_too_long_is_reported_with_field_and_remedy() {
    let stage = Stage::new("patience").await;
    let running = stage.start();
    stage.write("net", json!({ "timeouts": { "apply": "100h" } })).await;
    let message = stage.says("net", "InvalidSpec").await;
    assert!(message.starts_with("spec.timeouts.apply: ") && message.contains("runs.maxTimeouts.apply"), "{message}");
    stage.write("net", json!({ "timeouts": { "apply": "1h" } })).await;
    stage.ready("net").await;
    running.stop().await;
}

#[tokio::test]
async fn a_failed_run_is_reported_once_with_file_and_line_and_a_suspended_workspace_stands_still() {
    let stage = Stage::new("failing").await;
    let running = stage.start();
    stage.write("net", json!({ "variables": { "outcome": "Failed" } })).await;
    let message = stage.says("net", "RunFailed").await;
    assert!(message.contains("It cannot be (main.tf:1)") && message.contains("It is retried"), "{message}");
    stage.annotate("net", "infra.opr8r/suspended", "true").await;
    let workspace = stage.until("net", "suspended", |status| status.phase == WorkspacePhase::Suspended).await;
    assert!(workspace.status.unwrap().begun_inputs.is_none(), "it failed before anything was applied");
    stage.delete("net").await;
    running.stop().await;
}
