//! A directory, and what is below it. Paths are relative, never lead out, and no symbolic link below it is followed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::disk::{Change, Disk, Stop};
use super::error::VolumeError;
use super::paths;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const NEW_FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A file or directory of the user alone, until its real mode is set: keys are among them.
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const PRIVATE_DIRECTORY: Mode = Mode::RWXU;

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A socket or a pipe: it holds no data, and is of no use to another process.
    Endpoint,
    /// A symbolic link or a device.
    Other,
}

/// What a file or directory looks like. It looks different after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// What it is.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
    /// Its permissions.
    pub mode: u32,
    /// When its content changed last: seconds and nanoseconds.
    pub changed: (i64, i64),
    /// What tells it from another one under the same name.
    inode: u64,
    socket: bool,
}

impl Look {
    #[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions, reason = "types differ by platform")]
    fn of(stat: &Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        Self {
            kind: match kind {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Directory,
                FileType::Socket | FileType::Fifo => Kind::Endpoint,
                _ => Kind::Other,
            },
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            mode: Mode::from_raw_mode(stat.st_mode).as_raw_mode().into(),
            changed: (stat.st_mtime.into(), i64::try_from(stat.st_mtime_nsec).unwrap_or_default()),
            inode: stat.st_ino.into(),
            socket: kind == FileType::Socket,
        }
    }

    /// Whether it is a socket.
    pub fn is_socket(&self) -> bool {
        self.socket
    }
}

/// A directory that is open.
pub struct Tree<'d> {
    directory: OwnedFd,
    path: PathBuf,
    disk: &'d dyn Disk,
}

impl<'d> Tree<'d> {
    /// Opens a directory, which must exist: one that is made because no volume is mounted there would keep nothing.
    pub fn open(disk: &'d dyn Disk, path: &Path) -> Result<Self, VolumeError> {
        let directory =
            fs::open(path, DIRECTORY, Mode::empty()).map_err(|error| VolumeError::io("open", path, error))?;
        Ok(Self { directory, path: path.to_owned(), disk })
    }

    /// Opens a directory below.
    pub fn beneath(&self, path: &str) -> Result<Self, VolumeError> {
        let whole = self.path_of(path);
        match self.open_directory(path) {
            Ok(directory) => Ok(Self { directory, path: whole, disk: self.disk }),
            Err(error) => Err(VolumeError::Io { doing: "open", path: whole, error }),
        }
    }

