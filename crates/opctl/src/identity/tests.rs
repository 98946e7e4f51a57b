//! The output for sample stacks and statuses.

use std::process::ExitCode;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use lifecycle_operator::api::v1alpha1::{
    OperandKind, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer,
};
use lifecycle_operator::operand::Peer;
use opcore::finalizer::OnExpiry;
use serde::Deserialize;
use serde_json::{Value, json};

use super::plan::{Found, Plan};
use super::restore::{VolumeState, Wanted, steps, volume_state};
use super::stack::{Stack, View};
use super::{backup, force, status};
use crate::output::Paint;

const STACK: &str = include_str!("../../tests/statuses/identity.yaml");
const READY: &str = include_str!("../../tests/statuses/identity-ready.yaml");
const DELETING: &str = include_str!("../../tests/statuses/identity-deleting.yaml");

/// Ten minutes past twelve.
fn view() -> View {
    View { now: "2026-01-01T12:10:00Z".parse().unwrap(), paint: Paint::PLAIN }
}

/// A stack as it would be read, with these statuses, after a change of its objects as JSON.
fn changed(statuses: Option<&str>, change: impl Fn(&str, &mut Value)) -> Stack {
    let statuses: Value = statuses.map(|text| serde_yaml::from_str(text).unwrap()).unwrap_or_default();
    let mut stack = Stack::default();
    for document in serde_yaml::Deserializer::from_str(STACK) {
        let mut object = Value::deserialize(document).unwrap();
        let kind = object["kind"].as_str().unwrap().to_owned();
        object["metadata"]["uid"] = json!(format!("uid of {kind}"));
        object["metadata"]["generation"] = json!(1);
        object["metadata"]["creationTimestamp"] = json!("2026-01-01T09:00:00Z");
        if kind == "ZeroTrustWorkloadIdentityManager" {
            object["metadata"]["finalizers"] = json!(["ztwim.io/operand-lifecycle"]);
        } else {
            let parent = "ZeroTrustWorkloadIdentityManager";
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "operator.openshift.io/v1alpha1", "kind": parent, "name": "cluster",
                "uid": format!("uid of {parent}"), "controller": true, "blockOwnerDeletion": true,
            }]);
        }
        if let Some(status) = statuses.get(&kind) {
            object["status"] = status.clone();
        }
        change(&kind, &mut object);
        if object.is_null() {
            continue;
        }
        match kind.as_str() {
            "SpireServer" => stack.operands.push(peer::<SpireServer>(object)),
            "SpireAgent" => stack.operands.push(peer::<SpireAgent>(object)),
            "SpiffeCSIDriver" => stack.operands.push(peer::<SpiffeCSIDriver>(object)),
            "SpireOIDCDiscoveryProvider" => stack.operands.push(peer::<SpireOIDCDiscoveryProvider>(object)),
            _ => stack.parent = Some(serde_json::from_value(object).unwrap()),
        }
    }
    stack
}

fn peer<K: lifecycle_operator::operand::Operand>(object: Value) -> Peer {
    Peer::of(&serde_json::from_value::<K>(object).unwrap()).unwrap()
}

fn stack(statuses: &str) -> Stack {
    changed(Some(statuses), |_, _| {})
}

/// The stack of which the parent and the driver are being deleted, and the provider is gone.
fn deleting() -> Stack {
    changed(Some(DELETING), |kind, object| match kind {
        "SpireOIDCDiscoveryProvider" => *object = Value::Null,
        "SpiffeCSIDriver" => {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:09:10Z");
            object["metadata"]["finalizers"] = json!(["ztwim.io/spiffe-csi-cleanup"]);
        }
        "ZeroTrustWorkloadIdentityManager" => {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:09:00Z");
        }
        _ => {}
    })
}

fn page(stack: &Stack) -> String {
    status::page(stack, &view()).join("\n")
}

fn condition(reason: &str, message: &str) -> Value {
    json!({ "type": "Ready", "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T12:00:00Z" })
}

#[test]
fn a_stack_that_runs_shows_its_operands_its_config_with_where_it_is_from_and_its_backup() {
    let stack = stack(READY);
    insta::assert_snapshot!(page(&stack));
    assert!(!stack.needs_help());
    assert_eq!(status::outcome(&stack), Some(ExitCode::SUCCESS));
}

