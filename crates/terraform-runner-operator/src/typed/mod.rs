//! Typed kinds on top of workspaces: a built-in module with its own spec.
//!
//! A typed kind is a struct for its spec and a folder with its module. The workspace that is created for it keeps it
//! applied. See `docs/typed-kinds.md`.

mod simple;

use std::collections::BTreeMap;
use std::marker::PhantomData;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use kube::core::NamespaceResourceScope;
use opcore::act::Done;
use opcore::conditions::{Conditions, ObjectState, READY, RECONCILING, Summary, find, is_true};
use opcore::controller::Watches;
use opcore::operator::Reconciled;
use opcore::ownership::owner_reference;
use opcore::{Context, Decision, Error, Operator, Write, Writes};
use serde_json::{Value, json};

use crate::api::v1alpha1::{FINALIZER, TerraformWorkspace, TerraformWorkspaceSpec, WorkspacePhase};
use crate::render::label_value;

/// A typed kind.
pub trait Typed: Reconciled<Scope = NamespaceResourceScope> {
    /// The suffix for the name of an object's workspace: `simple` gives `<name>-simple`.
    const SUFFIX: &'static str;
    /// The label with which the Jobs of an object are found.
    const LABEL: &'static str;

    /// The workspace that is created for it. Its outputs go into the Secret `<name>-<suffix>-outputs`.
    fn workspace(&self) -> TerraformWorkspaceSpec;

    /// Fills in the fields that only the status of this kind has.
    fn show(status: &mut Self::Status, shown: &Shown<'_>);
}

/// What a typed kind can show of its workspace.
pub struct Shown<'a> {
    /// The phase of the workspace.
    pub phase: WorkspacePhase,
    /// Its message.
    pub message: &'a str,
    /// The inputs that were last applied.
    pub applied: Option<&'a str>,
    /// The outputs; none if nothing new is known of them.
    pub outputs: Option<&'a BTreeMap<String, String>>,
}

/// The operator of a typed kind.
pub struct TypedKind<K>(PhantomData<fn() -> K>);

impl<K> Default for TypedKind<K> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// Everything that was read for a typed object.
pub struct Observed {
    workspace: Option<TerraformWorkspace>,
    outputs: BTreeMap<String, String>,
}

impl<K: Typed> Operator for TypedKind<K>
where
    K::Status: Conditions,
{
    type Object = K;
    type Observed = Observed;
    type Claims = ();

    const FINALIZER: &'static str = FINALIZER;

    fn watches(&self, watches: &mut Watches<K>) {
        watches.owns::<TerraformWorkspace>();
    }

    async fn observe(&self, object: &K, context: &Context) -> Result<Observed, Error> {
        let namespace = object.namespace().unwrap_or_default();
        let workspaces = context.reader().namespaced::<TerraformWorkspace>(&namespace);
        // A workspace of the same name that someone else created is not ours: it is neither shown nor deleted.
        let ours = |workspace: &TerraformWorkspace| {
            let mut owners = workspace.owner_references().iter().filter(|owner| owner.controller == Some(true));
            owners.any(|owner| Some(&owner.uid) == object.meta().uid.as_ref())
        };
        let workspace = workspaces.get_opt(&workspace_name(object)).await?.filter(ours);
        let reported = workspace.as_ref().and_then(|workspace| workspace.status.as_ref()?.outputs_secret.clone());
        let mut outputs = BTreeMap::new();
        if let Some(name) = reported {
            let secrets = context.reader().namespaced::<Secret>(&namespace);
            let data = secrets.get_opt(&name).await?.and_then(|secret| secret.data).unwrap_or_default();
            let text = data.into_iter().filter_map(|(key, bytes)| Some((key, String::from_utf8(bytes.0).ok()?)));
            outputs = text.collect();
        }
        Ok(Observed { workspace, outputs })
    }

    fn decide(&self, object: &K, observed: &Observed, now: Timestamp) -> Decision<K> {
        keep(object, observed, now)
    }

    fn tear_down(&self, object: &K, observed: &Observed, now: Timestamp) -> Decision<K> {
        tear_down(object, observed, now)
    }

    /// Reports why the workspace could not be written in the place where users look for the state of the object.
    fn after_writes(&self, _: &K, status: &mut K::Status, done: &Done<'_>, _: Timestamp) {
        if let Some(refusal) = done.refusal() {
            let (phase, message) = (WorkspacePhase::Failed, refusal.message.as_str());
            K::show(status, &Shown { phase, message, applied: None, outputs: None });
        }
    }
}

