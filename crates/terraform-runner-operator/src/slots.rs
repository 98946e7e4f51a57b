//! Turns for runs: a limited number at a time, shared fairly between namespaces.

use std::collections::BTreeMap;

/// The turns; see [`opcore::slots`].
pub type Slots = opcore::slots::Slots<Class>;

/// The class of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A run that a user waits for.
    Run,
    /// A comparison with reality.
    Check,
}

impl opcore::slots::Class for Class {
    fn rank(self) -> u8 {
        match self {
            Self::Run => 0,
            Self::Check => 1,
        }
    }
}

/// How many runs there may be at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Runs of all kinds.
    pub runs: usize,
    /// Of these, in one namespace.
    pub share: usize,
    /// Of these, comparisons with reality.
    pub checks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs: 10, share: 5, checks: 2 }
    }
}

impl From<Limits> for opcore::slots::Limits<Class> {
    fn from(limits: Limits) -> Self {
        let within = BTreeMap::from([(Class::Check, limits.checks)]);
        Self { turns: limits.runs, share: limits.share, within }
    }
}
