//! Reads what a workspace refers to, its Jobs, its Secrets and its lock. Decides nothing.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::OptionFuture;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, ContainerState, ContainerStatus, Pod, Secret};
use kube::api::{ListParams, ObjectMeta, PartialObjectMeta};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use opcore::conditions;
use opcore::duration::Span;
use opcore::ownership::OWNER_LABEL;
use opcore::writes::Target;
use opcore::{Error, Reader};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

mod kept;

pub use kept::ObservedKey;

use crate::api::v1alpha1::{
    Dependency, LockStatus, ManagedBackend, TerraformWorkspace, TerraformWorkspaceStatus, WorkspacePhase,
};
use crate::render::{
    self, Adopted, CHUNKS_ANNOTATION, Found, Inputs, PART_LABEL, Problem, Reference, Settings, Source, Sources,
};
use crate::run::names::Names;
use crate::run::report::{Journal, OutputValues, Report};
use crate::store::places::Index;
use crate::store::state::INDEX_KEY;

/// The time that Kubernetes uses where it knows none.
const EPOCH: Timestamp = Timestamp::UNIX_EPOCH;
/// How many of the objects that a spec refers to are read at a time.
const READ_AT_ONCE: usize = 2;

/// Everything that was read for a workspace.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The inputs that the spec asks for, or why they are not available.
    pub inputs: Result<Inputs, Problem>,
    /// A property of its pods that is requested but not allowed, not even for a destroy.
    pub refused: Option<Problem>,
    /// Its Jobs.
    pub jobs: Vec<ObservedJob>,
    /// The pod of the active run.
    pub pod: ObservedPod,
    /// The report of the last run.
    pub report: Option<Report>,
    /// What a run had begun to create and the state does not contain.
    pub journal: Option<Journal>,
    /// The outputs as last reported; none if their Secret has them already.
    pub outputs: Option<OutputValues>,
    /// Why the reported outputs cannot be read.
    pub outputs_fault: Option<String>,
    /// The Secrets that were created for it.
    pub parts: Vec<ObservedPart>,
    /// The places of the current versions of the state, if there are more places than there should be and nobody is
    /// writing.
    pub kept_places: Option<BTreeSet<usize>>,
    /// The lock of the state, if it is held.
    pub lock: Option<ObservedLock>,
    /// The Lease that serves as the lock, held or not.
    pub lease: Option<Target>,
    /// The state to adopt, if the workspace names one and has none of its own.
    pub adopted: Option<Adopted>,
    /// What it must wait for before it can be planned, as clauses.
    pub waits_for: Vec<String>,
    /// The cycle of workspaces that depend on each other, if this is one of them.
    pub circle: Option<String>,
    /// Workspaces that depend on it.
    pub dependants: Vec<String>,
    /// Whether a run may begin: true until a turn was refused.
    pub turn: bool,
    /// The key for the hashes of its inputs; none if it was not needed.
    pub key: Option<ObservedKey>,
    /// Permission to keep more than a little of the referenced data in memory, as long as this is held.
    pub room: Option<Arc<OwnedSemaphorePermit>>,
}

/// The limit for referenced data in memory: a little for each reconcile, and more for a few at a time. This way no
/// author can use up the memory of the process by referring to large data in many workspaces.
#[derive(Clone, Debug)]
pub struct Room(Arc<Semaphore>);

impl Room {
    /// What each reconcile may read.
    const LITTLE: usize = 256 * 1024;
    /// How many may read more, up to the limit for inputs.
    const AT_ONCE: usize = 2;
}

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(Self::AT_ONCE)))
    }
}

