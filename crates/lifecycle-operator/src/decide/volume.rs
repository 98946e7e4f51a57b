//! Work on the volume of a server: backup, restore, clear. The server is stopped while a Job does it.
//!
//! ```text
//! recorded in status ─▶ server stops ─▶ Job runs ─▶ its report is recorded ─▶ server starts
//! ```
//!
//! The status says what is under way before anything is done, and holds the result before the Job goes: so the work
//! resumes after a crash at any point. The program in the Job can be repeated at any point, too.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use opcore::conditions::Summary;
use opcore::{Note, Write, annotations};

use super::{Decider, migration};
use crate::api::v1alpha1::{
    BACKUP_ANNOTATION, BACKUP_CLAIM, Backup, MigrationPhase, SpireServer, TRUST_DOMAIN_ANNOTATION, VolumeStatus,
    VolumeWork, VolumeWorkKind,
};
use crate::observe::{Found, Observed};
use crate::render::volume::{DATA_CLAIM, Task, Work, job_name};
use crate::render::{self, Config};
use crate::volume::report::{Outcome, Report};

/// What has to be done about the volume of a server.
#[derive(Debug, Default)]
pub struct Plan {
    /// Whether the server may run.
    pub running: bool,
    /// The claims and the Job.
    pub writes: Vec<Write>,
    /// The volume, as it is published.
    pub status: VolumeStatus,
    /// What people should know about it, instead of the state of the workload.
    pub summary: Option<Summary>,
    /// Events.
    pub notes: Vec<Note>,
    /// Jobs that are over.
    pub over: Vec<Write>,
}

/// A name for a backup that is made at this time, for this reason.
pub fn backup_name(reason: &str, now: Timestamp) -> String {
    format!("{reason}-{}", now.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S"))
}

/// The report of a Job, from the termination message of its pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The Job does not exist.
    NotAsked,
    /// It runs. The message says why it does not start, if it does not.
    Running(Option<String>),
    /// It is over.
    Over(Box<Report>),
    /// It is over, and nobody knows how: its pod is gone. The work can be repeated.
    Lost,
}

/// What became of the Job of this name.
pub fn answer(name: &str, observed: &Observed) -> Answer {
    let Some(job) = observed.found.iter().find(|found| found.is::<Job>() && found.object.name_any() == name) else {
        return Answer::NotAsked;
    };
    let mut pods = observed
        .pods
        .iter()
        .filter(|pod| pod.labels().get("batch.kubernetes.io/job-name").is_some_and(|job| job == name));
    let reports = pods.clone().find_map(report_of);
    match reports {
        Some(report) => Answer::Over(Box::new(report)),
        None if is_over(job) => Answer::Lost,
        None => Answer::Running(pods.find_map(super::pods::trouble)),
    }
}

fn is_over(job: &Found) -> bool {
    let conditions = job.json.pointer("/status/conditions").and_then(serde_json::Value::as_array);
    let over = |condition: &serde_json::Value| {
        condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
    };
    conditions.into_iter().flatten().any(over)
}

fn report_of(pod: &Pod) -> Option<Report> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    let ended = status.state.as_ref()?.terminated.as_ref()?;
    // A container that never ran is called terminated, too, when its pod goes.
    ended.started_at.as_ref()?;
    let said = ended.message.as_deref().unwrap_or_default();
    Some(Report::parse(said).unwrap_or_else(|_| {
        let reason = ended.reason.as_deref().unwrap_or("no reason");
        Report::new(
            Outcome::Failed,
            format!("The program ended without a report: {reason}, exit code {}.", ended.exit_code),
        )
    }))
}

/// What a claim waits for. The scheduler does not tell the storage class.
pub(super) fn unbound(claim: &PersistentVolumeClaim) -> Option<String> {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let class = class.map_or_else(|| "the default storage class".to_owned(), |class| format!("storage class {class}"));
    (phase == Some("Pending")).then(|| {
        format!(
            "PersistentVolumeClaim {} is not bound to a volume: is there {class}, and does it make volumes?",
            claim.name_any()
        )
    })
}

