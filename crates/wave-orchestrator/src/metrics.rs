//! The metrics of plans, in addition to the common metrics of every operator.
//!
//! These have plan names as labels: there are few plans, and their series are removed with them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use kube::ResourceExt;
use opcore::duration::Span;
use opcore::lock;
use opcore::metrics::{Kind, Metric, Metrics};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntGaugeVec, Opts};

use crate::api::v1alpha1::{WavePhase, WavePlan, WavePlanStatus};

/// The waves of a plan, by phase.
pub const WAVES: Metric = Metric {
    name: "opcore_waveplan_waves",
    kind: Kind::Gauge,
    labels: &["name", "phase"],
    help: "The number of waves of a plan, by their current phase.",
};
/// How long waves took.
pub const WAVE_SECONDS: Metric = Metric {
    name: "opcore_waveplan_wave_duration_seconds",
    kind: Kind::Histogram,
    labels: &["name"],
    help: "The time that the waves of a plan took from start to ready, without those that had nothing to do.",
};
/// How long plans will still take.
pub const REMAINING: Metric = Metric {
    name: "opcore_waveplan_remaining_seconds",
    kind: Kind::Gauge,
    labels: &["name"],
    help: "The estimated time until a plan is ready, along its critical path: 0 when every wave is ready or skipped.",
};
/// All metrics that only this operator has.
pub const ALL: &[Metric] = &[WAVES, WAVE_SECONDS, REMAINING];

/// From a second to an hour.
const BUCKETS: [f64; 12] = [1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0];

/// The metrics that only this operator has.
pub struct PlanMetrics {
    waves: IntGaugeVec,
    wave_seconds: HistogramVec,
    remaining: Remaining,
    /// The last start of each wave whose duration was counted: if a status could not be written, its decision is
    /// repeated.
    counted: Mutex<HashMap<String, HashMap<String, Timestamp>>>,
}

