//! The kind `Notebook`, what is read for it, and what is decided.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta};
use kube::{CustomResource, ResourceExt};
use opcore::conditions::{Condition, Summary};
use opcore::controller::Watches;
use opcore::finalizer::{self, OnExpiry, StepStatus, Teardown, TeardownRecord, step};
use opcore::ownership::{OWNER_LABEL, owner_reference};
use opcore::{Context, Decision, Error, Operator, Write};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) const NAME: &str = "notebook-operator";
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
    /// What happens when the deadline has passed.
    #[serde(default)]
    pub on_expiry: OnExpiry,
}

/// The observed state of a notebook.
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
opcore::impl_taken_down!(NotebookStatus);

pub struct Notebooks;

/// The ConfigMaps that belong to a notebook, by page.
pub struct Shelf(BTreeMap<String, ConfigMap>);

impl Operator for Notebooks {
    type Object = Notebook;
    type Observed = Shelf;
    type Claims = ();

    const FINALIZER: &'static str = "example.opcore.dev/notebook";

    fn watches(&self, watches: &mut Watches<Notebook>) {
        watches.owns::<ConfigMap>();
    }

    async fn observe(&self, notebook: &Notebook, context: &Context) -> Result<Shelf, Error> {
        let maps = context.reader().namespaced::<ConfigMap>(&notebook.namespace().unwrap_or_default());
        let ours = format!("{OWNER_LABEL}={}", notebook.uid().unwrap_or_default());
        let found = maps.list(&ListParams::default().labels(&ours)).await?;
        let page = |map: ConfigMap| map.labels().get(PAGE_LABEL).cloned().map(|page| (page, map));
        Ok(Shelf(found.into_iter().filter_map(page).collect()))
    }

    fn decide(&self, notebook: &Notebook, found: &Shelf, now: Timestamp) -> Decision<Notebook> {
        let mut decision = Decision::say(notebook.status.clone().unwrap_or_default());
        let summary = match pages(notebook) {
            Ok((pages, cover)) => {
                let torn_out =
                    |(page, _): &(&String, &ConfigMap)| *page != COVER && !notebook.spec.pages.contains_key(*page);
                decision.writes.together(pages).then(cover);
                decision.writes.together(found.0.iter().filter(torn_out).map(|(_, map)| Write::delete(map)));
                Summary::ready(
                    "Written",
                    format!("All {} pages and the cover are in place.", notebook.spec.pages.len()),
                )
            }
            Err(reason) => Summary::stalled("InvalidPage", reason),
        };
        summary.write(&mut decision.status, notebook.metadata.generation, now);
        decision
    }

    fn tear_down(&self, notebook: &Notebook, found: &Shelf, now: Timestamp) -> Decision<Notebook> {
        let within = notebook.spec.teardown_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(30);
        let within = Duration::from_secs(within);
        let steps = Teardown::graph([step("pages").within(within), step(COVER).after(["pages"]).within(within)]);
        let of_step = |step: &str| {
            let covers = step == COVER;
            found.0.iter().filter(move |(page, _)| (*page == COVER) == covers).map(|(_, map)| map)
        };
        let observed = |step: &str| {
            let left: Vec<_> = of_step(step).map(ResourceExt::name_any).collect();
            match left.as_slice() {
                [] => StepStatus::Done,
                left => StepStatus::Pending { reason: format!("{} are still there", left.join(", ")), retry: None },
            }
        };
        let steps = steps.map(|teardown| teardown.on_expiry(notebook.spec.on_expiry));
        let status = notebook.status.clone().unwrap_or_default();
        let (mut decision, progress) = finalizer::pass(notebook, status, steps, observed, now);
        // One stage: a refused delete in one step must not delay the others.
        decision.writes.together(progress.act.iter().flat_map(|step| of_step(step)).map(Write::delete));
        decision
    }
}

/// The pages, and the cover that lists them, or the reason why they cannot be built.
fn pages(notebook: &Notebook) -> Result<(Vec<Write>, Write), String> {
    let pages = notebook.spec.pages.iter().map(|(page, text)| render(notebook, page, text));
    let cover = notebook.spec.pages.keys().cloned().collect::<Vec<_>>().join("\n");
    Ok((pages.collect::<Result<_, _>>()?, render(notebook, COVER, &cover)?))
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
