//! What a plan subscribes to: its items, with the kinds as the API server has them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ApiResource;
use kube::core::Selector;
use opcore::act::Comparison;
pub use opcore::object::{GroupKind, ObjectId};
use opcore::ownership::{Claimant, OPERATOR_LABEL};
pub use opcore::watch::ScopeId;
pub use opcore::watch::discovery::{Served, WrittenKind};
use opcore::writes::{Apply, Target};

use crate::api::v1alpha1::{HeldObject, Mode, ObjectRef};
use crate::render::{Check, ParsedItem, ParsedPlan, ParsedSubject, ParsedTask, Stage};

/// The watch on all objects of a kind that this operator applied.
pub fn ours(resource: &ApiResource, operator: &str) -> ScopeId {
    ScopeId::new(resource, None).labelled(format!("{OPERATOR_LABEL}={operator}"))
}

/// Whether a watch is only on what this operator applied; the others are on all objects.
pub fn is_ours(scope: &ScopeId) -> bool {
    scope.labels.is_some()
}

/// The watch on the ConfigMaps of a namespace.
pub fn config_maps(namespace: &str) -> ScopeId {
    ScopeId::of::<ConfigMap>(Some(namespace.to_owned()))
}

/// The kind that a manifest names with these, without its version.
pub fn group_kind((api_version, kind): &WrittenKind) -> GroupKind {
    GroupKind::written(api_version, kind)
}

/// What a plan subscribes to.
#[derive(Debug, Default)]
pub struct PlanSubscription {
    /// The plan's UID: the label on what it applied.
    pub uid: String,
    /// The rollout to which this belongs.
    pub revision: String,
    /// The Jobs that were already complete in it according to the published status, each with its wave.
    pub completed: BTreeSet<(String, String)>,
    /// One per wave of the spec, in its order.
    pub waves: Vec<WaveSubscription>,
    /// Objects that it holds suspended, or may hold, and that its waves no longer mention.
    pub held: WaveSubscription,
    /// The watches that it needs.
    pub scopes: BTreeSet<ScopeId>,
    /// Those of them that report objects that it nudges or gates.
    pub steered: BTreeSet<ScopeId>,
    /// The ConfigMaps that contain its manifests.
    pub sources: BTreeSet<ObjectId>,
    /// The objects that it applies.
    pub wanted: HashSet<ObjectId>,
    /// The objects that its waves gate.
    pub gated: HashSet<ObjectId>,
    /// The kinds of the objects that it applies, as it writes them, each with the waves that do so.
    pub applied_kinds: Arc<AppliedKinds>,
    /// The kinds of which it has applied objects, according to the published status.
    pub recorded: Vec<KindWatch>,
    /// The kinds of the objects that it holds suspended, according to the published status.
    pub held_kinds: Vec<KindWatch>,
    /// How often everything must be reported again. None: never, for example while it is being deleted, because nothing
    /// must wait for what is already known.
    pub resync: Option<Duration>,
}

impl PlanSubscription {
    /// All groups of items: the waves, and the other held objects.
    pub fn groups(&self) -> impl Iterator<Item = &WaveSubscription> {
        self.waves.iter().chain([&self.held])
    }

    /// The group with this number.
    pub fn group(&self, number: usize) -> Option<&WaveSubscription> {
        if number == self.waves.len() { Some(&self.held) } else { self.waves.get(number) }
    }

    /// The recorded held objects to which no wave refers. They are released, whatever the spec says now. Applied
    /// objects are left to their apply, which owns only the fields of the manifest.
    pub fn forgotten(&self, held: &[HeldObject]) -> Vec<HeldObject> {
        let is_forgotten = |held: &&HeldObject| {
            let id = held.id();
            !self.gated.contains(&id) && !self.wanted.contains(&id)
        };
        held.iter().filter(is_forgotten).cloned().collect()
    }

    /// Adds the kinds of which it has applied objects. If a kind is gone, its objects are gone, too.
    pub fn record(&mut self, kinds: &BTreeMap<WrittenKind, Served>, operator: &str) {
        for (written, served) in kinds {
            let watch = match served {
                Served::Yes { resource, .. } => Ok(ours(resource, operator)),
                Served::Unknown { reason } => Err(unknown(&written.1, reason)),
                Served::No => continue,
            };
            self.scopes.extend(watch.iter().cloned());
            self.recorded.push(KindWatch { kind: group_kind(written), watch });
        }
    }

