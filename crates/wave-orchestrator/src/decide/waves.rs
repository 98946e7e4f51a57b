//! The state of each wave, from its previous state and what is observed now.

use jiff::Timestamp;
use opcore::duration::Span;

use super::claims::is_asked_for;
use super::graph::Graph;
use super::requests::Requests;
use crate::api::v1alpha1::{
    Gate, NotReady, OnFailure, Wave, WavePhase, WavePlan, WavePlanSpec, WavePlanStatus, WaveStatus,
};
use crate::index::{Asked, ObservedNudge, WaveSnapshot};
use crate::observe::Observed;
use crate::probes::ProbeResult;

/// The first pause before a failed wave is tried again; it doubles each time.
const RETRY_AFTER: Span = Span::from_secs(5);
const LONGEST_RETRY: Span = Span::from_secs(300);

/// Everything that the state of the waves depends on.
pub(super) struct RolloutContext<'a> {
    /// The plan's spec.
    pub spec: &'a WavePlanSpec,
    /// What was published before.
    pub old: &'a WavePlanStatus,
    /// The graph of its waves.
    pub graph: &'a Graph,
    /// What was read.
    pub observed: &'a Observed,
    /// The requests of users.
    pub requests: &'a Requests,
    /// Whether what was published is about the same rollout.
    pub same_rollout: bool,
    /// Whether the whole plan is paused.
    pub paused: bool,
    /// Whether a failure prevents further waves from starting.
    pub held: bool,
    /// The time.
    pub now: Timestamp,
}

/// Whether a wave may start.
enum Start {
    Now,
    Waits(Vec<String>),
    Blocked(Vec<String>),
}

impl RolloutContext<'_> {
    /// The new state of each wave, in the order of the spec.
    pub(super) fn waves(&self) -> Vec<WaveStatus> {
        let mut waves: Vec<WaveStatus> = self.spec.waves.iter().map(|wave| self.before(wave)).collect();
        for &number in &self.graph.order {
            waves[number] = self.wave(number, &waves);
        }
        waves
    }

    /// The previous state of a wave. A new rollout resets it, except for what spans rollouts.
    fn before(&self, wave: &Wave) -> WaveStatus {
        let old = self.old.wave(&wave.name);
        match old {
            Some(old) if self.same_rollout => old.clone(),
            old => WaveStatus {
                name: wave.name.clone(),
                usual: old.and_then(|old| old.usual),
                rolled_out: old.is_some_and(|old| old.rolled_out),
                ..WaveStatus::default()
            },
        }
    }

    fn wave(&self, number: usize, waves: &[WaveStatus]) -> WaveStatus {
        let (wave, was) = (&self.spec.waves[number], &waves[number]);
        let nothing = WaveSnapshot::default();
        let snapshot = self.observed.snapshot.waves.get(number).unwrap_or(&nothing);
        let probes = self.observed.probes.get(number).filter(|_| is_asked_for(self.old, wave, snapshot));
        let probes = probes.map_or(&[][..], Vec::as_slice);
        let case = Case { rollout_context: self, wave, was, snapshot, probes };
        // While items cannot be read, a wave that was through keeps its state, and another does not become ready: its
        // timeout continues.
        let unread = if was.phase.is_through() { snapshot.unread } else { snapshot.unread - snapshot.unreachable };
        if unread > 0 && was.started_at.is_some() && self.same_rollout {
            return case.unread();
        }
        let mut now = case.counted();
        let problem = self.graph.broken.get(&number).or(snapshot.problem.as_ref());
        if self.requests.skips(&wave.name) {
            now.phase = WavePhase::Skipped;
            now.not_ready.clear();
        } else if let Some(problem) = problem {
            now.phase = WavePhase::Failed;
            now.not_ready = vec![broken(&wave.name, problem)];
        } else if was.started_at.is_some() {
            case.proceed(&mut now);
        } else if self.paused || self.held || wave.suspend {
            now.phase = WavePhase::Suspended;
        } else {
            now.forced |= self.requests.forces(&wave.name);
            match if now.forced { Start::Now } else { self.may_start(number, waves) } {
                Start::Waits(names) => (now.phase, now.waiting_for) = (WavePhase::Waiting, names),
                Start::Blocked(names) => (now.phase, now.waiting_for) = (WavePhase::Blocked, names),
                Start::Now => {
                    case.begin(&mut now);
                    case.proceed(&mut now);
                }
            }
        }
        if !matches!(now.phase, WavePhase::Running | WavePhase::Failed | WavePhase::TimedOut) {
            now.not_ready.clear();
        }
        now
    }

    fn may_start(&self, number: usize, waves: &[WaveStatus]) -> Start {
        let (wave, was) = (&self.spec.waves[number], &waves[number]);
        let (mut waits, mut blocked) = (Vec::new(), Vec::new());
        for (dependency, &first) in wave.depends_on.iter().zip(&self.graph.before[number]) {
            let before = &waves[first];
            let continues = self.spec.waves[first].on_failure == OnFailure::Continue;
            let latched = dependency.gate == Gate::FirstRollout && was.rolled_out;
            if before.phase.is_through() || latched || (before.phase.is_trouble() && continues) {
                continue;
            }
            let hopeless = before.phase.is_trouble() && before.retry_at.is_none();
            if hopeless || before.phase == WavePhase::Blocked {
                blocked.push(before.name.clone());
            } else {
                waits.push(before.name.clone());
            }
        }
        match (blocked.is_empty(), waits.is_empty()) {
            (true, true) => Start::Now,
            (true, false) => Start::Waits(waits),
            (false, _) => Start::Blocked(blocked),
        }
    }
}

