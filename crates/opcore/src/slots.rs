//! Turns: so many at a time, and nobody has all of them.
//!
//! Nobody waits in here: who gets no turn is told so, and is woken when there is one.
//!
//! ```text
//!   take ─▶ there is one ─▶ it is held ─▶ release ─▶ whom to wake
//!     └───▶ there is none ─▶ it waits in the line of its namespace and class ◀──┘
//! ```
//!
//! # Guarantees
//!
//! - No more turns are taken at a time than [`Limits::turns`], of them no more than [`Limits::share`] in a namespace, and
//!   no more than [`Limits::within`] in a class.
//! - Namespaces take turns: each turn that is free goes to the one that was served longest ago. In a namespace whoever
//!   came first is first.
//! - What is of a lower [`Class::rank`] goes before what is of a higher one, but not for ever: nobody starves.
//! - No turn stays free that somebody who waits may have: whoever gives one back is told whom to wake.
//!
//! # Assumptions
//!
//! - Whoever is woken takes the turn, or gives up waiting by [`Slots::release`].
//! - A turn that is taken is given back. What is said to be held by [`Slots::hold`] counts, whatever the limits say: it is
//!   so already.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use crate::queue::Key;

/// What a turn is used for.
pub trait Class: Copy + Ord {
    /// What has a lower rank goes first: within as many turns as there are, some times over.
    fn rank(self) -> u8;
}

/// How many turns there are.
#[derive(Clone, Debug)]
pub struct Limits<C> {
    /// All of them.
    pub turns: usize,
    /// How many of them a namespace may have at a time.
    pub share: usize,
    /// How many of them a class may have at a time; one that is not named may have all.
    pub within: BTreeMap<C, usize>,
}

/// Whose turn it is.
#[derive(Debug)]
pub struct Slots<C> {
    limits: Limits<C>,
    ledger: Mutex<Ledger<C>>,
}

/// So many times all turns go to what has a lower rank, before what has the next higher one is as good.
const PATIENCE: u64 = 8;

#[derive(Debug)]
struct Ledger<C> {
    /// Counts whatever comes to the back of something.
    clock: u64,
    held: HashMap<Key, C>,
    waiting: HashMap<Key, (C, u64)>,
    lines: BTreeMap<Place<C>, Line>,
}

/// Where somebody waits: in which namespace, and for what.
type Place<C> = (Option<String>, C);

/// Those who wait in a place.
#[derive(Debug, Default)]
struct Line {
    /// When it is served, before all that are due later. As long as it is not served it stays so: whoever comes to the
    /// back comes behind it in the end.
    due: u64,
    /// In the order of their coming.
    keys: BTreeMap<u64, Key>,
}

impl<C: Class> Slots<C> {
    /// Nobody has a turn yet.
    pub fn new(limits: Limits<C>) -> Self {
        let ledger = Ledger { clock: 0, held: HashMap::new(), waiting: HashMap::new(), lines: BTreeMap::new() };
        Self { limits, ledger: Mutex::new(ledger) }
    }

    /// Takes a turn, if there is one for this object; if not, notes that it waits. Who has one keeps it.
    pub fn take(&self, key: &Key, class: C) -> bool {
        let mut ledger = self.lock();
        if !ledger.held.contains_key(key) {
            ledger.wait(key, class, &self.limits);
            if !ledger.next(&self.limits).contains(key) {
                return false;
            }
        }
        ledger.begin(key, class, &self.limits);
        true
    }

    /// This object has a turn, whether it asked or not: it had one when this process began.
    pub fn hold(&self, key: &Key, class: C) {
        self.lock().begin(key, class, &self.limits);
    }

    /// This object has no turn, and wants none. Returns the keys to wake: those whose turn it is now.
    pub fn release(&self, key: &Key) -> Vec<Key> {
        let mut ledger = self.lock();
        let had = ledger.held.remove(key).is_some();
        let waited = ledger.leave(key).is_some();
        if had || waited { ledger.next(&self.limits) } else { Vec::new() }
    }

