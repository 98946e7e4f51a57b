//! The index, with watch reports that the test supplies.

mod gates;
mod jobs;
mod law;
mod refusals;
mod watches;

use jiff::SignedDuration;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use opcore::act::RefusalReason;
use opcore::ownership::{Claimant, OPERATOR_LABEL, OWNER_ANNOTATION};
use serde_json::json;

use super::*;
use crate::api::v1alpha1::WavePlan;
use crate::render::{Sources, parsed};
use crate::subscription::{Served, WrittenKind, resolve};

const OPERATOR: &str = "wave-orchestrator";

/// One wave that applies the ConfigMap `a`, and one that waits for the Widget `w`.
const PLAN: &str = "
    - name: maps
      members: [{ manifests: { namespace: shop, inline: '{ apiVersion: v1, kind: ConfigMap, metadata: { name: a }, data: { text: rain } }' } }]
    - name: widgets
      dependsOn: [{ wave: maps }]
      members: [{ ref: { apiVersion: example.io/v1, kind: Widget, namespace: shop, name: w } }]";

/// A wave that checks all Widgets of a team.
const CHOICE: &str = "
    - name: team
      healthChecks:
      - target: { apiVersion: example.io/v1, kind: Widget, namespace: shop, selector: { matchLabels: { team: a } } }
        ready: status.phase == 'Done'
        failed: status.phase == 'Broken'";

/// How many objects a plan has applied.
fn total(snapshot: &Snapshot) -> i64 {
    snapshot.counts.values().flat_map(BTreeMap::values).sum()
}

/// An index, the kinds that the API server has, and the time.
struct Fixture {
    index: Index,
    served: BTreeMap<WrittenKind, Served>,
    written: BTreeSet<String>,
    now: Timestamp,
}

impl Fixture {
    fn new() -> Self {
        let mut fixture = Self {
            index: Index::new(OPERATOR),
            served: BTreeMap::new(),
            written: BTreeSet::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        fixture.serve("v1", "ConfigMap", false);
        fixture.serve("v1", "Namespace", false);
        fixture.serve("example.io/v1", "Widget", true);
        fixture.serve("kustomize.toolkit.fluxcd.io/v1", "Kustomization", true);
        fixture
    }

    fn serve(&mut self, api_version: &str, kind: &str, has_status: bool) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let served = Served::Yes { resource, namespaced: kind != "Namespace", has_status };
        self.served.insert((api_version.to_owned(), kind.to_owned()), served);
    }

    /// Subscribes a plan of these waves to its objects. Returns the watches that must report again.
    fn subscribe(&mut self, name: &str, waves: &str) -> BTreeSet<ScopeId> {
        let subscription = self.subscription(name, waves);
        self.index.subscribe(&name.into(), Arc::new(subscription), &self.written, self.now)
    }

    fn subscription(&self, name: &str, waves: &str) -> PlanSubscription {
        let plan = plan(name, waves);
        resolve(&parsed(&plan.spec, &Sources::new()), &self.served, &Claimant::acting_for(OPERATOR, &plan))
    }

    fn with(waves: &str) -> Self {
        let mut fixture = Self::new();
        assert_eq!(fixture.subscribe("p", waves), BTreeSet::new(), "nothing was reported before");
        fixture
    }

    /// All watches of a plan report that this was everything.
    fn sync(&mut self, name: &str) -> Wake {
        let scopes = self.index.plans[name].subscription.scopes.clone();
        scopes.iter().flat_map(|scope| self.index.synced(scope)).collect()
    }

    /// The watches of all plans on the object's kind, always including the one on what this operator applied.
    fn scopes(&self, object: &Value) -> BTreeSet<ScopeId> {
        let all = self.index.plans.values().flat_map(|plan| &plan.subscription.scopes);
        let GroupKind { group, kind } = kind_of(object);
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", &kind), "");
        let ours = crate::subscription::ours(&resource, OPERATOR);
        all.filter(|scope| scope.is_on(&kind_of(object))).cloned().chain([ours]).collect()
    }

