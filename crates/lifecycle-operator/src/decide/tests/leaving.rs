//! Taking it down: what goes first, what is waited for, and what is never deleted on a guess.

use std::fmt::Write as _;

use opcore::finalizer::StepPhase;
use opcore::{Decision, Write};

use super::{UID, at, cluster, condition, decider, deleting, operand, parent, publish, ready, unready, writes};
use crate::api::v1alpha1::OperandKind::{self, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer};
use crate::api::v1alpha1::{self as api, ZeroTrustWorkloadIdentityManager as Ztwim};
use crate::decide::stack;
use crate::decide::teardown::{self, TakenDown};
use crate::observe::{Consumer, Observed};

/// A parent that is being deleted, with this policy.
fn leaving(policy: &str) -> String {
    format!(
        "
apiVersion: operator.openshift.io/v1alpha1
kind: ZeroTrustWorkloadIdentityManager
metadata: {{ name: cluster, generation: 1, deletionTimestamp: '2027-01-15T08:00:00Z', finalizers: [ztwim.io/operand-lifecycle] }}
spec: {{ trustDomain: example.org, teardown: {{ {policy} }} }}
"
    )
}

/// An operand through its teardown, with its status published after each pass.
struct Pass<K: opcore::operator::Reconciled> {
    object: K,
    decision: Decision<K>,
}

impl<K: TakenDown> Pass<K> {
    fn first(observed: &Observed) -> Self {
        let object: K = operand(observed, K::KIND);
        let decision = teardown::tear_down(&object, observed, &decider(), at(0));
        Self { object, decision }
    }

    fn next(&mut self, observed: &Observed, seconds: i64) -> &mut Self {
        publish(&mut self.object, self.decision.status.clone());
        self.decision = teardown::tear_down(&self.object, observed, &decider(), at(seconds));
        self
    }

    /// So many passes that nothing but what is observed holds it up.
    fn settled(observed: &Observed) -> Self {
        let mut pass = Self::first(observed);
        for _ in 0..8 {
            pass.next(observed, 0);
        }
        pass
    }

    fn writes(&self) -> Vec<String> {
        writes(&self.decision)
    }

    /// The step that runs, and what it says.
    fn running(&self) -> Vec<(String, String)> {
        let steps = &self.decision.status.teardown.as_ref().unwrap().steps;
        let running = steps.iter().filter(|step| step.phase == StepPhase::Running);
        running.map(|step| (step.name.clone(), step.message.clone().unwrap_or_default())).collect()
    }
}

#[test]
fn the_stack_goes_in_the_reverse_order_of_its_start_each_when_those_before_it_are_gone() {
    let kinds = [SpireOIDCDiscoveryProvider, SpiffeCSIDriver, SpireAgent, SpireServer];
    let mut left = kinds.to_vec();
    let mut object: Option<Ztwim> = None;
    for gone in kinds {
        let observed = cluster(&(leaving("") + &ready(&left)));
        let mut goes = object.take().unwrap_or_else(|| parent(&observed));
        for _ in 0..3 {
            let decision = stack::tear_down(&goes, &observed, at(0));
            publish(&mut goes, decision.status.clone());
            let deletes = writes(&decision);
            assert!(deletes.is_empty() || deletes == [format!("delete {gone} cluster")], "{gone}: {deletes:?}");
            assert!(!decision.release);
        }
        let decision = stack::tear_down(&goes, &observed, at(0));
        assert_eq!(writes(&decision), [format!("delete {gone} cluster")]);
        left.retain(|kind| *kind != gone);
        object = Some(goes);
    }
    let observed = cluster(&leaving(""));
    let mut goes = object.unwrap();
    for _ in 0..2 {
        let status = stack::tear_down(&goes, &observed, at(0)).status;
        publish(&mut goes, status);
    }
    assert!(stack::tear_down(&goes, &observed, at(0)).release);
}

#[test]
fn the_parent_deletes_exactly_the_operands_that_are_its_own() {
    let of_another = ready(&[SpireOIDCDiscoveryProvider]).replace(UID, "another-uid");
    let observed = cluster(&(leaving("") + &of_another));
    let mut goes = parent(&observed);
    for _ in 0..3 {
        let decision = stack::tear_down(&goes, &observed, at(0));
        assert_eq!(writes(&decision), [""; 0]);
        publish(&mut goes, decision.status);
    }
}

