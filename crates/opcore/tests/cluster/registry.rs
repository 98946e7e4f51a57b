//! Watches that are opened on demand, on a real API server.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use opcore::queue::Key;
use opcore::watch::discovery::{News, Served};
use opcore::watch::registry::{Listener, Opening, Subscription, Trouble, TroubleKind};
use opcore::watch::{Change, Discovery, Registry, ScopeId};
use opcore_testing::proxy::{Fate, Proxy};
use serde_json::json;
use tokio::sync::Notify;

use crate::stage::{PATIENCE, Settings, Stage, context};

/// Records what is reported about the ConfigMaps of a namespace.
#[derive(Default)]
struct Recorder {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Clone, Debug, Default)]
struct State {
    there: BTreeSet<String>,
    synced: usize,
    openings: Vec<Opening>,
    trouble: Option<TroubleKind>,
    closed: bool,
    /// The listener panics on the next object with this name.
    poison: Option<String>,
}

impl Recorder {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut opcore::lock(&self.state));
        self.changed.notify_one();
    }

    async fn until(&self, what: &str, condition: impl Fn(&State) -> bool) -> State {
        let fulfilled = async {
            loop {
                let changed = self.changed.notified();
                let state = opcore::lock(&self.state).clone();
                if condition(&state) {
                    return state;
                }
                changed.await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, fulfilled).await;
        waited.unwrap_or_else(|_| panic!("not so: {what}: {:?}", opcore::lock(&self.state)))
    }
}

impl Listener for Recorder {
    fn opened(&self, _: &ScopeId, opening: Opening) {
        self.change(|state| state.openings.push(opening));
    }

    fn changed(&self, _: &ScopeId, change: Change<DynamicObject>) {
        self.change(|state| match change {
            Change::Observed(object) => {
                let name = object.metadata.name.unwrap();
                let poison = state.poison.take_if(|poison| *poison == name);
                assert_eq!(poison, None, "made up");
                state.there.insert(name);
            }
            Change::Gone(key) => drop(state.there.remove(&key.name)),
            Change::Synced => state.synced += 1,
        });
    }

    fn troubled(&self, _: &ScopeId, trouble: Option<&Trouble>) {
        self.change(|state| state.trouble = trouble.map(|trouble| trouble.kind));
    }

    fn closed(&self, _: &ScopeId) {
        self.change(|state| state.closed = true);
    }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn subscribers_are_notified_of_everything_through_faults_and_panics() {
    let stage = Stage::new("registry").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let (_stop, stopping) = tokio::sync::watch::channel(false);
    let context = context("registry", proxy.config(), &[], Settings::default(), stopping);
    let recorder = Arc::new(Recorder::default());
    let listener: std::sync::Weak<Recorder> = Arc::downgrade(&recorder);
    let registry = Registry::new(&context, listener);
    let ours = ScopeId::of::<ConfigMap>(Some(stage.namespace.clone())).labelled("team=shop");
    let subscriber = Key { namespace: None, name: "one".to_owned() };
    let create = async |name: &str, team: &str| {
        let map = json!({ "metadata": { "name": name, "labels": { "team": team } } });
        stage.maps().create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    };
    let delete = async |name: &str| drop(stage.maps().delete(name, &DeleteParams::default()).await.unwrap());
    create("a", "shop").await;
    create("theirs", "bank").await;

    // The right is missing for a while.
    proxy.rule(|passed| if passed.path.ends_with("/configmaps") { Fate::Answer(403) } else { Fate::Pass });
    let scopes = BTreeSet::from([ours.clone()]);
    registry.subscribe(&subscriber, &Subscription { scopes: scopes.clone(), resync: None });
    recorder.until("the missing right is reported", |state| state.trouble == Some(TroubleKind::Forbidden)).await;
    assert_eq!(registry.troubles(&scopes)[0].1.kind, TroubleKind::Forbidden);
    proxy.rule(|_| Fate::Pass);
    let observed = recorder.until("everything is reported", |state| state.synced >= 1).await;
    assert_eq!((observed.there, observed.trouble), (names(&["a"]), None));

    // The listener panics once: the other objects are reported, and soon this one, too.
    recorder.change(|state| state.poison = Some("b".to_owned()));
    create("b", "shop").await;
    create("c", "shop").await;
    let observed =
        recorder.until("everything is reported again", |state| state.there.contains("b") && state.synced >= 2).await;
    assert_eq!(observed.openings, [Opening::First, Opening::Recovery]);

    // An object is deleted while no watch is open.
    proxy.rule(|passed| if passed.path.ends_with("/configmaps") { Fate::Answer(503) } else { Fate::Pass });
    registry.relist(&scopes);
    recorder.until("the failure is reported", |state| state.trouble == Some(TroubleKind::Unavailable)).await;
    delete("a").await;
    proxy.rule(|_| Fate::Pass);
    let observed = recorder.until("everything is reported again", |state| state.synced >= 3).await;
    assert_eq!(observed.there, names(&["b", "c"]));

    // A resync happens in time, and changes are still reported.
    registry.subscribe(&subscriber, &Subscription { scopes, resync: Some(Duration::from_secs(1)) });
    recorder.until("two resyncs", |state| state.synced >= 5).await;
    delete("b").await;
    recorder.until("the end of another", |state| state.there == names(&["c"])).await;
    registry.unsubscribe(&subscriber);
    assert!(recorder.until("it is closed", |state| state.closed).await.closed);
    assert_eq!(registry.scopes(), BTreeSet::new());
}

#[tokio::test]
async fn a_kind_is_known_as_it_comes_changes_and_goes() {
    let stage = Stage::new("kinds").await;
    let (_stop, stopping) = tokio::sync::watch::channel(false);
    let context = context("kinds", stage.config.clone(), &[], Settings::default(), stopping);
    let discovery = Discovery::new(&context);
    let (reported, recorder) = (Arc::new(Notify::new()), Arc::new(Mutex::new(false)));
    let (notify, panic_once) = (reported.clone(), recorder.clone());
    discovery.follow(move |_: News| {
        // The watch on CustomResourceDefinitions recovers.
        assert!(std::mem::replace(&mut *opcore::lock(&panic_once), true), "made up");
        notify.notify_one();
    });
    let group = format!("{}.example.io", stage.namespace);
    let written = (format!("{group}/v1"), "Gadget".to_owned());
    let until = async |what: &str, condition: &dyn Fn(&Served) -> bool| {
        let answered = async {
            loop {
                let reported = reported.notified();
                let served = discovery.served(&[written.clone()].into()).await.remove(&written).unwrap();
                if condition(&served) {
                    return;
                }
                reported.await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, answered).await.is_ok(), "not so: {what}");
    };
    until("it is not there yet", &|served| *served == Served::No).await;
    let definition = json!({
        "metadata": { "name": format!("gadgets.{group}") },
        "spec": {
            "group": group, "scope": "Cluster", "names": { "kind": "Gadget", "plural": "gadgets", "singular": "gadget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    });
    opcore_testing::wait::install(&stage.client, &serde_json::from_value(definition).unwrap()).await;
    until("it is there", &|served| matches!(served, Served::Yes { namespaced: false, .. })).await;
    let definitions: kube::Api<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    > = kube::Api::all(stage.client.clone());
    definitions.delete(&format!("gadgets.{group}"), &DeleteParams::default()).await.unwrap();
    until("it is gone", &|served| *served == Served::No).await;
}