    /// Every watch on its kind reports an object.
    fn report(&mut self, object: &Value) -> Wake {
        for scope in self.scopes(object) {
            self.index.confirm(&scope, &id_of(&kind_of(object), object));
        }
        self.index.observed(&kind_of(object), object, self.now)
    }

    /// Every watch on its kind reports that an object is gone.
    fn report_gone(&mut self, object: &Value) -> Wake {
        let mut wake = Wake::new();
        for scope in self.scopes(object) {
            for plan in self.index.gone(&scope, &id_of(&kind_of(object), object)) {
                note(&mut wake, &plan);
            }
        }
        wake
    }

    fn apply(&mut self, object: &Value) -> Wake {
        self.index.applied(&kind_of(object), object, true, self.now)
    }

    fn pass(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    fn snapshot(&self) -> Snapshot {
        self.index.snapshot(&"p".into(), &self.asking())
    }

    /// A request for everything, as if no wave had begun.
    fn asking(&self) -> Asking<'static> {
        Asking { everything: true, most: 10, confirmed: &[], asked_since: &[], now: self.now }
    }

    /// For a wave: the numbers of items, unread, ready, failed, and to be applied.
    fn counts(&self, wave: usize) -> [usize; 5] {
        let snapshot = &self.snapshot().waves[wave];
        [snapshot.total, snapshot.unread, snapshot.ready, snapshot.failed, snapshot.due.len()]
    }

    /// For a wave: why the first item that is not ready is not.
    fn reason(&self, wave: usize) -> String {
        self.snapshot().waves[wave].not_ready.first().map_or(String::new(), |entry| entry.reason.clone())
    }
}

fn plan(name: &str, waves: &str) -> WavePlan {
    let head = format!(
        "{{ apiVersion: waves.opcore.dev/v1alpha1, kind: WavePlan, metadata: {{ name: {name}, uid: uid-{name} }} }}"
    );
    let mut plan: Value = serde_yaml::from_str(&head).unwrap();
    plan["spec"] = json!({ "waves": serde_yaml::from_str::<Value>(waves).unwrap() });
    serde_json::from_value(plan).unwrap()
}

fn kind_of(object: &Value) -> GroupKind {
    let api_version = object["apiVersion"].as_str().unwrap();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    GroupKind { group: group.to_owned(), kind: object["kind"].as_str().unwrap().to_owned() }
}

/// A ConfigMap as the API server has it after a plan applied it.
/// An object in the namespace of these tests.
fn object_id(group: &str, kind: &str, name: &str) -> ObjectId {
    let kind = GroupKind { group: group.to_owned(), kind: kind.to_owned() };
    ObjectId { kind, namespace: Some("shop".to_owned()), name: name.to_owned() }
}

fn map(plan: &str, name: &str, text: &str) -> Value {
    let fields = json!({
        "f:data": { "f:text": {} },
        "f:metadata": {
            "f:labels": { format!("f:{OPERATOR_LABEL}"): {}, format!("f:{OWNER_LABEL}"): {}, format!("f:{WAVE_LABEL}"): {} },
            "f:annotations": { format!("f:{OWNER_ANNOTATION}"): {} },
        },
    });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "text": text },
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-of-{name}"), "resourceVersion": "1",
            "labels": { OPERATOR_LABEL: OPERATOR, OWNER_LABEL: format!("uid-{plan}"), WAVE_LABEL: "maps" },
            "annotations": { OWNER_ANNOTATION: format!("WavePlan/{plan}") },
            "managedFields": [{ "manager": OPERATOR, "operation": "Apply", "fieldsV1": fields }],
        },
    })
}

fn widget(name: &str, ready: &str) -> Value {
    json!({
        "apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-of-{name}"), "generation": 1, "resourceVersion": "1" },
        "status": { "observedGeneration": 1, "conditions": [{ "type": "Ready", "status": ready, "reason": "Told" }] },
    })
}

fn of_team(name: &str, team: &str, phase: &str) -> Value {
    let mut widget = widget(name, "True");
    widget["metadata"]["labels"] = json!({ "team": team });
    widget["status"] = json!({ "phase": phase });
    widget
}

fn wakes(plans: &[&str]) -> Wake {
    plans.iter().map(|plan| PlanName::from(*plan)).collect()
}

