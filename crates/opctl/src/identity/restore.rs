//! `opctl identity restore`: a backup is restored into the empty volume of a new server only.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use lifecycle_operator::api::v1alpha1::{
    BACKUP_CLAIM, INHERITED_ANNOTATION, OperandKind, SINGLETON, SpireServer, VolumeStatus,
    ZeroTrustWorkloadIdentityManager,
};
use lifecycle_operator::render::volume::DATA_CLAIM;
use opcore::conditions::{READY, STALLED, find, is_true};
use opcore::runtime::duration;
use serde_json::json;

use super::plan::{claims, place};
use super::stack::{CHART, Kinds};
use crate::output::{self, age};
use crate::phrases::printable;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The backup, or latest
    name: String,
    /// The PersistentVolumeClaim that holds it, in the namespace of the operands
    #[arg(long, value_name = "NAME", default_value = BACKUP_CLAIM)]
    claim: String,
    /// Wait until the backup is restored
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true)]
    wait: bool,
    /// How long to wait for it
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    timeout: Duration,
}

pub(super) async fn restore(kinds: &Kinds, flags: &Flags) -> anyhow::Result<ExitCode> {
    let claims = claims(&kinds.cluster).await?;
    let wanted = Wanted { name: &flags.name, claim: &flags.claim };
    let server = kinds.servers.find(SINGLETON).await?;
    match volume_state(server.as_ref(), &claims, wanted)? {
        VolumeState::Restored => {
            output::print_lines(&[format!("Backup {} was restored already.", flags.name)])?;
            return Ok(ExitCode::SUCCESS);
        }
        VolumeState::Occupied(why) => {
            let parent = kinds.parents.find(SINGLETON).await?;
            let namespace = claims.first().and_then(ResourceExt::namespace);
            output::print_lines(&steps(server.as_ref(), parent.as_ref(), namespace.as_deref(), &claims, wanted))?;
            bail!("Nothing was done: {why}, and a backup is restored into the empty volume of a new server only.");
        }
        VolumeState::Empty => {}
    }
    let Some(server) = server else {
        bail!("There is no SpireServer {SINGLETON}: create one with {} in its spec.", wanted.field())
    };
    let change = |server: &SpireServer| match volume_state(Some(server), &claims, wanted)? {
        VolumeState::Empty => Ok(json!({ "spec": { "restoreFrom": { "claim": wanted.claim, "name": wanted.name } } })),
        _ => Err(anyhow!("SpireServer {SINGLETON} has begun to run meanwhile: nothing was done.")),
    };
    kinds.servers.change(server, change).await?;
    output::print_lines(&[format!("SpireServer {SINGLETON} is to start from {}.", wanted.title())])?;
    if flags.wait { awaited(kinds, flags).await } else { Ok(ExitCode::SUCCESS) }
}

/// The backup to restore.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub name: &'a str,
    pub claim: &'a str,
}

impl Wanted<'_> {
    fn title(self) -> String {
        format!("backup {} in PersistentVolumeClaim {}", self.name, self.claim)
    }

    /// The field of a manifest that requests it.
    fn field(self) -> String {
        format!("restoreFrom: {{ claim: {}, name: {} }}", self.claim, self.name)
    }
}

/// Whether a backup can be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VolumeState {
    /// The server has no data.
    Empty,
    /// It has data, or may have; this says where.
    Occupied(String),
    /// It started from this backup.
    Restored,
}

/// Whether a backup can be restored now. The operator and the program that restores check the same again:
/// nothing is overwritten, whatever happens in between.
///
/// # Errors
///
/// It cannot, and waiting or another flag would help.
pub(super) fn volume_state(
    server: Option<&SpireServer>,
    claims: &[PersistentVolumeClaim],
    wanted: Wanted<'_>,
) -> anyhow::Result<VolumeState> {
    if let Some(server) = server {
        if server.metadata.deletion_timestamp.is_some() {
            bail!(
                "SpireServer {SINGLETON} is being deleted: wait until it is gone; see opctl identity status --watch."
            );
        }
        if server.spec.suspend {
            bail!("SpireServer {SINGLETON} is suspended by its spec: set spec.suspend to false.");
        }
        if let Some(restored) = volume(server).and_then(|volume| volume.restored.as_ref()) {
            let is_same = restored == wanted.name;
            let words = format!("SpireServer {SINGLETON} has data, from backup {restored}");
            return Ok(if is_same { VolumeState::Restored } else { VolumeState::Occupied(words) });
        }
        if volume(server).is_some_and(|volume| volume.claim.is_some()) {
            return Ok(VolumeState::Occupied(format!("SpireServer {SINGLETON} has data")));
        }
    }
    let phase = |claim: &PersistentVolumeClaim| claim.status.as_ref().and_then(|status| status.phase.clone());
    let is_bound =
        |claim: &&PersistentVolumeClaim| claim.name_any() == DATA_CLAIM && phase(claim).as_deref() == Some("Bound");
    if let Some(claim) = claims.iter().find(is_bound) {
        return Ok(VolumeState::Occupied(format!("{} may hold data of an earlier server", place(claim))));
    }
    if wanted.claim == BACKUP_CLAIM && !claims.iter().any(|claim| claim.name_any() == BACKUP_CLAIM) {
        bail!("There is no PersistentVolumeClaim {BACKUP_CLAIM}: name the one that holds the backup with --claim.");
    }
    Ok(VolumeState::Empty)
}

