//! The controller: what wakes a workspace, and how the steps from observing to concluding fit together.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DynamicObject, ListParams, PartialObjectMeta};
use kube::{Resource, ResourceExt};
use opcore::act::{Attempt, Done, Outcome};
use opcore::controller::{Relations, Wakes, Watches};
use opcore::metrics::Metrics;
use opcore::ownership::{OPERATOR_LABEL, OWNER_ANNOTATION};
use opcore::queue::Key;
use opcore::{Admission, Context, DecisionOf, Error, ObjectId, Operator};
use tokio::sync::OnceCell;

use crate::api::v1alpha1::{
    Action, FINALIZER, Run, TerraformWorkspace, TerraformWorkspaceStatus, WORKSPACE_LABEL, WorkspacePhase,
};
use crate::decide::{Turn, keep_applied, refused, tear_down};
use crate::metrics::WorkspaceMetrics;
use crate::observe::{self, Observed, Room};
use crate::render::{self, OPERATOR, Settings, Source};
use crate::slots::{Class, Limits, Slots};

/// The operator of [`TerraformWorkspace`]s.
pub struct Workspaces {
    settings: Settings,
    slots: Arc<Slots>,
    room: Room,
    workspace_metrics: Option<WorkspaceMetrics>,
    wakes: OnceLock<Wakes>,
    recovered: OnceCell<()>,
}

/// The prefixes of the names under which workspaces are known and to which they refer.
const SECRET: &str = "secret";
const CONFIG_MAP: &str = "configmap";
const WORKSPACE: &str = "workspace";
/// The Secret with the state, as a name of the workspace that owns it.
const STATE: &str = "state";
/// A state to adopt, as a name of each workspace that wants it.
const ADOPTED: &str = "adopted";

fn word(what: &str, namespace: Option<&str>, name: &str) -> String {
    format!("{what}/{}/{name}", namespace.unwrap_or_default())
}

/// The names of a workspace and the names that it refers to: what its spec refers to, what it depends on, and the state
/// that it adopts. The workspace waits for that state until its owner and all others have released it.
fn relations(workspace: &TerraformWorkspace) -> Relations {
    let namespace = workspace.namespace();
    let word = |what: &str, name: &str| word(what, namespace.as_deref(), name);
    let mut is =
        BTreeSet::from([word(WORKSPACE, &workspace.name_any()), word(STATE, &render::names(workspace).state())]);
    let sources = render::references(&workspace.spec).into_iter().map(|(source, name)| match source {
        Source::Secret => word(SECRET, &name),
        Source::ConfigMap => word(CONFIG_MAP, &name),
    });
    let needed = workspace.spec.depends_on.iter().map(|needed| word(WORKSPACE, &needed.name));
    let mut names: BTreeSet<String> = sources.chain(needed).collect();
    if let Some(state) = workspace.spec.backend.adopted() {
        is.insert(word(ADOPTED, state));
        names.extend([word(SECRET, state), word(STATE, state), word(ADOPTED, state)]);
    }
    Relations { is, names }
}

impl Workspaces {
    /// An operator without any cached state.
    pub fn new(settings: Settings, limits: Limits) -> Self {
        Self {
            settings,
            slots: Arc::new(Slots::new(limits.into())),
            room: Room::default(),
            workspace_metrics: None,
            wakes: OnceLock::new(),
            recovered: OnceCell::new(),
        }
    }

    /// The same operator, which also updates these metrics.
    #[must_use]
    pub fn measured(mut self, metrics: &Metrics) -> Self {
        // Without metrics, workspaces are still kept applied.
        let workspace_metrics = WorkspaceMetrics::new(metrics, &self.slots);
        self.workspace_metrics =
            workspace_metrics.inspect_err(|error| tracing::error!(%error, "workspaces are not measured")).ok();
        self
    }