/// The backup that a report is about.
pub fn backup_of(report: &Report, asked: &str) -> Backup {
    Backup {
        name: report.name.clone().unwrap_or_else(|| asked.to_owned()),
        claim: BACKUP_CLAIM.to_owned(),
        taken_at: report.taken_at,
        trust_domain: report.about.get("trustDomain").cloned(),
        files: report.files.unwrap_or_default(),
        bytes: report.bytes.unwrap_or_default(),
        manifest_sha256: report.manifest_sha256.clone().unwrap_or_default(),
    }
}

/// The trust domain of the data on the volume, as its claim says.
pub fn trust_domain_of_data(observed: &Observed) -> Option<&str> {
    let claim = observed.claims.iter().find(|claim| claim.name_any() == DATA_CLAIM)?;
    claim.annotations().get(TRUST_DOMAIN_ANNOTATION).map(String::as_str)
}

/// Whether a pod of the server is there, running or going.
fn server_is_there(observed: &Observed) -> bool {
    observed.pods_of(render::server::COMPONENT).next().is_some()
}

/// Decides what has to be done about the volume of a server that is not being deleted.
///
/// # Errors
///
/// When an object cannot be rendered, which is a bug.
pub fn plan(
    server: &SpireServer,
    config: &Config,
    observed: &Observed,
    decider: &Decider,
    now: Timestamp,
) -> Result<Plan, render::Error> {
    let status = server.status.as_ref().and_then(|status| status.volume.clone()).unwrap_or_default();
    let mut plan = Plan { running: true, status, ..Plan::default() };
    let moved =
        migration::of(observed.parent.as_ref()).is_some_and(|migration| migration.phase >= MigrationPhase::Switching);
    if let Some(has) = trust_domain_of_data(observed).filter(|has| *has != config.trust_domain && !moved) {
        plan.running = false;
        plan.summary = Some(Summary::stalled(
            "VolumeOfAnotherTrustDomain",
            format!(
                "PersistentVolumeClaim {DATA_CLAIM} holds data of trust domain {has}, with which SPIRE does not start in {}. \
             Use {has}, or back up and delete the claim.",
                config.trust_domain,
            ),
        ));
        return Ok(plan);
    }
    plan.writes.push(claim(&render::volume::data_claim(server, config, &decider.settings))?);
    if plan.status.work.is_none() {
        let next = next_work(server, observed, &mut plan, now);
        plan.status.work = next;
        if plan.status.work.is_some() {
            // It is published before anything is done about it.
            plan.running = !server_was_stopped(observed);
            plan.over = jobs_that_are_over(observed, None);
            plan.summary = plan.status.work.as_ref().map(waits);
            return Ok(plan);
        }
    }
    let Some(work) = plan.status.work.clone() else {
        plan.running = !migration::stops(observed.parent.as_ref());
        plan.over = jobs_that_are_over(observed, None);
        return Ok(plan);
    };
    plan.running = false;
    go_on(&work, server, config, observed, decider, &mut plan)?;
    plan.over = jobs_that_are_over(observed, Some(&job_name(&job_of(&work, server))));
    Ok(plan)
}

/// A server whose workload was never applied, or has no pods, is not started just to be stopped.
fn server_was_stopped(observed: &Observed) -> bool {
    !server_is_there(observed)
}

