//! The metrics as a table that is the source for registration, documentation and dashboards.

use prometheus::Opts;

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Sorts values into buckets.
    Histogram,
}

/// The definition of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name: API, never changed.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// Its help text.
    pub help: &'static str,
}

/// Renders metrics as a Markdown table for the reference.
pub fn table(metrics: &[Metric]) -> String {
    let head = "| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n".to_owned();
    let rows = metrics.iter().map(|Metric { name, kind, labels, help }| {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", "))
    });
    std::iter::once(head).chain(rows).collect()
}

impl From<&Metric> for Opts {
    fn from(metric: &Metric) -> Self {
        Self::new(metric.name, metric.help)
    }
}

macro_rules! catalogue {
    ($($constant:ident = $kind:ident $name:literal $labels:tt $help:literal;)*) => {
        $(pub(super) const $constant: Metric =
            Metric { name: $name, kind: Kind::$kind, labels: &$labels, help: $help };)*
        /// All metrics that every operator has.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

catalogue! {
    RECONCILES = Counter "opcore_reconciles_total" ["kind", "result"]
        "Reconciles, by kind and result: ok, refused (a write was refused, and the status says which) or error.";
    RECONCILE_SECONDS = Histogram "opcore_reconcile_duration_seconds" ["kind"]
        "The duration of reconciles.";
    RECONCILE_ERRORS = Counter "opcore_reconcile_errors_total" ["kind", "class"]
        "Failed reconciles, by class of error: transient, conflict, forbidden, invalid, leadership_lost or bug.";
    ACTIVE_WORKERS = Gauge "opcore_active_workers" ["kind"]
        "Reconciles in progress.";
    QUEUE_DEPTH = Gauge "opcore_queue_depth" ["kind"]
        "Objects in the queue that wait for a worker.";
    API_REQUESTS = Counter "opcore_api_requests_total" ["verb", "resource", "code"]
        "Requests to the API server, by verb, resource and status code; without a response the code is deadline or unreachable.";
    API_REQUEST_SECONDS = Histogram "opcore_api_request_duration_seconds" ["verb"]
        "The duration of requests to the API server; for watches and for commands in containers, the time until they started.";
    WATCH_ERRORS = Counter "opcore_watch_errors_total" ["resource"]
        "Watches that broke and were restarted.";
    LEADER = Gauge "opcore_leader" []
        "Whether this process is the leader (1) or stands by (0).";
    CONDITION = Gauge "opcore_condition" ["kind", "namespace", "name", "type", "status"]
        "1 for the current status of each condition of an object. This is the only metric of all operators that names objects.";
    BUILD_INFO = Gauge "opcore_build_info" ["operator", "version", "revision"]
        "Always 1; the labels describe the build of this process.";
}
