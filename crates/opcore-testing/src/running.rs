//! An operator that runs in the process of the test.

use std::time::Duration;

use kube::{Client, Config};
use opcore::client::Shield;
use opcore::controller::{Limits, Parts};
use opcore::election::Leadership;
use opcore::health::Health;
use opcore::metrics::Metrics;
use opcore::ownership::InForce;
use opcore::{Context, Operator};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::PATIENCE;

/// The limits of an operator in a test.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The limits of its controller.
    pub limits: Limits,
    /// How long the API server may take to answer.
    pub request_deadline: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { limits: Limits::default(), request_deadline: Duration::from_secs(10) }
    }
}

/// An operator that runs in this process.
pub struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    /// Its metrics.
    pub metrics: Metrics,
}

impl Running {
    /// Runs the operator that `make` creates, with this configuration.
    pub fn start<O: Operator>(
        name: &str,
        config: Config,
        namespaces: &[&str],
        settings: Settings,
        make: impl FnOnce(&Context) -> O,
    ) -> Self {
        let (stop, stopping) = watch::channel(false);
        Self::run(context(name, config, namespaces, settings, stopping), stop, make)
    }

    fn run<O: Operator>(context: Context, stop: watch::Sender<bool>, make: impl FnOnce(&Context) -> O) -> Self {
        let (metrics, operator) = (context.metrics().clone(), make(&context));
        let task = tokio::spawn(async move { context.controller(operator).await.unwrap() });
        Self { stop, task, metrics }
    }

    /// The lines of its metrics that count answered writes, without Events.
    pub fn writes(&self) -> Vec<String> {
        let verbs = ["patch", "create", "delete", "update"].map(|verb| format!("verb=\"{verb}\""));
        let of_writes = |line: &&str| {
            line.starts_with("opcore_api_requests_total")
                && verbs.iter().any(|verb| line.contains(verb))
                && !line.contains("resource=\"events")
        };
        self.metrics.text().lines().filter(of_writes).map(str::to_owned).collect()
    }

    /// Waits until its metrics meet a condition.
    pub async fn until(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let fulfilled = async {
            while !condition(&self.metrics.text()) {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, fulfilled).await.is_ok(), "not so: {what}\n{}", self.metrics.text());
    }

    /// Runs the operator that `make` creates, with this client.
    pub fn with<O: Operator>(
        name: &str,
        client: Client,
        namespaces: &[&str],
        make: impl FnOnce(&Context) -> O,
    ) -> Self {
        let (stop, stopping) = watch::channel(false);
        let metrics = Metrics::new(opcore::build_info!()).unwrap();
        let parts = parts(name, client, metrics, namespaces, Limits::default(), stopping);
        Self::run(Context::new(parts), stop, make)
    }

    /// Waits until it ends by itself, which it should not.
    pub async fn ended(self) {
        self.task.await.unwrap();
    }

    /// Stops it gracefully.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        tokio::time::timeout(PATIENCE, self.task).await.expect("it stops when asked").unwrap();
    }

    /// Stops it like a crash: nothing more is written, not even what was started.
    pub async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// The context of an operator, on a client with its shield.
pub fn context(
    operator: &str,
    config: Config,
    namespaces: &[&str],
    settings: Settings,
    stopping: watch::Receiver<bool>,
) -> Context {
    let metrics = Metrics::new(opcore::build_info!()).unwrap();
    let shield = Shield {
        leadership: Leadership::unquestioned(),
        metrics: metrics.clone(),
        deadline: settings.request_deadline,
    };
    Context::new(parts(operator, shield.client(config).unwrap(), metrics, namespaces, settings.limits, stopping))
}

/// A context for code that only writes, without an ownership contract.
pub fn without_contract(operator: &str, client: Client) -> Context {
    let (metrics, stopping) = (Metrics::new(opcore::build_info!()).unwrap(), watch::channel(false).1);
    Context::new(Parts {
        contract: InForce::Absent,
        ..parts(operator, client, metrics, &[], Limits::default(), stopping)
    })
}

fn parts(
    operator: &str,
    client: Client,
    metrics: Metrics,
    namespaces: &[&str],
    limits: Limits,
    stopping: watch::Receiver<bool>,
) -> Parts {
    Parts {
        client,
        operator: operator.to_owned(),
        namespaces: namespaces.iter().map(|namespace| (*namespace).to_owned()).collect(),
        limits,
        metrics,
        health: Health::default(),
        contract: InForce::default(),
        stopping,
    }
}
