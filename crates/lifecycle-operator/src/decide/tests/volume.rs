//! Work on the server's volume: recorded before it begins, done while the server is stopped, and its result recorded
//! before it is forgotten.

use opcore::conditions::ObjectState;

use super::{at, cluster, decider, operand};
use crate::api::v1alpha1::OperandKind;
use crate::api::v1alpha1::{SpireServer, VolumeWorkKind};
use crate::decide::volume::{self, Plan};
use crate::render::Config;

/// A server with these annotations, this spec and this status of its volume, in a cluster with these objects.
struct Case {
    annotations: &'static str,
    spec: &'static str,
    volume: String,
    others: String,
}

impl Default for Case {
    fn default() -> Self {
        Self { annotations: "", spec: "", volume: String::new(), others: String::new() }
    }
}

impl Case {
    fn plan(&self) -> Plan {
        let yaml = format!(
            "
apiVersion: operator.openshift.io/v1alpha1
kind: SpireServer
metadata: {{ name: cluster, generation: 1, annotations: {{ {} }} }}
spec: {{ {} }}
status: {{ observedGeneration: 1, volume: {{ {} }} }}
{}",
            self.annotations, self.spec, self.volume, self.others
        );
        let observed = cluster(&yaml);
        let server: SpireServer = operand(&observed, OperandKind::SpireServer);
        let config = Config {
            trust_domain: "example.org".to_owned(),
            cluster_name: "c".to_owned(),
            bundle_config_map: "spire-bundle".to_owned(),
            jwt_issuer: "https://oidc".to_owned(),
        };
        volume::plan(&server, &config, &observed, &decider(), at(0)).unwrap()
    }
}

/// What a plan writes, in words.
fn writes(plan: &Plan) -> Vec<String> {
    plan.writes.iter().chain(&plan.over).map(ToString::to_string).collect()
}

fn reason(plan: &Plan) -> Option<String> {
    plan.summary.as_ref().map(|summary| summary.reason.to_string())
}

const DATA: &str = "apply PersistentVolumeClaim spire/spire-data-spire-server-0";
const BACKUPS: &str = "apply PersistentVolumeClaim spire/spire-backups";

const SERVER_POD: &str = "---
apiVersion: v1
kind: Pod
metadata: { name: spire-server-0, namespace: spire, labels: { app.kubernetes.io/component: control-plane } }
";

/// A volume of this trust domain.
fn data(trust_domain: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{ name: spire-data-spire-server-0, namespace: spire, annotations: {{ ztwim.io/trust-domain: {trust_domain} }} }}
status: {{ phase: Bound }}
"
    )
}

fn work(kind: &str, backup: &str) -> String {
    format!(
        "claim: spire-data-spire-server-0, work: {{ kind: {kind}, backup: {backup}, startedAt: '2027-01-15T08:00:00Z' }}"
    )
}

fn job(name: &str, status: &str) -> String {
    format!(
        "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{ name: {name}, namespace: spire }}\nstatus: {{ {status} }}\n"
    )
}

/// The pod of a Job that has ended with this report.
fn ended(job: &str, result: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: Pod
metadata: {{ name: {job}-x, namespace: spire, labels: {{ batch.kubernetes.io/job-name: {job} }} }}
status:
  phase: Succeeded
  containerStatuses:
  - name: spire-volume
    image: x
    imageID: x
    ready: false
    restartCount: 0
    state: {{ terminated: {{ exitCode: 0, startedAt: '2027-01-15T08:00:00Z', message: '{{\"result\":\"{result}\",\"message\":\"It is {result}.\"}}' }} }}
"
    )
}

#[test]
fn a_server_without_work_runs_and_has_a_claim() {
    let plan = Case::default().plan();
    assert!(plan.running);
    assert_eq!(writes(&plan), [DATA]);
    assert_eq!(plan.summary, None);
}

#[test]
fn a_backup_that_is_asked_for_is_recorded_before_the_server_stops_for_it() {
    let asked =
        Case { annotations: "ztwim.io/backup-requested-at: now", others: SERVER_POD.to_owned(), ..Case::default() };
    let plan = asked.plan();
    assert!(plan.running, "nothing stops before the status says why");
    let work = plan.status.work.clone().unwrap();
    assert_eq!((work.kind, work.backup.starts_with("manual-")), (VolumeWorkKind::Backup, true));
    assert_eq!(plan.status.backup_request.as_deref(), Some("now"));

    let recorded = Case { volume: self::work("Backup", "manual-1"), others: SERVER_POD.to_owned(), ..Case::default() };
    let plan = recorded.plan();
    assert!(!plan.running);
    assert_eq!(writes(&plan), [DATA], "its pod is still there");
    assert!(plan.summary.unwrap().message.contains("The server's pod is still there."));

    let plan = Case { others: String::new(), ..recorded }.plan();
    assert_eq!(writes(&plan), [DATA, BACKUPS, "apply Job spire/spire-backup-manual-1-1"]);
}

