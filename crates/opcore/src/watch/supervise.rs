//! Work that must not end: what panics is begun anew, after a growing pause.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use super::Pace;
use crate::error::Class;
use crate::metrics::Metrics;

/// Runs what `begin` begins until it ends by itself. Each time that it panics it is begun anew: at first soon, then more
/// and more slowly.
pub(super) async fn supervise<F: Future<Output = ()>>(what: &str, metrics: &Metrics, mut begin: impl FnMut() -> F) {
    let mut pace = Pace::default();
    while let Err(panic) = AssertUnwindSafe(async { begin().await }).catch_unwind().await {
        tell(what, metrics, panic.as_ref());
        if let Some(delay) = pace.next() {
            tokio::time::sleep(delay).await;
        }
    }
}

/// Logs and counts a panic.
pub(super) fn tell(what: &str, metrics: &Metrics, panic: &(dyn Any + Send)) {
    metrics.error(what, Class::Bug);
    let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(%what, "a fault in this program, what was being told is told anew: {}", words.unwrap_or("it panicked"));
}
