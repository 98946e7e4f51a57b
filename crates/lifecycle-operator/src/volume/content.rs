//! Copies and checksums of files.

use std::io::Read;
use std::path::Path;

use rustix::fs::{Advice, fadvise};
use sha2::{Digest, Sha256};

use super::disk::{Disk, Stop};
use super::error::VolumeError;
use super::tree::{Tree, Writing};

/// How much is read at a time. Tests write files in several parts, too, to be stopped between them.
const PART_BYTES: usize = if cfg!(test) { 16 } else { 256 << 10 };

/// What a file contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Its size.
    pub size: u64,
    /// A digest, in hexadecimal.
    pub sha256: String,
}

/// The checksum of a file, as it is on the disk rather than in memory, where the kernel can tell them apart.
pub fn sum(tree: &Tree<'_>, path: &str) -> Result<Sum, VolumeError> {
    let file = tree.read(path)?;
    // A copy that was just written would be read from memory otherwise.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    let whole = tree.path_of(path);
    read(tree.disk(), file, &whole, |_| Ok(()))
}

/// Copies a file, durably, and returns its checksum.
///
/// # Errors
///
/// Also when the file changes meanwhile.
pub fn copy(tree: &Tree<'_>, path: &str, to: &Tree<'_>, new: &str, mode: Option<u32>) -> Result<Sum, VolumeError> {
    let (file, whole) = (tree.read(path)?, tree.path_of(path));
    let look = || Tree::look_of(&file).map_err(|error| VolumeError::io("look at", &whole, error));
    let before = look()?;
    let mut copy: Writing<'_> = to.make_file(new)?;
    let sum = read(tree.disk(), &file, &whole, |part| copy.append(part))?;
    if look()? != before || sum.size != before.size {
        return Err(changed(&whole));
    }
    if let Some(mode) = mode {
        copy.set_mode(mode)?;
    }
    copy.sync()?;
    Ok(sum)
}

/// A file changed while it was worked with.
pub fn changed(path: &Path) -> VolumeError {
    VolumeError::Refused(format!(
        "{} changed meanwhile: stop the server, and whatever else writes there; then run this again.",
        path.display()
    ))
}

/// A digest of these bytes, in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    opcore::digest::of_bytes(bytes)
}

fn read(
    disk: &dyn Disk,
    mut file: impl Read,
    path: &Path,
    mut each: impl FnMut(&[u8]) -> Result<(), VolumeError>,
) -> Result<Sum, VolumeError> {
    let (mut digest, mut size, mut part) = (Sha256::new(), 0, vec![0; PART_BYTES]);
    loop {
        disk.reading().map_err(|Stop| VolumeError::Stopped)?;
        let length = match file.read(&mut part) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(VolumeError::io("read", path, error)),
        };
        let part = part.get(..length).unwrap_or_default();
        digest.update(part);
        each(part)?;
        size += length as u64;
    }
    Ok(Sum { size, sha256: opcore::digest::hex(&digest.finalize()) })
}
