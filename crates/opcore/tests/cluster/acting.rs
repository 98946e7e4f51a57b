//! What `act` writes, and what it does not change.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use opcore::act::{self, Outcome, ReconciledObject, RefusalReason};
use opcore::ownership::{Claimant, Owner};
use opcore::writes::Target;
use opcore::{Error, Write, Writes};
use serde_json::json;

use crate::stage::{Stage, gone, meddled, writes};
use opcore_testing::proxy::{Fate, Proxy};
use opcore_testing::running::without_contract;

fn claimant() -> Claimant {
    let owner = Owner { uid: "11111111-2222-3333-4444-555555555555".to_owned(), words: "Notebook/shop/a".to_owned() };
    Claimant { operator: "notebook-operator".to_owned(), owner: Some(owner) }
}

/// The result of the writes.
#[derive(Debug)]
struct Acted {
    outcomes: Vec<Outcome>,
}

async fn act(client: &Client, plan: impl IntoIterator<Item = Write>) -> Result<Acted, Error> {
    let (claimant, writes) = (claimant(), plan.into_iter().collect::<Writes>());
    let context = without_contract("notebook-operator", client.clone());
    let done = act::run(&context.actor(&claimant)?, None, &writes).await.whole()?;
    Ok(Acted { outcomes: done.attempts.into_iter().map(|attempt| attempt.outcome).collect() })
}

fn map(stage: &Stage, name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(stage.namespace.clone()),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    }
}

fn apply(stage: &Stage, name: &str, data: &[(&str, &str)]) -> Write {
    Write::apply(&map(stage, name, data)).unwrap()
}

/// The reason and the message of the only refusal.
fn refusal(acted: &Acted) -> (RefusalReason, &str) {
    let refused = acted.outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Refused(refusal) => Some(refusal),
        _ => None,
    });
    let refusal = refused.unwrap_or_else(|| panic!("nothing was refused: {acted:?}"));
    (refusal.reason, &refusal.message)
}

#[tokio::test]
async fn what_is_applied_carries_our_marks_and_is_not_written_twice() {
    let stage = Stage::new("act").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let client = Client::try_from(proxy.config()).unwrap();
    let write = apply(&stage, "front", &[("a", "1")]);
    act(&client, [write.clone()]).await.unwrap();
    assert_eq!(proxy.writes().len(), 1);
    let live = stage.maps().get("front").await.unwrap();
    assert_eq!(live.labels()["opcore.dev/operator"], "notebook-operator");
    assert_eq!(live.labels()["opcore.dev/owner-uid"], claimant().owner.unwrap().uid);
    assert_eq!(live.annotations()["opcore.dev/owner"], "Notebook/shop/a");
    proxy.take();
    let done = act(&client, [write]).await.unwrap();
    assert!(matches!(done.outcomes[..], [Outcome::Applied { changed: false, .. }]), "{done:?}");
    assert_eq!(proxy.writes(), []);
}

