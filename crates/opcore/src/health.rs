//! What the probes say: a process is ready when it stands by, or leads and knows its objects.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a process still waits for before it can do its job. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<BTreeMap<String, usize>>>);

/// Something that a process waits for.
#[derive(Debug)]
pub struct Expected {
    health: Health,
    what: String,
    came: Mutex<bool>,
}

impl Health {
    /// From now on, the process is not ready until `what` has come.
    pub fn expect(&self, what: &str) -> Expected {
        *self.lock().entry(what.to_owned()).or_default() += 1;
        Expected { health: self.clone(), what: what.to_owned(), came: Mutex::new(false) }
    }

    /// What is still waited for.
    pub fn missing(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        crate::lock(&self.0)
    }
}

impl Expected {
    /// It has come. Saying so again does nothing.
    pub fn came(&self) {
        if std::mem::replace(&mut *crate::lock(&self.came), true) {
            return;
        }
        let mut missing = self.health.lock();
        if let Some(count) = missing.get_mut(&self.what) {
            *count -= 1;
            if *count == 0 {
                missing.remove(&self.what);
            }
        }
    }
}

impl Drop for Expected {
    /// Nobody waits for what nobody can announce any more.
    fn drop(&mut self) {
        self.came();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_all_that_it_waits_for_has_come() {
        let health = Health::default();
        let (first, second) = (health.expect("configmaps"), health.expect("configmaps"));
        first.came();
        first.came();
        assert_eq!(health.missing(), ["configmaps"]);
        second.came();
        assert!(health.missing().is_empty());
    }
}
