//! `restore`: puts the files of a backup back into an empty data directory.
//!
//! All is copied into a directory of its own on the same volume, made durable, read back and compared; then each file
//! is renamed to its place, and at last a mark says so. What a crash left in its place has the content of the backup,
//! by which the next attempt knows it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use jiff::Timestamp;

use super::backup::apart;
use super::content::copy;
use super::disk::Disk;
use super::error::VolumeError;
use super::manifest::Held;
use super::marks::{self, Mark, ORIGIN, RESTORED, RESTORING};
use super::paths;
use super::report::{Outcome, Report};
use super::scan::{Found, scan};
use super::shelf::{Kept, Shelf, expect};
use super::tree::{Kind, Tree};

/// The owner can always go on in a directory.
const OWNER: u32 = 0o700;

/// What to restore, and where to.
#[derive(Clone, Debug)]
pub struct Order {
    /// The backups directory.
    pub backups: PathBuf,
    /// The name of the backup, or `latest`.
    pub name: String,
    /// The data directory.
    pub data: PathBuf,
    /// What the backup must be of.
    pub expected: BTreeMap<String, String>,
    /// The time.
    pub now: Timestamp,
}

/// Restores, or finds it done.
pub fn restore(disk: &dyn Disk, order: &Order) -> Result<Report, VolumeError> {
    apart(&order.data, &order.backups)?;
    let data = Tree::open(disk, &order.data)?;
    data.lock(true)?;
    let shelf = Shelf::open(disk, &order.backups, false)?;
    let kept = shelf.choose(&order.name, &order.expected)?;
    let name = &kept.manifest.name;
    if let Some(mismatch) = kept.mismatch(&order.expected) {
        let message = format!("Backup {name} is not restored: {mismatch}.");
        return Ok(kept.report(Outcome::Mismatched, message));
    }
    let found = scan(&data)?;
    let mark = Mark::read(&data, RESTORED)?;
    if !found.files.is_empty() && mark.as_ref().is_some_and(|mark| mark.is_of(&kept.mark())) {
        let message = format!("Backup {name} was restored before; the server may have changed the files since.");
        return Ok(kept.report(Outcome::AlreadyRestored, message));
    }
    shelf.verify(&kept)?;
    if let Some(path) = in_the_way(&kept, &data, &found)? {
        let of = mark.map(|mark| format!(" after backup {} was restored", mark.name)).unwrap_or_default();
        let message = format!(
            "Backup {name} is not restored: {} is there{of}, and not in it. Clear {} first.",
            data.path_of(&path).display(),
            order.data.display()
        );
        return Ok(kept.report(Outcome::Occupied, message));
    }
    let missing: Vec<(usize, &Held)> =
        kept.manifest.files.iter().enumerate().filter(|(_, file)| !found.files.contains_key(&file.path)).collect();
    if !missing.is_empty() {
        // It must not say of a part that it is all.
        marks::unset(&data)?;
        let copies = begin(&data, &kept)?;
        copy_all(&shelf, &kept, &missing, &copies)?;
        for (number, file) in &missing {
            data.make_way(&file.path)?;
            copies.rename(&number.to_string(), &data, &file.path)?;
        }
    }
    finish(&data, &kept)?;
    Mark { restored_at: Some(order.now), ..kept.mark() }.set(&data)?;
    let message = format!("Backup {name} with {} was restored; their checksums are right.", kept.size());
    Ok(kept.report(Outcome::Restored, message))
}

/// The first path that is not there because of this backup.
fn in_the_way(kept: &Kept, data: &Tree<'_>, found: &Found) -> Result<Option<String>, VolumeError> {
    let directory = found.directories.keys().find(|path| kept.manifest.file(path).is_some());
    if let Some(path) = found.others.first().or(directory) {
        return Ok(Some(path.clone()));
    }
    for (path, look) in &found.files {
        if !kept.holds(data, path, look)? {
            return Ok(Some(path.clone()));
        }
    }
    Ok(None)
}

/// Makes the directory for the copies. Copies of another backup are removed.
fn begin<'d>(data: &Tree<'d>, kept: &Kept) -> Result<Tree<'d>, VolumeError> {
    data.make_directory(RESTORING)?;
    let copies = data.beneath(RESTORING)?;
    if !Mark::read(&copies, ORIGIN)?.is_some_and(|origin| origin.is_of(&kept.mark())) {
        empty(&copies)?;
        kept.mark().write(&copies, ORIGIN)?;
    }
    // Also when it was there: a crash may have come before this.
    copies.settle(ORIGIN, None)?;
    copies.sync("")?;
    data.sync("")?;
    Ok(copies)
}

/// Removes all copies, and at last what says of which backup they are.
pub fn empty(copies: &Tree<'_>) -> Result<(), VolumeError> {
    for name in copies.names("")?.iter().filter(|name| *name != ORIGIN) {
        copies.remove_all(name)?;
    }
    copies.remove_all(ORIGIN)
}

/// Copies what was not copied yet, makes it durable, and checks it. A copy is named by its number in the manifest.
fn copy_all(shelf: &Shelf<'_>, kept: &Kept, missing: &[(usize, &Held)], copies: &Tree<'_>) -> Result<(), VolumeError> {
    let mut to_copy = Vec::new();
    for (number, file) in missing {
        let copy = number.to_string();
        match copies.look(&copy)? {
            Some(look) if look.kind == Kind::File && look.size == file.size && expect(copies, &copy, file).is_ok() => {
                copies.settle(&copy, Some(file.mode))?;
            }
            Some(_) => {
                copies.remove_all(&copy)?;
                to_copy.push((copy, *file));
            }
            None => to_copy.push((copy, *file)),
        }
    }
    copies.expect_free(to_copy.iter().map(|(_, file)| file.size).sum())?;
    let source = shelf.data(kept)?;
    for (name, file) in to_copy {
        copy(&source, &file.path, copies, &name, Some(file.mode))?;
    }
    missing.iter().try_for_each(|(number, file)| expect(copies, &number.to_string(), file))
}

/// Makes the places durable, with their permissions, and removes what was only needed on the way.
fn finish(data: &Tree<'_>, kept: &Kept) -> Result<(), VolumeError> {
    let directories = &kept.manifest.directories;
    for directory in directories {
        data.make_way(&directory.path)?;
        data.make_directory(&directory.path)?;
        data.set_directory_mode(&directory.path, directory.mode | OWNER)?;
    }
    let on_the_way = kept.manifest.files.iter().flat_map(|file| paths::above(&file.path));
    let all: BTreeSet<&str> = directories.iter().map(|directory| directory.path.as_str()).chain(on_the_way).collect();
    for directory in all {
        data.sync(directory)?;
    }
    data.sync("")?;
    if data.look(RESTORING)?.is_some() {
        empty(&data.beneath(RESTORING)?)?;
        data.remove_directory(RESTORING)?;
        data.sync("")?;
    }
    Ok(())
}
