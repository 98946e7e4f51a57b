//! Every change of a volume is announced here first: so a program that is told to stop does so between two changes, and
//! a test can stop it before any of them.

use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs;
use rustix::io::Errno;
use tokio::sync::watch;

/// A change that is about to be made.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Make an empty file.
    MakeFile(&'a Path),
    /// Append to a file.
    Write(&'a Path),
    /// Set the mode of a file or directory.
    SetMode(&'a Path),
    /// Make a file's content durable.
    SyncFile(&'a Path),
    /// Make an empty directory.
    MakeDirectory(&'a Path),
    /// Make the entries of a directory durable.
    SyncDirectory(&'a Path),
    /// Rename, possibly into another directory.
    Rename(&'a Path, &'a Path),
    /// Remove what is no directory.
    RemoveFile(&'a Path),
    /// Remove an empty directory.
    RemoveDirectory(&'a Path),
}

/// Nothing more is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Stop;

/// What the work on volumes needs from outside.
pub trait Disk {
    /// Called before each change.
    ///
    /// # Errors
    ///
    /// When the change must not be made any more.
    fn before(&self, change: Change<'_>) -> Result<(), Stop>;

    /// Called between reads.
    ///
    /// # Errors
    ///
    /// When nothing more is to be read.
    fn reading(&self) -> Result<(), Stop> {
        Ok(())
    }

    /// Makes a file or directory durable.
    ///
    /// # Errors
    ///
    /// As of `fsync`.
    fn sync(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        fs::fsync(fd)
    }

    /// How many bytes can be written to a volume; none if it does not say.
    fn free(&self, directory: BorrowedFd<'_>) -> Option<u64> {
        let volume = fs::fstatvfs(directory).ok()?;
        // Some network and memory file systems have no size.
        (volume.f_blocks > 0).then(|| volume.f_bavail.saturating_mul(volume.f_frsize))
    }
}

/// The real thing.
#[derive(Debug)]
pub struct Real {
    /// Becomes true when the program is told to stop.
    pub stop: watch::Receiver<bool>,
}

impl Disk for Real {
    fn before(&self, _: Change<'_>) -> Result<(), Stop> {
        self.reading()
    }

    fn reading(&self) -> Result<(), Stop> {
        if *self.stop.borrow() { Err(Stop) } else { Ok(()) }
    }
}
