//! The plans of a cluster, and what is known of one now.

use wave_orchestrator::api::v1alpha1::{PlanPhase, WavePlan, WavePlanStatus};

use crate::cluster::Cluster;
use crate::objects::Objects;

/// The chart that installs the kind.
const CHART: &str = "wave-orchestrator";

/// The plans of a cluster.
pub(super) type Plans = Objects<WavePlan>;

/// What a watch tells of one plan.
pub(super) type Change = crate::objects::Change<WavePlan>;

/// The plans of this cluster.
pub(super) fn plans_of(cluster: Cluster) -> Plans {
    Objects::everywhere(cluster, CHART)
}

/// The status of a plan, unless it is about an older spec.
pub(super) fn current(plan: &WavePlan) -> Option<&WavePlanStatus> {
    plan.status.as_ref().filter(|status| status.observed_generation == plan.metadata.generation)
}

/// The phase of a plan, unless its status is about an older spec.
pub(super) fn phase(plan: &WavePlan) -> Option<PlanPhase> {
    current(plan)?.phase
}
