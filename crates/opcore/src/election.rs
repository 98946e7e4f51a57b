//! Leader election, fail-stop: a process that cannot prove that it leads does not write.
//!
//! The leader holds the lease by renewing it. Each candidate judges by its own clock whether the lease has expired,
//! counting from when it last saw the lease change. Clocks of different machines are never compared.
//!
//! ```text
//!   renewed ──────── leader may write ────────▶│ renew_within            │ duration: others may take it
//!                                              └─ the leader ends itself ─┘ a write in flight has this long to land
//! ```
//!
//! # Guarantees
//!
//! - [`Leadership::check`] fails from the moment at which another could take over the lease, minus the margin above.
//!   This also holds in a process that was suspended (SIGSTOP, a frozen VM) and resumes: the check reads the clock each
//!   time.
//! - A lease is taken over only with the resourceVersion that was judged, so two candidates never both get it.
//! - A leader that is asked to stop releases the lease, so that its successor does not have to wait.
//!
//! # Assumptions
//!
//! - Nobody deletes the lease by hand: it would be free at once, while its holder continues until its next check.
//! - A write that was sent before the lease ran out and arrives after a new leader wrote is harmless, because every
//!   write names the version that it was decided on, or says that there was none; see [`crate::act`].

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use thiserror::Error;

/// This process no longer leads, or cannot know whether it does.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("this process lost the leadership: its lease was not renewed in time")]
pub struct LeadershipLost;

/// The proof of leadership, checked before writes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leadership(Option<Arc<Mutex<Until>>>);

/// Both clocks: the monotonic one stops while a machine sleeps, and the other can be set back.
#[derive(Clone, Copy, Debug)]
struct Until {
    monotonic: Instant,
    wall: SystemTime,
}

impl Leadership {
    /// Leadership without an election: always granted.
    pub fn unquestioned() -> Self {
        Self(None)
    }

    /// Leadership that is not yet won.
    fn none() -> Self {
        Self(Some(Arc::new(Mutex::new(Until { monotonic: Instant::now(), wall: SystemTime::UNIX_EPOCH }))))
    }

    /// How long this process may still write if the lease is not renewed; none without an election.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let until = *crate::lock(self.0.as_ref()?);
        Some(until.monotonic.saturating_duration_since(Instant::now()))
    }

    /// Whether this process may write now.
    ///
    /// # Errors
    ///
    /// When the lease has run out by this process's clocks.
    pub fn check(&self) -> Result<(), LeadershipLost> {
        let Some(until) = &self.0 else { return Ok(()) };
        let until = *crate::lock(until);
        if Instant::now() < until.monotonic && SystemTime::now() < until.wall { Ok(()) } else { Err(LeadershipLost) }
    }

    fn extend(&self, until: Until) {
        if let Some(held) = &self.0 {
            *crate::lock(held) = until;
        }
    }
}

/// How long releasing the lease may take: a process that is asked to stop has half a minute in total.
const GIVE_BACK_WITHIN: Duration = Duration::from_secs(5);

/// The times of an election. Every candidate for a lease should use the same.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long a lease that is not renewed excludes others.
    pub duration: Duration,
    /// How long after its last renewal a leader may still write. The difference to `duration` is the time for writes in
    /// flight to arrive.
    pub renew_within: Duration,
    /// How often a leader renews, and how often a candidate checks.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self::lasting(Duration::from_secs(15))
    }
}

impl Timing {
    /// The usual proportions for a lease of this duration.
    pub fn lasting(duration: Duration) -> Self {
        Self { duration, renew_within: duration * 2 / 3, retry: duration * 2 / 15 }
    }
}

/// A candidate for a lease.
pub struct Election {
    leases: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    leadership: Leadership,
    observed: Option<Observed>,
}

/// When this candidate last saw the lease change.
#[derive(Clone, Debug)]
struct Observed {
    version: String,
    at: Instant,
}

/// What a candidate does about the lease that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// The lease is free, or ours, or was not renewed in time.
    Take,
    /// Another candidate holds it.
    Wait,
}

