//! Init, plan, apply, outputs: the steps of the actions.

use std::collections::BTreeSet;
use std::ffi::OsString;

use k8s_openapi::ByteString;
use opcore::digest;
use tokio::time::Instant;

use super::{Execution, READ_WITHIN, args};
use crate::api::v1alpha1::{Action, ApprovalReason, ChangedResource, Outcome, Severity};
use crate::run::bundle::{Bundle, ERRORED};
use crate::run::report::{DriftReport, NAMED_RESOURCES, OutputValues, PlanReport, Stage, is_key};
use crate::runner::engine::{Engine, Listen};
use crate::runner::layout::{Layout, put};
use crate::runner::providers::{self, LOCKFILE};
use crate::runner::stream::EngineOutput;
use crate::runner::wire::PlanFiling;
use crate::store::places::Facts;
use crate::store::state::facts;

const UNREADABLE: &str = "The state cannot be read";
/// How many digits of its digest name a plan.
const PLAN_ID: usize = 12;
/// The exit code of a plan that is not empty.
const CHANGES: i32 = 2;

impl Execution {
    /// All steps. Returns a successful end, or the reason for an early one.
    pub(super) async fn steps(
        &mut self,
        bundle: &Bundle,
        layout: &Layout,
        engine: &Engine,
    ) -> Result<Outcome, Outcome> {
        let versions = self.init(bundle, layout, engine).await?;
        let is_managed = bundle.backend.is_none();
        if !is_managed && self.order.state.same_place && self.order.action != Action::Check {
            self.push_rescued(layout, engine).await?;
        }
        if self.order.state.expected && !self.has_state(engine, is_managed).await? {
            let detail = "Without it, all resources would be created again. Restore it; or, to create all resources again, run: opctl tf replan.";
            return Err(self.fail("The state is missing", detail));
        }
        match self.order.action {
            Action::Check => return self.check(engine).await,
            _ if self.order.plan.is_some() => self.fetch(layout).await?,
            _ => {
                let (changes, engine_output) = self.plan(layout, engine, is_managed).await?;
                if self.order.action != Action::Destroy {
                    self.check_variables(bundle, layout, engine, &engine_output).await?;
                    self.keep_versions(bundle, layout, versions.as_deref()).await?;
                }
                if !changes {
                    return self.unchanged(&engine_output, layout, engine, is_managed).await;
                }
                let waits = match self.order.action {
                    Action::Plan => true,
                    Action::Apply => match self.approval_reason(&engine_output) {
                        Some(ApprovalReason::ReplacesTainted) => true,
                        reason => self.order.stop_if_destroys && reason.is_some(),
                    },
                    // To destroy is the purpose of the run.
                    Action::Check | Action::Destroy => false,
                };
                if waits {
                    return self.keep(layout, engine).await;
                }
            }
        }
        self.apply(layout, engine).await?;
        if self.order.action == Action::Destroy {
            self.report.stage = Stage::Done;
            return Ok(Outcome::Destroyed);
        }
        self.read_outputs(engine).await?;
        Ok(Outcome::Applied)
    }

    /// Whether there is a state, even an empty one.
    async fn has_state(&mut self, engine: &Engine, is_managed: bool) -> Result<bool, Outcome> {
        if is_managed {
            let summary = self.store.summary().await;
            return Ok(summary.map_err(|why| self.fail(UNREADABLE, &why.to_string()))?.is_some());
        }
        Ok(self.pull(engine).await?.is_some())
    }

    /// What is known of the state in another backend; none if it does not exist.
    async fn pull(&mut self, engine: &Engine) -> Result<Option<Facts>, Outcome> {
        let pulled =
            engine.call(&args(["state", "pull", "-no-color"]), Instant::now() + READ_WITHIN, Listen::Keep).await;
        let pulled = pulled.map_err(|error| self.fail(UNREADABLE, &error.to_string()))?;
        if pulled.code() != Some(0) {
            return Err(self.fail(UNREADABLE, &pulled.tail.join("\n")));
        }
        // If there is no state, some backends print nothing, and others a state without a lineage.
        let facts = Some(&pulled.kept).filter(|bytes| !bytes.trim_ascii().is_empty()).map(|bytes| facts(bytes));
        let facts = facts.transpose().map_err(|why| self.fail(UNREADABLE, &why.to_string()))?;
        Ok(facts.filter(|facts| !(facts.lineage.is_empty() && facts.resources == Some(0))))
    }