/// One wave, with everything that its state depends on.
struct Case<'a> {
    rollout_context: &'a RolloutContext<'a>,
    wave: &'a Wave,
    was: &'a WaveStatus,
    snapshot: &'a WaveSnapshot,
    probes: &'a [ProbeResult],
}

impl Case<'_> {
    /// The previous state of the wave, with current counts.
    fn counted(&self) -> WaveStatus {
        let asked = self.probes.iter().filter(|probe| probe.failure.is_none()).count();
        let passed = if self.was.phase == WavePhase::Ready { self.wave.probes.len() } else { asked };
        let failing = self.probes.iter().filter_map(|probe| {
            let failure = probe.failure.as_ref()?;
            let (object, message) = (probe.address.clone(), format!("{}: {failure}.", probe.address));
            Some(NotReady { object, reason: "ProbeFailed".to_owned(), message, failed: false })
        });
        WaveStatus {
            ready: count(self.ready() + passed),
            total: count(self.snapshot.total + self.wave.probes.len()),
            waiting_for: Vec::new(),
            completed: self.snapshot.completed.clone(),
            not_ready: self.snapshot.not_ready.iter().cloned().chain(failing).collect(),
            ..self.was.clone()
        }
    }

    /// How many items are ready. In a wave that is ready, items that were asked to reconcile keep their state until
    /// they have answered.
    fn ready(&self) -> usize {
        let unanswered = if self.was.phase == WavePhase::Ready { self.snapshot.unanswered } else { 0 };
        self.snapshot.ready + unanswered
    }

    /// Whether everything in the wave is ready, and every request to reconcile was made.
    fn is_ready(&self, now: &WaveStatus) -> bool {
        let was_ready = self.was.phase == WavePhase::Ready;
        let probed = was_ready
            || (self.was.phase == WavePhase::Failed && self.was.rolled_back)
            || (self.probes.len() == self.wave.probes.len() && self.probes.iter().all(|probe| probe.failure.is_none()));
        let asked =
            was_ready || self.snapshot.nudges.iter().all(|nudge| is_asked(nudge, now, self.rollout_context.now));
        self.ready() == self.snapshot.total
            && self.snapshot.due.is_empty()
            && self.snapshot.gates.iter().all(|gate| !gate.held)
            && asked
            && probed
    }

    /// Whether something failed. Jobs that are about to be recreated do not count.
    fn has_failed(&self) -> bool {
        self.snapshot.failed > stale_jobs(self.snapshot, self.was).count()
    }

    fn start(&self, now: &mut WaveStatus) {
        now.phase = WavePhase::Running;
        now.started_at = Some(self.rollout_context.now);
        now.deadline = Some(self.rollout_context.spec.timeout_of(self.wave).after(self.rollout_context.now));
        (now.ready_at, now.duration, now.retry_at, now.forgiven) = (None, None, None, false);
    }

    fn begin(&self, now: &mut WaveStatus) {
        self.start(now);
        now.begun_at = now.started_at;
    }

    fn start_again(&self, now: &mut WaveStatus) {
        self.begin(now);
        now.attempts += 1;
        take_back(now, false);
    }

    /// Whether the wave was ready once with other manifests than these.
    fn can_be_taken_back(&self) -> bool {
        let rollback = self.rollout_context.observed.rollbacks.get(&self.wave.name);
        rollback.is_some_and(|rollback| rollback.kept.is_some() && rollback.kept != rollback.wanted)
    }

    /// The state of a started wave of which something was not read yet, as after a restart: the published state is the
    /// best information. Requests of users are carried out all the same, because they are made only once.
    fn unread(&self) -> WaveStatus {
        let mut now = self.was.clone();
        let in_trouble = self.was.phase.is_trouble();
        if !self.was.phase.is_through() && self.rollout_context.requests.retries(&self.wave.name, in_trouble) {
            self.start_again(&mut now);
        } else if in_trouble && self.rollout_context.requests.resume {
            now.forgiven = true;
        }
        now
    }

    /// Advances a wave that was started.
    fn proceed(&self, now: &mut WaveStatus) {
        let moment = self.rollout_context.now;
        if self.rollout_context.requests.retries(&self.wave.name, self.was.phase.is_trouble())
            && (now.rolled_back || !self.is_ready(now))
        {
            return self.start_again(now);
        }
        if self.is_ready(now) && now.rolled_back {
            now.phase = WavePhase::Failed;
            now.not_ready = vec![taken_back(&self.wave.name)];
            return;
        }
        if self.is_ready(now) {
            return become_ready(now, self.was.phase, moment);
        }
        if self.rollout_context.paused || self.wave.suspend {
            now.phase = WavePhase::Suspended;
            return;
        }
        match self.was.phase {
            // The wave was ready or stood still: its clock restarts.
            WavePhase::Ready | WavePhase::Suspended | WavePhase::Skipped => self.start(now),
            _ => {}
        }
        if self.has_failed() {
            now.phase = WavePhase::Failed;
        } else if now.deadline.is_some_and(|deadline| deadline <= moment) {
            now.phase = WavePhase::TimedOut;
        } else {
            now.phase = WavePhase::Running;
            now.retry_at = None;
            return;
        }
        if self.rollout_context.requests.resume {
            now.forgiven = true;
        }
        if self.wave.on_failure == OnFailure::Rollback && !now.rolled_back && self.can_be_taken_back() {
            self.start(now);
            take_back(now, true);
            return;
        }
        if self.wave.on_failure == OnFailure::Retry && now.attempts < self.wave.retries {
            let pause = RETRY_AFTER.scaled(2f64.powi(now.attempts)).min(LONGEST_RETRY);
            match self.was.retry_at.filter(|_| self.was.phase.is_trouble()) {
                Some(at) if at <= moment => self.start_again(now),
                Some(at) => now.retry_at = Some(at),
                None => now.retry_at = Some(pause.after(moment)),
            }
        }
    }
}

