//! The marks that tools leave on what they manage.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference};
use serde_json::Value;

use super::Subject;

/// The tool or person that a mark names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    /// A Flux Kustomization.
    FluxKustomization,
    /// A Flux HelmRelease.
    FluxHelmRelease,
    /// Helm itself.
    Helm,
    /// Argo CD.
    ArgoCd,
    /// Pulumi.
    Pulumi,
    /// Terraform or OpenTofu.
    Terraform,
    /// kapp.
    Kapp,
    /// kluctl.
    Kluctl,
    /// A controller, known by its owner reference.
    Controller,
    /// One of our own operators.
    Opcore(String),
    /// An owner that the contract names.
    Named(String),
    /// Only a field manager is known.
    Manager(String),
    /// A person.
    Person,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FluxKustomization => f.write_str("Flux Kustomization"),
            Self::FluxHelmRelease => f.write_str("Flux HelmRelease"),
            Self::Helm => f.write_str("Helm release"),
            Self::ArgoCd => f.write_str("Argo CD application"),
            Self::Pulumi => f.write_str("Pulumi"),
            Self::Terraform => f.write_str("Terraform"),
            Self::Kapp => f.write_str("kapp app"),
            Self::Kluctl => f.write_str("kluctl deployment"),
            Self::Controller => f.write_str("controller"),
            Self::Person => f.write_str("a person"),
            Self::Opcore(name) | Self::Named(name) => f.write_str(name),
            Self::Manager(name) => write!(f, "field manager {name}"),
        }
    }
}

/// Where a mark is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// A rule of the ownership contract, by its name.
    Contract(String),
    /// `metadata.ownerReferences` with `controller: true`.
    ControllerReference,
    /// The label of this key.
    Label(String),
    /// The annotation of this key.
    Annotation(String),
    /// `metadata.managedFields`.
    FieldManager,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contract(rule) => write!(f, "contract rule {rule}"),
            Self::ControllerReference => f.write_str("controller reference"),
            Self::Label(key) => write!(f, "label {key}"),
            Self::Annotation(key) => write!(f, "annotation {key}"),
            Self::FieldManager => f.write_str("managed fields"),
        }
    }
}

/// One piece of evidence: which tool, which of its objects, and where the mark is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// Where the mark is.
    pub signal: Signal,
    /// The tool or person that it names.
    pub tool: Tool,
    /// Which of the tool's releases, applications or objects. May be empty.
    pub name: String,
}

impl Evidence {
    pub(super) fn new(signal: Signal, tool: Tool, name: impl Into<String>) -> Self {
        Self { signal, tool, name: name.into() }
    }

    pub(super) fn of_reference(reference: &OwnerReference) -> Self {
        let words = format!("{} {}", reference.kind, reference.name);
        Self::new(Signal::ControllerReference, Tool::Controller, words)
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "{} ({})", self.tool, self.signal),
            name => write!(f, "{} {name} ({})", self.tool, self.signal),
        }
    }
}

/// Reads the marks of all known tools, the one in charge first: a Flux HelmRelease before the Helm release that it
/// created.
pub(super) fn read(subject: Subject<'_>) -> Vec<Evidence> {
    let empty = BTreeMap::new();
    let labels = subject.meta.labels.as_ref().unwrap_or(&empty);
    let annotations = subject.meta.annotations.as_ref().unwrap_or(&empty);
    let named = |map: &BTreeMap<String, String>, namespace: &str, name: &str| {
        map.get(name).map(|found| match map.get(namespace) {
            Some(namespace) => format!("{namespace}/{found}"),
            None => found.clone(),
        })
    };
    let mut evidence = Vec::new();
    for (prefix, tool) in
        [("kustomize.toolkit.fluxcd.io", Tool::FluxKustomization), ("helm.toolkit.fluxcd.io", Tool::FluxHelmRelease)]
    {
        let key = format!("{prefix}/name");
        if let Some(name) = named(labels, &format!("{prefix}/namespace"), &key) {
            evidence.push(Evidence::new(Signal::Label(key), tool, name));
        }
    }
    if let Some(id) = annotations.get("argocd.argoproj.io/tracking-id")
        && let Some(app) = argo_application(id, subject)
    {
        evidence.push(Evidence::new(
            Signal::Annotation("argocd.argoproj.io/tracking-id".to_owned()),
            Tool::ArgoCd,
            app,
        ));
    }
    let managed_by = labels.get("app.kubernetes.io/managed-by").map(String::as_str);
    let release = "meta.helm.sh/release-name";
    if let Some(name) = named(annotations, "meta.helm.sh/release-namespace", release) {
        evidence.push(Evidence::new(Signal::Annotation(release.to_owned()), Tool::Helm, name));
    } else if managed_by == Some("Helm") {
        evidence.push(Evidence::new(Signal::Label("app.kubernetes.io/managed-by".to_owned()), Tool::Helm, ""));
    }
    if managed_by == Some("pulumi") {
        evidence.push(Evidence::new(Signal::Label("app.kubernetes.io/managed-by".to_owned()), Tool::Pulumi, ""));
    }
    for (key, tool) in [("kapp.k14s.io/app", Tool::Kapp), ("kluctl.io/discriminator", Tool::Kluctl)] {
        if let Some(name) = labels.get(key) {
            evidence.push(Evidence::new(Signal::Label(key.to_owned()), tool, name));
        }
    }
    for entry in subject.meta.managed_fields.iter().flatten() {
        if let Some(tool) = entry.manager.as_deref().and_then(tool_of_manager)
            && !evidence.iter().any(|known| known.tool == tool)
            && manages_more_than_status(entry)
        {
            let manager = entry.manager.clone().unwrap_or_default();
            evidence.push(Evidence::new(Signal::FieldManager, tool, manager));
        }
    }
    evidence
}