#[test]
fn a_stack_that_no_operator_has_seen_says_so() {
    let text = page(&changed(None, |_, _| {}));
    let words = "The operator has not reconciled it yet: is lifecycle-operator running?";
    assert!(text.starts_with(&format!("ZeroTrustWorkloadIdentityManager cluster   Unknown\n{words}\n")), "{text}");
    assert!(
        text.contains("SpireAgent                   False   Unknown   3h10m   the operator has not reconciled"),
        "{text}"
    );
}

#[test]
fn a_deletion_shows_each_step_how_long_it_has_taken_who_blocks_it_and_how_to_go_on() {
    let stack = deleting();
    insta::assert_snapshot!(page(&stack));
    assert!(stack.is_overdue());
    assert_eq!(status::outcome(&stack), None, "it keeps trying");
}

#[test]
fn following_a_deletion_ends_when_it_is_gone_or_stops_until_someone_gives_a_step_up() {
    let mut stack = deleting();
    stack.parent.as_mut().unwrap().spec.teardown.on_expiry = OnExpiry::Manual;
    assert_eq!(status::outcome(&stack), Some(ExitCode::FAILURE));
    assert_eq!(status::outcome(&Stack::default()), Some(ExitCode::SUCCESS));
    assert_eq!(page(&Stack::default()), "The stack is gone.");
}

#[test]
fn a_migration_shows_its_phase_and_the_work_on_the_volume() {
    let stack = changed(Some(READY), |kind, object| match kind {
        "ZeroTrustWorkloadIdentityManager" => {
            let message = "Migrating from trust domain example.org to example.com.";
            object["status"]["conditions"] = json!([condition("Migrating", message)]);
            object["status"]["migration"] = json!({
                "from": "example.org", "to": "example.com", "phase": "BackingUp", "startedAt": "2026-01-01T12:08:00Z",
                "backup": "migration-20260101-120800",
            });
        }
        "SpireServer" => {
            object["status"]["volume"]["work"] = json!({
                "kind": "Backup", "backup": "migration-20260101-120800", "startedAt": "2026-01-01T12:09:00Z",
                "message": "The server's pod is still there.",
            });
        }
        _ => {}
    });
    let text = page(&stack);
    let words = "Migration  BackingUp, for 2m: Migrating from trust domain example.org to example.com: the data of the old \
                 trust domain is being backed up. Backup of the old data: migration-20260101-120800.\n";
    assert!(text.contains(words), "{text}");
    let words = "Volume     Backup migration-20260101-120800, for 1m: The server's pod is still there.\n";
    assert!(text.contains(words), "{text}");
    assert_eq!(status::outcome(&stack), None);
}

#[test]
fn a_conflict_names_both_objects_and_both_values_and_fails() {
    let stack = changed(Some(READY), |kind, object| {
        if kind == "SpireAgent" {
            object["spec"]["clusterName"] = json!("staging");
        }
    });
    let text = page(&stack);
    let words = "Conflict   spec.clusterName of ZeroTrustWorkloadIdentityManager cluster is \"production\", but \
                 spec.clusterName of SpireAgent cluster is \"staging\".";
    assert!(text.contains(words), "{text}");
    assert!(stack.needs_help());
}

#[test]
fn a_spec_that_changed_since_is_said_and_not_taken_for_ready() {
    let stack = changed(Some(READY), |kind, object| {
        if kind == "SpireServer" || kind == "ZeroTrustWorkloadIdentityManager" {
            object["metadata"]["generation"] = json!(2);
        }
    });
    let text = page(&stack);
    assert!(text.contains("The spec has changed, and the operator has not reconciled the change yet."), "{text}");
    assert!(
        text.contains("SpireServer                  False   Running   3h10m   the spec has changed since"),
        "{text}"
    );
    assert_eq!(status::outcome(&stack), None);
}

#[test]
fn what_only_finalizers_of_others_hold_is_named() {
    let stack = changed(Some(READY), |kind, object| {
        if kind == "SpireAgent" {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:09:00Z");
            object["metadata"]["finalizers"] = json!(["example.com/audit"]);
        }
    });
    let words = "Held       SpireAgent cluster is held only by finalizers of others, example.com/audit: whoever set them must \
                 remove them";
    assert!(page(&stack).contains(words), "{}", page(&stack));
}

