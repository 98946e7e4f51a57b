//! What follows every run, good or bad: rescue the state, and find out what is there.

use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use super::{Play, READ_WITHIN, args};
use crate::api::v1alpha1::{Action, Binary, Outcome, Severity};
use crate::run::bundle::Bundle;
use crate::run::report::NAMED_RESOURCES;
use crate::runner::engine::{Ended, Engine, Listen};
use crate::runner::layout::{ERRORED, Layout};
use crate::runner::wire::Trouble;
use crate::store::state::addresses;

/// How long a rescue is tried, and the pause between two attempts.
const RESCUE_WITHIN: Duration = Duration::from_mins(1);
const RESCUE_PAUSE: Duration = Duration::from_millis(500);

impl Play {
    /// Rescues the state if that is needed, and completes the report.
    pub(super) async fn after(&mut self, bundle: &Bundle, layout: &Layout, engine: &Engine, outcome: Outcome) {
        if bundle.backend.is_none() {
            self.rescue(layout).await;
            match self.store.summary().await {
                Ok(state) => self.report.state = state,
                Err(why) => self.say(Severity::Error, "The state cannot be read", Some(&why.to_string())),
            }
        }
        if self.order.action == Action::Destroy && outcome == Outcome::Destroyed {
            self.report.empty = self.is_empty(bundle, engine).await;
        }
        if self.report.engine.is_empty() {
            self.ask_version(engine).await;
        }
        self.report.unrecorded = self.still_unrecorded().await;
    }

    /// Saves what Terraform could not.
    async fn rescue(&mut self, layout: &Layout) {
        let Ok(state) = std::fs::read(layout.module.join(ERRORED)) else { return };
        let started = Instant::now();
        let trouble = loop {
            match self.store.rescue(state.clone()).await {
                Ok(()) => {
                    let detail = "Terraform could not save it at the end of its work. Nothing is lost.";
                    return self.say(Severity::Warning, "The state was rescued", Some(detail));
                }
                Err(Trouble::Away(_)) if started.elapsed() < RESCUE_WITHIN => sleep(RESCUE_PAUSE).await,
                Err(trouble) => break trouble,
            }
        };
        self.say(Severity::Error, "The state of this run is lost", Some(&trouble.to_string()));
    }

    /// Whether Terraform itself says that nothing is left.
    async fn is_empty(&mut self, bundle: &Bundle, engine: &Engine) -> bool {
        let known = self.report.state.as_ref().map(|state| state.resources);
        match (bundle.backend.is_none(), known) {
            (true, None | Some(0)) => true,
            (true, Some(1..)) => false,
            // The state is elsewhere, or encrypted.
            _ => {
                let listed = engine.call(&args(["state", "list"]), Instant::now() + READ_WITHIN, Listen::Keep).await;
                listed.is_ok_and(|listed| listed.code() == Some(0) && listed.kept.trim_ascii().is_empty())
            }
        }
    }

    /// What Terraform began to make, when it was killed or could not save. Whether the state has it is seen after a rescue.
    pub(super) fn unrecorded(&mut self, ended: &Ended) {
        let is_lost = ended.was_killed()
            || ended.heard.failed_with("Failed to persist state")
            || ended.heard.failed_with("Failed to save state");
        if is_lost {
            self.report.unrecorded = ended.heard.begun.iter().cloned().collect();
        }
    }

    async fn still_unrecorded(&mut self) -> Vec<String> {
        let begun = std::mem::take(&mut self.report.unrecorded);
        if begun.is_empty() {
            return begun;
        }
        let state = self.store.state().await.ok().flatten().unwrap_or_default();
        let known = addresses(&state);
        let lost = begun.into_iter().filter(|address| !known.contains(address));
        lost.map(|address| self.redactor.clean(&address).into_owned()).take(NAMED_RESOURCES).collect()
    }

    /// Asks for the version where the run did not get far enough to hear it.
    async fn ask_version(&mut self, engine: &Engine) {
        let asked = engine.call(&args(["version", "-json"]), Instant::now() + READ_WITHIN, Listen::Keep).await;
        let said: Value = asked.ok().and_then(|asked| serde_json::from_slice(&asked.kept).ok()).unwrap_or_default();
        let name = if self.order.binary == Binary::Tofu { "OpenTofu" } else { "Terraform" };
        if let Some(version) = said["terraform_version"].as_str() {
            self.report.engine = format!("{name} v{version}");
        }
    }
}
