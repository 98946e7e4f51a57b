//! How plans are affected by watches that are reopened or report nothing.

use opcore::watch::registry::{Trouble, TroubleKind};

use super::*;

fn trouble(kind: TroubleKind) -> Trouble {
    Trouble { kind, message: "service unavailable".to_owned() }
}

/// The watch on Widgets.
fn widgets(fixture: &Fixture) -> ScopeId {
    fixture.index.plans["p"].subscription.scopes.iter().find(|scope| scope.kind == "Widget").unwrap().clone()
}

#[test]
fn a_resync_leaves_what_is_known_as_it_is_until_everything_was_reported_again() {
    let mut fixture = Fixture::with(PLAN);
    fixture.report(&widget("w", "True"));
    fixture.sync("p");
    let scope = widgets(&fixture);
    fixture.index.opened(&scope, true);
    assert!(fixture.snapshot().complete, "nobody waits for a resync");
    fixture.index.confirm(&scope, &id_of(&kind_of(&widget("w", "True")), &widget("w", "True")));
    assert_eq!(fixture.index.synced(&scope), wakes(&[]), "nothing has changed");
    fixture.index.opened(&scope, true);
    assert_eq!(fixture.counts(1), [1, 0, 1, 0, 0]);
    assert_eq!(fixture.index.synced(&scope), wakes(&["p"]), "it was not reported again");
    assert_eq!(fixture.reason(1), "NotFound");
}

#[test]
fn what_a_watch_has_still_to_report_when_a_plan_requests_everything_again_is_not_taken_for_everything() {
    let mut fixture = Fixture::with(PLAN);
    fixture.report(&widget("w", "True"));
    fixture.sync("p");
    let scope = widgets(&fixture);
    // The watch has reported the other Widget already, before any plan was subscribed to it.
    let other = PLAN.replace("name: w }", "name: other }");
    assert_eq!(fixture.subscribe("q", &other), [scope.clone()].into());
    assert_eq!(fixture.index.synced(&scope), wakes(&[]), "this is still the watch from before");
    let unread = |fixture: &Fixture| fixture.index.snapshot(&"q".into(), &fixture.asking()).waves[1].unread;
    assert_eq!(unread(&fixture), 1, "it is not missing");
    fixture.index.opened(&scope, false);
    fixture.report(&widget("other", "True"));
    fixture.index.synced(&scope);
    assert_eq!(unread(&fixture), 0);
    assert_eq!(fixture.index.snapshot(&"q".into(), &fixture.asking()).waves[1].ready, 1);
}

#[test]
fn what_was_missed_leaves_a_watch_in_doubt_until_everything_is_reported_again() {
    let mut fixture = Fixture::with(PLAN);
    fixture.sync("p");
    let scope = widgets(&fixture);
    fixture.index.missed(&scope);
    assert!(!fixture.snapshot().complete);
    fixture.index.opened(&scope, false);
    fixture.index.synced(&scope);
    assert!(fixture.snapshot().complete);
}

#[test]
fn a_member_that_nobody_can_read_says_why_until_it_can_be_and_the_others_count() {
    let mut fixture = Fixture::with(PLAN);
    fixture.apply(&map("p", "a", "rain"));
    let scope = widgets(&fixture);
    assert_eq!(fixture.index.troubled(&scope, Some(&trouble(TroubleKind::Unavailable))), wakes(&["p"]));
    assert_eq!([fixture.counts(0), fixture.counts(1)], [[1, 0, 1, 0, 0], [1, 1, 0, 0, 0]]);
    let snapshot = fixture.snapshot();
    assert_eq!((snapshot.waves[1].unreachable, snapshot.complete), (1, false));
    let entry = &snapshot.waves[1].not_ready[0];
    let words = "Widget shop/w: widgets.example.io in shop cannot be listed and watched: service unavailable.";
    assert_eq!((entry.reason.as_str(), entry.message.as_str()), ("ApiUnavailable", words));
    assert_eq!(fixture.index.troubles(&"p".into()).len(), 1);
    // A plan that comes later gets the same report.
    fixture.subscribe("q", PLAN);
    assert_eq!(fixture.index.snapshot(&"q".into(), &fixture.asking()).waves[1].unreachable, 1);
    fixture.index.troubled(&scope, None);
    fixture.report(&widget("w", "True"));
    fixture.index.synced(&scope);
    assert_eq!(fixture.counts(1), [1, 0, 1, 0, 0]);
    assert_eq!(fixture.index.troubles(&"p".into()), [""; 0]);
}

#[test]
fn what_is_known_already_counts_while_its_watch_is_in_trouble() {
    let mut fixture = Fixture::with(PLAN);
    fixture.report(&widget("w", "True"));
    fixture.sync("p");
    fixture.index.troubled(&widgets(&fixture), Some(&trouble(TroubleKind::Unavailable)));
    assert_eq!(fixture.counts(1), [1, 0, 1, 0, 0]);
    assert_eq!(fixture.index.troubles(&"p".into()), [""; 0], "nothing is waited for");
}

#[test]
fn a_kind_of_which_it_is_unknown_whether_it_is_served_is_neither_missing_nor_gone() {
    let mut fixture = Fixture::new();
    let kind = ("example.io/v1".to_owned(), "Widget".to_owned());
    let served = fixture.served.insert(kind.clone(), Served::Unknown { reason: "service unavailable".to_owned() });
    fixture.subscribe("p", PLAN);
    let snapshot = fixture.snapshot();
    assert_eq!((snapshot.waves[1].unread, snapshot.waves[1].unreachable), (1, 1));
    let words = "Widget shop/w: cannot determine whether the cluster serves this kind: service unavailable.";
    assert_eq!(snapshot.waves[1].not_ready[0].message, words);
    // The API answers, and then no more: what was known then still counts.
    let unknown = fixture.served.insert(kind.clone(), served.unwrap()).unwrap();
    fixture.subscribe("p", PLAN);
    assert_eq!(fixture.snapshot().waves[1].unreachable, 0);
    fixture.report(&widget("w", "True"));
    fixture.sync("p");
    assert_eq!(fixture.counts(1), [1, 0, 1, 0, 0]);
    fixture.served.insert(kind, unknown);
    fixture.subscribe("p", PLAN);
    assert_eq!(fixture.counts(1), [1, 0, 1, 0, 0]);
}
