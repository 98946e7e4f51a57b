//! `opctl tf logs`: the log of Terraform in the pod of a run.

use std::io::stderr;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use futures::{AsyncBufReadExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{ListParams, LogParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use terraform_runner_operator::api::v1alpha1::{Action, Run, TerraformWorkspace};

use super::Which;
use super::workspaces::{Workspaces, current, message};
use crate::cluster;
use crate::output::{self, Paint, age};

/// The container in which Terraform runs.
const CONTAINER: &str = "terraform";
/// On every pod of a Job: the Job.
const JOB_LABEL: &str = "batch.kubernetes.io/job-name";
/// How often, and after which pause, a log that was interrupted is opened again.
const ATTEMPTS: usize = 30;
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub which: Which,
    /// Follow the run until it ends, and the next one if that has begun by then; wait for one where there is none yet. The
    /// exit code says how the last one ended
    #[arg(short, long)]
    follow: bool,
}

pub(super) async fn logs(workspaces: &Workspaces, flags: &Flags) -> anyhow::Result<ExitCode> {
    let name = &flags.which.name;
    let workspace = workspaces.get(name).await?;
    if flags.follow {
        return Box::pin(follow(workspaces, workspace)).await;
    }
    let Some(run) = last_run(&workspace) else {
        bail!("TerraformWorkspace {name} has had no run yet: {}", message(&workspace));
    };
    let job = &run.job;
    match pod_of(workspaces, job).await? {
        Some(pod) if has_started(&pod) => print_log(workspaces, &pod, false).await?,
        Some(pod) => bail!("Pod {} of Job {job} has not started yet: wait for it with -f.", pod.name_any()),
        None if !run.is_over() => bail!("Job {job} has no pod yet: wait for it with -f."),
        None => bail!("{}", gone(run, name)),
    }
    Ok(ExitCode::SUCCESS)
}

async fn follow(workspaces: &Workspaces, mut workspace: TerraformWorkspace) -> anyhow::Result<ExitCode> {
    let name = workspace.name_any();
    let mut shown = None;
    loop {
        if next_run(&workspace, shown).is_none() {
            note(&format!("Waiting for a run of TerraformWorkspace {name}: {}", message(&workspace)));
        }
        let Some(found) = workspaces.objects.wait(&name, |workspace| next_run(workspace, shown).is_some()).await?
        else {
            bail!("TerraformWorkspace {name} was deleted before a run began.");
        };
        let Some(run) = next_run(&found, shown).cloned() else { continue };
        note(&format!("Run {} ({}), Job {}", run.number, run.action.word(), run.job));
        match started(workspaces, &name, &run).await? {
            Some(pod) => print_log(workspaces, &pod, true).await?,
            None => note(&gone(&run, &name)),
        }
        let Some(after) = workspaces.objects.wait(&name, |workspace| is_past(workspace, &run)).await? else {
            // A workspace goes when everything is destroyed.
            let code = if run.action == Action::Destroy { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            note(&format!("TerraformWorkspace {name} is gone."));
            return Ok(code);
        };
        let good = print_end(&after, &run);
        if last_run(&after).is_some_and(|last| last.number > run.number) {
            (shown, workspace) = (Some(run.number), after);
            continue;
        }
        return Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
}

fn last_run(workspace: &TerraformWorkspace) -> Option<&Run> {
    workspace.status.as_ref()?.run.as_ref()
}

/// The run to show next. One that is over is shown only where no other is expected: the operator has reconciled the spec.
fn next_run(workspace: &TerraformWorkspace, shown: Option<i64>) -> Option<&Run> {
    let run = last_run(workspace)?;
    match shown {
        Some(shown) => (run.number > shown).then_some(run),
        None => (!run.is_over() || current(workspace).is_some()).then_some(run),
    }
}

/// Whether a run is over, or another one has taken its place.
fn is_past(workspace: &TerraformWorkspace, run: &Run) -> bool {
    last_run(workspace).is_some_and(|last| last.number > run.number || (last.number == run.number && last.is_over()))
}

/// Prints how a run ended. Returns whether it succeeded.
fn print_end(workspace: &TerraformWorkspace, run: &Run) -> bool {
    let history = workspace.status.iter().flat_map(|status| &status.history);
    let Some(record) = history.into_iter().find(|record| record.number == run.number) else { return false };
    let (paint, took) = (Paint::detect(&stderr()), age(record.duration.as_duration()));
    let outcome = super::show::outcome_words(record.outcome, paint);
    let summary = if record.summary.is_empty() { String::new() } else { format!(", {}", record.summary) };
    note(&format!("Run {} ({}): {outcome}{summary}, after {took}", run.number, run.action.word()));
    record.outcome.is_good()
}

fn gone(run: &Run, name: &str) -> String {
    format!("The pod of Job {} is gone, and its log with it: opctl tf show {name} shows how the run ended.", run.job)
}

/// Prints a note about the log to the standard error.
fn note(words: &str) {
    eprintln!("{} {words}", Paint::detect(&stderr()).faint("opctl:"));
}

/// The newest pod of a Job.
async fn pod_of(workspaces: &Workspaces, job: &str) -> anyhow::Result<Option<Pod>> {
    let params = ListParams::default().labels(&format!("{JOB_LABEL}={job}"));
    let pods = workspaces.objects.ask(workspaces.pods().list(&params)).await?.items;
    Ok(pods.into_iter().max_by_key(|pod| pod.creation_timestamp().map(|time| time.0)))
}

/// Waits, by watch, until the pod of a run has started; none when the run is over and there is no such pod.
async fn started(workspaces: &Workspaces, name: &str, run: &Run) -> anyhow::Result<Option<Pod>> {
    let labels = format!("{JOB_LABEL}={}", run.job);
    let config = watcher::Config::default().labels(&labels).timeout(cluster::WATCH_TIMEOUT_SECONDS);
    let mut events = pin!(watcher::watcher(workspaces.pods(), config).default_backoff());
    let starts = async {
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::InitApply(pod) | Event::Apply(pod)) if has_started(&pod) => return Ok(Some(pod)),
                Ok(_) => {}
                Err(error) => drop(workspaces.objects.broken(error)?),
            }
        }
        bail!("The watch of the pods of Job {} ended; try again.", run.job)
    };
    tokio::select! {
        biased;
        pod = starts => pod,
        over = workspaces.objects.wait(name, |workspace| is_past(workspace, run)) => {
            over?;
            Ok(pod_of(workspaces, &run.job).await?.filter(has_started))
        }
    }
}