#[test]
fn what_nobody_has_read_is_neither_missing_nor_to_be_applied() {
    let fixture = Fixture::with(PLAN);
    assert_eq!([fixture.counts(0), fixture.counts(1)], [[1, 1, 0, 0, 0]; 2]);
    assert_eq!(fixture.reason(0), "NotYetRead");
    assert!(!fixture.snapshot().complete);
}

#[test]
fn what_a_complete_watch_did_not_report_is_missing() {
    let mut fixture = Fixture::with(PLAN);
    assert_eq!(fixture.sync("p"), wakes(&["p", "p"]), "someone may wait for nothing but this");
    assert_eq!(fixture.counts(0), [1, 0, 0, 0, 1], "it is to be applied");
    assert_eq!((fixture.counts(1), fixture.reason(1).as_str()), ([1, 0, 0, 0, 0], "NotFound"));
    assert!(fixture.snapshot().complete);
}

#[test]
fn what_was_applied_is_ready_by_the_answer_alone_and_the_watch_adds_nothing() {
    let mut fixture = Fixture::with(PLAN);
    fixture.sync("p");
    assert_eq!(fixture.apply(&map("p", "a", "rain")), wakes(&["p"]));
    assert_eq!(fixture.counts(0), [1, 0, 1, 0, 0]);
    assert_eq!(fixture.report(&map("p", "a", "rain")), wakes(&[]), "the same news twice");
}

#[test]
fn what_someone_changed_or_removed_is_to_be_applied_again() {
    let mut fixture = Fixture::with(PLAN);
    fixture.sync("p");
    fixture.apply(&map("p", "a", "rain"));
    assert_eq!(fixture.report(&map("p", "a", "sun")), wakes(&["p"]));
    assert_eq!(fixture.counts(0), [1, 0, 0, 0, 1]);
    fixture.apply(&map("p", "a", "rain"));
    assert_eq!(fixture.report_gone(&map("p", "a", "rain")), wakes(&["p"]));
    assert_eq!(fixture.counts(0), [1, 0, 0, 0, 1]);
}

#[test]
fn an_object_wakes_every_plan_that_mentions_it_and_no_other() {
    let mut fixture = Fixture::with(PLAN);
    fixture.subscribe("q", PLAN);
    fixture.subscribe("r", CHOICE);
    let mut woken = fixture.report(&widget("w", "True"));
    woken.sort();
    assert_eq!(woken, wakes(&["p", "q"]));
    assert_eq!(fixture.report(&widget("stranger", "True")), wakes(&[]));
    fixture.index.unsubscribe(&"q".into());
    assert_eq!(fixture.report(&widget("w", "False")), wakes(&["p"]), "a plan that is gone is not woken");
}

#[test]
fn words_that_only_count_up_wake_nobody() {
    let mut fixture = Fixture::with(PLAN);
    let mut busy = widget("w", "False");
    busy["status"]["conditions"][0]["message"] = json!("1 of 9");
    fixture.report(&busy);
    busy["status"]["conditions"][0]["message"] = json!("2 of 9");
    assert_eq!(fixture.report(&busy), wakes(&[]));
    assert_eq!(fixture.snapshot().waves[1].not_ready[0].message, "Widget shop/w reports Ready=False: 2 of 9.");
}

#[test]
fn a_new_spec_keeps_what_is_known_and_asks_again_only_for_what_was_reported_to_nobody() {
    let mut fixture = Fixture::with(PLAN);
    fixture.report(&widget("w", "True"));
    fixture.sync("p");
    fixture.apply(&map("p", "a", "rain"));
    let more = format!(
        "{PLAN}\n    - name: late\n      members: [{{ ref: {{ apiVersion: example.io/v1, kind: Widget, namespace: shop, name: other }} }}]"
    );
    let again = fixture.subscribe("p", &more);
    assert_eq!(again.iter().map(|scope| scope.kind.as_str()).collect::<Vec<_>>(), ["Widget"]);
    assert_eq!([fixture.counts(0), fixture.counts(1)], [[1, 0, 1, 0, 0]; 2]);
    assert_eq!(fixture.counts(2), [1, 1, 0, 0, 0]);
}

