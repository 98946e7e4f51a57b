//! A lock that stays usable after a panic elsewhere.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock.
///
/// # Assumptions
///
/// The lock guards plain memory that every change leaves consistent, so a panic while it was held does not invalidate
/// it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
