//! The parent: it creates operands, hands its config down, takes over what it has none of, and changes nothing while
//! values contradict each other.

use opcore::Next;
use serde_json::json;

use super::{UID, applied, at, cluster, condition, decider, parent, ready, said, unready, writes};
use crate::api::v1alpha1::OperandKind::{SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer};
use crate::api::v1alpha1::ZeroTrustWorkloadIdentityManager as Ztwim;
use crate::decide::stack;
use crate::observe::Observed;

const PARENT: &str = "
apiVersion: operator.openshift.io/v1alpha1
kind: ZeroTrustWorkloadIdentityManager
metadata: { name: cluster, generation: 1, creationTimestamp: '2027-01-15T08:00:00Z' }
spec: { trustDomain: new.io, clusterName: c }
";

/// An operand that was written by a person, with these fields.
fn by_hand(kind: &str, spec: &str, fields: &str) -> String {
    format!(
        "---
apiVersion: operator.openshift.io/v1alpha1
kind: {kind}
metadata:
  name: cluster
  managedFields:
  - {{ manager: kubectl, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {{ 'f:spec': {{ {fields} }} }} }}
spec: {{ {spec} }}
"
    )
}

/// An operand of the parent, whose trust domain the parent has set.
fn inheriting(kind: &str, trust_domain: &str) -> String {
    format!(
        "---
apiVersion: operator.openshift.io/v1alpha1
kind: {kind}
metadata:
  name: cluster
  labels: {{ opcore.dev/operator: lifecycle-operator, opcore.dev/owner-uid: {UID} }}
  annotations: {{ ztwim.io/inherited: trustDomain, opcore.dev/owner: ZeroTrustWorkloadIdentityManager/cluster }}
  ownerReferences:
  - {{ apiVersion: operator.openshift.io/v1alpha1, kind: ZeroTrustWorkloadIdentityManager, name: cluster, uid: {UID}, controller: true, blockOwnerDeletion: true }}
  managedFields:
  - {{ manager: lifecycle-operator, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {{ 'f:spec': {{ 'f:trustDomain': {{}} }} }} }}
spec: {{ trustDomain: {trust_domain} }}
"
    )
}

fn keep(yaml: &str, seconds: i64) -> opcore::Decision<Ztwim> {
    let observed: Observed = cluster(yaml);
    stack::keep(&parent(&observed), &observed, &decider(), at(seconds))
}

#[test]
fn manifests_that_are_applied_together_have_arrived_before_an_operand_is_created() {
    let early = keep(PARENT, 2);
    assert_eq!(writes(&early), [""; 0]);
    assert_eq!(early.next, Next::At(at(5)));
    let late = keep(PARENT, 5);
    let all = ["SpireServer", "SpireAgent", "SpiffeCSIDriver", "SpireOIDCDiscoveryProvider"];
    assert_eq!(writes(&late), all.map(|kind| format!("apply {kind} cluster")));
}

#[test]
fn an_operand_that_was_there_before_is_created_again_at_once() {
    let before = "status: { operands: [{ name: cluster, kind: SpireServer, ready: 'true' }] }\n";
    let decision = keep(&(PARENT.to_owned() + before), 1);
    assert_eq!(writes(&decision), ["apply SpireServer cluster"]);
}

#[test]
fn only_the_operands_that_are_listed_are_created() {
    let some = PARENT.replace("clusterName: c", "clusterName: c, operands: [SpireServer, SpireAgent]");
    assert_eq!(writes(&keep(&some, 9)), ["apply SpireServer cluster", "apply SpireAgent cluster"]);
}

#[test]
fn an_operand_is_created_with_what_concerns_it_and_with_its_owner() {
    let created = applied(&keep(PARENT, 9));
    assert_eq!(created["SpireServer"]["spec"], json!({ "trustDomain": "new.io", "clusterName": "c" }));
    assert_eq!(created["SpireOIDCDiscoveryProvider"]["spec"], json!({ "trustDomain": "new.io" }));
    assert_eq!(created["SpiffeCSIDriver"]["spec"], json!({}));
    let meta = &created["SpireServer"]["metadata"];
    assert_eq!(meta["annotations"]["ztwim.io/inherited"], "trustDomain,clusterName");
    assert_eq!(
        meta["ownerReferences"],
        json!([{
            "apiVersion": "operator.openshift.io/v1alpha1", "kind": "ZeroTrustWorkloadIdentityManager",
            "name": "cluster", "uid": UID, "controller": true, "blockOwnerDeletion": true,
        }])
    );
}

