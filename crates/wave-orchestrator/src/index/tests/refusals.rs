//! Objects that are refused, by the cluster or because a plan contains them twice, are reported and do not delay
//! others.

use super::*;

/// A wave that applies one object, by default into a namespace.
fn applying(wave: &str, kind: &str, namespace: &str) -> String {
    format!(
        "{{ name: {wave}, members: [{{ manifests: {{ {namespace}inline: '{{ apiVersion: v1, kind: {kind}, metadata: {{ name: a }} }}' }} }}] }}"
    )
}

#[test]
fn an_object_in_two_waves_is_refused_in_the_second_however_it_is_written() {
    let shop = "namespace: shop, ";
    for (kind, other, words) in [("ConfigMap", shop, "ConfigMap shop/a"), ("Namespace", "", "Namespace a")] {
        let fixture = Fixture::with(&format!("[{}, {}]", applying("one", kind, shop), applying("two", kind, other)));
        let problems: Vec<_> = fixture.snapshot().waves.into_iter().map(|wave| wave.problem).collect();
        assert_eq!(problems, [None, Some(format!("{words} is also in wave one; remove it from one place"))]);
    }
    let apart = Fixture::with(&format!(
        "[{}, {}]",
        applying("one", "ConfigMap", shop),
        applying("two", "ConfigMap", "namespace: bank, ")
    ));
    assert!(apart.snapshot().waves.iter().all(|wave| wave.problem.is_none()));
}

#[test]
fn an_object_that_is_twice_in_a_wave_is_refused() {
    let map = "{ apiVersion: v1, kind: ConfigMap, metadata: { name: a } }";
    let fixture = Fixture::with(&format!(
        "[{{ name: one, members: [{{ manifests: {{ namespace: shop, inline: '{{ apiVersion: v1, kind: List, items: [{map}, {map}] }}' }} }}] }}]"
    ));
    let words = "ConfigMap shop/a is twice in this wave; remove it from one place";
    assert_eq!(fixture.snapshot().waves[0].problem.as_deref(), Some(words));
}

#[test]
fn why_a_write_was_refused_is_reported_until_the_object_is_as_wanted() {
    let mut fixture = Fixture::with(PLAN);
    fixture.sync("p");
    let object = object_id("", "ConfigMap", "a");
    let refusal = Refusal { object, reason: RefusalReason::Foreign, message: "It is Helm's.".to_owned() };
    fixture.index.refused(&"p".into(), &refusal);
    let reported = fixture.snapshot().waves[0].not_ready[0].clone();
    assert_eq!((reported.reason.as_str(), reported.message.as_str()), ("OwnedByAnother", "It is Helm's."));
    fixture.apply(&map("p", "a", "rain"));
    fixture.report(&map("p", "a", "sun"));
    assert_eq!(fixture.reason(0), "NotApplied");
}

#[test]
fn a_write_that_is_forbidden_names_the_value_that_grants_the_right() {
    let flux = "
    - name: flux
      members: [{ ref: { apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, namespace: shop, name: k } }]";
    let mut fixture = Fixture::with(&format!("{PLAN}{flux}"));
    fixture.sync("p");
    // The object was in the plan before, and is to be pruned.
    fixture.report(&map("p", "old", "rain"));
    for (object, value) in [
        (object_id("", "ConfigMap", "a"), Some("rbac.apply")),
        (object_id("", "ConfigMap", "old"), Some("rbac.apply")),
        (object_id("kustomize.toolkit.fluxcd.io", "Kustomization", "k"), Some("rbac.nudge")),
        (object_id("", "Secret", "kept"), None),
    ] {
        let reason = RefusalReason::Forbidden;
        let refusal = Refusal { object: object.clone(), reason, message: "It is forbidden.".to_owned() };
        let words = value.map(|value| format!("Set the value {value} of the chart to grant it."));
        assert_eq!(fixture.index.remedy(&"p".into(), &refusal), words, "{object}");
        fixture.index.refused(&"p".into(), &refusal);
    }
    assert_eq!(
        fixture.snapshot().waves[0].not_ready[0].message,
        "It is forbidden. Set the value rbac.apply of the chart to grant it."
    );
}

#[test]
fn a_watch_that_is_forbidden_names_the_value_that_grants_all_that_is_done_with_its_objects() {
    let reference =
        "ref: { apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, namespace: shop, name: k }";
    let fixture = Fixture::new();
    for (mode, value) in [("", "rbac.nudge"), (", mode: Gate", "rbac.nudge"), (", mode: Observe", "rbac.read")] {
        let subscription =
            fixture.subscription("p", &format!("[{{ name: flux, members: [{{ {reference}{mode} }}] }}]"));
        let rights: Vec<_> = subscription.scopes.iter().map(|scope| subscription.right_to_watch(scope)).collect();
        let right = "list and watch kustomizations.kustomize.toolkit.fluxcd.io in shop";
        assert_eq!(rights, [format!("{right}; the value {value} of the chart grants this right")]);
    }
    let subscription = fixture.subscription("p", PLAN);
    let rights: Vec<_> = subscription.scopes.iter().map(|scope| subscription.right_to_watch(scope)).collect();
    let read = "list and watch widgets.example.io in shop; the value rbac.read of the chart grants this right";
    assert_eq!(rights, ["list and watch configmaps; the value rbac.apply of the chart grants this right", read]);
}

#[test]
fn many_that_are_refused_keep_no_other_from_being_applied_and_have_their_turns() {
    let member = |number: usize| {
        format!(
            "{{ manifests: {{ namespace: shop, inline: '{{ apiVersion: v1, kind: ConfigMap, metadata: {{ name: m{number:03} }}, data: {{ text: rain }} }}' }} }}"
        )
    };
    let members: Vec<String> = (0..250).map(member).collect();
    let mut fixture = Fixture::with(&format!("[{{ name: maps, members: [{}] }}]", members.join(", ")));
    fixture.sync("p");
    let due = |fixture: &Fixture| -> Vec<String> {
        fixture.snapshot().waves[0].due.iter().map(|due| due.wanted.apply.id().to_string()).collect()
    };
    let refuse = |fixture: &mut Fixture, number: usize| {
        let (object, reason) = (object_id("", "ConfigMap", &format!("m{number:03}")), RefusalReason::Foreign);
        fixture.index.refused(&"p".into(), &Refusal { object, reason, message: "It is Helm's.".to_owned() });
    };
    for number in 0..220 {
        refuse(&mut fixture, number);
    }
    let now = due(&fixture);
    assert_eq!((now[0].as_str(), now[29].as_str()), ("ConfigMap shop/m220", "ConfigMap shop/m249"), "all others first");
    assert_eq!(now[30], "ConfigMap shop/m000", "then whose turn was longest ago");
    for number in 0..100 {
        refuse(&mut fixture, number);
    }
    assert_eq!(due(&fixture)[30], "ConfigMap shop/m100");
    // An object that is accepted in the end is no longer among them.
    fixture.report(&map("p", "m100", "rain"));
    assert_eq!(due(&fixture)[30], "ConfigMap shop/m101");
}
