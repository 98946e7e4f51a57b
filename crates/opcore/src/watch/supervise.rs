//! Tasks that must not end: after a panic they are restarted, with growing pauses.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use super::Pace;
use crate::error::Class;
use crate::metrics::Metrics;

/// Runs the task that `begin` starts until it ends by itself. After each panic it is started again, with growing
/// pauses.
pub(super) async fn supervise<F: Future<Output = ()>>(what: &str, metrics: &Metrics, mut begin: impl FnMut() -> F) {
    let mut pace = Pace::default();
    while let Err(panic) = AssertUnwindSafe(async { begin().await }).catch_unwind().await {
        log_panic(what, metrics, panic.as_ref());
        if let Some(delay) = pace.next() {
            tokio::time::sleep(delay).await;
        }
    }
}

/// Logs and counts a panic.
pub(super) fn log_panic(what: &str, metrics: &Metrics, panic: &(dyn Any + Send)) {
    metrics.error(what, Class::Bug);
    let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(%what, "internal error, restarting: {}", words.unwrap_or("it panicked"));
}
