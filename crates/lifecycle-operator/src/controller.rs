//! The operators of the five kinds: what wakes them, and how their steps are wired.

use std::marker::PhantomData;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode};
use kube::Resource;
use opcore::act::{Done, Outcome, Refusal};
use opcore::controller::Watches;
use opcore::queue::Key;
use opcore::watch::Discovery;
use opcore::{Context, Decision, Error, Operator, Write};

use crate::api::v1alpha1::{
    OperandKind, OperandStatus, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer,
    ZeroTrustWorkloadIdentityManager, ZeroTrustWorkloadIdentityManagerStatus,
};
use crate::decide::keep::Wants;
use crate::decide::teardown::TakenDown;
use crate::decide::{Decider, keep, stack, teardown};
use crate::metrics::StackMetrics;
use crate::observe::{Eyes, Observed, peers};
use crate::operand::Operand;
use crate::optional::{Optional, singleton};
use crate::policies::Keeper;
use crate::render::{PART_OF, Settings};

/// What the operators of all kinds share.
pub struct Shared {
    decider: Decider,
    eyes: Eyes,
    optional: Arc<Optional>,
    metrics: Option<Arc<StackMetrics>>,
    policies: Keeper,
}

impl Shared {
    /// What keeps the admission policies.
    pub fn policies(&self) -> &Keeper {
        &self.policies
    }

    /// Creates it.
    pub fn new(context: &Context, settings: Settings) -> Arc<Self> {
        let discovery = Discovery::new(context);
        let optional = Optional::new(context, &discovery);
        let eyes = Eyes::new(&settings, discovery, optional.clone());
        let metrics = StackMetrics::new(context.metrics());
        Arc::new(Self {
            decider: Decider { settings, operator: context.operator().to_owned() },
            eyes,
            optional,
            metrics,
            policies: Keeper::default(),
        })
    }
}

/// Wakes the one object of a kind when any of these change.
fn any<K, C>(watches: &mut Watches<K>, labels: Option<&str>)
where
    K: opcore::operator::Reconciled,
    C: Resource<DynamicType = (), Scope: 'static>,
{
    watches.concerns::<C>(labels, |_| vec![singleton()]);
}

/// The parent.
pub struct Stack(Arc<Shared>);

impl Stack {
    /// Creates it.
    pub fn new(shared: &Arc<Shared>) -> Self {
        Self(shared.clone())
    }
}

impl Operator for Stack {
    type Object = ZeroTrustWorkloadIdentityManager;
    type Observed = Observed;
    type Claims = ();

    const FINALIZER: &'static str = "ztwim.io/operand-lifecycle";

    fn watches(&self, watches: &mut Watches<Self::Object>) {
        any::<_, SpireServer>(watches, None);
        any::<_, SpireAgent>(watches, None);
        any::<_, SpiffeCSIDriver>(watches, None);
        any::<_, SpireOIDCDiscoveryProvider>(watches, None);
        any::<_, Pod>(watches, Some(&of_stack()));
    }

    async fn observe(&self, _: &Self::Object, context: &Context) -> Result<Observed, Error> {
        self.0.eyes.of_stack(context, peers(context).await?).await
    }

    fn decide(&self, parent: &Self::Object, observed: &Observed, now: Timestamp) -> Decision<Self::Object> {
        stack::keep(parent, observed, &self.0.decider, now)
    }

    fn tear_down(&self, parent: &Self::Object, observed: &Observed, now: Timestamp) -> Decision<Self::Object> {
        stack::tear_down(parent, observed, now)
    }

    fn published(&self, _: &Self::Object, status: &ZeroTrustWorkloadIdentityManagerStatus, now: Timestamp) {
        if let Some(metrics) = &self.0.metrics {
            metrics.stack(status, now);
        }
    }

    fn forget(&self, _: &Key) {
        if let Some(metrics) = &self.0.metrics {
            metrics.forget_stack();
        }
    }
}

fn of_stack() -> String {
    format!("app.kubernetes.io/part-of={PART_OF}")
}

/// An operand.
pub struct Operands<K> {
    shared: Arc<Shared>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Operands<K> {
    /// Creates it.
    pub fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: shared.clone(), kind: PhantomData }
    }
}

