//! `backup`: copies the data directory into a new backup.
//!
//! All is copied into `.NAME.partial`, made durable, read back and compared; only then does it get its name. So
//! whatever has a name is whole, and a crash leaves a part that the next attempt goes on with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::content::{Sum, changed, copy, sum};
use super::disk::Disk;
use super::error::VolumeError;
use super::manifest::{Directory, Held, Manifest, check_about};
use super::paths;
use super::prune::prune;
use super::report::{Outcome, Report};
use super::scan::{Found, scan};
use super::shelf::{self, DATA, Kept, Shelf};
use super::tree::{Kind, Look, Tree};

/// What to back up, and where to.
#[derive(Clone, Debug)]
pub struct Order {
    /// The data directory.
    pub data: PathBuf,
    /// The backups directory.
    pub backups: PathBuf,
    /// The name of the backup.
    pub name: String,
    /// How many backups to keep; none means all.
    pub keep: Option<usize>,
    /// What the backup is of.
    pub about: BTreeMap<String, String>,
    /// The time.
    pub now: Timestamp,
}

/// Backs up, or finds it done. Then removes old backups.
pub fn backup(disk: &dyn Disk, order: &Order) -> Result<Report, VolumeError> {
    paths::backup_name(&order.name).map_err(VolumeError::Refused)?;
    check_about(&order.about).map_err(VolumeError::Refused)?;
    apart(&order.data, &order.backups)?;
    let data = Tree::open(disk, &order.data)?;
    data.lock(true)?;
    let shelf = Shelf::open(disk, &order.backups, true)?;
    let found = scan(&data)?;
    if let Some(other) = found.others.first() {
        return Err(VolumeError::Refused(format!(
            "{} is a symbolic link or a device, which no backup can hold: put a regular file in its place, or remove it.",
            data.path_of(other).display()
        )));
    }
    if found.files.is_empty() {
        let message = format!("{} holds no files: there is nothing to back up.", order.data.display());
        return Ok(Report::new(Outcome::Empty, message));
    }
    if found.restoring {
        return Err(VolumeError::Refused(format!(
            "A restore into {} was begun and not finished: run it again first, or clear what it restored.",
            order.data.display()
        )));
    }
    let kept = match shelf.tree.look(&order.name)? {
        Some(_) => find(&shelf, &data, &found, order)?,
        None => make(&shelf, &data, &found, order)?,
    };
    let mut message = format!("Backup {} holds {}; their checksums are right.", order.name, kept.size());
    let removed = match order.keep.map_or(Ok(Vec::new()), |keep| prune(&shelf, &kept, keep)) {
        Ok(removed) => removed,
        Err(VolumeError::Stopped) => return Err(VolumeError::Stopped),
        // The backup is none the worse for it.
        Err(error) => {
            message = format!("{message} But old backups are still there: {error}");
            Vec::new()
        }
    };
    Ok(Report { removed, ..kept.report(Outcome::BackedUp, message) })
}

/// Checks that neither directory is within the other.
///
/// # Errors
///
/// When a backup would be part of what is backed up.
pub fn apart(data: &Path, backups: &Path) -> Result<(), VolumeError> {
    let whole = |path: &Path| path.canonicalize().map_err(|error| VolumeError::io("open", path, error));
    let (one, other) = (whole(data)?, whole(backups)?);
    if one.starts_with(&other) || other.starts_with(&one) {
        return Err(VolumeError::Refused(format!(
            "{} and {} are not two directories: mount the backups elsewhere.",
            data.display(),
            backups.display()
        )));
    }
    Ok(())
}

/// The backup is there already: it must be this one.
fn find(shelf: &Shelf<'_>, data: &Tree<'_>, found: &Found, order: &Order) -> Result<Kept, VolumeError> {
    let kept = shelf.load(&order.name)?;
    shelf.verify(&kept)?;
    if let Some(difference) = difference(&kept, data, found, order)? {
        return Err(VolumeError::Refused(format!(
            "There is a backup {} with other content: {difference}. It is not overwritten: use another name.",
            order.name
        )));
    }
    // It may have got its name just before a crash.
    shelf.tree.sync("")?;
    Ok(kept)
}

