//! Crashes between any two writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::{Client, Config};

use crate::proxy::{Fate, Passed, Proxy};
use crate::running::Running;

/// The ways in which a crash can affect the write that it hits.
pub const CUTS: [Fate; 2] = [Fate::LoseRequest, Fate::LoseAnswer];

fn counts(passed: &Passed) -> bool {
    passed.writes() && !passed.path.contains("/events")
}

/// Runs the operator that `run` starts until its n-th write, cuts that write off, and crashes the operator. Returns
/// whether there was an n-th write.
pub async fn crash_at(
    client: &Client,
    n: usize,
    cut: Fate,
    run: impl FnOnce(Config) -> Running,
    done: impl Future<Output = ()>,
) -> bool {
    let proxy = Proxy::start(client.clone()).await.unwrap();
    let observed = Arc::new(AtomicUsize::new(0));
    let count = observed.clone();
    proxy.rule(move |passed| {
        if !counts(passed) {
            return Fate::Pass;
        }
        match count.fetch_add(1, Ordering::SeqCst) + 1 {
            now if now < n => Fate::Pass,
            now if now == n => cut,
            // The process counts as dead: no further request gets out.
            _ => Fate::LoseRequest,
        }
    });
    let running = run(proxy.config());
    tokio::select! {
        () = proxy.until("the write that is cut", |passed| passed.iter().filter(|p| counts(p)).count() >= n) => {}
        () = done => {}
    }
    running.crash().await;
    observed.load(Ordering::SeqCst) >= n
}