fn volume(server: &SpireServer) -> Option<&VolumeStatus> {
    server.status.as_ref()?.volume.as_ref()
}

/// The commands, in order, that start a server from a backup where there is data.
pub(super) fn steps(
    server: Option<&SpireServer>,
    parent: Option<&ZeroTrustWorkloadIdentityManager>,
    namespace: Option<&str>,
    claims: &[PersistentVolumeClaim],
    wanted: Wanted<'_>,
) -> Vec<String> {
    let namespace = namespace.unwrap_or("NAMESPACE");
    let mut steps: Vec<(&str, String)> = Vec::new();
    let lists = parent.filter(|parent| parent.spec.operands.contains(&OperandKind::SpireServer));
    let list = |operands: &[OperandKind]| {
        let names: Vec<&str> = operands.iter().map(|kind| kind.as_str()).collect();
        let patch = json!({ "spec": { "operands": names } });
        format!("kubectl patch ztwim {SINGLETON} --type merge --patch '{patch}'")
    };
    if let Some(server) = server {
        if let Some(parent) = lists {
            let others: Vec<_> =
                parent.spec.operands.iter().copied().filter(|kind| *kind != OperandKind::SpireServer).collect();
            steps.push(("take the server off the list, so that it is not created again at once", list(&others)));
        }
        steps.push(("keep its spec, with the backup to start from", save(server, wanted)));
        let delete = format!("kubectl delete spireserver {SINGLETON}");
        steps.push(("delete it; opctl identity teardown plan server shows what that does", delete));
    }
    if claims.iter().any(|claim| claim.name_any() == DATA_CLAIM) {
        let delete = format!("kubectl --namespace {namespace} delete persistentvolumeclaim {DATA_CLAIM}");
        steps.push(("delete the volume, once you are sure that its data is in a backup", delete));
    }
    let apply = match server {
        Some(_) => format!("kubectl apply -f {FILE}"),
        None => format!("kubectl apply -f {FILE}   # a manifest with {} in its spec", wanted.field()),
    };
    steps.push(("create the server from the backup", apply));
    if let Some(parent) = lists.filter(|_| server.is_some()) {
        steps.push(("put it on the list again", list(&parent.spec.operands)));
    }
    let mut lines = vec![format!("To start from {}:", wanted.title()), String::new()];
    for (number, (what, command)) in steps.into_iter().enumerate() {
        lines.extend([format!("  {}. {what}:", number + 1), format!("       {command}")]);
    }
    lines.push(String::new());
    lines
}

/// The file that a manifest is kept in.
const FILE: &str = "spireserver.json";

/// The command that saves the spec of a server, without the fields that it inherits: it inherits them again.
fn save(server: &SpireServer, wanted: Wanted<'_>) -> String {
    let inherited = server.annotations().get(INHERITED_ANNOTATION).map(String::as_str).unwrap_or_default();
    let fields: Vec<String> =
        inherited.split(',').filter(|field| !field.is_empty()).map(|field| format!(".{field}")).collect();
    let without = if fields.is_empty() { String::new() } else { format!(" | del({})", fields.join(", ")) };
    let from = json!({ "claim": wanted.claim, "name": wanted.name });
    let spec = format!("(.spec{without} | .restoreFrom = {from})");
    let manifest = format!("{{apiVersion, kind, metadata: {{name: .metadata.name}}, spec: {spec}}}");
    format!("kubectl get spireserver {SINGLETON} -o json | jq '{manifest}' > {FILE}")
}

/// Waits until the backup is restored, and prints the result.
async fn awaited(kinds: &Kinds, flags: &Flags) -> anyhow::Result<ExitCode> {
    let restored = |server: &SpireServer| volume(server).is_some_and(|volume| volume.restored.is_some());
    let runs = |server: &SpireServer| volume(server).is_some_and(|volume| volume.claim.is_some());
    let is_over = |server: &SpireServer| restored(server) || runs(server) || stalled(server).is_some();
    let waited = tokio::time::timeout(flags.timeout, kinds.servers.wait(SINGLETON, is_over)).await;
    let Ok(after) = waited else {
        bail!(
            "The backup was not restored within {}: is {CHART} running? See opctl identity status.",
            age(flags.timeout)
        )
    };
    let Some(after) = after? else { bail!("SpireServer {SINGLETON} was deleted meanwhile.") };
    if let Some(name) = volume(&after).and_then(|volume| volume.restored.as_ref()) {
        output::print_lines(&[format!(
            "Backup {name} is restored: the server starts from it, with the CA that it holds."
        )])?;
        return Ok(ExitCode::SUCCESS);
    }
    match stalled(&after) {
        Some(why) => bail!("SpireServer {SINGLETON}: {why}"),
        None => bail!(
            "SpireServer {SINGLETON} had begun to run before: spec.restoreFrom is ignored, nothing was overwritten."
        ),
    }
}

/// Why a server is stalled, if it is, with its current spec.
fn stalled(server: &SpireServer) -> Option<String> {
    let status = server.status.as_ref().filter(|status| status.observed_generation == server.metadata.generation)?;
    let is_stalled = is_true(&status.conditions, STALLED);
    find(&status.conditions, READY).filter(|_| is_stalled).map(|ready| printable(&ready.message))
}
