//! The program `spire-volume`, which runs in Jobs on the volumes of a SPIRE server while the server is stopped. It works
//! on mounted directories only, and never talks to Kubernetes.
//!
//! | Command | Promise |
//! |---|---|
//! | `backup` | What has a name is whole, durable and verified. It is never overwritten |
//! | `verify` | The files are what they were |
//! | `restore` | All of a verified backup, or a directory that no server should start on. Nothing else is overwritten |
//! | `clear` | Only what a verified backup has is deleted |
//! | `sockets` | Only sockets that nothing listens on are removed |
//! | `list` | Reads only |
//!
//! Each can be killed at any point, and be run again: it goes on, or finds it done. A power failure is no worse: what
//! counts on a file is written after the file is durable. No symbolic link below a directory is followed, and no path in
//! a manifest leads out of it.
//!
//! The result is a [`Report`], written where Kubernetes expects the termination message of a container. The exit code
//! is 0 when the command did what it was told, 1 when running it again may help, and 2 when it refused, which only a
//! decision changes.
//!
//! | To learn about | read |
//! |---|---|
//! | the commands | [`backup`], [`prune`], [`restore`], [`clear`], [`sockets`], [`list`] |
//! | their results | [`report`], [`error`] |
//! | a backup on the disk | [`shelf`], [`manifest`] |
//! | a data directory | [`scan`], [`marks`] |
//! | files: safe paths, steps, copies | [`paths`], [`tree`], [`disk`], [`content`] |

pub mod backup;
pub mod clear;
pub mod content;
pub mod disk;
pub mod error;
pub mod list;
pub mod manifest;
pub mod marks;
pub mod paths;
pub mod prune;
pub mod report;
pub mod restore;
pub mod scan;
pub mod shelf;
pub mod sockets;
pub mod tree;

#[cfg(test)]
mod crashing;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod working;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use disk::{Disk, Real};
use error::VolumeError;
use report::{Outcome, Report};
use shelf::Shelf;

/// Where Kubernetes reads the termination message of a container.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Backs up, restores and clears the volumes of a SPIRE server that is stopped.
#[derive(Debug, Parser)]
#[command(name = "spire-volume", version)]
pub struct Cli {
    /// Where the result is written, as one JSON object
    #[arg(long, global = true, value_name = "FILE", default_value = TERMINATION_LOG)]
    report: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Copy the data directory into a new backup, and verify it
    Backup(BackupArgs),
    /// Check a backup against its checksums
    Verify {
        #[command(flatten)]
        backup: BackupName,
    },
    /// Put the files of a backup into an empty data directory
    Restore(RestoreArgs),
    /// Empty the data directory, if a verified backup has all that is in it
    Clear {
        /// The data directory
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The backups directory
        #[arg(long, value_name = "DIR")]
        backups: PathBuf,
        /// The name of the backup
        #[arg(long, value_name = "NAME")]
        backup: String,
    },
    /// Remove leftover unix sockets
    Sockets {
        /// Where they are, or in directories in there
        #[arg(long, value_name = "DIR")]
        directory: PathBuf,
        /// Then wait for SIGTERM, as the pod of a DaemonSet must
        #[arg(long)]
        then_wait: bool,
    },
    /// Name the backups
    List {
        /// The backups directory
        #[arg(long, value_name = "DIR")]
        backups: PathBuf,
    },
}

#[derive(Args, Clone, Debug)]
struct BackupName {
    /// The backups directory
    #[arg(long, value_name = "DIR")]
    backups: PathBuf,
    /// The name of the backup
    #[arg(long)]
    name: String,
}

#[derive(Args, Clone, Debug)]
struct BackupArgs {
    /// The data directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    #[command(flatten)]
    backup: BackupName,
    /// Remove the oldest backups of this server beyond this number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// What the backup is of, such as trustDomain=example.org
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, num_args = 1..)]
    about: Vec<(String, String)>,
}

#[derive(Args, Clone, Debug)]
struct RestoreArgs {
    /// The backups directory
    #[arg(long, value_name = "DIR")]
    backups: PathBuf,
    /// The name of the backup, or `latest`: the newest that is of what is expected
    #[arg(long)]
    name: String,
    /// The data directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// What the backup must be of, such as trustDomain=example.org
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, num_args = 1..)]
    expect: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("it has no =")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Executes the command line.