    /// The whole path, for people.
    pub fn path_of(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.path.clone() } else { self.path.join(path) }
    }

    /// The directory as the kernel knows it.
    pub fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// What the work on it needs from outside.
    pub fn disk(&self) -> &'d dyn Disk {
        self.disk
    }

    /// What there is under a path; none if nothing is.
    pub fn look(&self, path: &str) -> Result<Option<Look>, VolumeError> {
        match self.at(path).and_then(|(at, name)| Ok(fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)?)) {
            Ok(stat) => Ok(Some(Look::of(&stat))),
            Err(error) if is_nothing(&error) => Ok(None),
            Err(error) => Err(VolumeError::Io { doing: "look at", path: self.path_of(path), error }),
        }
    }

    /// The names in a directory, sorted; the empty path is this directory itself.
    pub fn names(&self, path: &str) -> Result<Vec<String>, VolumeError> {
        let failed = |error: io::Error| VolumeError::Io { doing: "list", path: self.path_of(path), error };
        let directory = self.open_directory(path).map_err(failed)?;
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&directory).map_err(|error| failed(error.into()))? {
            let entry = entry.map_err(|error| failed(error.into()))?;
            match entry.file_name().to_str() {
                Ok("." | "..") => {}
                Ok(name) => names.push(name.to_owned()),
                Err(_) => {
                    let name = self.path_of(path).join(entry.file_name().to_string_lossy().as_ref());
                    return Err(VolumeError::Refused(format!(
                        "The name of {} is not UTF-8, so no manifest can name it: rename it.",
                        name.display()
                    )));
                }
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Opens a regular file to read it.
    pub fn read(&self, path: &str) -> Result<File, VolumeError> {
        let failed = |error: io::Error| VolumeError::Io { doing: "read", path: self.path_of(path), error };
        // Without O_NONBLOCK, a pipe under this name would be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open =
            self.at(path).and_then(|(at, name)| Ok(fs::openat(&at, name, flags, Mode::empty())?)).map_err(failed)?;
        let look = Self::look_of(&open).map_err(failed)?;
        if look.kind != Kind::File {
            return Err(failed(io::Error::other("it is no regular file")));
        }
        Ok(open.into())
    }

    /// What an open file looks like.
    pub fn look_of(file: impl AsFd) -> io::Result<Look> {
        Ok(Look::of(&fs::fstat(file)?))
    }

    /// Reads a file of at most `limit` bytes; none if there is none.
    pub fn read_small(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, VolumeError> {
        let Some(look) = self.look(path)? else { return Ok(None) };
        if look.kind == Kind::File && look.size > limit {
            let path = self.path_of(path);
            return Err(VolumeError::Damaged(format!(
                "{} has {} bytes: more than the {limit} that it may have.",
                path.display(),
                look.size
            )));
        }
        let mut bytes = Vec::new();
        let read = self.read(path)?.take(limit).read_to_end(&mut bytes);
        read.map_err(|error| VolumeError::Io { doing: "read", path: self.path_of(path), error })?;
        Ok(Some(bytes))
    }

    /// Makes a file that does not exist yet.
    pub fn make_file(&self, path: &str) -> Result<Writing<'d>, VolumeError> {
        let whole = self.path_of(path);
        self.announce(Change::MakeFile(&whole))?;
        match self.at(path).and_then(|(at, name)| Ok(fs::openat(&at, name, NEW_FILE, PRIVATE_FILE)?)) {
            Ok(file) => Ok(Writing { file: file.into(), path: whole, disk: self.disk }),
            Err(error) => Err(VolumeError::Io { doing: "make", path: whole, error }),
        }
    }

    /// Writes a small file, durably, in place of one that may be there. A crash can leave a part of it.
    pub fn write_small(&self, path: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        if self.look(path)?.is_some() {
            self.remove_file(path)?;
        }
        let mut file = self.make_file(path)?;
        file.append(bytes)?;
        file.sync()
    }

    /// Makes the directories that a path goes through.
    pub fn make_way(&self, path: &str) -> Result<(), VolumeError> {
        paths::above(path).try_for_each(|directory| self.make_directory(directory))
    }

    /// Makes a directory if it is not there.
    pub fn make_directory(&self, path: &str) -> Result<(), VolumeError> {
        if self.look(path)?.is_some_and(|look| look.kind == Kind::Directory) {
            return Ok(());
        }
        let whole = self.path_of(path);
        self.announce(Change::MakeDirectory(&whole))?;
        let made = self.at(path).and_then(|(at, name)| Ok(fs::mkdirat(&at, name, PRIVATE_DIRECTORY)?));
        made.map_err(|error| VolumeError::Io { doing: "make", path: whole, error })
    }

    /// Renames. What has the new name already is replaced only if it is a file or an empty directory.
    pub fn rename(&self, path: &str, to: &Tree<'_>, new: &str) -> Result<(), VolumeError> {
        self.rename_with(path, to, new, |from, name, to, new| fs::renameat(from, name, to, new))
    }

    /// Renames to a name that nothing has.
    pub fn rename_to_unused(&self, path: &str, new: &str) -> Result<(), VolumeError> {
        if self.look(new)?.is_some() {
            return Err(VolumeError::io("make", &self.path_of(new), Errno::EXIST));
        }
        self.rename_with(path, self, new, |from, name, to, new| {
            match fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
                // Not every file system can promise it. It was looked at before, and the directory is locked.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::renameat(from, name, to, new),
                done => done,
            }
        })
    }

    fn rename_with(
        &self,
        path: &str,
        to: &Tree<'_>,
        new: &str,
        rename: impl Fn(&OwnedFd, &str, &OwnedFd, &str) -> Result<(), Errno>,
    ) -> Result<(), VolumeError> {
        let (from, target) = (self.path_of(path), to.path_of(new));
        self.announce(Change::Rename(&from, &target))?;
        let done = self.at(path).and_then(|(from, name)| {
            let (to, new) = to.at(new)?;
            Ok(rename(&from, name, &to, new)?)
        });
        done.map_err(|error| VolumeError::Io { doing: "rename to", path: target, error })
    }

    /// Removes what is no directory; it may be gone already.
    pub fn remove_file(&self, path: &str) -> Result<(), VolumeError> {
        self.announce(Change::RemoveFile(&self.path_of(path)))?;
        self.unlink(path, AtFlags::empty())
    }

    /// Removes an empty directory; it may be gone already.
    pub fn remove_directory(&self, path: &str) -> Result<(), VolumeError> {
        self.announce(Change::RemoveDirectory(&self.path_of(path)))?;
        self.unlink(path, AtFlags::REMOVEDIR)
    }

    fn unlink(&self, path: &str, flags: AtFlags) -> Result<(), VolumeError> {
        match self.at(path).and_then(|(at, name)| Ok(fs::unlinkat(&at, name, flags)?)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(VolumeError::Io { doing: "remove", path: self.path_of(path), error })
            }
            _ => Ok(()),
        }
    }

    /// Removes whatever is under a path.
    pub fn remove_all(&self, path: &str) -> Result<(), VolumeError> {
        match self.look(path)?.map(|look| look.kind) {
            None => Ok(()),
            Some(Kind::Directory) => {
                let below = self.beneath(path)?;
                for name in below.names("")? {
                    below.remove_all(&name)?;
                }
                self.remove_directory(path)
            }
            Some(_) => self.remove_file(path),
        }
    }

    /// Makes the entries of a directory durable; the empty path is this directory itself.
    pub fn sync(&self, path: &str) -> Result<(), VolumeError> {
        let whole = self.path_of(path);
        self.announce(Change::SyncDirectory(&whole))?;
        match self.open_directory(path).and_then(|directory| Ok(self.disk.sync(directory.as_fd())?)) {
            Err(error) if !cannot_sync(&error) => Err(VolumeError::Io { doing: "make durable", path: whole, error }),
            _ => Ok(()),
        }
    }

    /// Makes a file durable, with these permissions.
    pub fn settle(&self, path: &str, mode: Option<u32>) -> Result<(), VolumeError> {
        let (file, whole) = (self.read(path)?, self.path_of(path));
        if let Some(mode) = mode {
            set_mode(self.disk, &file, &whole, mode)?;
        }
        sync_file(self.disk, &file, &whole)
    }

    /// Sets the permissions of a directory, if it has others.
    pub fn set_directory_mode(&self, path: &str, mode: u32) -> Result<(), VolumeError> {
        let whole = self.path_of(path);
        match self.open_directory(path) {
            Ok(directory) => set_mode(self.disk, &directory, &whole, mode),
            Err(error) => Err(VolumeError::Io { doing: "open", path: whole, error }),
        }
    }

    /// Locks the directory while this is open, so that two processes do not work on one volume.
    pub fn lock(&self, exclusive: bool) -> Result<(), VolumeError> {
        let operation =
            if exclusive { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
        match fs::flock(&self.directory, operation) {
            Err(Errno::WOULDBLOCK) => Err(VolumeError::Refused(format!(
                "Another spire-volume is at work in {}: run this again when it has ended.",
                self.path.display()
            ))),
            // Not every file system has locks. The operator runs one Job at a time anyway.
            _ => Ok(()),
        }
    }

    /// Checks that so many bytes fit, where the volume tells how many are free.
    pub fn expect_free(&self, bytes: u64) -> Result<(), VolumeError> {
        match self.disk.free(self.directory.as_fd()) {
            Some(free) if free < bytes => Err(VolumeError::Refused(format!(
                "The volume of {} has {free} bytes free, and {bytes} are needed: enlarge it, or remove from it what is \
                 not needed; then run this again.",
                self.path.display()
            ))),
            _ => Ok(()),
        }
    }

    fn announce(&self, change: Change<'_>) -> Result<(), VolumeError> {
        self.disk.before(change).map_err(|Stop| VolumeError::Stopped)
    }

    /// The directory that a path's last part is in, and that part.
    fn at<'p>(&self, path: &'p str) -> io::Result<(OwnedFd, &'p str)> {
        accepted(path)?;
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.walk(parents)?, name))
    }

    fn open_directory(&self, path: &str) -> io::Result<OwnedFd> {
        if !path.is_empty() {
            accepted(path)?;
        }
        self.walk(path)
    }

    fn walk(&self, path: &str) -> io::Result<OwnedFd> {
        let mut at = self.directory.try_clone()?;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at = fs::openat(&at, part, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        }
        Ok(at)
    }
}

