//! What a plan wants to hear of: its items, with the kinds as the API server has them.

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

/// Whether a watch is on what this operator applied; the others are on all objects.
pub fn is_ours(scope: &ScopeId) -> bool {
    scope.labels.is_some()
}

/// The watch on the ConfigMaps of a namespace.
pub fn config_maps(namespace: &str) -> ScopeId {
    ScopeId::of::<ConfigMap>(Some(namespace.to_owned()))
}

/// The kind that is written so, whatever its version.
pub fn group_kind((api_version, kind): &WrittenKind) -> GroupKind {
    GroupKind::written(api_version, kind)
}

/// What a plan wants to hear of.
#[derive(Debug, Default)]
pub struct PlanSubscription {
    /// The plan's UID: the label on what it applied.
    pub uid: String,
    /// The rollout that this is about.
    pub revision: String,
    /// The Jobs that were complete in it before, as far as that was published: each with its wave.
    pub completed: BTreeSet<(String, String)>,
    /// One per wave of the spec, in its order.
    pub waves: Vec<WaveSubscription>,
    /// What it holds suspended, or may hold, and its waves no longer say so.
    pub held: WaveSubscription,
    /// The watches it takes.
    pub scopes: BTreeSet<ScopeId>,
    /// Those of them that tell of objects which it nudges or gates.
    pub steered: BTreeSet<ScopeId>,
    /// The ConfigMaps that its manifests are in.
    pub sources: BTreeSet<ObjectId>,
    /// The objects that it applies.
    pub wanted: HashSet<ObjectId>,
    /// The objects that its waves gate.
    pub gated: HashSet<ObjectId>,
    /// The kinds of the objects that it applies, as it writes them.
    pub applied_kinds: BTreeSet<WrittenKind>,
    /// Of what it has applied or holds: why nobody can tell how some kinds are served. There may be more to hear of than the
    /// watches tell.
    pub unknown: Vec<String>,
    /// How often everything is to be told anew. None: never, as while it is being deleted: what is known is not to be waited
    /// for.
    pub resync: Option<Duration>,
}

impl PlanSubscription {
    /// All groups of items: the waves, and what else is held.
    pub fn groups(&self) -> impl Iterator<Item = &WaveSubscription> {
        self.waves.iter().chain([&self.held])
    }

    /// The group of this number.
    pub fn group(&self, number: usize) -> Option<&WaveSubscription> {
        if number == self.waves.len() { Some(&self.held) } else { self.waves.get(number) }
    }

    /// Of what is recorded as held: what no wave has to do with. It is given back, whatever the spec says now. What is
    /// applied is left to that: it holds nothing but what is in its manifest.
    pub fn forgotten(&self, held: &[HeldObject]) -> Vec<HeldObject> {
        let is_forgotten = |held: &&HeldObject| {
            let id = held.id();
            !self.gated.contains(&id) && !self.wanted.contains(&id)
        };
        held.iter().filter(is_forgotten).cloned().collect()
    }