    /// Pushes a state that an earlier run could save only in the cluster, before anything is planned without it.
    async fn push_rescued(&mut self, layout: &Layout, engine: &Engine) -> Result<(), Outcome> {
        let kept = self.store.state().await.map_err(|why| self.fail(UNREADABLE, &why.to_string()))?;
        let Some(kept) = kept else { return Ok(()) };
        let rescued = facts(&kept).map_err(|why| self.fail(UNREADABLE, &why.to_string()))?;
        let newer = |there: &Facts| there.lineage == rescued.lineage && there.serial < rescued.serial;
        if self.pull(engine).await?.is_some_and(|there| !newer(&there)) {
            return Ok(());
        }
        let file = layout.module.join(ERRORED);
        put(&file, &kept).map_err(|error| self.fail("A state cannot be written", &error.to_string()))?;
        let pushed = self.push(engine).await;
        let _ = std::fs::remove_file(file);
        if pushed { Ok(()) } else { Err(self.fail("The backend does not accept a state that was rescued", "")) }
    }

    /// Fetches providers and modules. Returns the kept provider versions, if they were to be used.
    async fn init(&mut self, bundle: &Bundle, layout: &Layout, engine: &Engine) -> Result<Option<String>, Outcome> {
        let kept = self.kept_versions(bundle).await?;
        let file = layout.module.join(LOCKFILE);
        let unwritten = "The versions of providers cannot be written";
        if let Some(kept) = &kept {
            put(&file, providers::reused(kept).as_bytes()).map_err(|error| self.fail(unwritten, &error.to_string()))?;
        }
        let before = self.report.diagnostics.len();
        let failed = match self.init_once(layout, engine).await {
            Ok(()) => return Ok(kept),
            Err(failed) => failed,
        };
        let said = self.report.diagnostics.get(before..).unwrap_or_default();
        let of_providers = failed == Outcome::Failed && said.iter().any(|said| said.summary.contains("provider"));
        let others = kept.as_deref().filter(|_| of_providers).and_then(providers::of_registries);
        let (Some(kept), Some(others)) = (kept, others) else { return Err(failed) };
        // The image may have changed since, and contain other provider versions.
        let first = self.report.diagnostics.split_off(before);
        let _ = std::fs::remove_file(&file);
        put(&file, others.as_bytes()).map_err(|error| self.fail(unwritten, &error.to_string()))?;
        if let Err(again) = self.init_once(layout, engine).await {
            self.report.diagnostics.truncate(before);
            self.report.diagnostics.extend(first);
            return Err(again);
        }
        self.report.lasting = false;
        let now = std::fs::read_to_string(&file).unwrap_or_default();
        let changed = providers::changed(&kept, &now);
        if !changed.is_empty() {
            let detail = format!(
                "The versions that were used before are no longer available in the image. Now used: {}.",
                changed.join(", ")
            );
            self.say(Severity::Warning, "Other versions of providers are used", Some(&detail));
        }
        Ok(Some(kept))
    }

    async fn init_once(&mut self, layout: &Layout, engine: &Engine) -> Result<(), Outcome> {
        let mut words = args(["init", "-input=false", "-json"]);
        if let Some(file) = &layout.backend {
            let mut option = OsString::from("-backend-config=");
            option.push(file);
            words.push(option);
        }
        self.call(engine, Stage::Init, words, self.planned_by(), &[0]).await.map(drop)
    }

    /// The provider versions to use again. A module may define its own.
    async fn kept_versions(&mut self, bundle: &Bundle) -> Result<Option<String>, Outcome> {
        if bundle.files.contains_key(LOCKFILE) || self.order.upgrade {
            return Ok(None);
        }
        let kept = self.store.lockfile().await;
        let kept = kept.map_err(|why| self.fail("The versions of providers cannot be read", &why.to_string()))?;
        Ok(kept.map(|kept| String::from_utf8_lossy(&kept).into_owned()))
    }

    /// Keeps the provider versions with which a plan could be made.
    async fn keep_versions(&mut self, bundle: &Bundle, layout: &Layout, kept: Option<&str>) -> Result<(), Outcome> {
        let Ok(used) = std::fs::read(layout.module.join(LOCKFILE)) else { return Ok(()) };
        if bundle.files.contains_key(LOCKFILE) || kept.map(str::as_bytes) == Some(&used) {
            return Ok(());
        }
        let kept = self.store.keep_lockfile(used).await;
        kept.map_err(|why| self.fail("The versions of providers cannot be stored", &why.to_string()))
    }