impl Election {
    /// A candidate for the lease `name` in `namespace`.
    ///
    /// The writes of `client` must not depend on this same leadership.
    pub fn new(client: Client, namespace: &str, name: &str, timing: Timing) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity(),
            timing,
            leadership: Leadership::none(),
            observed: None,
        }
    }

    /// The proof of leadership to check before writes.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// The name under which this candidate holds the lease.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Waits until this process leads.
    pub async fn win(&mut self) {
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(lease = %self.name, %error, "cannot acquire the lease; retrying"),
            }
            tokio::time::sleep(self.timing.retry).await;
        }
    }

    /// Keeps renewing the lease. Returns when it is lost.
    ///
    /// If the API server is unreachable for less than `renew_within`, the leadership is not lost.
    pub async fn keep(&mut self) -> LeadershipLost {
        loop {
            tokio::time::sleep(self.timing.retry).await;
            // If one attempt hangs, there must be time for others before the lease runs out.
            match tokio::time::timeout(self.timing.renew_within / 3, self.attempt()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return LeadershipLost,
                Ok(Err(error)) => tracing::warn!(lease = %self.name, %error, "cannot renew the lease; retrying"),
                Err(_) => tracing::warn!(lease = %self.name, "renewing the lease takes too long"),
            }
            if let Err(lost) = self.leadership.check() {
                return lost;
            }
        }
    }

    /// Releases the lease, if it is ours. If that fails or takes too long, the lease runs out by itself.
    pub async fn resign(&mut self) {
        if tokio::time::timeout(GIVE_BACK_WITHIN, self.give_back()).await.is_err() {
            tracing::debug!("releasing the lease takes too long; it expires by itself");
        }
    }

    async fn give_back(&mut self) {
        self.leadership.extend(Until { monotonic: Instant::now(), wall: SystemTime::UNIX_EPOCH });
        let Ok(Some(mut lease)) = self.leases.get_opt(&self.name).await else { return };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_ref() == Some(&self.identity) {
            spec.holder_identity = None;
            if let Err(error) = self.leases.replace(&self.name, &PostParams::default(), &lease).await {
                tracing::debug!(%error, "the lease was not released; it expires by itself");
            }
        }
    }

    /// Takes or renews the lease, if allowed. Returns whether it is ours now.
    async fn attempt(&mut self) -> kube::Result<bool> {
        // The time of leadership counts from before the request: the response may have been delayed.
        let (monotonic, wall) = (Instant::now(), SystemTime::now());
        let lease = self.leases.get_opt(&self.name).await?;
        let version = lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone()).unwrap_or_default();
        if self.observed.as_ref().is_none_or(|observed| observed.version != version) {
            self.observed = Some(Observed { version, at: Instant::now() });
        }
        let unchanged_for = self.observed.as_ref().map_or(Duration::ZERO, |observed| observed.at.elapsed());
        let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
        if decide(spec, &self.identity, unchanged_for, self.timing.duration) == Move::Wait {
            return Ok(false);
        }
        let next = Lease {
            metadata: lease.as_ref().map_or_else(
                || ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                |lease| lease.metadata.clone(),
            ),
            spec: Some(self.claim(spec)),
        };
        let params = PostParams::default();
        let written = match &lease {
            Some(_) => self.leases.replace(&self.name, &params, &next).await,
            None => self.leases.create(&params, &next).await,
        };
        match written {
            Ok(lease) => {
                self.observed =
                    Some(Observed { version: lease.metadata.resource_version.unwrap_or_default(), at: Instant::now() });
                let held = self.timing.renew_within;
                self.leadership.extend(Until { monotonic: monotonic + held, wall: wall + held });
                Ok(true)
            }
            // Another candidate was faster, or our own previous write arrived after all: the next attempt shows which.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(self.leadership.check().is_ok()),
            Err(error) => Err(error),
        }
    }

    /// The spec of a lease that we hold.
    fn claim(&self, was: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let ours = was.is_some_and(|was| was.holder_identity.as_ref() == Some(&self.identity));
        let transitions = was.and_then(|was| was.lease_transitions).unwrap_or(0);
        let acquired = was.and_then(|was| was.acquire_time.clone()).filter(|_| ours);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.timing.duration.as_secs().max(1)).unwrap_or(i32::MAX)),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if ours { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}

/// What to do about a lease that has not changed for `unchanged_for` by our own clock.
fn decide(lease: Option<&LeaseSpec>, identity: &str, unchanged_for: Duration, ours: Duration) -> Move {
    let Some(holder) = lease.and_then(|lease| lease.holder_identity.as_deref()).filter(|holder| !holder.is_empty())
    else {
        return Move::Take;
    };
    // The holder states how long it holds the lease; it counts for no less than our own duration, in case the two
    // differ.
    let stated = lease.and_then(|lease| lease.lease_duration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
    let duration = stated.map_or(ours, |seconds| ours.max(Duration::from_secs(seconds)));
    if holder == identity || unchanged_for >= duration { Move::Take } else { Move::Wait }
}

/// A name for this process that no other process has had, not even one in the same pod before a restart.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "unknown".to_owned());
    format!("{host}_{:016x}", RandomState::new().hash_one((std::process::id(), SystemTime::now())))
}

