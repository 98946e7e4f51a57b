//! Compresses, splits and checks data. The same bytes always give the same chunks.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use opcore::digest;
use serde::{Deserialize, Serialize};

use super::StoreError;

/// The largest chunk: a Secret holds 1 MiB.
pub const CHUNK_BYTES: usize = 900_000;

/// Checksums of the data, for checking it when it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sums {
    /// A digest of all the data.
    pub sha256: String,
    /// The size of all the data.
    pub bytes: u64,
    /// A digest of each chunk.
    pub chunks: Vec<String>,
}

/// Data that is compressed and split.
pub struct Packed {
    /// The chunks.
    pub chunks: Vec<Vec<u8>>,
    /// Their checksums.
    pub sums: Sums,
}

/// Compresses and splits data.
pub fn pack(bytes: &[u8]) -> Packed {
    let chunks: Vec<Vec<u8>> = gzip(bytes).chunks(CHUNK_BYTES).map(<[u8]>::to_vec).collect();
    let sums = Sums {
        sha256: digest::of_bytes(bytes),
        bytes: bytes.len() as u64,
        chunks: chunks.iter().map(|chunk| digest::of_bytes(chunk)).collect(),
    };
    Packed { chunks, sums }
}

/// Checks, joins and decompresses chunks. `name` returns the name of a chunk's Secret.
pub fn unpack(chunks: &[Vec<u8>], sums: &Sums, name: impl Fn(usize) -> String) -> Result<Vec<u8>, StoreError> {
    for (number, sum) in sums.chunks.iter().enumerate() {
        let chunk = chunks.get(number).ok_or_else(|| StoreError::Missing(name(number)))?;
        if digest::of_bytes(chunk) != *sum {
            return Err(StoreError::damaged(&name(number), "the checksum of its data is wrong"));
        }
    }
    let whole = gunzip(&chunks.concat(), sums.bytes)
        .map_err(|error| StoreError::damaged(&name(0), format!("it cannot be decompressed: {error}")))?;
    if digest::of_bytes(&whole) != sums.sha256 {
        return Err(StoreError::damaged(&name(0), "the checksum of all chunks together is wrong"));
    }
    Ok(whole)
}

/// Compresses.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(5));
    // Writing to a vector does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// Decompresses at most `limit` bytes.
pub fn gunzip(bytes: &[u8], limit: u64) -> std::io::Result<Vec<u8>> {
    let mut whole = Vec::new();
    GzDecoder::new(bytes).take(limit.saturating_add(1)).read_to_end(&mut whole)?;
    if whole.len() as u64 > limit {
        return Err(std::io::Error::other(format!("it has more than {limit} bytes")));
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that do not compress.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut word = 1_u32;
        let next = |_| {
            word ^= word << 13;
            word ^= word >> 17;
            word ^= word << 5;
            word.to_le_bytes()
        };
        (0..bytes / 4).flat_map(next).collect()
    }

    fn name(number: usize) -> String {
        format!("chunk-{number}")
    }

    #[test]
    fn what_is_packed_comes_back() {
        for bytes in [Vec::new(), b"rain".to_vec(), noise(2_000_000)] {
            let packed = pack(&bytes);
            assert!(packed.chunks.iter().all(|chunk| chunk.len() <= CHUNK_BYTES));
            assert_eq!(unpack(&packed.chunks, &packed.sums, name).unwrap(), bytes);
        }
    }

    #[test]
    fn damage_is_reported_by_the_name_of_the_chunk() {
        let mut packed = pack(&noise(2_000_000));
        packed.chunks[1][7] ^= 1;
        let error = unpack(&packed.chunks, &packed.sums, name).unwrap_err().to_string();
        assert!(error.starts_with("Secret chunk-1 is damaged"), "{error}");
        packed.chunks.truncate(1);
        let error = unpack(&packed.chunks, &packed.sums, name).unwrap_err().to_string();
        assert_eq!(error, "Secret chunk-1 does not exist");
    }

    #[test]
    fn no_more_is_decompressed_than_was_compressed() {
        let mut packed = pack(&vec![0; 1_000_000]);
        packed.sums.bytes = 10;
        let error = unpack(&packed.chunks, &packed.sums, name).unwrap_err().to_string();
        assert!(error.contains("more than 10 bytes"), "{error}");
    }
}
