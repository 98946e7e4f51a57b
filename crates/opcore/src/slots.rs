//! Turns: a limited number at a time, shared fairly between namespaces.
//!
//! No call in here blocks: an object that gets no turn is refused at once, and woken when a turn is free for it.
//!
//! ```text
//!   take ─▶ there is one ─▶ it is held ─▶ release ─▶ keys to wake
//!     └───▶ there is none ─▶ it waits in the line of its namespace and class ◀──┘
//! ```
//!
//! # Guarantees
//!
//! - At any time no more than [`Limits::turns`] turns are taken, no more than [`Limits::share`] of them in one
//!   namespace, and no more than [`Limits::within`] in one class.
//! - Namespaces alternate: in each round, one object of each waiting namespace is served. Within a namespace, the order
//!   is first come, first served.
//! - Objects of a lower [`Class::rank`] go before those of a higher one, but not for ever: no object starves.
//! - No turn stays free while an object that may have it waits: each call that takes or returns a turn says which keys
//!   to wake.
//!
//! # Assumptions
//!
//! - An object that is woken takes the turn, or stops waiting with [`Slots::release`].
//! - A turn that is taken is returned. A turn reported through [`Slots::hold`] counts, whatever the limits say, because
//!   it is in use already.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use crate::queue::Key;

/// What a turn is used for.
pub trait Class: Copy + Ord + std::hash::Hash {
    /// Objects of a lower rank go first, but only for a few times as many turns as there are.
    fn rank(self) -> u8;
}

/// How many turns there are.
#[derive(Clone, Debug)]
pub struct Limits<C> {
    /// The total number.
    pub turns: usize,
    /// How many of them a namespace may have at a time.
    pub share: usize,
    /// How many of them a class may have at a time. A class that is not listed may have all.
    pub within: BTreeMap<C, usize>,
}

/// Keeps track of who has a turn and who waits for one.
#[derive(Debug)]
pub struct Slots<C> {
    limits: Limits<C>,
    ledger: Mutex<Ledger<C>>,
}

/// How many times all turns go to a lower rank before an object of the next higher rank counts as equal.
const PATIENCE: u64 = 8;

#[derive(Debug)]
struct Ledger<C> {
    /// Counts the objects that started to wait.
    came: u64,
    /// The latest round in which an object got a turn.
    round: u64,
    held: HashMap<Key, C>,
    waiting: HashMap<Key, Place<C>>,
    /// The waiting objects in the order in which they are served. Places do not move: an object that takes its turn
    /// late, or before others, takes no place from another.
    order: BTreeMap<(u64, u64), (Key, C)>,
    /// The last round of each line, as long as an object waits in it: in each round one object of a line is served.
    lines: HashMap<(Option<String>, C), (u64, usize)>,
    /// Waiting objects that have been woken for their turn.
    notified: HashSet<Key>,
}

/// The place of a waiting object: for what it waits, in which round, and where in the order.
#[derive(Clone, Copy, Debug)]
struct Place<C> {
    class: C,
    round: u64,
    at: (u64, u64),
}

impl<C: Class> Slots<C> {
    /// Creates slots of which no turn is taken.
    pub fn new(limits: Limits<C>) -> Self {
        let ledger = Ledger {
            came: 0,
            round: 0,
            held: HashMap::new(),
            waiting: HashMap::new(),
            order: BTreeMap::new(),
            lines: HashMap::new(),
            notified: HashSet::new(),
        };
        Self { limits, ledger: Mutex::new(ledger) }
    }

    /// Takes a turn, if one is free for this object; if not, records that the object waits. An object that has a turn
    /// keeps it.
    pub fn take(&self, key: &Key, class: C) -> bool {
        let mut ledger = self.lock();
        if !ledger.held.contains_key(key) {
            ledger.wait(key, class, &self.limits);
            if !ledger.next(&self.limits).contains(key) {
                ledger.notified.remove(key);
                return false;
            }
        }
        ledger.begin(key, class);
        true
    }

