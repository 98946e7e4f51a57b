//! The metrics of workspaces and their runs, in addition to the common metrics of every operator.
//!
//! Metrics with workspace names as labels have few series each, which are removed with the workspace.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use opcore::duration::Span;
use opcore::metrics::{Kind, Metric, Metrics};
use opcore::queue::Key;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};

use crate::api::v1alpha1::{DriftStatus, TerraformWorkspaceStatus, WorkspacePhase};
use crate::slots::{Class, Slots};

/// Runs that are over.
pub const RUNS: Metric = Metric {
    name: "opcore_terraform_runs_total",
    kind: Kind::Counter,
    labels: &["action", "outcome"],
    help: "Completed runs, by action (plan, apply, check, destroy) and outcome.",
};
/// How long runs took.
pub const RUN_SECONDS: Metric = Metric {
    name: "opcore_terraform_run_duration_seconds",
    kind: Kind::Histogram,
    labels: &["action"],
    help: "The duration of runs from the decision to the end, including the start of their pods.",
};
/// Active runs.
pub const ACTIVE: Metric = Metric {
    name: "opcore_terraform_runs_active",
    kind: Kind::Gauge,
    labels: &["class"],
    help: "Runs in progress: run, or check for comparisons of the infrastructure with the state.",
};
/// Workspaces that wait for a turn.
pub const WAITING: Metric = Metric {
    name: "opcore_terraform_runs_waiting",
    kind: Kind::Gauge,
    labels: &["class"],
    help: "Workspaces that wait for their turn, because the maximum number of runs is in progress: run, or check.",
};
/// The phase of workspaces.
pub const PHASE: Metric = Metric {
    name: "opcore_terraform_workspace_phase",
    kind: Kind::Gauge,
    labels: &["namespace", "name", "phase"],
    help: "1 for the current phase of a workspace; in AwaitingApproval, a plan waits for approval.",
};
/// Failed runs in a row.
pub const FAILURES: Metric = Metric {
    name: "opcore_terraform_workspace_failures",
    kind: Kind::Gauge,
    labels: &["namespace", "name"],
    help: "The number of consecutive failed runs of a workspace.",
};
/// Resources that differ.
pub const DRIFTED: Metric = Metric {
    name: "opcore_terraform_workspace_drifted_resources",
    kind: Kind::Gauge,
    labels: &["namespace", "name"],
    help: "The number of resources of a workspace that differed from the state at the last comparison.",
};
/// All metrics that only this operator has.
pub const ALL: &[Metric] = &[RUNS, RUN_SECONDS, ACTIVE, WAITING, PHASE, FAILURES, DRIFTED];

/// From a second to an hour.
const BUCKETS: [f64; 13] = [1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0];
const PHASES: [WorkspacePhase; 8] = [
    WorkspacePhase::Pending,
    WorkspacePhase::Planning,
    WorkspacePhase::AwaitingApproval,
    WorkspacePhase::Applying,
    WorkspacePhase::Ready,
    WorkspacePhase::Failed,
    WorkspacePhase::Suspended,
    WorkspacePhase::Deleting,
];

/// The metrics that only this operator has.
pub struct WorkspaceMetrics {
    runs: IntCounterVec,
    run_seconds: HistogramVec,
    phase: IntGaugeVec,
    failures: IntGaugeVec,
    drifted: IntGaugeVec,
    /// The last run of each workspace that was counted: if a status could not be written, its decision is repeated.
    counted: Mutex<HashMap<Key, i64>>,
}

impl WorkspaceMetrics {
    /// Creates and registers the metrics.
    ///
    /// # Errors
    ///
    /// Never in practice: names and labels are fixed, and one process has one operator.
    pub fn new(metrics: &Metrics, slots: &Arc<Slots>) -> Result<Self, prometheus::Error> {
        let histogram = HistogramOpts::from(Opts::from(&RUN_SECONDS)).buckets(BUCKETS.to_vec());
        let gauge = |metric: &Metric| IntGaugeVec::new(metric.into(), metric.labels);
        let workspace_metrics = Self {
            runs: IntCounterVec::new((&RUNS).into(), RUNS.labels)?,
            run_seconds: HistogramVec::new(histogram, RUN_SECONDS.labels)?,
            phase: gauge(&PHASE)?,
            failures: gauge(&FAILURES)?,
            drifted: gauge(&DRIFTED)?,
            counted: Mutex::default(),
        };
        let registry = metrics.registry();
        registry.register(Box::new(workspace_metrics.runs.clone()))?;
        registry.register(Box::new(workspace_metrics.run_seconds.clone()))?;
        registry.register(Box::new(workspace_metrics.phase.clone()))?;
        registry.register(Box::new(workspace_metrics.failures.clone()))?;
        registry.register(Box::new(workspace_metrics.drifted.clone()))?;
        registry.register(Box::new(Turns {
            slots: slots.clone(),
            active: gauge(&ACTIVE)?,
            waiting: gauge(&WAITING)?,
        }))?;
        Ok(workspace_metrics)
    }