    /// Adds these objects to the subscription. If a kind is gone, its objects are gone, too.
    pub fn hold(&mut self, held: &[HeldObject], kinds: &BTreeMap<WrittenKind, Served>) {
        for held in held {
            let resource = match kinds.get(&(held.api_version.clone(), held.kind.clone())) {
                Some(Served::Yes { resource, .. }) => resource,
                Some(Served::Unknown { reason }) => {
                    self.held_kinds.push(KindWatch { kind: held.id().kind, watch: Err(unknown(&held.kind, reason)) });
                    continue;
                }
                Some(Served::No) | None => continue,
            };
            let scope = ScopeId::new(resource, held.namespace.clone());
            self.scopes.insert(scope.clone());
            self.steered.insert(scope.clone());
            self.held_kinds.push(KindWatch { kind: held.id().kind, watch: Ok(scope.clone()) });
            self.held.items.push(Item {
                member: 0,
                stage: Stage::Rest,
                subject: Subject::One(held.id()),
                task: Task::Observe(Mode::Gate),
                scope: Some(scope),
                has_status: false,
                unknown: None,
                checked: true,
                twins: Vec::new(),
            });
        }
    }

    /// For what it has applied or holds: why it is not known how some kinds are served, as clauses. Objects may exist
    /// that the watches do not report.
    pub fn unknown(&self) -> impl Iterator<Item = &String> {
        self.recorded.iter().chain(&self.held_kinds).filter_map(|kind| kind.watch.as_ref().err())
    }

    /// How the API server addresses the kind of one of the watches.
    pub fn resource(&self, kind: &GroupKind) -> Option<ApiResource> {
        let mut scopes = self.scopes.iter();
        scopes.find(|scope| scope.is_on(kind)).map(ScopeId::resource)
    }

    /// The permission that a watch needs, with the chart value that grants it together with everything else that the
    /// plan does with such objects.
    pub fn right_to_watch(&self, scope: &ScopeId) -> String {
        let value = match (is_ours(scope), self.steered.contains(scope)) {
            (true, _) => "rbac.apply",
            (false, true) => "rbac.nudge",
            (false, false) => "rbac.read",
        };
        format!("list and watch {scope}; the value {value} of the chart grants this right")
    }
}

/// Kinds as they are written, each with the waves that apply objects of it.
pub type AppliedKinds = BTreeMap<WrittenKind, BTreeSet<String>>;

/// A kind of which objects may exist, and how they are found.
#[derive(Clone, Debug)]
pub struct KindWatch {
    /// The kind.
    pub kind: GroupKind,
    /// The watch that reports its objects, or why there is none, as a clause.
    pub watch: Result<ScopeId, String>,
}

/// What a wave subscribes to.
#[derive(Debug, Default)]
pub struct WaveSubscription {
    /// Its name.
    pub name: String,
    /// The items in the order in which they start.
    pub items: Vec<Item>,
    /// Why the wave cannot be carried out, if so.
    pub problem: Option<String>,
}

/// One object, or a selection of objects, that must be ready.
#[derive(Clone, Debug)]
pub struct Item {
    /// The member it is from.
    pub member: usize,
    /// The stage of its member or its wave in which it starts.
    pub stage: Stage,
    /// The object or objects.
    pub subject: Subject,
    /// What is done with it.
    pub task: Task,
    /// The watch that reports it. None: its kind is not served (yet), or it is not known whether it is.
    pub scope: Option<ScopeId>,
    /// Why it is not known whether its kind is served.
    pub unknown: Option<String>,
    /// Whether objects of its kind have a status subresource. If so, an object without a status was not seen by any
    /// controller.
    pub has_status: bool,
    /// Whether a health check defines its readiness.
    pub checked: bool,
    /// The items of the same wave about the same object. While an object is still to be applied, a check of it does not
    /// count, because it is not in the desired form yet.
    pub twins: Vec<usize>,
}

impl Item {
    /// Whether it is not applied, but more than watched.
    pub fn is_steered(&self) -> bool {
        matches!(self.task, Task::Observe(Mode::Nudge | Mode::Gate))
    }

    /// Whether it is asked to reconcile when its wave starts.
    pub fn is_nudge(&self) -> bool {
        matches!(self.task, Task::Observe(Mode::Nudge))
    }

    /// Whether it is suspended until its wave starts.
    pub fn is_gate(&self) -> bool {
        matches!(self.task, Task::Observe(Mode::Gate))
    }
}