#[cfg(test)]
mod tests {
    use http::{Method, Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::{BoxError, service_fn};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn held_by(holder: &str, seconds: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_free_lease_is_taken() {
        assert_eq!(decide(None, "me", Duration::ZERO, 15 * SECOND), Move::Take);
        assert_eq!(decide(Some(&held_by("", 15)), "me", Duration::ZERO, 15 * SECOND), Move::Take);
    }

    #[test]
    fn anothers_lease_is_taken_only_after_its_full_duration_without_a_change() {
        let lease = held_by("other", 15);
        assert_eq!(decide(Some(&lease), "me", Duration::from_millis(14_999), 15 * SECOND), Move::Wait);
        assert_eq!(decide(Some(&lease), "me", 15 * SECOND, 15 * SECOND), Move::Take);
    }

    #[test]
    fn the_longer_of_both_durations_counts() {
        assert_eq!(decide(Some(&held_by("other", 60)), "me", 30 * SECOND, 15 * SECOND), Move::Wait);
        assert_eq!(decide(Some(&held_by("other", 1)), "me", 10 * SECOND, 15 * SECOND), Move::Wait);
    }

    #[test]
    fn our_own_lease_is_renewed_at_any_time() {
        assert_eq!(decide(Some(&held_by("me", 15)), "me", Duration::ZERO, 15 * SECOND), Move::Take);
    }

    #[test]
    fn leadership_ends_with_the_clock_and_needs_no_one_to_notice() {
        let leadership = Leadership::none();
        assert_eq!(leadership.check(), Err(LeadershipLost));
        leadership.extend(Until { monotonic: Instant::now() + SECOND, wall: SystemTime::now() + SECOND });
        assert_eq!(leadership.check(), Ok(()));
        // The machine slept: the monotonic clock did not advance.
        leadership.extend(Until { monotonic: Instant::now() + SECOND, wall: SystemTime::now() - SECOND });
        assert_eq!(leadership.check(), Err(LeadershipLost));
        // The wall clock was set back: the monotonic clock is right.
        leadership.extend(Until { monotonic: Instant::now(), wall: SystemTime::now() + SECOND });
        assert_eq!(leadership.check(), Err(LeadershipLost));
    }

    #[test]
    fn the_usual_proportions_leave_room_for_a_write_in_flight() {
        let timing = Timing::default();
        assert_eq!((timing.duration, timing.renew_within, timing.retry), (15 * SECOND, 10 * SECOND, 2 * SECOND));
    }

    #[test]
    fn identities_never_repeat() {
        assert_ne!(identity(), identity());
    }

    /// An API server that has one lease and nothing else.
    #[derive(Default)]
    struct Server {
        lease: Option<LeaseSpec>,
        version: u64,
        /// The time of each request.
        asked: Vec<Instant>,
        /// This candidate takes the lease right before the next write arrives.
        thief: Option<&'static str>,
        /// Writes are never answered.
        hangs: bool,
    }

    impl Server {
        fn held_by(holder: &str) -> Arc<Mutex<Self>> {
            Arc::new(Mutex::new(Self { lease: Some(held_by(holder, 15)), version: 1, ..Self::default() }))
        }

        fn answer(&mut self, write: Option<&Lease>) -> (StatusCode, Value) {
            self.asked.push(Instant::now());
            if let Some(lease) = write {
                if let Some(thief) = self.thief.take() {
                    (self.lease, self.version) = (Some(held_by(thief, 15)), self.version + 1);
                }
                // As in a real API server: without a version, the last write wins.
                let version = lease.metadata.resource_version.as_ref();
                if version.is_some_and(|version| *version != self.version.to_string()) {
                    return refusal(StatusCode::CONFLICT);
                }
                (self.lease, self.version) = (lease.spec.clone(), self.version + 1);
            }
            let Some(spec) = &self.lease else { return refusal(StatusCode::NOT_FOUND) };
            let metadata = json!({"name": "lease", "resourceVersion": self.version.to_string()});
            let lease =
                json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
            (StatusCode::OK, lease)
        }
    }

    fn refusal(code: StatusCode) -> (StatusCode, Value) {
        (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16()}))
    }

