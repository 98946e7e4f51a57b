//! The backups directory.
//!
//! ```text
//!   DIR/NAME/manifest.json            what it holds
//!   DIR/NAME/manifest.json.sha256     the checksum of that, as `sha256sum -c` reads it
//!   DIR/NAME/data/…                   the files
//!   DIR/.NAME.partial/                the same while it is made
//!   DIR/.NAME.removed/                the same while it is removed
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use super::content::{digest, sum};
use super::disk::Disk;
use super::error::VolumeError;
use super::manifest::{Held, MANIFEST_BYTES, Manifest};
use super::marks::Mark;
use super::paths::{self, LATEST};
use super::report::{Outcome, Report};
use super::tree::{Kind, Look, Tree};

const MANIFEST: &str = "manifest.json";
const MANIFEST_SUM: &str = "manifest.json.sha256";
/// Where the files of a backup are.
pub const DATA: &str = "data";

/// A backups directory that is open.
pub struct Shelf<'d> {
    /// The directory.
    pub tree: Tree<'d>,
}

/// A backup whose manifest was read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The manifest.
    pub manifest: Manifest,
    /// Its checksum.
    pub sha256: String,
}

impl Kept {
    /// A report on this backup.
    pub fn report(&self, result: Outcome, message: impl AsRef<str>) -> Report {
        Report {
            name: Some(self.manifest.name.clone()),
            files: Some(self.manifest.files.len() as u64),
            bytes: Some(self.manifest.bytes()),
            manifest_sha256: Some(self.sha256.clone()),
            taken_at: Some(self.manifest.taken_at),
            about: self.manifest.about.clone(),
            ..Report::new(result, message)
        }
    }

    /// Its size in words.
    pub fn size(&self) -> String {
        let files = self.manifest.files.len();
        format!("{files} {} with {} bytes", if files == 1 { "file" } else { "files" }, self.manifest.bytes())
    }

    /// What names it in a data directory.
    pub fn mark(&self) -> Mark {
        Mark { name: self.manifest.name.clone(), manifest_sha256: self.sha256.clone(), restored_at: None }
    }

    /// Whether it has this file of a data directory, with the same content.
    pub fn holds(&self, data: &Tree<'_>, path: &str, look: &Look) -> Result<bool, VolumeError> {
        let Some(held) = self.manifest.file(path) else { return Ok(false) };
        Ok(held.size == look.size && sum(data, path)?.sha256 == held.sha256)
    }

    /// The first expectation that it does not meet, in words.
    pub fn mismatch(&self, expected: &BTreeMap<String, String>) -> Option<String> {
        expected.iter().find_map(|(key, value)| match self.manifest.about.get(key) {
            Some(real) if real == value => None,
            Some(real) => Some(format!("its {key} is {real}, not {value}")),
            None => Some(format!("it does not say what its {key} is, and {value} is expected")),
        })
    }
}

impl<'d> Shelf<'d> {
    /// Opens a backups directory, and locks it: alone for one who adds and removes backups.
    pub fn open(disk: &'d dyn Disk, path: &Path, alone: bool) -> Result<Self, VolumeError> {
        let tree = Tree::open(disk, path)?;
        tree.lock(alone)?;
        Ok(Self { tree })
    }

    /// The names of all that are complete, or were before someone damaged them.
    pub fn names(&self) -> Result<Vec<String>, VolumeError> {
        let mut names = self.tree.names("")?;
        names.retain(|name| paths::backup_name(name).is_ok());
        let mut kept = Vec::new();
        for name in names {
            if self.tree.look(&format!("{name}/{MANIFEST}"))?.is_some() {
                kept.push(name);
            }
        }
        Ok(kept)
    }

    /// Reads the manifest of a backup.
    ///
    /// # Errors
    ///
    /// When there is none of this name, or its manifest is damaged.
    pub fn load(&self, name: &str) -> Result<Kept, VolumeError> {
        paths::backup_name(name).map_err(VolumeError::Refused)?;
        if self.tree.look(name)?.is_none() {
            return Err(VolumeError::Missing(format!(
                "There is no backup {name} in {}.",
                self.tree.path_of("").display()
            )));
        }
        load(&self.tree.beneath(name)?, name)
    }

