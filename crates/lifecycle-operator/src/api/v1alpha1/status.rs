//! What an operand reports.
#![allow(unreachable_pub, reason = "the derived schemas repeat each struct where nobody can reach it")]

use jiff::Timestamp;
use opcore::conditions::Condition;
use opcore::finalizer::TeardownRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where an operand has a value of the central config from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Provenance {
    /// It was set on the operand itself.
    Own,
    /// It comes from the ZeroTrustWorkloadIdentityManager, and follows it.
    Inherited,
    /// It was set nowhere; this is the default.
    Default,
}

/// A value of the central config that is in effect for an operand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveValue {
    /// The field, for example `trustDomain`.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where it comes from.
    pub from: Provenance,
}

/// The observed state of an operand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperandStatus {
    /// The conditions: Ready always; Reconciling, Stalled, DeletionBlocked and `*Available` while they say something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The values of the central config in effect, and where each comes from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub config: Vec<EffectiveValue>,
    /// The steps of the teardown, once the object is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teardown: Option<TeardownRecord>,
    /// Of a SpireServer: its volume, and what was done with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeStatus>,
    /// Of a SpireAgent that is being deleted: the agents that the server still knows. None: nobody has asked yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attested_agents: Option<Vec<String>>,
}
opcore::impl_conditions!(OperandStatus);
opcore::impl_taken_down!(OperandStatus);

/// The volume of a SPIRE server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// The PersistentVolumeClaim with the datastore and the keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// The last complete backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_backup: Option<Backup>,
    /// The request that the last backup was made for: the value of the annotation `ztwim.io/backup-requested-at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_request: Option<String>,
    /// The backup after which the volume was emptied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared: Option<String>,
    /// The backup that was restored into the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<String>,
    /// Work on the volume that is under way. The server does not run while it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<VolumeWork>,
}

/// A backup that was made and verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// Its name, which is the name of its directory.
    pub name: String,
    /// The PersistentVolumeClaim that holds it.
    pub claim: String,
    /// When it was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Timestamp>,
    /// The trust domain of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_domain: Option<String>,
    /// How many files it has.
    pub files: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// The SHA-256 of its list of files and their checksums.
    pub manifest_sha256: String,
}

/// Work on the volume of a SPIRE server, done by a Job while the server is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeWork {
    /// What is done.
    pub kind: VolumeWorkKind,
    /// The backup that it makes, restores, or relies on.
    pub backup: String,
    /// When it began.
    pub started_at: Timestamp,
    /// What it waits for, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A kind of work on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VolumeWorkKind {
    /// The files are copied into a backup, and the copies verified.
    Backup,
    /// A backup is verified and copied into the empty volume.
    Restore,
    /// The files, which a verified backup holds, are removed.
    Clear,
}
