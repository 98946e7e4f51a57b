//! What this program leaves in a data directory, beside the server's files: no backup has it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::VolumeError;
use super::tree::Tree;

/// Says which backup was restored. It is written when all else of a restore is done, and removed first by `clear`.
pub const RESTORED: &str = ".restored-from.json";
/// The same while it is written.
const RESTORED_PARTIAL: &str = ".restored-from.json.partial";
/// Holds copies while they are made: none of them is in its place yet.
pub const RESTORING: &str = ".restore.partial";
/// In [`RESTORING`]: which backup the copies are of. It is there before the first of them.
pub const ORIGIN: &str = "from.json";
/// Some file systems keep it at their root.
const LOST_FOUND: &str = "lost+found";
/// The largest mark.
const MARK_BYTES: u64 = 4096;

/// Names a backup, beyond doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// The checksum of its manifest.
    pub manifest_sha256: String,
    /// When it was restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_at: Option<Timestamp>,
}

impl Mark {
    /// Whether both name the same backup.
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.name, &self.manifest_sha256) == (&other.name, &other.manifest_sha256)
    }

    /// Reads a mark; none if there is none, or only a part of one.
    pub fn read(tree: &Tree<'_>, path: &str) -> Result<Option<Self>, VolumeError> {
        let bytes = tree.read_small(path, MARK_BYTES)?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Writes a mark. A crash can leave a part of it, which is read as none.
    pub fn write(&self, tree: &Tree<'_>, path: &str) -> Result<(), VolumeError> {
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        tree.write_small(path, &bytes)
    }

    /// Says that this was restored, either wholly or not at all.
    pub fn set(&self, data: &Tree<'_>) -> Result<(), VolumeError> {
        self.write(data, RESTORED_PARTIAL)?;
        data.rename(RESTORED_PARTIAL, data, RESTORED)?;
        data.sync("")
    }
}

/// Takes back what [`Mark::set`] said.
pub fn unset(data: &Tree<'_>) -> Result<(), VolumeError> {
    for mark in [RESTORED, RESTORED_PARTIAL] {
        if data.look(mark)?.is_some() {
            data.remove_file(mark)?;
        }
    }
    data.sync("")
}

/// Whether a path in a data directory is not the server's.
pub fn is_ours(path: &str) -> bool {
    let first = path.split('/').next().unwrap_or_default();
    [RESTORED, RESTORED_PARTIAL, RESTORING, LOST_FOUND].contains(&first)
}