impl<K: Operand + Wants + TakenDown> Operator for Operands<K> {
    type Object = K;
    type Observed = Observed;
    type Claims = ();

    const FINALIZER: &'static str = K::FINALIZER;

    fn watches(&self, watches: &mut Watches<K>) {
        any::<_, ZeroTrustWorkloadIdentityManager>(watches, None);
        any::<_, SpireServer>(watches, None);
        any::<_, SpireAgent>(watches, None);
        any::<_, SpiffeCSIDriver>(watches, None);
        any::<_, SpireOIDCDiscoveryProvider>(watches, None);
        any::<_, Namespace>(watches, None);
        any::<_, Pod>(watches, Some(&of_stack()));
        // By label: what must not go before its turn has no owner reference.
        let ours = of_stack();
        let ours = Some(ours.as_str());
        any::<_, ServiceAccount>(watches, ours);
        any::<_, StatefulSet>(watches, ours);
        self.shared.optional.wakes(watches.wakes());
        match K::KIND {
            OperandKind::SpireServer => {
                any::<_, ConfigMap>(watches, ours);
                any::<_, Service>(watches, ours);
                any::<_, Role>(watches, ours);
                any::<_, RoleBinding>(watches, ours);
                any::<_, ClusterRole>(watches, ours);
                any::<_, ClusterRoleBinding>(watches, ours);
                any::<_, ValidatingWebhookConfiguration>(watches, ours);
                any::<_, Ingress>(watches, ours);
                any::<_, Job>(watches, ours);
                any::<_, PersistentVolumeClaim>(watches, ours);
            }
            OperandKind::SpireAgent => {
                any::<_, ConfigMap>(watches, ours);
                any::<_, ClusterRole>(watches, ours);
                any::<_, ClusterRoleBinding>(watches, ours);
                any::<_, DaemonSet>(watches, ours);
            }
            OperandKind::SpiffeCSIDriver => {
                any::<_, DaemonSet>(watches, ours);
                any::<_, CSIDriver>(watches, ours);
                any::<_, CSINode>(watches, None);
            }
            OperandKind::SpireOIDCDiscoveryProvider => {
                any::<_, ConfigMap>(watches, ours);
                any::<_, Service>(watches, ours);
                any::<_, Role>(watches, ours);
                any::<_, RoleBinding>(watches, ours);
                any::<_, Deployment>(watches, ours);
                any::<_, Ingress>(watches, ours);
            }
        }
    }

    async fn observe(&self, operand: &K, context: &Context) -> Result<Observed, Error> {
        self.shared.policies.changed();
        self.shared.eyes.of_operand(operand, context).await
    }

    fn decide(&self, operand: &K, observed: &Observed, now: Timestamp) -> Decision<K> {
        keep::keep(operand, observed, &self.shared.decider, now)
    }

    fn tear_down(&self, operand: &K, observed: &Observed, now: Timestamp) -> Decision<K> {
        teardown::tear_down(operand, observed, &self.shared.decider, now)
    }

    /// What the server answered when it was asked about its agents.
    fn after_writes(&self, _: &K, status: &mut OperandStatus, done: &Done<'_>, _: Timestamp) {
        let mut answers = done.attempts.iter().filter_map(|attempt| match (&attempt.write, &attempt.outcome) {
            (Write::Exec(exec), Outcome::Ran { stdout, exit: 0, .. })
                if exec.command.iter().any(|word| word == "list") =>
            {
                Some(stdout)
            }
            _ => None,
        });
        if let Some(Ok(agents)) = answers.next_back().map(|answer| teardown::agents_in(answer)) {
            status.attested_agents = Some(agents);
        }
    }

    fn remedy(&self, _: &K, refusal: &Refusal) -> Option<String> {
        Some(format!(
            "The chart of the lifecycle-operator grants the right to write {}: upgrade it.",
            refusal.object.kind.kind
        ))
    }

    fn published(&self, _: &K, status: &OperandStatus, now: Timestamp) {
        if let Some(metrics) = &self.shared.metrics {
            metrics.operand(K::KIND, status, now);
        }
    }

    fn forget(&self, _: &Key) {
        self.shared.policies.changed();
        if let Some(metrics) = &self.shared.metrics {
            metrics.forget(K::KIND);
        }
    }
}
