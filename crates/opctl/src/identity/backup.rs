//! `opctl identity backup`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use lifecycle_operator::api::v1alpha1::{
    BACKUP_ANNOTATION, Backup, MigrationPhase, SINGLETON, SpireServer, VolumeStatus, VolumeWorkKind,
};
use lifecycle_operator::config::PARENT;
use opcore::runtime::duration;

use super::stack::{Kinds, Stack, View};
use super::status::backup_words;
use crate::objects::WaitFlags;
use crate::output;
use crate::phrases::printable;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// Wait until the backup is complete and verified
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true)]
    wait: bool,
    /// How long to wait for it
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    timeout: Duration,
}

pub(super) async fn backup(kinds: &Kinds, flags: &Flags) -> anyhow::Result<ExitCode> {
    let stack = kinds.stack().await?;
    let server = kinds.servers.get(SINGLETON).await?;
    let asked_at = Timestamp::now();
    let request = asked_at.to_string();
    let before = volume(&server).and_then(|volume| volume.last_backup.clone());
    let change = |server: &SpireServer| {
        possible(&stack, server)?;
        Ok(vec![(BACKUP_ANNOTATION, Some(request.clone()))])
    };
    let fulfilled = |server: &SpireServer| {
        let Some(volume) = volume(server) else { return false };
        volume.backup_request.as_ref() == Some(&request) && volume.work.is_none()
    };
    let patience = WaitFlags { wait: flags.wait, timeout: flags.timeout };
    let Some(after) = kinds.servers.request(server, &patience, change, fulfilled).await? else {
        return Ok(ExitCode::SUCCESS);
    };
    let last = volume(&after).and_then(|volume| volume.last_backup.as_ref());
    let Some(made) = last.filter(|last| before.is_none_or(|before| before.name != last.name)) else {
        let why = failure(kinds, &after, asked_at).await;
        bail!("There is no new backup of the volume of SpireServer {SINGLETON}: {why}");
    };
    output::print_lines(&words(made, &View::now()))?;
    Ok(ExitCode::SUCCESS)
}

fn volume(server: &SpireServer) -> Option<&VolumeStatus> {
    server.status.as_ref()?.volume.as_ref()
}

/// Checks that a backup can be requested.
///
/// # Errors
///
/// The operator would not make it; the error says why, and what to do.
pub(super) fn possible(stack: &Stack, server: &SpireServer) -> anyhow::Result<()> {
    if server.metadata.deletion_timestamp.is_some() {
        bail!(
            "SpireServer {SINGLETON} is being deleted: its teardown makes a backup by itself, unless spec.backup.onDelete is \
             false; see opctl identity status."
        );
    }
    if server.spec.suspend {
        bail!("SpireServer {SINGLETON} is suspended by its spec: set spec.suspend to false.");
    }
    let status = stack.parent.as_ref().and_then(|parent| parent.status.as_ref());
    let migration = status.and_then(|status| status.migration.as_ref()).filter(|it| it.phase != MigrationPhase::Done);
    if let Some(migration) = migration {
        bail!(
            "{PARENT} {SINGLETON} is being migrated to trust domain {}, which makes a backup by itself: try again when it \
             is done.",
            migration.to
        );
    }
    let Some(volume) = volume(server).filter(|volume| volume.claim.is_some()) else {
        bail!("SpireServer {SINGLETON} has no volume yet: there is nothing to back up; see opctl identity status.");
    };
    if let Some(work) = &volume.work {
        let doing = match work.kind {
            VolumeWorkKind::Backup => "is being made",
            VolumeWorkKind::Restore => "is being restored",
            VolumeWorkKind::Clear => "is what the volume is being emptied after",
        };
        bail!("Backup {} {doing}: try again when that is done.", work.backup);
    }
    Ok(())
}

/// The backup that was made, for people.
pub(super) fn words(backup: &Backup, view: &View) -> Vec<String> {
    if backup.files == 0 {
        return vec!["The volume is empty: there was nothing to back up.".to_owned()];
    }
    let mut lines = vec![
        "The backup is complete, and was verified.".to_owned(),
        backup_words(backup, view),
        format!("SHA-256 of its list of files: {}", backup.manifest_sha256),
    ];
    lines.extend(backup.trust_domain.as_ref().map(|domain| format!("Trust domain of the data: {domain}")));
    lines
}

/// Why a backup was not made, from the Event of the operator.
async fn failure(kinds: &Kinds, server: &SpireServer, asked_at: Timestamp) -> String {
    let unknown = || format!("kubectl describe spireserver {SINGLETON} shows the Event that says why.");
    // Events about objects without a namespace are in this one.
    let events: Api<Event> = Api::namespaced(kinds.cluster.client.clone(), "default");
    let of_failures = ListParams::default().fields("reason=BackupFailed");
    let Ok(found) = events.list(&of_failures).await else { return unknown() };
    let uid = server.uid();
    let time = |event: &Event| event.event_time.as_ref().map(|time| time.0);
    let about = |event: &&Event| {
        let is_of_server = event.regarding.as_ref().is_some_and(|regarding| regarding.uid == uid);
        is_of_server && time(event).is_some_and(|time| time >= asked_at)
    };
    let last = found.items.iter().filter(about).max_by_key(|event| time(event));
    last.and_then(|event| event.note.as_deref()).map_or_else(unknown, printable)
}
