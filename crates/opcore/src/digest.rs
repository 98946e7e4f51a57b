//! Digests that stay the same across processes and versions of this program.

use sha2::{Digest, Sha256};

/// A digest of these parts, in hexadecimal; the boundaries between the parts matter.
pub fn of_parts(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_be_bytes());
        digest.update(part.as_bytes());
    }
    hex(&digest.finalize())
}

/// A digest of these bytes, in hexadecimal.
pub fn of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The first digits of a digest, for names that have to be short.
pub fn short(digest: &str, digits: usize) -> String {
    digest.chars().take(digits).collect()
}

/// These bytes in hexadecimal, for a digest of what is read piece by piece.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_of_parts_count() {
        assert_ne!(of_parts(&["ab", "c"]), of_parts(&["a", "bc"]));
        assert_eq!(short(&of_bytes(b""), 8), "e3b0c442");
    }
}
