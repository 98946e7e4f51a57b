//! Whose turn it is: so many runs at a time, first come, first served.
//!
//! Nobody waits for a turn: who does not get one is told so, and is woken when one is free.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard};

use opcore::queue::Key;

/// What a run counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A run that someone waits for.
    Run,
    /// A comparison with reality.
    Check,
}

/// How many runs there may be at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Runs of all kinds.
    pub runs: usize,
    /// Of these, comparisons with reality.
    pub checks: usize,
}

/// Whose turn it is.
#[derive(Debug)]
pub struct Slots {
    limits: Limits,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    running: HashSet<Key>,
    checking: HashSet<Key>,
    waiting: VecDeque<(Key, bool)>,
}

impl Slots {
    /// Nobody runs yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ledger: Mutex::default() }
    }

    /// Takes a turn, if there is one for this workspace; if not, notes that it waits. Who has one keeps it.
    pub fn take(&self, key: &Key, class: Class) -> bool {
        let mut ledger = self.lock();
        let check = class == Class::Check;
        if ledger.has(key) {
            ledger.begin(key, check);
            return true;
        }
        match ledger.waiting.iter_mut().find(|(waiting, _)| waiting == key) {
            // It may want something else by now.
            Some((_, is_check)) => *is_check = check,
            None => ledger.waiting.push_back((key.clone(), check)),
        }
        if ledger.next(self.limits).contains(key) {
            ledger.begin(key, check);
            return true;
        }
        false
    }

    /// A run of this workspace is under way, whether it asked or not: it was there when this process began.
    pub fn hold(&self, key: &Key, class: Class) {
        self.lock().begin(key, class == Class::Check);
    }

    /// No run of this workspace is under way, and it wants none. Answers whose turn it is now.
    pub fn release(&self, key: &Key) -> Vec<Key> {
        let mut ledger = self.lock();
        let had = ledger.running.remove(key) | ledger.checking.remove(key);
        let waited = ledger.waiting.len();
        ledger.waiting.retain(|(waiting, _)| waiting != key);
        if had || ledger.waiting.len() != waited { ledger.next(self.limits) } else { Vec::new() }
    }

    /// What this workspace did with its turn is over. A place in the queue is kept. Answers whose turn it is now.
    pub fn give_back(&self, key: &Key) -> Vec<Key> {
        let mut ledger = self.lock();
        let had = ledger.running.remove(key) | ledger.checking.remove(key);
        if had { ledger.next(self.limits) } else { Vec::new() }
    }

    /// How many have a turn, and how many wait for one.
    pub fn count(&self, class: Class) -> (usize, usize) {
        let ledger = self.lock();
        let check = class == Class::Check;
        let active = if check { &ledger.checking } else { &ledger.running };
        (active.len(), ledger.waiting.iter().filter(|(_, is_check)| *is_check == check).count())
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        opcore::lock(&self.ledger)
    }
}

impl Ledger {
    fn has(&self, key: &Key) -> bool {
        self.running.contains(key) || self.checking.contains(key)
    }

    fn begin(&mut self, key: &Key, check: bool) {
        self.waiting.retain(|(waiting, _)| waiting != key);
        let (into, other) =
            if check { (&mut self.checking, &mut self.running) } else { (&mut self.running, &mut self.checking) };
        other.remove(key);
        into.insert(key.clone());
    }

    /// Those who wait and may begin, in the order of their coming. Checks come after what someone waits for.
    fn next(&self, limits: Limits) -> Vec<Key> {
        let mut free = limits.runs.saturating_sub(self.running.len() + self.checking.len());
        let mut checks = limits.checks.saturating_sub(self.checking.len());
        let mut next = Vec::new();
        let of = |check: bool| self.waiting.iter().filter(move |(_, is_check)| *is_check == check);
        for (key, check) in of(false).chain(of(true)) {
            if free == 0 {
                break;
            }
            if *check && checks == 0 {
                continue;
            }
            checks -= usize::from(*check);
            free -= 1;
            next.push(key.clone());
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: Some("infra".to_owned()), name: name.to_owned() }
    }

    fn slots(runs: usize, checks: usize) -> Slots {
        Slots::new(Limits { runs, checks })
    }

    #[test]
    fn no_more_run_than_may_and_the_first_who_came_is_next() {
        let slots = slots(2, 1);
        assert!(slots.take(&key("a"), Class::Run) && slots.take(&key("b"), Class::Run));
        assert!(!slots.take(&key("c"), Class::Run) && !slots.take(&key("d"), Class::Run));
        assert_eq!(slots.release(&key("a")), [key("c")]);
        assert!(!slots.take(&key("d"), Class::Run), "c came first");
        assert!(slots.take(&key("c"), Class::Run));
    }

    #[test]
    fn checks_wait_for_runs_and_are_fewer() {
        let slots = slots(3, 1);
        assert!(slots.take(&key("a"), Class::Check));
        assert!(!slots.take(&key("b"), Class::Check));
        assert!(slots.take(&key("c"), Class::Run));
        assert_eq!(slots.release(&key("a")), [key("b")]);
    }

    #[test]
    fn who_has_a_turn_keeps_it_and_who_gives_up_waiting_lets_others_pass() {
        let slots = slots(1, 1);
        assert!(slots.take(&key("a"), Class::Run) && slots.take(&key("a"), Class::Run));
        assert!(!slots.take(&key("b"), Class::Run));
        assert!(slots.release(&key("b")).is_empty());
        assert!(slots.release(&key("a")).is_empty());
    }

    #[test]
    fn a_turn_counts_as_what_it_is_used_for() {
        let slots = slots(2, 1);
        assert!(slots.take(&key("a"), Class::Check) && !slots.take(&key("b"), Class::Check));
        assert!(slots.take(&key("a"), Class::Run), "it wants to mend what it found");
        assert_eq!((slots.count(Class::Run), slots.count(Class::Check)), ((1, 0), (0, 1)));
        assert!(slots.take(&key("b"), Class::Check));
    }

    #[test]
    fn a_run_that_was_there_before_counts() {
        let slots = slots(1, 1);
        slots.hold(&key("old"), Class::Run);
        assert!(!slots.take(&key("new"), Class::Run));
        assert_eq!(slots.release(&key("old")), [key("new")]);
    }
}