fn difference(kept: &Kept, data: &Tree<'_>, found: &Found, order: &Order) -> Result<Option<String>, VolumeError> {
    if kept.manifest.about != order.about {
        return Ok(Some(format!("it is about {:?}, not {:?}", kept.manifest.about, order.about)));
    }
    if let Some(gone) = kept.manifest.files.iter().find(|file| !found.files.contains_key(&file.path)) {
        return Ok(Some(format!("it has {}", gone.path)));
    }
    for (path, look) in &found.files {
        if !kept.holds(data, path, look)? {
            return Ok(Some(format!("it has no such {path}")));
        }
    }
    Ok(None)
}

fn make(shelf: &Shelf<'_>, data: &Tree<'_>, found: &Found, order: &Order) -> Result<Kept, VolumeError> {
    let partial_name = shelf::partial(&order.name);
    shelf.tree.make_directory(&partial_name)?;
    let partial = shelf.tree.beneath(&partial_name)?;
    partial.make_directory(DATA)?;
    let copies = partial.beneath(DATA)?;
    for name in partial.names("")?.iter().filter(|name| *name != DATA) {
        partial.remove_all(name)?;
    }
    tidy(&copies, "", found)?;
    let files = copy_all(shelf, data, found, &copies)?;
    expect_unchanged(data, found)?;
    let directories = found.directories.iter().map(|(path, mode)| Directory { path: path.clone(), mode: *mode });
    let manifest = Manifest::new(&order.name, order.now, order.about.clone(), directories.collect(), files);
    let manifest = manifest
        .map_err(|fault| VolumeError::Refused(format!("{} cannot be backed up: {fault}.", order.data.display())))?;
    shelf::write_manifest(&partial, &manifest)?;
    let kept = shelf::load(&partial, &order.name)?;
    shelf::verify(&partial, &kept)?;
    shelf.tree.rename_to_unused(&partial_name, &order.name)?;
    shelf.tree.sync("")?;
    Ok(kept)
}

/// Removes what an earlier attempt copied and is not there any more.
fn tidy(copies: &Tree<'_>, directory: &str, found: &Found) -> Result<(), VolumeError> {
    for name in copies.names(directory)? {
        let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
        match copies.look(&path)?.map(|look| look.kind) {
            Some(Kind::Directory) if found.directories.contains_key(&path) => tidy(copies, &path, found)?,
            Some(Kind::File) if found.files.contains_key(&path) => {}
            _ => copies.remove_all(&path)?,
        }
    }
    Ok(())
}

/// Copies what was not copied yet, and makes all of it durable.
fn copy_all(shelf: &Shelf<'_>, data: &Tree<'_>, found: &Found, copies: &Tree<'_>) -> Result<Vec<Held>, VolumeError> {
    let (mut files, mut to_copy) = (Vec::new(), Vec::new());
    let held = |path: &str, look: &Look, sum: Sum| Held {
        path: path.to_owned(),
        size: sum.size,
        mode: look.mode,
        sha256: sum.sha256,
    };
    for (path, look) in &found.files {
        if let Some(copied) = copies.look(path)? {
            let real = sum(data, path)?;
            if copied.size == look.size && sum(copies, path)? == real {
                copies.settle(path, None)?;
                files.push(held(path, look, real));
                continue;
            }
            copies.remove_file(path)?;
        }
        to_copy.push((path, look));
    }
    shelf.tree.expect_free(to_copy.iter().map(|(_, look)| look.size).sum())?;
    for (path, look) in to_copy {
        copies.make_way(path)?;
        let sum = copy(data, path, copies, path, None)?;
        files.push(held(path, look, sum));
    }
    let directories: BTreeSet<&str> = found.files.keys().flat_map(|path| paths::above(path)).collect();
    for directory in directories {
        copies.sync(directory)?;
    }
    copies.sync("")?;
    Ok(files)
}

/// Checks that nothing was written while it was copied: files of different moments do not fit each other.
fn expect_unchanged(data: &Tree<'_>, before: &Found) -> Result<(), VolumeError> {
    let now = scan(data)?;
    if now == *before {
        return Ok(());
    }
    let differs = |path: &&String| now.files.get(*path) != before.files.get(*path);
    let path = before.files.keys().chain(now.files.keys()).find(differs).map_or("", String::as_str);
    Err(changed(&data.path_of(path)))
}