    /// What this object did with its turn is over. The place of one that waits is kept. Returns the keys to wake, likewise.
    pub fn give_back(&self, key: &Key) -> Vec<Key> {
        let mut ledger = self.lock();
        if ledger.held.remove(key).is_some() { ledger.next(&self.limits) } else { Vec::new() }
    }

    /// How many of a class have a turn, and how many wait for one.
    pub fn count(&self, class: C) -> (usize, usize) {
        let ledger = self.lock();
        let held = ledger.held.values().filter(|held| **held == class).count();
        (held, ledger.waiting.values().filter(|(waiting, _)| *waiting == class).count())
    }

    fn lock(&self) -> MutexGuard<'_, Ledger<C>> {
        crate::lock(&self.ledger)
    }
}

impl<C: Class> Ledger<C> {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Notes that somebody waits. Who did so already keeps his place, unless he waits for something else by now.
    fn wait(&mut self, key: &Key, class: C, limits: &Limits<C>) {
        let came = match self.waiting.get(key) {
            Some((waiting, _)) if *waiting == class => return,
            Some(_) => self.leave(key),
            None => None,
        };
        let now = self.tick();
        let came = came.unwrap_or(now);
        let due = due(now, class, limits);
        let line = self.lines.entry((key.namespace.clone(), class)).or_insert(Line { due, keys: BTreeMap::new() });
        line.keys.insert(came, key.clone());
        self.waiting.insert(key.clone(), (class, came));
    }

    /// Somebody does not wait any more. Answers when he came.
    fn leave(&mut self, key: &Key) -> Option<u64> {
        let (class, came) = self.waiting.remove(key)?;
        let place = (key.namespace.clone(), class);
        let line = self.lines.get_mut(&place)?;
        line.keys.remove(&came);
        if line.keys.is_empty() {
            self.lines.remove(&place);
        }
        Some(came)
    }

    /// Somebody has a turn; his line comes to the back.
    fn begin(&mut self, key: &Key, class: C, limits: &Limits<C>) {
        let now = self.tick();
        let place = (key.namespace.clone(), class);
        if self.leave(key).is_some()
            && let Some(line) = self.lines.get_mut(&place)
        {
            line.due = due(now, class, limits);
        }
        self.held.insert(key.clone(), class);
    }

    /// Those who wait and may begin, as they would if each did so at once.
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
        let mut order: BTreeMap<(u64, &Place<C>), _> =
            self.lines.iter().map(|(place, line)| ((line.due, place), line.keys.values().peekable())).collect();
        let mut now = self.clock;
        while free > 0
            && let Some(((_, place), mut keys)) = order.pop_first()
        {
            let (namespace, class) = (place.0.as_deref(), place.1);
            let held = in_class.entry(class).or_default();
            let share = in_namespace.entry(namespace).or_default();
            let is_full = limits.within.get(&class).is_some_and(|most| *held >= *most) || *share >= limits.share;
            let Some(key) = keys.next().filter(|_| !is_full) else { continue };
            next.push(key.clone());
            (free, *held, *share, now) = (free - 1, *held + 1, *share + 1, now + 1);
            if keys.peek().is_some() {
                order.insert((due(now, class, limits), place), keys);
            }
        }
        next
    }
}

/// When a line is due that comes to the back now.
fn due<C: Class>(now: u64, class: C, limits: &Limits<C>) -> u64 {
    let turns = u64::try_from(limits.turns).unwrap_or(u64::MAX);
    now.saturating_add(turns.saturating_mul(PATIENCE).saturating_mul(class.rank().into()))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

    /// What somebody does: takes a turn, or gives it back.
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
            // Those who were woken since they were told to wait.
            let mut woken: HashSet<Key> = HashSet::new();
            for (namespace, number, takes) in steps {
                let key = name(namespace, number);
                if takes {
                    if slots.take(&key, work(number)) {
                        held.insert(key.clone());
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
                // There is always somebody else who wants a turn, too.
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
                // The one who began first is through.
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
