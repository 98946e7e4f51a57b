//! Objects that a plan is recorded to hold are known, whatever its waves say.

use super::*;
use crate::api::v1alpha1::HeldObject;

/// The Kustomization `k`, suspended by this manager.
fn suspended_by(manager: &str) -> Value {
    let mut object = widget("k", "True");
    (object["apiVersion"], object["kind"]) = (json!("kustomize.toolkit.fluxcd.io/v1"), json!("Kustomization"));
    object["spec"] = json!({ "suspend": true });
    let fields = json!({ "f:spec": { "f:suspend": {} } });
    object["metadata"]["managedFields"] = json!([{ "manager": manager, "operation": "Apply", "fieldsV1": fields }]);
    object
}

const GATED: &str = "{ ref: { apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, namespace: shop, name: k }, mode: Gate }";

/// A plan that is recorded to hold the Kustomization `k`.
fn subscribe_holder(fixture: &mut Fixture, name: &str, waves: &str) {
    let mut subscription = fixture.subscription(name, waves);
    let held = HeldObject {
        api_version: "kustomize.toolkit.fluxcd.io/v1".to_owned(),
        kind: "Kustomization".to_owned(),
        namespace: Some("shop".to_owned()),
        name: "k".to_owned(),
    };
    let forgotten = subscription.forgotten(&[held]);
    subscription.hold(&forgotten, &fixture.served);
    fixture.index.subscribe(&name.into(), Arc::new(subscription), &BTreeSet::new(), fixture.now);
}

#[test]
fn what_is_held_is_known_although_no_wave_gates_it_any_more() {
    let broken = format!("[{{ name: bad, members: [{GATED}, {{ manifests: {{ inline: 'a: [1' }} }}] }}]");
    for waves in
        [PLAN.to_owned(), broken, format!("[{{ name: other, members: [{}] }}]", GATED.replace("Gate", "Nudge"))]
    {
        let mut fixture = Fixture::new();
        subscribe_holder(&mut fixture, "p", &waves);
        assert!(!fixture.snapshot().complete, "it was not read yet");
        fixture.sync("p");
        assert_eq!(fixture.report(&suspended_by(OPERATOR)), wakes(&["p"]), "{waves}");
        let held = fixture.snapshot().held;
        assert!(held.len() == 1 && held[0].held && held[0].target.uid == "uid-of-k", "{held:?}");
        assert_eq!(fixture.report(&suspended_by("kubectl")), wakes(&["p"]));
        assert!(!fixture.snapshot().held[0].held, "what others suspended is not ours to give back");
    }
}

#[test]
fn what_a_wave_gates_or_applies_is_left_to_the_wave() {
    let mut fixture = Fixture::new();
    let applied = "{ manifests: { inline: '{ apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: { namespace: shop, name: k } }' } }";
    for member in [GATED, applied] {
        subscribe_holder(&mut fixture, "p", &format!("[{{ name: a, members: [{member}] }}]"));
        fixture.report(&suspended_by(OPERATOR));
        assert_eq!(fixture.snapshot().held.len(), 0, "{member}");
    }
}

#[test]
fn what_another_plan_gates_by_now_is_not_given_back() {
    let mut fixture = Fixture::new();
    subscribe_holder(&mut fixture, "p", PLAN);
    fixture.report(&suspended_by(OPERATOR));
    assert_eq!(fixture.snapshot().held.len(), 1);
    fixture.subscribe("q", &format!("[{{ name: a, members: [{GATED}] }}]"));
    assert_eq!(fixture.snapshot().held.len(), 0);
    // A plan that no longer remembers it either does not keep it.
    subscribe_holder(&mut fixture, "q", PLAN);
    assert_eq!(fixture.snapshot().held.len(), 1);
}
