//! Where the next version of the state is stored, and whether it may be: pure.

use serde::{Deserialize, Serialize};

use super::pack::Sums;

/// The kept versions of a state, the newest first: that one is the current version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Index {
    /// The versions.
    pub versions: Vec<Version>,
}

/// One version of a state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The place of its chunks.
    pub place: usize,
    /// What Terraform reports about it.
    #[serde(flatten)]
    pub facts: Facts,
    /// The checksums of its chunks.
    #[serde(flatten)]
    pub sums: Sums,
    /// The run that saved it, by the name of its Job.
    pub run: String,
    /// When it was saved.
    pub time: jiff::Timestamp,
}

/// What Terraform reports about a state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// The number of its version.
    pub serial: i64,
    /// An identifier that all versions of a state share.
    pub lineage: String,
    /// How many resources it has; none if this is not known because the state is encrypted.
    pub resources: Option<i64>,
}

/// Whether a save may proceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveCheck {
    /// It may proceed.
    Save,
    /// It has been saved already; the response was lost.
    Saved,
    /// It would replace a newer state, or a different one.
    Refuse(String),
}

impl Index {
    /// The current version.
    pub fn current(&self) -> Option<&Version> {
        self.versions.first()
    }

    /// Whether this state may become the current version.
    pub fn judge(&self, facts: &Facts, sha256: &str, run: &str) -> SaveCheck {
        let Some(current) = self.current() else { return SaveCheck::Save };
        if current.sums.sha256 == sha256 {
            return SaveCheck::Saved;
        }
        if facts.lineage != current.facts.lineage {
            return match current.facts.resources {
                // A state that was rescued before its first save has no lineage, and Terraform sets one with the next
                // save.
                _ if current.facts.lineage.is_empty() => SaveCheck::Save,
                Some(0) => SaveCheck::Save,
                _ => SaveCheck::Refuse(format!(
                    "the stored state has lineage {} and is not empty, so it cannot be replaced with a state of lineage {}",
                    current.facts.lineage, facts.lineage
                )),
            };
        }
        // Terraform increases the serial only after it learned that its last save succeeded: within a run a serial may
        // occur twice.
        let behind =
            facts.serial < current.facts.serial || (facts.serial == current.facts.serial && current.run != run);
        if behind {
            return SaveCheck::Refuse(format!(
                "the stored state has serial {}, so it cannot be replaced with a state of serial {}",
                current.facts.serial, facts.serial
            ));
        }
        SaveCheck::Save
    }

    /// A place without a kept version: there are more places than versions. An empty place is preferred to one whose
    /// version is being replaced.
    pub fn free_place(&self, keep: usize) -> usize {
        let keep = keep.max(1);
        let is_free =
            |among: usize, place: usize| self.versions.iter().take(among).all(|version| version.place != place);
        // The same number as in Names::state_places.
        let free = |among: usize| (0..keep + 2).find(|place| is_free(among, *place));
        free(self.versions.len()).or_else(|| free(keep)).unwrap_or(0)
    }

