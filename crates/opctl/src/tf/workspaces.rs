//! The workspaces of a namespace, and what is kept for one of them.

use std::io::stdout;

use anyhow::anyhow;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use opcore::conditions;
use terraform_runner_operator::api::v1alpha1::{Run, TerraformWorkspace, TerraformWorkspaceStatus, WorkspacePhase};
use terraform_runner_operator::render::{self, PART_LABEL};
use terraform_runner_operator::store::{Store, StoreError};

use super::Namespace;
use crate::cluster::Cluster;
use crate::objects::Objects;
use crate::output::Paint;
use crate::phrases::{count, printable};

/// The chart that installs the kind.
pub(super) const CHART: &str = "terraform-runner-operator";

/// The workspaces of a namespace.
pub(super) struct Workspaces {
    pub objects: Objects<TerraformWorkspace>,
    namespace: String,
    /// What a command needs besides the name of a workspace, so that it finds it: ` -n NAME`, or nothing.
    hint: String,
}

/// The circumstances in which a workspace is shown.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub now: Timestamp,
    pub paint: Paint,
    /// See [`Workspaces::view`].
    pub hint: String,
}

impl Workspaces {
    pub(super) fn within(cluster: Cluster, chosen: &Namespace) -> Self {
        let namespace = chosen.namespace.clone().unwrap_or_else(|| cluster.namespace.clone());
        let hint = chosen.namespace.as_ref().map(|name| format!(" -n {name}")).unwrap_or_default();
        Self { objects: Objects::within(cluster, CHART, &namespace), namespace, hint }
    }

    pub(super) async fn get(&self, name: &str) -> anyhow::Result<TerraformWorkspace> {
        self.objects.get(name).await
    }

    /// The circumstances here and now.
    pub(super) fn view(&self) -> View {
        View { now: Timestamp::now(), paint: Paint::detect(&stdout()), hint: self.hint.clone() }
    }

    /// What is kept for a workspace.
    pub(super) fn store(&self, workspace: &TerraformWorkspace) -> Store {
        Store::new(self.objects.cluster.client.clone(), &self.namespace, render::names(workspace))
    }

    /// Reads something that is kept. `remedy` says what to do when it is damaged.
    pub(super) async fn kept<T>(
        &self,
        reading: impl Future<Output = Result<T, StoreError>>,
        remedy: &str,
    ) -> anyhow::Result<T> {
        let question = async {
            match reading.await {
                Err(StoreError::Api(error)) => Err(error),
                answer => Ok(answer),
            }
        };
        self.objects.ask(question).await?.map_err(|fault| anyhow!("{fault}: {remedy}."))
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.objects.cluster.client.clone(), &self.namespace)
    }

    /// The pod of this UID, while it runs.
    pub(super) async fn running_pod(&self, uid: &str) -> anyhow::Result<Option<Pod>> {
        let params = ListParams::default().labels(&format!("{PART_LABEL}=run"));
        let pods = self.objects.ask(self.pods().list(&params)).await?;
        Ok(pods.items.into_iter().find(|pod| pod.uid().as_deref() == Some(uid) && !is_over(pod)))
    }
}

fn is_over(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// The status of a workspace, unless it is about an older spec.
pub(super) fn current(workspace: &TerraformWorkspace) -> Option<&TerraformWorkspaceStatus> {
    workspace.status.as_ref().filter(|status| status.observed_generation == workspace.metadata.generation)
}

/// The run that is under way.
pub(super) fn under_way(workspace: &TerraformWorkspace) -> Option<&Run> {
    workspace.status.as_ref()?.run.as_ref().filter(|run| !run.is_over())
}

/// The message of the operator about a workspace.
pub(super) fn message(workspace: &TerraformWorkspace) -> String {
    let status = workspace.status.as_ref();
    let ready = status.and_then(|status| conditions::find(&status.conditions, conditions::READY));
    match ready.map(|ready| ready.message.as_str()).filter(|message| !message.is_empty()) {
        Some(message) => printable(message),
        None => format!("The operator has not reconciled it yet: is {CHART} running?"),
    }
}

/// The reason in the condition `Ready`.
pub(super) fn reason(workspace: &TerraformWorkspace) -> Option<&str> {
    let ready = conditions::find(&workspace.status.as_ref()?.conditions, conditions::READY)?;
    Some(&ready.reason)
}

/// A phase, in its colour.
pub(super) fn phase_words(phase: WorkspacePhase, paint: Paint) -> String {
    match phase {
        WorkspacePhase::Pending => paint.odd("Pending"),
        WorkspacePhase::Planning => paint.busy("Planning"),
        WorkspacePhase::AwaitingApproval => paint.odd("AwaitingApproval"),
        WorkspacePhase::Applying => paint.busy("Applying"),
        WorkspacePhase::Ready => paint.good("Ready"),
        WorkspacePhase::Failed => paint.bad("Failed"),
        WorkspacePhase::Suspended => paint.odd("Suspended"),
        WorkspacePhase::Deleting => paint.odd("Deleting"),
    }
}

/// How many resources a state has; -1 when nobody can tell.
pub(super) fn resources(number: i64) -> String {
    if number < 0 { "encrypted".to_owned() } else { count(number, "resource") }
}