    /// Compares reality with the state. Nothing is written, so no lock is needed.
    async fn check(&mut self, engine: &Engine) -> Result<Outcome, Outcome> {
        let words = args(["plan", "-input=false", "-json", "-detailed-exitcode", "-lock=false"]);
        let ended = self.call(engine, Stage::Plan, words, self.planned_by(), &[0, CHANGES]).await?;
        self.report.drift = drift(&ended.engine_output);
        self.report_not_drifted(&ended.engine_output);
        self.report.stage = Stage::Done;
        Ok(Outcome::Checked)
    }

    /// Reports what the plan would change although its inputs are the applied ones and reality matches the state.
    fn report_not_drifted(&mut self, engine_output: &EngineOutput) {
        let drifted: BTreeSet<&str> = engine_output.drifted.iter().map(|change| change.address.as_str()).collect();
        let others = engine_output.planned.iter().filter(|change| !drifted.contains(change.address.as_str()));
        let others: Vec<String> = others.map(|change| format!("{} ({})", change.address, change.action)).collect();
        if !others.is_empty() {
            let detail = format!(
                "They match the state, but the module changes them in every run, as with timestamp(), or \
                 reads data that has changed: {}.",
                others.join(", ")
            );
            let summary = format!("The next apply would change {} that did not drift", resources(others.len()));
            self.say(Severity::Warning, &summary, Some(&detail));
        }
    }

    /// Makes a plan. Returns whether it changes anything.
    async fn plan(
        &mut self,
        layout: &Layout,
        engine: &Engine,
        is_managed: bool,
    ) -> Result<(bool, EngineOutput), Outcome> {
        let mut serial = 0;
        if is_managed {
            let summary = self.store.summary().await;
            let summary = summary.map_err(|why| self.fail(UNREADABLE, &why.to_string()))?;
            serial = summary.map_or(0, |state| state.serial);
        }
        let mut words = args(["plan", "-input=false", "-json", "-detailed-exitcode"]);
        if self.order.action == Action::Destroy {
            words.push("-destroy".into());
        }
        let mut option = OsString::from("-out=");
        option.push(&layout.plan);
        words.push(option);
        let ended = self.call(engine, Stage::Plan, words, self.planned_by(), &[0, CHANGES]).await?;
        let engine_output = ended.engine_output.clone();
        self.report.drift = drift(&engine_output);
        let file =
            std::fs::read(&layout.plan).map_err(|error| self.fail("The plan cannot be read", &error.to_string()))?;
        let counts = engine_output.counts.unwrap_or_default();
        self.report.plan = Some(PlanReport {
            id: digest::of_bytes(&file).chars().take(PLAN_ID).collect(),
            serial,
            add: counts.add,
            change: counts.change,
            destroy: counts.remove,
            import: counts.import,
            moved: engine_output.moved,
            forget: engine_output.forgets(),
            approval_reason: self.approval_reason(&engine_output),
            resources: first(&engine_output.planned),
        });
        Ok((ended.code() == Some(CHANGES), engine_output))
    }

    /// Why a person should look at a plan.
    fn approval_reason(&self, engine_output: &EngineOutput) -> Option<ApprovalReason> {
        if self.order.stop_if_tainted && !engine_output.tainted.is_empty() {
            return Some(ApprovalReason::ReplacesTainted);
        }
        let destroys = engine_output.destroys().then_some(ApprovalReason::Destroys);
        destroys.or_else(|| (engine_output.forgets() > 0).then_some(ApprovalReason::Forgets))
    }

    /// There is nothing to change. But the state may contain resources that are gone or have changed. The plan has seen
    /// that, and only an apply saves what it saw, even if the plan is empty. Without it, each comparison would find the
    /// same difference again, and resources that are already gone would seem to be left after each destroy.
    async fn unchanged(
        &mut self,
        engine_output: &EngineOutput,
        layout: &Layout,
        engine: &Engine,
        is_managed: bool,
    ) -> Result<Outcome, Outcome> {
        if self.order.action == Action::Destroy {
            // If no state is known, none is created: an empty one would be read as "nothing left".
            if self.leaves_something(engine, is_managed).await {
                self.apply(layout, engine).await?;
            }
            self.report.stage = Stage::Done;
            return Ok(Outcome::Destroyed);
        }
        if !engine_output.drifted.is_empty() {
            self.apply(layout, engine).await?;
        }
        self.read_outputs(engine).await?;
        Ok(Outcome::Unchanged)
    }