/// A file that is being written.
pub struct Writing<'d> {
    file: File,
    path: PathBuf,
    disk: &'d dyn Disk,
}

impl Writing<'_> {
    /// Appends.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        self.disk.before(Change::Write(&self.path)).map_err(|Stop| VolumeError::Stopped)?;
        self.file.write_all(bytes).map_err(|error| VolumeError::io("write", &self.path, error))
    }

    /// Sets its permissions, if it has others.
    pub fn set_mode(&self, mode: u32) -> Result<(), VolumeError> {
        set_mode(self.disk, &self.file, &self.path, mode)
    }

    /// Makes the content durable.
    pub fn sync(&self) -> Result<(), VolumeError> {
        sync_file(self.disk, &self.file, &self.path)
    }
}

/// Makes the content of a file durable.
fn sync_file(disk: &dyn Disk, file: &File, path: &Path) -> Result<(), VolumeError> {
    disk.before(Change::SyncFile(path)).map_err(|Stop| VolumeError::Stopped)?;
    disk.sync(file.as_fd()).map_err(|error| VolumeError::io("make durable", path, error))
}

/// File systems that cannot change modes are content as long as nothing has to be changed.
fn set_mode(disk: &dyn Disk, file: impl AsFd, path: &Path, mode: u32) -> Result<(), VolumeError> {
    let failed = |error: io::Error| VolumeError::Io { doing: "set the mode of", path: path.to_owned(), error };
    if Tree::look_of(&file).map_err(failed)?.mode == mode {
        return Ok(());
    }
    disk.before(Change::SetMode(path)).map_err(|Stop| VolumeError::Stopped)?;
    fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(|error| failed(error.into()))
}

