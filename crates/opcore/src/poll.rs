//! Polling sources outside the cluster, in the background and never inside a reconcile.
//!
//! Kubernetes reports changes through watches; a git server, a registry or an endpoint has to be polled. An operator
//! lists the questions of an object in its [claims](crate::Operator::Claims). This module asks them repeatedly, at the
//! interval of each question, keeps the last answer with its age, and wakes the object when the answer changes.
//!
//! # Guarantees
//!
//! - A question is asked once, however many objects have it. No more than [`Poll::new`]'s number of questions are asked
//!   at a time.
//! - A question that no object has any more is not asked again, and a late answer is dropped.
//! - An answer takes no longer than the question allows. A question that panics is asked again like one without an
//!   answer.
//!
//! # Assumptions
//!
//! Asking changes nothing outside. Anything with an effect outside goes through a Job, or through a write with an
//! idempotency key that is recorded in the status before.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;

use crate::controller::Wakes;
use crate::queue::Key;

/// A question to a source outside the cluster.
pub trait Question: Clone + Eq + Hash + Send + Sync + 'static {
    /// The possible answers, failures included: an operator decides on those, too.
    type Answer: Clone + PartialEq + Send + Sync + 'static;

    /// Asks once.
    fn ask(&self) -> impl Future<Output = Self::Answer> + Send;

    /// How long asking may take.
    fn patience(&self) -> Duration;

    /// The answer to use when none came in time, or when asking panicked.
    fn unanswered(&self) -> Self::Answer;

    /// The pause after which the question is asked again; none for never. `same` is how many times in a row this was
    /// the answer.
    fn again(&self, answer: &Self::Answer, same: u32) -> Option<Duration>;
}

/// An answer, and when it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered<A> {
    /// The answer.
    pub answer: A,
    /// When it came.
    pub at: Timestamp,
}

/// The questions that are being asked. Cheap to clone.
pub struct Poll<Q: Question>(Arc<Inner<Q>>);

impl<Q: Question> Clone for Poll<Q> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Inner<Q: Question> {
    at_once: Semaphore,
    known: Mutex<Known<Q>>,
}

struct Known<Q: Question> {
    asked: HashMap<Q, Asked<Q::Answer>>,
    /// The questions of each object.
    of: HashMap<Key, HashSet<Q>>,
}

impl<Q: Question> Known<Q> {
    /// Removes this question from an object.
    fn drop_question(&mut self, key: &Key, question: &Q) {
        if let Some(asked) = self.asked.get_mut(question) {
            asked.by.remove(key);
            if asked.by.is_empty() {
                self.asked.remove(question);
            }
        }
    }
}

struct Asked<A> {
    by: HashSet<Key>,
    wakes: Wakes,
    last: Option<Answered<A>>,
    /// Ends the current pause, so that the question is asked now.
    now: Arc<Notify>,
    task: AbortHandle,
}

impl<A> Drop for Asked<A> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<Q: Question> Poll<Q> {
    /// Creates a poll without questions that asks at most this many at a time.
    pub fn new(at_once: usize) -> Self {
        let known = Mutex::new(Known { asked: HashMap::new(), of: HashMap::new() });
        Self(Arc::new(Inner { at_once: Semaphore::new(at_once.max(1)), known }))
    }

    /// From now on an object has exactly these questions.
    pub fn want(&self, key: &Key, questions: impl IntoIterator<Item = Q>, wakes: &Wakes) {
        let wanted: HashSet<Q> = questions.into_iter().collect();
        let mut known = crate::lock(&self.0.known);
        let had = known.of.remove(key).unwrap_or_default();
        for question in had.difference(&wanted) {
            known.drop_question(key, question);
        }
        for question in &wanted {
            let entry = known.asked.entry(question.clone()).or_insert_with_key(|question| {
                let now = Arc::new(Notify::new());
                let asking = keep_asking(Arc::downgrade(&self.0), question.clone(), now.clone());
                let task = tokio::spawn(asking).abort_handle();
                Asked { by: HashSet::new(), wakes: wakes.clone(), last: None, now, task }
            });
            entry.by.insert(key.clone());
        }
        if !wanted.is_empty() {
            known.of.insert(key.clone(), wanted);
        }
    }

    /// The last answer. None: there is no answer yet, or no object has the question.
    pub fn answer(&self, question: &Q) -> Option<Answered<Q::Answer>> {
        crate::lock(&self.0.known).asked.get(question)?.last.clone()
    }

    /// Asks now, for example when a notification says that the answer has changed. The notification is not trusted: the
    /// source is asked.
    pub fn ask_now(&self, question: &Q) {
        if let Some(asked) = crate::lock(&self.0.known).asked.get(question) {
            asked.now.notify_one();
        }
    }

    /// Drops the questions of an object that is gone.
    pub fn forget(&self, key: &Key) {
        let mut known = crate::lock(&self.0.known);
        for question in known.of.remove(key).unwrap_or_default() {
            known.drop_question(key, &question);
        }
    }
}

