//! What became of a command: one JSON object, small enough for the termination message of a container.
//!
//! ```json
//! {"result":"BackedUp","name":"20261119-1","files":2,"bytes":53248,"manifestSha256":"9f86…","takenAt":"…",
//!  "about":{"trustDomain":"example.org"},"message":"Backup 20261119-1 holds 2 files with 53248 bytes."}
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::VolumeError;

/// The largest report: a termination message has no more.
pub const REPORT_BYTES: usize = 4096;

/// How a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The backup exists, and its checksums were verified.
    BackedUp,
    /// There was nothing to back up.
    Empty,
    /// The checksums of the backup are right.
    Verified,
    /// The data directory holds what the backup holds.
    Restored,
    /// That was so before, and the server may have changed it since.
    AlreadyRestored,
    /// Nothing was restored: the data directory holds something else.
    Occupied,
    /// Nothing was restored: the backup is not of what was expected.
    Mismatched,
    /// The data directory is empty, and the backup holds all that was in it.
    Cleared,
    /// Nothing was deleted: the backup does not hold all that is in the data directory.
    NotBackedUp,
    /// No leftover socket is there; those still in use are named.
    Cleaned,
    /// The backups are named.
    Listed,
    /// It was not done. Running it again is safe, and may succeed.
    Failed,
    /// Written by a newer program.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Outcome {
    /// The exit code of the program: 0 when it did what it was told, 1 when running it again may help, 2 when only a
    /// decision helps.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed | Self::Unknown => 1,
            Self::Occupied | Self::Mismatched | Self::NotBackedUp => 2,
            _ => 0,
        }
    }
}

/// What became of a command. Unknown fields are ignored, and missing ones have their default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// How it ended.
    pub result: Outcome,
    /// The backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many files: of the backup, or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// How many bytes they have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The checksum of the backup's manifest, which has those of all files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_sha256: Option<String>,
    /// When the backup was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Timestamp>,
    /// What the backup is of, as it was told when it was made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub about: BTreeMap<String, String>,
    /// Old backups that were removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// Sockets that were left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_use: Vec<String>,
    /// The backups, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backups: Vec<Listed>,
    /// How many items of the lists above are missing because they did not fit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
    /// All of this in sentences, for people.
    #[serde(default)]
    pub message: String,
}

/// A backup in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Timestamp>,
    /// How many files it has.
    #[serde(default)]
    pub files: u64,
    /// How many bytes they have.
    #[serde(default)]
    pub bytes: u64,
    /// The checksum of its manifest.
    #[serde(default)]
    pub manifest_sha256: String,
    /// What it is of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub about: BTreeMap<String, String>,
    /// Why it cannot be used, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Report {
    /// A report with nothing but a result and its message.
    pub fn new(result: Outcome, message: impl AsRef<str>) -> Self {
        // A name of a file may contain anything; a line of a log must not.
        let message = message.as_ref().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        Self { result, message, ..Self::default() }
    }

    /// The report of a command that failed.
    pub fn failed(error: &VolumeError) -> Self {
        Self::new(Outcome::Failed, error.to_string())
    }

    /// Parses a termination message.
    ///
    /// # Errors
    ///
    /// When it is no report.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text.trim())
    }

    /// The report as JSON, in at most [`REPORT_BYTES`] bytes: what does not fit is left out, first from the lists.
    pub fn to_json(&self) -> String {
        let mut report = self.clone();
        loop {
            let json = serde_json::to_string(&report).unwrap_or_default();
            if json.len() <= REPORT_BYTES {
                return json;
            }
            report.shrink();
        }
    }

    /// Leaves out what is missed least.
    fn shrink(&mut self) {
        let lists = [self.backups.len(), self.removed.len(), self.in_use.len()];
        if lists.iter().any(|length| *length > 0) {
            // By fractions: a volume may have thousands of backups.
            let [backups, removed, in_use] = lists.map(|length| length - length.div_ceil(8));
            self.backups.truncate(backups);
            self.removed.truncate(removed);
            self.in_use.truncate(in_use);
            self.omitted += (lists.iter().sum::<usize>() - backups - removed - in_use) as u64;
        } else if self.message.chars().count() > 100 {
            let kept: String = self.message.chars().take(self.message.chars().count() / 2).collect();
            self.message = format!("{kept}…");
        } else if self.about.pop_last().is_none() {
            *self = Self { result: self.result, message: std::mem::take(&mut self.message), ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_report_says_what_it_says_and_no_more() {
        let report = Report { files: Some(2), ..Report::new(Outcome::BackedUp, "done\n") };
        assert_eq!(report.to_json(), "{\"result\":\"BackedUp\",\"files\":2,\"message\":\"done\u{fffd}\"}");
        assert_eq!(Report::parse(&report.to_json()).unwrap(), report);
    }

    #[test]
    fn a_newer_program_is_understood_as_far_as_possible() {
        let report = Report::parse(r#"{"result":"Teleported","message":"m","extra":[{}]}"#).unwrap();
        assert_eq!((report.result, report.message.as_str()), (Outcome::Unknown, "m"));
        assert!(Report::parse("").is_err() && Report::parse("{}").is_err() && Report::parse("oom").is_err());
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let backups = (0..1000).map(|number| Listed { name: format!("b{number}"), ..Listed::default() }).collect();
        let report = Report { backups, ..Report::new(Outcome::Listed, "1000 backups") };
        let told = Report::parse(&report.to_json()).unwrap();
        assert!(told.backups.len() > 10 && told.omitted + told.backups.len() as u64 == 1000);
        assert_eq!(told.backups[0].name, "b0");
    }

    proptest! {
        #[test]
        fn every_report_fits(
            message in "\\PC{0,3000}", name in "\\PC{0,3000}", about in btree_map("\\PC{0,50}", "\\PC{0,800}", 0..12),
            lists in vec(vec("\\PC{0,300}", 0..40), 2), files in any::<Option<u64>>(),
        ) {
            let report = Report {
                name: Some(name), about, removed: lists[0].clone(), in_use: lists[1].clone(), files,
                ..Report::new(Outcome::Failed, message)
            };
            let json = report.to_json();
            prop_assert!(json.len() <= REPORT_BYTES);
            prop_assert_eq!(Report::parse(&json).unwrap().result, Outcome::Failed);
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = Report::parse(&text);
        }
    }
}