/// A Job of a workspace.
#[derive(Clone, Debug)]
pub struct ObservedJob {
    /// The exact Job.
    pub target: Target,
    /// When it was created.
    pub made_at: Option<Timestamp>,
    /// How it ended, if it has.
    pub ended: Option<JobEnd>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// The pod of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ObservedPod {
    /// It does not exist.
    #[default]
    None,
    /// It is being started.
    Starting {
        /// Its name.
        pod: String,
        /// Since when.
        since: Option<Timestamp>,
    },
    /// It is not starting, for this reason.
    Stuck(String),
    /// It has ended, and Terraform has certainly never run in it, for this reason.
    NeverRan(String),
    /// Terraform is running in it, or has run.
    Started,
    /// Terraform is running in it, or has run, and the pod should be gone by now.
    Leaving {
        /// Its name.
        pod: String,
        /// Its node.
        node: String,
        /// When it should have been gone.
        by: Timestamp,
    },
}

/// How a Job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// It succeeded.
    Complete,
    /// It failed for this reason.
    Failed(String),
}

/// A Secret that was created for a workspace.
#[derive(Clone, Debug)]
pub struct ObservedPart {
    /// The exact Secret.
    pub target: Target,
    /// Its role: `inputs`, `outputs`, `kept`.
    pub part: String,
    /// How many chunks there are, if it is one of several.
    pub chunks: usize,
    /// Its version.
    pub version: String,
}

/// The lock of the state.
#[derive(Clone, Debug)]
pub struct ObservedLock {
    /// The exact Lease.
    pub target: Target,
    /// Its version.
    pub version: Option<String>,
    /// Who holds it.
    pub holder: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// When it expires unless it is renewed; none if the Lease does not say.
    pub expires_at: Option<Timestamp>,
    /// Whether the holder is a pod that is still running.
    pub is_alive: bool,
}

impl ObservedLock {
    /// Identifies this lock exactly: its holder, and since when it is held.
    pub fn words(&self) -> String {
        LockStatus { holder: self.holder.clone(), since: self.since }.words()
    }
}

impl Observed {
    /// The Job of this name.
    pub fn job(&self, name: &str) -> Option<&ObservedJob> {
        self.jobs.iter().find(|job| job.target.name == name)
    }

    /// How many chunks the kept inputs with this hash have, if all of them exist.
    pub fn kept_inputs(&self, names: &Names, hash: &str) -> Option<usize> {
        let has = |name: &str| self.parts.iter().find(|part| part.target.name == name);
        let chunks = has(&names.inputs_chunk(hash, 0))?.chunks;
        (0..chunks).all(|chunk| has(&names.inputs_chunk(hash, chunk)).is_some()).then_some(chunks)
    }

    /// Whether a state exists in the cluster.
    pub fn has_state(&self, names: &Names) -> bool {
        self.parts.iter().any(|part| part.target.name == names.state())
    }
}

/// Reads everything that a decision about a workspace needs.
pub(crate) async fn observe(
    workspace: &TerraformWorkspace,
    reader: &Reader,
    settings: &Settings,
    room: &Room,
) -> Result<Observed, Error> {
    let namespace = workspace.namespace().unwrap_or_default();
    let names = render::names(workspace);
    let reading = Reading { reader: reader.clone(), namespace, names, uid: workspace.uid().unwrap_or_default() };
    // What a run writes is read after its Job: a Job that is over has reported everything.
    let jobs = reading.jobs().await?;
    let run = workspace.status.as_ref().and_then(|status| status.run.as_ref()).filter(|run| !run.is_over());
    let pods: OptionFuture<_> = run.map(|_| reading.pods()).into();
    let deleting = workspace.metadata.deletion_timestamp.is_some();
    let (referred, parts, lease, pods, dependencies) = futures::try_join!(
        reading.referred(workspace, room),
        reading.parts(),
        reading.lease(),
        async { pods.await.transpose() },
        reading.dependencies(workspace),
    )?;
    let begins = !deleting && !parts.iter().any(|part| part.target.name == reading.names.state());
    let adopted: OptionFuture<_> = workspace
        .spec
        .backend
        .adopted()
        .filter(|_| begins)
        .map(|secret| reading.adopted(secret, workspace.name_any()))
        .into();
    let adopted = adopted.await.transpose()?;
    let (reports, key) = futures::try_join!(reading.run_reports(workspace, &parts), reading.key(workspace, &parts))?;
    let lock = match lease.as_ref().and_then(observed_lock) {
        Some(mut lock) => {
            let pods = match &pods {
                Some(pods) => pods.clone(),
                None => reading.pods().await?,
            };
            let holds = |pod: &&Pod| pod.uid().as_deref() == Some(&lock.holder) && !has_ended(pod);
            lock.is_alive = pods.iter().any(|pod| holds(&pod));
            Some(lock)
        }
        None => None,
    };
    let kept_places = if run.is_some() || deleting || lock.is_some() {
        None
    } else {
        reading.kept_places(&parts, workspace.spec.history.states).await?
    };
    let permitted = settings.permit(&workspace.spec);
    let sources = permitted.and(referred.sources);
    Ok(Observed {
        inputs: sources.and_then(|sources| render::keyed_inputs(&workspace.spec, &sources, &key.of_inputs(workspace))),
        refused: settings.authors.permit_pods(&workspace.spec).err(),
        jobs,
        pod: run.map(|run| observed_pod(pods.iter().flatten(), &run.job)).unwrap_or_default(),
        report: reports.report,
        journal: reports.journal,
        outputs: reports.outputs,
        outputs_fault: reports.outputs_fault,
        parts,
        kept_places,
        lock,
        lease: lease.as_ref().map(Target::of),
        adopted,
        waits_for: dependencies.waits_for,
        circle: dependencies.circle,
        dependants: dependencies.dependants,
        turn: true,
        key: Some(key),
        room: referred.room,
    })
}