/// Asks a question repeatedly as long as an object has it.
async fn keep_asking<Q: Question>(poll: Weak<Inner<Q>>, question: Q, now: Arc<Notify>) {
    let mut same = 0;
    loop {
        let Some(inner) = poll.upgrade() else { return };
        // The semaphore is never closed.
        let Ok(place) = inner.at_once.acquire().await else { return };
        let asking = AssertUnwindSafe(tokio::time::timeout(question.patience(), question.ask())).catch_unwind();
        let answer = match asking.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => question.unanswered(),
            Err(_) => {
                tracing::error!("internal error: a question to the outside panicked");
                question.unanswered()
            }
        };
        drop(place);
        let Some(is_same) = inner.keep(&question, &answer) else { return };
        drop(inner);
        same = if is_same { same + 1 } else { 1 };
        match question.again(&answer, same) {
            Some(pause) => {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = now.notified() => {}
                }
            }
            None => now.notified().await,
        }
    }
}

impl<Q: Question> Inner<Q> {
    /// Stores an answer, and wakes the objects that have the question if the answer changed. Returns whether it is the
    /// same; none when no object has the question any more.
    fn keep(&self, question: &Q, answer: &Q::Answer) -> Option<bool> {
        let mut known = crate::lock(&self.known);
        let asked = known.asked.get_mut(question)?;
        let is_same = asked.last.as_ref().is_some_and(|last| last.answer == *answer);
        asked.last = Some(Answered { answer: answer.clone(), at: Timestamp::now() });
        if !is_same {
            for key in &asked.by {
                asked.wakes.wake(key);
            }
        }
        Some(is_same)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A question whose answer is a number that the test sets.
    #[derive(Clone)]
    struct Number {
        name: &'static str,
        value: Arc<AtomicUsize>,
        asked: Arc<AtomicUsize>,
    }

    impl PartialEq for Number {
        fn eq(&self, other: &Self) -> bool {
            self.name == other.name
        }
    }

    impl Eq for Number {}

    impl Hash for Number {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.name.hash(state);
        }
    }

    impl Question for Number {
        type Answer = Option<usize>;

        async fn ask(&self) -> Option<usize> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            match self.value.load(Ordering::SeqCst) {
                7 => panic!("made up"),
                8 => std::future::pending().await,
                value => Some(value),
            }
        }

        fn patience(&self) -> Duration {
            Duration::from_secs(5)
        }

        fn unanswered(&self) -> Option<usize> {
            None
        }

        fn again(&self, answer: &Option<usize>, same: u32) -> Option<Duration> {
            (*answer != Some(0)).then(|| Duration::from_secs(u64::from(same)))
        }
    }

    fn number(name: &'static str, value: usize) -> Number {
        Number { name, value: Arc::new(AtomicUsize::new(value)), asked: Arc::default() }
    }

    fn key(name: &str) -> Key {
        Key { namespace: None, name: name.to_owned() }
    }

    /// Waits until this answer is there, on a clock that skips to the next timer.
    async fn until(poll: &Poll<Number>, question: &Number, answer: Option<usize>) {
        while poll.answer(question).is_none_or(|last| last.answer != answer) {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_of_several_objects_is_asked_once_and_wakes_all_when_its_answer_changes() {
        let (poll, wakes, question) = (Poll::new(4), Wakes::new(), number("a", 1));
        poll.want(&key("one"), [question.clone()], &wakes);
        poll.want(&key("two"), [question.clone()], &wakes);
        until(&poll, &question, Some(1)).await;
        assert_eq!((wakes.taken(), question.asked.load(Ordering::SeqCst)), (vec![key("one"), key("two")], 1));
        question.value.store(2, Ordering::SeqCst);
        until(&poll, &question, Some(2)).await;
        assert_eq!(wakes.taken(), [key("one"), key("two")]);
        // The same answer again is not reported.
        let asked = question.asked.load(Ordering::SeqCst);
        while question.asked.load(Ordering::SeqCst) == asked {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(wakes.taken(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_nobody_has_any_more_is_not_asked_and_keeps_no_answer() {
        let (poll, wakes, question) = (Poll::new(4), Wakes::new(), number("a", 1));
        poll.want(&key("one"), [question.clone()], &wakes);
        until(&poll, &question, Some(1)).await;
        poll.want(&key("one"), [], &wakes);
        assert_eq!(poll.answer(&question), None);
        let asked = question.asked.load(Ordering::SeqCst);
        tokio::time::advance(Duration::from_mins(10)).await;
        tokio::task::yield_now().await;
        assert_eq!(question.asked.load(Ordering::SeqCst), asked);
        poll.want(&key("one"), [question.clone()], &wakes);
        until(&poll, &question, Some(1)).await;
        poll.forget(&key("one"));
        assert_eq!(poll.answer(&question), None);
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_and_a_panic_count_as_unanswered_and_are_asked_again() {
        let (poll, wakes) = (Poll::new(1), Wakes::new());
        for trouble in [7, 8] {
            let question = number("a", trouble);
            poll.want(&key("one"), [question.clone()], &wakes);
            until(&poll, &question, None).await;
            question.value.store(0, Ordering::SeqCst);
            until(&poll, &question, Some(0)).await;
            poll.forget(&key("one"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_settled_is_asked_again_only_when_someone_says_so() {
        let (poll, wakes, question) = (Poll::new(4), Wakes::new(), number("a", 0));
        poll.want(&key("one"), [question.clone()], &wakes);
        until(&poll, &question, Some(0)).await;
        tokio::time::advance(Duration::from_hours(1)).await;
        tokio::task::yield_now().await;
        assert_eq!(question.asked.load(Ordering::SeqCst), 1);
        question.value.store(3, Ordering::SeqCst);
        poll.ask_now(&question);
        until(&poll, &question, Some(3)).await;
    }
}