    /// Keeps the plan for a person, with the text that the person reads.
    async fn keep(&mut self, layout: &Layout, engine: &Engine) -> Result<Outcome, Outcome> {
        let started = Instant::now();
        let mut words = args(["show", "-no-color"]);
        words.push(layout.plan.clone().into());
        let shown = engine.call(&words, Instant::now() + READ_WITHIN, Listen::Keep).await;
        // A plan that cannot be read must not be approved.
        let unreadable = "The plan cannot be shown";
        let shown = shown.map_err(|error| self.fail(unreadable, &error.to_string()))?;
        if shown.code() != Some(0) {
            let why = format!("{} show ended with {}. {}", engine.program, shown.status, shown.tail.join("\n"));
            return Err(self.fail(unreadable, why.trim_end()));
        }
        let text = self.redactor.clean(&String::from_utf8_lossy(&shown.kept)).into_owned();
        let file =
            std::fs::read(&layout.plan).map_err(|error| self.fail("The plan cannot be read", &error.to_string()))?;
        let report = self.report.plan.clone().unwrap_or_default();
        let filing = PlanFiling { report, inputs: self.order.inputs.clone(), text, file: ByteString(file) };
        let kept = self.store.keep(&filing).await;
        self.took(Stage::Plan, started);
        kept.map_err(|why| self.fail("The plan cannot be stored", &why.to_string()))?;
        self.report.stage = Stage::Done;
        Ok(Outcome::Planned)
    }

    /// Fetches the approved plan.
    async fn fetch(&mut self, layout: &Layout) -> Result<(), Outcome> {
        let wanted = self.order.plan.clone().unwrap_or_default();
        let found = self.store.plan().await.map_err(|why| self.fail("The plan cannot be read", &why.to_string()))?;
        let Some(found) = found else {
            self.say(Severity::Error, &format!("The plan {wanted} is no longer stored"), None);
            return Err(Outcome::Stale);
        };
        let digest = digest::of_bytes(&found.file.0);
        let is_wanted =
            found.kept.report.id == wanted && digest.starts_with(&wanted) && found.kept.inputs == self.order.inputs;
        if !is_wanted {
            let detail = format!(
                "The stored plan is {}, which was made from other inputs or at another time.",
                found.kept.report.id
            );
            self.say(Severity::Error, &format!("The plan {wanted} is no longer stored"), Some(&detail));
            return Err(Outcome::Stale);
        }
        let _ = std::fs::remove_file(&layout.plan);
        put(&layout.plan, &found.file.0)
            .map_err(|error| self.fail("The plan cannot be written", &error.to_string()))?;
        self.report.plan = Some(found.kept.report);
        Ok(())
    }

    async fn apply(&mut self, layout: &Layout, engine: &Engine) -> Result<(), Outcome> {
        // A check that failed before the apply may succeed after it, and is evaluated again.
        self.report.diagnostics.retain(|said| !said.is_failed_check());
        let mut words = args(["apply", "-input=false", "-json"]);
        words.push(layout.plan.clone().into());
        let until = Instant::now() + self.order.apply_within.as_duration();
        self.call(engine, Stage::Apply, words, until, &[0]).await.map(drop)
    }

    /// Reads the outputs.
    async fn read_outputs(&mut self, engine: &Engine) -> Result<(), Outcome> {
        let started = Instant::now();
        self.report.stage = Stage::Outputs;
        let read =
            engine.call(&args(["output", "-json", "-no-color"]), Instant::now() + READ_WITHIN, Listen::Keep).await;
        self.took(Stage::Outputs, started);
        let read = read.map_err(|error| self.fail("The outputs cannot be read", &error.to_string()))?;
        if read.code() != Some(0) {
            return Err(self.failed(engine, Stage::Outputs, &read).await);
        }
        let outputs: Result<OutputValues, _> = serde_json::from_slice(&read.kept);
        let outputs = outputs.map_err(|error| self.fail("The outputs cannot be parsed", &error.to_string()))?;
        for name in outputs.keys().filter(|name| !is_key(name)) {
            let detail = "A key of a Secret may have at most 253 characters: letters A to Z, digits, '-' and '_'. Rename the output.";
            let summary =
                format!("The output {name} is not written to the Secret, because its name is not a valid key");
            self.say(Severity::Warning, &summary, Some(detail));
        }
        self.outputs = Some(outputs);
        self.report.stage = Stage::Done;
        Ok(())
    }
}

/// The differences from the state.
fn drift(engine_output: &EngineOutput) -> DriftReport {
    let count = i64::try_from(engine_output.drifted.len()).unwrap_or(i64::MAX);
    DriftReport { count, resources: first(&engine_output.drifted) }
}

fn first(changes: &[ChangedResource]) -> Vec<ChangedResource> {
    changes.iter().take(NAMED_RESOURCES).cloned().collect()
}

fn resources(count: usize) -> String {
    if count == 1 { "one resource".to_owned() } else { format!("{count} resources") }
}