#[test]
fn a_log_gets_a_line_for_each_object_whose_state_changed() {
    let (before, after) = (stack(READY), deleting());
    let first = status::news(&before, None, &view());
    assert_eq!(first.len(), 5, "{first:#?}");
    assert_eq!(status::news(&before, Some(&before), &view()), [] as [&str; 0]);
    insta::assert_snapshot!(status::news(&after, Some(&before), &view()).join("\n"));
    let gone = status::news(&Stack::default(), Some(&after), &view());
    assert_eq!(gone, ["2026-01-01T12:10:00Z  The stack is gone."]);
}

fn pod(namespace: &str, name: &str, component: Option<&str>) -> Pod {
    let labels = component
        .map(|component| json!({ "app.kubernetes.io/part-of": "spire", "app.kubernetes.io/component": component }));
    let pod = json!({ "metadata": { "name": name, "namespace": namespace, "labels": labels } });
    serde_json::from_value(pod).unwrap()
}

fn claim(name: &str, phase: &str) -> PersistentVolumeClaim {
    let claim = json!({ "metadata": { "name": name, "namespace": "spire" }, "status": { "phase": phase } });
    serde_json::from_value(claim).unwrap()
}

fn found() -> Found {
    let provider = pod("spire", "spire-oidc-7d4f9-x2x4x", Some("discovery"));
    Found {
        pods: vec![
            provider.clone(),
            pod("spire", "spire-agent-b8kzq", Some("node-agent")),
            pod("spire", "spire-server-0", Some("control-plane")),
        ],
        users: vec![pod("shop", "web", None), provider],
        claims: vec![claim("spire-data-spire-server-0", "Bound"), claim("spire-backups", "Bound")],
    }
}

fn planned(stack: &Stack, found: &Found, only: Option<OperandKind>) -> String {
    Plan::of(stack, found, only).unwrap().text(&view()).join("\n")
}

#[test]
fn a_plan_shows_the_steps_in_order_what_blocks_them_and_what_stays() {
    insta::assert_snapshot!(planned(&stack(READY), &found(), None));
}

#[test]
fn a_plan_for_one_operand_says_that_its_parent_creates_it_again_and_who_runs_on_without_it() {
    insta::assert_snapshot!(planned(&stack(READY), &found(), Some(OperandKind::SpireServer)));
}

#[test]
fn the_driver_alone_is_blocked_by_the_provider_too_which_goes_first_with_the_whole_stack() {
    let text = planned(&stack(READY), &found(), Some(OperandKind::SpiffeCSIDriver));
    assert!(text.contains("Blocked by  Pod spire/spire-oidc-7d4f9-x2x4x uses the CSI driver\n"), "{text}");
    assert!(text.contains("Blocked by  Pod shop/web uses the CSI driver\n"), "{text}");
    assert!(!text.contains("others"), "nothing goes before it: {text}");
    let text = planned(&stack(READY), &found(), None);
    assert!(!text.contains("x2x4x uses the CSI driver"), "{text}");
}

#[test]
fn a_volume_that_is_to_be_deleted_without_a_backup_blocks() {
    let delete = |on_delete: bool| {
        changed(Some(READY), move |kind, object| {
            if kind == "SpireServer" {
                object["spec"]["persistence"] = json!({ "deletionPolicy": "Delete" });
                object["spec"]["backup"] = json!({ "onDelete": on_delete });
            }
        })
    };
    let text = planned(&delete(false), &found(), Some(OperandKind::SpireServer));
    let words = "Blocked by  PersistentVolumeClaim spire/spire-data-spire-server-0 is to be deleted, and only with a verified \
                 backup: set spec.backup.onDelete of SpireServer cluster to true, or spec.persistence.deletionPolicy to \
                 Retain\n";
    assert!(text.contains(words), "{text}");
    let text = planned(&delete(true), &found(), Some(OperandKind::SpireServer));
    let words =
        "Note        PersistentVolumeClaim spire/spire-data-spire-server-0 is deleted, after its backup was verified.";
    assert!(text.contains(words), "{text}");
}

#[test]
fn a_plan_for_what_does_not_exist_says_what_does() {
    let refused = |stack: &Stack, only| Plan::of(stack, &found(), only).unwrap_err().to_string();
    let words = "There is no SpireOIDCDiscoveryProvider cluster: there is nothing to delete.";
    assert_eq!(refused(&deleting(), Some(OperandKind::SpireOIDCDiscoveryProvider)), words);
    let mut alone = stack(READY);
    alone.parent = None;
    let words =
        "There is no ZeroTrustWorkloadIdentityManager cluster: name an operand, one of server, agent, csi, oidc.";
    assert_eq!(refused(&alone, None), words);
}

