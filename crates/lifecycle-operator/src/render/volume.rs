//! The volumes of a server, and the Jobs that work on them.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimVolumeSource, PodSpec, Volume,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use opcore::digest;

use super::common::{Part, mount, read_only};
use super::server::DATA_DIRECTORY;
use super::{Config, Platform, Settings};
use crate::api::v1alpha1::{BACKUP_CLAIM, SpireServer, TRUST_DOMAIN_ANNOTATION};

/// The claim for the volume of the server. It has the name that a StatefulSet would give it, so that the volume of a
/// server which was made by another operator is used again.
pub const DATA_CLAIM: &str = "spire-data-spire-server-0";
/// The component of the pods of Jobs, by the label `app.kubernetes.io/component`.
pub const COMPONENT: &str = "volume";
/// The program, its container, and the value of `app.kubernetes.io/name`.
const PROGRAM: &str = "spire-volume";
/// Where backups are.
const BACKUPS: &str = "/run/spire/backups";
/// The name of a Job is the value of a label of its pods.
const LONGEST_NAME: usize = 63;

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
    let persistence = &server.spec.persistence;
    let mut claim = claim(DATA_CLAIM, server, settings, &persistence.size, persistence.storage_class.as_deref());
    let domain = (TRUST_DOMAIN_ANNOTATION.to_owned(), config.trust_domain.clone());
    claim.metadata.annotations = Some(BTreeMap::from([domain]));
    claim
}

/// The claim for backups. It outlives the server.
pub fn backup_claim(server: &SpireServer, settings: &Settings) -> PersistentVolumeClaim {
    let (policy, persistence) = (&server.spec.backup, &server.spec.persistence);
    let size = policy.size.as_ref().unwrap_or(&persistence.size);
    let class = policy.storage_class.as_ref().or(persistence.storage_class.as_ref());
    claim(BACKUP_CLAIM, server, settings, size, class.map(String::as_str))
}

fn claim(
    name: &str,
    server: &SpireServer,
    settings: &Settings,
    size: &str,
    class: Option<&str>,
) -> PersistentVolumeClaim {
    let requests = BTreeMap::from([("storage".to_owned(), Quantity(size.to_owned()))]);
    let spec = PersistentVolumeClaimSpec {
        access_modes: Some(vec![server.spec.persistence.access_mode.as_str().to_owned()]),
        resources: Some(VolumeResourceRequirements { requests: Some(requests), limits: None }),
        // An empty class would mean a volume that somebody made by hand.
        storage_class_name: class.filter(|class| !class.is_empty()).map(str::to_owned),
        ..PersistentVolumeClaimSpec::default()
    };
    let metadata = super::server::part(server, settings, &Platform::default()).meta(name);
    PersistentVolumeClaim { metadata, spec: Some(spec), ..PersistentVolumeClaim::default() }
}

/// The name of the Job for this work: always the same.
pub fn job_name(work: &Work<'_>) -> String {
    let name = format!("spire-{}-{}-{}", work.task.as_str(), work.backup, work.attempt);
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let digest = digest::short(&digest::of_bytes(name.as_bytes()), 10);
    let start: String = name.chars().take(LONGEST_NAME - digest.len() - 1).collect();
    format!("{}-{digest}", start.trim_end_matches(['-', '.']))
}

/// The Job for this work. `config` is that of the data: what a backup is of, and must be of to be restored.
///
/// It has no owner reference: while its owner is deleted in the foreground, Kubernetes would delete it at once. Whoever
/// applies it deletes it.
pub fn job(server: &SpireServer, config: &Config, settings: &Settings, platform: &Platform, work: &Work<'_>) -> Job {
    let part = Part { name: PROGRAM, component: COMPONENT, placement: &server.spec.placement, settings, platform };
    let backups = match work.task {
        Task::Backup { .. } => mount("backups", BACKUPS),
        Task::Restore | Task::Clear => read_only("backups", BACKUPS),
    };
    let container = Container {
        command: Some(command(config, work)),
        volume_mounts: Some(vec![mount("data", DATA_DIRECTORY), backups]),
        ..part.container(PROGRAM, &settings.images.volume)
    };
    let volumes = vec![volume("data", DATA_CLAIM), volume("backups", work.claim)];
    let pod = PodSpec { restart_policy: Some("Never".to_owned()), ..part.pod(None, vec![container], volumes) };
    let spec = JobSpec {
        // Its report is read from the one pod that it has. The steps of the operator have deadlines, the Job has none: a
        // slow copy is better than a copy that is begun again and again.
        backoff_limit: Some(0),
        completions: Some(1),
        parallelism: Some(1),
        pod_replacement_policy: Some("Failed".to_owned()),
        template: part.template(None, pod),
        ..JobSpec::default()
    };
    Job { metadata: part.meta(&job_name(work)), spec: Some(spec), ..Job::default() }
}