#[tokio::test]
async fn a_field_that_is_no_longer_wanted_goes_and_what_others_added_stays() {
    let stage = Stage::new("act").await;
    act(&stage.client, [apply(&stage, "front", &[("a", "1"), ("b", "2")])]).await.unwrap();
    let theirs = json!({"data": {"theirs": "3"}});
    stage.maps().patch("front", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    act(&stage.client, [apply(&stage, "front", &[("a", "1")])]).await.unwrap();
    let data = stage.maps().get("front").await.unwrap().data.unwrap();
    assert_eq!(data.into_keys().collect::<Vec<_>>(), ["a", "theirs"]);
}

#[tokio::test]
async fn another_tools_object_is_neither_written_nor_deleted_and_the_refusal_names_the_tool() {
    let stage = Stage::new("act").await;
    let mut theirs = map(&stage, "front", &[("a", "theirs")]);
    theirs.metadata.labels = Some(BTreeMap::from([
        ("kustomize.toolkit.fluxcd.io/name".to_owned(), "apps".to_owned()),
        ("kustomize.toolkit.fluxcd.io/namespace".to_owned(), "flux-system".to_owned()),
    ]));
    let theirs = stage.maps().create(&PostParams::default(), &theirs).await.unwrap();
    let done = act(&stage.client, [apply(&stage, "front", &[("a", "ours")])]).await.unwrap();
    let (reason, message) = refusal(&done);
    assert_eq!(reason, RefusalReason::Foreign);
    assert!(message.contains("Flux Kustomization flux-system/apps"), "{message}");
    let done = act(&stage.client, [Write::delete(&theirs)]).await.unwrap();
    assert_eq!(refusal(&done).0, RefusalReason::Foreign);
    assert_eq!(stage.maps().get("front").await.unwrap().resource_version(), theirs.resource_version());
}

#[tokio::test]
async fn an_unowned_object_is_left_alone_until_a_person_hands_it_over() {
    let stage = Stage::new("act").await;
    stage.maps().create(&PostParams::default(), &map(&stage, "front", &[])).await.unwrap();
    let write = apply(&stage, "front", &[("a", "1")]);
    let done = act(&stage.client, [write.clone()]).await.unwrap();
    let (reason, message) = refusal(&done);
    assert_eq!(reason, RefusalReason::Unowned);
    assert!(message.contains("opcore.dev/adopt=true"), "the remedy is missing: {message}");
    let adopt = json!({"metadata": {"annotations": {"opcore.dev/adopt": "true"}}});
    stage.maps().patch("front", &PatchParams::default(), &Patch::Merge(&adopt)).await.unwrap();
    let done = act(&stage.client, [write]).await.unwrap();
    assert!(!done.outcomes.iter().any(|outcome| matches!(outcome, Outcome::Refused(_))), "{done:?}");
    assert_eq!(stage.maps().get("front").await.unwrap().data.unwrap()["a"], "1");
}

#[tokio::test]
async fn what_a_person_edited_is_reverted_and_what_a_tool_manages_is_not() {
    let stage = Stage::new("act").await;
    let write = apply(&stage, "front", &[("a", "1")]);
    act(&stage.client, [write.clone()]).await.unwrap();
    let edit = |manager: &str| PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let by_hand = json!({"data": {"a": "by hand"}});
    stage.maps().patch("front", &edit("kubectl-edit"), &Patch::Merge(&by_hand)).await.unwrap();
    act(&stage.client, [write.clone()]).await.unwrap();
    assert_eq!(stage.maps().get("front").await.unwrap().data.unwrap()["a"], "1");

    let by_tool = json!({"data": {"a": "by tool"}});
    stage.maps().patch("front", &edit("autoscaler"), &Patch::Merge(&by_tool)).await.unwrap();
    let done = act(&stage.client, [write]).await.unwrap();
    let (reason, message) = refusal(&done);
    assert_eq!(reason, RefusalReason::FieldConflict);
    assert!(message.contains(".data.a") && message.contains("autoscaler"), "{message}");
    assert_eq!(stage.maps().get("front").await.unwrap().data.unwrap()["a"], "by tool");
}

#[tokio::test]
async fn a_delete_hits_only_the_object_that_was_meant() {
    let stage = Stage::new("act").await;
    act(&stage.client, [apply(&stage, "front", &[])]).await.unwrap();
    let old = stage.maps().get("front").await.unwrap();
    stage.maps().delete("front", &DeleteParams::default()).await.unwrap();
    gone(&stage.maps(), "front", &old.uid().unwrap()).await;
    act(&stage.client, [apply(&stage, "front", &[])]).await.unwrap();
    let successor = stage.maps().get("front").await.unwrap();

    let done = act(&stage.client, [Write::delete(&old)]).await.unwrap();
    assert_eq!(done.outcomes, [Outcome::Gone], "the one that was meant is gone already");
    assert_eq!(stage.maps().get("front").await.unwrap().uid(), successor.uid());
}

#[tokio::test]
async fn an_object_that_changed_since_it_was_read_is_not_deleted() {
    let stage = Stage::new("act").await;
    act(&stage.client, [apply(&stage, "front", &[("a", "1")])]).await.unwrap();
    let looked_at = stage.maps().get("front").await.unwrap();
    act(&stage.client, [apply(&stage, "front", &[("a", "2")])]).await.unwrap();
    let error = act(&stage.client, [Write::delete(&looked_at)]).await.unwrap_err();
    assert!(matches!(error, Error::Stale(_)), "{error}");
    assert!(stage.maps().get_opt("front").await.unwrap().is_some());
}

#[tokio::test]
async fn deleting_what_is_gone_or_going_is_a_success_and_no_write() {
    let stage = Stage::new("act").await;
    let mut held = map(&stage, "front", &[]);
    held.metadata.finalizers = Some(vec!["example.opcore.dev/held".to_owned()]);
    act(&stage.client, [Write::apply(&held).unwrap()]).await.unwrap();
    let live = stage.maps().get("front").await.unwrap();
    let delete = Write::delete(&live);
    assert_eq!(act(&stage.client, [delete]).await.unwrap().outcomes, [Outcome::Deleting]);
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let client = Client::try_from(proxy.config()).unwrap();
    let going = stage.maps().get("front").await.unwrap();
    assert_eq!(act(&client, [Write::delete(&going)]).await.unwrap().outcomes, [Outcome::Deleting]);
    // An object that is being deleted cannot be applied either; it must be gone first.
    let done = act(&client, [apply(&stage, "front", &[])]).await.unwrap();
    assert_eq!(refusal(&done).0, RefusalReason::Terminating);
    assert_eq!(proxy.writes(), []);
    let release = json!({"metadata": {"finalizers": null}});
    stage.maps().patch("front", &PatchParams::default(), &Patch::Merge(&release)).await.unwrap();
    gone(&stage.maps(), "front", &live.uid().unwrap()).await;
    assert_eq!(act(&client, [Write::delete(&live)]).await.unwrap().outcomes, [Outcome::Gone]);
}

#[tokio::test]
async fn a_finalizer_is_changed_only_on_the_very_object_and_version_that_was_read() {
    let stage = Stage::new("act").await;
    let claimant = claimant();
    let context = without_contract("notebook-operator", stage.client.clone());
    let actor = context.actor(&claimant).unwrap();
    let add: Writes = [Write::AddFinalizer("example.opcore.dev/ours".to_owned())].into_iter().collect();
    let old = stage.maps().create(&PostParams::default(), &map(&stage, "front", &[])).await.unwrap();

    // Another finalizer was added after the object was read: replacing the list would lose it.
    let theirs = json!({"metadata": {"finalizers": ["example.opcore.dev/theirs"]}});
    let now = stage.maps().patch("front", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    let error = act::run(&actor, Some(&mut ReconciledObject::of(&old)), &add).await.whole().unwrap_err();
    assert!(matches!(error, Error::Stale(_)), "{error}");
    act::run(&actor, Some(&mut ReconciledObject::of(&now)), &add).await.whole().unwrap();
    let both = stage.maps().get("front").await.unwrap();
    assert_eq!(both.finalizers(), ["example.opcore.dev/theirs", "example.opcore.dev/ours"]);

    // A successor of the same name, with the same finalizer.
    let release = json!({"metadata": {"finalizers": null}});
    stage.maps().delete("front", &DeleteParams::default()).await.unwrap();
    stage.maps().patch("front", &PatchParams::default(), &Patch::Merge(&release)).await.unwrap();
    gone(&stage.maps(), "front", &both.uid().unwrap()).await;
    let mut successor = map(&stage, "front", &[]);
    successor.metadata.finalizers = Some(vec!["example.opcore.dev/ours".to_owned()]);
    stage.maps().create(&PostParams::default(), &successor).await.unwrap();
    let remove: Writes = [Write::RemoveFinalizer("example.opcore.dev/ours".to_owned())].into_iter().collect();
    let error = act::run(&actor, Some(&mut ReconciledObject::of(&both)), &remove).await.whole().unwrap_err();
    assert!(matches!(error, Error::Stale(_)), "{error}");
    assert_eq!(stage.maps().get("front").await.unwrap().finalizers(), ["example.opcore.dev/ours"]);
}

#[tokio::test]
async fn unknown_fields_kinds_and_namespaces_are_refused_with_what_the_server_says() {
    let stage = Stage::new("act").await;
    let Write::Apply(mut unknown_field) = apply(&stage, "front", &[]) else { unreachable!() };
    unknown_field.object.data["dtaa"] = json!({"a": "1"});
    let done = act(&stage.client, [Write::Apply(unknown_field.clone())]).await.unwrap();
    let (reason, message) = refusal(&done);
    assert_eq!(reason, RefusalReason::Invalid);
    assert!(message.contains("dtaa"), "{message}");

    let mut unknown_kind = unknown_field;
    unknown_kind.resource.kind = "Leaflet".to_owned();
    unknown_kind.resource.plural = "leaflets".to_owned();
    let done = act(&stage.client, [Write::Apply(unknown_kind)]).await.unwrap();
    assert_eq!(refusal(&done).0, RefusalReason::NotServed);

    let mut elsewhere = map(&stage, "front", &[]);
    elsewhere.metadata.namespace = Some("nowhere".to_owned());
    let done = act(&stage.client, [Write::apply(&elsewhere).unwrap()]).await.unwrap();
    let (reason, message) = refusal(&done);
    assert_eq!(reason, RefusalReason::NotServed);
    assert!(message.contains("nowhere"), "{message}");
}

#[tokio::test]
async fn a_name_that_no_object_can_have_is_refused_and_no_request_is_about_something_else() {
    let stage = Stage::new("misnamed").await;
    act(&stage.client, [apply(&stage, "theirs", &[])]).await.unwrap();
    for name in ["ü ü", "a b", "../theirs", "..", "theirs?dryRun=All&", "theirs#", "a%2Fb", "theirs/status"] {
        let acted = act(&stage.client, [apply(&stage, name, &[]), apply(&stage, "beside", &[])]).await.unwrap();
        let (reason, words) = refusal(&acted);
        assert_eq!(reason, RefusalReason::Invalid, "{name}: {words}");
        assert!(words.contains(&format!("metadata.name: {name:?} cannot be the name of an object")), "{words}");
    }
    let mut elsewhere = map(&stage, "theirs", &[]);
    elsewhere.metadata.namespace = Some(format!("{}/configmaps/../../default", stage.namespace));
    let acted = act(&stage.client, [Write::apply(&elsewhere).unwrap()]).await.unwrap();
    assert!(refusal(&acted).1.contains("metadata.namespace: "), "{:?}", refusal(&acted));
    // Roles have names with colons.
    assert!(act(&stage.client, [apply(&stage, "system:a", &[])]).await.is_ok());
}

#[tokio::test]
async fn stages_after_a_refused_write_are_not_begun() {
    let stage = Stage::new("act").await;
    stage.maps().create(&PostParams::default(), &map(&stage, "theirs", &[])).await.unwrap();
    let done = act(&stage.client, [apply(&stage, "theirs", &[]), apply(&stage, "later", &[])]).await.unwrap();
    assert_eq!(done.outcomes.len(), 1);
    assert!(stage.maps().get_opt("later").await.unwrap().is_none());
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_after_the_commit_can_be_repeated() {
    let stage = Stage::new("act").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let client = Client::try_from(proxy.config()).unwrap();
    let lose_answers = || proxy.rule(|passed| if passed.writes() { Fate::LoseAnswer } else { Fate::Pass });
    let write = apply(&stage, "front", &[("a", "1")]);
    lose_answers();
    assert!(act(&client, [write.clone()]).await.is_err());
    let committed = stage.maps().get("front").await.unwrap();
    proxy.rule(|_| Fate::Pass);
    act(&client, [write]).await.unwrap();
    assert_eq!(stage.maps().get("front").await.unwrap().resource_version(), committed.resource_version());
    lose_answers();
    assert!(act(&client, [Write::delete(&committed)]).await.is_err());
    proxy.rule(|_| Fate::Pass);
    assert_eq!(act(&client, [Write::delete(&committed)]).await.unwrap().outcomes, [Outcome::Gone]);
}

#[tokio::test]
async fn a_field_that_a_person_and_a_tool_share_is_the_tools() {
    let stage = Stage::new("act").await;
    let write = apply(&stage, "front", &[("a", "1")]);
    act(&stage.client, [write.clone()]).await.unwrap();
    for manager in ["autoscaler", "kubectl-edit"] {
        let shared = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "theirs"}});
        stage.maps().patch("front", &PatchParams::apply(manager).force(), &Patch::Apply(&shared)).await.unwrap();
    }
    let done = act(&stage.client, [write]).await.unwrap();
    assert_eq!(refusal(&done).0, RefusalReason::FieldConflict);
    assert_eq!(stage.maps().get("front").await.unwrap().data.unwrap()["a"], "theirs");
}

