//! Watches that are opened for whoever needs them, on a real API server.

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

/// What was told of the ConfigMaps of a namespace.
#[derive(Default)]
struct Heard {
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
    /// It panics about the next object of this name.
    poison: Option<String>,
}

impl Heard {
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

impl Listener for Heard {
    fn opened(&self, _: &ScopeId, opening: Opening) {
        self.change(|state| state.openings.push(opening));
    }

    fn changed(&self, _: &ScopeId, change: Change<DynamicObject>) {
        self.change(|state| match change {
            Change::Seen(object) => {
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
async fn whoever_subscribes_hears_of_everything_through_faults_and_panics() {
    let stage = Stage::new("registry").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let (_stop, stopping) = tokio::sync::watch::channel(false);
    let context = context("registry", proxy.config(), &[], Settings::default(), stopping);
    let heard = Arc::new(Heard::default());
    let listener: std::sync::Weak<Heard> = Arc::downgrade(&heard);
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
    heard.until("the missing right is told", |state| state.trouble == Some(TroubleKind::Forbidden)).await;
    assert_eq!(registry.troubles(&scopes)[0].1.kind, TroubleKind::Forbidden);
    proxy.rule(|_| Fate::Pass);
    let seen = heard.until("everything is told", |state| state.synced >= 1).await;
    assert_eq!((seen.there, seen.trouble), (names(&["a"]), None));

    // Whoever is told panics once: the others are told, and soon this one, too.
    heard.change(|state| state.poison = Some("b".to_owned()));
    create("b", "shop").await;
    create("c", "shop").await;
    let seen = heard.until("everything is told anew", |state| state.there.contains("b") && state.synced >= 2).await;
    assert_eq!(seen.openings, [Opening::First, Opening::Recovery]);

    // Something goes while nobody looks.
    proxy.rule(|passed| if passed.path.ends_with("/configmaps") { Fate::Answer(503) } else { Fate::Pass });
    registry.relist(&scopes);
    heard.until("the trouble is told", |state| state.trouble == Some(TroubleKind::Unavailable)).await;
    delete("a").await;
    proxy.rule(|_| Fate::Pass);
    let seen = heard.until("everything is told anew", |state| state.synced >= 3).await;
    assert_eq!(seen.there, names(&["b", "c"]));

    // A resync comes in time, and what happens is told all the same.
    registry.subscribe(&subscriber, &Subscription { scopes, resync: Some(Duration::from_secs(1)) });
    heard.until("two resyncs", |state| state.synced >= 5).await;
    delete("b").await;
    heard.until("the end of another", |state| state.there == names(&["c"])).await;
    registry.unsubscribe(&subscriber);
    assert!(heard.until("it is closed", |state| state.closed).await.closed);
    assert_eq!(registry.scopes(), BTreeSet::new());
}

#[tokio::test]
async fn a_kind_is_known_as_it_comes_changes_and_goes() {
    let stage = Stage::new("kinds").await;
    let (_stop, stopping) = tokio::sync::watch::channel(false);
    let context = context("kinds", stage.config.clone(), &[], Settings::default(), stopping);
    let discovery = Discovery::new(&context);
    let (told, heard) = (Arc::new(Notify::new()), Arc::new(Mutex::new(false)));
    let (notify, panic_once) = (told.clone(), heard.clone());
    discovery.follow(move |_: News| {
        // What follows the definitions recovers.
        assert!(std::mem::replace(&mut *opcore::lock(&panic_once), true), "made up");
        notify.notify_one();
    });
    let group = format!("{}.example.io", stage.namespace);
    let written = (format!("{group}/v1"), "Gadget".to_owned());
    let until = async |what: &str, condition: &dyn Fn(&Served) -> bool| {
        let answered = async {
            loop {
                let told = told.notified();
                let served = discovery.served(&[written.clone()].into()).await.remove(&written).unwrap();
                if condition(&served) {
                    return;
                }
                told.await;
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
