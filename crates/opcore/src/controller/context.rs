//! What every part of an operator has access to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;

use crate::act::Actor;
use crate::error::Error;
use crate::events::Events;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::operator::Operator;
use crate::ownership::contract::Contract;
use crate::ownership::{Claimant, InForce, in_force};
use crate::reader::Reader;

/// The limits of a controller.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many objects are reconciled at once. kube's own default is unlimited.
    pub concurrency: usize,
    /// How long one reconcile may take.
    pub reconcile: Duration,
    /// How long a watch connection lives before it is reopened. A connection that died silently is noticed a few
    /// seconds after that. kube's own default is five minutes.
    pub watch: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { concurrency: 16, reconcile: Duration::from_mins(2), watch: Duration::from_mins(1) }
    }
}

/// What every part of an operator has access to: a client, a name, the time. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    client: Client,
    operator: String,
    namespaces: Vec<String>,
    limits: Limits,
    metrics: Metrics,
    health: Health,
    events: Events,
    clock: Clock,
    contract: watch::Sender<InForce>,
    follows_contract: AtomicBool,
    stopping: watch::Receiver<bool>,
}

type Clock = Box<dyn Fn() -> Timestamp + Send + Sync>;

/// What a [`Context`] is made of.
pub struct Parts {
    /// The client.
    pub client: Client,
    /// The operator's name, which is also its field manager.
    pub operator: String,
    /// The namespaces to watch; none means all.
    pub namespaces: Vec<String>,
    /// The limits.
    pub limits: Limits,
    /// The metrics.
    pub metrics: Metrics,
    /// The probes.
    pub health: Health,
    /// What is known of the ownership contract. With [`InForce::NotAsked`] it is read from the cluster.
    pub contract: InForce,
    /// Becomes true when the process is asked to stop.
    pub stopping: watch::Receiver<bool>,
}

impl Context {
    /// A context of these parts, on the system's clock.
    pub fn new(parts: Parts) -> Self {
        let Parts { client, operator, namespaces, limits, metrics, health, contract, stopping } = parts;
        let events = Events::new(client.clone(), &operator);
        let clock = Box::new(Timestamp::now);
        let settled = contract != InForce::NotAsked;
        let contract = watch::Sender::new(contract);
        Self(Arc::new(Inner {
            client,
            operator,
            namespaces,
            limits,
            metrics,
            health,
            events,
            clock,
            contract,
            follows_contract: AtomicBool::new(settled),
            stopping,
        }))
    }

    /// Runs an operator until the process is asked to stop.
    ///
    /// # Errors
    ///
    /// When it cannot continue and the process should be restarted.
    pub async fn controller<O: Operator>(&self, operator: O) -> Result<(), Error> {
        super::run(self.clone(), operator).await
    }

    /// Read access. Only [`crate::act`] writes.
    pub fn reader(&self) -> Reader {
        Reader::new(self.0.client.clone())
    }

    /// The controller's own client.
    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// An actor that writes for this claimant, under the contract in force.
    ///
    /// # Errors
    ///
    /// While it is not known whether a contract is in force.
    pub fn actor<'a>(&'a self, claimant: &'a Claimant) -> Result<Actor<'a>, Error> {
        Ok(Actor::new(&self.0.client, claimant, self.contract()?))
    }

    /// The contract in force, if there is one.
    ///
    /// # Errors
    ///
    /// While that is not known.
    pub fn contract(&self) -> Result<Option<Arc<Contract>>, Error> {
        self.0.contract.borrow().contract()
    }

    /// Keeps what is known of the contract up to date, for ever, unless it was settled at the start. Of several
    /// callers, only one does the work.
    pub fn follow_contract(&self) -> impl Future<Output = ()> + Send + use<> {
        let (context, is_first) = (self.clone(), !self.0.follows_contract.swap(true, Ordering::Relaxed));
        async move {
            if is_first {
                let known = context.0.contract.clone();
                in_force::follow(context, known).await;
            }
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when the contract has been asked for, whatever the result.
    pub async fn contract_asked(&self) {
        let mut contract = self.0.contract.subscribe();
        let _ = contract.wait_for(|contract| *contract != InForce::NotAsked).await;
    }

    /// The operator's name: its field manager, and the mark on objects that it applies.
    pub fn operator(&self) -> &str {
        &self.0.operator
    }

    /// The namespaces to watch; none means all.
    pub fn namespaces(&self) -> &[String] {
        &self.0.namespaces
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The probes.
    pub fn health(&self) -> &Health {
        &self.0.health
    }

    /// The Events.
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.0.clock)()
    }

    /// Resolves when the process is asked to stop.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.0.stopping.clone();
        async move {
            // When the sender is gone, so is the code that would ask the process to stop.
            let _ = stopping.wait_for(|stopping| *stopping).await;
        }
    }
}