/// Whether Terraform's container has started, be it over or not.
fn has_started(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut states = containers.filter(|one| one.name == CONTAINER).filter_map(|one| one.state.as_ref());
    states.any(|state| state.running.is_some() || state.terminated.is_some())
}

/// Prints the log of a pod. Following it goes on where the connection broke.
async fn print_log(workspaces: &Workspaces, pod: &Pod, follow: bool) -> anyhow::Result<()> {
    let (pods, name) = (workspaces.pods(), pod.name_any());
    let (mut last, mut attempts) = (None, 0);
    loop {
        let params = LogParams {
            container: Some(CONTAINER.to_owned()),
            follow,
            // They say where to continue.
            timestamps: true,
            since_time: last,
            ..LogParams::default()
        };
        match workspaces.objects.ask(pods.log_stream(&name, &params)).await {
            Ok(stream) => {
                let before = last;
                match copy(stream, &mut last).await? {
                    None => return Ok(()),
                    Some(why) if !follow => bail!("The log of pod {name} was interrupted ({why}): try again."),
                    Some(_) if last > before => attempts = 0,
                    Some(_) => {}
                }
            }
            Err(error) if !follow || attempts == ATTEMPTS => return Err(error),
            Err(_) => {}
        }
        attempts += 1;
        tokio::time::sleep(PAUSE).await;
        if workspaces.objects.ask(pods.get_opt(&name)).await.is_ok_and(|pod| pod.is_none()) {
            return Ok(());
        }
    }
}

/// Prints lines that are newer than `last`, without the times before them. Returns the error that ended it, if any.
async fn copy(
    stream: impl futures::AsyncBufRead,
    last: &mut Option<Timestamp>,
) -> anyhow::Result<Option<std::io::Error>> {
    let mut stream = pin!(stream);
    let after = *last;
    loop {
        let mut line = Vec::new();
        match stream.read_until(b'\n', &mut line).await {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Ok(Some(error)),
        }
        let line = String::from_utf8_lossy(&line);
        let (time, words) = timed(&line);
        if time.is_some() && time <= after {
            continue;
        }
        *last = time.or(*last);
        output::print(words)?;
    }
}

/// A line of a log, and when it was written.
fn timed(line: &str) -> (Option<Timestamp>, &str) {
    match line.split_once(' ').map(|(time, words)| (time.parse(), words)) {
        Some((Ok(time), words)) => (Some(time), words),
        _ => (None, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_log_goes_on_where_it_broke() {
        let mut last = "2026-01-01T12:00:00.000000001Z".parse().ok();
        let log: &[u8] =
            b"2026-01-01T12:00:00.000000001Z told before\n2026-01-01T12:00:00.000000002Z \xff new\nnot timed\n";
        assert!(copy(log, &mut last).await.unwrap().is_none());
        assert_eq!(last, "2026-01-01T12:00:00.000000002Z".parse().ok());
        assert_eq!(timed("2026-01-01T12:00:00.5Z  two spaces\n").1, " two spaces\n");
    }
}