#[tokio::test]
async fn an_object_that_another_tool_creates_at_the_same_moment_is_left_to_it_without_a_trace() {
    let stage = Stage::new("act").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let client = Client::try_from(proxy.config()).unwrap();
    let mut first = true;
    proxy.rule(move |passed| if passed.writes() && std::mem::take(&mut first) { Fate::Hold } else { Fate::Pass });
    let plan = [apply(&stage, "front", &[("a", "ours")])];
    let racing = tokio::spawn(async move { act(&client, plan).await });
    proxy.until_held(1).await;
    let mut theirs = map(&stage, "front", &[("b", "theirs")]);
    theirs.metadata.labels = Some([("kustomize.toolkit.fluxcd.io/name".to_owned(), "apps".to_owned())].into());
    let by_flux = PostParams { field_manager: Some("kustomize-controller".to_owned()), ..PostParams::default() };
    let theirs = stage.maps().create(&by_flux, &theirs).await.unwrap();
    proxy.release(1);
    let done = racing.await.unwrap().unwrap();
    assert_eq!(refusal(&done).0, RefusalReason::Foreign);
    let live = stage.maps().get("front").await.unwrap();
    assert_eq!(live.resource_version(), theirs.resource_version(), "it was never touched");
    assert!(live.labels().keys().all(|label| !label.starts_with("opcore.dev/")), "{:?}", live.labels());
    assert_eq!(live.data.unwrap().into_keys().collect::<Vec<_>>(), ["b"]);
    // So it still belongs to the other manager the next time.
    let done = act(&stage.client, [apply(&stage, "front", &[("a", "ours")])]).await.unwrap();
    assert_eq!(refusal(&done).0, RefusalReason::Foreign);
}

