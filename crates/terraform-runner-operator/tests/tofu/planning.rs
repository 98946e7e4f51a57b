//! Plans that wait for approval.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{Action, ApprovalReason, Binary, Outcome};
use terraform_runner_operator::run::order::Order;
use terraform_runner_operator::store::plan;

use crate::{module, simple, workspace, workspace_of};

with_both_engines!(
    a_plan_is_kept_and_exactly_that_plan_is_applied_once,
    a_plan_that_destroys_waits_where_that_is_wanted,
    a_plan_that_forgets_waits_where_that_is_wanted_and_is_counted,
    what_is_moved_and_imported_is_counted,
);

async fn a_plan_is_kept_and_exactly_that_plan_is_applied_once(engine: Binary) {
    let workspace = workspace_of(engine, "plans").await;
    let bundle = simple(&workspace, json!({}));
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Plan, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.state), (Outcome::Planned, None));
    let made = report.plan.unwrap();
    let kept = plan::describe(&workspace.store()).await.unwrap().unwrap();
    assert_eq!((kept.report.id.as_str(), kept.inputs), (made.id.as_str(), report.inputs));
    let text = plan::text(&workspace.store()).await.unwrap().unwrap();
    assert!(text.contains("# random_string.value will be created"), "{text}");

    let apply = |number: i64, id: &str| {
        let pod = workspace.pod(number);
        Order { plan: Some(id.to_owned()), ..pod.order(Action::Apply, &bundle) }
    };
    let (_, report) = workspace.pod(2).run_to_end(&apply(2, "0123456789ab"), &bundle).await;
    assert_eq!(report.outcome, Outcome::Stale, "it is another plan");
    let (printed, report) = workspace.pod(3).run_to_end(&apply(3, &made.id), &bundle).await;
    assert_eq!((report.outcome, report.plan.unwrap().id), (Outcome::Applied, made.id.clone()));
    assert!(!printed.contains(&format!("── {} plan", engine.program())), "no other plan is made");
    assert_eq!(workspace.outputs().await["length"].text(), "16");
    let (_, report) = workspace.pod(4).run_to_end(&apply(4, &made.id), &bundle).await;
    assert_eq!(report.outcome, Outcome::Stale, "the state has changed since");
    let (_, report) = workspace.pod(5).run_to_end(&workspace.pod(5).order(Action::Plan, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Unchanged, "there is nothing to wait for");
    assert_eq!(workspace.outputs().await["length"].text(), "16");
}

#[tokio::test]
async fn a_plan_that_cannot_be_shown_is_not_kept_for_approval() {
    let mut workspace = workspace("unreadable").await;
    // OpenTofu with another command `show`.
    let tofu = workspace.tools.path[0].join("tofu");
    let script =
        format!("#!/bin/sh\n[ \"$1\" != show ] || {{ echo 'no such luck' >&2; exit 3; }}\nexec {tofu:?} \"$@\"\n");
    let dir = workspace.dir.path().join("bin");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("tofu"), script).unwrap();
    std::fs::set_permissions(dir.join("tofu"), std::fs::Permissions::from_mode(0o755)).unwrap();
    workspace.tools.path.insert(0, dir);
    let bundle = simple(&workspace, json!({}));
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Plan, &bundle), &bundle).await;
    let said = &report.diagnostics[0];
    assert_eq!((report.outcome, said.summary.as_str()), (Outcome::Failed, "The plan cannot be shown"));
    let detail = said.detail.as_deref().unwrap();
    assert!(detail.contains("exit status: 3") && detail.contains("no such luck"), "{detail}");
    assert_eq!(plan::describe(&workspace.store()).await.unwrap(), None);
}

