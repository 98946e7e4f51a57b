//! `list`: names the backups, without reading their files.

use std::cmp::Reverse;
use std::path::Path;

use super::disk::Disk;
use super::error::VolumeError;
use super::report::{Listed, Outcome, Report};
use super::shelf::Shelf;

/// Names the backups, newest first; damaged ones last.
pub fn list(disk: &dyn Disk, backups: &Path) -> Result<Report, VolumeError> {
    let shelf = Shelf::open(disk, backups, false)?;
    let mut backups = Vec::new();
    for name in shelf.names()? {
        backups.push(match shelf.load(&name) {
            Ok(kept) => Listed {
                name,
                taken_at: Some(kept.manifest.taken_at),
                files: kept.manifest.files.len() as u64,
                bytes: kept.manifest.bytes(),
                manifest_sha256: kept.sha256,
                about: kept.manifest.about,
                problem: None,
            },
            Err(VolumeError::Damaged(fault)) => Listed { name, problem: Some(fault), ..Listed::default() },
            Err(error) => return Err(error),
        });
    }
    backups.sort_by_cached_key(|listed| Reverse((listed.taken_at, listed.name.clone())));
    let message = match backups.len() {
        0 => format!("There is no backup in {}.", shelf.tree.path_of("").display()),
        1 => "There is 1 backup.".to_owned(),
        several => format!("There are {several} backups."),
    };
    Ok(Report { backups, ..Report::new(Outcome::Listed, message) })
}
