//! `opctl identity teardown plan`.

use std::process::ExitCode;

use clap::Args;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt};
use lifecycle_operator::api::v1alpha1::{
    BACKUP_CLAIM, OperandKind, SINGLETON, SpireServerSpec, TeardownPolicy, VolumeDeletion,
};
use lifecycle_operator::config::PARENT;
use lifecycle_operator::decide::outline::{self, Outline};
use lifecycle_operator::observe::uses_driver;
use lifecycle_operator::operand::Peer;
use lifecycle_operator::render::volume::DATA_CLAIM;
use lifecycle_operator::render::{COMPONENT_LABEL, PART_OF, oidc};
use opcore::finalizer::OnExpiry;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::stack::{CHART, Kinds, OperandName, Stack, View};
use crate::cluster::Cluster;
use crate::output::{self, Format, Output, age, table};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The operand to delete [default: the whole stack]
    #[arg(value_enum, ignore_case = true)]
    operand: Option<OperandName>,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn plan(kinds: &Kinds, flags: &Flags) -> anyhow::Result<ExitCode> {
    let stack = kinds.stack().await?;
    let found = Found::of(&kinds.cluster, &stack).await?;
    let plan = Plan::of(&stack, &found, flags.operand.map(OperandName::kind))?;
    match flags.output.output {
        Format::Json => output::print_json(&plan)?,
        Format::Text => output::print_lines(&plan.text(&View::now()))?,
    }
    Ok(if plan.blocked_by.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is in the cluster besides the objects of the stack.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The pods of the operands.
    pub pods: Vec<Pod>,
    /// The pods that use the CSI driver.
    pub users: Vec<Pod>,
    /// The claims of the server: for its data, and for backups.
    pub claims: Vec<PersistentVolumeClaim>,
}

/// How many objects are read at a time.
const PAGE: u32 = 250;

impl Found {
    async fn of(cluster: &Cluster, stack: &Stack) -> anyhow::Result<Self> {
        let driver = stack.operand(OperandKind::SpiffeCSIDriver).and_then(|peer| peer.spec["pluginName"].as_str());
        let is_of_stack = |pod: &Pod| pod.labels().get("app.kubernetes.io/part-of").is_some_and(|it| it == PART_OF);
        let is_interesting = |pod: &Pod| is_of_stack(pod) || uses_driver(pod, |name| driver == Some(name));
        let all = all(cluster, &ListParams::default(), is_interesting).await?;
        let users = all.iter().filter(|pod| uses_driver(pod, |name| driver == Some(name))).cloned().collect();
        let pods = all.into_iter().filter(is_of_stack).collect();
        Ok(Self { pods, users, claims: claims(cluster).await? })
    }

    fn claim(&self, name: &str) -> Option<&PersistentVolumeClaim> {
        self.claims.iter().find(|claim| claim.name_any() == name)
    }
}

/// The claims of the server, in all namespaces.
pub(super) async fn claims(cluster: &Cluster) -> anyhow::Result<Vec<PersistentVolumeClaim>> {
    let ours = ListParams::default().labels(&format!("app.kubernetes.io/part-of={PART_OF}"));
    all(cluster, &ours, |_| true).await
}

/// The objects of a kind in all namespaces, page by page, as far as they are wanted.
async fn all<K>(cluster: &Cluster, which: &ListParams, is_wanted: impl Fn(&K) -> bool) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let api: Api<K> = Api::all(cluster.client.clone());
    let mut page = which.clone().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let list = cluster.ask(CHART, api.list(&page)).await?;
        let next = list.metadata.continue_.clone().filter(|token| !token.is_empty());
        all.extend(list.items.into_iter().filter(&is_wanted));
        match next {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// What a deletion would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plan {
    /// What would be deleted.
    object: String,
    /// The operands that would go, in order, with their steps.
    operands: Vec<PlannedOperand>,
    /// What would be in the way.
    blocked_by: Vec<String>,
    /// What would stay.
    stays: Vec<String>,
    /// Remarks.
    notes: Vec<String>,
    #[serde(flatten)]
    policy: TeardownPolicy,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlannedOperand {
    kind: &'static str,
    steps: Vec<PlannedStep>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlannedStep {
    name: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<String>,
    does: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pods: Vec<String>,
}

impl Plan {
    /// The deletion of the whole stack, or of one operand.
    ///
    /// # Errors
    ///
    /// It does not exist.
    pub(super) fn of(stack: &Stack, found: &Found, only: Option<OperandKind>) -> anyhow::Result<Self> {
        let object = match (only, &stack.parent) {
            (Some(kind), _) if stack.operand(kind).is_none() => {
                anyhow::bail!("There is no {kind} {SINGLETON}: there is nothing to delete.")
            }
            (Some(kind), _) => format!("{kind} {SINGLETON}"),
            (None, Some(_)) => format!("{PARENT} {SINGLETON}"),
            (None, None) => anyhow::bail!(
                "There is no {PARENT} {SINGLETON}: name an operand, one of {}.",
                stack.operands.iter().map(|peer| OperandName::of(peer.kind)).collect::<Vec<_>>().join(", ")
            ),
        };
        let uid = stack.parent.as_ref().and_then(ResourceExt::uid).unwrap_or_default();
        let goes = |peer: &&Peer| only.map_or_else(|| peer.is_owned_by(&uid), |kind| peer.kind == kind);
        let going: Vec<&Peer> = stack.operands.iter().filter(goes).collect();
        let policy = stack.policy();
        let mut plan =
            Self { object, operands: Vec::new(), blocked_by: Vec::new(), stays: Vec::new(), notes: Vec::new(), policy };
        for outline in outline::of_stack() {
            if let Some(peer) = going.iter().find(|peer| peer.kind == outline.kind) {
                plan.add(&outline, peer, &going, stack, found);
            }
        }
        plan.stays.extend(
            stack
                .operands
                .iter()
                .filter(|peer| only.is_none() && !goes(peer))
                .map(|peer| format!("{} {SINGLETON}: it does not belong to {PARENT} {SINGLETON}", peer.kind)),
        );
        plan.note(stack, only);
        Ok(plan)
    }

    fn add(&mut self, outline: &Outline, peer: &Peer, going: &[&Peer], stack: &Stack, found: &Found) {
        // An operand waits for those before it only while they are being deleted, too.
        let is_going = |kind: &OperandKind| {
            going.iter().any(|other| other.kind == *kind) || stack.operand(*kind).is_some_and(Peer::is_deleting)
        };
        let first: Vec<&str> = outline.before.iter().copied().filter(is_going).map(OperandKind::as_str).collect();
        let within = age(self.policy.operand_timeout.as_duration());
        let steps = outline.steps.iter().filter(|step| !(step.waits_for_others && first.is_empty())).map(|step| {
            let pods = step.stops.map(|component| names(&found.pods, |pod| is_of(pod, component))).unwrap_or_default();
            let waits = step.waits_for_others;
            let does = if waits { format!("waits for {}", first.join(", ")) } else { step.does.to_owned() };
            // What would be over at once is left out.
            let is_left_out = |name: &&str| {
                first.is_empty() && outline.steps.iter().any(|step| step.waits_for_others && step.name == *name)
            };
            let after = step.after.iter().copied().filter(|name| !is_left_out(name)).collect();
            let within = (!waits).then(|| within.clone());
            PlannedStep { name: step.name, after, within, does, pods }
        });
        self.operands.push(PlannedOperand { kind: outline.kind.as_str(), steps: steps.collect() });
        match outline.kind {
            OperandKind::SpiffeCSIDriver => self.add_users(going, found),
            OperandKind::SpireServer => self.add_volume(peer, found),
            OperandKind::SpireAgent | OperandKind::SpireOIDCDiscoveryProvider => {}
        }
    }

    /// The pods that would block the deletion of the driver. Those of the provider are deleted before it, if the provider is.
    fn add_users(&mut self, going: &[&Peer], found: &Found) {
        let provider_goes = going.iter().any(|peer| peer.kind == OperandKind::SpireOIDCDiscoveryProvider);
        let users = names(&found.users, |pod| !(provider_goes && is_of(pod, oidc::COMPONENT)));
        self.blocked_by.extend(users.into_iter().map(|pod| format!("{pod} uses the CSI driver")));
    }

    /// What would happen to the volume of the server.
    fn add_volume(&mut self, peer: &Peer, found: &Found) {
        // It has passed the checks of the API server.
        let Ok(spec) = serde_json::from_value::<SpireServerSpec>(peer.spec.clone()) else { return };
        let data = found.claim(DATA_CLAIM);
        let is_bound = data.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Bound");
        let backed_up = spec.backup.on_delete && is_bound;
        match (data.map(place), spec.persistence.deletion_policy) {
            (None, _) => {
                self.notes.push(format!("There is no PersistentVolumeClaim {DATA_CLAIM}: nothing is backed up."));
            }
            (Some(claim), VolumeDeletion::Retain) => {
                self.stays.push(format!("{claim}: spec.persistence.deletionPolicy is Retain"));
            }
            (Some(claim), VolumeDeletion::Delete) if backed_up => {
                self.notes.push(format!("{claim} is deleted, after its backup was verified."));
            }
            (Some(claim), VolumeDeletion::Delete) => self.blocked_by.push(format!(
                "{claim} is to be deleted, and only with a verified backup: set spec.backup.onDelete of SpireServer \
                 {SINGLETON} to true, or spec.persistence.deletionPolicy to Retain"
            )),
        }
        if backed_up {
            let claim =
                found.claim(BACKUP_CLAIM).map_or_else(|| format!("PersistentVolumeClaim {BACKUP_CLAIM}"), place);
            self.stays.push(format!("{claim}: with a backup of this deletion; the last {} are kept", spec.backup.keep));
        } else if let Some(claim) = found.claim(BACKUP_CLAIM).map(place) {
            self.stays.push(format!("{claim}: with the backups that there are"));
        }
        if !spec.backup.on_delete {
            self.notes.push(format!("No backup is made: spec.backup.onDelete of SpireServer {SINGLETON} is false."));
        } else if !spec.datastore.database_type.is_sqlite() {
            self.notes.push("The external database is neither backed up nor changed: only the keys are.".to_owned());
        }
    }

    fn note(&mut self, stack: &Stack, only: Option<OperandKind>) {
        if stack.is_deleting() {
            self.notes.push("A deletion is under way: opctl identity status shows how far it is.".to_owned());
        }
        let Some(kind) = only else { return };
        let parent = stack.parent.as_ref().filter(|parent| parent.metadata.deletion_timestamp.is_none());
        if parent.is_some_and(|parent| parent.spec.operands.contains(&kind)) {
            self.notes.push(format!(
                "{PARENT} {SINGLETON} creates {kind} {SINGLETON} again: take it off its spec.operands first, unless that is \
                 what you want."
            ));
        }
        let needs_it = |peer: &&Peer| outline::of(kind).before.contains(&peer.kind) && !peer.is_deleting();
        let rest: Vec<&str> = stack.operands.iter().filter(needs_it).map(|peer| peer.kind.as_str()).collect();
        if !rest.is_empty() {
            self.notes.push(format!("{} would run on without it.", rest.join(", ")));
        }
    }

    /// The plan, for people.
    pub(super) fn text(&self, view: &View) -> Vec<String> {
        let paint = view.paint;
        let mut lines =
            vec![format!("A deletion of {} would take these steps. Nothing is changed.", self.object), String::new()];
        let mut rows = Vec::new();
        for operand in &self.operands {
            for (number, step) in operand.steps.iter().enumerate() {
                let kind = if number == 0 { operand.kind } else { "" };
                let pods = some(&step.pods);
                let within = step.within.clone().unwrap_or_default();
                let row = [kind, step.name, &step.after.join(", "), &within, &format!("{}{pods}", step.does)];
                rows.push(row.map(str::to_owned).to_vec());
            }
        }
        let mut steps = table(&["OPERAND", "STEP", "AFTER", "WITHIN", "WHAT IT DOES"], &rows).into_iter();
        lines.extend(steps.next().map(|header| paint.faint(header)));
        lines.extend(steps);
        lines.extend([String::new(), self.time()]);
        for (title, all) in [
            ("Blocked by", self.blocked_by.iter().map(|words| paint.bad(words)).collect::<Vec<_>>()),
            ("Stays", self.stays.clone()),
            ("Note", self.notes.iter().map(|words| paint.odd(words)).collect()),
        ] {
            lines.extend(all.into_iter().map(|words| format!("{}{words}", paint.faint(format!("{title:<12}")))));
        }
        lines
    }

    /// How long it may take, and what happens then.
    fn time(&self) -> String {
        let TeardownPolicy { operand_timeout, timeout, on_expiry } = &self.policy;
        let then = match on_expiry {
            OnExpiry::Wait => "it keeps trying, and says so",
            OnExpiry::Force => "the step is given up, and what is left behind is recorded",
            OnExpiry::Manual => "it stops until someone gives the step up",
        };
        let (step, whole) = (age(operand_timeout.as_duration()), age(timeout.as_duration()));
        format!("Each step may take {step}, the whole stack {whole}. After that, {then} (onExpiry: {on_expiry:?}).")
    }
}

/// A few names of many, in parentheses.
fn some(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => format!(" ({one})"),
        [one, another] => format!(" ({one}, {another})"),
        [one, rest @ ..] => format!(" ({one} and {} more)", rest.len()),
    }
}

fn is_of(pod: &Pod, component: &str) -> bool {
    let labels = pod.labels();
    labels.get(COMPONENT_LABEL).is_some_and(|it| it == component)
        && labels.get("app.kubernetes.io/part-of").is_some_and(|it| it == PART_OF)
}

fn names(pods: &[Pod], is_wanted: impl Fn(&Pod) -> bool) -> Vec<String> {
    let name = |pod: &Pod| format!("Pod {}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    let mut names: Vec<String> = pods.iter().filter(|pod| is_wanted(pod)).map(name).collect();
    names.sort();
    names
}

/// A claim, with where it is.
pub(super) fn place(claim: &PersistentVolumeClaim) -> String {
    format!("PersistentVolumeClaim {}/{}", claim.namespace().unwrap_or_default(), claim.name_any())
}
