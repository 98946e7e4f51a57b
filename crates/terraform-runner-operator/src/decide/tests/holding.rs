//! What waits for a person, and what is not repeated without one.

use serde_json::json;

use super::Play;
use crate::api::v1alpha1::{ApprovalReason, ChangedResource, Outcome, WorkspacePhase};
use crate::run::report::Report;

#[test]
fn forgetting_is_counted_told_and_waits_under_auto_unless_destroy() {
    let mut play = Play::simple().with("approval", json!("AutoUnlessDestroy"));
    play.settle();
    let forgets = |report: &mut Report| {
        let plan = report.plan.as_mut().unwrap();
        (plan.add, plan.import, plan.moved, plan.forget) = (0, 1, 0, 2);
        plan.approval_reason = Some(ApprovalReason::Forgets);
        plan.resources = vec![ChangedResource { address: "aws_vpc.it".to_owned(), action: "forget".to_owned() }];
    };
    play.ends(Outcome::Planned, forgets).settle();
    assert_eq!(play.phase(), WorkspacePhase::AwaitingApproval);
    let plan = play.workspace.status.as_ref().unwrap().plan.clone().unwrap();
    assert_eq!((plan.summary.as_str(), plan.forget), ("+0 ~0 -0, 1 to import, 2 to forget", 2));
    assert!(
        play.message().contains("it takes something out of the state that stays where it is"),
        "{}",
        play.message()
    );
    play.annotate("infra.opr8r/approve", "plan-1").settle();
    play.ends(Outcome::Applied, forgets);
    let told = play.decide().notes;
    assert!(told[0].message.contains("2 to forget. No longer in the state, and still there: aws_vpc.it."), "{told:?}");
}