    /// The index after this version was written. The last version of each run is kept.
    #[must_use]
    pub fn with(&self, version: Version, keep: usize) -> Self {
        let others = self.versions.iter().filter(|other| other.run != version.run && other.place != version.place);
        let others: Vec<Version> = others.cloned().collect();
        Self { versions: std::iter::once(version).chain(others).take(keep.max(1)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::api::v1alpha1::History;
    use crate::run::names::Names;

    fn version(place: usize, serial: i64, run: &str) -> Version {
        Version {
            place,
            facts: Facts { serial, lineage: "a".to_owned(), resources: Some(1) },
            sums: Sums { sha256: format!("{run}/{serial}"), ..Sums::default() },
            run: run.to_owned(),
            time: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn index(versions: &[Version]) -> Index {
        Index { versions: versions.to_vec() }
    }

    #[test]
    fn an_older_state_does_not_take_the_place_of_a_newer_one() {
        let index = index(&[version(0, 5, "one")]);
        let of = |serial, lineage: &str| Facts { serial, lineage: lineage.to_owned(), resources: Some(3) };
        assert!(matches!(index.judge(&of(4, "a"), "x", "one"), SaveCheck::Refuse(_)));
        assert!(matches!(index.judge(&of(5, "a"), "x", "two"), SaveCheck::Refuse(_)));
        assert!(matches!(index.judge(&of(9, "b"), "x", "two"), SaveCheck::Refuse(_)));
        assert_eq!(index.judge(&of(6, "a"), "x", "two"), SaveCheck::Save);
        assert_eq!(
            index.judge(&of(5, "a"), "x", "one"),
            SaveCheck::Save,
            "it may not know that its last save succeeded"
        );
        assert_eq!(index.judge(&of(5, "a"), "one/5", "one"), SaveCheck::Saved);
    }

    #[test]
    fn another_lineage_may_follow_an_empty_state_only() {
        let mut empty = version(0, 5, "one");
        empty.facts.resources = Some(0);
        let other = Facts { serial: 1, lineage: "b".to_owned(), resources: Some(3) };
        assert_eq!(index(&[empty.clone()]).judge(&other, "x", "two"), SaveCheck::Save);
        empty.facts.resources = None;
        assert!(
            matches!(index(&[empty]).judge(&other, "x", "two"), SaveCheck::Refuse(_)),
            "it is not known to be empty"
        );
    }

    #[test]
    fn a_state_that_was_rescued_without_a_lineage_gets_one_and_loses_none() {
        let mut rescued = version(0, 0, "one");
        rescued.facts.lineage.clear();
        let named = Facts { serial: 1, lineage: "a".to_owned(), resources: Some(3) };
        assert_eq!(index(&[rescued.clone()]).judge(&named, "x", "two"), SaveCheck::Save);
        assert!(matches!(index(&[version(0, 5, "one")]).judge(&rescued.facts, "x", "two"), SaveCheck::Refuse(_)));
    }

    #[test]
    fn saves_of_one_run_collapse_into_its_last() {
        let index = index(&[version(0, 5, "one")]).with(version(1, 6, "two"), 3).with(version(2, 7, "two"), 3);
        assert_eq!(index.versions.iter().map(|version| version.facts.serial).collect::<Vec<_>>(), [7, 5]);
    }

    proptest! {
        /// Saves that crash after any number of writes, with a history setting that is increased and decreased in
        /// between.
        #[test]
        fn after_a_crash_at_any_point_the_current_version_is_intact(
            saves in prop::collection::vec((0_usize..4, 1_i32..6, 0_usize..4, 1_usize..4), 1..40)
        ) {
            // The contents of the chunks in each place: the serial for which they were written.
            let mut places: BTreeMap<(usize, usize), i64> = BTreeMap::new();
            let (mut index, mut shortest) = (Index::default(), usize::MAX);
            for (serial, (run, keep, crash_after, chunks)) in (1_i64..).zip(saves) {
                let history = History { states: keep, ..History::default() };
                let keep = usize::try_from(keep).unwrap();
                shortest = shortest.min(keep);
                let place = index.free_place(keep);
                prop_assert!(place < Names::state_places(&history), "the runner may write there");
                for chunk in 0..chunks.min(crash_after) {
                    places.insert((place, chunk), serial);
                }
                if crash_after >= chunks {
                    let mut new = version(place, serial, &format!("run-{run}"));
                    new.sums.chunks = vec![String::new(); chunks];
                    index = index.with(new, keep);
                    prop_assert!(index.versions.len() <= keep);
                }
                if let Some(current) = index.current() {
                    for chunk in 0..current.sums.chunks.len() {
                        prop_assert_eq!(places.get(&(current.place, chunk)), Some(&current.facts.serial));
                    }
                }
                // The versions that must never be dropped are complete, too.
                for kept in index.versions.iter().take(shortest) {
                    for chunk in 0..kept.sums.chunks.len() {
                        prop_assert_eq!(places.get(&(kept.place, chunk)), Some(&kept.facts.serial));
                    }
                }
            }
        }
    }
}
