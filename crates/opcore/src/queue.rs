//! The work queue: which objects are to be reconciled, as plain data.
//!
//! # Guarantees
//!
//! - An object is never reconciled by two workers at once.
//! - No wake-up is lost: if it comes while its object is being reconciled, the object runs again afterwards.
//! - Several wake-ups of an object that already waits count as one. Memory is bounded by the number of objects.
//! - First come, first served: a busy object goes to the back of the queue each time.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::time::Instant;

/// An object of the kind that a queue is for: its namespace, if it has one, and its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace, unless the kind is cluster-scoped.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of an object.
    pub fn of(object: &impl kube::Resource) -> Self {
        let meta = object.meta();
        Self { namespace: meta.namespace.clone(), name: meta.name.clone().unwrap_or_default() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Which objects are to be reconciled, now or later.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: VecDeque<Key>,
    /// The same keys as in `waiting`, for fast lookup.
    queued: HashSet<Key>,
    running: HashSet<Key>,
    /// Objects that were woken while running.
    again: HashSet<Key>,
    later: BTreeSet<(Instant, Key)>,
    due: HashMap<Key, Instant>,
}

impl Queue {
    /// Reconcile this object as soon as possible.
    pub fn wake(&mut self, key: &Key) {
        // The next reconcile decides again when the one after it is due.
        self.forget_later(key);
        if self.running.contains(key) {
            self.again.insert(key.clone());
        } else if self.queued.insert(key.clone()) {
            self.waiting.push_back(key.clone());
        }
    }

    /// Takes the next object to work on. The caller must return it with [`Queue::finish`].
    pub fn start(&mut self, now: Instant) -> Option<Key> {
        while let Some((due, key)) = self.later.first().cloned()
            && due <= now
        {
            self.wake(&key);
        }
        let key = self.waiting.pop_front()?;
        self.queued.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    /// Ends the work on an object. It runs again at `next`, or earlier when it is woken.
    pub fn finish(&mut self, key: &Key, next: Option<Instant>) {
        self.running.remove(key);
        if self.again.remove(key) {
            self.wake(key);
        } else if let Some(next) = next {
            self.forget_later(key);
            self.due.insert(key.clone(), next);
            self.later.insert((next, key.clone()));
        }
    }

    /// The next time at which an object becomes due without being woken.
    pub fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(due, _)| *due)
    }

    /// How many objects wait for a worker.
    pub fn depth(&self) -> usize {
        self.waiting.len()
    }

    fn forget_later(&mut self, key: &Key) {
        if let Some(due) = self.due.remove(key) {
            self.later.remove(&(due, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: None, name: name.to_owned() }
    }

    #[test]
    fn many_wake_ups_of_a_waiting_object_are_one() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        (0..5).for_each(|_| queue.wake(&key("a")));
        assert_eq!(queue.depth(), 1);
        assert_eq!(queue.start(now), Some(key("a")));
        assert_eq!(queue.start(now), None);
    }

    #[test]
    fn a_wake_up_during_work_runs_the_object_again_and_not_twice_at_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.wake(&key("a"));
        queue.start(now);
        queue.wake(&key("a"));
        assert_eq!(queue.start(now), None);
        queue.finish(&key("a"), None);
        assert_eq!(queue.start(now), Some(key("a")));
    }

    #[test]
    fn an_appointment_is_kept_and_a_wake_up_cancels_it() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let later = now + Duration::from_mins(1);
        queue.wake(&key("a"));
        queue.start(now);
        queue.finish(&key("a"), Some(later));
        assert_eq!((queue.start(now), queue.next_due()), (None, Some(later)));
        queue.wake(&key("a"));
        assert_eq!(queue.next_due(), None);
        assert_eq!(queue.start(now), Some(key("a")));
        queue.finish(&key("a"), Some(later));
        assert_eq!(queue.start(later), Some(key("a")));
    }

    #[derive(Clone, Debug)]
    enum Do {
        Wake(u8),
        Start,
        Finish(u8, Option<u8>),
        Pass(u8),
    }

    fn script() -> impl Strategy<Value = Vec<Do>> {
        let one = prop_oneof![
            (0..4u8).prop_map(Do::Wake),
            Just(Do::Start),
            (0..4u8, proptest::option::of(0..50u8)).prop_map(|(n, at)| Do::Finish(n, at)),
            (0..30u8).prop_map(Do::Pass),
        ];
        proptest::collection::vec(one, 0..200)
    }

    proptest! {
        /// Checked against a model that only remembers "was woken since it was last started".
        #[test]
        fn no_wake_up_is_lost_and_nothing_runs_twice_at_once(script in script()) {
            let (mut queue, mut now) = (Queue::default(), Instant::now());
            let (mut owed, mut running) = (HashSet::new(), HashSet::new());
            for step in script {
                match step {
                    Do::Wake(n) => { queue.wake(&key(&n.to_string())); owed.insert(key(&n.to_string())); }
                    Do::Pass(seconds) => now += Duration::from_secs(seconds.into()),
                    Do::Start => if let Some(key) = queue.start(now) {
                        prop_assert!(running.insert(key.clone()), "{key} runs twice");
                        owed.remove(&key);
                    },
                    Do::Finish(n, at) => if running.remove(&key(&n.to_string())) {
                        queue.finish(&key(&n.to_string()), at.map(|at| now + Duration::from_secs(at.into())));
                    },
                }
            }
            for key in running.drain() {
                queue.finish(&key, None);
            }
            while let Some(key) = queue.start(now) {
                owed.remove(&key);
                queue.finish(&key, None);
            }
            prop_assert!(owed.is_empty(), "{owed:?} were woken and never ran");
        }
    }
}
