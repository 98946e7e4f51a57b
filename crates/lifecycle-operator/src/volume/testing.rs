//! Volumes for tests, and disks on which the work is stopped.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::io::Errno;
use tempfile::TempDir;

use super::disk::{Change, Disk, Stop};
use super::error::VolumeError;
use super::report::Report;
use super::{backup, clear, restore};

/// Changes everything that it is told to; nothing is durable, which takes long.
pub(super) struct Plain;

impl Disk for Plain {
    fn before(&self, _: Change<'_>) -> Result<(), Stop> {
        Ok(())
    }

    fn sync(&self, _: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }
}

/// Has only so many bytes free.
pub(super) struct Full(pub(super) u64);

impl Disk for Full {
    fn before(&self, _: Change<'_>) -> Result<(), Stop> {
        Ok(())
    }

    fn free(&self, _: BorrowedFd<'_>) -> Option<u64> {
        Some(self.0)
    }
}

/// What a crash takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// The process was killed: the kernel goes on.
    Nothing,
    /// Content that was not made durable. Names are there.
    Content,
    /// Also names that were not made durable: what was made is gone, what was removed is back.
    All,
}

/// Stops the work before the n-th change.
pub(super) struct Crashing {
    left: Cell<usize>,
    loss: Loss,
    /// Files whose content is not durable.
    unsynced: RefCell<BTreeSet<PathBuf>>,
    /// Names that are not durable, oldest first, with the directory that they are in.
    undo: RefCell<Vec<(PathBuf, Undo)>>,
}

enum Undo {
    Made(PathBuf),
    Renamed(PathBuf, PathBuf, Option<Content>),
    Removed(PathBuf, Option<Content>),
}

/// What a file contains, with its permissions.
type Content = (Vec<u8>, u32);

impl Crashing {
    pub(super) fn before(change: usize, loss: Loss) -> Self {
        Self { left: Cell::new(change), loss, unsynced: RefCell::default(), undo: RefCell::default() }
    }

    /// The power fails.
    pub(super) fn lose(&self) {
        if self.loss != Loss::Nothing {
            for path in self.unsynced.take() {
                let _ = fs::write(path, "");
            }
        }
        if self.loss == Loss::All {
            for (_, undo) in self.undo.take().into_iter().rev() {
                match undo {
                    Undo::Made(path) if path.is_dir() => fs::remove_dir_all(path).unwrap(),
                    Undo::Made(path) => fs::remove_file(path).unwrap_or_default(),
                    Undo::Renamed(from, to, replaced) => {
                        fs::rename(&to, from).unwrap();
                        if let Some(content) = replaced {
                            write(&to, &content);
                        }
                    }
                    // What it was in may be gone for good.
                    Undo::Removed(path, _) if !path.parent().unwrap().exists() => {}
                    Undo::Removed(path, Some(content)) => write(&path, &content),
                    Undo::Removed(path, None) => fs::create_dir(path).unwrap(),
                }
            }
        }
    }
}

impl Disk for Crashing {
    fn before(&self, change: Change<'_>) -> Result<(), Stop> {
        let Some(left) = self.left.get().checked_sub(1) else {
            self.lose();
            return Err(Stop);
        };
        self.left.set(left);
        let parent = |path: &Path| path.parent().unwrap().to_owned();
        let (mut undo, mut unsynced) = (self.undo.borrow_mut(), self.unsynced.borrow_mut());
        match change {
            Change::MakeFile(path) => {
                unsynced.insert(path.to_owned());
                undo.push((parent(path), Undo::Made(path.to_owned())));
            }
            Change::MakeDirectory(path) => undo.push((parent(path), Undo::Made(path.to_owned()))),
            Change::Write(path) => drop(unsynced.insert(path.to_owned())),
            Change::SyncFile(path) => drop(unsynced.remove(path)),
            Change::SetMode(_) => {}
            Change::SyncDirectory(path) => undo.retain(|(directory, _)| directory != path),
            Change::Rename(from, to) => {
                let moved =
                    unsynced.iter().map(|path| path.strip_prefix(from).map_or(path.clone(), |rest| to.join(rest)));
                *unsynced = moved.collect();
                undo.push((parent(to), Undo::Renamed(from.to_owned(), to.to_owned(), content(to))));
            }
            Change::RemoveFile(path) => {
                unsynced.remove(path);
                if let Some(content) = content(path) {
                    undo.push((parent(path), Undo::Removed(path.to_owned(), Some(content))));
                }
            }
            Change::RemoveDirectory(path) => undo.push((parent(path), Undo::Removed(path.to_owned(), None))),
        }
        Ok(())
    }