#[test]
fn an_operand_of_somebody_else_is_adopted_with_its_own_values_left_alone() {
    let server =
        by_hand("SpireServer", "trustDomain: new.io, caKeyType: ec-p256", "'f:trustDomain': {}, 'f:caKeyType': {}");
    let fields = &applied(&keep(&(PARENT.to_owned() + &server), 0))["SpireServer"];
    assert_eq!(fields["spec"], json!({ "clusterName": "c" }), "the trust domain is the operand's own");
    assert_eq!(fields["metadata"]["annotations"]["ztwim.io/inherited"], "clusterName");
    assert_eq!(fields["metadata"]["ownerReferences"][0]["uid"], UID);
}

#[test]
fn what_is_inherited_follows_the_parent() {
    let decision = keep(&(PARENT.to_owned() + &inheriting("SpireAgent", "old.io")), 0);
    assert_eq!(applied(&decision)["SpireAgent"]["spec"]["trustDomain"], "new.io");
}

#[test]
fn a_value_that_somebody_else_set_too_is_the_operands_own_from_then_on() {
    let edited = inheriting("SpireAgent", "new.io").replace(
        "spec: { trustDomain",
        "  - { manager: kubectl-edit, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: { 'f:spec': { 'f:trustDomain': {} } } }\nspec: { trustDomain",
    );
    let decision = keep(&(PARENT.to_owned() + &edited), 0);
    assert_eq!(applied(&decision)["SpireAgent"]["spec"], json!({ "clusterName": "c" }));
}

#[test]
fn a_conflict_changes_nothing_anywhere_and_names_both_values_and_both_objects() {
    let server = by_hand("SpireServer", "trustDomain: old.io", "'f:trustDomain': {}");
    let decision = keep(&(PARENT.to_owned() + &server + &inheriting("SpireAgent", "older.io")), 9);
    assert_eq!(writes(&decision), [""; 0]);
    let (reason, message) = unready(&decision.status);
    assert_eq!(reason, "ConfigConflict");
    for part in ["ZeroTrustWorkloadIdentityManager cluster", "\"new.io\"", "SpireServer cluster", "\"old.io\""] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(condition(&decision.status, "Degraded").unwrap().0, "True");
}

#[test]
fn an_empty_parent_takes_over_what_an_operand_has_before_it_does_anything_else() {
    let empty = PARENT.replace("trustDomain: new.io, clusterName: c", "");
    let server = by_hand("SpireServer", "trustDomain: existing.io", "'f:trustDomain': {}");
    let decision = keep(&(empty + &server), 9);
    assert_eq!(applied(&decision)["ZeroTrustWorkloadIdentityManager"]["spec"], json!({ "trustDomain": "existing.io" }));
    assert_eq!(writes(&decision).len(), 1);
}

#[test]
fn an_empty_parent_takes_over_what_an_earlier_parent_left_in_operands_that_it_released() {
    let empty = PARENT.replace("trustDomain: new.io, clusterName: c", "");
    let inherited = inheriting("SpireServer", "left.io");
    let of_this_parent = keep(&(empty.clone() + &inherited), 9);
    assert_eq!(unready(&of_this_parent.status).0, "MissingTrustDomain", "what it had itself is not taken back");
    let reference = inherited.find("  ownerReferences:").unwrap()..inherited.find("  managedFields:").unwrap();
    let mut released = inherited.clone();
    released.replace_range(reference, "");
    let decision = keep(&(empty + &released), 9);
    assert_eq!(applied(&decision)["ZeroTrustWorkloadIdentityManager"]["spec"], json!({ "trustDomain": "left.io" }));
}

#[test]
fn an_empty_parent_of_operands_that_disagree_takes_nothing_over_and_names_both() {
    let empty = PARENT.replace("trustDomain: new.io, clusterName: c", "");
    let server = by_hand("SpireServer", "trustDomain: one.io", "'f:trustDomain': {}");
    let agent = by_hand("SpireAgent", "trustDomain: other.io", "'f:trustDomain': {}");
    let decision = keep(&(empty + &server + &agent), 9);
    assert_eq!(writes(&decision), [""; 0]);
    let (_, message) = unready(&decision.status);
    assert!(
        message.contains("SpireServer cluster is \"one.io\"") && message.contains("SpireAgent cluster is \"other.io\"")
    );
}