#[tokio::test]
async fn a_key_that_is_no_longer_wanted_goes_from_a_map_that_is_owned_as_a_whole() {
    use k8s_openapi::api::core::v1::Service;
    let stage = Stage::new("act").await;
    let services: Api<Service> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let service = |selector: serde_json::Value| {
        let service = json!({
            "metadata": {"name": "front", "namespace": stage.namespace},
            "spec": {"selector": selector, "ports": [{"name": "web", "port": 80, "protocol": "TCP"}]},
        });
        Write::apply(&serde_json::from_value::<Service>(service).unwrap()).unwrap()
    };
    act(&stage.client, [service(json!({"app": "a", "version": "v1"}))]).await.unwrap();
    act(&stage.client, [service(json!({"app": "a"}))]).await.unwrap();
    let selector = services.get("front").await.unwrap().spec.unwrap().selector.unwrap();
    assert_eq!(selector.into_keys().collect::<Vec<_>>(), ["app"]);
    let done = act(&stage.client, [service(json!({"app": "a"}))]).await.unwrap();
    assert!(matches!(done.outcomes[..], [Outcome::Applied { changed: false, .. }]), "{done:?}");
}

#[tokio::test]
async fn what_the_server_finds_invalid_is_reported_without_the_values_that_it_quotes() {
    use k8s_openapi::api::batch::v1::Job;
    let stage = Stage::new("act").await;
    let job = |secret: &str| {
        let container = json!({"name": "c", "image": "none", "env": [{"name": "TOKEN", "value": secret}]});
        let job = json!({
            "metadata": {"name": "front", "namespace": stage.namespace},
            "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        });
        Write::apply(&serde_json::from_value::<Job>(job).unwrap()).unwrap()
    };
    act(&stage.client, [job("hunter2")]).await.unwrap();
    let plan = [job("hunter3")];
    let done = act(&stage.client, plan.clone()).await.unwrap();
    let (reason, message) = refusal(&done);
    assert_eq!(reason, RefusalReason::Invalid);
    assert!(message.contains("spec.template") && message.contains("immutable"), "{message}");
    let everything_printed = format!("{message} {done:?} {plan:?}");
    assert!(!everything_printed.contains("hunter"), "{everything_printed}");
}

#[tokio::test]
async fn what_changes_hands_between_the_read_and_the_delete_is_judged_again_and_stays() {
    let stage = Stage::new("act").await;
    act(&stage.client, [apply(&stage, "front", &[])]).await.unwrap();
    let Write::Delete(mut delete) = Write::delete(&stage.maps().get("front").await.unwrap()) else { unreachable!() };
    delete.resource_version = None;
    let maps = stage.maps();
    let client = meddled(&stage.client, writes, async move {
        let theirs = json!({"metadata": {"labels": {
            "opcore.dev/operator": null, "opcore.dev/owner-uid": null,
            "kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
        }}});
        maps.patch("front", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    });
    let done = act(&client, [Write::Delete(delete)]).await.unwrap();
    assert_eq!(refusal(&done).0, RefusalReason::Foreign);
    assert!(stage.maps().get_opt("front").await.unwrap().is_some());
}

#[tokio::test]
async fn what_goes_between_the_read_and_the_write_is_a_success() {
    let stage = Stage::new("act").await;
    let claimant = claimant();
    let mut guarded = map(&stage, "front", &[]);
    guarded.metadata.finalizers = Some(vec!["example.opcore.dev/ours".to_owned()]);
    let remove = Write::RemoveFinalizer("example.opcore.dev/ours".to_owned());
    for write in [None, Some(remove)] {
        act(&stage.client, [Write::apply(&guarded).unwrap()]).await.unwrap();
        let live = stage.maps().get("front").await.unwrap();
        let (maps, uid) = (stage.maps(), live.uid().unwrap());
        let client = meddled(&stage.client, writes, async move {
            let release = json!({"metadata": {"finalizers": null}});
            maps.patch("front", &PatchParams::default(), &Patch::Merge(&release)).await.unwrap();
            maps.delete("front", &DeleteParams::default()).await.unwrap();
            gone(&maps, "front", &uid).await;
        });
        let context = without_contract("notebook-operator", client.clone());
        let actor = context.actor(&claimant).unwrap();
        let releases = write.is_some();
        let writes: Writes = [write.unwrap_or_else(|| Write::delete(&live))].into_iter().collect();
        let done = act::run(&actor, Some(&mut ReconciledObject::of(&live)), &writes).await.whole().unwrap();
        let outcomes: Vec<_> = done.attempts.iter().map(|attempt| &attempt.outcome).collect();
        assert_eq!((outcomes, done.gone), (vec![&Outcome::Gone], releases));
    }
}

#[tokio::test]
async fn a_successor_that_came_after_the_read_is_not_applied_to() {
    let stage = Stage::new("act").await;
    act(&stage.client, [apply(&stage, "front", &[("a", "1")])]).await.unwrap();
    let (maps, uid) = (stage.maps(), stage.maps().get("front").await.unwrap().uid().unwrap());
    let theirs = map(&stage, "front", &[("theirs", "1")]);
    let client = meddled(&stage.client, writes, async move {
        maps.delete("front", &DeleteParams::default()).await.unwrap();
        gone(&maps, "front", &uid).await;
        maps.create(&PostParams::default(), &theirs).await.unwrap();
    });
    let tried = act(&client, [apply(&stage, "front", &[("a", "2")])]).await;
    // The new object is checked again: its owner is unknown.
    assert_eq!(refusal(&tried.unwrap()).0, RefusalReason::Unowned);
    let data = stage.maps().get("front").await.unwrap().data.unwrap();
    assert_eq!(data.into_keys().collect::<Vec<_>>(), ["theirs"]);
}

#[tokio::test]
async fn annotations_are_set_and_removed_on_exactly_the_object_that_was_meant_and_only_when_they_differ() {
    let stage = Stage::new("act").await;
    let mut noted = map(&stage, "front", &[]);
    noted.metadata.annotations = Some(BTreeMap::from([("example.opcore.dev/old".to_owned(), "x".to_owned())]));
    let live = stage.maps().create(&PostParams::default(), &noted).await.unwrap();
    let wanted =
        [("example.opcore.dev/new".to_owned(), Some("y".to_owned())), ("example.opcore.dev/old".to_owned(), None)];
    let annotate = |target: Target| Write::Annotate { target, annotations: BTreeMap::from(wanted.clone()) };
    for outcome in [Outcome::Changed, Outcome::Unchanged] {
        assert_eq!(act(&stage.client, [annotate(Target::of(&live))]).await.unwrap().outcomes, [outcome]);
        let now = stage.maps().get("front").await.unwrap();
        assert_eq!(now.annotations().clone().into_keys().collect::<Vec<_>>(), ["example.opcore.dev/new"]);
    }
    let predecessor = Target { uid: "11111111-2222-3333-4444-555555555555".to_owned(), ..Target::of(&live) };
    assert_eq!(act(&stage.client, [annotate(predecessor)]).await.unwrap().outcomes, [Outcome::Gone]);
}