pub fn main(cli: &Cli) -> ExitCode {
    // Replaced at the end. Killed for want of memory, it could not say so any more.
    let begun = "It was killed before it was done. Run the same command again: it goes on from there.";
    let written = write_report(&cli.report, &Report::new(Outcome::Failed, begun));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match written.and(runtime).and_then(|runtime| runtime.block_on(run(cli))) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => {
            eprintln!("spire-volume: {}: {error}", cli.report.display());
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: &Cli) -> io::Result<Outcome> {
    let mut stop = stopping()?;
    let disk = Real { stop: stop.clone() };
    let done = match cli.command.clone() {
        Command::Sockets { directory, .. } => sockets::clean(&disk, &directory).await,
        command => tokio::task::spawn_blocking(move || perform(command, &disk)).await?,
    };
    let report = done.unwrap_or_else(|error| Report::failed(&error));
    write_report(&cli.report, &report)?;
    // Nobody may read it. What was done is done.
    let _ = say(&report);
    if matches!(cli.command, Command::Sockets { then_wait: true, .. }) && report.result != Outcome::Failed {
        let _ = stop.wait_for(|told| *told).await;
    }
    Ok(report.result)
}

fn perform(command: Command, disk: &dyn Disk) -> Result<Report, VolumeError> {
    let now = Timestamp::now();
    match command {
        Command::Backup(BackupArgs { data, backup: BackupName { backups, name }, keep, about }) => {
            let keep = keep.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX));
            backup::backup(disk, &backup::Order { data, backups, name, keep, about: map(about)?, now })
        }
        Command::Verify { backup: BackupName { backups, name } } => verify(disk, &backups, &name),
        Command::Restore(RestoreArgs { backups, name, data, expect }) => {
            restore::restore(disk, &restore::Order { backups, name, data, expected: map(expect)?, now })
        }
        Command::Clear { data, backups, backup } => clear::clear(disk, &clear::Order { data, backups, backup }),
        Command::List { backups } => list::list(disk, &backups),
        Command::Sockets { .. } => Err(VolumeError::Refused("This is not done here.".to_owned())),
    }
}

/// Checks a backup against its checksums.
pub fn verify(disk: &dyn Disk, backups: &Path, name: &str) -> Result<Report, VolumeError> {
    let shelf = Shelf::open(disk, backups, false)?;
    let kept = shelf.load(name)?;
    shelf.verify(&kept)?;
    let message = format!("Backup {name} holds {}; their checksums are right.", kept.size());
    Ok(kept.report(Outcome::Verified, message))
}

fn map(pairs: Vec<(String, String)>) -> Result<BTreeMap<String, String>, VolumeError> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        if let Some(other) = map.insert(key.clone(), value.clone()).filter(|other| *other != value) {
            return Err(VolumeError::Refused(format!(
                "{key} is given twice, as {other} and as {value}: give it once."
            )));
        }
    }
    Ok(map)
}

/// Becomes true with the first SIGTERM or SIGINT. The first process of a container would otherwise ignore them.
fn stopping() -> io::Result<watch::Receiver<bool>> {
    let (told, stop) = watch::channel(false);
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        told.send_replace(true);
        // Who waits for it would otherwise find that nobody can tell any more.
        told.closed().await;
    });
    Ok(stop)
}

/// Writes into the file itself: a container's termination message cannot be replaced by another file.
fn write_report(path: &Path, report: &Report) -> io::Result<()> {
    let is_default = path == Path::new(TERMINATION_LOG);
    let open = std::fs::OpenOptions::new().write(true).truncate(true).create(!is_default).open(path);
    match open {
        // Outside of a container, nobody expects it there.
        Err(error) if is_default && error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(mut file) => file.write_all(report.to_json().as_bytes()),
    }
}

/// Says the result to people.
fn say(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{:?}: {}", report.result, report.message)?;
    for backup in &report.backups {
        let taken = backup.taken_at.map(|time| time.to_string()).unwrap_or_default();
        match &backup.problem {
            Some(problem) => writeln!(out, "{}: {problem}", backup.name)?,
            None => writeln!(out, "{}: {taken}, {} files with {} bytes", backup.name, backup.files, backup.bytes)?,
        }
    }
    for name in &report.removed {
        writeln!(out, "removed {name}")?;
    }
    for socket in &report.in_use {
        writeln!(out, "in use: {socket}")?;
    }
    out.flush()
}
