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
fn total(look: &Look) -> i64 {
    look.counts.values().flat_map(BTreeMap::values).sum()
}

/// An index, the kinds that the API server has, and the time.
struct Desk {
    index: Index,
    served: BTreeMap<WrittenKind, Served>,
    written: BTreeSet<String>,
    now: Timestamp,
}

impl Desk {
    fn new() -> Self {
        let mut desk = Self {
            index: Index::new(OPERATOR),
            served: BTreeMap::new(),
            written: BTreeSet::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        desk.serve("v1", "ConfigMap", false);
        desk.serve("v1", "Namespace", false);
        desk.serve("example.io/v1", "Widget", true);
        desk.serve("kustomize.toolkit.fluxcd.io/v1", "Kustomization", true);
        desk
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
        let mut desk = Self::new();
        assert_eq!(desk.subscribe("p", waves), BTreeSet::new(), "nothing was told before");
        desk
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
    fn see(&mut self, object: &Value) -> Wake {
        for scope in self.scopes(object) {
            self.index.confirm(&scope, &id_of(&kind_of(object), object));
        }
        self.index.seen(&kind_of(object), object, self.now)
    }

    /// Every watch on its kind reports that an object is gone.
    fn lose(&mut self, object: &Value) -> Wake {
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

    fn look(&self) -> Look {
        self.index.look(&"p".into(), &self.asking())
    }

    /// A request for everything, as if no wave had begun.
    fn asking(&self) -> Asking<'static> {
        Asking { everything: true, most: 10, confirmed: &[], asked_since: &[], now: self.now }
    }

    /// For a wave: the numbers of items, unread, ready, failed, and to be applied.
    fn counts(&self, wave: usize) -> [usize; 5] {
        let look = &self.look().waves[wave];
        [look.total, look.unread, look.ready, look.failed, look.due.len()]
    }

    /// For a wave: why the first item that is not ready is not.
    fn reason(&self, wave: usize) -> String {
        self.look().waves[wave].not_ready.first().map_or(String::new(), |lack| lack.reason.clone())
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
    let desk = Desk::with(PLAN);
    assert_eq!([desk.counts(0), desk.counts(1)], [[1, 1, 0, 0, 0]; 2]);
    assert_eq!(desk.reason(0), "NotYetRead");
    assert!(!desk.look().complete);
}

#[test]
fn what_a_complete_watch_did_not_report_is_missing() {
    let mut desk = Desk::with(PLAN);
    assert_eq!(desk.sync("p"), wakes(&["p", "p"]), "someone may wait for nothing but this");
    assert_eq!(desk.counts(0), [1, 0, 0, 0, 1], "it is to be applied");
    assert_eq!((desk.counts(1), desk.reason(1).as_str()), ([1, 0, 0, 0, 0], "NotFound"));
    assert!(desk.look().complete);
}

#[test]
fn what_was_applied_is_ready_by_the_answer_alone_and_the_watch_adds_nothing() {
    let mut desk = Desk::with(PLAN);
    desk.sync("p");
    assert_eq!(desk.apply(&map("p", "a", "rain")), wakes(&["p"]));
    assert_eq!(desk.counts(0), [1, 0, 1, 0, 0]);
    assert_eq!(desk.see(&map("p", "a", "rain")), wakes(&[]), "the same news twice");
}

#[test]
fn what_someone_changed_or_removed_is_to_be_applied_again() {
    let mut desk = Desk::with(PLAN);
    desk.sync("p");
    desk.apply(&map("p", "a", "rain"));
    assert_eq!(desk.see(&map("p", "a", "sun")), wakes(&["p"]));
    assert_eq!(desk.counts(0), [1, 0, 0, 0, 1]);
    desk.apply(&map("p", "a", "rain"));
    assert_eq!(desk.lose(&map("p", "a", "rain")), wakes(&["p"]));
    assert_eq!(desk.counts(0), [1, 0, 0, 0, 1]);
}

#[test]
fn an_object_wakes_every_plan_that_mentions_it_and_no_other() {
    let mut desk = Desk::with(PLAN);
    desk.subscribe("q", PLAN);
    desk.subscribe("r", CHOICE);
    let mut woken = desk.see(&widget("w", "True"));
    woken.sort();
    assert_eq!(woken, wakes(&["p", "q"]));
    assert_eq!(desk.see(&widget("stranger", "True")), wakes(&[]));
    desk.index.unsubscribe(&"q".into());
    assert_eq!(desk.see(&widget("w", "False")), wakes(&["p"]), "a plan that is gone is not woken");
}

#[test]
fn words_that_only_count_up_wake_nobody() {
    let mut desk = Desk::with(PLAN);
    let mut busy = widget("w", "False");
    busy["status"]["conditions"][0]["message"] = json!("1 of 9");
    desk.see(&busy);
    busy["status"]["conditions"][0]["message"] = json!("2 of 9");
    assert_eq!(desk.see(&busy), wakes(&[]));
    assert_eq!(desk.look().waves[1].not_ready[0].message, "Widget shop/w reports Ready=False: 2 of 9.");
}

#[test]
fn a_new_spec_keeps_what_is_known_and_asks_again_only_for_what_was_reported_to_nobody() {
    let mut desk = Desk::with(PLAN);
    desk.see(&widget("w", "True"));
    desk.sync("p");
    desk.apply(&map("p", "a", "rain"));
    let more = format!(
        "{PLAN}\n    - name: late\n      members: [{{ ref: {{ apiVersion: example.io/v1, kind: Widget, namespace: shop, name: other }} }}]"
    );
    let again = desk.subscribe("p", &more);
    assert_eq!(again.iter().map(|scope| scope.kind.as_str()).collect::<Vec<_>>(), ["Widget"]);
    assert_eq!([desk.counts(0), desk.counts(1)], [[1, 0, 1, 0, 0]; 2]);
    assert_eq!(desk.counts(2), [1, 1, 0, 0, 0]);
}

#[test]
fn a_watch_that_was_closed_no_longer_vouches_for_anything() {
    let mut desk = Desk::with(PLAN);
    desk.sync("p");
    let scope = desk.index.plans["p"].subscription.scopes.first().unwrap().clone();
    desk.index.closed(&scope);
    assert!(!desk.look().complete);
    desk.index.synced(&scope);
    assert!(desk.look().complete);
}

#[test]
fn what_went_while_a_watch_was_reopened_is_missed_when_everything_is_reported_again() {
    let mut desk = Desk::with(&format!("{PLAN}{CHOICE}"));
    let there = [map("p", "a", "rain"), map("p", "old", "rain"), widget("w", "True"), of_team("one", "a", "Done")];
    for object in &there {
        desk.see(object);
    }
    desk.sync("p");
    assert_eq!([desk.counts(0), desk.counts(1), desk.counts(2)], [[1, 0, 1, 0, 0]; 3]);
    for scope in desk.index.plans["p"].subscription.scopes.clone() {
        desk.index.opened(&scope, false);
    }
    desk.see(&widget("w", "True"));
    assert_eq!([desk.counts(0), desk.counts(1), desk.counts(2)], [[1, 0, 1, 0, 0]; 3], "nothing is said too early");
    desk.sync("p");
    assert_eq!(desk.counts(0), [1, 0, 0, 0, 1], "it is to be applied again");
    assert_eq!(desk.counts(1), [1, 0, 1, 0, 0], "it was told of again");
    assert_eq!(desk.reason(2), "NotFound");
    assert_eq!((desk.look().orphan_count, desk.look().owned.len()), (0, 0));
}

#[test]
fn what_was_applied_for_a_plan_is_found_again_whichever_is_reported_first() {
    let mut desk = Desk::new();
    desk.see(&map("p", "a", "rain"));
    desk.see(&map("p", "old", "rain"));
    desk.subscribe("p", PLAN);
    let look = desk.look();
    assert_eq!((look.owned.len(), look.orphan_count), (2, 1));
    assert_eq!(look.orphans[0].target.to_string(), "ConfigMap shop/old");
    assert_eq!(total(&look), 2);
}

#[test]
fn what_strayed_and_went_before_its_plan_came_is_no_orphan() {
    let mut desk = Desk::new();
    desk.see(&map("p", "old", "rain"));
    desk.lose(&map("p", "old", "rain"));
    desk.subscribe("p", PLAN);
    assert_eq!(desk.look().orphan_count, 0);
}

#[test]
fn what_was_applied_is_counted_by_the_wave_that_applied_it_last() {
    let mut desk = Desk::with(PLAN);
    let kind = kind_of(&map("p", "a", "rain"));
    let counts =
        |desk: &Desk| desk.look().counts.get(&kind).cloned().unwrap_or_default().into_iter().collect::<Vec<_>>();
    let of = |wave: &str| {
        let mut map = map("p", "a", "rain");
        map["metadata"]["labels"][WAVE_LABEL] = json!(wave);
        map
    };
    desk.see(&of("maps"));
    desk.see(&of("maps"));
    assert_eq!(counts(&desk), [("maps".to_owned(), 1)]);
    desk.see(&of("other"));
    assert_eq!(counts(&desk), [("other".to_owned(), 1)]);
    desk.lose(&of("other"));
    assert_eq!(counts(&desk), []);
}

#[test]
fn a_plan_that_was_recreated_inherits_nothing_from_the_one_before() {
    let mut desk = Desk::with(PLAN);
    desk.sync("p");
    for object in [map("p", "a", "rain"), map("p", "old", "rain"), widget("w", "True")] {
        desk.see(&object);
    }
    // No watch reported that the plan was gone in between.
    let mut subscription = desk.subscription("p", PLAN);
    subscription.uid = "uid-of-the-next".to_owned();
    let again = desk.index.subscribe(&"p".into(), Arc::new(subscription), &BTreeSet::new(), desk.now);
    let look = desk.look();
    assert_eq!((look.owned.len(), look.orphan_count, total(&look)), (0, 0, 0));
    assert_eq!(again.iter().map(|scope| scope.kind.as_str()).collect::<Vec<_>>(), ["Widget"], "it is told of anew");
    desk.see(&map("p", "old", "sun"));
    assert_eq!(desk.look().orphan_count, 0, "it bears the mark of the plan that is gone");
}

#[test]
fn an_orphan_is_one_until_it_is_gone() {
    let mut desk = Desk::with(PLAN);
    let mut old = map("p", "old", "rain");
    assert_eq!(desk.see(&old), wakes(&["p"]));
    assert_eq!(desk.see(&old), wakes(&[]));
    old["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
    assert_eq!(desk.see(&old), wakes(&["p"]));
    assert!(desk.look().orphans[0].deleting);
    assert_eq!(desk.lose(&old), wakes(&["p"]));
    assert_eq!(desk.look().orphan_count, 0);
}

#[test]
fn a_copy_that_a_person_made_is_not_ours() {
    let mut desk = Desk::with(PLAN);
    let mut copy = map("p", "copy", "rain");
    copy["metadata"]["managedFields"][0]["manager"] = json!("kubectl");
    desk.see(&copy);
    assert_eq!(desk.look().orphan_count, 0);
}

#[test]
fn an_object_whose_marks_were_taken_off_is_no_longer_counted() {
    let mut desk = Desk::with(PLAN);
    desk.apply(&map("p", "a", "rain"));
    let mut bare = map("p", "a", "rain");
    bare["metadata"]["labels"] = json!({});
    assert_eq!(desk.see(&bare), wakes(&["p"]));
    assert_eq!((desk.look().owned.len(), total(&desk.look())), (0, 0));
}

#[test]
fn a_choice_is_as_ready_as_the_least_ready_object_in_it() {
    let mut desk = Desk::with(CHOICE);
    desk.sync("p");
    assert_eq!(desk.reason(0), "NotFound", "of nothing it cannot be said that it is ready");
    desk.see(&of_team("one", "a", "Done"));
    desk.see(&of_team("stranger", "b", "Broken"));
    assert_eq!(desk.counts(0), [1, 0, 1, 0, 0]);
    assert_eq!(desk.see(&of_team("two", "a", "Busy")), wakes(&["p"]));
    assert_eq!(desk.reason(0), "CheckNotPassed");
    desk.see(&of_team("three", "a", "Broken"));
    assert_eq!(desk.counts(0), [1, 0, 0, 1, 0]);
    assert_eq!(desk.see(&of_team("three", "b", "Broken")), wakes(&["p"]), "with its label it leaves the choice");
    assert_eq!(desk.lose(&of_team("two", "a", "Busy")), wakes(&["p"]));
    assert_eq!(desk.counts(0), [1, 0, 1, 0, 0]);
}

#[test]
fn nothing_is_said_of_a_choice_before_everything_in_it_is_reported() {
    let mut desk = Desk::with(CHOICE);
    assert_eq!(desk.see(&of_team("stranger", "b", "Done")), wakes(&[]));
    assert_eq!(desk.see(&of_team("one", "a", "Done")), wakes(&[]));
    assert_eq!(desk.counts(0), [1, 1, 0, 0, 0], "there may be others, and they may be busy");
    desk.see(&of_team("two", "a", "Busy"));
    desk.sync("p");
    assert_eq!((desk.counts(0), desk.reason(0).as_str()), ([1, 0, 0, 0, 0], "CheckNotPassed"));
}

#[test]
fn a_choice_that_its_last_object_left_is_missing() {
    let mut desk = Desk::with(CHOICE);
    desk.sync("p");
    desk.see(&of_team("one", "a", "Done"));
    assert_eq!(desk.lose(&of_team("one", "a", "Done")), wakes(&["p"]));
    assert_eq!(desk.reason(0), "NotFound");
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
    let mut desk = Desk::with(APPLIED_WIDGET);
    desk.sync("p");
    desk.apply(&applied_widget());
    assert_eq!((desk.counts(0), desk.reason(0).as_str()), ([1, 0, 0, 0, 0], "StatusNotRenewed"));
    let at = desk.look().waves[0].recheck_at.unwrap();
    assert_eq!(at.duration_since(desk.now), SignedDuration::try_from(opcore::readiness::SETTLE).unwrap());
    desk.index.recheck(&"p".into(), desk.now);
    assert_eq!(desk.reason(0), "StatusNotRenewed", "not before its time");
    desk.pass(10);
    desk.index.recheck(&"p".into(), desk.now);
    assert_eq!(desk.counts(0), [1, 0, 1, 0, 0]);
    assert_eq!(desk.look().waves[0].recheck_at, None);
}

#[test]
fn a_status_that_its_controller_renewed_is_believed_at_once() {
    let mut desk = Desk::with(APPLIED_WIDGET);
    desk.sync("p");
    desk.apply(&applied_widget());
    let mut renewed = applied_widget();
    renewed["metadata"]["resourceVersion"] = json!("2");
    renewed["status"]["conditions"][0]["message"] = json!("seen");
    assert_eq!(desk.see(&renewed), wakes(&["p"]));
    assert_eq!((desk.counts(0), desk.look().waves[0].recheck_at), ([1, 0, 1, 0, 0], None));
}

#[test]
fn after_a_restart_the_statuses_of_a_wave_that_may_have_written_are_not_believed_at_once() {
    let mut desk = Desk::new();
    desk.written.insert("maps".to_owned());
    desk.subscribe("p", APPLIED_WIDGET);
    desk.see(&applied_widget());
    assert_eq!(desk.reason(0), "StatusNotRenewed");
    let mut other = Desk::with(APPLIED_WIDGET);
    other.see(&applied_widget());
    assert_eq!(other.counts(0), [1, 0, 1, 0, 0], "those of a wave that was through are");
}

#[test]
fn a_kind_that_the_cluster_lacks_is_picked_up_when_it_comes() {
    let mut desk = Desk::new();
    let widget_kind = ("example.io/v1".to_owned(), "Widget".to_owned());
    let widgets = desk.served.remove(&widget_kind).unwrap();
    desk.subscribe("p", PLAN);
    desk.subscribe(
        "q",
        "[{ name: w, members: [{ ref: { apiVersion: v1, kind: ConfigMap, namespace: shop, name: a } }] }]",
    );
    assert_eq!(desk.reason(1), "KindNotServed");
    assert_eq!(desk.index.plans_without_a_kind(), wakes(&["p"]));
    desk.served.insert(widget_kind, widgets);
    desk.subscribe("p", PLAN);
    assert_eq!((desk.reason(1).as_str(), desk.index.plans_without_a_kind()), ("NotYetRead", wakes(&[])));
}

#[test]
fn a_source_wakes_the_plans_whose_manifests_are_in_it() {
    let mut desk = Desk::new();
    let source = map("nobody", "texts", "rain");
    let id = id_of(&kind_of(&source), &source);
    let mut subscription = desk.subscription("p", PLAN);
    subscription.sources.insert(id.clone());
    desk.index.subscribe(&"p".into(), Arc::new(subscription), &BTreeSet::new(), desk.now);
    assert!(desk.index.is_source(&id));
    assert_eq!(desk.see(&source), wakes(&["p"]));
    assert_eq!(desk.lose(&source), wakes(&["p"]));
    desk.index.unsubscribe(&"p".into());
    assert!(!desk.index.is_source(&id));
}

#[test]
fn what_flux_was_asked_and_who_suspended_it_is_read_from_the_object() {
    let reference =
        "ref: { apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, namespace: shop, name: k }";
    let mut desk = Desk::with(&format!(
        "[{{ name: a, members: [{{ {reference} }}] }}, {{ name: b, members: [{{ {reference}, mode: Gate }}] }}]"
    ));
    let mut object = widget("k", "True");
    (object["apiVersion"], object["kind"]) = (json!("kustomize.toolkit.fluxcd.io/v1"), json!("Kustomization"));
    object["metadata"]["annotations"] = json!({ FLUX_REQUEST: "now" });
    desk.see(&object);
    let look = desk.look();
    assert_eq!(look.waves[0].nudges[0].requested.as_deref(), Some("now"));
    assert!(look.waves[0].unanswered == 1 && look.waves[0].ready == 0);
    object["status"]["lastHandledReconcileAt"] = json!("now");
    desk.see(&object);
    assert!(desk.look().waves[0].unanswered == 0 && desk.look().waves[0].ready == 1);
    assert!(!look.waves[1].gates[0].held);
    for (manager, held) in [("kubectl", false), (OPERATOR, true)] {
        let fields = json!({ "f:spec": { "f:suspend": {} } });
        object["metadata"]["managedFields"] = json!([{ "manager": manager, "operation": "Apply", "fieldsV1": fields }]);
        desk.see(&object);
        assert_eq!(desk.look().waves[1].gates[0].held, held, "suspended by {manager}");
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
    let mut desk = Desk::with(&format!("[{{ name: flux, members: [{}] }}]", members.join(", ")));
    let kustomization = |number: usize, asked: &str| {
        let mut object = widget(&format!("k{number:03}"), "True");
        (object["apiVersion"], object["kind"]) = (json!("kustomize.toolkit.fluxcd.io/v1"), json!("Kustomization"));
        object["metadata"]["annotations"] = json!({ FLUX_REQUEST: asked });
        object
    };
    for number in 0..150 {
        desk.see(&kustomization(number, "before"));
    }
    let now = desk.now.to_string();
    // One is asked and refuses; one is asked, and one is gone.
    let object = object_id("kustomize.toolkit.fluxcd.io", "Kustomization", "k000");
    let reason = RefusalReason::Forbidden;
    desk.index.refused(&"p".into(), &Refusal { object, reason, message: "It is forbidden.".to_owned() });
    desk.see(&kustomization(149, &now));
    desk.lose(&kustomization(1, "before"));
    let nudges = desk.look().waves.remove(0).nudges;
    let told = |number: usize| {
        let nudge = &nudges[number];
        (nudge.target.name.as_str(), nudge.requested.as_deref().unwrap_or_default(), nudge.refused_at.is_some())
    };
    assert_eq!((told(0), told(1)), (("k000", "before", true), ("k002", "before", false)));
    assert_eq!((nudges.len(), told(101)), (102, ("k149", now.as_str(), false)));
    // All are asked: one group is left.
    for number in 0..150 {
        desk.see(&kustomization(number, &now));
    }
    let nudges = desk.look().waves.remove(0).nudges;
    assert!(nudges.len() == 100 && nudges.iter().all(|nudge| nudge.requested.as_deref() == Some(&now)));
    let asking = Asking { asked_since: &[Some(desk.now)], ..desk.asking() };
    let known = desk.index.look(&"p".into(), &asking).waves.remove(0).nudges;
    assert_eq!(known.len(), 1, "one stands for all");
}

#[test]
fn a_gate_that_others_keep_closed_is_not_ready_and_says_who_they_are() {
    let mut desk = Desk::with(
        "[{ name: a, members: [{ ref: { apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, namespace: shop, name: k }, mode: Gate }] }]",
    );
    let mut object = widget("k", "True");
    (object["apiVersion"], object["kind"]) = (json!("kustomize.toolkit.fluxcd.io/v1"), json!("Kustomization"));
    object["spec"] = json!({ "suspend": true });
    let entry = |manager: &str| json!({ "manager": manager, "operation": "Apply", "fieldsV1": { "f:spec": { "f:suspend": {} } } });
    object["metadata"]["managedFields"] = json!([entry("kustomize-controller")]);
    desk.see(&object);
    assert_eq!(desk.counts(0), [1, 0, 0, 0, 0], "although its status says that it is ready");
    let told = &desk.look().waves[0].not_ready[0];
    assert_eq!(told.reason, "SuspendedByAnother");
    let words = "Kustomization shop/k is suspended, but not by this plan: kustomize-controller manages spec.suspend.";
    assert!(told.message.starts_with(words), "{}", told.message);
    object["spec"] = json!({ "suspend": false });
    assert_eq!(desk.see(&object), wakes(&["p"]));
    assert_eq!(desk.counts(0), [1, 0, 1, 0, 0]);
}

#[test]
fn what_may_not_go_is_distinguished_from_what_may_and_hides_nothing_of_it() {
    use crate::api::v1alpha1::ProtectedKind::PersistentVolumeClaim;
    let mut desk = Desk::new();
    desk.serve("v1", "PersistentVolumeClaim", true);
    let claim =
        PLAN.replace("kind: ConfigMap, metadata: { name: a }", "kind: PersistentVolumeClaim, metadata: { name: c }");
    desk.subscribe(
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
        desk.see(&object);
    }
    let told = |confirmed: &[_]| {
        let look = desk.index.look(&"p".into(), &Asking { everything: false, most: 2, confirmed, ..desk.asking() });
        let names = |seen: &[OwnedSeen]| seen.iter().map(|seen| seen.target.name.clone()).collect::<Vec<_>>().join(" ");
        (names(&look.orphans), look.orphan_count, names(&look.kept), look.kept_count)
    };
    assert_eq!(told(&[]), ("old z".to_owned(), 2, "x y".to_owned(), 2));
    assert_eq!(told(&[PersistentVolumeClaim]), ("old x".to_owned(), 4, String::new(), 0));
}

/// A wave that applies a Job, one that waits for it, and one that checks it with CEL.
const JOBS: &str = "
    - name: maps
      members: [{ manifests: { namespace: shop, inline: '{ apiVersion: batch/v1, kind: Job, metadata: { name: j }, data: { text: rain } }' } }]
    - name: theirs
      members: [{ ref: { apiVersion: batch/v1, kind: Job, namespace: shop, name: j } }]
    - name: asked
      healthChecks: [{ target: { apiVersion: batch/v1, kind: Job, namespace: shop, name: j }, ready: status.succeeded == 1 }]";
