//! The graph of steps, and the pure function that takes it one pass further.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::record::{StepPhase, StepRecord, TeardownRecord};
use crate::conditions::whole_milliseconds;
use crate::graph;
use crate::operator::Note;

/// The state of one step, as an operator observes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepStatus {
    /// What the step stands for is gone.
    Done,
    /// Not yet. It will proceed by itself, or after the writes of this pass.
    Pending {
        /// What the step waits for, as a sentence.
        reason: String,
        /// When to check again, if no watch reports a change.
        retry: Option<Timestamp>,
    },
    /// Objects of another owner are in the way.
    Blocked {
        /// The objects in the way, named so that a person can look them up.
        by: Vec<String>,
        /// When to check again, if no watch reports a change.
        retry: Option<Timestamp>,
    },
}

impl StepStatus {
    fn words(&self) -> Option<String> {
        match self {
            Self::Done => None,
            Self::Pending { reason, .. } => Some(reason.clone()),
            Self::Blocked { by, .. } => Some(format!("blocked by {}", by.join(", "))),
        }
    }
}

/// What happens to a step that is not over when its time is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnExpiry {
    /// Keep trying, and say that it is overdue.
    #[default]
    Wait,
    /// Give it up, record what was left behind, and go on.
    Force,
    /// Stop acting, and say which command lets it go on.
    Manual,
}

/// The steps that a user asked to give up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Force {
    /// None.
    #[default]
    None,
    /// The running step of this name.
    Step(String),
    /// Every step that is not over.
    All,
}

impl Force {
    fn covers(&self, step: &str) -> bool {
        match self {
            Self::None => false,
            Self::Step(name) => name == step,
            Self::All => true,
        }
    }
}

/// One step of a [`Teardown`], created by [`step`].
#[derive(Clone, Debug)]
pub struct Step {
    name: String,
    after: Vec<String>,
    within: Option<Duration>,
    on_expiry: Option<OnExpiry>,
}

/// A step called `name`, with no predecessors and no deadline.
pub fn step(name: impl Into<String>) -> Step {
    Step { name: name.into(), after: Vec::new(), within: None, on_expiry: None }
}

impl Step {
    /// The steps that must be over before this one starts.
    #[must_use]
    pub fn after<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.after.extend(names.into_iter().map(Into::into));
        self
    }

    /// How long the step may run, counted from its start.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.within = Some(deadline);
        self
    }

    /// Whether all steps before this one are over.
    fn may_begin(&self, record: &TeardownRecord) -> bool {
        self.after.iter().all(|name| record.step(name).is_some_and(|before| before.phase.is_over()))
    }

    /// What happens when its deadline has passed. Overrides the setting of the graph.
    #[must_use]
    pub fn on_expiry(mut self, policy: OnExpiry) -> Self {
        self.on_expiry = Some(policy);
        self
    }
}

/// Why a graph of steps was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GraphError {
    /// The steps wait for each other in a cycle.
    #[error("the teardown steps wait for each other: {}", .0.join(" → "))]
    Cycle(Vec<String>),
    /// A step comes after one that does not exist.
    #[error("teardown step {step:?} comes after {unknown:?}, which is not a step")]
    Unknown {
        /// The step that refers to it.
        step: String,
        /// The name of the missing step.
        unknown: String,
    },
    /// Two steps have the same name.
    #[error("two teardown steps have the name {0:?}")]
    Duplicate(String),
}

/// A teardown: a graph of steps, checked when it was built.
#[derive(Clone, Debug)]
pub struct Teardown {
    /// In an order in which they could run one after another.
    steps: Vec<Step>,
    within: Option<Duration>,
    on_expiry: OnExpiry,
}

/// The state of a teardown after a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TeardownState {
    /// Steps are running.
    Running,
    /// A running step is blocked by objects of another owner.
    Blocked {
        /// The objects in the way.
        by: Vec<String>,
    },
    /// The deadline of these steps has passed, and their policy is [`OnExpiry::Manual`].
    Stopped {
        /// The steps that wait for a person.
        steps: Vec<String>,
    },
    /// Every step is published as over: the finalizer may be removed.
    Released,
}

