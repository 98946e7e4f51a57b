//! How it is put together: what wakes a workspace, and the way from looking to concluding.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DynamicObject, ListParams, PartialObjectMeta};
use kube::{Api, Resource, ResourceExt};
use opcore::act::{Attempt, Done, Outcome};
use opcore::controller::{Wakes, Watches};
use opcore::metrics::Metrics;
use opcore::ownership::{OPERATOR_LABEL, OWNER_ANNOTATION};
use opcore::queue::Key;
use opcore::{Admission, Context, DecisionOf, Error, ObjectId, Operator, lock};
use tokio::sync::OnceCell;

use crate::api::v1alpha1::{Action, FINALIZER, Run, TerraformWorkspace, TerraformWorkspaceStatus, WORKSPACE_LABEL};
use crate::decide::{Turn, keep_applied, refused, tear_down};
use crate::measures::Measures;
use crate::observe::{self, Room, Seen};
use crate::render::{self, OPERATOR, Settings, Source};
use crate::slots::{Class, Limits, Slots};

/// The operator of [`TerraformWorkspace`]s.
pub struct Workspaces {
    settings: Settings,
    slots: Arc<Slots>,
    room: Room,
    measures: Option<Measures>,
    interests: Arc<Mutex<Interests>>,
    wakes: OnceLock<Wakes>,
    recovered: OnceCell<()>,
}

/// What a workspace wants to hear of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Interest {
    Source(Source, String),
    Workspace(String),
}

/// Who wants to hear of what.
#[derive(Debug, Default)]
struct Interests {
    by_workspace: HashMap<Key, BTreeSet<Interest>>,
    /// The same, from the other end: every change of a Secret asks for it. By namespace and what is there.
    by_interest: HashMap<(Option<String>, Interest), BTreeSet<Key>>,
}

impl Interests {
    /// From now on a workspace wants to hear of these, and of no others. Answers what it no longer wants to hear of.
    fn put(&mut self, key: &Key, interests: BTreeSet<Interest>) -> BTreeSet<Interest> {
        if self.by_workspace.get(key) == Some(&interests) {
            return BTreeSet::new();
        }
        let mut before = self.remove(key);
        before.retain(|interest| !interests.contains(interest));
        for interest in &interests {
            self.by_interest.entry((key.namespace.clone(), interest.clone())).or_default().insert(key.clone());
        }
        self.by_workspace.insert(key.clone(), interests);
        before
    }

    /// The other workspaces that one wants to hear of.
    fn workspaces_of(&self, key: &Key) -> Vec<Interest> {
        let interests = self.by_workspace.get(key).into_iter().flatten();
        interests.filter(|interest| matches!(interest, Interest::Workspace(_))).cloned().collect()
    }

    /// A workspace wants to hear of nothing any more. Answers what it wanted to hear of.
    fn remove(&mut self, key: &Key) -> BTreeSet<Interest> {
        let interests = self.by_workspace.remove(key).unwrap_or_default();
        for interest in &interests {
            let entry = (key.namespace.clone(), interest.clone());
            if let Some(keys) = self.by_interest.get_mut(&entry) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_interest.remove(&entry);
                }
            }
        }
        interests
    }

    fn whom(&self, namespace: Option<String>, interest: Interest) -> impl Iterator<Item = Key> {
        self.by_interest.get(&(namespace, interest)).into_iter().flatten().cloned()
    }
}

impl Workspaces {
    /// An operator that knows nothing yet.
    pub fn new(settings: Settings, limits: Limits) -> Self {
        Self {
            settings,
            slots: Arc::new(Slots::new(limits.into())),
            room: Room::default(),
            measures: None,
            interests: Arc::default(),
            wakes: OnceLock::new(),
            recovered: OnceCell::new(),
        }
    }

    /// The same, which also shows in these metrics what it does.
    #[must_use]
    pub fn measured(mut self, metrics: &Metrics) -> Self {
        // Workspaces are kept applied all the same.
        let measures = Measures::new(metrics, &self.slots);
        self.measures = measures.inspect_err(|error| tracing::error!(%error, "workspaces are not measured")).ok();
        self
    }