    /// Records that this object has a turn, whether it asked or not: it had one when this process started.
    pub fn hold(&self, key: &Key, class: C) {
        self.lock().begin(key, class);
    }

    /// Records that this object has no turn and wants none. Returns the keys to wake: the objects whose turn it is now.
    pub fn release(&self, key: &Key) -> Vec<Key> {
        let mut ledger = self.lock();
        let had = ledger.held.remove(key).is_some();
        let waited = ledger.leave(key).is_some();
        if had || waited { ledger.due(&self.limits) } else { Vec::new() }
    }

    /// Returns this object's turn. If the object waits, its place is kept. Returns the keys to wake, as above.
    pub fn give_back(&self, key: &Key) -> Vec<Key> {
        let mut ledger = self.lock();
        if ledger.held.remove(key).is_some() { ledger.due(&self.limits) } else { Vec::new() }
    }

    /// The objects whose turn it is and that have not been woken yet. To be called after a turn was taken: that may
    /// exclude two others, by class and by namespace, and so leave a turn to a third.
    pub fn due(&self) -> Vec<Key> {
        self.lock().due(&self.limits)
    }

    /// How many objects of a class have a turn, and how many wait for one.
    pub fn count(&self, class: C) -> (usize, usize) {
        let ledger = self.lock();
        let held = ledger.held.values().filter(|held| **held == class).count();
        (held, ledger.waiting.values().filter(|place| place.class == class).count())
    }

    fn lock(&self) -> MutexGuard<'_, Ledger<C>> {
        crate::lock(&self.ledger)
    }
}

impl<C: Class> Ledger<C> {
    /// Records that an object waits. If it waits already, it keeps its place, unless it now waits for another class.
    fn wait(&mut self, key: &Key, class: C, limits: &Limits<C>) {
        if self.waiting.get(key).is_some_and(|place| place.class == class) {
            return;
        }
        self.leave(key);
        self.came += 1;
        let line = self.lines.entry((key.namespace.clone(), class)).or_insert((self.round, 0));
        *line = (line.0.max(self.round) + 1, line.1 + 1);
        let round = line.0;
        let turns = u64::try_from(limits.turns).unwrap_or(u64::MAX);
        let later = turns.saturating_mul(PATIENCE).saturating_mul(class.rank().into());
        let place = Place { class, round, at: (round.saturating_add(later), self.came) };
        self.waiting.insert(key.clone(), place);
        self.order.insert(place.at, (key.clone(), class));
    }

    /// Removes an object from the waiting ones. Returns its place.
    fn leave(&mut self, key: &Key) -> Option<Place<C>> {
        self.notified.remove(key);
        let place = self.waiting.remove(key)?;
        self.order.remove(&place.at);
        let line = (key.namespace.clone(), place.class);
        let left = self.lines.get_mut(&line).map_or(0, |(_, waiting)| {
            *waiting -= 1;
            *waiting
        });
        if left == 0 {
            self.lines.remove(&line);
        }
        Some(place)
    }

    /// Gives an object a turn.
    fn begin(&mut self, key: &Key, class: C) {
        if let Some(place) = self.leave(key) {
            self.round = self.round.max(place.round);
        }
        self.held.insert(key.clone(), class);
    }

    /// The objects whose turn it is and that have not been woken yet. They now count as woken.
    fn due(&mut self, limits: &Limits<C>) -> Vec<Key> {
        let next = self.next(limits);
        next.into_iter().filter(|key| self.notified.insert(key.clone())).collect()
    }