impl ObjectRef {
    /// Identifies the object without the version of its kind.
    pub fn id(&self) -> ObjectId {
        let kind = GroupKind::written(&self.api_version, &self.kind);
        ObjectId { kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl HeldObject {
    /// Identifies exactly this object.
    pub fn of(target: &Target) -> Self {
        Self {
            api_version: target.resource.api_version.clone(),
            kind: target.resource.kind.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
        }
    }

    /// Identifies the object without the version of its kind.
    pub fn id(&self) -> ObjectId {
        let kind = GroupKind::written(&self.api_version, &self.kind);
        ObjectId { kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// The object or objects of an item.
#[derive(Clone, Debug)]
pub enum Subject {
    /// One object.
    One(ObjectId),
    /// All objects with certain labels.
    Selected(Selected),
}

/// A selection of objects by their labels.
#[derive(Clone, Debug)]
pub struct Selected {
    /// Their kind.
    pub kind: GroupKind,
    /// None: all namespaces.
    pub namespace: Option<String>,
    /// Their labels.
    pub selector: Selector,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(id) => id.fmt(f),
            Self::Selected(Selected { kind, namespace, selector }) => match namespace {
                Some(namespace) => write!(f, "{} {namespace}/({selector})", kind.kind),
                None => write!(f, "{} ({selector})", kind.kind),
            },
        }
    }
}

/// What is done with an item.
#[derive(Clone, Debug)]
pub enum Task {
    /// Someone else creates it.
    Observe(Mode),
    /// It is applied.
    Apply(Arc<Wanted>),
    /// It is checked with CEL.
    Check(Arc<Check>),
}

/// An object to apply, prepared for comparison with the existing one.
pub struct Wanted {
    /// What to apply.
    pub apply: Apply,
    /// The intended result.
    pub comparison: Comparison,
    /// A digest of it.
    pub digest: u64,
}

impl fmt::Debug for Wanted {
    /// Without the fields: they may be a Secret's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wanted({})", self.apply.id())
    }
}

/// Resolves a parsed plan into a subscription, given the kinds that the API server has.
///
/// # Guarantees
///
/// Total: items of a kind that is not served have no watch; an invalid item gives its wave a problem.
pub fn resolve(parsed: &ParsedPlan, served: &BTreeMap<WrittenKind, Served>, claimant: &Claimant) -> PlanSubscription {
    let uid = claimant.owner.as_ref().map(|owner| owner.uid.clone()).unwrap_or_default();
    let mut subscription = PlanSubscription { uid, revision: parsed.revision.clone(), ..PlanSubscription::default() };
    let (mut first, mut applied_kinds) = (HashMap::new(), AppliedKinds::new());
    for wave in &parsed.waves {
        let mut resolved =
            WaveSubscription { name: wave.name.clone(), problem: wave.problem.clone(), ..WaveSubscription::default() };
        for item in &wave.items {
            let kind = served.get(&(item.api_version.clone(), item.kind.clone())).unwrap_or(&Served::No);
            match resolve_item(item, kind, claimant) {
                Ok(item) => resolved.items.push(item),
                Err(problem) => resolved.problem = Some(problem),
            }
        }
        refuse_doubles(&mut resolved, &mut first);
        if resolved.problem.is_some() {
            resolved.items.clear();
        }
        find_twins(&mut resolved.items);
        subscription.scopes.extend(resolved.items.iter().filter_map(|item| item.scope.clone()));
        let steered = resolved.items.iter().filter(|item| item.is_steered());
        subscription.steered.extend(steered.filter_map(|item| item.scope.clone()));
        for item in &resolved.items {
            match (&item.task, &item.subject) {
                (Task::Apply(_), Subject::One(id)) => drop(subscription.wanted.insert(id.clone())),
                (Task::Observe(Mode::Gate), Subject::One(id)) => drop(subscription.gated.insert(id.clone())),
                _ => {}
            }
        }
        for item in &resolved.items {
            let Task::Apply(wanted) = &item.task else { continue };
            let resource = &wanted.apply.resource;
            let waves = applied_kinds.entry((resource.api_version.clone(), resource.kind.clone())).or_default();
            if !waves.contains(&wave.name) {
                waves.insert(wave.name.clone());
            }
        }
        subscription.waves.push(resolved);
    }
    subscription.applied_kinds = Arc::new(applied_kinds);
    subscription
}

/// Refuses an object that two waves apply: its owner would change at every pass. It is the same object if it has the
/// same place in the cluster, however it is written: a cluster-scoped kind may be written with a namespace. `first`
/// records which wave applies which object.
fn refuse_doubles(wave: &mut WaveSubscription, first: &mut HashMap<ObjectId, String>) {
    for item in &wave.items {
        let (Task::Apply(_), Subject::One(id)) = (&item.task, &item.subject) else { continue };
        if let Some(other) = first.insert(id.clone(), wave.name.clone()) {
            let where_else =
                if other == wave.name { "twice in this wave".to_owned() } else { format!("also in wave {other}") };
            wave.problem = Some(format!("{id} is {where_else}; remove it from one place"));
        }
    }
}

fn resolve_item(item: &ParsedItem, served: &Served, claimant: &Claimant) -> Result<Item, String> {
    let kind = GroupKind::written(&item.api_version, &item.kind);
    let namespaced = matches!(served, Served::Yes { namespaced: true, .. });
    let known = matches!(served, Served::Yes { .. });
    let subject = match &item.subject {
        ParsedSubject::Named { namespace, name } => {
            if namespaced && namespace.is_none() {
                let remedy = match item.task {
                    ParsedTask::Apply(_) => "set metadata.namespace, or manifests.namespace of its member",
                    _ => "set its namespace",
                };
                return Err(format!("{} {name} has no namespace; {remedy}", item.kind));
            }
            // `kubectl`, too, ignores a namespace on a cluster-scoped kind.
            let namespace = namespace.clone().filter(|_| namespaced || !known);
            Subject::One(ObjectId { kind, namespace, name: name.clone() })
        }
        ParsedSubject::Selected { namespace, selector } => {
            let selector = Selector::try_from(selector.clone())
                .map_err(|error| format!("the selector for {} is invalid: {error}", item.kind))?;
            Subject::Selected(Selected { kind, namespace: namespace.clone(), selector })
        }
    };
    let Served::Yes { resource, has_status, .. } = served else {
        let task = match &item.task {
            ParsedTask::Observe(mode) => Task::Observe(*mode),
            ParsedTask::Check(check) => Task::Check(check.clone()),
            // The object cannot be applied before its kind exists, but it is known to be wanted.
            ParsedTask::Apply(object) => Task::Apply(wanted(unserved(item), object, claimant)?),
        };
        return Ok(Item {
            member: item.member,
            stage: item.stage,
            subject,
            task,
            scope: None,
            unknown: match served {
                Served::Unknown { reason } => Some(reason.clone()),
                _ => None,
            },
            has_status: true,
            checked: item.checked,
            twins: Vec::new(),
        });
    };
    let namespace = match &subject {
        Subject::One(id) => id.namespace.clone(),
        Subject::Selected(selected) => selected.namespace.clone().filter(|_| namespaced),
    };
    let (task, scope) = match &item.task {
        ParsedTask::Observe(mode) => (Task::Observe(*mode), ScopeId::new(resource, namespace)),
        ParsedTask::Check(check) => (Task::Check(check.clone()), ScopeId::new(resource, namespace)),
        ParsedTask::Apply(object) => {
            let mut object = object.clone();
            object.metadata.namespace = namespace;
            (Task::Apply(wanted(resource.clone(), &object, claimant)?), ours(resource, &claimant.operator))
        }
    };
    Ok(Item {
        member: item.member,
        stage: item.stage,
        subject,
        task,
        scope: Some(scope),
        unknown: None,
        has_status: *has_status,
        checked: item.checked,
        twins: Vec::new(),
    })
}

/// Why it is not known how a kind is served.
fn unknown(kind: &str, reason: &str) -> String {
    format!("the API of {kind} does not respond: {reason}")
}

/// Finds the items that are about the same object.
fn find_twins(items: &mut [Item]) {
    let mut about: BTreeMap<ObjectId, Vec<usize>> = BTreeMap::new();
    for (number, item) in items.iter().enumerate() {
        let is_concerned = item.checked || matches!(item.task, Task::Check(_));
        if let Subject::One(id) = &item.subject
            && is_concerned
        {
            about.entry(id.clone()).or_default().push(number);
        }
    }
    for numbers in about.into_values().filter(|numbers| numbers.len() > 1) {
        for &number in &numbers {
            items[number].twins = numbers.iter().copied().filter(|other| *other != number).collect();
        }
    }
}

fn unserved(item: &ParsedItem) -> ApiResource {
    let (group, version) = item.api_version.split_once('/').unwrap_or(("", &item.api_version));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: item.api_version.clone(),
        kind: item.kind.clone(),
        plural: String::new(),
    }
}

fn wanted(
    resource: ApiResource,
    object: &kube::core::DynamicObject,
    claimant: &Claimant,
) -> Result<Arc<Wanted>, String> {
    let apply = Apply { resource, object: object.clone() };
    let comparison = Comparison::of(claimant, &apply).map_err(|error| error.to_string())?;
    Ok(Arc::new(Wanted { digest: comparison.digest(), apply, comparison }))
}