#[test]
fn an_operand_waits_for_those_after_it_that_go_too_and_not_for_those_that_stay() {
    let waits = |yaml: String| Pass::<api::SpireServer>::settled(&cluster(&yaml)).running();
    let staying = waits(deleting(SpireServer) + &ready(&[SpireAgent, SpiffeCSIDriver]));
    assert_eq!(staying, [] as [(String, String); 0]);
    let going = waits(deleting(SpireServer) + "---\n" + &deleting(SpireAgent));
    assert_eq!(going, [("others".to_owned(), "SpireAgent cluster is to go first".to_owned())]);
    let all = waits(leaving("") + "---\n" + &deleting(SpireServer) + &ready(&[SpireAgent, SpiffeCSIDriver]));
    assert_eq!(all[0].1, "SpiffeCSIDriver cluster, SpireAgent cluster are to go first");
}

/// An operand that is deleted, with one object of each of these kinds.
fn going(kind: OperandKind, objects: &[(&str, &str, &str)]) -> Observed {
    let mut yaml = deleting(kind);
    for (version, kind, name) in objects {
        writeln!(yaml, "---\napiVersion: {version}\nkind: {kind}\nmetadata: {{ name: {name}, namespace: spire }}")
            .unwrap();
    }
    cluster(&yaml)
}

const ROUTE: (&str, &str, &str) = ("networking.k8s.io/v1", "Ingress", "i");
const SERVICE: (&str, &str, &str) = ("v1", "Service", "s");
const DEPLOYMENT: (&str, &str, &str) = ("apps/v1", "Deployment", "d");
const MAP: (&str, &str, &str) = ("v1", "Secret", "m");

#[test]
fn the_provider_loses_its_routes_then_its_requests_then_its_objects() {
    let pass =
        |objects: &[_]| Pass::<api::SpireOIDCDiscoveryProvider>::settled(&going(SpireOIDCDiscoveryProvider, objects));
    assert_eq!(pass(&[ROUTE, SERVICE, DEPLOYMENT, MAP]).writes(), ["delete Ingress spire/i"]);
    assert_eq!(pass(&[SERVICE, DEPLOYMENT, MAP]).writes(), ["delete Service spire/s", "delete Deployment spire/d"]);
    assert_eq!(pass(&[MAP]).writes(), ["delete Secret spire/m"]);
    assert!(pass(&[]).decision.release);
}

#[test]
fn nothing_is_deleted_before_it_is_published_that_its_step_runs() {
    let observed = going(SpireOIDCDiscoveryProvider, &[ROUTE]);
    let mut pass = Pass::<api::SpireOIDCDiscoveryProvider>::first(&observed);
    assert_eq!(pass.writes(), [""; 0]);
    while pass.writes().is_empty() {
        let steps = pass.object.status.as_ref().and_then(|status| status.teardown.as_ref());
        assert!(steps.and_then(|it| it.step("routes")).is_none_or(|it| it.phase != StepPhase::Running));
        pass.next(&observed, 0);
    }
    let published = pass.object.status.as_ref().unwrap().teardown.as_ref().unwrap();
    assert_eq!(published.step("routes").unwrap().phase, StepPhase::Running);
}

#[test]
fn pods_that_use_the_driver_are_named_and_hold_it_up_until_they_end() {
    let mut observed = going(SpiffeCSIDriver, &[("apps/v1", "DaemonSet", "d")]);
    observed.consumers.push(Consumer { namespace: "shop".to_owned(), name: "front".to_owned() });
    let mut pass = Pass::<api::SpiffeCSIDriver>::settled(&observed);
    assert_eq!(pass.writes(), [""; 0]);
    let (truth, reason, message) = condition(&pass.decision.status, "DeletionBlocked").unwrap();
    assert_eq!((truth.as_str(), reason.as_str()), ("True", "InUse"));
    assert_eq!(message, "Still in use by Pod shop/front. Delete what uses it, or let it end.");
    observed.consumers.clear();
    pass.next(&observed, 1).next(&observed, 2);
    assert_eq!(pass.writes(), ["delete DaemonSet spire/d"]);
    assert_eq!(condition(&pass.decision.status, "DeletionBlocked"), None);
}