#[test]
fn a_watch_that_was_closed_no_longer_vouches_for_anything() {
    let mut fixture = Fixture::with(PLAN);
    fixture.sync("p");
    let scope = fixture.index.plans["p"].subscription.scopes.first().unwrap().clone();
    fixture.index.closed(&scope);
    assert!(!fixture.snapshot().complete);
    fixture.index.synced(&scope);
    assert!(fixture.snapshot().complete);
}

#[test]
fn what_went_while_a_watch_was_reopened_is_missed_when_everything_is_reported_again() {
    let mut fixture = Fixture::with(&format!("{PLAN}{CHOICE}"));
    let there = [map("p", "a", "rain"), map("p", "old", "rain"), widget("w", "True"), of_team("one", "a", "Done")];
    for object in &there {
        fixture.report(object);
    }
    fixture.sync("p");
    assert_eq!([fixture.counts(0), fixture.counts(1), fixture.counts(2)], [[1, 0, 1, 0, 0]; 3]);
    for scope in fixture.index.plans["p"].subscription.scopes.clone() {
        fixture.index.opened(&scope, false);
    }
    fixture.report(&widget("w", "True"));
    assert_eq!(
        [fixture.counts(0), fixture.counts(1), fixture.counts(2)],
        [[1, 0, 1, 0, 0]; 3],
        "nothing is said too early"
    );
    fixture.sync("p");
    assert_eq!(fixture.counts(0), [1, 0, 0, 0, 1], "it is to be applied again");
    assert_eq!(fixture.counts(1), [1, 0, 1, 0, 0], "it was reported again");
    assert_eq!(fixture.reason(2), "NotFound");
    assert_eq!((fixture.snapshot().orphan_count, fixture.snapshot().owned.len()), (0, 0));
}

#[test]
fn what_was_applied_for_a_plan_is_found_again_whichever_is_reported_first() {
    let mut fixture = Fixture::new();
    fixture.report(&map("p", "a", "rain"));
    fixture.report(&map("p", "old", "rain"));
    fixture.subscribe("p", PLAN);
    let snapshot = fixture.snapshot();
    assert_eq!((snapshot.owned.len(), snapshot.orphan_count), (2, 1));
    assert_eq!(snapshot.orphans[0].target.to_string(), "ConfigMap shop/old");
    assert_eq!(total(&snapshot), 2);
}

#[test]
fn what_strayed_and_went_before_its_plan_came_is_no_orphan() {
    let mut fixture = Fixture::new();
    fixture.report(&map("p", "old", "rain"));
    fixture.report_gone(&map("p", "old", "rain"));
    fixture.subscribe("p", PLAN);
    assert_eq!(fixture.snapshot().orphan_count, 0);
}

#[test]
fn what_was_applied_is_counted_by_the_wave_that_applied_it_last() {
    let mut fixture = Fixture::with(PLAN);
    let kind = kind_of(&map("p", "a", "rain"));
    let counts = |fixture: &Fixture| {
        fixture.snapshot().counts.get(&kind).cloned().unwrap_or_default().into_iter().collect::<Vec<_>>()
    };
    let of = |wave: &str| {
        let mut map = map("p", "a", "rain");
        map["metadata"]["labels"][WAVE_LABEL] = json!(wave);
        map
    };
    fixture.report(&of("maps"));
    fixture.report(&of("maps"));
    assert_eq!(counts(&fixture), [("maps".to_owned(), 1)]);
    fixture.report(&of("other"));
    assert_eq!(counts(&fixture), [("other".to_owned(), 1)]);
    fixture.report_gone(&of("other"));
    assert_eq!(counts(&fixture), []);
}

