//! The stack in a cluster: its parent and its operands.

use std::future::ready;
use std::io::stdout;

use anyhow::{anyhow, bail};
use clap::ValueEnum;
use futures::stream::{LocalBoxStream, select_all};
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::CustomResourceExt;
use lifecycle_operator::api::v1alpha1::{
    OperandKind, SINGLETON, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer, TeardownPolicy,
    VolumeStatus, ZeroTrustWorkloadIdentityManager,
};
use lifecycle_operator::config::{self, Conflict, PARENT};
use lifecycle_operator::operand::{Operand, Peer};
use opcore::conditions::{Condition, READY, STALLED, find, is_true};
use opcore::finalizer::{OnExpiry, StepPhase, TeardownRecord};

use crate::cluster::Cluster;
use crate::follow::Update;
use crate::objects::{Change, Objects};
use crate::output::Paint;

/// The chart that installs the kinds.
pub(super) const CHART: &str = "lifecycle-operator";

/// An operand, as people name it on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OperandName {
    /// The SPIRE server
    #[value(alias = "spireserver")]
    Server,
    /// The SPIRE agents
    #[value(alias = "spireagent")]
    Agent,
    /// The CSI driver
    #[value(alias = "spiffecsidriver")]
    Csi,
    /// The OIDC discovery provider
    #[value(alias = "spireoidcdiscoveryprovider")]
    Oidc,
}

impl OperandName {
    pub(super) fn kind(self) -> OperandKind {
        match self {
            Self::Server => OperandKind::SpireServer,
            Self::Agent => OperandKind::SpireAgent,
            Self::Csi => OperandKind::SpiffeCSIDriver,
            Self::Oidc => OperandKind::SpireOIDCDiscoveryProvider,
        }
    }

    /// The name of a kind on the command line.
    pub(super) fn of(kind: OperandKind) -> &'static str {
        match kind {
            OperandKind::SpireServer => "server",
            OperandKind::SpireAgent => "agent",
            OperandKind::SpiffeCSIDriver => "csi",
            OperandKind::SpireOIDCDiscoveryProvider => "oidc",
        }
    }
}

/// The circumstances in which a stack is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub now: Timestamp,
    pub paint: Paint,
}

impl View {
    /// Here and now.
    pub(super) fn now() -> Self {
        Self { now: Timestamp::now(), paint: Paint::detect(&stdout()) }
    }
}

/// The parent and the operands that exist.
#[derive(Clone, Debug, Default)]
pub(super) struct Stack {
    pub parent: Option<ZeroTrustWorkloadIdentityManager>,
    pub operands: Vec<Peer>,
}

/// The kinds of the stack in a cluster.
pub(super) struct Kinds {
    pub cluster: Cluster,
    pub parents: Objects<ZeroTrustWorkloadIdentityManager>,
    pub servers: Objects<SpireServer>,
    pub agents: Objects<SpireAgent>,
    pub drivers: Objects<SpiffeCSIDriver>,
    pub providers: Objects<SpireOIDCDiscoveryProvider>,
}

impl Kinds {
    /// Those of this cluster.
    pub(super) fn of(cluster: Cluster) -> Self {
        Self {
            parents: Objects::everywhere(cluster.clone(), CHART),
            servers: Objects::everywhere(cluster.clone(), CHART),
            agents: Objects::everywhere(cluster.clone(), CHART),
            drivers: Objects::everywhere(cluster.clone(), CHART),
            providers: Objects::everywhere(cluster.clone(), CHART),
            cluster,
        }
    }

    /// The stack.
    ///
    /// # Errors
    ///
    /// There is none.
    pub(super) async fn stack(&self) -> anyhow::Result<Stack> {
        let operands = [
            operand(&self.servers).await?,
            operand(&self.agents).await?,
            operand(&self.drivers).await?,
            operand(&self.providers).await?,
        ];
        let parent = self.parents.find(SINGLETON).await?;
        let stack = Stack { parent, operands: operands.into_iter().flatten().collect() };
        if stack.is_gone() {
            bail!("There is no {PARENT} and no operand: create one, e.g. with kubectl apply -f.");
        }
        Ok(stack)
    }

    /// Watches the stack, beginning with how it is now.
    pub(super) fn follow(&self) -> impl Stream<Item = anyhow::Result<Update<Stack>>> {
        let parent = self.parents.follow(SINGLETON).map(|change| {
            Ok(match change? {
                Change::Observed(parent) => Part::Parent(Some(parent)),
                Change::Deleted => Part::Parent(None),
                Change::Failed(why) => Part::Failed(why),
            })
        });
        let parts = select_all([
            parent.boxed_local(),
            parts(&self.servers),
            parts(&self.agents),
            parts(&self.drivers),
            parts(&self.providers),
        ]);
        let mut known = Known::default();
        parts.filter_map(move |part| {
            ready(match part {
                Ok(Part::Failed(why)) => Some(Ok(Update::Failed(why))),
                Ok(part) => known.stack(part).map(|stack| Ok(Update::Now(Box::new(stack)))),
                Err(error) => Some(Err(error)),
            })
        })
    }
}

impl Stack {
    /// Whether no object of it is left.
    pub(super) fn is_gone(&self) -> bool {
        self.parent.is_none() && self.operands.is_empty()
    }

    pub(super) fn operand(&self, kind: OperandKind) -> Option<&Peer> {
        self.operands.iter().find(|peer| peer.kind == kind)
    }

    /// How it is taken down.
    pub(super) fn policy(&self) -> TeardownPolicy {
        self.parent.as_ref().map(|parent| parent.spec.teardown.clone()).unwrap_or_default()
    }