struct Reading {
    reader: Reader,
    namespace: String,
    names: Names,
    uid: String,
}

/// The objects that the spec refers to.
struct Referred {
    sources: Result<Sources, Problem>,
    room: Option<Arc<OwnedSemaphorePermit>>,
}

#[derive(Default)]
struct Dependencies {
    waits_for: Vec<String>,
    circle: Option<String>,
    dependants: Vec<String>,
}

impl Reading {
    fn ours(&self) -> ListParams {
        ListParams::default().labels(&format!("{OWNER_LABEL}={}", self.uid))
    }

    async fn jobs(&self) -> Result<Vec<ObservedJob>, Error> {
        let jobs = self.reader.namespaced::<Job>(&self.namespace);
        Ok(jobs.list(&self.ours()).await?.items.iter().map(observed_job).collect())
    }

    async fn pods(&self) -> Result<Vec<Pod>, Error> {
        let pods = self.reader.namespaced::<Pod>(&self.namespace);
        let all = pods.list(&ListParams::default().labels(&format!("{PART_LABEL}=run"))).await?;
        let belongs = |pod: &Pod| {
            let job = pod.owner_references().iter().find(|owner| owner.kind == "Job");
            job.is_some_and(|job| job.name.strip_prefix(self.names.stem()).is_some_and(|rest| rest.starts_with('-')))
        };
        Ok(all.items.into_iter().filter(belongs).collect())
    }

    /// Reads what the spec refers to, one object after the other, and stops when it is too much.
    async fn referred(&self, workspace: &TerraformWorkspace, room: &Room) -> Result<Referred, Error> {
        let mut referred = Referred { sources: Ok(Sources::new()), room: None };
        // A destroy works from the kept inputs: what the spec refers to may be gone, or have an invalid name.
        if workspace.metadata.deletion_timestamp.is_some() {
            return Ok(referred);
        }
        let wanted = render::wanted(&workspace.spec);
        if let Err(problem) = render::few_enough(wanted.len()) {
            referred.sources = Err(problem);
            return Ok(referred);
        }
        let (mut sources, mut total) = (Sources::new(), 0);
        let read = wanted.into_iter().map(|(reference, keys)| self.source(reference, keys));
        let mut read = std::pin::pin!(stream::iter(read).buffered(READ_AT_ONCE));
        while let Some((reference, found)) = read.try_next().await? {
            total += found.iter().flatten().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            if let Err(problem) = render::small_enough(total, &reference) {
                referred.sources = Err(problem);
                return Ok(referred);
            }
            if total > Room::LITTLE && referred.room.is_none() {
                // The semaphore is never closed.
                referred.room = room.0.clone().acquire_owned().await.ok().map(Arc::new);
            }
            sources.insert(reference, found);
        }
        referred.sources = Ok(sources);
        Ok(referred)
    }

