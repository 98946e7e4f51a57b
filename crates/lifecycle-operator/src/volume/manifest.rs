//! What a backup holds, as it was when it was made: `manifest.json`. It may have been tampered with, so all of it is
//! checked before any of it is used.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::marks;
use super::paths;

/// The largest manifest.
pub const MANIFEST_BYTES: u64 = 1 << 20;
/// The most files and directories.
pub const ENTRIES: usize = 10_000;
/// The only format so far.
const FORMAT: u32 = 1;
/// What can be said of a backup, in total; it has to fit into a report.
const ABOUT_BYTES: usize = 1536;
const FILE_MODES: u32 = 0o777;
const DIRECTORY_MODES: u32 = 0o7777;

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    format_version: u32,
    /// The name of the backup.
    pub name: String,
    /// When it was made.
    pub taken_at: Timestamp,
    /// What it is of: its trust domain, its server.
    #[serde(default)]
    pub about: BTreeMap<String, String>,
    /// The directories, sorted by path.
    #[serde(default)]
    pub directories: Vec<Directory>,
    /// The files, sorted by path.
    pub files: Vec<Held>,
}

/// A directory in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Directory {
    /// Its path in the data directory.
    pub path: String,
    /// Its permissions.
    #[serde(with = "octal")]
    pub mode: u32,
}

/// A file in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// Its path in the data directory.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its permissions.
    #[serde(with = "octal")]
    pub mode: u32,
    /// The digest of its content.
    pub sha256: String,
}

/// Only this of a manifest has to be the same in all formats.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Format {
    format_version: u32,
}

impl Manifest {
    /// The manifest of these files and directories.
    ///
    /// # Errors
    ///
    /// When a reader would not accept it.
    pub fn new(
        name: &str,
        taken_at: Timestamp,
        about: BTreeMap<String, String>,
        mut directories: Vec<Directory>,
        mut files: Vec<Held>,
    ) -> Result<Self, String> {
        directories.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        for file in &mut files {
            file.mode &= FILE_MODES;
        }
        let manifest = Self { format_version: FORMAT, name: name.to_owned(), taken_at, about, directories, files };
        manifest.check()?;
        Ok(manifest)
    }

    /// Parses and checks a manifest.
    ///
    /// # Errors
    ///
    /// When it is none, or has what no program writes.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() as u64 > MANIFEST_BYTES {
            return Err(format!("it has more than {MANIFEST_BYTES} bytes"));
        }
        let no_manifest = |error: serde_json::Error| format!("it is no manifest: {error}");
        let format: Format = serde_json::from_slice(bytes).map_err(no_manifest)?;
        if format.format_version != FORMAT {
            let version = format.format_version;
            return Err(format!("it has format {version}, and this program knows {FORMAT}: use the one that wrote it"));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(no_manifest)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// The manifest as it is written.
    ///
    /// # Errors
    ///
    /// When it is too large.
    pub fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let mut bytes = serde_json::to_vec_pretty(self).map_err(|error| error.to_string())?;
        bytes.push(b'\n');
        if bytes.len() as u64 > MANIFEST_BYTES {
            return Err(format!("{} files are too many for a manifest of {MANIFEST_BYTES} bytes", self.files.len()));
        }
        Ok(bytes)
    }

    /// The file with this path.
    pub fn file(&self, path: &str) -> Option<&Held> {
        let found = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        self.files.get(found)
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    fn check(&self) -> Result<(), String> {
        paths::backup_name(&self.name)?;
        check_about(&self.about)?;
        if self.files.is_empty() {
            return Err("it has no files".to_owned());
        }
        if self.files.len() + self.directories.len() > ENTRIES {
            return Err(format!("it has more than {ENTRIES} files and directories"));
        }
        let files: Vec<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        let directories: Vec<&str> = self.directories.iter().map(|directory| directory.path.as_str()).collect();
        if !files.is_sorted_by(|one, other| one < other) || !directories.is_sorted_by(|one, other| one < other) {
            return Err("its paths are not sorted, or one is there twice".to_owned());
        }
        for path in files.iter().chain(&directories) {
            paths::confined(path)?;
            if marks::is_ours(path) {
                return Err(format!("the path {path:?} is no data"));
            }
            if let Some(file) = paths::above(path).find(|above| self.file(above).is_some()) {
                return Err(format!("{file:?} is a file and a directory in it"));
            }
        }
        if let Some(both) = directories.iter().find(|path| self.file(path).is_some()) {
            return Err(format!("{both:?} is a file and a directory in it"));
        }
        let mut bytes = 0_u64;
        for file in &self.files {
            bytes = bytes.checked_add(file.size).ok_or("its sizes are no real ones")?;
            let is_digit = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
            if file.sha256.len() != 64 || !file.sha256.bytes().all(is_digit) {
                return Err(format!("the checksum of {:?} is none", file.path));
            }
        }
        let modes = self.files.iter().all(|file| file.mode <= FILE_MODES)
            && self.directories.iter().all(|directory| directory.mode <= DIRECTORY_MODES);
        if modes { Ok(()) } else { Err("it has modes that no file should have".to_owned()) }
    }
}