#[test]
fn without_a_trust_domain_anywhere_one_must_be_specified() {
    let empty = PARENT.replace("trustDomain: new.io, clusterName: c", "");
    let decision = keep(&empty, 9);
    assert_eq!(writes(&decision), [""; 0]);
    let (reason, message) = unready(&decision.status);
    assert_eq!(reason, "MissingTrustDomain");
    assert!(message.starts_with("You must specify a trust domain: set spec.trustDomain"), "{message}");
}

#[test]
fn a_suspended_parent_leaves_everything_as_it_is() {
    let suspended = PARENT.replace("clusterName: c", "clusterName: c, suspend: true");
    let decision = keep(&(suspended + &inheriting("SpireAgent", "old.io")), 9);
    assert_eq!(writes(&decision), [""; 0]);
    assert_eq!(unready(&decision.status).0, "Suspended");
}

#[test]
fn the_parent_is_ready_when_all_operands_are_and_repeats_what_they_say() {
    let all = [SpireServer, SpireAgent, SpiffeCSIDriver, SpireOIDCDiscoveryProvider];
    let status = keep(&(PARENT.to_owned() + &ready(&all)), 9).status;
    assert_eq!(condition(&status, "Ready").unwrap().0, "True");
    assert_eq!(condition(&status, "OperandsAvailable").unwrap().0, "True");
    assert!(status.operands.iter().all(|operand| operand.ready == "true" && operand.message.is_none()));

    let three = PARENT.to_owned() + &ready(&all[1..]);
    let status = keep(&(three.clone() + "---\n" + &said(SpireServer, "False", "InProgress", "It starts.")), 9).status;
    assert_eq!(unready(&status).1, "SpireServer cluster: It starts.");
    assert_eq!(condition(&status, "Progressing").unwrap().0, "True");
    assert_eq!(condition(&status, "Degraded"), None);
    assert_eq!(condition(&status, "Upgradeable").unwrap().0, "False");
    let server = status.operands.iter().find(|operand| operand.kind == SpireServer).unwrap();
    assert_eq!((server.ready.as_str(), server.message.as_deref()), ("false", Some("It starts.")));

    let status = keep(&(three + "---\n" + &said(SpireServer, "False", "ConfigConflict", "They differ.")), 9).status;
    assert_eq!(condition(&status, "Degraded").unwrap().0, "True");
    assert_eq!(condition(&status, "Progressing"), None);
}

#[test]
fn deciding_again_on_what_was_published_publishes_the_same() {
    let observed = cluster(&(PARENT.to_owned() + &ready(&[SpireServer, SpireAgent])));
    let mut object = parent(&observed);
    let first = stack::keep(&object, &observed, &decider(), at(9)).status;
    super::publish(&mut object, first.clone());
    assert_eq!(stack::keep(&object, &observed, &decider(), at(99)).status, first);
}

#[test]
fn an_operand_that_inherits_nothing_is_left_alone_once_it_has_its_parent() {
    let bare = inheriting("SpiffeCSIDriver", "x")
        .replace("ztwim.io/inherited: trustDomain", "ztwim.io/inherited: ''")
        .replace("spec: { trustDomain: x }", "spec: {}");
    let metadata = "'f:metadata': { 'f:labels': { 'f:opcore.dev/operator': {}, 'f:opcore.dev/owner-uid': {} }, \
                    'f:annotations': { 'f:ztwim.io/inherited': {}, 'f:opcore.dev/owner': {} }, \
                    'f:ownerReferences': { 'k:{\"uid\":\"UID\"}': {} } }"
        .replace("UID", UID);
    // The API server fills in defaults, which nobody manages.
    let managed = format!("fieldsV1: {{ {metadata}, 'f:spec': {{}} }}");
    let settled = bare.replace("fieldsV1: { 'f:spec': { 'f:trustDomain': {} } }", &managed);
    assert_eq!(writes(&keep(&(PARENT.to_owned() + &settled), 0)), [""; 0]);
}