    fn candidate(server: &Arc<Mutex<Server>>, timing: Timing) -> Election {
        let server = server.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let writes = request.method() != Method::GET;
                let body = request.into_body().collect_bytes().await?;
                let lease: Option<Lease> = if writes { Some(serde_json::from_slice(&body)?) } else { None };
                if writes && server.lock().unwrap().hangs {
                    std::future::pending::<()>().await;
                }
                let (code, answer) = server.lock().unwrap().answer(lease.as_ref());
                let body = Body::from(serde_json::to_vec(&answer)?);
                Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
            }
        });
        Election::new(Client::new(service, "default"), "default", "lease", timing)
    }

    /// Timing with checks without a pause, and a lease that lasts for the whole test.
    fn eager() -> Timing {
        Timing { retry: Duration::ZERO, ..Timing::lasting(3600 * SECOND) }
    }

    fn holder(server: &Arc<Mutex<Server>>) -> Option<String> {
        server.lock().unwrap().lease.as_ref().and_then(|lease| lease.holder_identity.clone())
    }

    #[test]
    fn what_the_holders_clock_says_is_never_believed() {
        let long_ago = Some(MicroTime(Timestamp::UNIX_EPOCH));
        let lease = LeaseSpec { renew_time: long_ago.clone(), acquire_time: long_ago, ..held_by("other", 15) };
        assert_eq!(decide(Some(&lease), "me", Duration::ZERO, 15 * SECOND), Move::Wait);
    }

    #[tokio::test]
    async fn what_a_renewal_proves_counts_from_before_it_was_asked_for() {
        let server = Server::held_by("");
        let mut election = candidate(&server, eager());
        assert!(election.attempt().await.unwrap());
        let until = *election.leadership.0.as_ref().unwrap().lock().unwrap();
        let asked = server.lock().unwrap().asked[0];
        assert!(until.monotonic <= asked + eager().renew_within, "it counts from when the answer came");
    }

    #[tokio::test]
    async fn a_lease_that_changed_since_it_was_read_is_not_taken() {
        let server = Server::held_by("");
        server.lock().unwrap().thief = Some("other");
        let mut election = candidate(&server, eager());
        assert!(!election.attempt().await.unwrap(), "two believe to lead");
        assert_eq!(election.leadership().check(), Err(LeadershipLost));
        assert_eq!(holder(&server).as_deref(), Some("other"));
    }

    #[tokio::test]
    async fn each_renewal_by_the_holder_starts_the_wait_again() {
        let server = Server::held_by("other");
        let mut election = candidate(&server, eager());
        let long_ago = Instant::now().checked_sub(eager().duration).unwrap();
        election.observed = Some(Observed { version: "0".to_owned(), at: long_ago });
        assert!(!election.attempt().await.unwrap(), "it was renewed since");
        election.observed = Some(Observed { version: "1".to_owned(), at: long_ago });
        assert!(election.attempt().await.unwrap(), "it was not renewed since");
    }

    #[tokio::test]
    async fn a_leader_that_sees_another_hold_the_lease_stops_at_once() {
        let server = Server::held_by("");
        let mut election = candidate(&server, eager());
        election.win().await;
        server.lock().unwrap().lease = Some(held_by("thief", 15));
        let lost = tokio::time::timeout(10 * SECOND, election.keep()).await;
        assert_eq!(lost, Ok(LeadershipLost), "it keeps on until its own time is up");
    }

    #[tokio::test]
    async fn a_renewal_that_is_never_answered_does_not_outlast_the_lease() {
        let server = Server::held_by("");
        let brief = Timing { renew_within: Duration::from_millis(50), ..eager() };
        let mut election = candidate(&server, brief);
        election.win().await;
        server.lock().unwrap().hangs = true;
        assert_eq!(tokio::time::timeout(10 * SECOND, election.keep()).await, Ok(LeadershipLost));
    }

    #[tokio::test]
    async fn who_resigns_writes_no_more_and_gives_back_only_its_own_lease() {
        let server = Server::held_by("");
        let mut election = candidate(&server, eager());
        election.win().await;
        server.lock().unwrap().lease = Some(held_by("thief", 15));
        election.resign().await;
        assert_eq!(election.leadership().check(), Err(LeadershipLost));
        assert_eq!(holder(&server).as_deref(), Some("thief"));
    }
}