    /// The values that contradict each other.
    pub(super) fn conflicts(&self) -> Vec<Conflict> {
        let with_parent = |parent| {
            self.operands.iter().flat_map(move |peer| config::conflicts(parent, peer.kind, &peer.config)).collect()
        };
        let all: Vec<_> = self.operands.iter().map(|peer| (peer.kind, &peer.config)).collect();
        self.parent.as_ref().map_or_else(|| config::disagreements(&all), with_parent)
    }

    /// The volume of the server.
    pub(super) fn volume(&self) -> Option<&VolumeStatus> {
        self.operand(OperandKind::SpireServer)?.status.volume.as_ref()
    }

    /// The condition `Ready` of the parent.
    pub(super) fn ready(&self) -> Option<&Condition> {
        find(&self.parent.as_ref()?.status.as_ref()?.conditions, READY)
    }

    /// Whether the status of the parent is about the spec that it has now.
    pub(super) fn is_current(&self) -> bool {
        let observed = |parent: &ZeroTrustWorkloadIdentityManager| {
            parent.status.as_ref().and_then(|status| status.observed_generation) == parent.metadata.generation
        };
        self.parent.as_ref().is_none_or(observed)
    }

    /// Whether all of it is ready.
    pub(super) fn is_ready(&self) -> bool {
        let is_parent_ready = self.parent.is_none() || self.ready().is_some_and(|ready| ready.status == "True");
        !self.is_deleting() && self.is_current() && is_parent_ready && self.operands.iter().all(Peer::is_ready)
    }

    /// Whether the stack, or one of its operands, is being deleted.
    pub(super) fn is_deleting(&self) -> bool {
        self.parent.as_ref().is_some_and(|parent| parent.metadata.deletion_timestamp.is_some())
            || self.operands.iter().any(Peer::is_deleting)
    }

    /// Whether someone must act.
    pub(super) fn needs_help(&self) -> bool {
        let conditions =
            self.parent.iter().filter_map(|parent| parent.status.as_ref()).map(|status| &status.conditions);
        let of_operands = self.operands.iter().map(|peer| &peer.status.conditions);
        let is_stalled = conditions.chain(of_operands).any(|conditions| is_true(conditions, STALLED));
        let is_stopped = self.policy().on_expiry == OnExpiry::Manual && self.is_overdue();
        is_stalled || is_stopped || !self.conflicts().is_empty()
    }

    /// Whether a step of a teardown takes longer than it may.
    pub(super) fn is_overdue(&self) -> bool {
        let steps = self.teardowns().flat_map(|(_, record)| &record.steps);
        steps.into_iter().any(|step| step.phase == StepPhase::Running && step.overdue)
    }

    /// The teardowns in progress, with the kind of the operand; none for the parent.
    pub(super) fn teardowns(&self) -> impl Iterator<Item = (Option<OperandKind>, &TeardownRecord)> {
        let of_parent = self.parent.iter().filter_map(|parent| parent.status.as_ref()?.teardown.as_ref());
        let of_operands =
            self.operands.iter().filter_map(|peer| Some((Some(peer.kind), peer.status.teardown.as_ref()?)));
        of_parent.map(|record| (None, record)).chain(of_operands)
    }
}

async fn operand<K: Operand + CustomResourceExt>(objects: &Objects<K>) -> anyhow::Result<Option<Peer>> {
    let found = objects.find(SINGLETON).await?;
    found.as_ref().map(peer).transpose()
}

/// An operand, independent of its kind.
fn peer<K: Operand>(operand: &K) -> anyhow::Result<Peer> {
    Peer::of(operand).map_err(|error| anyhow!("{} {SINGLETON} cannot be read: {error}.", K::KIND))
}

/// A change of a part of the stack.
enum Part {
    Parent(Option<Box<ZeroTrustWorkloadIdentityManager>>),
    Operand(OperandKind, Option<Box<Peer>>),
    Failed(String),
}

fn parts<K: Operand + CustomResourceExt>(objects: &Objects<K>) -> LocalBoxStream<'_, anyhow::Result<Part>> {
    let part = |change: anyhow::Result<Change<K>>| {
        Ok(match change? {
            Change::Observed(operand) => Part::Operand(K::KIND, Some(Box::new(peer(&*operand)?))),
            Change::Deleted => Part::Operand(K::KIND, None),
            Change::Failed(why) => Part::Failed(why),
        })
    };
    objects.follow(SINGLETON).map(part).boxed_local()
}

/// The parts that the watches have reported so far.
#[derive(Default)]
struct Known {
    parent_reported: bool,
    parent: Option<Box<ZeroTrustWorkloadIdentityManager>>,
    operands: Vec<(OperandKind, Option<Box<Peer>>)>,
}

impl Known {
    /// The stack with this part; none until all parts are known.
    fn stack(&mut self, part: Part) -> Option<Stack> {
        match part {
            Part::Parent(parent) => (self.parent_reported, self.parent) = (true, parent),
            Part::Operand(kind, peer) => {
                self.operands.retain(|(other, _)| *other != kind);
                self.operands.push((kind, peer));
                self.operands.sort_by_key(|(kind, _)| *kind);
            }
            Part::Failed(_) => return None,
        }
        if !self.parent_reported || self.operands.len() < OperandKind::ALL.len() {
            return None;
        }
        let operands = self.operands.iter().filter_map(|(_, peer)| peer.as_deref().cloned()).collect();
        Some(Stack { parent: self.parent.as_deref().cloned(), operands })
    }
}