#[test]
fn a_plan_that_was_recreated_inherits_nothing_from_the_one_before() {
    let mut fixture = Fixture::with(PLAN);
    fixture.sync("p");
    for object in [map("p", "a", "rain"), map("p", "old", "rain"), widget("w", "True")] {
        fixture.report(&object);
    }
    // No watch reported that the plan was gone in between.
    let mut subscription = fixture.subscription("p", PLAN);
    subscription.uid = "uid-of-the-next".to_owned();
    let again = fixture.index.subscribe(&"p".into(), Arc::new(subscription), &BTreeSet::new(), fixture.now);
    let snapshot = fixture.snapshot();
    assert_eq!((snapshot.owned.len(), snapshot.orphan_count, total(&snapshot)), (0, 0, 0));
    assert_eq!(again.iter().map(|scope| scope.kind.as_str()).collect::<Vec<_>>(), ["Widget"], "it is reported again");
    fixture.report(&map("p", "old", "sun"));
    assert_eq!(fixture.snapshot().orphan_count, 0, "it bears the mark of the plan that is gone");
}

#[test]
fn an_orphan_is_one_until_it_is_gone() {
    let mut fixture = Fixture::with(PLAN);
    let mut old = map("p", "old", "rain");
    assert_eq!(fixture.report(&old), wakes(&["p"]));
    assert_eq!(fixture.report(&old), wakes(&[]));
    old["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
    assert_eq!(fixture.report(&old), wakes(&["p"]));
    assert!(fixture.snapshot().orphans[0].deleting);
    assert_eq!(fixture.report_gone(&old), wakes(&["p"]));
    assert_eq!(fixture.snapshot().orphan_count, 0);
}

#[test]
fn a_copy_that_a_person_made_is_not_ours() {
    let mut fixture = Fixture::with(PLAN);
    let mut copy = map("p", "copy", "rain");
    copy["metadata"]["managedFields"][0]["manager"] = json!("kubectl");
    fixture.report(&copy);
    assert_eq!(fixture.snapshot().orphan_count, 0);
}

#[test]
fn an_object_whose_marks_were_taken_off_is_no_longer_counted() {
    let mut fixture = Fixture::with(PLAN);
    fixture.apply(&map("p", "a", "rain"));
    let mut bare = map("p", "a", "rain");
    bare["metadata"]["labels"] = json!({});
    assert_eq!(fixture.report(&bare), wakes(&["p"]));
    assert_eq!((fixture.snapshot().owned.len(), total(&fixture.snapshot())), (0, 0));
}

#[test]
fn a_choice_is_as_ready_as_the_least_ready_object_in_it() {
    let mut fixture = Fixture::with(CHOICE);
    fixture.sync("p");
    assert_eq!(fixture.reason(0), "NotFound", "of nothing it cannot be said that it is ready");
    fixture.report(&of_team("one", "a", "Done"));
    fixture.report(&of_team("stranger", "b", "Broken"));
    assert_eq!(fixture.counts(0), [1, 0, 1, 0, 0]);
    assert_eq!(fixture.report(&of_team("two", "a", "Busy")), wakes(&["p"]));
    assert_eq!(fixture.reason(0), "CheckNotPassed");
    fixture.report(&of_team("three", "a", "Broken"));
    assert_eq!(fixture.counts(0), [1, 0, 0, 1, 0]);
    assert_eq!(fixture.report(&of_team("three", "b", "Broken")), wakes(&["p"]), "with its label it leaves the choice");
    assert_eq!(fixture.report_gone(&of_team("two", "a", "Busy")), wakes(&["p"]));
    assert_eq!(fixture.counts(0), [1, 0, 1, 0, 0]);
}

#[test]
fn nothing_is_said_of_a_choice_before_everything_in_it_is_reported() {
    let mut fixture = Fixture::with(CHOICE);
    assert_eq!(fixture.report(&of_team("stranger", "b", "Done")), wakes(&[]));
    assert_eq!(fixture.report(&of_team("one", "a", "Done")), wakes(&[]));
    assert_eq!(fixture.counts(0), [1, 1, 0, 0, 0], "there may be others, and they may be busy");
    fixture.report(&of_team("two", "a", "Busy"));
    fixture.sync("p");
    assert_eq!((fixture.counts(0), fixture.reason(0).as_str()), ([1, 0, 0, 0, 0], "CheckNotPassed"));
}

#[test]
fn a_choice_that_its_last_object_left_is_missing() {
    let mut fixture = Fixture::with(CHOICE);
    fixture.sync("p");
    fixture.report(&of_team("one", "a", "Done"));
    assert_eq!(fixture.report_gone(&of_team("one", "a", "Done")), wakes(&["p"]));
    assert_eq!(fixture.reason(0), "NotFound");
}

/// A wave that applies a Widget.
const APPLIED_WIDGET: &str = "
    - name: maps
      members: [{ manifests: { namespace: shop, inline: '{ apiVersion: example.io/v1, kind: Widget, metadata: { name: w }, data: { text: rain } }' } }]";

/// The same Widget as its controller last described it, without the generation that it observed.
fn applied_widget() -> Value {
    let mut widget = map("p", "w", "rain");
    (widget["apiVersion"], widget["kind"]) = (json!("example.io/v1"), json!("Widget"));
    widget["metadata"]["generation"] = json!(2);
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T00:00:00Z" });
    widget["status"] = json!({ "conditions": [ready] });
    widget
}

#[test]
fn a_status_from_before_our_write_is_not_believed_until_its_controller_had_time() {
    let mut fixture = Fixture::with(APPLIED_WIDGET);
    fixture.sync("p");
    fixture.apply(&applied_widget());
    assert_eq!((fixture.counts(0), fixture.reason(0).as_str()), ([1, 0, 0, 0, 0], "StatusNotRenewed"));
    let at = fixture.snapshot().waves[0].recheck_at.unwrap();
    assert_eq!(at.duration_since(fixture.now), SignedDuration::try_from(opcore::readiness::SETTLE).unwrap());
    fixture.index.recheck(&"p".into(), fixture.now);
    assert_eq!(fixture.reason(0), "StatusNotRenewed", "not before its time");
    fixture.pass(10);
    fixture.index.recheck(&"p".into(), fixture.now);
    assert_eq!(fixture.counts(0), [1, 0, 1, 0, 0]);
    assert_eq!(fixture.snapshot().waves[0].recheck_at, None);
}

#[test]
fn a_status_that_its_controller_renewed_is_believed_at_once() {
    let mut fixture = Fixture::with(APPLIED_WIDGET);
    fixture.sync("p");
    fixture.apply(&applied_widget());
    let mut renewed = applied_widget();
    renewed["metadata"]["resourceVersion"] = json!("2");
    renewed["status"]["conditions"][0]["message"] = json!("seen");
    assert_eq!(fixture.report(&renewed), wakes(&["p"]));
    assert_eq!((fixture.counts(0), fixture.snapshot().waves[0].recheck_at), ([1, 0, 1, 0, 0], None));
}

#[test]
fn after_a_restart_the_statuses_of_a_wave_that_may_have_written_are_not_believed_at_once() {
    let mut fixture = Fixture::new();
    fixture.written.insert("maps".to_owned());
    fixture.subscribe("p", APPLIED_WIDGET);
    fixture.report(&applied_widget());
    assert_eq!(fixture.reason(0), "StatusNotRenewed");
    let mut other = Fixture::with(APPLIED_WIDGET);
    other.report(&applied_widget());
    assert_eq!(other.counts(0), [1, 0, 1, 0, 0], "those of a wave that was through are");
}

#[test]
fn a_kind_that_the_cluster_lacks_is_picked_up_when_it_comes() {
    let mut fixture = Fixture::new();
    let widget_kind = ("example.io/v1".to_owned(), "Widget".to_owned());
    let widgets = fixture.served.remove(&widget_kind).unwrap();
    fixture.subscribe("p", PLAN);
    fixture.subscribe(
        "q",
        "[{ name: w, members: [{ ref: { apiVersion: v1, kind: ConfigMap, namespace: shop, name: a } }] }]",
    );
    assert_eq!(fixture.reason(1), "KindNotServed");
    assert_eq!(fixture.index.plans_without_a_kind(), wakes(&["p"]));
    fixture.served.insert(widget_kind, widgets);
    fixture.subscribe("p", PLAN);
    assert_eq!((fixture.reason(1).as_str(), fixture.index.plans_without_a_kind()), ("NotYetRead", wakes(&[])));
}

#[test]
fn a_source_wakes_the_plans_whose_manifests_are_in_it() {
    let mut fixture = Fixture::new();
    let source = map("nobody", "texts", "rain");
    let id = id_of(&kind_of(&source), &source);
    let mut subscription = fixture.subscription("p", PLAN);
    subscription.sources.insert(id.clone());
    fixture.index.subscribe(&"p".into(), Arc::new(subscription), &BTreeSet::new(), fixture.now);
    assert!(fixture.index.is_source(&id));
    assert_eq!(fixture.report(&source), wakes(&["p"]));
    assert_eq!(fixture.report_gone(&source), wakes(&["p"]));
    fixture.index.unsubscribe(&"p".into());
    assert!(!fixture.index.is_source(&id));
}

#[test]
fn what_flux_was_asked_and_who_suspended_it_is_read_from_the_object() {
    let reference =
        "ref: { apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, namespace: shop, name: k }";
    let mut fixture = Fixture::with(&format!(
        "[{{ name: a, members: [{{ {reference} }}] }}, {{ name: b, members: [{{ {reference}, mode: Gate }}] }}]"
    ));
    let mut object = widget("k", "True");
    (object["apiVersion"], object["kind"]) = (json!("kustomize.toolkit.fluxcd.io/v1"), json!("Kustomization"));
    object["metadata"]["annotations"] = json!({ FLUX_REQUEST: "now" });
    fixture.report(&object);
    let snapshot = fixture.snapshot();
    assert_eq!(snapshot.waves[0].nudges[0].requested.as_deref(), Some("now"));
    assert!(snapshot.waves[0].unanswered == 1 && snapshot.waves[0].ready == 0);
    object["status"]["lastHandledReconcileAt"] = json!("now");
    fixture.report(&object);
    assert!(fixture.snapshot().waves[0].unanswered == 0 && fixture.snapshot().waves[0].ready == 1);
    assert!(!snapshot.waves[1].gates[0].held);
    for (manager, held) in [("kubectl", false), (OPERATOR, true)] {
        let fields = json!({ "f:spec": { "f:suspend": {} } });
        object["metadata"]["managedFields"] = json!([{ "manager": manager, "operation": "Apply", "fieldsV1": fields }]);
        fixture.report(&object);
        assert_eq!(fixture.snapshot().waves[1].gates[0].held, held, "suspended by {manager}");
    }
}

#[test]
fn of_members_that_were_asked_the_same_the_first_are_reported_and_of_the_others_each() {
    let member = |number: usize| {
        format!(
            "{{ ref: {{ apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, namespace: shop, name: k{number:03} }} }}"
        )
    };
    let members: Vec<String> = (0..150).map(member).collect();
    let mut fixture = Fixture::with(&format!("[{{ name: flux, members: [{}] }}]", members.join(", ")));
    let kustomization = |number: usize, asked: &str| {
        let mut object = widget(&format!("k{number:03}"), "True");
        (object["apiVersion"], object["kind"]) = (json!("kustomize.toolkit.fluxcd.io/v1"), json!("Kustomization"));
        object["metadata"]["annotations"] = json!({ FLUX_REQUEST: asked });
        object
    };
    for number in 0..150 {
        fixture.report(&kustomization(number, "before"));
    }
    let now = fixture.now.to_string();
    // One is asked and refuses; one is asked, and one is gone.
    let object = object_id("kustomize.toolkit.fluxcd.io", "Kustomization", "k000");
    let reason = RefusalReason::Forbidden;
    fixture.index.refused(&"p".into(), &Refusal { object, reason, message: "It is forbidden.".to_owned() });
    fixture.report(&kustomization(149, &now));
    fixture.report_gone(&kustomization(1, "before"));
    let nudges = fixture.snapshot().waves.remove(0).nudges;
    let reported = |number: usize| {
        let nudge = &nudges[number];
        (nudge.target.name.as_str(), nudge.requested.as_deref().unwrap_or_default(), nudge.refused_at.is_some())
    };
    assert_eq!((reported(0), reported(1)), (("k000", "before", true), ("k002", "before", false)));
    assert_eq!((nudges.len(), reported(101)), (102, ("k149", now.as_str(), false)));
    // All are asked: one group is left.
    for number in 0..150 {
        fixture.report(&kustomization(number, &now));
    }
    let nudges = fixture.snapshot().waves.remove(0).nudges;
    assert!(nudges.len() == 100 && nudges.iter().all(|nudge| nudge.requested.as_deref() == Some(&now)));
    let asking = Asking { asked_since: &[Some(fixture.now)], ..fixture.asking() };
    let known = fixture.index.snapshot(&"p".into(), &asking).waves.remove(0).nudges;
    assert_eq!(known.len(), 1, "one stands for all");
}

#[test]
fn a_gate_that_others_keep_closed_is_not_ready_and_says_who_they_are() {
    let mut fixture = Fixture::with(
        "[{ name: a, members: [{ ref: { apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, namespace: shop, name: k }, mode: Gate }] }]",
    );
    let mut object = widget("k", "True");
    (object["apiVersion"], object["kind"]) = (json!("kustomize.toolkit.fluxcd.io/v1"), json!("Kustomization"));
    object["spec"] = json!({ "suspend": true });
    let entry = |manager: &str| json!({ "manager": manager, "operation": "Apply", "fieldsV1": { "f:spec": { "f:suspend": {} } } });
    object["metadata"]["managedFields"] = json!([entry("kustomize-controller")]);
    fixture.report(&object);
    assert_eq!(fixture.counts(0), [1, 0, 0, 0, 0], "although its status says that it is ready");
    let reported = &fixture.snapshot().waves[0].not_ready[0];
    assert_eq!(reported.reason, "SuspendedByAnother");
    let words = "Kustomization shop/k is suspended, but not by this plan: kustomize-controller manages spec.suspend.";
    assert!(reported.message.starts_with(words), "{}", reported.message);
    object["spec"] = json!({ "suspend": false });
    assert_eq!(fixture.report(&object), wakes(&["p"]));
    assert_eq!(fixture.counts(0), [1, 0, 1, 0, 0]);
}

#[test]
fn what_may_not_go_is_distinguished_from_what_may_and_hides_nothing_of_it() {
    use crate::api::v1alpha1::ProtectedKind::PersistentVolumeClaim;
    let mut fixture = Fixture::new();
    fixture.serve("v1", "PersistentVolumeClaim", true);
    let claim =
        PLAN.replace("kind: ConfigMap, metadata: { name: a }", "kind: PersistentVolumeClaim, metadata: { name: c }");
    fixture.subscribe(
        "p",
        &format!("{PLAN}{}", claim.replace("- name: maps", "- name: claims").replace("widgets", "more")),
    );
    let claim = |name: &str| {
        let mut claim = map("p", name, "rain");
        claim["kind"] = json!("PersistentVolumeClaim");
        claim
    };
    let mut confirmed = claim("z");
    confirmed["metadata"]["annotations"][CONFIRM_ANNOTATION] = json!("true");
    for object in [map("p", "old", "rain"), claim("x"), claim("y"), confirmed] {
        fixture.report(&object);
    }
    let reported = |confirmed: &[_]| {
        let snapshot =
            fixture.index.snapshot(&"p".into(), &Asking { everything: false, most: 2, confirmed, ..fixture.asking() });
        let names = |observed: &[OwnedObject]| {
            observed.iter().map(|observed| observed.target.name.clone()).collect::<Vec<_>>().join(" ")
        };
        (names(&snapshot.orphans), snapshot.orphan_count, names(&snapshot.kept), snapshot.kept_count)
    };
    assert_eq!(reported(&[]), ("old z".to_owned(), 2, "x y".to_owned(), 2));
    assert_eq!(reported(&[PersistentVolumeClaim]), ("old x".to_owned(), 4, String::new(), 0));
}

/// A wave that applies a Job, one that waits for it, and one that checks it with CEL.
const JOBS: &str = "
    - name: maps
      members: [{ manifests: { namespace: shop, inline: '{ apiVersion: batch/v1, kind: Job, metadata: { name: j }, data: { text: rain } }' } }]
    - name: theirs
      members: [{ ref: { apiVersion: batch/v1, kind: Job, namespace: shop, name: j } }]
    - name: asked
      healthChecks: [{ target: { apiVersion: batch/v1, kind: Job, namespace: shop, name: j }, ready: status.succeeded == 1 }]";
