//! Which generation of a watch may tell something.

use std::sync::Mutex;

use crate::lock;

/// The newest generation, and with it who may pass.
///
/// # Guarantees
///
/// Nothing of an older generation passes once a newer one has begun; and what passes, passes one after another.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<u64>);

impl Gate {
    /// The newest generation.
    pub(super) fn generation(&self) -> u64 {
        *lock(&self.0)
    }

    /// A generation begins: `first` is what it does before anything of it passes.
    pub(super) fn renew<T>(&self, first: impl FnOnce() -> T) -> T {
        let mut generation = lock(&self.0);
        *generation += 1;
        first()
    }

    /// Another generation follows this one, unless one has already. None: it has.
    pub(super) fn follow<T>(&self, mine: u64, first: impl FnOnce() -> T) -> Option<T> {
        let mut generation = lock(&self.0);
        (*generation == mine).then(|| {
            *generation += 1;
            first()
        })
    }

    /// Does what this generation wants to, if it is the newest. None: it is not.
    pub(super) fn pass<T>(&self, mine: u64, what: impl FnOnce() -> T) -> Option<T> {
        let generation = lock(&self.0);
        (*generation == mine).then(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_generation_has_still_to_tell_does_not_pass() {
        let gate = Gate::default();
        gate.renew(|| ());
        let old = gate.generation();
        assert_eq!(gate.pass(old, || "told"), Some("told"));
        gate.renew(|| ());
        assert_eq!(gate.pass(old, || "told late"), None);
        assert_eq!(gate.follow(old, || "opened"), None, "nor does it begin the next one");
        assert_eq!(gate.pass(gate.generation(), || "told"), Some("told"));
    }
}
