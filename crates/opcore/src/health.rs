//! The state for the probes: a process is ready when it is on standby, or when it leads and has listed its objects.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a process still waits for before it can do its work. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<BTreeMap<String, usize>>>);

/// Something that the process waits for.
#[derive(Debug)]
pub struct Expected {
    health: Health,
    what: String,
    came: Mutex<bool>,
}

impl Health {
    /// From now on, the process is not ready until `what` has arrived.
    pub fn expect(&self, what: &str) -> Expected {
        *self.lock().entry(what.to_owned()).or_default() += 1;
        Expected { health: self.clone(), what: what.to_owned(), came: Mutex::new(false) }
    }

    /// What the process still waits for.
    pub fn missing(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        crate::lock(&self.0)
    }
}

impl Expected {
    /// Marks it as arrived. Repeating this has no effect.
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
    /// The process stops waiting when nothing can report the arrival any more.
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