/// The work that should begin now.
fn next_work(server: &SpireServer, observed: &Observed, plan: &mut Plan, now: Timestamp) -> Option<VolumeWork> {
    let work = |kind, backup: String| Some(VolumeWork { kind, backup, started_at: now, message: None });
    if let Some(migration) = migration::of(observed.parent.as_ref()) {
        let backup = migration.backup.clone().unwrap_or_default();
        let backed_up = plan.status.last_backup.as_ref().is_some_and(|last| last.name == backup);
        return match migration.phase {
            MigrationPhase::Draining | MigrationPhase::BackingUp if !backed_up => work(VolumeWorkKind::Backup, backup),
            MigrationPhase::Clearing if plan.status.cleared.as_ref() != Some(&backup) => {
                work(VolumeWorkKind::Clear, backup)
            }
            _ => None,
        };
    }
    if let Some(from) = &server.spec.restore_from
        && plan.status.restored.is_none()
    {
        if plan.status.claim.is_none() && !server_is_there(observed) {
            return work(VolumeWorkKind::Restore, from.name.clone());
        }
        let ready =
            server.status.as_ref().is_some_and(|status| opcore::conditions::is_true(&status.conditions, "Ready"));
        if !ready || server.metadata.generation != server.status.as_ref().and_then(|status| status.observed_generation)
        {
            plan.notes.push(Note::warning("RestoreIgnored", format!(
                "spec.restoreFrom is ignored: the server has data already. Delete the SpireServer and PersistentVolumeClaim \
                 {DATA_CLAIM}, and create it again with spec.restoreFrom."
            )));
        }
    }
    let request = annotations::request(server, BACKUP_ANNOTATION, plan.status.backup_request.as_deref())?;
    plan.status.backup_request = Some(request.to_owned());
    work(VolumeWorkKind::Backup, backup_name("manual", now))
}

/// What a Job is to do.
fn job_of<'a>(work: &'a VolumeWork, server: &'a SpireServer) -> Work<'a> {
    match work.kind {
        VolumeWorkKind::Backup => backup_job(server, &work.backup),
        VolumeWorkKind::Restore => {
            let claim = server.spec.restore_from.as_ref().map_or(BACKUP_CLAIM, |from| &from.claim);
            Work { task: Task::Restore, backup: &work.backup, claim, attempt: 1 }
        }
        VolumeWorkKind::Clear => Work { task: Task::Clear, backup: &work.backup, claim: BACKUP_CLAIM, attempt: 1 },
    }
}

/// What a Job is to do that makes this backup.
pub fn backup_job<'a>(server: &SpireServer, name: &'a str) -> Work<'a> {
    Work { task: Task::Backup { keep: server.spec.backup.keep }, backup: name, claim: BACKUP_CLAIM, attempt: 1 }
}

/// The write of a claim, without an owner reference: it outlives the server.
pub fn claim(claim: &PersistentVolumeClaim) -> Result<Write, render::Error> {
    Write::apply(claim).map_err(|error| error.to_string())
}

/// The write of a Job, without an owner reference: while its owner is deleted in the foreground, Kubernetes would delete
/// it at once.
pub fn job(
    server: &SpireServer,
    config: &Config,
    observed: &Observed,
    decider: &Decider,
    work: &Work<'_>,
) -> Result<Write, render::Error> {
    let job = render::volume::job(server, config, &decider.settings, &observed.platform, work);
    Write::apply(&job).map_err(|error| error.to_string())
}

fn waits(work: &VolumeWork) -> Summary {
    let doing = match work.kind {
        VolumeWorkKind::Backup => format!("Backup {} is being made", work.backup),
        VolumeWorkKind::Restore => format!("Backup {} is being restored", work.backup),
        VolumeWorkKind::Clear => format!("The volume is being emptied; backup {} holds its data", work.backup),
    };
    let reason = match work.kind {
        VolumeWorkKind::Backup => "BackingUp",
        VolumeWorkKind::Restore => "Restoring",
        VolumeWorkKind::Clear => "Clearing",
    };
    let why = work.message.as_ref().map(|message| format!(" {message}")).unwrap_or_default();
    Summary::reconciling(reason, format!("{doing}, while the server is stopped.{why}"))
}

