//! The names of everything that belongs to a workspace: known in advance, so that rights can be granted by name.

use opcore::digest;

use crate::api::v1alpha1::History;

/// How many chunks a version of the state may have.
pub const STATE_CHUNKS: usize = 32;
/// How many chunks a kept plan may have.
pub const PLAN_CHUNKS: usize = 16;

/// The names of everything that belongs to one specific workspace from its creation to its deletion: a later workspace
/// of the same name has others, and never finds the state of its predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Names {
    stem: String,
}

impl Names {
    /// The names of the workspace `name` with this UID.
    pub fn of(name: &str, uid: &str) -> Self {
        // Labels hold 63 characters, and the name of a Job becomes the value of a label.
        let readable: String = name.chars().take(32).map(|c| if c == '.' { '-' } else { c }).collect();
        let readable = readable.trim_end_matches('-');
        Self { stem: format!("tf-{readable}-{}", short(&[uid])) }
    }

    /// The names with this common prefix, as it was passed to a runner.
    pub fn with_stem(stem: impl Into<String>) -> Self {
        Self { stem: stem.into() }
    }

    /// The names with the same prefix as the name of this Job.
    pub fn of_job(job: &str) -> Self {
        Self::with_stem(job.rsplit_once('-').map_or(job, |(stem, _)| stem))
    }

    /// The common prefix, which is also the name of the ServiceAccount, the Role and the RoleBinding.
    pub fn stem(&self) -> &str {
        &self.stem
    }

    /// The Lease that serves as the lock of the state.
    pub fn lease(&self) -> String {
        format!("{}-lock", self.stem)
    }

    /// The Secret that says where the current and the older versions of the state are.
    pub fn state(&self) -> String {
        format!("{}-state", self.stem)
    }

    /// The Secret with the provider versions that wrote the state.
    pub fn lockfile(&self) -> String {
        format!("{}-state-lockfile", self.stem)
    }

    /// A chunk of the version of the state in this place.
    pub fn state_chunk(&self, place: usize, chunk: usize) -> String {
        format!("{}-state-{place}-{chunk}", self.stem)
    }

    /// The Secret that describes the kept plan.
    pub fn plan(&self) -> String {
        format!("{}-plan", self.stem)
    }

    /// A chunk of the kept plan.
    pub fn plan_chunk(&self, chunk: usize) -> String {
        format!("{}-plan-{chunk}", self.stem)
    }

    /// The Secret with the report of the last run, and the outputs.
    pub fn report(&self) -> String {
        format!("{}-report", self.stem)
    }

    /// The Secret with the key for the hashes of inputs.
    pub fn key(&self) -> String {
        format!("{}-key", self.stem)
    }

    /// A chunk of the inputs with this hash.
    pub fn inputs_chunk(&self, hash: &str, chunk: usize) -> String {
        format!("{}-in-{}-{chunk}", self.stem, hash.get(..10).unwrap_or(hash))
    }

    /// The Job of the run with this number.
    pub fn job(&self, number: i64) -> String {
        format!("{}-{number}", self.stem)
    }

    /// How many versions of the state can be stored: those in the history, the current one, and the next.
    pub fn state_places(history: &History) -> usize {
        usize::try_from(history.states).unwrap_or(1).max(1) + 2
    }

    /// The place of the state version of which this Secret holds a chunk.
    pub fn place_of(&self, secret: &str) -> Option<usize> {
        let (place, _) = secret.strip_prefix(&self.state())?.strip_prefix('-')?.split_once('-')?;
        place.parse().ok()
    }

    /// Every Secret that a runner may read and write, if versions of the state are in this many places.
    pub fn writable_secrets(&self, places: usize) -> Vec<String> {
        let chunks = |place| (0..STATE_CHUNKS).map(move |chunk| self.state_chunk(place, chunk));
        let states = (0..places).flat_map(chunks);
        let plans = (0..PLAN_CHUNKS).map(|chunk| self.plan_chunk(chunk));
        [self.state(), self.lockfile(), self.plan(), self.report()].into_iter().chain(states).chain(plans).collect()
    }
}

/// Eight digits of a digest of these parts.
pub fn short(parts: &[&str]) -> String {
    digest::short(&digest::of_parts(parts), 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_still_fits_a_label() {
        let names = Names::of(&"x".repeat(253), "b5e0c6f0-0000-4000-8000-000000000000");
        assert!(names.job(999_999_999).len() <= 63, "{}", names.job(999_999_999));
        assert!(names.inputs_chunk(&"f".repeat(64), 15).len() <= 63);
    }

    #[test]
    fn the_place_of_a_chunk_is_in_its_name() {
        let names = Names::of("db-1", "u");
        assert_eq!(names.place_of(&names.state_chunk(7, 3)), Some(7));
        assert_eq!(names.place_of(&names.state()), None);
        assert_eq!(names.place_of(&names.lockfile()), None);
        assert_eq!(names.place_of(&names.report()), None);
        assert_eq!(Names::of_job(&names.job(12)), names);
    }

    #[test]
    fn a_successor_of_the_same_name_has_other_names() {
        assert_ne!(Names::of("network", "one"), Names::of("network", "two"));
    }
}
