//! The cost of one event, without a cluster, counted in instructions where valgrind is available: to record it in the
//! index; and to record it, observe the plan and decide.
//!
//! The same events are sent to two plans with the same number of waves, one with a hundred times the members of the
//! other.

use std::fmt;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use jiff::Timestamp;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use opcore::{Admission, Operator};
use opcore_testing::running;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use wave_orchestrator::api::v1alpha1::{FINALIZER, WavePlan, WavePlanStatus};
use wave_orchestrator::controller::WavePlans;
use wave_orchestrator::live::Live;
use wave_orchestrator::subscription::{GroupKind, Served};

/// The variable that makes this program process events and exit: `recorded MEMBERS EVENTS`, or `decided …`.
pub const TASK: &str = "OPCORE_BENCH_EVENTS";

const SIZES: [usize; 2] = [100, 10_000];
const WAVES: usize = 10;
/// A kind that is only watched, and a kind that is nudged.
const KINDS: [(&str, &str); 2] = [("example.io/v1", "Widget"), ("kustomize.toolkit.fluxcd.io/v1", "Kustomization")];
const EVENTS: usize = 2_000;

pub struct Events {
    unit: &'static str,
    /// Per event and size: recorded only, and recorded, observed and decided.
    observed: [f64; 2],
    decided: [f64; 2],
}

pub fn measure() -> anyhow::Result<Events> {
    let counts = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    let cost = if counts { instructions } else { nanoseconds };
    let of = |what: &str| -> anyhow::Result<[f64; 2]> { Ok([cost(what, SIZES[0])?, cost(what, SIZES[1])?]) };
    let unit = if counts { "instructions" } else { "ns" };
    Ok(Events { unit, observed: of("recorded")?, decided: of("decided")? })
}

/// The difference of two runs, because everything before the events is in both.
fn instructions(what: &str, members: usize) -> anyhow::Result<f64> {
    let run = |events: usize| -> anyhow::Result<f64> {
        let output = Command::new("valgrind")
            .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
            .arg(std::env::current_exe()?)
            .env(TASK, format!("{what} {members} {events}"))
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().find(|line| line.contains(" refs:"));
        let count = line.and_then(|line| line.rsplit(' ').next()).map(|count| count.replace(',', ""));
        count.and_then(|count| count.parse().ok()).with_context(|| format!("valgrind counted nothing: {said}"))
    };
    Ok((run(EVENTS)? - run(0)?) / per(EVENTS))
}

fn nanoseconds(what: &str, members: usize) -> anyhow::Result<f64> {
    let fixture = Fixture::new(members)?;
    let started = Instant::now();
    fixture.replay(what, EVENTS * 50)?;
    Ok(started.elapsed().as_secs_f64() * 1e9 / per(EVENTS * 50))
}

/// The counts are far below the largest integer that a float represents exactly.
#[allow(clippy::cast_precision_loss)]
fn per(events: usize) -> f64 {
    events as f64
}

/// Processes events, as the task says.
pub fn replay(task: &str) -> anyhow::Result<()> {
    let words: Vec<&str> = task.split(' ').collect();
    let [what, members, events] = words.as_slice() else { bail!("{TASK} is not understood: {task}") };
    Fixture::new(members.parse()?)?.replay(what, events.parse()?)
}

/// A plan that is rolled out, and an operator that knows all its members. There is no API server: a request caused by
/// an event would fail.
struct Fixture {
    runtime: Runtime,
    context: opcore::Context,
    operator: WavePlans,
    live: Arc<Live>,
    plan: WavePlan,
    now: Timestamp,
    /// Each member, not ready and ready.
    members: Vec<[Value; 2]>,
}