/// One pass of a teardown: what to publish, which steps may act, and when to check again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The record to publish in the status.
    pub record: TeardownRecord,
    /// The steps whose writes belong in this pass. All were published as running before.
    pub act: Vec<String>,
    /// The steps that were given up in this pass.
    pub gave_up: Vec<String>,
    /// The state of the whole teardown.
    pub state: TeardownState,
    /// When the passage of time alone changes something.
    pub next: Option<Timestamp>,
}

impl Progress {
    /// A teardown in which no step can be taken.
    pub(super) fn stuck(published: Option<&TeardownRecord>, now: Timestamp) -> Self {
        let record = published.cloned().unwrap_or(TeardownRecord { started_at: now, steps: Vec::new() });
        Self { record, act: Vec::new(), gave_up: Vec::new(), state: TeardownState::Running, next: None }
    }

    /// Whether `step` may act in this pass.
    pub fn acts(&self, step: &str) -> bool {
        self.act.iter().any(|name| name == step)
    }

    /// A warning for each step that was given up in this pass: the object itself will soon be gone, and an Event
    /// outlives it. The pass that releases the object reports all of them again, because a crash may have come between
    /// the record and its Event, and no later pass exists.
    pub fn notes(&self) -> Vec<Note> {
        let released = self.state == TeardownState::Released;
        let given_up = self.record.leaked().filter(|step| released || self.gave_up.contains(&step.name));
        given_up
            .map(|step| {
                let message = format!("{}: {}", step.name, step.message.as_deref().unwrap_or("given up"));
                Note::warning("TeardownLeaked", message).about(step.name.as_str())
            })
            .collect()
    }

    /// A reason and a message for the `Ready` condition of an object that is being torn down.
    pub fn words(&self) -> (&'static str, String) {
        let running = || {
            let each = self.record.steps.iter().filter(|step| step.phase == StepPhase::Running);
            each.map(|step| match &step.message {
                Some(message) => format!("{}: {message}", step.name),
                None => step.name.clone(),
            })
            .collect::<Vec<_>>()
            .join("; ")
        };
        match &self.state {
            TeardownState::Released => ("TornDown", "Everything that depends on this object is gone.".to_owned()),
            TeardownState::Running => match running().as_str() {
                "" => ("TearingDown", "Everything is torn down; the object is about to be deleted.".to_owned()),
                steps => ("TearingDown", format!("Tearing down {steps}.")),
            },
            TeardownState::Blocked { by } => ("TeardownBlocked", format!("The teardown waits for {}.", by.join(", "))),
            TeardownState::Stopped { steps } => (
                "TeardownStopped",
                format!(
                    "The deadline of {} has passed ({}). To give up a step and continue, set the annotation {}=STEP (or =all).",
                    steps.join(", "),
                    running(),
                    super::FORCE_ANNOTATION
                ),
            ),
        }
    }
}

impl Teardown {
    /// Builds a teardown from its steps.
    ///
    /// # Errors
    ///
    /// When two steps share a name, a step comes after an unknown one, or steps wait for each other in a cycle. The
    /// error prints the cycle.
    pub fn graph(steps: impl IntoIterator<Item = Step>) -> Result<Self, GraphError> {
        let mut waiting: BTreeMap<String, Step> = BTreeMap::new();
        let mut order = Vec::new();
        for step in steps {
            order.push(step.name.clone());
            if let Some(twin) = waiting.insert(step.name.clone(), step) {
                return Err(GraphError::Duplicate(twin.name));
            }
        }
        let names = |step: &Step| step.after.clone();
        for step in waiting.values() {
            if let Some(unknown) = names(step).into_iter().find(|name| !waiting.contains_key(name)) {
                return Err(GraphError::Unknown { step: step.name.clone(), unknown });
            }
        }
        let edges: graph::Graph<'_> = waiting
            .iter()
            .map(|(name, step)| (name.as_str(), step.after.iter().map(String::as_str).collect()))
            .collect();
        if let Some(path) = graph::cycle(&edges) {
            return Err(GraphError::Cycle(path.into_iter().map(str::to_owned).collect()));
        }
        Ok(Self { steps: sorted(&order, waiting), within: None, on_expiry: OnExpiry::default() })
    }

