//! Which generation of a watch may report something.

use std::sync::Mutex;

use crate::lock;

/// Holds the newest generation, and admits only its reports.
///
/// # Guarantees
///
/// Nothing of an older generation passes once a newer one has begun, and nothing passes once the gate is closed.
/// Reports pass one after another.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    generation: u64,
    is_closed: bool,
}

impl State {
    fn is_open_to(&self, generation: u64) -> bool {
        self.generation == generation && !self.is_closed
    }
}

impl Gate {
    /// The newest generation, unless it is closed.
    pub(super) fn generation(&self) -> Option<u64> {
        let state = lock(&self.0);
        (!state.is_closed).then_some(state.generation)
    }

    /// Starts a generation. `first` runs before anything of it passes.
    pub(super) fn renew<T>(&self, first: impl FnOnce() -> T) -> T {
        let mut state = lock(&self.0);
        state.generation += 1;
        first()
    }

    /// Starts a generation after this one, unless another has started already or the gate is closed: then none.
    pub(super) fn follow<T>(&self, mine: u64, first: impl FnOnce() -> T) -> Option<T> {
        let mut state = lock(&self.0);
        state.is_open_to(mine).then(|| {
            state.generation += 1;
            first()
        })
    }

    /// Runs a function for this generation. None: it is not the newest, or the gate is closed.
    pub(super) fn pass<T>(&self, mine: u64, what: impl FnOnce() -> T) -> Option<T> {
        let state = lock(&self.0);
        state.is_open_to(mine).then(what)
    }

    /// Closes the gate: nothing passes any more. `last` runs after everything that passed.
    pub(super) fn close<T>(&self, last: impl FnOnce() -> T) -> T {
        let mut state = lock(&self.0);
        state.is_closed = true;
        last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_generation_has_still_to_report_does_not_pass() {
        let gate = Gate::default();
        gate.renew(|| ());
        let old = gate.generation().unwrap();
        assert_eq!(gate.pass(old, || "reported"), Some("reported"));
        gate.renew(|| ());
        assert_eq!(gate.pass(old, || "reported late"), None);
        assert_eq!(gate.follow(old, || "opened"), None, "nor does it begin the next one");
        let new = gate.generation().unwrap();
        assert_eq!(gate.pass(new, || "reported"), Some("reported"));
        gate.close(|| ());
        assert_eq!(
            (gate.pass(new, || "reported late"), gate.follow(new, || "opened"), gate.generation()),
            (None, None, None)
        );
    }
}