    async fn source(&self, reference: Reference, keys: Option<BTreeSet<String>>) -> Result<(Reference, Found), Error> {
        let mut found: Found = match reference.0 {
            Source::Secret => {
                let secrets = self.reader.namespaced::<Secret>(&self.namespace);
                let secret = secrets.get_opt(&reference.1).await?;
                secret.map(|secret| secret.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect())
            }
            Source::ConfigMap => {
                let maps = self.reader.namespaced::<ConfigMap>(&self.namespace);
                maps.get_opt(&reference.1).await?.map(|map| {
                    let text = map.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes()));
                    text.chain(map.binary_data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0))).collect()
                })
            }
        };
        if let (Some(found), Some(keys)) = (&mut found, keys) {
            found.retain(|key, _| keys.contains(key));
        }
        Ok((reference, found))
    }

    async fn adopted(&self, name: &str, own: String) -> Result<Adopted, Error> {
        let secrets = self.reader.namespaced::<Secret>(&self.namespace);
        let workspaces = self.reader.namespaced::<Neighbour>(&self.namespace);
        let everyone = ListParams::default();
        let (secret, all) = futures::try_join!(secrets.get_opt(name), workspaces.list(&everyone))?;
        let owner = secret.as_ref().and_then(|secret| secret.labels().get(OWNER_LABEL)).cloned();
        let is_owner = |other: &&Neighbour| owner.is_some() && other.uid() == owner;
        let names_it = |other: &&Neighbour| {
            other.name_any() != own
                && other.spec.backend.managed.as_ref().and_then(ManagedBackend::adopted) == Some(name)
        };
        Ok(Adopted {
            secret: name.to_owned(),
            keys: secret.map(|secret| secret.data.unwrap_or_default().into_keys().collect()),
            owner: all.iter().find(is_owner).map(ResourceExt::name_any),
            others: all.iter().filter(names_it).map(ResourceExt::name_any).collect(),
        })
    }

    async fn parts(&self) -> Result<Vec<ObservedPart>, Error> {
        let secrets = self.reader.namespaced::<Secret>(&self.namespace);
        let all = secrets.list_metadata(&self.ours()).await?;
        Ok(all.items.iter().map(observed_part).collect())
    }

    async fn kept_places(&self, parts: &[ObservedPart], states: i32) -> Result<Option<BTreeSet<usize>>, Error> {
        let used: BTreeSet<usize> = parts.iter().filter_map(|part| self.names.place_of(&part.target.name)).collect();
        if used.len() <= usize::try_from(states).unwrap_or(1).max(1) {
            return Ok(None);
        }
        let secrets = self.reader.namespaced::<Secret>(&self.namespace);
        let secret = secrets.get_opt(&self.names.state()).await?;
        let bytes = secret.as_ref().and_then(|secret| secret.data.as_ref()?.get(INDEX_KEY));
        let index = bytes.and_then(|bytes| serde_json::from_slice::<Index>(&bytes.0).ok());
        // Last: a process that began to write after the Secrets were listed holds the lock by now.
        let is_held = self.lease().await?.is_some_and(|lease| observed_lock(&lease).is_some());
        let index = index.filter(|index| !is_held && index.current().is_some());
        Ok(index.map(|index| index.versions.iter().map(|version| version.place).collect()))
    }

    async fn lease(&self) -> Result<Option<Lease>, Error> {
        let leases = self.reader.namespaced::<Lease>(&self.namespace);
        leases.get_opt(&self.names.lease()).await
    }

    async fn dependencies(&self, workspace: &TerraformWorkspace) -> Result<Dependencies, Error> {
        let deleting = workspace.metadata.deletion_timestamp.is_some();
        if workspace.spec.depends_on.is_empty() && !deleting {
            return Ok(Dependencies::default());
        }
        let workspaces = self.reader.namespaced::<Neighbour>(&self.namespace);
        let all = workspaces.list(&ListParams::default()).await?.items;
        let name = workspace.name_any();
        let needs = |other: &Neighbour| other.spec.depends_on.iter().any(|needed| needed.name == name);
        let lacks = workspace.spec.depends_on.iter().filter_map(|needed| {
            match all.iter().find(|other| other.name_any() == needed.name) {
                None => Some(format!("TerraformWorkspace {}, which does not exist", needed.name)),
                Some(other) if is_ready(other) => None,
                Some(_) => Some(format!("TerraformWorkspace {} to be ready", needed.name)),
            }
        });
        let circle = circle(&name, &all);
        // In a cycle no workspace is first: its members would wait for each other for ever.
        let beside = |other: &str| circle.as_ref().is_some_and(|path| path.iter().any(|name| name == other));
        let dependants = all.iter().filter(|other| needs(other)).map(ResourceExt::name_any);
        Ok(Dependencies {
            waits_for: lacks.collect(),
            dependants: dependants.filter(|other| *other != name && !beside(other)).collect(),
            circle: circle.map(|path| path.join(" → ")),
        })
    }
}