    /// The waiting objects that may begin.
    fn next(&self, limits: &Limits<C>) -> Vec<Key> {
        let mut free = limits.turns.saturating_sub(self.held.len());
        let mut next = Vec::new();
        if free == 0 || self.waiting.is_empty() {
            return next;
        }
        let mut in_class: BTreeMap<C, usize> = BTreeMap::new();
        let mut in_namespace: HashMap<Option<&str>, usize> = HashMap::new();
        for (key, class) in &self.held {
            *in_class.entry(*class).or_default() += 1;
            *in_namespace.entry(key.namespace.as_deref()).or_default() += 1;
        }
        for (key, class) in self.order.values() {
            if free == 0 {
                break;
            }
            let held = in_class.entry(*class).or_default();
            let share = in_namespace.entry(key.namespace.as_deref()).or_default();
            if *share < limits.share && limits.within.get(class).is_none_or(|most| *held < *most) {
                next.push(key.clone());
                (free, *held, *share) = (free - 1, *held + 1, *share + 1);
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    enum Work {
        Wanted,
        Idle,
    }

    impl Class for Work {
        fn rank(self) -> u8 {
            u8::from(self == Self::Idle)
        }
    }

    fn key(words: &str) -> Key {
        let (namespace, name) = words.split_once('/').unwrap();
        Key { namespace: Some(namespace.to_owned()), name: name.to_owned() }
    }

    fn slots(turns: usize, share: usize, idle: usize) -> Slots<Work> {
        Slots::new(Limits { turns, share, within: [(Work::Idle, idle)].into() })
    }

    #[test]
    fn no_more_have_a_turn_than_may_and_the_first_who_came_is_next() {
        let slots = slots(2, 2, 1);
        assert!(slots.take(&key("a/1"), Work::Wanted) && slots.take(&key("a/2"), Work::Wanted));
        assert!(!slots.take(&key("a/3"), Work::Wanted) && !slots.take(&key("a/4"), Work::Wanted));
        assert_eq!(slots.release(&key("a/1")), [key("a/3")]);
        assert!(!slots.take(&key("a/4"), Work::Wanted), "the other came first");
        assert!(slots.take(&key("a/3"), Work::Wanted));
    }

    #[test]
    fn one_namespace_cannot_have_all_turns() {
        let slots = slots(4, 2, 4);
        assert!(slots.take(&key("a/1"), Work::Wanted) && slots.take(&key("a/2"), Work::Wanted));
        assert!(!slots.take(&key("a/3"), Work::Wanted) && !slots.take(&key("a/4"), Work::Idle));
        assert!(slots.take(&key("b/1"), Work::Wanted) && slots.take(&key("b/2"), Work::Wanted));
        assert_eq!(slots.release(&key("b/1")), [""; 0].map(key), "those who wait have their share");
        assert_eq!(slots.release(&key("a/1")), [key("a/3")]);
    }

    #[test]
    fn namespaces_that_wait_are_served_in_turn() {
        let slots = slots(1, 1, 1);
        assert!(slots.take(&key("a/0"), Work::Wanted));
        for waiting in ["a/1", "a/2", "a/3", "b/1", "b/2", "c/1"] {
            assert!(!slots.take(&key(waiting), Work::Wanted));
        }
        let (mut last, mut order) = (key("a/0"), Vec::new());
        while let Some(next) = slots.release(&last).pop() {
            assert!(slots.take(&next, Work::Wanted));
            order.push(next.to_string());
            last = next;
        }
        assert_eq!(order, ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]);
    }

    #[test]
    fn what_nobody_waits_for_comes_after_what_someone_waits_for_but_not_never() {
        let slots = slots(1, 1, 1);
        assert!(slots.take(&key("a/0"), Work::Wanted) && !slots.take(&key("b/idle"), Work::Idle));
        let mut last = key("a/0");
        for number in 1.. {
            let wanted = key(&format!("a/{number}"));
            assert!(!slots.take(&wanted, Work::Wanted));
            let next = slots.release(&last).pop().unwrap();
            if next == key("b/idle") {
                assert!(number > 2, "it came first, and yet others were wanted");
                return;
            }
            assert!(slots.take(&next, Work::Wanted));
            assert!(number < 20, "it is never its turn");
            last = next;
        }
    }

    #[test]
    fn who_has_a_turn_keeps_it_and_it_counts_as_what_it_is_used_for() {
        let slots = slots(2, 2, 1);
        assert!(slots.take(&key("a/1"), Work::Idle) && !slots.take(&key("a/2"), Work::Idle));
        assert!(slots.take(&key("a/1"), Work::Wanted));
        assert_eq!((slots.count(Work::Wanted), slots.count(Work::Idle)), ((1, 0), (0, 1)));
        assert!(slots.take(&key("a/2"), Work::Idle));
        assert!(slots.release(&key("a/3")).is_empty(), "nothing has changed");
        assert!(!slots.take(&key("a/3"), Work::Wanted) && slots.give_back(&key("a/3")).is_empty(), "it has none");
        assert_eq!(slots.give_back(&key("a/1")), [key("a/3")], "whose place was kept");
    }

    #[test]
    fn what_was_there_before_counts() {
        let slots = slots(1, 1, 1);
        slots.hold(&key("a/old"), Work::Wanted);
        slots.hold(&key("a/older"), Work::Wanted);
        assert!(!slots.take(&key("b/new"), Work::Wanted));
        assert_eq!(slots.release(&key("a/old")), [""; 0].map(key), "there is one too many still");
        assert_eq!(slots.release(&key("a/older")), [key("b/new")]);
    }

    /// What an object does: takes a turn, or returns it.
    type Step = (usize, usize, bool);

    fn work(number: usize) -> Work {
        if number.is_multiple_of(3) { Work::Idle } else { Work::Wanted }
    }

    fn name(namespace: usize, number: usize) -> Key {
        key(&format!("n{namespace}/{number}"))
    }

    proptest! {
        #[test]
        fn never_more_than_may_and_no_turn_stays_free_that_someone_waits_for(
            steps in prop::collection::vec((0_usize..4, 0_usize..6, any::<bool>()), 1..200),
            turns in 1_usize..5, share in 1_usize..4, idle in 1_usize..3,
        ) {
            let steps: Vec<Step> = steps;
            let slots = slots(turns, share, idle);
            let mut held: BTreeSet<Key> = BTreeSet::new();
            // The objects that were woken since they were last refused.
            let mut woken: HashSet<Key> = HashSet::new();
            for (namespace, number, takes) in steps {
                let key = name(namespace, number);
                if takes {
                    if slots.take(&key, work(number)) {
                        held.insert(key.clone());
                        woken.extend(slots.due());
                    } else {
                        woken.remove(&key);
                    }
                } else {
                    held.remove(&key);
                    woken.extend(slots.release(&key));
                }
                prop_assert!(held.len() <= turns);
                for namespace in 0..4 {
                    let own = held.iter().filter(|key| key.namespace == name(namespace, 0).namespace).count();
                    prop_assert!(own <= share);
                }
                prop_assert!(slots.count(Work::Idle).0 <= idle);
                prop_assert_eq!(slots.count(Work::Idle).0 + slots.count(Work::Wanted).0, held.len());
                for next in slots.lock().next(&slots.limits) {
                    prop_assert!(woken.contains(&next), "{} does not know that it is its turn", next);
                }
            }
        }

        #[test]
        fn nobody_starves_whatever_the_others_do(
            others in prop::collection::vec((0_usize..5, 0_usize..1000), 400),
            turns in 1_usize..4, share in 1_usize..4, class in 0_usize..2,
        ) {
            let slots = slots(turns, share, 1);
            let patient = key("n0/patient");
            let mut held: Vec<Key> = Vec::new();
            let mut served = false;
            for (round, (namespace, number)) in others.into_iter().enumerate() {
                // Another object always wants a turn, too.
                for namespace in [namespace, 0] {
                    let other = name(namespace, number + 1000 * round);
                    if slots.take(&other, Work::Wanted) {
                        held.push(other);
                    }
                }
                served = slots.take(&patient, work(class));
                if served {
                    break;
                }
                // The object that began first is done.
                if !held.is_empty() {
                    let first = held.remove(0);
                    for next in slots.release(&first) {
                        if next != patient && slots.take(&next, Work::Wanted) {
                            held.push(next);
                        }
                    }
                }
            }
            prop_assert!(served, "{} held, {:?} wait", held.len(), slots.count(Work::Wanted).1);
        }
    }
}