impl Fixture {
    fn new(members: usize) -> anyhow::Result<Self> {
        let plan: WavePlan = serde_json::from_value(json!({
            "apiVersion": "waves.opcore.dev/v1alpha1", "kind": "WavePlan",
            "metadata": { "name": "p", "uid": "uid", "generation": 1, "finalizers": [FINALIZER] },
            "spec": { "waves": (0..WAVES).map(|wave| wave_of(wave, members)).collect::<Vec<_>>() },
        }))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        opcore::client::install_crypto_provider();
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse()?);
        let (_, stopping) = tokio::sync::watch::channel(false);
        let context = running::context(crate::operator::NAME, nowhere, &[], running::Settings::default(), stopping);
        let live = Live::new(&context);
        for (api_version, kind) in KINDS {
            let (group, version) = api_version.split_once('/').unwrap_or_default();
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let served = Served::Yes { resource, namespaced: true, has_status: true };
            live.learn(&(api_version.to_owned(), kind.to_owned()), served);
        }
        let operator = WavePlans::over(live.clone(), &context);
        drop(entered);
        let now = "2026-01-01T00:00:00Z".parse()?;
        let mut fixture = Self { runtime, context, operator, live, plan, now, members: Vec::new() };
        // The plan claims its subscription, and everything in it is reported.
        let rollout = fixture.decide()?.rollout.context("it has no rollout")?;
        let asked = rollout.started_at.to_string();
        let member = |number: usize| ["False", "True"].map(|ready| member(number, ready, &asked));
        fixture.members = (0..members).map(member).collect();
        for (number, [_, ready]) in fixture.members.iter().enumerate() {
            fixture.live.index().observed(&kind_of(number), ready, now);
        }
        for scope in fixture.live.watching() {
            fixture.live.index().synced(&scope);
        }
        // As many passes as are needed until nothing more is published.
        loop {
            let status = Some(fixture.decide()?);
            if status == fixture.plan.status {
                return Ok(fixture);
            }
            fixture.plan.status = status;
        }
    }

    fn decide(&self) -> anyhow::Result<WavePlanStatus> {
        self.runtime.block_on(async {
            let mut observed = self.operator.observe(&self.plan, &self.context).await?;
            loop {
                let decision = self.operator.decide(&self.plan, &observed, self.now);
                let admitted = self.operator.admit(&self.plan, decision.claims, &mut observed, &self.context, self.now);
                if admitted.await? == Admission::Granted {
                    return Ok(decision.status);
                }
            }
        })
    }

    /// Members become unready and ready again, spread over all of them.
    fn replay(&self, what: &str, events: usize) -> anyhow::Result<()> {
        let stride = self.members.len() / 50;
        for event in 0..events {
            let number = (event / 4 % 50) * stride + event / 2 % KINDS.len();
            let member = &self.members[number][event % 2];
            let woken = self.live.index().observed(&kind_of(number), member, self.now);
            anyhow::ensure!(woken.len() == 1, "the plan was not woken");
            if what == "decided" {
                std::hint::black_box(self.decide()?);
            }
        }
        Ok(())
    }
}

fn wave_of(wave: usize, members: usize) -> Value {
    let reference = |number: usize| {
        let (api_version, kind) = KINDS[number % KINDS.len()];
        json!({ "apiVersion": api_version, "kind": kind, "namespace": "shop", "name": name(number) })
    };
    // Each wave has members of both kinds.
    let of_wave = (0..members).filter(|number| number / KINDS.len() % WAVES == wave);
    let members: Vec<Value> = of_wave.map(|number| json!({ "ref": reference(number) })).collect();
    let before = if wave == 0 { json!([]) } else { json!([{ "wave": format!("w{}", wave - 1) }]) };
    json!({ "name": format!("w{wave}"), "dependsOn": before, "members": members })
}

/// Names of one length, so that all events have the same length.
fn name(number: usize) -> String {
    format!("member-{number:05}")
}

fn kind_of(number: usize) -> GroupKind {
    let (api_version, kind) = KINDS[number % KINDS.len()];
    GroupKind::written(api_version, kind)
}

/// A member that was requested to reconcile and did.
fn member(number: usize, ready: &str, asked: &str) -> Value {
    let (api_version, kind) = KINDS[number % KINDS.len()];
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "name": name(number), "namespace": "shop", "uid": format!("uid-{number:05}"), "generation": 1,
            "annotations": { "reconcile.fluxcd.io/requestedAt": asked },
        },
        "status": {
            "observedGeneration": 1, "lastHandledReconcileAt": asked,
            "conditions": [{ "type": "Ready", "status": ready, "reason": "Told" }],
        },
    })
}

impl Events {
    fn growth(&self) -> [f64; 2] {
        [self.observed, self.decided].map(|[small, large]| large / small)
    }

    pub fn json(&self) -> Value {
        let [observed, decided] = self.growth();
        json!({
            "unit": self.unit, "members": SIZES, "seen": self.observed, "decided": self.decided,
            "growth": { "seen": observed, "decided": decided },
        })
    }

    pub fn check(&self) -> anyhow::Result<()> {
        let most = self.growth().into_iter().fold(0.0, f64::max);
        anyhow::ensure!(most <= crate::GROWTH, "an event costs {most:.2} times as much at a hundred times the members");
        Ok(())
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [observed, decided] = self.growth();
        let row = |words: &str, [small, large]: [f64; 2], growth: f64| {
            let unit = self.unit;
            format!("{words:<32}{growth:>8.2} times as much at 10,000 members as at 100: {large:.0} {unit}, {small:.0}")
        };
        writeln!(f, "{}", row("an event taken in", self.observed, observed))?;
        write!(f, "{}  (promised: {})", row("an event decided upon", self.decided, decided), crate::GROWTH)
    }
}
