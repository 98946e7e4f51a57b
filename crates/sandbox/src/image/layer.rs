//! A layer: a tar that does not depend on when, where and by whom it was made.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::bail;
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

/// What is at a place.
pub(super) enum Entry {
    /// A directory, and its mode. Those above an entry need not be named.
    Directory(u32),
    /// A file: its mode and its content.
    File(u32, Vec<u8>),
    /// The very file that is at another place, which comes before it in the order of names. Its mode is repeated:
    /// some unpack a link by setting it.
    Same(u32, String),
}

/// The layer of these entries, by their places without the leading slash.
pub(super) fn pack(mut entries: BTreeMap<String, Entry>) -> anyhow::Result<Vec<u8>> {
    let places: Vec<String> = entries.keys().cloned().collect();
    for above in places.iter().flat_map(|place| place.match_indices('/').map(|(at, _)| &place[..at])) {
        if !matches!(entries.entry(above.to_owned()).or_insert(Entry::Directory(0o755)), Entry::Directory(_)) {
            bail!("/{above} cannot be a file and a directory in the image.");
        }
    }
    let mut tar = Builder::new(Vec::new());
    for (place, entry) in entries {
        match entry {
            Entry::Directory(mode) => append(&mut tar, EntryType::Directory, &place, mode, &[])?,
            Entry::File(mode, content) => append(&mut tar, EntryType::Regular, &place, mode, &content)?,
            Entry::Same(mode, other) => tar.append_link(&mut header(EntryType::Link, mode, 0), &place, &other)?,
        }
    }
    Ok(tar.into_inner()?)
}

/// The same, a third of the size or less.
pub(super) fn compress(layer: &[u8]) -> io::Result<Vec<u8>> {
    let mut to = GzEncoder::new(Vec::new(), Compression::default());
    to.write_all(layer)?;
    to.finish()
}

pub(super) fn append(
    tar: &mut Builder<impl Write>,
    kind: EntryType,
    path: &str,
    mode: u32,
    content: &[u8],
) -> io::Result<()> {
    tar.append_data(&mut header(kind, mode, content.len() as u64), path, content)
}

/// Everything that could differ from one machine or minute to the next is fixed.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}