fn become_ready(now: &mut WaveStatus, was: WavePhase, moment: Timestamp) {
    now.phase = WavePhase::Ready;
    (now.rolled_out, now.retry_at, now.forgiven) = (true, None, false);
    if was == WavePhase::Ready {
        return;
    }
    let took = Span::between(now.started_at.unwrap_or(moment), moment).rounded();
    (now.ready_at, now.duration) = (Some(moment), Some(took));
    if matches!(was, WavePhase::Running | WavePhase::TimedOut | WavePhase::Failed) {
        now.usual = Some(took);
    }
}

/// Applies the manifests from when the wave was last ready, or those of the spec again. The completed Jobs of the other
/// manifests say nothing about these.
fn take_back(now: &mut WaveStatus, back: bool) {
    if now.rolled_back != back {
        now.completed.clear();
    }
    now.rolled_back = back;
}

/// Jobs that failed before the wave was started again: they are recreated.
pub(super) fn stale_jobs<'a>(
    snapshot: &'a WaveSnapshot,
    wave: &'a WaveStatus,
) -> impl Iterator<Item = &'a opcore::writes::Target> {
    let started = wave.started_at.filter(|_| wave.attempts > 0);
    snapshot
        .failed_jobs
        .iter()
        .filter(move |(_, made)| match (started, made) {
            // Kubernetes stores whole seconds, rounded down.
            (Some(started), Some(made)) => made.as_second() < started.as_second(),
            _ => false,
        })
        .map(|(target, _)| target)
}

/// The value with which Flux members are asked to reconcile: the same for one start of a wave, and a later one for the
/// next.
pub(super) fn request(wave: &WaveStatus) -> Option<String> {
    wave.asked_since().map(|since| since.to_string())
}

/// Whether a member was asked to reconcile since the wave began: by this plan, or by anyone else, such as another plan
/// or `flux reconcile`. Answering each request with another one would never end.
pub(super) fn is_asked(nudge: &ObservedNudge, wave: &WaveStatus, now: Timestamp) -> bool {
    Asked { since: wave.asked_since(), now }.by(nudge.requested.as_deref())
}

/// The failed wave that paused the plan, if nobody resumed it since.
pub(super) fn paused_by(plan: &WavePlan) -> Option<String> {
    let status = plan.status.as_ref()?;
    let policy = |name: &str| plan.spec.waves.iter().find(|wave| wave.name == name).map(|wave| wave.on_failure);
    let mut troubled = status.waves.iter().filter(|wave| wave.phase.is_trouble() && !wave.forgiven);
    troubled.find(|wave| policy(&wave.name) == Some(OnFailure::Pause)).map(|wave| wave.name.clone())
}

fn taken_back(wave: &str) -> NotReady {
    let message = format!(
        "Wave {wave} failed, and its manifests were reverted to those with which it was last ready. Correct the plan, or request a retry."
    );
    NotReady { object: format!("wave {wave}"), reason: "RolledBack".to_owned(), message, failed: true }
}

fn broken(wave: &str, problem: &str) -> NotReady {
    NotReady {
        object: format!("wave {wave}"),
        reason: "InvalidWave".to_owned(),
        message: format!("Wave {wave}: {problem}."),
        failed: true,
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