    /// How long the whole teardown may take, counted from the first pass.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.within = Some(deadline);
        self
    }

    /// What happens to steps that are not over when their deadline, or the deadline of the whole teardown, has passed.
    #[must_use]
    pub fn on_expiry(mut self, policy: OnExpiry) -> Self {
        self.on_expiry = policy;
        self
    }

    /// Takes the teardown one pass further.
    ///
    /// `published` is the record in the object's status. `observe` is called for running steps only, at most once each,
    /// in order.
    ///
    /// # Guarantees
    ///
    /// Total and deterministic. When [`TeardownState::Released`] is returned, the record equals `published`.
    pub fn advance(
        &self,
        published: Option<&TeardownRecord>,
        mut observe: impl FnMut(&str) -> StepStatus,
        force: &Force,
        now: Timestamp,
    ) -> Progress {
        let now = whole_milliseconds(now);
        let started_at = published.map_or(now, |record| record.started_at);
        let mut progress = Progress {
            record: TeardownRecord { started_at, steps: Vec::with_capacity(self.steps.len()) },
            act: Vec::new(),
            gave_up: Vec::new(),
            state: TeardownState::Running,
            next: None,
        };
        let (mut blocked_by, mut stopped) = (Vec::new(), Vec::new());
        for step in &self.steps {
            let was = published.and_then(|record| record.step(&step.name));
            let record = match was.map_or(StepPhase::Waiting, |was| was.phase) {
                StepPhase::Done | StepPhase::Leaked => was.cloned(),
                StepPhase::Waiting => None,
                // The graph has changed since, and now has an unfinished step before this one: it waits again.
                StepPhase::Running if !step.may_begin(&progress.record) => None,
                StepPhase::Running => was.map(|was| {
                    let observed = observe(&step.name);
                    let pass = self.run(step, was, &observed, started_at, force, now);
                    if pass.acts {
                        progress.act.push(step.name.clone());
                    }
                    if pass.stopped {
                        stopped.push(step.name.clone());
                    }
                    if let (StepStatus::Blocked { by, .. }, StepPhase::Running) = (observed, pass.record.phase) {
                        blocked_by.extend(by);
                    }
                    progress.next = earliest(progress.next, pass.next);
                    pass.record
                }),
            };
            let record = record.unwrap_or_else(|| Self::begin(step, &progress.record, force, now));
            if record.phase == StepPhase::Leaked && was.is_none_or(|was| was.phase != StepPhase::Leaked) {
                progress.gave_up.push(step.name.clone());
            }
            progress.record.steps.push(record);
        }
        for unknown in published.iter().flat_map(|record| &record.steps).filter(|step| !self.has(&step.name)) {
            let record = Self::carry(unknown, force, now);
            if record.phase != unknown.phase {
                progress.gave_up.push(record.name.clone());
            }
            if !record.phase.is_over() {
                stopped.push(record.name.clone());
            }
            progress.record.steps.push(record);
        }
        progress.state = if published.is_some_and(|record| self.is_over(record)) {
            TeardownState::Released
        } else if !stopped.is_empty() {
            TeardownState::Stopped { steps: stopped }
        } else if !blocked_by.is_empty() {
            TeardownState::Blocked { by: blocked_by }
        } else {
            TeardownState::Running
        };
        progress
    }

    fn is_over(&self, record: &TeardownRecord) -> bool {
        let all_known = self.steps.iter().all(|step| record.step(&step.name).is_some());
        all_known && record.steps.iter().all(|was| was.phase.is_over())
    }

    fn has(&self, name: &str) -> bool {
        self.steps.iter().any(|step| step.name == name)
    }

    /// A recorded step that this version of the program does not know. What it left behind stays recorded. If it had
    /// begun, only a person can judge it.
    fn carry(was: &StepRecord, force: &Force, now: Timestamp) -> StepRecord {
        let mut record = was.clone();
        match was.phase {
            StepPhase::Done | StepPhase::Leaked => {}
            _ if force.covers(&was.name) => {
                record.phase = StepPhase::Leaked;
                record.finished_at = Some(now);
                record.message =
                    Some("given up by annotation: this version of the operator does not know the step".to_owned());
            }
            _ => {
                record.message =
                    Some("this version of the operator does not know the step; give it up by annotation".to_owned());
            }
        }
        record
    }

    /// One pass over a running step.
    fn run(
        &self,
        step: &Step,
        was: &StepRecord,
        observed: &StepStatus,
        whole_started_at: Timestamp,
        force: &Force,
        now: Timestamp,
    ) -> Pass {
        let mut record = was.clone();
        record.message = observed.words();
        if *observed == StepStatus::Done {
            record.phase = StepPhase::Done;
            record.finished_at = Some(now);
            record.overdue = false;
            return Pass { record, acts: false, stopped: false, next: None };
        }
        let deadlines = [(step.within, was.started_at.unwrap_or(whole_started_at)), (self.within, whole_started_at)];
        let deadline = deadlines
            .into_iter()
            .filter_map(|(within, from)| from.checked_add(SignedDuration::try_from(within?).ok()?).ok())
            .min();
        let expired = deadline.is_some_and(|deadline| deadline <= now);
        let policy = step.on_expiry.unwrap_or(self.on_expiry);
        // A step that begins after the deadline of the whole teardown still gets one chance to act.
        let has_acted = was.message.is_some();
        let forced_by = if force.covers(&step.name) {
            Some("given up by annotation")
        } else if expired && has_acted && policy == OnExpiry::Force {
            Some("given up when its deadline passed")
        } else {
            None
        };
        if let Some(why) = forced_by {
            record.phase = StepPhase::Leaked;
            record.finished_at = Some(now);
            record.overdue = expired;
            record.message = Some(format!("{why}: {}", record.message.unwrap_or_default()));
            return Pass { record, acts: false, stopped: false, next: None };
        }
        record.overdue = expired;
        let stopped = expired && policy == OnExpiry::Manual;
        // A stopped step is still observed: what it waited for may happen after all.
        let retry = match observed {
            StepStatus::Pending { retry, .. } | StepStatus::Blocked { retry, .. } => *retry,
            StepStatus::Done => None,
        };
        let next = earliest(retry, deadline.filter(|_| !expired));
        Pass { record, acts: !stopped, stopped, next }
    }

    /// A step that was not running: it starts when all steps before it are over in the record so far, which is
    /// published together with this step's start.
    fn begin(step: &Step, so_far: &TeardownRecord, force: &Force, now: Timestamp) -> StepRecord {
        let mut record = StepRecord::waiting(&step.name);
        if *force == Force::All {
            record.phase = StepPhase::Leaked;
            record.finished_at = Some(now);
            record.message = Some("given up by annotation before it started".to_owned());
        } else if step.may_begin(so_far) {
            record.phase = StepPhase::Running;
            record.started_at = Some(now);
        } else {
            let open: Vec<_> = (step.after.iter())
                .filter(|name| !so_far.step(name).is_some_and(|before| before.phase.is_over()))
                .map(String::as_str)
                .collect();
            record.message = Some(format!("after {}", open.join(", ")));
        }
        record
    }
}

struct Pass {
    record: StepRecord,
    acts: bool,
    stopped: bool,
    next: Option<Timestamp>,
}

/// Kahn's algorithm, stable: of the steps that could come next, it takes the one that was written first.
fn sorted(order: &[String], mut waiting: BTreeMap<String, Step>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::with_capacity(order.len());
    while !waiting.is_empty() {
        let ready = order.iter().find(|name| {
            waiting.get(*name).is_some_and(|step| step.after.iter().all(|before| !waiting.contains_key(before)))
        });
        // Without a cycle such a step always exists.
        let Some(step) = ready.and_then(|name| waiting.remove(name)) else { break };
        steps.push(step);
    }
    steps
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