/// Another workspace of the namespace, with the fields that matter for dependencies. The rest of its spec may be large
/// or unreadable, and is ignored.
#[derive(Clone, Debug, Deserialize)]
struct Neighbour {
    metadata: ObjectMeta,
    spec: Needs,
    status: Option<TerraformWorkspaceStatus>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Needs {
    #[serde(default)]
    depends_on: Vec<Dependency>,
    #[serde(default)]
    backend: NeighbourBackend,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NeighbourBackend {
    managed: Option<ManagedBackend>,
}

impl Resource for Neighbour {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn group((): &()) -> Cow<'_, str> {
        TerraformWorkspace::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        TerraformWorkspace::version(&())
    }

    fn kind((): &()) -> Cow<'_, str> {
        TerraformWorkspace::kind(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        TerraformWorkspace::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The cycle that contains this workspace: from one of its members back to it.
fn circle(name: &str, all: &[Neighbour]) -> Option<Vec<String>> {
    let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
    let edges = all.iter().zip(&names).map(|(workspace, name)| {
        (name.as_str(), workspace.spec.depends_on.iter().map(|needed| needed.name.as_str()).collect())
    });
    let path = opcore::graph::cycle_through(&edges.collect(), name)?;
    Some(path.into_iter().map(str::to_owned).collect())
}

fn is_ready(workspace: &Neighbour) -> bool {
    let Some(status) = &workspace.status else { return false };
    status.phase == WorkspacePhase::Ready
        && status.observed_generation == workspace.metadata.generation
        && conditions::is_true(&status.conditions, conditions::READY)
        && workspace.metadata.deletion_timestamp.is_none()
}

/// Whether a Job is over.
pub(crate) fn is_over(job: &Job) -> bool {
    ending(job).is_some()
}

fn ending(job: &Job) -> Option<JobEnd> {
    let over = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut over = over.filter(|condition| condition.status == "True");
    over.find_map(|condition| match condition.type_.as_str() {
        "Complete" => Some(JobEnd::Complete),
        "Failed" => {
            let words = [condition.reason.as_deref(), condition.message.as_deref()];
            Some(JobEnd::Failed(words.into_iter().flatten().collect::<Vec<_>>().join(": ")))
        }
        _ => None,
    })
}

fn observed_job(job: &Job) -> ObservedJob {
    ObservedJob {
        target: Target::of(job),
        made_at: job.metadata.creation_timestamp.as_ref().map(|time| time.0),
        ended: ending(job),
        deleting: job.metadata.deletion_timestamp.is_some(),
    }
}

fn observed_part(secret: &PartialObjectMeta<Secret>) -> ObservedPart {
    let resource = kube::api::ApiResource::erase::<Secret>(&());
    ObservedPart {
        target: Target::dynamic(&resource, secret),
        part: secret.labels().get(PART_LABEL).cloned().unwrap_or_default(),
        chunks: secret.annotations().get(CHUNKS_ANNOTATION).and_then(|count| count.parse().ok()).unwrap_or(1),
        version: secret.resource_version().unwrap_or_default(),
    }
}

fn observed_lock(lease: &Lease) -> Option<ObservedLock> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
    let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let renewed = spec.renew_time.as_ref().or(spec.acquire_time.as_ref()).map(|time| time.0);
    Some(ObservedLock {
        target: Target::of(lease),
        version: lease.resource_version(),
        holder,
        since: spec.acquire_time.as_ref().map(|time| time.0),
        expires_at: lasts.zip(renewed).map(|(seconds, renewed)| Span::from_secs(seconds).after(renewed)),
        is_alive: false,
    })
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The pod of the run with this Job. There may have been several: what matters is whether any of them has started.
fn observed_pod<'a>(pods: impl Iterator<Item = &'a Pod>, job: &str) -> ObservedPod {
    let of_run = |pod: &&Pod| pod.owner_references().iter().any(|owner| owner.kind == "Job" && owner.name == job);
    let pods: Vec<&Pod> = pods.filter(of_run).collect();
    if let Some(pod) = pods.iter().find(|pod| has_started(pod)) {
        let by = pod.metadata.deletion_timestamp.as_ref().filter(|_| !has_ended(pod)).map(|time| time.0);
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        return by.map_or(ObservedPod::Started, |by| ObservedPod::Leaving { pod: pod.name_any(), node, by });
    }
    if let Some(why) = pods.iter().find_map(|pod| never_ran(pod)) {
        return ObservedPod::NeverRan(why);
    }
    match (pods.iter().find_map(|pod| trouble(pod)), pods.first()) {
        (Some(trouble), _) => ObservedPod::Stuck(trouble),
        (None, None) => ObservedPod::None,
        (None, Some(pod)) => {
            let since = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            ObservedPod::Starting { pod: pod.name_any(), since }
        }
    }
}

/// Whether the container of Terraform has ever run. A container that never ran is reported as terminated, too, when its
/// pod is deleted, but without a start time.
fn has_started(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ran = |state: &ContainerState| {
        let over = state.terminated.as_ref();
        state.running.is_some() || over.is_some_and(|over| over.started_at.as_ref().is_some_and(|at| at.0 > EPOCH))
    };
    let ever = |container: &ContainerStatus| [&container.state, &container.last_state].into_iter().flatten().any(ran);
    containers.into_iter().any(ever)
}

/// Why a pod that has failed never ran Terraform, if that is certain. That the kubelet does not know what became of a
/// container says nothing.
fn never_ran(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Failed"))?;
    let ended = |container: &ContainerStatus| container.state.as_ref()?.terminated.clone();
    let is_waiting = |container: &ContainerStatus| {
        container.state.as_ref().is_some_and(|state| state.waiting.is_some()) && container.last_state.is_none()
    };
    // The runtime could not start it, as with a limit for memory that is too low for any program.
    let unstarted = status.container_statuses.iter().flatten().find_map(|container| {
        let ended = ended(container)?;
        matches!(ended.reason.as_deref(), Some("StartError" | "ContainerCannotRun")).then_some((container, ended))
    });
    // One that comes before it has failed.
    let all_wait = status.container_statuses.iter().flatten().all(is_waiting);
    let before =
        status.init_container_statuses.iter().flatten().filter(|_| all_wait).find_map(|container| {
            ended(container).filter(|ended| ended.exit_code != 0).map(|ended| (container, ended))
        });
    let failed = if unstarted.is_some() { "could not be started" } else { "failed" };
    let (container, ended) = unstarted.or(before)?;
    let words = [ended.reason, ended.message].into_iter().flatten().collect::<Vec<_>>().join(": ");
    Some(conditions::shortened(&format!("container {} {failed}: {words}", container.name), 500))
}

/// Why a pod is not starting, if so.
fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let unscheduled = status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled" && condition.status == "False" && condition.reason.is_some()
    });
    if let Some(condition) = unscheduled {
        return Some(format!("its pod cannot be scheduled: {}", condition.message.as_deref().unwrap_or_default()));
    }
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    containers.into_iter().find_map(waiting)
}

