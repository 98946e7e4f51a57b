//! The metrics of an operator: the same names in all operators, so that one dashboard and one set of alerts fit all.
//!
//! Names are API. Object names appear in one gauge only, `opcore_condition`, whose series are removed with their
//! objects. Every other label has a small fixed set of values. An operator adds its own metrics to the
//! [registry](Metrics::registry), from a table of [`Metric`]s like this one, so that the reference lists them.

mod catalogue;

pub use catalogue::{ALL, Kind, Metric, table};

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

use crate::conditions::Condition;
use crate::error::Class;
use catalogue::{
    ACTIVE_WORKERS, API_REQUEST_SECONDS, API_REQUESTS, BUILD_INFO, CONDITION, LEADER, QUEUE_DEPTH, RECONCILE_ERRORS,
    RECONCILE_SECONDS, RECONCILES, WATCH_ERRORS,
};

/// The identity of this program, created by [`build_info!`](crate::build_info).
#[derive(Clone, Copy, Debug)]
pub struct BuildInfo {
    /// The operator's name, which is also its field manager and the default name of its lease.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The revision that it was built from, if the build set one.
    pub revision: &'static str,
}

/// Returns the [`BuildInfo`] of the calling crate.
#[macro_export]
macro_rules! build_info {
    () => {
        $crate::metrics::BuildInfo {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            revision: match option_env!("OPCORE_REVISION") {
                Some(revision) => revision,
                None => "unknown",
            },
        }
    };
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// As decided.
    Ok,
    /// A write was refused; the status says which.
    Refused,
    /// It failed and will be retried.
    Error,
}

impl ReconcileResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Error => "error",
        }
    }
}

/// The metrics of one process. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    reconciles: IntCounterVec,
    reconcile_seconds: HistogramVec,
    errors: IntCounterVec,
    active_workers: IntGaugeVec,
    queue_depth: IntGaugeVec,
    api_requests: IntCounterVec,
    api_request_seconds: HistogramVec,
    watch_errors: IntCounterVec,
    leader: IntGauge,
    conditions: IntGaugeVec,
    /// The series of each object, to be removed with it.
    series: Mutex<HashMap<ObjectKey, Vec<[String; 2]>>>,
}

/// An object in the condition gauge: kind, namespace, name.
type ObjectKey = [String; 3];