    /// Counts the runs that were active when this process started, before any other run may begin.
    async fn recover(&self, context: &Context) -> Result<(), Error> {
        let reader = context.reader();
        let everywhere = match context.namespaces() {
            [] => vec![reader.all::<Job>()],
            some => some.iter().map(|namespace| reader.namespaced(namespace)).collect(),
        };
        let ours = ListParams::default().labels(&format!("{OPERATOR_LABEL}={OPERATOR}"));
        for jobs in everywhere {
            for job in jobs.list(&ours).await?.items.iter().filter(|job| !observe::is_over(job)) {
                let check = job.labels().get("action").map(String::as_str) == Some(Action::Check.word());
                // Anyone who can create Jobs can set their labels, so ownership is checked separately.
                let ours = |owner: &&OwnerReference| {
                    owner.controller == Some(true)
                        && owner.kind == TerraformWorkspace::kind(&())
                        && owner.api_version == TerraformWorkspace::api_version(&())
                };
                for owner in job.owner_references().iter().filter(ours) {
                    let key = Key { namespace: job.namespace(), name: owner.name.clone() };
                    self.slots.hold(&key, if check { Class::Check } else { Class::Run });
                }
            }
        }
        Ok(())
    }

    fn release(&self, key: &Key) {
        for next in self.slots.release(key) {
            self.wake(&next);
        }
    }

    fn wake(&self, key: &Key) {
        if let Some(wakes) = self.wakes.get() {
            wakes.wake(key);
        }
    }
}

impl Operator for Workspaces {
    type Object = TerraformWorkspace;
    type Observed = Observed;
    type Claims = Turn;

    const FINALIZER: &'static str = FINALIZER;

    fn watches(&self, watches: &mut Watches<TerraformWorkspace>) {
        let _ = self.wakes.set(watches.wakes());
        watches.owns::<Job>();
        watches.concerns::<Pod>(Some(WORKSPACE_LABEL), |pod| owner(pod).into_iter().collect());
        watches.concerns::<Lease>(Some(WORKSPACE_LABEL), |lease| owner(lease).into_iter().collect());
        watches.relate(relations);
        // Some Secrets are created for a workspace, and some are referred to by it.
        let naming = watches.naming();
        watches.concerns::<Secret>(None, move |secret| {
            let naming = naming(&word(SECRET, secret.namespace().as_deref(), &secret.name_any()));
            owner(secret).into_iter().chain(naming).collect()
        });
        watches.named::<ConfigMap>(|map| word(CONFIG_MAP, map.namespace.as_deref(), &map.name));
    }

    async fn observe(&self, workspace: &TerraformWorkspace, context: &Context) -> Result<Observed, Error> {
        observe::observe(workspace, &context.reader(), &self.settings, &self.room).await
    }

    fn decide(&self, workspace: &TerraformWorkspace, observed: &Observed, now: Timestamp) -> DecisionOf<Self> {
        keep_applied(workspace, observed, &self.settings, now)
    }

    fn tear_down(&self, workspace: &TerraformWorkspace, observed: &Observed, now: Timestamp) -> DecisionOf<Self> {
        tear_down(workspace, observed, &self.settings, now)
    }

    async fn admit(
        &self,
        workspace: &TerraformWorkspace,
        turn: Turn,
        observed: &mut Observed,
        context: &Context,
        _: Timestamp,
    ) -> Result<Admission, Error> {
        self.recovered.get_or_try_init(|| self.recover(context)).await?;
        let key = Key::of(workspace);
        match turn {
            Turn::None => self.release(&key),
            Turn::Keep(class) => self.slots.hold(&key, class),
            Turn::Await => {}
            Turn::Take(class) => {
                if workspace.status.as_ref().and_then(|status| status.run.as_ref()).is_some_and(|run| !run.is_over()) {
                    // That run is over by now: a workspace that has waited longer for a turn comes first.
                    self.release(&key);
                }
                observed.turn = self.slots.take(&key, class);
                if !observed.turn {
                    return Ok(Admission::DecideAnew);
                }
                for next in self.slots.due() {
                    self.wake(&next);
                }
            }
        }
        Ok(Admission::Granted)
    }

