//! `clear`: empties a data directory of which a backup has everything.

use std::path::{Path, PathBuf};

use super::backup::apart;
use super::content::changed;
use super::disk::Disk;
use super::error::VolumeError;
use super::marks::{self, Mark, ORIGIN, RESTORING};
use super::report::{Outcome, Report};
use super::restore::empty;
use super::scan::{Found, scan};
use super::shelf::{Kept, Shelf};
use super::tree::Tree;

/// What to empty.
#[derive(Clone, Debug)]
pub struct Order {
    /// The data directory.
    pub data: PathBuf,
    /// The backups directory.
    pub backups: PathBuf,
    /// The name of the backup that has everything.
    pub backup: String,
}

/// Empties the data directory, or finds it empty.
pub fn clear(disk: &dyn Disk, order: &Order) -> Result<Report, VolumeError> {
    apart(&order.data, &order.backups)?;
    let data = Tree::open(disk, &order.data)?;
    data.lock(true)?;
    let shelf = Shelf::open(disk, &order.backups, false)?;
    let kept = match shelf.load(&order.backup).and_then(|kept| shelf.verify(&kept).map(|()| kept)) {
        Ok(kept) => kept,
        Err(error @ (VolumeError::Damaged(_) | VolumeError::Missing(_))) => {
            return Ok(Report::new(Outcome::NotBackedUp, format!("Nothing is deleted: {error}")));
        }
        Err(error) => return Err(error),
    };
    let found = scan(&data)?;
    if let Some(reason) = not_in_it(&kept, &data, &found)? {
        return Ok(kept.report(Outcome::NotBackedUp, format!("Nothing is deleted: {reason}")));
    }
    // From here on it is not what was restored into it.
    marks::unset(&data)?;
    remove(&data, &found)?;
    let (files, bytes) = (found.files.len() as u64, found.files.values().map(|look| look.size).sum());
    let message = format!(
        "{} is empty: {files} files with {bytes} bytes were removed, which backup {} has.",
        order.data.display(),
        order.backup
    );
    Ok(Report { files: Some(files), bytes: Some(bytes), ..kept.report(Outcome::Cleared, message) })
}

/// Why not all that is in the data directory is in the backup, if so.
fn not_in_it(kept: &Kept, data: &Tree<'_>, found: &Found) -> Result<Option<String>, VolumeError> {
    let name = &kept.manifest.name;
    let missing = |path: &Path| Some(format!("{} is not in backup {name}.", path.display()));
    if let Some(other) = found.others.first() {
        return Ok(missing(&data.path_of(other)));
    }
    for (path, look) in &found.files {
        if !kept.holds(data, path, look)? {
            return Ok(missing(&data.path_of(path)));
        }
    }
    if found.restoring {
        // It has copies of a backup only. The one that they are of must still be there.
        let origin = Mark::read(&data.beneath(RESTORING)?, ORIGIN)?;
        if let Some(origin) = origin.filter(|origin| !origin.is_of(&kept.mark())) {
            return Ok(Some(format!(
                "a restore of backup {} was begun in {} and not finished; clear it with that one.",
                origin.name,
                data.path_of("").display()
            )));
        }
    }
    Ok(None)
}

fn remove(data: &Tree<'_>, found: &Found) -> Result<(), VolumeError> {
    for (path, look) in &found.files {
        // A server that was started meanwhile must not lose what it wrote.
        if data.look(path)?.is_some_and(|now| now != *look) {
            return Err(changed(&data.path_of(path)));
        }
        data.remove_file(path)?;
    }
    for endpoint in &found.endpoints {
        data.remove_file(endpoint)?;
    }
    if found.restoring {
        empty(&data.beneath(RESTORING)?)?;
        data.remove_directory(RESTORING)?;
    }
    for directory in found.directories.keys().rev() {
        data.remove_directory(directory)?;
    }
    data.sync("")
}
