//! The volumes of a server, and the Jobs that work on them.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{Config, Platform, Settings};
use crate::api::v1alpha1::SpireServer;

/// The claim for the volume of the server. It has the name that a StatefulSet would give it, so that the volume of a
/// server which was made by another operator is used again.
pub const DATA_CLAIM: &str = "spire-data-spire-server-0";
/// The component of the pods of Jobs, by the label `app.kubernetes.io/component`.
pub const COMPONENT: &str = "volume";

/// What a Job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Back up the volume, verify the backup, and keep no more than this many.
    Backup {
        /// How many are kept.
        keep: i32,
    },
    /// Put a backup into the volume, if it is empty.
    Restore,
    /// Empty the volume, if the backup has all that is in it.
    Clear,
}

impl Task {
    /// The command of `spire-volume`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Backup { .. } => "backup",
            Self::Restore => "restore",
            Self::Clear => "clear",
        }
    }
}

/// Work on the volume of a server that is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work<'a> {
    /// What is done.
    pub task: Task,
    /// The name of the backup; for a restore also `latest`.
    pub backup: &'a str,
    /// The claim for backups.
    pub claim: &'a str,
    /// Which attempt this is: each has a Job of its own.
    pub attempt: u32,
}

/// The claim for the volume of the server. It outlives the server.
pub fn data_claim(server: &SpireServer, config: &Config, settings: &Settings) -> PersistentVolumeClaim {
    let _ = (server, config, settings);
    PersistentVolumeClaim::default()
}

/// The claim for backups. It outlives the server.
pub fn backup_claim(server: &SpireServer, settings: &Settings) -> PersistentVolumeClaim {
    let _ = (server, settings);
    PersistentVolumeClaim::default()
}

/// The name of the Job for this work: always the same.
pub fn job_name(work: &Work<'_>) -> String {
    format!("spire-{}-{}-{}", work.task.as_str(), work.backup, work.attempt)
}

/// The Job for this work. `config` is that of the data: what a backup is of, and must be of to be restored.
///
/// It has no owner reference: while its owner is deleted in the foreground, Kubernetes would delete it at once. Whoever
/// applies it deletes it.
pub fn job(server: &SpireServer, config: &Config, settings: &Settings, platform: &Platform, work: &Work<'_>) -> Job {
    let _ = (server, config, settings, platform, work);
    Job::default()
}