/// What `spire-volume` is told: see [`crate::volume`].
fn command(config: &Config, work: &Work<'_>) -> Vec<String> {
    let task = work.task.as_str();
    let mut words =
        [&format!("/{PROGRAM}"), task, "--data", DATA_DIRECTORY, "--backups", BACKUPS].map(str::to_owned).to_vec();
    let flag = if work.task == Task::Clear { "--backup" } else { "--name" };
    words.extend([flag.to_owned(), work.backup.to_owned()]);
    let mut facts = |flag: &str, facts: &[(&str, &str)]| {
        let known = facts.iter().filter(|(_, value)| !value.is_empty());
        words.extend(known.flat_map(|(key, value)| [flag.to_owned(), format!("{key}={value}")]));
    };
    let (trust_domain, cluster) = (("trustDomain", config.trust_domain.as_str()), config.cluster_name.as_str());
    match work.task {
        Task::Backup { keep } => {
            facts("--about", &[trust_domain, ("clusterName", cluster)]);
            words.extend(["--keep".to_owned(), keep.max(1).to_string()]);
        }
        Task::Restore => facts("--expect", &[trust_domain]),
        Task::Clear => {}
    }
    words
}

fn volume(name: &str, claim: &str) -> Volume {
    let claim = PersistentVolumeClaimVolumeSource { claim_name: claim.to_owned(), read_only: None };
    Volume { name: name.to_owned(), persistent_volume_claim: Some(claim), ..Volume::default() }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use k8s_openapi::api::core::v1::PodSpec;
    use serde_json::json;

    use super::*;
    use crate::render::testing::{PLAIN, config, settings};
    use crate::volume::Cli;

    fn server(spec: &serde_json::Value) -> SpireServer {
        serde_json::from_value(json!({ "metadata": { "name": "cluster" }, "spec": spec })).unwrap()
    }

    const BACKUP: Work<'_> =
        Work { task: Task::Backup { keep: 5 }, backup: "manual-20261119-191500", claim: BACKUP_CLAIM, attempt: 1 };
    const RESTORE: Work<'_> = Work { task: Task::Restore, backup: "latest", claim: "older-backups", attempt: 1 };
    const CLEAR: Work<'_> =
        Work { task: Task::Clear, backup: "migration-20261119-191500", claim: BACKUP_CLAIM, attempt: 2 };

    fn job_of(work: &Work<'_>) -> Job {
        let spec = json!({ "labels": { "team": "identity" }, "nodeSelector": { "disk": "fast" } });
        job(&server(&spec), &config(), &settings(), &PLAIN, work)
    }

    fn pod_of(work: &Work<'_>) -> PodSpec {
        job_of(work).spec.unwrap().template.spec.unwrap()
    }

    #[test]
    fn a_backup_is_made_by_this_job() {
        insta::assert_yaml_snapshot!(job_of(&BACKUP));
    }

    #[test]
    fn the_claims_are_as_the_spec_says() {
        let all = |spec| {
            let server = server(&spec);
            [data_claim(&server, &config(), &settings()), backup_claim(&server, &settings())]
        };
        let said = json!({
            "persistence": { "size": "20Gi", "accessMode": "ReadWriteOncePod", "storageClass": "fast" },
            "backup": { "size": "40Gi", "storageClass": "slow" },
        });
        insta::assert_yaml_snapshot!(all(said));
        let [data, backups] = all(json!({ "persistence": { "storageClass": "" } })).map(|claim| claim.spec.unwrap());
        assert_eq!(data.storage_class_name, None, "the default class of the cluster");
        assert_eq!(backups, data, "backups are kept on a volume like that of the data, unless the spec says otherwise");
    }

    #[test]
    fn each_job_tells_spire_volume_what_it_understands() {
        let commands = [BACKUP, RESTORE, CLEAR].map(|work| pod_of(&work).containers.remove(0).command.unwrap());
        for command in &commands {
            Cli::try_parse_from(command).unwrap();
        }
        insta::assert_yaml_snapshot!(commands.map(|command| command.join(" ")));
    }

    #[test]
    fn only_a_backup_may_write_to_the_volume_of_backups() {
        let read_only = |work| {
            let mounts = pod_of(work).containers.remove(0).volume_mounts.unwrap();
            mounts.into_iter().find(|mount| mount.name == "backups").unwrap().read_only
        };
        assert_eq!([&BACKUP, &RESTORE, &CLEAR].map(read_only), [None, Some(true), Some(true)]);
    }

    #[test]
    fn the_name_of_a_job_fits_however_long_the_name_of_the_backup_is() {
        let job_of = |backup: &str| job_name(&Work { backup, ..RESTORE });
        assert_eq!(job_of("latest"), "spire-restore-latest-1");
        let long = "a.".repeat(100);
        let names = [job_of(&long), job_of(&format!("{long}b"))];
        assert_ne!(names[0], names[1]);
        for name in names {
            assert!(name.len() <= 63 && name.starts_with("spire-restore-a.a."), "{name}");
        }
    }
}