/// The driver of the deletion.
fn driver(change: impl Fn(&mut Value)) -> SpiffeCSIDriver {
    let peer = deleting().operand(OperandKind::SpiffeCSIDriver).unwrap().clone();
    let mut object = json!({ "apiVersion": "operator.openshift.io/v1alpha1", "kind": "SpiffeCSIDriver", "metadata": peer.meta, "spec": peer.spec, "status": peer.status });
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

#[test]
fn only_a_step_that_is_stuck_is_given_up() {
    let kind = Some(OperandKind::SpiffeCSIDriver);
    let refused = |step, driver: &SpiffeCSIDriver| force::chosen(driver, kind, step).unwrap_err().to_string();
    let stuck = driver(|_| {});
    let names = |step| -> Vec<String> {
        force::chosen(&stuck, kind, step).unwrap().into_iter().map(|step| step.name).collect()
    };
    assert_eq!(names(Some("volumes")), ["volumes"]);
    assert_eq!(names(None), ["volumes", "driver", "registration", "objects"]);
    assert_eq!(
        refused(Some("nope"), &stuck),
        "The teardown of SpiffeCSIDriver cluster has no step nope: it has others, volumes, driver, registration, objects."
    );
    assert_eq!(
        refused(Some("driver"), &stuck),
        "Step driver of SpiffeCSIDriver cluster has not begun, it is after volumes: give up volumes first."
    );
    assert_eq!(
        refused(Some("others"), &stuck),
        "Step others of SpiffeCSIDriver cluster is done: there is nothing to give up."
    );
    let active = driver(|object| object["metadata"]["deletionTimestamp"] = Value::Null);
    assert_eq!(
        refused(None, &active),
        "SpiffeCSIDriver cluster is not being deleted: there is nothing to give up; opctl identity teardown plan csi shows \
         what a deletion would do."
    );
    let unheard = driver(|object| object["status"]["teardown"] = Value::Null);
    assert_eq!(
        refused(None, &unheard),
        "The operator has not begun the teardown of SpiffeCSIDriver cluster: is lifecycle-operator running?"
    );
}

#[test]
fn before_a_step_is_given_up_it_is_said_what_may_be_left_behind() {
    let kind = Some(OperandKind::SpiffeCSIDriver);
    let steps = force::chosen(&driver(|_| {}), kind, None).unwrap();
    insta::assert_snapshot!(force::words("SpiffeCSIDriver cluster", kind, &steps).join("\n"));
    let parent = deleting().parent.unwrap();
    let steps = force::chosen(&parent, None, Some("csi")).unwrap();
    let said = force::words("ZeroTrustWorkloadIdentityManager cluster", None, &steps).join("\n");
    assert!(
        said.contains("): SpiffeCSIDriver cluster, and all that belongs to it; its own teardown goes on"),
        "{said}"
    );
}

fn server(change: impl Fn(&mut Value)) -> SpireServer {
    let peer = stack(READY).operand(OperandKind::SpireServer).unwrap().clone();
    let mut object = json!({ "apiVersion": "operator.openshift.io/v1alpha1", "kind": "SpireServer", "metadata": peer.meta, "spec": peer.spec, "status": peer.status });
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_backup_is_asked_for_only_where_the_operator_would_make_it() {
    let stack = stack(READY);
    let refused = |server: &SpireServer| backup::possible(&stack, server).unwrap_err().to_string();
    assert!(backup::possible(&stack, &server(|_| {})).is_ok());
    let deleted = server(|object| object["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:09:00Z"));
    assert!(
        refused(&deleted).starts_with("SpireServer cluster is being deleted: its teardown makes a backup by itself")
    );
    let suspended = server(|object| object["spec"]["suspend"] = json!(true));
    assert_eq!(refused(&suspended), "SpireServer cluster is suspended by its spec: set spec.suspend to false.");
    let new = server(|object| object["status"]["volume"] = Value::Null);
    assert!(refused(&new).starts_with("SpireServer cluster has no volume yet: there is nothing to back up"));
    let busy = server(|object| {
        object["status"]["volume"]["work"] =
            json!({ "kind": "Restore", "backup": "a", "startedAt": "2026-01-01T12:09:00Z" });
    });
    assert_eq!(refused(&busy), "Backup a is being restored: try again when that is done.");
    let migrating = changed(Some(READY), |kind, object| {
        if kind == "ZeroTrustWorkloadIdentityManager" {
            object["status"]["migration"] =
                json!({ "from": "a", "to": "b", "phase": "Clearing", "startedAt": "2026-01-01T12:09:00Z" });
        }
    });
    let refused = backup::possible(&migrating, &server(|_| {})).unwrap_err().to_string();
    assert!(
        refused.starts_with("ZeroTrustWorkloadIdentityManager cluster is being migrated to trust domain b"),
        "{refused}"
    );
}

#[test]
fn a_backup_is_shown_with_its_name_files_size_and_checksum() {
    let backup = stack(READY).volume().unwrap().last_backup.clone().unwrap();
    insta::assert_snapshot!(backup::words(&backup, &view()).join("\n"));
    let empty = lifecycle_operator::api::v1alpha1::Backup { files: 0, bytes: 0, ..backup };
    assert_eq!(backup::words(&empty, &view()), ["The volume is empty: there was nothing to back up."]);
}

const WANTED: Wanted<'static> = Wanted { name: "manual-20260101-100000", claim: "spire-backups" };

#[test]
fn a_backup_is_restored_only_where_there_is_no_data() {
    let claims = found().claims;
    let stands =
        |server: Option<&SpireServer>, claims: &[PersistentVolumeClaim]| volume_state(server, claims, WANTED).unwrap();
    let occupied = |words: &str| VolumeState::Occupied(words.to_owned());
    let used = server(|_| {});
    assert_eq!(stands(Some(&used), &claims), occupied("SpireServer cluster has data"));
    let restored = server(|object| object["status"]["volume"]["restored"] = json!("manual-20260101-100000"));
    assert_eq!(stands(Some(&restored), &claims), VolumeState::Restored);
    let other = server(|object| object["status"]["volume"]["restored"] = json!("another"));
    assert_eq!(stands(Some(&other), &claims), occupied("SpireServer cluster has data, from backup another"));

    let new = server(|object| object["status"] = Value::Null);
    let words = "PersistentVolumeClaim spire/spire-data-spire-server-0 may hold data of an earlier server";
    assert_eq!(stands(Some(&new), &claims), occupied(words));
    assert_eq!(stands(None, &claims), occupied(words));
    let empty = [claim("spire-data-spire-server-0", "Pending"), claim("spire-backups", "Bound")];
    assert_eq!(stands(Some(&new), &empty), VolumeState::Empty);

    let refused = volume_state(Some(&new), &[], WANTED).unwrap_err().to_string();
    assert_eq!(
        refused,
        "There is no PersistentVolumeClaim spire-backups: name the one that holds the backup with --claim."
    );
    let deleted = server(|object| object["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:09:00Z"));
    let refused = volume_state(Some(&deleted), &empty, WANTED).unwrap_err().to_string();
    assert!(refused.starts_with("SpireServer cluster is being deleted: wait until it is gone"), "{refused}");
}

#[test]
fn where_there_is_data_it_is_said_what_has_to_be_done_in_order() {
    let stack = stack(READY);
    let server = server(|_| {});
    let lines = steps(Some(&server), stack.parent.as_ref(), Some("spire"), &found().claims, WANTED);
    insta::assert_snapshot!(lines.join("\n"));
    let lines = steps(None, None, Some("spire"), &found().claims, WANTED).join("\n");
    assert!(
        !lines.contains("delete spireserver") && lines.contains("  2. create the server from the backup:"),
        "{lines}"
    );
}

#[test]
fn the_page_about_it_shows_what_it_prints() {
    let page_of_docs = include_str!("../../../../docs/opctl.md");
    let backup = stack(READY).volume().unwrap().last_backup.clone().unwrap();
    for shown in [
        page(&stack(READY)),
        page(&deleting()),
        planned(&stack(READY), &found(), None),
        backup::words(&backup, &view()).join("\n"),
    ] {
        let indented: Vec<String> =
            shown.lines().map(|line| if line.is_empty() { String::new() } else { format!("    {line}") }).collect();
        let indented = indented.join("\n");
        assert!(page_of_docs.contains(&indented), "docs/opctl.md does not show:\n{indented}");
    }
}