#[test]
fn a_request_that_was_served_is_not_served_again() {
    let served = Case {
        annotations: "ztwim.io/backup-requested-at: now",
        volume: "claim: spire-data-spire-server-0, backupRequest: now".to_owned(),
        ..Case::default()
    };
    assert_eq!(served.plan().status.work, None);
}

#[test]
fn the_result_is_recorded_before_the_job_goes() {
    let name = "spire-backup-manual-1-1";
    let done = job(name, "conditions: [{ type: Complete, status: 'True' }]") + &ended(name, "BackedUp");
    let plan = Case { volume: work("Backup", "manual-1"), others: done.clone(), ..Case::default() }.plan();
    assert_eq!(plan.status.last_backup.as_ref().unwrap().name, "manual-1");
    assert_eq!(plan.status.work, None);
    assert!(!plan.running, "the server starts once that is published");
    assert!(!writes(&plan).iter().any(|write| write.starts_with("delete")), "{:?}", writes(&plan));

    let published =
        "claim: c, lastBackup: { name: manual-1, claim: spire-backups, files: 1, bytes: 1, manifestSha256: x }";
    let plan = Case { volume: published.to_owned(), others: done, ..Case::default() }.plan();
    assert!(plan.running);
    assert_eq!(writes(&plan), [DATA, "delete Job spire/spire-backup-manual-1-1"]);
}

#[test]
fn a_job_whose_result_is_lost_is_made_again() {
    let name = "spire-backup-manual-1-1";
    let lost = job(name, "conditions: [{ type: Complete, status: 'True' }]");
    let plan = Case { volume: work("Backup", "manual-1"), others: lost, ..Case::default() }.plan();
    assert!(writes(&plan).contains(&format!("delete Job spire/{name}")));
    assert!(plan.status.work.is_some());
}

#[test]
fn a_backup_that_someone_asked_for_and_that_fails_is_worth_less_than_a_server_that_runs() {
    let name = "spire-backup-manual-1-1";
    let failed = job(name, "conditions: [{ type: Failed, status: 'True' }]") + &ended(name, "Failed");
    let plan = Case { volume: work("Backup", "manual-1"), others: failed, ..Case::default() }.plan();
    assert_eq!((plan.status.work.clone(), plan.status.last_backup.clone()), (None, None));
    assert!(plan.notes.iter().any(|note| note.warning && note.reason == "BackupFailed"), "{:?}", plan.notes);
}

#[test]
fn a_restore_that_fails_keeps_the_server_from_starting_and_says_how_to_try_again() {
    let name = "spire-restore-latest-1";
    let failed = job(name, "conditions: [{ type: Failed, status: 'True' }]") + &ended(name, "Occupied");
    let case = Case { spec: "restoreFrom: {}", volume: work("Restore", "latest"), others: failed, ..Case::default() };
    let plan = case.plan();
    let summary = plan.summary.clone().unwrap();
    assert_eq!((summary.state, plan.running), (ObjectState::Stalled, false));
    assert!(summary.message.contains(&format!("delete Job {name}")), "{}", summary.message);
}

#[test]
fn a_restore_comes_before_the_first_start_and_never_over_data() {
    let new = Case { spec: "restoreFrom: {}", ..Case::default() };
    let plan = new.plan();
    assert_eq!(plan.status.work.as_ref().map(|work| work.kind), Some(VolumeWorkKind::Restore));
    assert!(!plan.running, "the server does not start to be stopped");

    let used =
        Case { spec: "restoreFrom: {}", volume: "claim: spire-data-spire-server-0".to_owned(), ..Case::default() };
    let plan = used.plan();
    assert_eq!((plan.status.work.clone(), plan.running), (None, true));
    assert!(plan.notes.iter().any(|note| note.reason == "RestoreIgnored"));

    let restored = Case { spec: "restoreFrom: {}", volume: "restored: b".to_owned(), ..Case::default() };
    assert_eq!((restored.plan().status.work, restored.plan().running), (None, true));
}

#[test]
fn a_volume_of_another_trust_domain_is_left_alone() {
    let plan = Case { others: data("other.org"), ..Case::default() }.plan();
    assert_eq!((writes(&plan), plan.running), (Vec::<String>::new(), false));
    assert_eq!(reason(&plan).as_deref(), Some("VolumeOfAnotherTrustDomain"));
    let plan = Case { others: data("example.org"), ..Case::default() }.plan();
    assert!(plan.running);
}