    /// Runs that were under way when this process began count before any other may begin.
    async fn recover(&self, context: &Context) -> Result<(), Error> {
        let client = || context.client().clone();
        let everywhere = match context.namespaces() {
            [] => vec![Api::<Job>::all(client())],
            some => some.iter().map(|namespace| Api::namespaced(client(), namespace)).collect(),
        };
        let ours = ListParams::default().labels(&format!("{OPERATOR_LABEL}={OPERATOR}"));
        for jobs in everywhere {
            for job in jobs.list(&ours).await?.items.iter().filter(|job| !observe::is_over(job)) {
                let check = job.labels().get("action").map(String::as_str) == Some(Action::Check.word());
                // Whoever can make Jobs can label them; whose they are is another matter.
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

    /// Those that a workspace depended on may wait for that to end.
    fn wake_depended_on(&self, key: &Key, let_go: BTreeSet<Interest>) {
        for interest in let_go {
            if let Interest::Workspace(name) = interest {
                self.wake(&Key { namespace: key.namespace.clone(), name });
            }
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
    type Seen = Seen;
    type Claims = Turn;

    const FINALIZER: &'static str = FINALIZER;

    fn watches(&self, watches: &mut Watches<TerraformWorkspace>) {
        let _ = self.wakes.set(watches.wakes());
        watches.owns::<Job>();
        watches.concerns::<Pod>(Some(WORKSPACE_LABEL), |pod| owner(pod).into_iter().collect());
        watches.concerns::<Lease>(Some(WORKSPACE_LABEL), |lease| owner(lease).into_iter().collect());
        let interests = self.interests.clone();
        watches.concerns::<Secret>(None, move |secret| {
            whom(&interests, secret, |name| Interest::Source(Source::Secret, name))
        });
        let interests = self.interests.clone();
        watches.concerns::<ConfigMap>(None, move |map| {
            whom(&interests, map, |name| Interest::Source(Source::ConfigMap, name))
        });
        let interests = self.interests.clone();
        watches.concerns::<TerraformWorkspace>(None, move |other| whom(&interests, other, Interest::Workspace));
    }

    async fn observe(&self, workspace: &TerraformWorkspace, context: &Context) -> Result<Seen, Error> {
        let key = Key::of(workspace);
        let adopted = workspace.spec.backend.adopted().map(|name| (Source::Secret, name.to_owned()));
        let sources = render::references(&workspace.spec).into_iter().chain(adopted);
        let sources = sources.map(|(source, name)| Interest::Source(source, name));
        let needed = workspace.spec.depends_on.iter().map(|needed| Interest::Workspace(needed.name.clone()));
        let mut interests: BTreeSet<Interest> = sources.chain(needed).collect();
        if workspace.spec.backend.adopted().is_some() {
            // Whom it waits for is found out below, and held on to.
            interests.extend(lock(&self.interests).workspaces_of(&key));
        }
        let let_go = lock(&self.interests).put(&key, interests.clone());
        self.wake_depended_on(&key, let_go);

        let now = context.now();
        let mut seen = observe::look(workspace, context.client(), &self.settings, &self.room, now).await?;
        let others = seen.adopted.iter().flat_map(|adopted| adopted.owner.iter().chain(&adopted.others)).cloned();
        let known = interests.len();
        interests.extend(others.map(Interest::Workspace));
        if interests.len() > known {
            lock(&self.interests).put(&key, interests);
            // Looked at before anyone would have told: once more. What is held of the first look is let go before: others
            // may wait for it, and so would this one.
            drop(seen);
            seen = observe::look(workspace, context.client(), &self.settings, &self.room, now).await?;
        }
        Ok(seen)
    }

    fn decide(&self, workspace: &TerraformWorkspace, seen: &Seen, now: Timestamp) -> DecisionOf<Self> {
        keep_applied(workspace, seen, &self.settings, now)
    }

    fn tear_down(&self, workspace: &TerraformWorkspace, seen: &Seen, now: Timestamp) -> DecisionOf<Self> {
        tear_down(workspace, seen, &self.settings, now)
    }

    async fn admit(
        &self,
        workspace: &TerraformWorkspace,
        turn: Turn,
        seen: &mut Seen,
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
                    // That run is over by now: who has waited longer for a turn comes first.
                    self.release(&key);
                }
                seen.turn = self.slots.take(&key, class);
                if !seen.turn {
                    return Ok(Admission::DecideAnew);
                }
                for next in self.slots.due() {
                    self.wake(&next);
                }
            }
        }
        Ok(Admission::Granted)
    }

    /// A turn is kept as long as a run is under way.
    fn conclude(
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
            // What a run needs was not written: it has not begun.
            *status = workspace.status.clone().unwrap_or_default();
        } else {
            if let Some(refusal) = refusal.filter(|_| done.failure.is_none() && !has_job(status, done)) {
                refused(status, refusal, now);
            }
            outputs_written(workspace, status, done, &name);
            if done.failure.is_some() {
                let before = workspace.status.as_ref();
                // A lock that was to be taken away may still be there, and the request for it stands.
                status.handled.unlock = before.and_then(|before| before.handled.unlock.clone());
                // As the conditions do, it counts on the write.
                status.phase = before.map(|before| before.phase).unwrap_or_default();
            }
        }
        if status.run.as_ref().is_none_or(Run::is_over) {
            for next in self.slots.give_back(&key) {
                self.wake(&next);
            }
        }
    }

    fn published(&self, workspace: &TerraformWorkspace, status: &TerraformWorkspaceStatus, now: Timestamp) {
        if let Some(measures) = &self.measures {
            measures.show(&Key::of(workspace), workspace.status.as_ref(), status, now);
        }
    }

    fn forget(&self, key: &Key) {
        self.release(key);
        if let Some(measures) = &self.measures {
            measures.forget(key);
        }
        let interests = lock(&self.interests).remove(key);
        self.wake_depended_on(key, interests);
    }
}

/// Takes down what the Secret with the outputs is now, or takes back that it was written.
fn outputs_written(workspace: &TerraformWorkspace, status: &mut TerraformWorkspaceStatus, done: &Done<'_>, name: &str) {
    let before = workspace.status.as_ref();
    if status.outputs_written == before.and_then(|before| before.outputs_written.clone()) {
        return;
    }
    let version = done.attempts.iter().find_map(|attempt| match &attempt.outcome {
        Outcome::Applied { object, .. } if object.name_any() == name => object.resource_version(),
        _ => None,
    });
    if let (Some(version), Some(written)) = (version, &mut status.outputs_written) {
        written.secret = version;
    } else {
        status.outputs_secret = before.and_then(|before| before.outputs_secret.clone());
        status.outputs_written = None;
    }
}

/// Whether the Job of the run is known to exist, if only since now.
fn has_job(status: &TerraformWorkspaceStatus, done: &Done<'_>) -> bool {
    let Some(run) = &status.run else { return false };
    let made = |attempt: &Attempt<'_>| {
        let is_job = |id: ObjectId| id.name == run.job && id.kind.kind == Job::kind(&());
        matches!(attempt.outcome, Outcome::Applied { .. }) && attempt.write.object().is_some_and(is_job)
    };
    run.job_uid.is_some() || done.attempts.iter().any(made)
}

/// The workspace that something was made for.
fn owner(object: &PartialObjectMeta<DynamicObject>) -> Option<Key> {
    let words = object.annotations().get(OWNER_ANNOTATION)?;
    let (namespace, name) = words.strip_prefix("TerraformWorkspace/")?.split_once('/')?;
    (object.namespace().as_deref() == Some(namespace))
        .then(|| Key { namespace: Some(namespace.to_owned()), name: name.to_owned() })
}

/// The workspaces that something was made for, or that refer to it.
fn whom(
    interests: &Mutex<Interests>,
    object: &PartialObjectMeta<DynamicObject>,
    interest: impl Fn(String) -> Interest,
) -> Vec<Key> {
    let interests = lock(interests);
    let refer = interests.whom(object.namespace(), interest(object.name_any()));
    owner(object).into_iter().chain(refer).collect()
}
