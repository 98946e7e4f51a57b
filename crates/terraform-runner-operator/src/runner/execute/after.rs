//! The steps after every run, whether it succeeded or failed: rescue the state, and determine what exists.

use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use super::{Execution, READ_WITHIN, args};
use crate::api::v1alpha1::{Action, Binary, Outcome, Severity};
use crate::run::bundle::Bundle;
use crate::run::names::Names;
use crate::run::report::{NAMED_RESOURCES, StateReport};
use crate::runner::engine::{Ended, Engine, Listen};
use crate::runner::layout::{ERRORED, Layout};
use crate::runner::stream::sanitized;
use crate::runner::wire::Trouble;
use crate::store::state::{addresses, is_data};

/// How long a rescue is attempted, and the pause between two attempts.
const RESCUE_WITHIN: Duration = Duration::from_mins(1);
const RESCUE_PAUSE: Duration = Duration::from_millis(500);
/// How many of the resources that a destroy left are named.
const NAMED_LEFT: usize = 5;

/// What is left after a destroy. A state that cannot be read never counts as empty.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// These resources are left, as far as they can be named.
    Something(Vec<String>),
    /// It cannot be determined, for this reason.
    Unknown(String),
}

impl Execution {
    /// Rescues the state if needed, and completes the report.
    pub(super) async fn after(&mut self, bundle: &Bundle, layout: &Layout, engine: &Engine, outcome: Outcome) {
        let mut kept = None;
        self.rescue(bundle, layout, engine).await;
        if bundle.backend.is_none() {
            let summary = self.store.summary().await;
            match &summary {
                Ok(state) => self.report.state.clone_from(state),
                Err(why) => self.say(Severity::Error, "The state cannot be read", Some(&why.to_string())),
            }
            kept = Some(summary);
        }
        if self.order.action == Action::Destroy && outcome == Outcome::Destroyed {
            match left(kept, engine).await {
                Left::Nothing => self.report.empty = true,
                Left::Something(what) => self.say_left(&what),
                Left::Unknown(why) => {
                    self.say(Severity::Error, "It could not be determined whether resources are left", Some(&why));
                }
            }
        }
        if outcome == Outcome::Unchanged && bundle.backend.is_some() {
            self.report.empty = shows_nothing(engine).await;
        }
        if self.report.engine.is_empty() {
            self.ask_version(engine).await;
        }
        self.report.unrecorded = self.still_unrecorded().await;
    }

    /// Whether the state contains anything that a destroy should have removed.
    pub(super) async fn leaves_something(&self, engine: &Engine, is_managed: bool) -> bool {
        let kept = if is_managed { Some(self.store.summary().await) } else { None };
        matches!(left(kept, engine).await, Left::Something(_))
    }

    fn say_left(&mut self, what: &[String]) {
        let detail = (!what.is_empty()).then(|| {
            let named = what.iter().take(NAMED_LEFT).cloned().collect::<Vec<_>>().join(", ");
            let others = what.len().saturating_sub(NAMED_LEFT);
            let others = if others > 0 { format!(", and {others} more") } else { String::new() };
            format!("The state still contains {named}{others}.")
        });
        self.say(Severity::Error, "Resources are left after the destroy", detail.as_deref());
    }

    /// Saves what Terraform could not save: in the cluster first, which is fast, and then in its backend.
    async fn rescue(&mut self, bundle: &Bundle, layout: &Layout, engine: &Engine) {
        let Ok(state) = std::fs::read(layout.module.join(ERRORED)) else { return };
        let started = Instant::now();
        let kept = loop {
            match self.store.rescue(state.clone()).await {
                Err(Trouble::Away(_)) if started.elapsed() < RESCUE_WITHIN => sleep(RESCUE_PAUSE).await,
                kept => break kept,
            }
        };
        let secret = Names::of_job(&self.order.run).state();
        match kept {
            Ok(()) if bundle.backend.is_none() => self.rescued(),
            _ if bundle.backend.is_some() && self.push(engine).await => {}
            Ok(()) => {
                let detail = format!(
                    "It is stored in Secret {secret} and its chunks. The next run pushes it to the backend before it plans."
                );
                self.say(Severity::Error, "The state was rescued, but its backend does not accept it", Some(&detail));
            }
            Err(trouble) => self.say(Severity::Error, "The state of this run is lost", Some(&trouble.to_string())),
        }
    }

    /// Pushes what Terraform could not save into its own backend. Returns whether that succeeded.
    pub(super) async fn push(&mut self, engine: &Engine) -> bool {
        let started = Instant::now();
        loop {
            let pushed = engine
                .call(&args(["state", "push", "-no-color", ERRORED]), Instant::now() + RESCUE_WITHIN, Listen::Keep)
                .await;
            if pushed.is_ok_and(|pushed| pushed.code() == Some(0)) {
                self.rescued();
                return true;
            }
            if started.elapsed() >= RESCUE_WITHIN || *self.stop.borrow() {
                return false;
            }
            sleep(RESCUE_PAUSE).await;
        }
    }

    fn rescued(&mut self) {
        let detail = "Terraform could not save it at the end of the run; the runner saved it instead. Nothing is lost.";
        self.say(Severity::Warning, "The state was rescued", Some(detail));
    }

