//! `tf-runner run`: the steps of a run, and the report that always follows.
//!
//! ```text
//!   prepare ─▶ init ─▶ plan ─┬─ empty ──────────────────────▶ outputs ─▶ Unchanged
//!                            ├─ for a person: kept ───────────────────▶ Planned
//!                            ├─ a check ──────────────────────────────▶ Checked
//!                            └─ apply ─┬─────────────────────▶ outputs ─▶ Applied
//!                                      └─ a destroy, nothing left ──────▶ Destroyed
//! ```

mod after;
mod fault;
mod steps;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::engine::{Cause, Ended, Engine, Listen};
use super::layout::{self, Layout};
use super::redact::Redactor;
use super::settings;
use super::stream::{EngineOutput, sanitized};
use super::wire::{Filing, StoreClient, Trouble};
use crate::api::v1alpha1::{Action, Diagnostic, Outcome, Severity};
use crate::run::bundle::Bundle;
use crate::run::order::{ORDER_VARIABLE, Order};
use crate::run::report::{DriftReport, NAMED_DIAGNOSTICS, OutputValues, Report, Stage};
use crate::store::inputs;

/// How long reading the results may take.
const READ_WITHIN: Duration = Duration::from_mins(2);

/// The pause between two journal entries about what Terraform begins to create.
const JOURNAL_PAUSE: Duration = Duration::from_millis(100);

/// A run.
struct Execution {
    order: Order,
    store: StoreClient,
    report: Report,
    outputs: Option<OutputValues>,
    redactor: Arc<Redactor>,
    stop: watch::Receiver<bool>,
    started: Instant,
}