fn workspace_name<K: Typed>(object: &K) -> String {
    format!("{}-{}", object.name_any(), K::SUFFIX)
}

fn workspace_of<K: Typed>(object: &K) -> TerraformWorkspace {
    let mut spec = object.workspace();
    spec.outputs.secret_name = Some(format!("{}-outputs", workspace_name(object)));
    let namespace = object.namespace();
    TerraformWorkspace {
        metadata: ObjectMeta {
            name: Some(workspace_name(object)),
            labels: Some(BTreeMap::from([(K::LABEL.to_owned(), label_value(&object.name_any()))])),
            owner_references: owner_reference(object, namespace.as_deref()).ok().map(|reference| vec![reference]),
            namespace,
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

fn keep<K: Typed>(object: &K, observed: &Observed, now: Timestamp) -> Decision<K>
where
    K::Status: Conditions,
{
    let mut status = object.status().cloned().unwrap_or_default();
    let wanted = workspace_of(object);
    let mut writes = Writes::new();
    if let Ok(write) = Write::apply(&wanted) {
        writes.then(write);
    }
    let reported = observed.workspace.as_ref().filter(|live| {
        // A status for an older spec does not apply to this one. A person may have set fields that are not ours.
        let observed = live.status.as_ref().and_then(|status| status.observed_generation);
        holds(&json!(live.spec), &json!(wanted.spec)) && observed == live.metadata.generation
    });
    let (phase, summary) = reported.map_or_else(
        || {
            (
                WorkspacePhase::Pending,
                Summary::reconciling(
                    "Pending",
                    format!("Waiting for TerraformWorkspace {} to be processed.", wanted.name_any()),
                ),
            )
        },
        summary_of,
    );
    let applied = reported.and_then(|live| Some(live.status.as_ref()?.last_applied.as_ref()?.hash.as_str()));
    K::show(&mut status, &Shown { phase, message: &summary.message, applied, outputs: Some(&observed.outputs) });
    summary.write(&mut status, object.meta().generation, now);
    Decision { writes, ..Decision::say(status) }
}

/// Whether each field that a typed kind sets has the value that it sets.
fn holds(live: &Value, wanted: &Value) -> bool {
    wanted.as_object().into_iter().flatten().all(|(field, wanted)| live.get(field) == Some(wanted))
}

/// The state of a workspace, in the terms of the conditions.
fn summary_of(workspace: &TerraformWorkspace) -> (WorkspacePhase, Summary) {
    let nothing = crate::api::v1alpha1::TerraformWorkspaceStatus::default();
    let status = workspace.status.as_ref().unwrap_or(&nothing);
    let ready = find(&status.conditions, READY);
    let (reason, message) =
        ready.map_or(("Pending".to_owned(), String::new()), |ready| (ready.reason.clone(), ready.message.clone()));
    let state = if is_true(&status.conditions, READY) {
        ObjectState::Ready
    } else if is_true(&status.conditions, RECONCILING) || ready.is_none() {
        ObjectState::Reconciling
    } else {
        ObjectState::Stalled
    };
    (status.phase, Summary { state, reason: reason.into(), message })
}

/// The workspace is deleted first, and with it what it created.
fn tear_down<K: Typed>(object: &K, observed: &Observed, now: Timestamp) -> Decision<K>
where
    K::Status: Conditions,
{
    let mut decision = Decision::say(object.status().cloned().unwrap_or_default());
    let mut reported = None;
    match &observed.workspace {
        Some(workspace) if workspace.metadata.deletion_timestamp.is_none() => {
            decision.writes.then(Write::delete(workspace));
        }
        Some(workspace) => reported = Some(summary_of(workspace).1),
        None => decision.release = true,
    }
    let summary = reported.unwrap_or_else(|| {
        Summary::reconciling(
            "TearingDown",
            format!("Waiting for TerraformWorkspace {} to be deleted.", workspace_name(object)),
        )
    });
    let phase = WorkspacePhase::Deleting;
    let shown = Shown { phase, message: &summary.message, applied: None, outputs: Some(&observed.outputs) };
    K::show(&mut decision.status, &shown);
    summary.write(&mut decision.status, object.meta().generation, now);
    decision
}
