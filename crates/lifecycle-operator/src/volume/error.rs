//! What goes wrong on a volume: each error is a sentence that names the file, and says what to do.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

const LINKS: &str = "Symbolic links are not followed: put the file or directory itself there.";

/// Why something was not done.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// The operating system refused.
    #[error("Cannot {doing} {path}: {error}. {remedy}", path = path.display(), remedy = remedy(error))]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// The answer.
        error: io::Error,
    },
    /// A backup is not what it was when it was made.
    #[error("{0}")]
    Damaged(String),
    /// There is no such backup.
    #[error("{0}")]
    Missing(String),
    /// Something else is in the way.
    #[error("{0}")]
    Refused(String),
    /// The program was told to stop.
    #[error("It was told to stop before it was done. Run the same command again: it goes on from there.")]
    Stopped,
}

impl VolumeError {
    /// An answer of the operating system, with what was tried.
    pub fn io(doing: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Io { doing, path: path.to_owned(), error: error.into() }
    }
}

/// What to do about an answer of the operating system.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "Enlarge its volume, or remove from it what is not needed; then run this again."
        }
        ErrorKind::PermissionDenied => {
            "Run this as the user who owns it, or give the volume to the pod's group by fsGroup."
        }
        ErrorKind::ReadOnlyFilesystem => "Mount its volume for writing.",
        ErrorKind::NotFound => "See that the right volume is mounted there.",
        ErrorKind::NotADirectory => LINKS,
        ErrorKind::InvalidInput | ErrorKind::InvalidData => "Rename it.",
        _ if Errno::from_io_error(error) == Some(Errno::LOOP) => LINKS,
        _ => "Run this again; if it fails in the same way, look at the storage of the volume.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file_and_what_to_do() {
        let full = VolumeError::io("write", Path::new("/backups/x"), ErrorKind::StorageFull);
        assert_eq!(
            full.to_string(),
            "Cannot write /backups/x: no storage space. Enlarge its volume, or remove from it what is not needed; then \
             run this again."
        );
        let denied = VolumeError::io("read", Path::new("/data/keys.json"), Errno::ACCESS).to_string();
        assert!(denied.contains("/data/keys.json") && denied.contains("fsGroup"), "{denied}");
    }
}