impl PlanMetrics {
    /// Creates and registers the metrics.
    ///
    /// # Errors
    ///
    /// Never in practice: names and labels are fixed, and one process has one operator.
    pub fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let histogram = HistogramOpts::from(Opts::from(&WAVE_SECONDS)).buckets(BUCKETS.to_vec());
        let own = Self {
            waves: IntGaugeVec::new((&WAVES).into(), WAVES.labels)?,
            wave_seconds: HistogramVec::new(histogram, WAVE_SECONDS.labels)?,
            remaining: Remaining { gauge: GaugeVec::new((&REMAINING).into(), REMAINING.labels)?, ends: Arc::default() },
            counted: Mutex::default(),
        };
        metrics.registry().register(Box::new(own.waves.clone()))?;
        metrics.registry().register(Box::new(own.wave_seconds.clone()))?;
        metrics.registry().register(Box::new(own.remaining.clone()))?;
        Ok(own)
    }

    /// Updates the metrics for a plan that is about to have this status.
    pub fn show(&self, plan: &WavePlan, status: &WavePlanStatus) {
        let name = plan.name_any();
        // No wave of a plan that is being deleted counts as waiting, running or suspended.
        let deleting = plan.metadata.deletion_timestamp.is_some();
        for phase in WavePhase::ALL {
            let count = status.waves.iter().filter(|wave| wave.phase == phase && !deleting).count();
            self.waves.with_label_values(&[&name, phase.as_str()]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.remaining.set(&name, status);
        self.count(&name, plan.status.as_ref(), status);
    }

    fn count(&self, name: &str, old: Option<&WavePlanStatus>, new: &WavePlanStatus) {
        let mut counted = lock(&self.counted);
        for wave in new.waves.iter().filter(|wave| wave.phase == WavePhase::Ready) {
            let was = old.and_then(|old| old.wave(&wave.name)).map(|was| was.phase);
            let worked = matches!(was, Some(WavePhase::Running | WavePhase::TimedOut | WavePhase::Failed));
            let (true, Some(started), Some(took)) = (worked, wave.started_at, wave.duration) else { continue };
            let of_plan = counted.entry(name.to_owned()).or_default();
            if of_plan.insert(wave.name.clone(), started) != Some(started) {
                self.wave_seconds.with_label_values(&[name]).observe(took.as_duration().as_secs_f64());
            }
        }
    }

    /// Removes the series of a plan that is gone.
    pub fn forget(&self, name: &str) {
        // Series that were never set cannot be removed.
        for phase in WavePhase::ALL {
            let _ = self.waves.remove_label_values(&[name, phase.as_str()]);
        }
        let _ = self.wave_seconds.remove_label_values(&[name]);
        self.remaining.forget(name);
        lock(&self.counted).remove(name);
    }
}

/// The remaining time decreases while nothing happens: it is computed at each scrape.
#[derive(Clone)]
struct Remaining {
    gauge: GaugeVec,
    ends: Arc<Mutex<HashMap<String, End>>>,
}

/// When a plan will be finished.
enum End {
    /// At this time.
    At(Timestamp),
    /// This long after it is resumed.
    In(Span),
}

impl Remaining {
    fn set(&self, name: &str, status: &WavePlanStatus) {
        let end = match status.eta.as_ref().and_then(|eta| eta.parse().ok()) {
            Some(at) => End::At(at),
            None => End::In(status.critical_path.as_ref().map(|path| path.remaining).unwrap_or_default()),
        };
        lock(&self.ends).insert(name.to_owned(), end);
    }

    fn forget(&self, name: &str) {
        lock(&self.ends).remove(name);
        let _ = self.gauge.remove_label_values(&[name]);
    }
}

impl Collector for Remaining {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "what is left is computed when it is asked for, which no decision does"
    )]
    fn collect(&self) -> Vec<MetricFamily> {
        let now = Timestamp::now();
        let ends = lock(&self.ends);
        for (name, end) in &*ends {
            let left = match end {
                End::At(at) => Span::between(now, *at),
                End::In(span) => *span,
            };
            self.gauge.with_label_values(&[name]).set(left.as_duration().as_secs_f64());
        }
        // With the lock held: the series of a plan that is removed in the meantime must not return.
        self.gauge.collect()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;

    fn metrics() -> (PlanMetrics, Metrics) {
        let metrics = Metrics::new(opcore::build_info!()).unwrap();
        (PlanMetrics::new(&metrics).unwrap(), metrics)
    }

    fn plan(status: serde_json::Value) -> WavePlan {
        let head = json!({ "apiVersion": "waves.opcore.dev/v1alpha1", "kind": "WavePlan" });
        let mut plan =
            json!({ "metadata": { "name": "fleet" }, "spec": { "waves": [{ "name": "a" }, { "name": "b" }] } });
        plan["apiVersion"] = head["apiVersion"].clone();
        plan["kind"] = head["kind"].clone();
        plan["status"] = status;
        serde_json::from_value(plan).unwrap()
    }

    fn waves(a: &str, b: &str) -> serde_json::Value {
        let wave = |name: &str, phase: &str| {
            let mut wave = json!({ "name": name, "phase": phase, "ready": 0, "total": 1 });
            wave["startedAt"] = json!("2026-01-01T00:00:00Z");
            wave["duration"] = json!("20s");
            wave
        };
        json!({ "waves": [wave("a", a), wave("b", b)] })
    }

    /// The values of this operator's own metrics, without histogram buckets.
    fn lines(metrics: &Metrics) -> Vec<String> {
        let text = metrics.text();
        let lines = text.lines().filter(|line| line.starts_with("opcore_waveplan") && !line.contains("_bucket"));
        lines.filter(|line| !line.ends_with(" 0")).map(str::to_owned).collect()
    }

    #[test]
    fn the_waves_of_a_plan_are_counted_by_phase_and_all_its_series_go_with_it() {
        let (of_plans, metrics) = metrics();
        let plan = plan(waves("Running", "Waiting"));
        let ready = WavePlan { status: serde_json::from_value(waves("Ready", "Running")).unwrap(), ..plan.clone() };
        of_plans.show(&plan, plan.status.as_ref().unwrap());
        assert_eq!(
            lines(&metrics),
            [
                r#"opcore_waveplan_waves{name="fleet",phase="Running"} 1"#,
                r#"opcore_waveplan_waves{name="fleet",phase="Waiting"} 1"#,
            ]
        );
        // The decision is made twice, because the first response was lost.
        for _ in 0..2 {
            of_plans.show(&plan, ready.status.as_ref().unwrap());
        }
        assert_eq!(
            lines(&metrics),
            [
                r#"opcore_waveplan_wave_duration_seconds_sum{name="fleet"} 20"#,
                r#"opcore_waveplan_wave_duration_seconds_count{name="fleet"} 1"#,
                r#"opcore_waveplan_waves{name="fleet",phase="Ready"} 1"#,
                r#"opcore_waveplan_waves{name="fleet",phase="Running"} 1"#,
            ]
        );
        of_plans.forget("fleet");
        assert!(!metrics.text().contains("fleet"), "{}", metrics.text());
    }

    #[test]
    fn what_had_nothing_to_do_took_no_time_that_counts() {
        let (of_plans, metrics) = metrics();
        let plan = plan(waves("Waiting", "Waiting"));
        of_plans.show(&plan, &serde_json::from_value(waves("Ready", "Ready")).unwrap());
        assert_eq!(lines(&metrics), [r#"opcore_waveplan_waves{name="fleet",phase="Ready"} 2"#]);
    }

    #[test]
    fn the_time_that_is_left_passes_while_nothing_happens_but_not_while_the_plan_stands_still() {
        let (of_plans, metrics) = metrics();
        let left = || {
            let text = metrics.text();
            let line =
                text.lines().find_map(|line| line.strip_prefix(r#"opcore_waveplan_remaining_seconds{name="fleet"} "#));
            line.unwrap().parse::<f64>().unwrap()
        };
        let path = json!({ "waves": [], "total": "10m", "elapsed": "0s", "remaining": "10m" });
        let plan = plan(json!({ "criticalPath": path, "phase": "Suspended" }));
        of_plans.show(&plan, plan.status.as_ref().unwrap());
        assert!((left() - 600.0).abs() < f64::EPSILON);
        let eta = Timestamp::now().checked_add(SignedDuration::from_mins(5)).unwrap();
        let mut running = plan.status.clone().unwrap();
        running.eta = Some(format!("{eta:.0}"));
        of_plans.show(&plan, &running);
        let first = left();
        assert!((298.0..=300.0).contains(&first), "{first}");
        assert!(left() < first);
    }
}