    /// Wants to hear of these, too. With a kind that is gone its objects are, too.
    pub fn hold(&mut self, held: &[HeldObject], kinds: &BTreeMap<WrittenKind, Served>) {
        for held in held {
            let Some(Served::Yes { resource, .. }) = kinds.get(&(held.api_version.clone(), held.kind.clone())) else {
                continue;
            };
            let scope = ScopeId::new(resource, held.namespace.clone());
            self.scopes.insert(scope.clone());
            self.steered.insert(scope.clone());
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

    /// How the API server addresses a kind that one of the watches is on.
    pub fn resource(&self, kind: &GroupKind) -> Option<ApiResource> {
        let mut scopes = self.scopes.iter();
        scopes.find(|scope| scope.is_on(kind)).map(ScopeId::resource)
    }

    /// The right that a watch takes, with the value of the chart that grants it together with all else that the plan does
    /// with such objects.
    pub fn right_to_watch(&self, scope: &ScopeId) -> String {
        let value = match (is_ours(scope), self.steered.contains(scope)) {
            (true, _) => "rbac.apply",
            (false, true) => "rbac.nudge",
            (false, false) => "rbac.read",
        };
        format!("list and watch {scope} (value {value} of the chart)")
    }
}

/// What a wave wants to hear of.
#[derive(Debug, Default)]
pub struct WaveSubscription {
    /// Its name.
    pub name: String,
    /// In the order in which they start.
    pub items: Vec<Item>,
    /// Why it cannot be carried out, if it cannot.
    pub problem: Option<String>,
}

/// One object, or one choice of objects, that must be ready.
#[derive(Clone, Debug)]
pub struct Item {
    /// The member it is from.
    pub member: usize,
    /// When, inside its member or its wave, it starts.
    pub stage: Stage,
    /// Which object, or objects.
    pub subject: Subject,
    /// What is done with it.
    pub task: Task,
    /// The watch that tells of it. None: its kind is not served (yet), or nobody can tell whether it is.
    pub scope: Option<ScopeId>,
    /// Why nobody can tell whether its kind is served.
    pub unknown: Option<String>,
    /// Whether an object of its kind that has no status is one that no controller has seen.
    pub has_status: bool,
    /// Whether a health check says what readiness means for it.
    pub checked: bool,
    /// Of the same wave: the items about the same object. What is checked while it is still to be applied is not yet what
    /// it should be.
    pub twins: Vec<usize>,
}

impl Item {
    /// Whether it is not applied, and yet not only watched.
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
    /// The object, whatever the version of its kind.
    pub fn id(&self) -> ObjectId {
        let kind = GroupKind::written(&self.api_version, &self.kind);
        ObjectId { kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl HeldObject {
    /// Exactly this object.
    pub fn of(target: &Target) -> Self {
        Self {
            api_version: target.resource.api_version.clone(),
            kind: target.resource.kind.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
        }
    }

    /// The object, whatever the version of its kind.
    pub fn id(&self) -> ObjectId {
        let kind = GroupKind::written(&self.api_version, &self.kind);
        ObjectId { kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// Which object, or objects.
#[derive(Clone, Debug)]
pub enum Subject {
    /// One.
    One(ObjectId),
    /// All with certain labels.
    Selected(Selected),
}

/// A choice of objects by their labels.
#[derive(Clone, Debug)]
pub struct Selected {
    /// Their kind.
    pub kind: GroupKind,
    /// None: in all namespaces.
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
    /// Someone else makes it.
    Observe(Mode),
    /// It is applied.
    Apply(Arc<Wanted>),
    /// It is asked in CEL.
    Check(Arc<Check>),
}

/// An object to apply, ready to be compared with what is there.
pub struct Wanted {
    /// What to apply.
    pub apply: Apply,
    /// What that would leave.
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

/// What the plan wants to hear of, given the kinds that the API server has.
///
/// # Guarantees
///
/// Total: a kind that is not served leaves its items without a watch; an item that cannot be makes its wave a problem.
pub fn resolve(parsed: &ParsedPlan, served: &BTreeMap<WrittenKind, Served>, claimant: &Claimant) -> PlanSubscription {
    let uid = claimant.owner.as_ref().map(|owner| owner.uid.clone()).unwrap_or_default();
    let mut subscription = PlanSubscription { uid, revision: parsed.revision.clone(), ..PlanSubscription::default() };
    let mut first = HashMap::new();
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
        subscription.applied_kinds.extend(resolved.items.iter().filter_map(|item| match &item.task {
            Task::Apply(wanted) => {
                Some((wanted.apply.resource.api_version.clone(), wanted.apply.resource.kind.clone()))
            }
            _ => None,
        }));
        subscription.waves.push(resolved);
    }
    subscription
}

/// An object that two waves apply would change hands at every look. It is the same object when it has the same place in
/// the cluster, however it is written: a kind without namespaces may be written with one. `first` tells which wave
/// applies which object.
fn refuse_doubles(wave: &mut WaveSubscription, first: &mut HashMap<ObjectId, String>) {
    for item in &wave.items {
        let (Task::Apply(_), Subject::One(id)) = (&item.task, &item.subject) else { continue };
        if let Some(other) = first.insert(id.clone(), wave.name.clone()) {
            let where_else = if other == wave.name { "twice here".to_owned() } else { format!("in wave {other}, too") };
            wave.problem = Some(format!("{id} is {where_else}; remove it from one place"));
        }
    }
}

fn resolve_item(item: &ParsedItem, served: &Served, claimant: &Claimant) -> Result<Item, String> {
    let group = item.api_version.split_once('/').map_or("", |(group, _)| group);
    let kind = GroupKind { group: group.to_owned(), kind: item.kind.clone() };
    let namespaced = matches!(served, Served::Yes { namespaced: true, .. });
    let known = matches!(served, Served::Yes { .. });
    let subject = match &item.subject {
        ParsedSubject::Named { namespace, name } => {
            if namespaced && namespace.is_none() {
                let remedy = match item.task {
                    ParsedTask::Apply(_) => "give it metadata.namespace, or its member manifests.namespace",
                    _ => "give it a namespace",
                };
                return Err(format!("{} {name} is in no namespace; {remedy}", item.kind));
            }
            // A namespace on a kind that has none is what `kubectl` ignores, too.
            let namespace = namespace.clone().filter(|_| namespaced || !known);
            Subject::One(ObjectId { kind, namespace, name: name.clone() })
        }
        ParsedSubject::Selected { namespace, selector } => {
            let selector = Selector::try_from(selector.clone())
                .map_err(|error| format!("a selector for {} is not understood: {error}", item.kind))?;
            Subject::Selected(Selected { kind, namespace: namespace.clone(), selector })
        }
    };
    let Served::Yes { resource, has_status, .. } = served else {
        let task = match &item.task {
            ParsedTask::Observe(mode) => Task::Observe(*mode),
            ParsedTask::Check(check) => Task::Check(check.clone()),
            // It cannot be applied before its kind is there, but it is known that it is wanted.
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

/// Finds out which items are about the same object.
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