async fn a_plan_that_forgets_waits_where_that_is_wanted_and_is_counted(engine: Binary) {
    let workspace = workspace_of(engine, "forgets").await;
    let made = module("resource \"terraform_data\" \"it\" {}\nresource \"terraform_data\" \"other\" {}\n", [].into());
    let removed = "removed {\n  from = terraform_data.it\n  lifecycle {\n    destroy = false\n  }\n}\n";
    let removed = module(&format!("{removed}resource \"terraform_data\" \"other\" {{}}\n"), [].into());
    let guarded = |number: i64, bundle: &_| Order {
        stop_if_destroys: true,
        ..workspace.pod(number).order(Action::Apply, bundle)
    };
    let (_, report) = workspace.pod(1).run_to_end(&guarded(1, &made), &made).await;
    assert_eq!(report.outcome, Outcome::Applied, "{:?}", report.diagnostics);
    let (_, report) = workspace.pod(2).run_to_end(&guarded(2, &removed), &removed).await;
    let plan = report.plan.unwrap();
    assert_eq!((report.outcome, plan.forget, plan.destroy), (Outcome::Planned, 1, 0), "{:?}", report.diagnostics);
    assert_eq!(plan.approval_reason, Some(ApprovalReason::Forgets));
    assert_eq!(
        (plan.resources[0].address.as_str(), plan.resources[0].action.as_str()),
        ("terraform_data.it", "forget")
    );
    assert_eq!(report.state.unwrap().resources, 2, "nothing was applied");
    let order = Order { plan: Some(plan.id), ..guarded(3, &removed) };
    let (_, report) = workspace.pod(3).run_to_end(&order, &removed).await;
    assert_eq!((report.outcome, report.state.unwrap().resources), (Outcome::Applied, 1), "{:?}", report.diagnostics);
}

async fn what_is_moved_and_imported_is_counted(engine: Binary) {
    let workspace = workspace_of(engine, "moved").await;
    let made = module("resource \"terraform_data\" \"old\" {}\n", [].into());
    let pod = workspace.pod(1);
    pod.run_to_end(&pod.order(Action::Apply, &made), &made).await;
    let text = r#"
moved {
  from = terraform_data.old
  to   = terraform_data.new
}

import {
  to = random_string.it
  id = "imported"
}

resource "terraform_data" "new" {}

resource "random_string" "it" {
  length  = 8
  special = false
  upper   = false
  numeric = false
}
"#;
    let moved = module(text, [].into());
    let pod = workspace.pod(2);
    let order = Order { stop_if_destroys: true, ..pod.order(Action::Plan, &moved) };
    let (_, report) = pod.run_to_end(&order, &moved).await;
    let plan = report.plan.unwrap();
    assert_eq!((plan.import, plan.moved, plan.forget), (1, 1, 0), "{:?}", plan.resources);
    let does = |address: &str| plan.resources.iter().find(|one| one.address == address).unwrap().action.clone();
    assert_eq!(does("terraform_data.new"), "move");
}

async fn a_plan_that_destroys_waits_where_that_is_wanted(engine: Binary) {
    let workspace = workspace_of(engine, "guarded").await;
    let guarded = |number: i64, bundle: &_| Order {
        stop_if_destroys: true,
        ..workspace.pod(number).order(Action::Apply, bundle)
    };
    let bundle = simple(&workspace, json!({}));
    let (_, report) = workspace.pod(1).run_to_end(&guarded(1, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied, "it only creates");
    let longer = simple(&workspace, json!({ "length": 20 }));
    let (_, report) = workspace.pod(2).run_to_end(&guarded(2, &longer), &longer).await;
    assert_eq!(report.outcome, Outcome::Planned);
    let made = report.plan.unwrap();
    assert_eq!((made.serial, made.destroy), (1, 2));
    assert_eq!(workspace.outputs().await["length"].text(), "16", "nothing was applied");
    let order = Order { plan: Some(made.id), ..guarded(3, &longer) };
    let (_, report) = workspace.pod(3).run_to_end(&order, &longer).await;
    assert_eq!(report.outcome, Outcome::Applied, "a person has approved it");
    assert_eq!(workspace.outputs().await["length"].text(), "20");
    let order = Order { action: Action::Destroy, ..guarded(4, &longer) };
    let (_, report) = workspace.pod(4).run_to_end(&order, &longer).await;
    assert_eq!((report.outcome, report.empty), (Outcome::Destroyed, true), "a destroy is there to destroy");
}
