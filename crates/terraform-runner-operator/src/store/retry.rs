//! Retries while an API server is briefly unreachable.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::StoreError;

/// How long to retry.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long the API server may take to know a right after it was granted.
const UNTIL_ALLOWED: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Retries until it succeeds, fails for good, or a minute has passed.
pub async fn patiently<T, F>(attempt: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if started.elapsed() + pause > patience(&error) {
            return Err(error);
        }
        tracing::warn!("retrying in {pause:?}: {error}");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// How long to retry after this error.
fn patience(error: &StoreError) -> Duration {
    match (error, error.code()) {
        (_, Some(403)) => UNTIL_ALLOWED,
        // Another process wrote first: the next attempt reads the result.
        (_, Some(409 | 429 | 500..)) => PATIENCE,
        (StoreError::Api(kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_)), _) => {
            PATIENCE
        }
        _ => Duration::ZERO,
    }
}
