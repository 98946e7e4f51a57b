//! A lock that a panic elsewhere does not spoil.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock.
///
/// # Assumptions
///
/// What it guards is plain memory that every change leaves whole: then a panic while it was held says nothing about it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