#[test]
fn a_driver_that_a_kubelet_still_knows_is_not_gone() {
    let mut observed = going(SpiffeCSIDriver, &[]);
    observed.registered_on.push("node-1".to_owned());
    let pass = Pass::<api::SpiffeCSIDriver>::settled(&observed);
    assert_eq!(pass.running(), [("registration".to_owned(), "the driver is still registered on node-1".to_owned())]);
}

const SERVER: &str = "---
apiVersion: v1
kind: Pod
metadata: { name: spire-server-0, namespace: spire, uid: pod, labels: { app.kubernetes.io/component: control-plane } }
status:
  containerStatuses:
  - { name: spire-server, image: x, imageID: x, ready: true, restartCount: 0, state: { running: {} } }
---
apiVersion: apps/v1
kind: StatefulSet
metadata: { name: spire-server, namespace: spire }
spec: { replicas: 1, serviceName: x, selector: {}, template: {} }
";

#[test]
fn a_server_that_never_ran_knows_no_agents_and_does_not_keep_the_agent_from_going() {
    let waiting = SERVER.replace("state: { running: {} }", "state: { waiting: { reason: ImagePullBackOff } }");
    let mut observed = cluster(&(deleting(SpireAgent) + &ready(&[SpireServer]) + &waiting));
    observed.found.clear();
    let pass = Pass::<api::SpireAgent>::settled(&observed);
    assert!(pass.decision.writes.iter().all(|write| !matches!(write, Write::Exec(_))), "it cannot be asked");
    assert!(pass.running().iter().all(|(step, _)| step != "evict"), "{:?}", pass.running());
}

#[test]
fn agents_are_evicted_one_and_all_after_they_stopped_and_while_the_server_can() {
    let yaml = deleting(SpireAgent) + &ready(&[SpireServer]) + SERVER;
    let mut observed = cluster(&yaml);
    observed.found.clear();
    let mut pass = Pass::<api::SpireAgent>::settled(&observed);
    let ran = |decision: &Decision<api::SpireAgent>| -> Vec<Vec<String>> {
        let command = |write: &Write| match write {
            Write::Exec(exec) => Some(exec.command[1..].to_vec()),
            _ => None,
        };
        decision.writes.iter().filter_map(command).collect()
    };
    assert_eq!(ran(&pass.decision), [["agent", "list", "-output", "json"]], "nobody has asked yet");
    // The answer of the server, as it prints it.
    let printed =
        r#"{"agents":[{"id":{"trust_domain":"example.org","path":"/spire/agent/k8s_psat/c/1"}}],"next_page_token":""}"#;
    let agents = teardown::agents_in(printed).unwrap();
    assert_eq!(agents, ["spiffe://example.org/spire/agent/k8s_psat/c/1"]);
    pass.decision.status.attested_agents = Some(agents);
    pass.next(&observed, 1);
    assert_eq!(
        ran(&pass.decision)[0],
        ["agent", "evict", "-spiffeID", "spiffe://example.org/spire/agent/k8s_psat/c/1"]
    );
    assert_eq!(ran(&pass.decision)[1][1], "list", "and whether it worked is asked after that");
    assert!(pass.running().iter().any(|(step, words)| step == "evict" && words == "1 agents are still attested"));
    pass.decision.status.attested_agents = Some(Vec::new());
    pass.next(&observed, 2).next(&observed, 3);
    assert!(!pass.running().iter().any(|(step, _)| step == "evict"));
}

#[test]
fn without_a_server_there_is_nobody_with_whom_a_certificate_could_be_renewed() {
    let observed = cluster(&deleting(SpireAgent));
    let pass = Pass::<api::SpireAgent>::settled(&observed);
    assert!(!pass.running().iter().any(|(step, _)| step == "evict"), "{:?}", pass.running());
}

#[test]
fn agents_that_still_run_are_not_evicted_they_would_attest_again() {
    let agent = "---
apiVersion: v1
kind: Pod
metadata: { name: spire-agent-x, namespace: spire, labels: { app.kubernetes.io/component: node-agent } }
";
    let mut observed = cluster(&(deleting(SpireAgent) + &ready(&[SpireServer]) + SERVER + agent));
    observed.found.clear();
    let pass = Pass::<api::SpireAgent>::settled(&observed);
    assert_eq!(pass.running(), [("clients".to_owned(), "Pod spire-agent-x is still there".to_owned())]);
}

