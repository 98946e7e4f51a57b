//! A change of the trust domain, phase by phase.

use jiff::Timestamp;

use super::{at, cluster, condition, decider, parent, publish, ready, unready, writes};
use crate::api::v1alpha1::OperandKind::{SpireAgent, SpireServer};
use crate::api::v1alpha1::{MigrationPhase, ZeroTrustWorkloadIdentityManager as Ztwim};
use crate::decide::stack;

/// A parent whose trust domain was changed, with operands that are ready.
fn changed(consent: bool, database: &str) -> String {
    let operands = ready(&[SpireServer, SpireAgent]).replacen(
        "spec: {}",
        &format!("spec: {{ datastore: {{ databaseType: {database} }} }}"),
        1,
    );
    format!(
        "
apiVersion: operator.openshift.io/v1alpha1
kind: ZeroTrustWorkloadIdentityManager
metadata: {{ name: cluster, generation: 2, creationTimestamp: '2027-01-15T08:00:00Z' }}
spec: {{ trustDomain: new.io, allowTrustDomainMigration: {consent}, operands: [SpireServer, SpireAgent] }}
status: {{ trustDomain: old.io }}
{operands}"
    )
}

/// The phase after one more decision, on a cluster that is given as it is then.
fn next(object: &mut Ztwim, yaml: &str, now: Timestamp) -> MigrationPhase {
    let observed = cluster(yaml);
    let status = stack::keep(object, &observed, &decider(), now).status;
    publish(object, status.clone());
    status.migration.unwrap().phase
}

const SERVER_POD: &str = "---
apiVersion: v1
kind: Pod
metadata: { name: spire-server-0, namespace: spire, labels: { app.kubernetes.io/component: control-plane } }
";
const AGENT_POD: &str = "---
apiVersion: v1
kind: Pod
metadata: { name: spire-agent-x, namespace: spire, labels: { app.kubernetes.io/component: node-agent } }
";

#[test]
fn each_phase_waits_for_what_it_stands_for() {
    let yaml = changed(true, "sqlite3");
    let mut object = parent(&cluster(&yaml));
    let both = yaml.clone() + SERVER_POD + AGENT_POD;
    assert_eq!(next(&mut object, &both, at(0)), MigrationPhase::Draining);
    assert_eq!(next(&mut object, &both, at(1)), MigrationPhase::Draining);
    assert_eq!(next(&mut object, &(yaml.clone() + AGENT_POD), at(2)), MigrationPhase::Draining, "an agent runs");
    assert_eq!(next(&mut object, &yaml, at(3)), MigrationPhase::BackingUp);
    assert_eq!(next(&mut object, &yaml, at(4)), MigrationPhase::BackingUp, "nobody has made a backup");

    let migration = object.status.as_ref().unwrap().migration.clone().unwrap();
    assert_eq!((migration.from.as_str(), migration.to.as_str()), ("old.io", "new.io"));
    let backup = migration.backup.unwrap();
    let volume = |fields: &str| {
        yaml.replacen(
            "status:\n  observedGeneration: 1",
            &format!("status:\n  volume: {{ {fields} }}\n  observedGeneration: 1"),
            1,
        )
    };
    let last = |name: &str| {
        format!("lastBackup: {{ name: {name}, claim: spire-backups, files: 2, bytes: 1, manifestSha256: x }}")
    };
    assert_eq!(
        next(&mut object, &volume(&last("another")), at(5)),
        MigrationPhase::BackingUp,
        "that is another backup"
    );
    assert_eq!(next(&mut object, &volume(&last(&backup)), at(6)), MigrationPhase::Clearing);
    assert_eq!(object.status.as_ref().unwrap().trust_domain.as_deref(), Some("old.io"), "the old one is in effect");
    let cleared = volume(&format!("{}, cleared: {backup}", last(&backup)));
    assert_eq!(next(&mut object, &cleared, at(7)), MigrationPhase::Switching);
    assert_eq!(object.status.as_ref().unwrap().trust_domain.as_deref(), Some("new.io"));

    let in_effect = |domain: &str| {
        let values = format!(
            "status:\n  config: [{{ name: trustDomain, value: {domain}, from: Inherited }}]\n  observedGeneration: 1"
        );
        yaml.replace("status:\n  observedGeneration: 1", &values)
    };
    assert_eq!(next(&mut object, &in_effect("old.io"), at(8)), MigrationPhase::Switching);
    assert_eq!(next(&mut object, &in_effect("new.io"), at(9)), MigrationPhase::Restarting);
    let starting = in_effect("new.io").replace("type: Ready, status: 'True'", "type: Ready, status: 'False'");
    assert_eq!(next(&mut object, &starting, at(10)), MigrationPhase::Restarting);
    assert_eq!(unready(object.status.as_ref().unwrap()).0, "Migrating");
    assert_eq!(next(&mut object, &in_effect("new.io"), at(11)), MigrationPhase::Done);
    let status = object.status.unwrap();
    assert_eq!(status.migration.as_ref().unwrap().finished_at, Some(at(11)));
    assert_eq!(condition(&status, "Ready").unwrap().0, "True");
}

#[test]
fn without_consent_the_old_trust_domain_stays_in_effect_and_the_words_say_how_to_consent() {
    let observed = cluster(&changed(false, "sqlite3"));
    let decision = stack::keep(&parent(&observed), &observed, &decider(), at(0));
    let (reason, message) = unready(&decision.status);
    assert_eq!(reason, "MigrationImpossible");
    assert!(message.contains("spec.allowTrustDomainMigration: true"), "{message}");
    assert_eq!(decision.status.migration, None);
    assert!(!writes(&decision).is_empty(), "and it is that which is handed down");
    assert_eq!(super::applied(&decision)["SpireServer"]["spec"]["trustDomain"], "old.io");
}

#[test]
fn with_an_external_database_it_is_refused_and_the_words_name_the_field() {
    let observed = cluster(&changed(true, "postgres"));
    let decision = stack::keep(&parent(&observed), &observed, &decider(), at(0));
    let (reason, message) = unready(&decision.status);
    assert_eq!(reason, "MigrationImpossible");
    assert!(message.contains("spec.datastore.databaseType of SpireServer cluster is postgres"), "{message}");
    assert_eq!(decision.status.migration, None);
}

#[test]
fn a_change_back_in_the_middle_waits_until_the_first_migration_has_ended() {
    let yaml = changed(true, "sqlite3");
    let mut object = parent(&cluster(&yaml));
    let both = yaml.clone() + SERVER_POD + AGENT_POD;
    assert_eq!(next(&mut object, &both, at(0)), MigrationPhase::Draining);
    object.spec.trust_domain = Some("old.io".to_owned());
    assert_eq!(next(&mut object, &both, at(1)), MigrationPhase::Draining);
    assert_eq!(object.status.as_ref().unwrap().migration.as_ref().unwrap().to, "new.io");
    // Once it is done, the change back is a migration of its own.
    let status = object.status.as_mut().unwrap();
    status.migration.as_mut().unwrap().phase = MigrationPhase::Done;
    status.trust_domain = Some("new.io".to_owned());
    assert_eq!(next(&mut object, &both, at(100)), MigrationPhase::Draining);
    let migration = object.status.unwrap().migration.unwrap();
    assert_eq!((migration.from.as_str(), migration.to.as_str()), ("new.io", "old.io"));
}