    /// The newest backup that is of what is expected. If none is: the newest.
    ///
    /// # Errors
    ///
    /// When there is none, or one is damaged: it might be the newest.
    pub fn latest(&self, expected: &BTreeMap<String, String>) -> Result<Kept, VolumeError> {
        let mut all = Vec::new();
        for name in self.names()? {
            match self.load(&name) {
                Ok(kept) => all.push(kept),
                Err(VolumeError::Damaged(fault)) => {
                    return Err(VolumeError::Damaged(format!(
                        "{fault} So it is not known which is the latest: name one."
                    )));
                }
                Err(error) => return Err(error),
            }
        }
        let newest = all
            .into_iter()
            .max_by_key(|kept| (kept.mismatch(expected).is_none(), kept.manifest.taken_at, kept.manifest.name.clone()));
        newest
            .ok_or_else(|| VolumeError::Missing(format!("There is no backup in {}.", self.tree.path_of("").display())))
    }

    /// A backup by its name, or the newest.
    pub fn choose(&self, name: &str, expected: &BTreeMap<String, String>) -> Result<Kept, VolumeError> {
        if name == LATEST { self.latest(expected) } else { self.load(name) }
    }

    /// The files of a backup.
    pub fn data(&self, kept: &Kept) -> Result<Tree<'d>, VolumeError> {
        self.tree.beneath(&format!("{}/{DATA}", kept.manifest.name))
    }

    /// Checks every file of a backup against its manifest.
    pub fn verify(&self, kept: &Kept) -> Result<(), VolumeError> {
        verify(&self.tree.beneath(&kept.manifest.name)?, kept)
    }
}

/// The name of a backup while it is made.
pub fn partial(name: &str) -> String {
    format!(".{name}.partial")
}

/// The name of a backup while it is removed.
pub fn retired(name: &str) -> String {
    format!(".{name}.removed")
}

/// Reads the manifest of the backup in this directory.
pub fn load(backup: &Tree<'_>, name: &str) -> Result<Kept, VolumeError> {
    let path = backup.path_of(MANIFEST);
    let unusable = |fault: String| {
        VolumeError::Damaged(format!("{} cannot be used: {}.", path.display(), fault.trim_end_matches('.')))
    };
    let bytes = backup.read_small(MANIFEST, MANIFEST_BYTES)?.ok_or_else(|| unusable("it is missing".to_owned()))?;
    let manifest = Manifest::parse(&bytes).map_err(unusable)?;
    let sha256 = digest(&bytes);
    if backup.read_small(MANIFEST_SUM, MANIFEST_BYTES)?.is_none_or(|line| line != sum_line(&sha256).as_bytes()) {
        return Err(unusable(format!("its checksum is not the one in {MANIFEST_SUM}")));
    }
    if manifest.name != name {
        return Err(unusable(format!("it is that of backup {}", manifest.name)));
    }
    Ok(Kept { manifest, sha256 })
}

/// Writes the manifest of the backup in this directory.
pub fn write_manifest(backup: &Tree<'_>, manifest: &Manifest) -> Result<(), VolumeError> {
    let bytes = manifest.to_bytes().map_err(VolumeError::Refused)?;
    backup.write_small(MANIFEST, &bytes)?;
    backup.write_small(MANIFEST_SUM, sum_line(&digest(&bytes)).as_bytes())?;
    backup.sync("")
}

/// Checks every file of the backup in this directory against its manifest.
pub fn verify(backup: &Tree<'_>, kept: &Kept) -> Result<(), VolumeError> {
    if backup.look(DATA)?.is_none() {
        return Err(damaged(&backup.path_of(DATA), "it is missing"));
    }
    let data = backup.beneath(DATA)?;
    for file in &kept.manifest.files {
        let whole = data.path_of(&file.path);
        match data.look(&file.path)? {
            None => return Err(damaged(&whole, "it is missing")),
            Some(look) if look.kind != Kind::File => return Err(damaged(&whole, "it is no regular file")),
            Some(look) if look.size != file.size => {
                return Err(damaged(&whole, &format!("it has {} bytes instead of {}", look.size, file.size)));
            }
            Some(_) => expect(&data, &file.path, file)?,
        }
    }
    Ok(())
}

/// Checks one file against what it should contain.
pub fn expect(tree: &Tree<'_>, path: &str, held: &Held) -> Result<(), VolumeError> {
    let sum = sum(tree, path)?;
    if (sum.size, &sum.sha256) == (held.size, &held.sha256) {
        return Ok(());
    }
    Err(damaged(&tree.path_of(path), &format!("its checksum is {} instead of {}", sum.sha256, held.sha256)))
}

fn damaged(path: &Path, fault: &str) -> VolumeError {
    VolumeError::Damaged(format!(
        "{} is not what was backed up: {fault}. Use another backup, and look at the storage of this one.",
        path.display()
    ))
}

fn sum_line(sha256: &str) -> String {
    format!("{sha256}  {MANIFEST}\n")
}
