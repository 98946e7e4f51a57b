//! The inputs of a run: chunks of one gzip stream, which the kubelet mounts as files.

use std::io;
use std::path::Path;

use super::pack::{CHUNK_BYTES, gunzip, gzip};

/// The largest inputs.
const LIMIT: u64 = 64 << 20;

/// The bytes of a [`Bundle`](crate::run::bundle::Bundle), compressed and split into chunks: the same for the same
/// bytes.
pub fn chunks(bundle: &[u8]) -> Vec<Vec<u8>> {
    gzip(bundle).chunks(CHUNK_BYTES).map(<[u8]>::to_vec).collect()
}

/// Joins chunks.
///
/// # Errors
///
/// When one is missing or damaged.
pub fn join(chunks: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    gunzip(&chunks.concat(), LIMIT)
}

/// Reads the files `0`, `1`, … of a folder.
///
/// # Errors
///
/// When there are none, or when they differ from what was written.
pub fn read(folder: &Path) -> io::Result<Vec<u8>> {
    let mut chunks = Vec::new();
    loop {
        match std::fs::read(folder.join(chunks.len().to_string())) {
            Ok(chunk) => chunks.push(chunk),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !chunks.is_empty() => return join(&chunks),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_come_back_from_files() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).is_err());
        let bundle: Vec<u8> = (0..3_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let chunks = chunks(&bundle);
        assert!(chunks.len() > 1);
        for (number, chunk) in chunks.iter().enumerate() {
            std::fs::write(folder.path().join(number.to_string()), chunk).unwrap();
        }
        assert_eq!(read(folder.path()).unwrap(), bundle);
    }
}