/// Checks what is said of a backup.
///
/// # Errors
///
/// When it is too much for a report, or not printable.
pub fn check_about(about: &BTreeMap<String, String>) -> Result<(), String> {
    let in_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if let Some(key) = about.keys().find(|key| key.is_empty() || !key.chars().all(in_key)) {
        let key: String = key.chars().take(100).collect();
        return Err(format!("{key:?} is no key: it has letters, digits, dots, dashes, underscores and slashes"));
    }
    if about.values().any(|value| value.chars().any(char::is_control)) {
        return Err("a value about a backup has a control character".to_owned());
    }
    let bytes: usize = about.iter().map(|(key, value)| key.len() + value.len() + 6).sum();
    if bytes > ABOUT_BYTES {
        return Err(format!("what is said about a backup has {bytes} bytes; at most {ABOUT_BYTES} are kept"));
    }
    Ok(())
}

/// Permissions, as people write them.
mod octal {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{mode:04o}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let text = String::deserialize(deserializer)?;
        u32::from_str_radix(&text, 8).map_err(|_| D::Error::custom(format_args!("{text:?} is no mode")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn good() -> Value {
        json!({
            "formatVersion": 1, "name": "b", "takenAt": "2026-11-19T06:15:00Z", "about": { "trustDomain": "example.org" },
            "directories": [{ "path": "sub", "mode": "2770" }],
            "files": [
                { "path": "keys.json", "size": 1, "mode": "0600", "sha256": "0".repeat(64) },
                { "path": "sub/x", "size": 2, "mode": "0644", "sha256": "a".repeat(64) },
            ],
        })
    }

    fn parsed(value: &Value) -> Result<Manifest, String> {
        Manifest::parse(value.to_string().as_bytes())
    }

    #[test]
    fn a_manifest_reads_as_it_was_written() {
        let manifest = parsed(&good()).unwrap();
        assert_eq!((manifest.bytes(), manifest.directories[0].mode), (3, 0o2770));
        assert_eq!(Manifest::parse(&manifest.to_bytes().unwrap()).unwrap(), manifest);
        assert_eq!(manifest.file("sub/x").unwrap().size, 2);
        assert_eq!(manifest.file("sub"), None);
    }

    #[test]
    fn a_hostile_manifest_is_refused() {
        let cases = [
            ("/files/0/path", json!("../x")),
            ("/files/0/path", json!("/etc/passwd")),
            ("/files/0/path", json!("sub/x")),
            ("/files/0/path", json!("sub")),
            ("/files/0/path", json!(".restored-from.json")),
            ("/files/0/path", json!(".restore.partial/x")),
            ("/files/1/path", json!("keys.json/x")),
            ("/files/1/path", json!("a")),
            ("/files/0/size", json!(u64::MAX)),
            ("/files/0/size", json!(-1)),
            ("/files/0/mode", json!("4755")),
            ("/files/0/mode", json!("rwx")),
            ("/files/0/sha256", json!("A".repeat(64))),
            ("/files", json!([])),
            ("/directories/0/path", json!("..")),
            ("/directories/0/mode", json!("77777")),
            ("/name", json!("../b")),
            ("/name", json!("latest")),
            ("/takenAt", json!("yesterday")),
            ("/about", json!({ "a b": "c" })),
            ("/about", json!({ "a": "\n" })),
            ("/about", json!({ "a": "x".repeat(2000) })),
        ];
        for (place, value) in cases {
            let mut manifest = good();
            *manifest.pointer_mut(place).unwrap() = value.clone();
            assert!(parsed(&manifest).is_err(), "{place} {value}");
        }
        assert!(Manifest::parse(&vec![b' '; (1 << 20) + 1]).unwrap_err().contains("more than"));
    }

    #[test]
    fn a_newer_format_is_told_from_a_damaged_one() {
        let newer = json!({ "formatVersion": 2, "entries": {} });
        assert!(parsed(&newer).unwrap_err().contains("format 2"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200)) {
            let _ = Manifest::parse(&bytes);
        }

        /// Bytes of a good manifest replaced by others: it is refused, or what it says is within bounds.
        #[test]
        fn no_change_of_a_manifest_leads_out(
            changes in vec((any::<prop::sample::Index>(), "[./\"a{}\\[\\]0-9,:\\\\]"), 1..6)
        ) {
            let mut bytes = good().to_string().into_bytes();
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte.as_bytes()[0];
            }
            if let Ok(manifest) = Manifest::parse(&bytes) {
                for file in &manifest.files {
                    prop_assert!(paths::confined(&file.path).is_ok() && file.mode <= 0o777);
                }
                prop_assert!(manifest.bytes() < u64::MAX);
                prop_assert_eq!(Manifest::parse(&manifest.to_bytes().unwrap()).unwrap(), manifest);
            }
        }

        #[test]
        fn paths_of_a_manifest_stay_within(paths in vec("[./a-c]{1,8}", 1..6)) {
            let held = |path: &String| Held { path: path.clone(), size: 1, mode: 0o600, sha256: "0".repeat(64) };
            let files = paths.iter().map(held).collect();
            if let Ok(manifest) = Manifest::new("b", Timestamp::UNIX_EPOCH, BTreeMap::new(), Vec::new(), files) {
                for file in &manifest.files {
                    prop_assert!(file.path.split('/').all(|part| !matches!(part, "" | "." | "..")));
                }
            }
        }
    }
}