/// The application of a tracking id `app:group/Kind:namespace/name`, if the id names exactly this object: Argo CD
/// itself ignores ids that were copied from elsewhere.
fn argo_application(id: &str, subject: Subject<'_>) -> Option<String> {
    let mut parts = id.splitn(3, ':');
    let (app, kind, object) = (parts.next()?, parts.next()?, parts.next()?);
    let (group, kind) = kind.split_once('/')?;
    let (namespace, name) = object.split_once('/')?;
    let same = group == subject.group
        && kind == subject.kind
        && Some(name) == subject.meta.name.as_deref()
        && namespace == subject.meta.namespace.as_deref().unwrap_or_default();
    same.then(|| app.to_owned())
}

/// The tool behind a field manager's name.
fn tool_of_manager(manager: &str) -> Option<Tool> {
    match manager {
        "kustomize-controller" => Some(Tool::FluxKustomization),
        "helm-controller" => Some(Tool::FluxHelmRelease),
        "helm" | "Helm" => Some(Tool::Helm),
        "argocd-controller" => Some(Tool::ArgoCd),
        "pulumi-kubernetes" => Some(Tool::Pulumi),
        "Terraform" | "terraform" | "OpenTofu" => Some(Tool::Terraform),
        _ if manager.starts_with("pulumi-kubernetes-") => Some(Tool::Pulumi),
        _ => None,
    }
}

/// Whether a manager is a person's `kubectl`, or the entry for fields from before managers were recorded, rather than a
/// tool that will write again.
pub(crate) fn is_person(manager: &str) -> bool {
    manager == "before-first-apply" || manager.starts_with("kubectl")
}

/// A tool that wrote only the status, or one annotation such as a request to reconcile, does not own the object.
fn manages_more_than_status(entry: &ManagedFieldsEntry) -> bool {
    entry.subresource.as_deref().unwrap_or_default().is_empty() && weight(entry) > 0
}

/// The leaves outside `metadata` and `status`.
fn weight(entry: &ManagedFieldsEntry) -> usize {
    let Some(Value::Object(fields)) = entry.fields_v1.as_ref().map(|fields| &fields.0) else { return 0 };
    fields
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "f:metadata" | "f:status"))
        .map(|(_, below)| leaves(below))
        .sum()
}

fn leaves(fields: &Value) -> usize {
    match fields {
        Value::Object(below) => {
            below.iter().filter(|(key, _)| *key != ".").map(|(_, v)| leaves(v)).sum::<usize>().max(1)
        }
        _ => 1,
    }
}

/// The manager that *applied* more fields than any other, unless it is a person. Updates are not counted: many
/// controllers update a field or two of objects that they do not own.
pub(super) fn majority_manager(meta: &ObjectMeta) -> Option<Evidence> {
    let applied = meta.managed_fields.iter().flatten().filter(|entry| entry.operation.as_deref() == Some("Apply"));
    let heaviest = applied.map(|entry| (weight(entry), entry.manager.as_deref().unwrap_or_default()));
    let (weight, manager) = heaviest.max()?;
    (weight > 0 && !manager.is_empty() && !is_person(manager))
        .then(|| Evidence::new(Signal::FieldManager, Tool::Manager(manager.to_owned()), ""))
}