impl Metrics {
    /// Creates and registers all metrics.
    ///
    /// # Errors
    ///
    /// Never in practice: names and labels are fixed, and the registry is new.
    pub fn new(build: BuildInfo) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counter = |metric: &Metric| {
            let counter = IntCounterVec::new(metric.into(), metric.labels)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let gauge = |metric: &Metric| {
            let gauge = IntGaugeVec::new(metric.into(), metric.labels)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let histogram = |metric: &Metric| {
            let buckets = prometheus::exponential_buckets(0.001, 2.5, 12)?;
            let histogram = HistogramVec::new(HistogramOpts::from(Opts::from(metric)).buckets(buckets), metric.labels)?;
            registry.register(Box::new(histogram.clone()))?;
            Ok::<_, prometheus::Error>(histogram)
        };
        let leader = IntGauge::with_opts((&LEADER).into())?;
        registry.register(Box::new(leader.clone()))?;
        gauge(&BUILD_INFO)?.with_label_values(&[build.name, build.version, build.revision]).set(1);
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        Ok(Self(Arc::new(Inner {
            reconciles: counter(&RECONCILES)?,
            reconcile_seconds: histogram(&RECONCILE_SECONDS)?,
            errors: counter(&RECONCILE_ERRORS)?,
            active_workers: gauge(&ACTIVE_WORKERS)?,
            queue_depth: gauge(&QUEUE_DEPTH)?,
            api_requests: counter(&API_REQUESTS)?,
            api_request_seconds: histogram(&API_REQUEST_SECONDS)?,
            watch_errors: counter(&WATCH_ERRORS)?,
            conditions: gauge(&CONDITION)?,
            series: Mutex::default(),
            leader,
            registry,
        })))
    }

    /// All metrics in Prometheus's text format.
    pub fn text(&self) -> String {
        // Only a metric without a name cannot be encoded, and there is none.
        TextEncoder::new().encode_to_string(&self.0.registry.gather()).unwrap_or_default()
    }

    /// The registry, to which an operator adds its own metrics.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Creates the series of a kind at the start, so that a rate over them has a first value.
    pub(crate) fn expect_kind(&self, kind: &str) {
        for result in [ReconcileResult::Ok, ReconcileResult::Refused, ReconcileResult::Error] {
            self.0.reconciles.with_label_values(&[kind, result.as_str()]);
        }
        self.0.active_workers.with_label_values(&[kind]);
        self.0.queue_depth.with_label_values(&[kind]);
    }

    pub(crate) fn reconcile_started(&self, kind: &str) {
        self.0.active_workers.with_label_values(&[kind]).inc();
    }

    pub(crate) fn reconcile_ended(&self, kind: &str, result: ReconcileResult, took: Duration) {
        self.0.active_workers.with_label_values(&[kind]).dec();
        self.0.reconciles.with_label_values(&[kind, result.as_str()]).inc();
        self.0.reconcile_seconds.with_label_values(&[kind]).observe(took.as_secs_f64());
    }

    pub(crate) fn error(&self, kind: &str, class: Class) {
        self.0.errors.with_label_values(&[kind, class.as_str()]).inc();
    }

    pub(crate) fn queue_depth(&self, kind: &str, depth: usize) {
        self.0.queue_depth.with_label_values(&[kind]).set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    pub(crate) fn api_request(&self, verb: &str, resource: &str, code: &str, took: Duration) {
        self.0.api_requests.with_label_values(&[verb, resource, code]).inc();
        self.0.api_request_seconds.with_label_values(&[verb]).observe(took.as_secs_f64());
    }

    pub(crate) fn watch_broke(&self, resource: &str) {
        self.0.watch_errors.with_label_values(&[resource]).inc();
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
    }

    /// Publishes an object's conditions, replacing those published before.
    pub(crate) fn conditions(&self, kind: &str, namespace: &str, name: &str, conditions: &[Condition]) {
        let key = [kind, namespace, name].map(str::to_owned);
        let now: Vec<_> =
            conditions.iter().map(|condition| [condition.type_.clone(), condition.status.clone()]).collect();
        let mut series = crate::lock(&self.0.series);
        let before = if now.is_empty() { series.remove(&key) } else { series.insert(key.clone(), now.clone()) };
        for [type_, status] in before.iter().flatten().filter(|old| !now.contains(old)) {
            // The series is missing only if it was never set.
            let _ = self.0.conditions.remove_label_values(&[kind, namespace, name, type_, status]);
        }
        for [type_, status] in &now {
            self.0.conditions.with_label_values(&[kind, namespace, name, type_, status]).set(1);
        }
    }

    /// Removes the series of an object that is gone.
    pub(crate) fn forget(&self, kind: &str, namespace: &str, name: &str) {
        self.conditions(kind, namespace, name, &[]);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::conditions::{New, set};

    fn condition(kind: &str, status: &str) -> Condition {
        let mut all = Vec::new();
        set(&mut all, New { kind, status, reason: "R", message: "" }, None, Timestamp::UNIX_EPOCH);
        all.remove(0)
    }

    /// Every metric has at least one series.
    fn with_a_value_each() -> Metrics {
        let metrics = Metrics::new(crate::build_info!()).unwrap();
        metrics.expect_kind("Notebook");
        metrics.reconcile_started("Notebook");
        metrics.reconcile_ended("Notebook", ReconcileResult::Ok, Duration::from_millis(3));
        metrics.error("Notebook", Class::Transient);
        metrics.api_request("get", "configmaps", "200", Duration::from_millis(1));
        metrics.watch_broke("configmaps");
        metrics.conditions("Notebook", "shop", "a", &[condition("Ready", "True")]);
        metrics
    }

    fn series(metrics: &Metrics) -> Vec<String> {
        metrics.text().lines().filter(|line| line.starts_with("opcore_condition{")).map(str::to_owned).collect()
    }

    #[test]
    fn a_condition_has_one_series_that_follows_its_status_and_goes_with_its_object() {
        let metrics = Metrics::new(crate::build_info!()).unwrap();
        metrics.conditions("Notebook", "shop", "a", &[condition("Ready", "False"), condition("Reconciling", "True")]);
        assert_eq!(series(&metrics).len(), 2);
        metrics.conditions("Notebook", "shop", "a", &[condition("Ready", "True")]);
        let expected = r#"opcore_condition{kind="Notebook",name="a",namespace="shop",status="True",type="Ready"} 1"#;
        assert_eq!(series(&metrics), [expected]);
        metrics.forget("Notebook", "shop", "a");
        assert_eq!(series(&metrics), [""; 0]);
    }

    #[test]
    fn object_names_are_in_the_condition_gauge_only() {
        let metrics = with_a_value_each();
        for family in metrics.registry().gather() {
            let labels = family.get_metric().iter().flat_map(|metric| metric.get_label().iter());
            let named = labels.filter(|label| matches!(label.name(), "name" | "namespace")).count();
            assert!(named == 0 || family.name() == "opcore_condition", "{} names objects", family.name());
        }
    }

    #[test]
    fn the_catalogue_and_what_is_published_agree() {
        let metrics = with_a_value_each();
        let published: Vec<String> =
            metrics.registry().gather().iter().map(|family| family.name().to_owned()).collect();
        let mut published: Vec<&str> =
            published.iter().map(String::as_str).filter(|n| n.starts_with("opcore_")).collect();
        let mut catalogue: Vec<&str> = ALL.iter().map(|metric| metric.name).collect();
        published.sort_unstable();
        catalogue.sort_unstable();
        assert_eq!(published, catalogue);
    }

    #[test]
    fn what_the_process_and_its_build_are_is_published() {
        let text = Metrics::new(crate::build_info!()).unwrap().text();
        for name in
            ["opcore_build_info{", "process_resident_memory_bytes", "process_cpu_seconds_total", "opcore_leader 0"]
        {
            assert!(text.contains(name), "{name} is missing in\n{text}");
        }
    }
}
