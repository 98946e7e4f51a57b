//! The kind `Notebook`, what is read for it, and what is decided.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, CustomResource, ResourceExt};
use opcore::conditions::{Condition, Summary};
use opcore::controller::Watches;
use opcore::finalizer::{self, OnExpiry, Phase, State, Teardown, TeardownRecord, Yield, step};
use opcore::ownership::{OWNER_LABEL, owner_reference};
use opcore::{Context, Decision, Error, Next, Operator, Plan, Write};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) const NAME: &str = "notebook-operator";
pub(crate) const FINALIZER: &str = "example.opcore.dev/notebook";
const PAGE_LABEL: &str = "example.opcore.dev/page";
const COVER: &str = "cover";

/// A notebook of named pages.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.opcore.dev", version = "v1alpha1", kind = "Notebook", namespaced, status = "NotebookStatus")]
#[kube(category = "opcore")]
#[kube(
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#
)]
#[kube(
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[kube(printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#)]
#[serde(rename_all = "camelCase")]
pub struct NotebookSpec {
    /// The pages: name and text.
    #[serde(default)]
    pub pages: BTreeMap<String, String>,
    /// How long each step of the teardown may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teardown_seconds: Option<i32>,
    /// What happens when its time is up.
    #[serde(default)]
    pub on_expiry: OnExpiry,
}

/// What is known of a notebook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotebookStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teardown: Option<TeardownRecord>,
}
opcore::impl_conditions!(NotebookStatus);

pub struct Notebooks;

/// The ConfigMaps that belong to a notebook, by page.
pub struct Shelf(BTreeMap<String, ConfigMap>);

impl Operator for Notebooks {
    type Object = Notebook;
    type Seen = Shelf;

    fn watches(&self, watches: &mut Watches<Notebook>) {
        watches.owns::<ConfigMap>();
    }

    async fn observe(&self, notebook: &Notebook, context: &Context) -> Result<Shelf, Error> {
        let api: Api<ConfigMap> = Api::namespaced(context.client().clone(), &notebook.namespace().unwrap_or_default());
        let ours = format!("{OWNER_LABEL}={}", notebook.uid().unwrap_or_default());
        let found = api.list(&ListParams::default().labels(&ours)).await?;
        let page = |map: ConfigMap| map.labels().get(PAGE_LABEL).cloned().map(|page| (page, map));
        Ok(Shelf(found.into_iter().filter_map(page).collect()))
    }

    fn decide(&self, notebook: &Notebook, found: &Shelf, now: jiff::Timestamp) -> Decision<Notebook> {
        match finalizer::phase(notebook, FINALIZER) {
            Phase::Active { guarded } => write_pages(notebook, found, guarded, now),
            Phase::Terminating => tear_down(notebook, found, now),
            Phase::Released => Decision::say(notebook.status.clone().unwrap_or_default()),
        }
    }
}

fn write_pages(notebook: &Notebook, found: &Shelf, guarded: bool, now: jiff::Timestamp) -> Decision<Notebook> {
    let mut status = notebook.status.clone().unwrap_or_default();
    let wanted = notebook.spec.pages.iter().map(|(page, text)| render(notebook, page, text));
    let cover = render(notebook, COVER, &notebook.spec.pages.keys().cloned().collect::<Vec<_>>().join("\n"));
    let rendered = wanted.collect::<Result<Vec<_>, _>>().and_then(|pages| cover.map(|cover| (pages, cover)));
    let (pages, cover) = match rendered {
        Ok(rendered) => rendered,
        Err(reason) => {
            Summary::stalled("InvalidPage", reason).write(&mut status, notebook.metadata.generation, now);
            return Decision::say(status);
        }
    };
    let mut plan = Plan::new();
    if !guarded {
        plan.then(Write::AddFinalizer(FINALIZER.to_owned()));
    }
    plan.together(pages).then(cover);
    let torn_out = |(page, _): &(&String, &ConfigMap)| *page != COVER && !notebook.spec.pages.contains_key(*page);
    plan.together(found.0.iter().filter(torn_out).map(|(_, map)| Write::delete(map)));
    let message = format!("All {} pages and the cover are in place.", notebook.spec.pages.len());
    Summary::ready("Written", message).write(&mut status, notebook.metadata.generation, now);
    Decision { plan, status, notes: Vec::new(), next: Next::OnEvent }
}

fn tear_down(notebook: &Notebook, found: &Shelf, now: jiff::Timestamp) -> Decision<Notebook> {
    let within = Duration::from_secs(notebook.spec.teardown_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(30));
    let steps = [step("pages").within(within), step(COVER).after(["pages"]).within(within)];
    let mut status = notebook.status.clone().unwrap_or_default();
    let teardown = match Teardown::graph(steps) {
        Ok(teardown) => teardown.on_expiry(notebook.spec.on_expiry),
        Err(error) => {
            Summary::stalled("TeardownGraph", error.to_string()).write(&mut status, notebook.metadata.generation, now);
            return Decision::say(status);
        }
    };
    let of_step = |step: &str| {
        let covers = step == COVER;
        found.0.iter().filter(move |(page, _)| (*page == COVER) == covers).map(|(_, map)| map)
    };
    let see = |step: &str| {
        let left: Vec<_> = of_step(step).map(ResourceExt::name_any).collect();
        match left.as_slice() {
            [] => Yield::Done,
            left => Yield::Pending { reason: format!("{} are still there", left.join(", ")), retry: None },
        }
    };
    let progress = teardown.advance(status.teardown.as_ref(), see, &finalizer::force(notebook), now);
    let mut plan = Plan::new();
    // One stage: a delete that is refused in one step must not hold up another.
    plan.together(progress.act.iter().flat_map(|step| of_step(step)).map(Write::delete));
    if progress.state == State::Released {
        plan.then(Write::RemoveFinalizer(FINALIZER.to_owned()));
    }
    let (reason, message) = progress.words();
    Summary::reconciling(reason, message).write(&mut status, notebook.metadata.generation, now);
    let (notes, next) = (progress.notes(), progress.next.into());
    status.teardown = Some(progress.record);
    Decision { plan, status, notes, next }
}

fn render(notebook: &Notebook, page: &str, text: &str) -> Result<Write, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if page.is_empty() || page.len() > 40 || !page.chars().all(fits) {
        return Err(format!(
            "spec.pages: {page:?} is no name for a page; use up to 40 lower case letters, digits and '-'."
        ));
    }
    let namespace = notebook.namespace().unwrap_or_default();
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(format!("{}-{page}", notebook.name_any())),
            labels: Some(BTreeMap::from([(PAGE_LABEL.to_owned(), page.to_owned())])),
            owner_references: Some(vec![owner_reference(notebook, Some(&namespace)).map_err(|e| e.to_string())?]),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("text".to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    };
    Write::apply(&map).map_err(|error| error.to_string())
}
