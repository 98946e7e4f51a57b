//! How plans are affected by watches that are reopened or report nothing.

use opcore::watch::registry::{Trouble, TroubleKind};

use super::*;

fn trouble(kind: TroubleKind) -> Trouble {
    Trouble { kind, message: "service unavailable".to_owned() }
}

/// The watch on Widgets.
fn widgets(desk: &Desk) -> ScopeId {
    desk.index.plans["p"].subscription.scopes.iter().find(|scope| scope.kind == "Widget").unwrap().clone()
}

#[test]
fn a_resync_leaves_what_is_known_as_it_is_until_everything_was_reported_again() {
    let mut desk = Desk::with(PLAN);
    desk.see(&widget("w", "True"));
    desk.sync("p");
    let scope = widgets(&desk);
    desk.index.opened(&scope, true);
    assert!(desk.look().complete, "nobody waits for a resync");
    desk.index.confirm(&scope, &id_of(&kind_of(&widget("w", "True")), &widget("w", "True")));
    assert_eq!(desk.index.synced(&scope), wakes(&[]), "nothing has changed");
    desk.index.opened(&scope, true);
    assert_eq!(desk.counts(1), [1, 0, 1, 0, 0]);
    assert_eq!(desk.index.synced(&scope), wakes(&["p"]), "it was not told of again");
    assert_eq!(desk.reason(1), "NotFound");
}

#[test]
fn what_a_watch_has_still_to_report_when_a_plan_requests_everything_again_is_not_taken_for_everything() {
    let mut desk = Desk::with(PLAN);
    desk.see(&widget("w", "True"));
    desk.sync("p");
    let scope = widgets(&desk);
    // The watch has reported the other Widget already, before any plan was subscribed to it.
    let other = PLAN.replace("name: w }", "name: other }");
    assert_eq!(desk.subscribe("q", &other), [scope.clone()].into());
    assert_eq!(desk.index.synced(&scope), wakes(&[]), "this is still the watch from before");
    let unread = |desk: &Desk| desk.index.look(&"q".into(), &desk.asking()).waves[1].unread;
    assert_eq!(unread(&desk), 1, "it is not missing");
    desk.index.opened(&scope, false);
    desk.see(&widget("other", "True"));
    desk.index.synced(&scope);
    assert_eq!(unread(&desk), 0);
    assert_eq!(desk.index.look(&"q".into(), &desk.asking()).waves[1].ready, 1);
}

#[test]
fn what_was_missed_leaves_a_watch_in_doubt_until_everything_is_reported_again() {
    let mut desk = Desk::with(PLAN);
    desk.sync("p");
    let scope = widgets(&desk);
    desk.index.missed(&scope);
    assert!(!desk.look().complete);
    desk.index.opened(&scope, false);
    desk.index.synced(&scope);
    assert!(desk.look().complete);
}

#[test]
fn a_member_that_nobody_can_read_says_why_until_it_can_be_and_the_others_count() {
    let mut desk = Desk::with(PLAN);
    desk.apply(&map("p", "a", "rain"));
    let scope = widgets(&desk);
    assert_eq!(desk.index.troubled(&scope, Some(&trouble(TroubleKind::Unavailable))), wakes(&["p"]));
    assert_eq!([desk.counts(0), desk.counts(1)], [[1, 0, 1, 0, 0], [1, 1, 0, 0, 0]]);
    let look = desk.look();
    assert_eq!((look.waves[1].unreachable, look.complete), (1, false));
    let lack = &look.waves[1].not_ready[0];
    let words = "Widget shop/w: widgets.example.io in shop cannot be listed and watched: service unavailable.";
    assert_eq!((lack.reason.as_str(), lack.message.as_str()), ("ApiUnavailable", words));
    assert_eq!(desk.index.troubles(&"p".into()).len(), 1);
    // A plan that comes later gets the same report.
    desk.subscribe("q", PLAN);
    assert_eq!(desk.index.look(&"q".into(), &desk.asking()).waves[1].unreachable, 1);
    desk.index.troubled(&scope, None);
    desk.see(&widget("w", "True"));
    desk.index.synced(&scope);
    assert_eq!(desk.counts(1), [1, 0, 1, 0, 0]);
    assert_eq!(desk.index.troubles(&"p".into()), [""; 0]);
}

#[test]
fn what_is_known_already_counts_while_its_watch_is_in_trouble() {
    let mut desk = Desk::with(PLAN);
    desk.see(&widget("w", "True"));
    desk.sync("p");
    desk.index.troubled(&widgets(&desk), Some(&trouble(TroubleKind::Unavailable)));
    assert_eq!(desk.counts(1), [1, 0, 1, 0, 0]);
    assert_eq!(desk.index.troubles(&"p".into()), [""; 0], "nothing is waited for");
}

#[test]
fn a_kind_of_which_it_is_unknown_whether_it_is_served_is_neither_missing_nor_gone() {
    let mut desk = Desk::new();
    let kind = ("example.io/v1".to_owned(), "Widget".to_owned());
    let served = desk.served.insert(kind.clone(), Served::Unknown { reason: "service unavailable".to_owned() });
    desk.subscribe("p", PLAN);
    let look = desk.look();
    assert_eq!((look.waves[1].unread, look.waves[1].unreachable), (1, 1));
    let words = "Widget shop/w: cannot determine whether the cluster serves this kind: service unavailable.";
    assert_eq!(look.waves[1].not_ready[0].message, words);
    // The API answers, and then no more: what was known then still counts.
    let unknown = desk.served.insert(kind.clone(), served.unwrap()).unwrap();
    desk.subscribe("p", PLAN);
    assert_eq!(desk.look().waves[1].unreachable, 0);
    desk.see(&widget("w", "True"));
    desk.sync("p");
    assert_eq!(desk.counts(1), [1, 0, 1, 0, 0]);
    desk.served.insert(kind, unknown);
    desk.subscribe("p", PLAN);
    assert_eq!(desk.counts(1), [1, 0, 1, 0, 0]);
}
