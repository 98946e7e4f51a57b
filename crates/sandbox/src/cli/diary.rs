//! Records and shows the progress of a start.

use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;

use crate::control_plane::Observer;
use crate::home::Home;
use crate::process::ProcessId;
use crate::progress::{Step, human};
use crate::state::{self, Record, State};
use crate::{Component, Part};

/// Records the state at every step, so that a start that is killed can be cleaned up.
pub(super) struct Diary {
    home: Home,
    state: Mutex<State>,
    times: Mutex<Vec<(Component, Duration)>>,
}

impl Diary {
    pub(super) fn new(home: Home, state: State) -> Self {
        Self { home, state: Mutex::new(state), times: Mutex::default() }
    }

    pub(super) fn state(&self) -> State {
        lock(&self.state).clone()
    }

    /// What the start is waiting for.
    fn waits_for(&self) -> String {
        let ready = lock(&self.times).clone();
        let state = lock(&self.state);
        let mut started = state.components.keys().map(|c| c.name());
        let waiting: Vec<&str> = started.by_ref().filter(|c| ready.iter().all(|(r, _)| r.name() != *c)).collect();
        match waiting.as_slice() {
            [] if ready.is_empty() => "making certificates".to_owned(),
            [] if ready.last().is_some_and(|(last, _)| matches!(last, Component::Part(_))) => "adding parts".to_owned(),
            [] if state.node => "waiting for the node and its names".to_owned(),
            [] => "waiting for the first ServiceAccount".to_owned(),
            names => format!("starting {}", names.join(", ")),
        }
    }

    pub(super) fn breakdown(&self) -> String {
        let times = lock(&self.times);
        let parts: Vec<String> =
            times.iter().map(|(component, took)| format!("{component} {}", human(*took))).collect();
        parts.join(", ")
    }
}

impl Observer for Diary {
    fn spawned(&self, component: Component, process: &ProcessId, port: u16) -> anyhow::Result<()> {
        let mut state = lock(&self.state);
        let record = Record { process: process.clone(), port, started: Timestamp::now() };
        state.components.insert(component, record);
        state::write(&self.home, &state)
    }

    fn ready(&self, component: Component, took: Duration) {
        lock(&self.times).push((component, took));
    }

    fn added(&self, part: Part) -> anyhow::Result<()> {
        let mut state = lock(&self.state);
        state.parts.insert(part);
        state::write(&self.home, &state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Does the work of a start, and shows meanwhile what it waits for.
pub(super) async fn watched<T>(
    start: impl Future<Output = anyhow::Result<T>>,
    diary: &Diary,
    mut step: Step,
) -> anyhow::Result<T> {
    let mut start = std::pin::pin!(start);
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            result = &mut start => return result,
            _ = ticks.tick() => step.update(&diary.waits_for()),
        }
    }
}