fn go_on(
    work: &VolumeWork,
    server: &SpireServer,
    config: &Config,
    observed: &Observed,
    decider: &Decider,
    plan: &mut Plan,
) -> Result<(), render::Error> {
    let asked = job_of(work, server);
    let mut work = work.clone();
    if server_is_there(observed) {
        work.message = Some("The server's pod is still there.".to_owned());
        plan.summary = Some(waits(&work));
        plan.status.work = Some(work);
        return Ok(());
    }
    let name = job_name(&asked);
    match answer(&name, observed) {
        found @ (Answer::NotAsked | Answer::Running(_) | Answer::Lost) => {
            if matches!(asked.task, Task::Backup { .. }) {
                plan.writes.push(claim(&render::volume::backup_claim(server, &decider.settings))?);
            }
            // A Job whose result is lost is deleted first, by its place among those that are over.
            if found != Answer::Lost {
                plan.writes.push(job(server, config, observed, decider, &asked)?);
            }
            work.message = match found {
                Answer::Running(message) => message,
                _ => None,
            };
            plan.summary = Some(waits(&work));
            plan.status.work = Some(work);
        }
        Answer::Over(report) => {
            let migrates = migration::of(observed.parent.as_ref()).is_some();
            ended(&work, &report, &name, migrates, plan);
        }
    }
    Ok(())
}

/// Records the result of a Job.
fn ended(work: &VolumeWork, report: &Report, job: &str, migrates: bool, plan: &mut Plan) {
    match (work.kind, report.result) {
        (VolumeWorkKind::Backup, Outcome::BackedUp | Outcome::Empty) => {
            plan.status.last_backup = Some(Backup { name: work.backup.clone(), ..backup_of(report, &work.backup) });
            plan.notes.push(Note::normal("BackedUp", report.message.clone()));
            if report.result == Outcome::Empty {
                // There is nothing to remove, either.
                plan.status.cleared = Some(work.backup.clone());
            }
            plan.status.work = None;
        }
        (VolumeWorkKind::Restore, Outcome::Restored | Outcome::AlreadyRestored) => {
            plan.status.restored = Some(report.name.clone().unwrap_or_else(|| work.backup.clone()));
            plan.notes.push(Note::normal("Restored", report.message.clone()));
            plan.status.work = None;
        }
        (VolumeWorkKind::Clear, Outcome::Cleared) => {
            plan.status.cleared = Some(work.backup.clone());
            plan.notes.push(Note::normal("Cleared", report.message.clone()));
            plan.status.work = None;
        }
        // A backup that someone asked for is worth less than a server that runs.
        (VolumeWorkKind::Backup, _) if !migrates => {
            plan.notes
                .push(Note::warning("BackupFailed", format!("There is no backup {}: {}", work.backup, report.message)));
            plan.status.work = None;
        }
        (kind, _) => {
            let reason = match kind {
                VolumeWorkKind::Backup => "BackupFailed",
                VolumeWorkKind::Restore => "RestoreFailed",
                VolumeWorkKind::Clear => "ClearFailed",
            };
            let message = format!("{} Mend that, and delete Job {job} to try again.", report.message);
            plan.summary = Some(Summary::stalled(reason, message));
            plan.status.work = Some(VolumeWork { message: Some(report.message.clone()), ..work.clone() });
        }
    }
    if plan.status.work.is_none() {
        plan.summary = Some(Summary::reconciling("Starting", report.message.clone()));
    }
}

/// The Jobs that no work needs any more: their results are recorded. A Job whose result is lost is among them.
fn jobs_that_are_over(observed: &Observed, needed: Option<&str>) -> Vec<Write> {
    let is_needed = |found: &&Found| {
        needed == Some(found.object.name_any().as_str())
            && !matches!(answer(&found.object.name_any(), observed), Answer::Lost)
    };
    let jobs = observed.found.iter().filter(|found| found.is::<Job>() && !found.is_deleting());
    jobs.filter(|found| !is_needed(found)).map(Found::delete).collect()
}