/// Carries out the order in the environment, and reports the result.
///
/// # Errors
///
/// When there is no order.
pub async fn run(stop: watch::Receiver<bool>) -> Result<ExitCode, String> {
    let order: Order = settings::from_env(ORDER_VARIABLE)?;
    let mut simulation = Execution::new(order, StoreClient::new(settings::address()), stop);
    let outcome = simulation.outcome().await;
    simulation.file(outcome).await;
    let is_good = !matches!(
        outcome,
        Outcome::Failed | Outcome::TimedOut | Outcome::Interrupted | Outcome::Locked | Outcome::Stale | Outcome::Lost
    );
    let spent = |(stage, spent): (&Stage, &u64)| format!("{} {spent} ms", format!("{stage:?}").to_lowercase());
    let spent: Vec<String> = simulation.report.milliseconds.iter().map(spent).collect();
    println!("── {outcome:?}: {}, all {} ms", spent.join(", "), simulation.started.elapsed().as_millis());
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Execution {
    fn new(order: Order, store: StoreClient, stop: watch::Receiver<bool>) -> Self {
        let report = Report {
            run: order.run.clone(),
            action: order.action,
            inputs: order.inputs.clone(),
            outcome: Outcome::Failed,
            stage: Stage::Prepare,
            plan: None,
            lasting: false,
            drift: DriftReport::default(),
            diagnostics: Vec::new(),
            state: None,
            empty: false,
            unrecorded: Vec::new(),
            milliseconds: BTreeMap::new(),
            engine: String::new(),
        };
        let redactor = Arc::default();
        Self { order, store, report, outputs: None, redactor, stop, started: Instant::now() }
    }

    /// The outcome of the run: its successful end, or the reason for an early one.
    async fn outcome(&mut self) -> Outcome {
        let (bundle, layout, engine) = match self.prepare().await {
            Ok(prepared) => prepared,
            Err(outcome) => return outcome,
        };
        let outcome = match self.steps(&bundle, &layout, &engine).await {
            Ok(outcome) | Err(outcome) => outcome,
        };
        self.after(&bundle, &layout, &engine, outcome).await;
        let is_elsewhere = outcome == Outcome::Applied && bundle.backend.is_none() && self.report.state.is_none();
        if is_elsewhere {
            let detail =
                "The configured backend contains no state. Check whether the module configures another backend.";
            return self.fail("The state was saved in another backend", detail);
        }
        if outcome == Outcome::Destroyed && !self.report.empty { Outcome::Failed } else { outcome }
    }

    /// Reads and checks the inputs, and writes the files.
    async fn prepare(&mut self) -> Result<(Bundle, Layout, Engine), Outcome> {
        let started = Instant::now();
        let bundle = self.bundle(&settings::inputs()).map_err(|why| self.fail("The inputs cannot be used", &why))?;
        // The state contains values of the previous inputs, and a plan shows how they change.
        let before = inputs::read(&settings::previous()).ok().and_then(|bytes| Bundle::parse(&bytes).ok());
        let confidential = [&bundle.confidential, &before.unwrap_or_default().confidential].map(Vec::as_slice).concat();
        self.redactor = Arc::new(Redactor::new(&confidential));
        let layout = Layout::new(&settings::work(), &bundle)
            .map_err(|why| self.fail_each_time("The files of the module cannot be written", &why))?;
        let (env, refused) = layout::environment(&bundle, &layout, &settings::address());
        for name in refused {
            let detail = "The runner sets it, so the value in spec.env is ignored. Remove it from spec.env.";
            self.say(Severity::Warning, &format!("The environment variable {name} cannot be set"), Some(detail));
        }
        self.store.ready().await.map_err(|why| self.fail("The state cannot be reached", &why.to_string()))?;
        if self.order.state.adopts {
            self.store.adopt().await.map_err(|why| self.fail("The state cannot be adopted", &why.to_string()))?;
        }
        let engine = Engine {
            program: self.order.binary.program(),
            dir: layout.module.clone(),
            env,
            redactor: self.redactor.clone(),
            stop: self.stop.clone(),
            grace: self.order.grace.as_duration(),
            begun: keep_journal(self.store.clone(), self.redactor.clone()),
        };
        self.took(Stage::Prepare, started);
        Ok((bundle, layout, engine))
    }

    fn bundle(&self, folder: &Path) -> Result<Bundle, String> {
        let bytes = inputs::read(folder).map_err(|error| format!("They cannot be read: {error}"))?;
        let hash = Bundle::hash(&bytes);
        if hash != self.order.inputs {
            return Err(format!("They have the hash {hash}, but the run was created for {}", self.order.inputs));
        }
        Bundle::parse(&bytes).map_err(|error| format!("They cannot be parsed: {error}"))
    }

    /// One call of Terraform; the exit codes in `good` are not failures.
    async fn call(
        &mut self,
        engine: &Engine,
        stage: Stage,
        args: Vec<OsString>,
        until: Instant,
        good: &[i32],
    ) -> Result<Ended, Outcome> {
        let started = Instant::now();
        self.report.stage = stage;
        if *self.stop.borrow() {
            self.say(Severity::Error, "The run was asked to stop", None);
            return Err(Outcome::Interrupted);
        }
        println!("── {} {}", engine.program, args.first().map(|word| word.to_string_lossy()).unwrap_or_default());
        let ended = engine.call(&args, until, Listen::Stream).await;
        self.took(stage, started);
        let mut ended = ended.map_err(|error| self.no_engine(engine, &error))?;
        self.report.diagnostics.append(&mut ended.engine_output.diagnostics.clone());
        if let Some(name) = ended.engine_output.engine.take() {
            self.report.engine = name;
        }
        if let Some(format) = &ended.engine_output.foreign {
            let detail = format!(
                "It uses version {format} of the machine-readable output format; the runner supports version 1."
            );
            let summary = format!("This version of {} is not supported", engine.program);
            return Err(self.fail_each_time(&summary, &detail));
        }
        if ended.code().is_some_and(|code| good.contains(&code)) {
            return Ok(ended);
        }
        if stage == Stage::Apply {
            self.unrecorded(&ended);
        }
        Err(self.failed(engine, stage, &ended).await)
    }

    /// Terraform does not exist, or is not a program.
    fn no_engine(&mut self, engine: &Engine, error: &std::io::Error) -> Outcome {
        let summary = format!("{} cannot be started", engine.program);
        if error.kind() == std::io::ErrorKind::NotFound {
            let detail = format!(
                "The image has no {} in its path. Set spec.engine.image to an image that has it.",
                engine.program
            );
            return self.fail_each_time(&summary, &detail);
        }
        self.fail(&summary, &error.to_string())
    }

    /// The reason why a call failed, with additions to its message.
    async fn failed(&mut self, engine: &Engine, stage: Stage, ended: &Ended) -> Outcome {
        let what = match stage {
            Stage::Prepare | Stage::Init => "Fetching providers and modules",
            Stage::Plan => "Planning",
            Stage::Apply if self.order.action == Action::Destroy => "Destroying",
            Stage::Apply => "Applying",
            Stage::Outputs | Stage::Done => "Reading the outputs",
        };
        match ended.cause {
            Some(Cause::TimedOut) => {
                let allowed = if stage == Stage::Apply { self.order.apply_within } else { self.order.plan_within };
                let how =
                    if ended.was_killed() { "did not stop when requested, and was killed" } else { "was stopped" };
                let detail = format!("{} {how}. If it needs this long, increase spec.timeouts.", engine.program);
                self.say_first(&format!("{what} took longer than {allowed}"), Some(&detail));
                return Outcome::TimedOut;
            }
            Some(Cause::Interrupted) => {
                self.say_first(&format!("{what} was interrupted: the run was asked to stop"), None);
                return Outcome::Interrupted;
            }
            None => {}
        }
        if ended.engine_output.failed_with("Error acquiring the state lock") {
            self.name_holder().await;
            return Outcome::Locked;
        }
        if stage == Stage::Apply && is_stale(&ended.engine_output) {
            return Outcome::Stale;
        }
        if !ended.engine_output.diagnostics.iter().any(|said| said.severity == Severity::Error) {
            let tail = ended.tail.join("\n");
            let detail = Some(tail.as_str()).filter(|tail| !tail.is_empty());
            self.say(Severity::Error, &format!("{} ended with {}", engine.program, ended.status), detail);
        }
        self.explain_shell();
        self.report.lasting = matches!(stage, Stage::Init | Stage::Plan) && fault::is_of_inputs(engine, ended).await;
        Outcome::Failed
    }

    /// Terraform names itself where it should name the holder of the lock.
    async fn name_holder(&mut self) {
        let Ok(Some(holder)) = self.store.lock().await else { return };
        let text = |key: &str| holder[key].as_str().unwrap_or("unknown").to_owned();
        let detail = format!("{} holds it since {}, for {}.", text("Who"), text("Created"), text("Operation"));
        for said in &mut self.report.diagnostics {
            if said.summary.contains("Error acquiring the state lock") {
                said.detail = Some(sanitized(&detail, &self.redactor));
            }
        }
    }

    /// Adds a diagnostic that Terraform does not report.
    fn say(&mut self, severity: Severity, summary: &str, detail: Option<&str>) {
        let sanitized = |text: &str| sanitized(text, &self.redactor);
        let said = Diagnostic {
            severity,
            summary: sanitized(summary),
            detail: detail.map(sanitized),
            ..Diagnostic::default()
        };
        println!("{}", super::stream::words(&said));
        self.report.diagnostics.push(said);
    }

    /// Adds the reason why Terraform was stopped, before its own messages about being stopped.
    fn say_first(&mut self, summary: &str, detail: Option<&str>) {
        self.say(Severity::Error, summary, detail);
        self.report.diagnostics.rotate_right(1);
    }

    fn fail(&mut self, summary: &str, detail: &str) -> Outcome {
        self.say(Severity::Error, summary, Some(detail));
        Outcome::Failed
    }

    /// The same for a failure that would repeat with the same inputs.
    fn fail_each_time(&mut self, summary: &str, detail: &str) -> Outcome {
        self.report.lasting = true;
        self.fail(summary, detail)
    }

    fn took(&mut self, stage: Stage, since: Instant) {
        let spent = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        *self.report.milliseconds.entry(stage).or_default() += spent;
    }

    /// The deadline for fetching and planning.
    fn planned_by(&self) -> Instant {
        self.started + self.order.plan_within.as_duration()
    }

    /// Files the report. Without a store, the part that contains no values is written where the kubelet finds it.
    async fn file(&mut self, outcome: Outcome) {
        self.report.outcome = outcome;
        self.report.diagnostics = each_once(std::mem::take(&mut self.report.diagnostics));
        let filing = Filing { report: self.report.clone(), outputs: self.outputs.take() };
        let Err(trouble) = self.store.file(&filing).await else { return };
        println!("The report cannot be saved: {trouble}");
        let first = self.report.diagnostics.first().map(|said| said.summary.as_str());
        let words = json!({
            "run": self.report.run, "action": self.report.action, "outcome": outcome, "stage": self.report.stage,
            "summary": first,
        });
        if let Err(error) = std::fs::write(settings::termination_log(), format!("{words}\n")) {
            println!("The termination message cannot be written either: {error}");
        }
    }
}

/// Sends what Terraform begins to create to the store, as long as it may begin something.
fn keep_journal(store: StoreClient, redactor: Arc<Redactor>) -> UnboundedSender<String> {
    let (sender, mut begun) = unbounded_channel::<String>();
    tokio::spawn(async move {
        while let Some(address) = begun.recv().await {
            let mut some: BTreeMap<String, String> = BTreeMap::new();
            let mut next = Some(address);
            while let Some(address) = next {
                let words = sanitized(&address, &redactor);
                some.insert(address, words);
                next = begun.try_recv().ok();
            }
            while let Err(Trouble::Away(_)) = store.note(&some).await {
                sleep(JOURNAL_PAUSE).await;
            }
            sleep(JOURNAL_PAUSE).await;
        }
    });
    sender
}

/// Whether a plan was refused because it no longer fits the state.
fn is_stale(engine_output: &EngineOutput) -> bool {
    engine_output.failed_with("Saved plan is stale") || engine_output.failed_with("Inconsistent dependency lock file")
}

/// The first diagnostics, errors first, without duplicates: plan and apply may report the same.
fn each_once(mut all: Vec<Diagnostic>) -> Vec<Diagnostic> {
    all.sort_by_key(|said| said.severity);
    let mut first = Vec::new();
    for said in all {
        if first.len() < NAMED_DIAGNOSTICS && !first.contains(&said) {
            first.push(said);
        }
    }
    first
}

/// An argument list.
fn args<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.map(OsString::from).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_plan_and_apply_both_say_is_reported_once_and_errors_come_first() {
        let said =
            |severity, summary: &str| Diagnostic { severity, summary: summary.to_owned(), ..Diagnostic::default() };
        let warnings = || ["old syntax", "old name"].map(|summary| said(Severity::Warning, summary));
        let all = warnings().into_iter().chain(warnings()).chain([said(Severity::Error, "no such thing")]);
        let sanitized: Vec<String> = each_once(all.collect()).into_iter().map(|said| said.summary).collect();
        assert_eq!(sanitized, ["no such thing", "old syntax", "old name"]);
        let many = (0..100).map(|number| said(Severity::Error, &number.to_string())).collect();
        assert_eq!(each_once(many).len(), NAMED_DIAGNOSTICS);
    }
}