/// A server that goes, with a volume that holds data.
fn server(persistence: &str, volume: &str) -> Observed {
    let going = deleting(SpireServer)
        .replace("spec: {}", &format!("spec: {{ {persistence} }}"))
        .replace("status:\n", &format!("status:\n  volume: {{ {volume} }}\n"));
    cluster(
        &(going
            + "---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: spire-data-spire-server-0, namespace: spire }
status: { phase: Bound }
"),
    )
}

const DELETE: &str = "persistence: { deletionPolicy: Delete }";

#[test]
fn a_volume_is_kept_unless_its_deletion_is_asked_for() {
    let backed_up =
        "lastBackup: { name: deletion-20270115-080000, claim: spire-backups, files: 2, bytes: 1, manifestSha256: x }";
    let kept = Pass::<api::SpireServer>::settled(&server("", backed_up));
    assert_eq!((kept.writes(), kept.decision.release), (Vec::new(), true));
    let deleted = Pass::<api::SpireServer>::settled(&server(DELETE, backed_up));
    assert_eq!(deleted.writes(), ["delete PersistentVolumeClaim spire/spire-data-spire-server-0"]);
}

#[test]
fn a_backup_is_made_first_and_one_of_another_time_does_not_count() {
    let older =
        "lastBackup: { name: manual-20270101-080000, claim: spire-backups, files: 2, bytes: 1, manifestSha256: x }";
    for volume in ["", older] {
        let pass = Pass::<api::SpireServer>::settled(&server(DELETE, volume));
        assert_eq!(
            pass.writes(),
            [
                "apply PersistentVolumeClaim spire/spire-backups",
                "apply Job spire/spire-backup-deletion-20270115-080000-1"
            ]
        );
    }
}

#[test]
fn a_volume_without_a_backup_is_never_deleted_even_if_the_backup_is_switched_off_or_given_up() {
    let off = format!("{DELETE}, backup: {{ onDelete: false }}");
    let pass = Pass::<api::SpireServer>::settled(&server(&off, ""));
    assert_eq!(pass.writes(), [""; 0]);
    assert!(pass.running()[0].1.contains("there is no verified backup of it"), "{:?}", pass.running());

    let mut observed = server(DELETE, "");
    let all = observed.peers[0].meta.annotations.get_or_insert_default();
    all.insert("opcore.dev/force-teardown".to_owned(), "backup".to_owned());
    let pass = Pass::<api::SpireServer>::settled(&observed);
    assert_eq!(pass.writes(), [""; 0]);
    assert_eq!(pass.running()[0].0, "volume");
}

#[test]
fn what_a_deletion_with_orphan_leaves_is_left() {
    let mut observed = going(SpireOIDCDiscoveryProvider, &[ROUTE, SERVICE, DEPLOYMENT, ("v1", "ServiceAccount", "a")]);
    observed.peers[0].meta.finalizers = Some(vec!["orphan".to_owned()]);
    let under_way = Pass::<api::SpireOIDCDiscoveryProvider>::settled(&observed);
    assert_eq!(under_way.writes(), [""; 0]);
    assert_eq!(unready(&under_way.decision.status).0, "Orphaning");
    // Kubernetes has taken the reference of the account away.
    observed.peers[0].meta.finalizers = None;
    let released = Pass::<api::SpireOIDCDiscoveryProvider>::settled(&observed);
    assert_eq!((released.writes(), released.decision.release), (Vec::new(), true));
}

#[test]
fn when_the_time_of_a_step_is_up_the_policy_decides() {
    let stuck = |policy: &str| {
        let mut observed = going(SpiffeCSIDriver, &[]);
        observed.parent = cluster(&leaving(&format!("operandTimeout: 30s, onExpiry: {policy}"))).parent;
        observed.consumers.push(Consumer { namespace: "shop".to_owned(), name: "front".to_owned() });
        observed
    };
    let after = |policy: &str, seconds: i64| {
        let observed = stuck(policy);
        let mut pass = Pass::<api::SpiffeCSIDriver>::settled(&observed);
        pass.next(&observed, seconds);
        pass
    };
    let step = |pass: &Pass<api::SpiffeCSIDriver>| {
        let record = pass.decision.status.teardown.as_ref().unwrap().step("volumes").unwrap().clone();
        (record.phase, record.overdue)
    };
    for policy in ["Wait", "Force", "Manual"] {
        assert_eq!(step(&after(policy, 29)), (StepPhase::Running, false), "{policy}");
    }
    assert_eq!(step(&after("Wait", 31)), (StepPhase::Running, true));
    let forced = after("Force", 31);
    assert_eq!(step(&forced).0, StepPhase::Leaked);
    assert!(
        forced
            .decision
            .notes
            .iter()
            .any(|note| note.reason == "TeardownLeaked" && note.message.contains("Pod shop/front"))
    );
    let stopped = after("Manual", 31);
    assert_eq!(step(&stopped), (StepPhase::Running, true));
    let (reason, message) = unready(&stopped.decision.status);
    assert_eq!(reason, "TeardownStopped");
    assert!(message.contains("set the annotation opcore.dev/force-teardown=STEP"), "{message}");
}

#[test]
fn the_whole_has_a_time_of_its_own_after_which_the_parent_gives_up_what_only_others_hold() {
    let held = deleting(SpireServer).replace("finalizers: [x]", "finalizers: [example.com/others]");
    let observed = cluster(&(leaving("timeout: 120s, onExpiry: Force") + "---\n" + &held));
    let mut goes = parent(&observed);
    for seconds in [0, 0, 0, 0, 0, 119] {
        let status = stack::tear_down(&goes, &observed, at(seconds)).status;
        assert!(status.teardown.as_ref().unwrap().leaked().next().is_none());
        publish(&mut goes, status);
    }
    let status = stack::tear_down(&goes, &observed, at(121)).status;
    let leaked: Vec<_> = status.teardown.as_ref().unwrap().leaked().map(|step| step.name.clone()).collect();
    assert_eq!(leaked, ["server"]);
}

#[test]
fn after_the_time_of_the_whole_an_operand_gives_its_steps_up_by_itself_and_the_parent_waits_for_it() {
    let ours = deleting(SpiffeCSIDriver).replace("finalizers: [x]", "finalizers: [ztwim.io/spiffe-csi-cleanup]");
    let stack = leaving("operandTimeout: 1h, timeout: 120s, onExpiry: Force");
    let started = "status: { teardown: { startedAt: '2027-01-15T08:00:00Z', steps: [] } }\n";
    let mut observed = cluster(&(stack + started + "---\n" + &ours));
    observed.consumers.push(Consumer { namespace: "shop".to_owned(), name: "front".to_owned() });
    let mut pass = Pass::<api::SpiffeCSIDriver>::settled(&observed);
    pass.next(&observed, 119);
    assert_eq!(pass.running()[0].0, "volumes");
    pass.next(&observed, 121);
    assert!(pass.decision.status.teardown.as_ref().unwrap().leaked().any(|step| step.name == "volumes"));

    let mut goes = parent(&observed);
    for seconds in [0, 0, 0, 119, 121, 122] {
        let decision = stack::tear_down(&goes, &observed, at(seconds));
        assert!(!decision.release && decision.status.teardown.as_ref().unwrap().leaked().next().is_none());
        publish(&mut goes, decision.status);
    }
}

#[test]
fn what_is_released_is_neither_drained_nor_backed_up() {
    let account = "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: { name: a, namespace: spire }\n";
    let observed = cluster(&(deleting(SpireServer) + SERVER + account));
    let pass = Pass::<api::SpireServer>::settled(&observed);
    assert_eq!((pass.writes(), pass.decision.release), (Vec::new(), true));
}

#[test]
fn what_was_seen_to_be_released_stays_even_if_kubernetes_overlooked_an_object() {
    let uid = "uid-SpireOIDCDiscoveryProvider-cluster";
    let account = format!(
        "---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: a
  namespace: spire
  ownerReferences: [{{ apiVersion: operator.openshift.io/v1alpha1, kind: SpireOIDCDiscoveryProvider, name: cluster, uid: {uid} }}]
"
    );
    let mut observed = cluster(&(deleting(SpireOIDCDiscoveryProvider) + &account));
    observed.peers[0].meta.finalizers = Some(vec!["orphan".to_owned()]);
    let mut pass = Pass::<api::SpireOIDCDiscoveryProvider>::first(&observed);
    pass.object.metadata.finalizers = None;
    for _ in 0..8 {
        pass.next(&observed, 0);
        assert_eq!(pass.writes(), [""; 0]);
    }
    assert!(pass.decision.release);
}