fn accepted(path: &str) -> io::Result<()> {
    paths::confined(path).map_err(|fault| io::Error::new(io::ErrorKind::InvalidInput, fault))
}

/// Nothing is there, or only behind a symbolic link, which is not followed.
fn is_nothing(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// Some file systems cannot sync directories, and need not.
fn cannot_sync(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::NOTSUP | Errno::BADF))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::testing::Plain;
    use super::*;

    #[test]
    fn no_symbolic_link_leads_out() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        symlink(outside.path(), inside.path().join("way")).unwrap();
        symlink(outside.path().join("secret"), inside.path().join("file")).unwrap();
        let tree = Tree::open(&Plain, inside.path()).unwrap();
        assert_eq!(tree.look("file").unwrap().unwrap().kind, Kind::Other);
        assert_eq!(tree.look("way/secret").unwrap(), None);
        assert!(tree.read("file").is_err() && tree.read("way/secret").is_err());
        assert!(tree.make_file("way/new").is_err() && tree.make_file("file").is_err() && tree.names("way").is_err());
        assert!(tree.remove_file("way/secret").is_err());
        assert!(tree.read("../secret").is_err() && tree.beneath("..").is_err());
        tree.remove_all("way").unwrap();
        assert!(outside.path().join("secret").exists());
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        fs::mknodat(fs::CWD, folder.path().join("pipe"), FileType::Fifo, PRIVATE_FILE, 0).unwrap();
        let error = Tree::open(&Plain, folder.path()).unwrap().read("pipe").unwrap_err().to_string();
        assert!(error.contains("no regular file"), "{error}");
    }

    #[test]
    fn two_processes_do_not_work_in_one_directory() {
        let folder = tempfile::tempdir().unwrap();
        let one = Tree::open(&Plain, folder.path()).unwrap();
        one.lock(true).unwrap();
        let other = Tree::open(&Plain, folder.path()).unwrap();
        assert!(other.lock(false).unwrap_err().to_string().contains("Another spire-volume"));
        drop(one);
        other.lock(false).unwrap();
    }
}