fn waiting(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason =
        waiting.reason.as_deref().filter(|reason| !matches!(*reason, "ContainerCreating" | "PodInitializing"))?;
    let message = waiting.message.as_deref().map(|message| format!(" ({message})")).unwrap_or_default();
    Some(format!("container {} is not starting: {reason}{message}", container.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(phase: &str, state: &serde_json::Value, leaves: bool) -> Pod {
        let mut pod = json!({
            "metadata": { "name": "p", "ownerReferences": [
                { "apiVersion": "batch/v1", "kind": "Job", "name": "tf-net-1", "uid": "j", "controller": true },
            ] },
            "spec": { "nodeName": "node-1", "containers": [] },
            "status": { "phase": phase, "containerStatuses": [
                { "name": "terraform", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state },
            ] },
        });
        if leaves {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:02:30Z");
        }
        serde_json::from_value(pod).unwrap()
    }

    fn observed(pod: &Pod) -> ObservedPod {
        observed_pod([pod].into_iter(), "tf-net-1")
    }

    #[test]
    fn a_pod_has_started_when_terraform_ever_ran_in_it() {
        let running = json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } });
        let over = json!({ "terminated": { "exitCode": 0, "startedAt": "2026-01-01T00:00:00Z" } });
        // What a kubelet reports about a container that never ran, when its pod is deleted.
        let unknown =
            json!({ "terminated": { "exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": null } });
        let stuck = json!({ "waiting": { "reason": "ErrImagePull" } });
        assert_eq!(observed(&pod("Running", &running, false)), ObservedPod::Started);
        assert_eq!(observed(&pod("Succeeded", &over, false)), ObservedPod::Started);
        assert!(matches!(observed(&pod("Failed", &unknown, true)), ObservedPod::Starting { .. }));
        assert!(matches!(observed(&pod("Pending", &stuck, true)), ObservedPod::Stuck(_)));
        let leaving = observed(&pod("Running", &running, true));
        assert!(matches!(leaving, ObservedPod::Leaving { ref node, .. } if node == "node-1"), "{leaving:?}");
        assert_eq!(
            observed(&pod("Failed", &over, true)),
            ObservedPod::Started,
            "it has ended: nobody waits for its node"
        );
        assert_eq!(observed_pod([].into_iter(), "tf-net-1"), ObservedPod::None);
    }

    #[test]
    fn of_a_failed_pod_it_is_known_whether_terraform_has_certainly_never_run_in_it() {
        // What a kubelet reports of a container whose limit for memory no program fits in.
        let unstartable = json!({ "terminated": {
            "exitCode": 128, "reason": "StartError", "startedAt": "1970-01-01T00:00:00Z",
            "message": "unable to set memory limit to 1",
        } });
        let ObservedPod::NeverRan(why) = observed(&pod("Failed", &unstartable, false)) else { panic!("it never ran") };
        assert_eq!(why, "container terraform could not be started: StartError: unable to set memory limit to 1");
        let unknown =
            json!({ "terminated": { "exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": null } });
        assert!(matches!(observed(&pod("Failed", &unknown, false)), ObservedPod::Starting { .. }), "it may have run");
        let waiting = json!({ "waiting": { "reason": "PodInitializing" } });
        let mut failed_before = pod("Failed", &waiting, false);
        let install = json!([{
            "name": "install", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": 1, "reason": "Error", "startedAt": "2026-01-01T00:00:00Z" } },
        }]);
        failed_before.status.as_mut().unwrap().init_container_statuses = serde_json::from_value(install).unwrap();
        let ObservedPod::NeverRan(why) = observed(&failed_before) else { panic!("it never ran") };
        assert_eq!(why, "container install failed: Error");
    }
}