    /// A workspace keeps its turn as long as its run is active.
    fn after_writes(
        &self,
        workspace: &TerraformWorkspace,
        status: &mut TerraformWorkspaceStatus,
        done: &Done<'_>,
        now: Timestamp,
    ) {
        let key = Key::of(workspace);
        let number = |status: Option<&TerraformWorkspaceStatus>| Some(status?.run.as_ref()?.number);
        let begins = number(Some(status)) != number(workspace.status.as_ref());
        // No run needs the Secret with the outputs.
        let name = render::outputs_name(workspace);
        let outputs = ObjectId::named::<Secret>(key.namespace.as_deref(), &name);
        let refusal = done.refusals().find(|refusal| refusal.object != outputs);
        if begins && (done.failure.is_some() || refusal.is_some()) {
            // What a run needs was not written: the run has not begun.
            *status = workspace.status.clone().unwrap_or_default();
        } else {
            if let Some(refusal) = refusal.filter(|_| done.failure.is_none() && !has_job(status, done)) {
                refused(status, refusal, now);
            }
            outputs_written(workspace, status, done, &outputs);
            if done.failure.is_some() {
                let before = workspace.status.as_ref();
                // A lock that was to be removed may still exist, and the request to remove it is still open.
                status.handled.unlock = before.and_then(|before| before.handled.unlock.clone());
                // Like the conditions, the phase assumes that the write succeeded.
                status.phase = before.map(|before| before.phase).unwrap_or_default();
            }
        }
        if done.refusal().is_some() && status.phase == WorkspacePhase::Ready {
            // The conditions will report the refusal: the phase must not say that all is well.
            status.phase = WorkspacePhase::Failed;
        }
        if status.run.as_ref().is_none_or(Run::is_over) {
            for next in self.slots.give_back(&key) {
                self.wake(&next);
            }
        }
    }

    fn published(&self, workspace: &TerraformWorkspace, status: &TerraformWorkspaceStatus, now: Timestamp) {
        if let Some(workspace_metrics) = &self.workspace_metrics {
            workspace_metrics.show(&Key::of(workspace), workspace.status.as_ref(), status, now);
        }
    }

    fn forget(&self, key: &Key) {
        self.release(key);
        if let Some(workspace_metrics) = &self.workspace_metrics {
            workspace_metrics.forget(key);
        }
    }
}

/// Records the current contents of the Secret with the outputs, or reverts the record that it was written.
fn outputs_written(
    workspace: &TerraformWorkspace,
    status: &mut TerraformWorkspaceStatus,
    done: &Done<'_>,
    outputs: &ObjectId,
) {
    let before = workspace.status.as_ref();
    if status.outputs_written == before.and_then(|before| before.outputs_written.clone()) {
        return;
    }
    let version = done.attempts.iter().find_map(|attempt| match &attempt.outcome {
        Outcome::Applied { object, .. } if attempt.write.object().as_ref() == Some(outputs) => {
            object.resource_version()
        }
        _ => None,
    });
    if let (Some(version), Some(written)) = (version, &mut status.outputs_written) {
        written.secret = version;
    } else {
        status.outputs_secret = before.and_then(|before| before.outputs_secret.clone());
        status.outputs_written = None;
    }
}

/// Whether the Job of the run is known to exist, even if only since this pass.
fn has_job(status: &TerraformWorkspaceStatus, done: &Done<'_>) -> bool {
    let Some(run) = &status.run else { return false };
    let made = |attempt: &Attempt<'_>| {
        let is_job = |id: ObjectId| id.name == run.job && id.kind.kind == Job::kind(&());
        matches!(attempt.outcome, Outcome::Applied { .. }) && attempt.write.object().is_some_and(is_job)
    };
    run.job_uid.is_some() || done.attempts.iter().any(made)
}

/// The workspace for which an object was created.
fn owner(object: &PartialObjectMeta<DynamicObject>) -> Option<Key> {
    let words = object.annotations().get(OWNER_ANNOTATION)?;
    let (namespace, name) = words.strip_prefix("TerraformWorkspace/")?.split_once('/')?;
    (object.namespace().as_deref() == Some(namespace))
        .then(|| Key { namespace: Some(namespace.to_owned()), name: name.to_owned() })
}