    /// Updates the metrics for a workspace whose status is about to change from the old to the new one.
    pub fn show(
        &self,
        key: &Key,
        old: Option<&TerraformWorkspaceStatus>,
        new: &TerraformWorkspaceStatus,
        now: Timestamp,
    ) {
        let [namespace, name] = labels(key);
        for phase in PHASES {
            let labels = [namespace, name, &format!("{phase:?}")];
            if phase == new.phase {
                self.phase.with_label_values(&labels).set(1);
            } else {
                // A series that was never set cannot be removed.
                let _ = self.phase.remove_label_values(&labels);
            }
        }
        self.failures.with_label_values(&[namespace, name]).set(new.failures.into());
        // A failed comparison does not mean that the differences are gone.
        let known = new.drift.as_ref().filter(|drift| drift.summary != DriftStatus::UNKNOWN);
        if known.is_some() || new.drift.is_none() {
            self.drifted.with_label_values(&[namespace, name]).set(known.map_or(0, |drift| drift.count));
        }
        self.count(key, old, new, now);
    }

    /// Counts the run that has just ended, if one has.
    fn count(&self, key: &Key, old: Option<&TerraformWorkspaceStatus>, new: &TerraformWorkspaceStatus, now: Timestamp) {
        let Some(record) = new.history.first() else { return };
        let mut counted = self.counted();
        let known = old.and_then(|old| old.history.first()).map(|record| record.number);
        let known = known.max(counted.get(key).copied());
        if known.is_some_and(|known| known >= record.number) {
            return;
        }
        counted.insert(key.clone(), record.number);
        let action = record.action.word();
        self.runs.with_label_values(&[action, &format!("{:?}", record.outcome)]).inc();
        let took = Span::between(record.started_at, now).as_duration().as_secs_f64();
        self.run_seconds.with_label_values(&[action]).observe(took);
    }

    /// Removes the series of a workspace that is gone.
    pub fn forget(&self, key: &Key) {
        let [namespace, name] = labels(key);
        for phase in PHASES {
            let _ = self.phase.remove_label_values(&[namespace, name, &format!("{phase:?}")]);
        }
        let _ = self.failures.remove_label_values(&[namespace, name]);
        let _ = self.drifted.remove_label_values(&[namespace, name]);
        self.counted().remove(key);
    }

    fn counted(&self) -> MutexGuard<'_, HashMap<Key, i64>> {
        opcore::lock(&self.counted)
    }
}

fn labels(key: &Key) -> [&str; 2] {
    [key.namespace.as_deref().unwrap_or_default(), &key.name]
}

/// Turns change all the time, so they are counted at each scrape.
struct Turns {
    slots: Arc<Slots>,
    active: IntGaugeVec,
    waiting: IntGaugeVec,
}