    /// Records what Terraform began to create, if it was killed or could not save. A rescue shows whether it is in the
    /// state.
    pub(super) fn unrecorded(&mut self, ended: &Ended) {
        let is_lost = ended.was_killed()
            || ended.engine_output.failed_with("Failed to persist state")
            || ended.engine_output.failed_with("Failed to save state");
        if is_lost {
            self.report.unrecorded.clone_from(&ended.engine_output.begun);
        }
    }

    async fn still_unrecorded(&mut self) -> Vec<String> {
        let begun = std::mem::take(&mut self.report.unrecorded);
        if begun.is_empty() {
            return begun;
        }
        let state = self.store.state().await.ok().flatten().unwrap_or_default();
        let known = addresses(&state).unwrap_or_default();
        let lost = begun.into_iter().filter(|address| !known.contains(address));
        lost.map(|address| sanitized(&address, &self.redactor)).take(NAMED_RESOURCES).collect()
    }

    /// Asks for the version if the run did not get far enough to learn it.
    async fn ask_version(&mut self, engine: &Engine) {
        let asked = engine.call(&args(["version", "-json"]), Instant::now() + READ_WITHIN, Listen::Keep).await;
        let said: Value = asked.ok().and_then(|asked| serde_json::from_slice(&asked.kept).ok()).unwrap_or_default();
        let name = if self.order.binary == Binary::Tofu { "OpenTofu" } else { "Terraform" };
        if let Some(version) = said["terraform_version"].as_str() {
            self.report.engine = format!("{name} v{version}");
        }
    }
}

/// What is left after a destroy, according to the state in `kept`; none if it is in another backend.
async fn left(kept: Option<Result<Option<StateReport>, Trouble>>, engine: &Engine) -> Left {
    match kept {
        Some(Ok(Some(StateReport { resources: 0, .. }))) => Left::Nothing,
        Some(Ok(Some(StateReport { resources: 1.., .. }))) => match listed(engine).await {
            Left::Nothing | Left::Unknown(_) => Left::Something(Vec::new()),
            named @ Left::Something(_) => named,
        },
        // The state is encrypted, or in another backend: only Terraform can read it.
        Some(Ok(Some(_))) | None => listed(engine).await,
        // A destroy is ordered only if there is a state: it has disappeared since, and with it what was known.
        Some(Ok(None)) => Left::Unknown("There is no state.".to_owned()),
        Some(Err(why)) => Left::Unknown(why.to_string()),
    }
}

/// What is left, according to Terraform itself.
async fn listed(engine: &Engine) -> Left {
    match engine.call(&args(["state", "list", "-no-color"]), Instant::now() + READ_WITHIN, Listen::Keep).await {
        Ok(listed) if listed.code() == Some(0) => {
            // Data sources are nothing that could be destroyed.
            let text = String::from_utf8_lossy(&listed.kept);
            let all = text.lines().map(str::trim).filter(|line| !line.is_empty() && !is_data(line));
            let all: Vec<String> = all.map(str::to_owned).collect();
            if all.is_empty() { Left::Nothing } else { Left::Something(all) }
        }
        Ok(listed) => {
            let tail = listed.tail.join("\n");
            Left::Unknown(format!("{} state list ended with {}. {tail}", engine.program, listed.status))
        }
        Err(error) => Left::Unknown(format!("{} cannot be started: {error}", engine.program)),
    }
}

/// Whether Terraform itself shows a state without resources, or no state.
async fn shows_nothing(engine: &Engine) -> bool {
    let shown = engine.call(&args(["show", "-json", "-no-color"]), Instant::now() + READ_WITHIN, Listen::Keep).await;
    let shown = shown.ok().filter(|shown| shown.code() == Some(0));
    let shown: Option<Value> = shown.and_then(|shown| serde_json::from_slice(&shown.kept).ok());
    shown.is_some_and(|shown| {
        let root = &shown["values"]["root_module"];
        shown.is_object() && root["resources"].is_null() && root["child_modules"].is_null()
    })
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;

    fn engine(program: &'static str, stop: watch::Receiver<bool>) -> Engine {
        let (dir, grace) = (std::env::temp_dir(), Duration::from_secs(1));
        let (begun, _) = tokio::sync::mpsc::unbounded_channel();
        Engine { program, dir, env: [].into(), redactor: std::sync::Arc::default(), stop, grace, begun }
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_never_taken_for_nothing() {
        let (_told, stop) = watch::channel(false);
        let tofu = |program| engine(program, stop.clone());
        let state = |resources| Some(Ok(Some(StateReport { resources, ..StateReport::default() })));
        assert_eq!(left(state(0), &tofu("false")).await, Left::Nothing);
        assert_eq!(left(state(2), &tofu("true")).await, Left::Something(Vec::new()), "which of them is not known");
        for kept in [None, state(-1)] {
            assert_eq!(left(kept, &tofu("true")).await, Left::Nothing, "an empty list");
        }
        for kept in [None, state(-1)] {
            let listed = Left::Something(vec!["state list -no-color".to_owned()]);
            assert_eq!(left(kept, &tofu("echo")).await, listed, "a list of something");
        }
        let unreadable = || Some(Err(Trouble::Away("it is away".to_owned())));
        for (kept, program) in
            [(None, "false"), (state(-1), "nowhere"), (unreadable(), "true"), (Some(Ok(None)), "true")]
        {
            let left = left(kept, &tofu(program)).await;
            assert!(matches!(left, Left::Unknown(_)), "{program}: {left:?}");
        }
    }
}