    fn sync(&self, _: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }
}

fn content(path: &Path) -> Option<Content> {
    let mode = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?.permissions().mode();
    Some((fs::read(path).ok()?, mode))
}

fn write(path: &Path, (bytes, mode): &Content) {
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
}

/// A data directory and a backups directory.
pub(super) struct Volumes {
    pub(super) folder: TempDir,
}

/// The regular files in a directory, with their content.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

impl Volumes {
    /// With the files of a server.
    pub(super) fn of_a_server() -> Self {
        let volumes = Self::empty();
        fs::create_dir(volumes.data().join("lost+found")).unwrap();
        volumes.put("datastore.sqlite3", "all entries, more than are copied at once", 0o640);
        volumes.put("keys.json", "the keys of the CA", 0o600);
        volumes.put("journal/0/x", "", 0o644);
        volumes
    }

    pub(super) fn empty() -> Self {
        let volumes = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(volumes.data()).unwrap();
        fs::create_dir(volumes.backups()).unwrap();
        volumes
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(super) fn backups(&self) -> PathBuf {
        self.folder.path().join("backups")
    }

    /// Writes a file of the server, in place of whatever is there: a directory, or a file where a directory must be.
    pub(super) fn put(&self, path: &str, content: &str, mode: u32) {
        for above in super::paths::above(path).map(|above| self.data().join(above)).filter(|above| above.is_file()) {
            fs::remove_file(above).unwrap();
        }
        let path = self.data().join(path);
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, &(content.as_bytes().to_vec(), mode));
    }

    /// The files of the server, whatever else is there.
    pub(super) fn files(&self) -> Files {
        let mut files = Files::new();
        collect(&self.data(), "", &mut files);
        files.retain(|path, _| !super::marks::is_ours(path));
        files
    }

    /// All files below the backups.
    pub(super) fn copies(&self) -> Files {
        let mut files = Files::new();
        collect(&self.backups(), "", &mut files);
        files
    }

    /// The names in the backups directory.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.backups())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    pub(super) fn backup_on(&self, disk: &dyn Disk, order: Backup<'_>) -> Result<Report, VolumeError> {
        let about = order.about.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let now = Timestamp::from_second(order.second).unwrap();
        let name = order.name.to_owned();
        backup::backup(
            disk,
            &backup::Order { data: self.data(), backups: self.backups(), name, keep: order.keep, about, now },
        )
    }

    pub(super) fn backup(&self, name: &str) -> Result<Report, VolumeError> {
        self.backup_on(&Plain, Backup::named(name))
    }

    pub(super) fn restore_on(
        &self,
        disk: &dyn Disk,
        name: &str,
        expected: &[(&str, &str)],
    ) -> Result<Report, VolumeError> {
        let expected = expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let now = Timestamp::UNIX_EPOCH;
        let (name, backups, data) = (name.to_owned(), self.backups(), self.data());
        restore::restore(disk, &restore::Order { backups, name, data, expected, now })
    }

    pub(super) fn restore(&self, name: &str) -> Result<Report, VolumeError> {
        self.restore_on(&Plain, name, &[])
    }

    pub(super) fn clear_on(&self, disk: &dyn Disk, name: &str) -> Result<Report, VolumeError> {
        clear::clear(disk, &clear::Order { data: self.data(), backups: self.backups(), backup: name.to_owned() })
    }

    pub(super) fn clear(&self, name: &str) -> Result<Report, VolumeError> {
        self.clear_on(&Plain, name)
    }

    pub(super) fn verify(&self, name: &str) -> Result<Report, VolumeError> {
        super::verify(&Plain, &self.backups(), name)
    }
}

/// A backup to make.
#[derive(Clone, Copy)]
pub(super) struct Backup<'a> {
    pub(super) name: &'a str,
    pub(super) about: &'a [(&'a str, &'a str)],
    pub(super) keep: Option<usize>,
    pub(super) second: i64,
}

impl<'a> Backup<'a> {
    pub(super) fn named(name: &'a str) -> Self {
        Self { name, about: &[("trustDomain", "example.org")], keep: None, second: 1_800_000_000 }
    }
}

fn collect(directory: &Path, prefix: &str, files: &mut Files) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files);
        } else if kind.is_file() {
            files.insert(path, fs::read(entry.path()).unwrap());
        }
    }
}