impl Collector for Turns {
    fn desc(&self) -> Vec<&Desc> {
        self.active.desc().into_iter().chain(self.waiting.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for (class, word) in [(Class::Run, "run"), (Class::Check, "check")] {
            let (active, waiting) = self.slots.count(class);
            for (gauge, count) in [(&self.active, active), (&self.waiting, waiting)] {
                gauge.with_label_values(&[word]).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
        self.active.collect().into_iter().chain(self.waiting.collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::slots::Limits;

    const END: &str = "2026-01-01T00:00:03.5Z";

    fn workspace_metrics() -> (WorkspaceMetrics, Metrics, Arc<Slots>) {
        let metrics = Metrics::new(opcore::build_info!()).unwrap();
        let slots = Arc::new(Slots::new(Limits { runs: 1, share: 1, checks: 1 }.into()));
        (WorkspaceMetrics::new(&metrics, &slots).unwrap(), metrics, slots)
    }

    fn key() -> Key {
        Key { namespace: Some("infra".to_owned()), name: "network".to_owned() }
    }

    fn status(value: Value) -> TerraformWorkspaceStatus {
        serde_json::from_value(value).unwrap()
    }

    /// A status after this many runs, the last of which had this outcome.
    fn after(number: i64, outcome: &str) -> TerraformWorkspaceStatus {
        let started = "2026-01-01T00:00:00Z";
        let record =
            json!({ "number": number, "action": "Apply", "outcome": outcome, "startedAt": started, "duration": "4s" });
        status(json!({ "phase": "Ready", "history": [record] }))
    }

    /// The values of this operator's own metrics that are not zero, without histogram buckets.
    fn lines(metrics: &Metrics) -> Vec<String> {
        let text = metrics.text();
        let lines = text.lines().filter(|line| line.starts_with("opcore_terraform") && !line.contains("_bucket"));
        lines.filter(|line| !line.ends_with(" 0")).map(str::to_owned).collect()
    }

    #[test]
    fn a_run_is_counted_once_although_its_end_is_decided_twice_and_not_by_a_successor() {
        let (workspace_metrics, metrics, _) = workspace_metrics();
        let (old, new) = (after(1, "Failed"), after(2, "Applied"));
        for _ in 0..2 {
            workspace_metrics.show(&key(), Some(&old), &new, END.parse().unwrap());
        }
        workspace_metrics.show(&key(), Some(&new), &new, END.parse().unwrap());
        let counted = [
            r#"opcore_terraform_run_duration_seconds_sum{action="apply"} 3.5"#,
            r#"opcore_terraform_run_duration_seconds_count{action="apply"} 1"#,
            r#"opcore_terraform_runs_total{action="apply",outcome="Applied"} 1"#,
        ];
        assert_eq!(lines(&metrics)[..3], counted);
        let (successor, metrics, _) = self::workspace_metrics();
        successor.show(&key(), Some(&new), &new, END.parse().unwrap());
        assert_eq!(
            lines(&metrics),
            [r#"opcore_terraform_workspace_phase{name="network",namespace="infra",phase="Ready"} 1"#]
        );
    }

    #[test]
    fn where_a_workspace_stands_is_shown_and_all_its_series_go_with_it() {
        let (workspace_metrics, metrics, _) = workspace_metrics();
        let show = |value: Value| workspace_metrics.show(&key(), None, &status(value), END.parse().unwrap());
        show(json!({ "phase": "Failed", "failures": 3 }));
        show(
            json!({ "phase": "AwaitingApproval", "drift": { "checkedAt": END, "count": 2, "summary": "2 resources" } }),
        );
        let shown = [
            r#"opcore_terraform_workspace_drifted_resources{name="network",namespace="infra"} 2"#,
            r#"opcore_terraform_workspace_phase{name="network",namespace="infra",phase="AwaitingApproval"} 1"#,
        ];
        assert_eq!(lines(&metrics), shown);
        workspace_metrics.forget(&key());
        assert!(!metrics.text().contains("network"), "{}", metrics.text());
    }

    #[test]
    fn a_comparison_that_failed_does_not_say_that_nothing_differs() {
        let (workspace_metrics, metrics, _) = workspace_metrics();
        let show = |count: i64, summary: &str| {
            let drift = json!({ "checkedAt": END, "count": count, "summary": summary });
            workspace_metrics.show(&key(), None, &status(json!({ "drift": drift })), END.parse().unwrap());
            metrics.text().lines().any(|line| line.contains("drifted") && line.ends_with(" 1"))
        };
        assert!(show(1, "1 resource"));
        assert!(show(0, "Unknown"));
        assert!(!show(0, "None"));
    }

    #[test]
    fn turns_are_counted_when_someone_asks() {
        let (_measures, metrics, slots) = workspace_metrics();
        let other = Key { name: "other".to_owned(), ..key() };
        assert!(slots.take(&key(), Class::Check) && !slots.take(&other, Class::Run));
        let shown =
            [r#"opcore_terraform_runs_active{class="check"} 1"#, r#"opcore_terraform_runs_waiting{class="run"} 1"#];
        assert_eq!(lines(&metrics), shown);
        slots.release(&key());
        assert!(slots.take(&other, Class::Run));
        assert_eq!(lines(&metrics), [r#"opcore_terraform_runs_active{class="run"} 1"#]);
    }
}
