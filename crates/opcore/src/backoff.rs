//! How long to wait after a failure: per object, growing, and with jitter.
//!
//! kube's `Controller` has an error policy but does not report successes to it, so it cannot know that an object has
//! recovered. Here both outcomes are reported.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

/// The first delay.
pub const FIRST: Duration = Duration::from_secs(1);
/// The longest delay, so that a recovered cluster is noticed within a quarter of an hour.
pub const LONGEST: Duration = Duration::from_secs(1000);

/// The failures of each object since its last success.
///
/// # Guarantees
///
/// The n-th delay in a row lies in `[d/2, d]` with `d = min(1 s · 2ⁿ⁻¹, 1000 s)`: it grows, and objects that failed
/// together are not retried together. A success removes the object, so memory is bounded by the objects that are
/// failing now.
#[derive(Debug)]
pub struct Backoff<K> {
    failures: HashMap<K, u32>,
    jitter: RandomState,
}

impl<K> Default for Backoff<K> {
    fn default() -> Self {
        Self { failures: HashMap::new(), jitter: RandomState::new() }
    }
}

impl<K: Eq + Hash + Clone> Backoff<K> {
    /// Counts a failure of `key` and returns how long to wait before the next attempt.
    pub fn failed(&mut self, key: &K) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let full = FIRST.saturating_mul(1 << (*failures - 1).min(10)).min(LONGEST);
        // A hash seeded per process is random enough for jitter.
        let share = f64::from(u16::try_from(self.jitter.hash_one((key, *failures)) >> 48).unwrap_or(u16::MAX))
            / f64::from(u16::MAX);
        full.mul_f64(0.5 + share / 2.0)
    }

    /// How often `key` has failed since its last success.
    pub fn failures(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }

    /// Resets the failures of `key`, because it succeeded or is gone.
    pub fn succeeded(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// How many objects are failing now.
    pub fn failing(&self) -> usize {
        self.failures.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(backoff: &mut Backoff<&'static str>, key: &'static str, count: usize) -> Vec<f64> {
        (0..count).map(|_| backoff.failed(&key).as_secs_f64()).collect()
    }

    #[test]
    fn delays_double_from_one_second_to_a_thousand() {
        let full = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1000.0, 1000.0, 1000.0];
        for (delay, full) in delays(&mut Backoff::default(), "a", full.len()).into_iter().zip(full) {
            assert!((full / 2.0..=full).contains(&delay), "{delay} is not in [{}, {full}]", full / 2.0);
        }
    }

    #[test]
    fn a_success_starts_over_and_frees_the_memory() {
        let mut backoff = Backoff::default();
        delays(&mut backoff, "a", 9);
        backoff.succeeded(&"a");
        assert_eq!(backoff.failing(), 0);
        assert!(backoff.failed(&"a") <= FIRST);
    }

    #[test]
    fn one_objects_failures_do_not_delay_another() {
        let mut backoff = Backoff::default();
        delays(&mut backoff, "a", 9);
        assert!(backoff.failed(&"b") <= FIRST);
    }

    #[test]
    fn objects_that_fail_together_come_back_apart() {
        let mut backoff = Backoff::default();
        let keys: Vec<String> = (0..64).map(|n| n.to_string()).collect();
        let mut delays: Vec<Duration> = keys.iter().map(|key| backoff.failed(key)).collect();
        delays.sort();
        delays.dedup();
        assert!(delays.len() > 32, "only {} different delays for 64 objects", delays.len());
    }

    #[test]
    fn the_ten_thousandth_failure_is_still_only_the_longest_delay() {
        assert!(delays(&mut Backoff::default(), "a", 10_000).into_iter().all(|delay| delay <= 1000.0));
    }
}
