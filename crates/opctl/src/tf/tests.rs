//! The output for sample workspaces and statuses.

use kube::ResourceExt;
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{
    APPROVE_ANNOTATION, Action, Approval, Outcome, PlanStatus, TerraformWorkspace,
};
use terraform_runner_operator::run::report::OutputValues;
use terraform_runner_operator::store::lock::Holder;
use terraform_runner_operator::store::places::Version;
use terraform_runner_operator::store::plan::KeptPlan;

use super::plan::{PlanState, coloured, head, nothing_kept, plan_state, state_of};
use super::workspaces::View;
use super::{list, outputs, show, state, unlock, verbs};
use crate::output::Paint;

const NETWORK: &str = include_str!("../../tests/statuses/tf-network.yaml");
const AWAITING: &str = include_str!("../../tests/statuses/tf-awaiting.yaml");
const FAILED: &str = include_str!("../../tests/statuses/tf-failed.yaml");
const APPLIED: &str = include_str!("../../tests/statuses/tf-applied.yaml");
const PLAN: &str = include_str!("../../tests/statuses/tf-plan.txt");

fn network(status: Option<&str>) -> TerraformWorkspace {
    let mut workspace: TerraformWorkspace = serde_yaml::from_str(NETWORK).unwrap();
    workspace.metadata.generation = Some(1);
    workspace.metadata.namespace = Some("infra".to_owned());
    workspace.status = status.map(|status| serde_yaml::from_str(status).unwrap());
    workspace
}

/// Ten minutes past twelve.
fn view() -> View {
    View { now: "2026-01-01T12:10:00Z".parse().unwrap(), paint: Paint::PLAIN, hint: String::new() }
}

fn page(workspace: &TerraformWorkspace) -> String {
    show::page(workspace, &view()).join("\n")
}

fn kept() -> KeptPlan {
    let resources = json!([{ "address": "random_pet.name", "action": "replace" }]);
    let kept = json!({
        "id": "4f2a9c81d0e3", "serial": 7, "add": 2, "change": 0, "destroy": 1, "resources": resources, "inputs": "bbb",
        "run": "tf-network-1a2b3c4d-3", "time": "2026-01-01T12:05:00Z", "file": { "sha256": "", "bytes": 0, "chunks": [] },
    });
    serde_json::from_value(kept).unwrap()
}

fn plan(workspace: &mut TerraformWorkspace) -> &mut PlanStatus {
    workspace.status.as_mut().unwrap().plan.as_mut().unwrap()
}

fn plan_shown(workspace: &TerraformWorkspace, serial: Option<i64>) -> String {
    let kept = kept();
    let state = state_of(workspace, &kept.report.id, &kept.inputs, kept.report.serial, serial);
    let mut lines = head(workspace, &kept, &state, &view());
    lines.push(String::new());
    lines.extend(coloured(PLAN, Paint::PLAIN));
    lines.join("\n")
}

fn values() -> OutputValues {
    let values = json!({
        "password": { "value": "hunter2", "sensitive": true },
        "ports": { "value": [80, 443], "type": ["tuple", []] },
        "script": { "value": "one\ntwo" },
        "url": { "value": "https://shop.example" },
    });
    serde_json::from_value(values).unwrap()
}

fn versions() -> Vec<Version> {
    let version = |serial, run, time, resources: Option<i64>, bytes| {
        let version = json!({
            "place": 0, "serial": serial, "lineage": "l", "resources": resources, "sha256": "", "bytes": bytes,
            "chunks": [], "run": run, "time": time,
        });
        serde_json::from_value(version).unwrap()
    };
    vec![
        version(7, "tf-network-1a2b3c4d-2", "2026-01-01T10:00:00Z", Some(3), 4310),
        version(4, "tf-network-1a2b3c4d-1", "2025-12-30T10:00:00Z", None, 21_000_000),
    ]
}

#[test]
fn a_plan_that_waits_is_shown_with_how_to_read_approve_and_discard_it() {
    insta::assert_snapshot!(page(&network(Some(AWAITING))));
}

#[test]
fn a_failure_is_shown_with_where_it_is_and_when_it_is_tried_again() {
    insta::assert_snapshot!(page(&network(Some(FAILED))));
}

#[test]
fn a_run_under_way_a_lock_and_a_changed_spec_are_told() {
    let mut workspace = network(Some(FAILED));
    workspace.metadata.generation = Some(2);
    let status = workspace.status.as_mut().unwrap();
    let run = status.run.as_mut().unwrap();
    (run.finished_at, run.outcome, run.plan) = (None, None, Some("4f2a9c81d0e3".to_owned()));
    status.lock = serde_json::from_value(json!({ "holder": "b5e0c6f0", "since": "2026-01-01T12:00:00Z" })).ok();
    let text = show::page(&workspace, &View { hint: " -n infra".to_owned(), ..view() }).join("\n");
    assert!(text.contains("The spec has changed, and the operator has not reconciled the change yet."), "{text}");
    assert!(text.contains("5, apply of plan 4f2a9c81d0e3, under way for 2m, Job tf-network-1a2b3c4d-5"), "{text}");
    assert!(text.contains("b5e0c6f0 has held the lock of the state for 10m\n"), "{text}");
    assert!(text.contains("release it: opctl tf unlock network -n infra"), "{text}");
}

#[test]
fn what_a_plan_forgets_imports_and_moves_is_shown_beside_its_counts() {
    let mut kept = kept();
    (kept.report.forget, kept.report.import, kept.report.moved) = (2, 1, 1);
    let lines = head(&network(Some(AWAITING)), &kept, &PlanState::Waits, &view());
    assert!(lines[1].starts_with("+2 ~0 -1, 1 to import, 1 to move, 2 to forget, made "), "{lines:?}");
    let mut workspace = network(Some(AWAITING));
    plan(&mut workspace).forget = 2;
    assert!(page(&workspace).contains(", 2 to forget"), "{}", page(&workspace));
}

#[test]
fn checks_of_the_module_that_failed_are_shown() {
    let mut workspace = network(Some(APPLIED));
    let failed = json!([{
        "severity": "Warning", "summary": "Check block assertion failed", "detail": "The page is down.", "at": "main.tf:9",
    }]);
    workspace.status.as_mut().unwrap().failed_checks = serde_json::from_value(failed).unwrap();
    let text = page(&workspace);
    assert!(
        text.contains("Checks    1 check of the module failed\n            main.tf:9: The page is down."),
        "{text}"
    );
}

#[test]
fn a_workspace_that_no_operator_has_seen_says_so() {
    let words = "The operator has not reconciled it yet: is terraform-runner-operator running?";
    assert_eq!(page(&network(None)), format!("network   Unknown\n{words}"));
}

#[test]
fn a_list_reads_like_one_of_kubectl() {
    let mut all = [network(Some(AWAITING)), network(Some(APPLIED)), network(Some(FAILED)), network(None)];
    for (workspace, name) in all.iter_mut().zip(["a", "b", "c", "d"]) {
        workspace.metadata.name = Some(name.to_owned());
    }
    let created = "2026-01-01T09:00:00Z".parse().unwrap();
    all[0].metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
    insta::assert_snapshot!(list::rows(&all, true, view().now, Paint::PLAIN).join("\n"));
    assert!(list::rows(&all, false, view().now, Paint::PLAIN)[0].starts_with("NAME "));
}

#[test]
fn a_kept_plan_is_shown_below_what_it_is() {
    insta::assert_snapshot!(plan_shown(&network(Some(AWAITING)), Some(7)));
}

#[test]
fn a_plan_is_coloured_by_what_its_lines_do() {
    let lines = coloured(PLAN, Paint::COLOURED);
    for expected in [
        "\x1b[1m  # local_file.note will be created\x1b[0m",
        "\x1b[32m      + filename = \"/data/note\"\x1b[0m",
        "\x1b[31m-/+ resource \"random_pet\" \"name\" {\x1b[0m",
        "\x1b[33m      ~ length = 2 -> 3 # forces replacement\x1b[0m",
        "    }",
        "\x1b[1mPlan: 2 to add, 0 to change, 1 to destroy.\x1b[0m",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected:?} is not in {lines:#?}");
    }
    assert_eq!(coloured(PLAN, Paint::PLAIN).join("\n"), PLAN.trim());
}

#[test]
fn a_value_cannot_steer_the_terminal_of_who_reads_the_plan() {
    let shown = crate::phrases::printable("+ a = \"\x1b[2K\x1b[1A\"\r\n\ttab");
    assert_eq!(shown, "+ a = \"\u{fffd}[2K\u{fffd}[1A\"\u{fffd}\n\ttab");
}

#[test]
fn a_plan_waits_until_something_makes_it_void() {
    let changed = |change: fn(&mut TerraformWorkspace)| {
        let mut workspace = network(Some(AWAITING));
        change(&mut workspace);
        let plan = workspace.status.as_ref().unwrap().plan.clone().unwrap();
        plan_state(&workspace, &plan).to_string()
    };
    let run = |workspace: &mut TerraformWorkspace, action, inputs: &str, plan: Option<&str>| {
        let run = workspace.status.as_mut().unwrap().run.as_mut().unwrap();
        (run.action, run.finished_at, run.outcome) = (action, None, None);
        (run.number, run.inputs, run.plan) = (4, inputs.to_owned(), plan.map(str::to_owned));
    };
    assert_eq!(changed(|_| {}), "waits for approval");
    let approve = |workspace: &mut TerraformWorkspace| {
        workspace.annotations_mut().insert(APPROVE_ANNOTATION.to_owned(), "4f2a9c81d0e3".to_owned());
    };
    assert_eq!(changed(approve), "approved");
    assert_eq!(changed(|workspace| plan(workspace).discarded = true), "discarded");
    assert_eq!(
        changed(|workspace| workspace.metadata.generation = Some(2)),
        "void: the spec has changed, and the operator has not reconciled the change yet"
    );
    assert_eq!(changed(|workspace| plan(workspace).serial = 6), "void: it is stale, the state has serial 7 now");
    assert_eq!(
        changed(|workspace| workspace.spec.approval = Approval::Auto),
        "void: spec.approval does not ask for a person any more"
    );
    assert_eq!(changed(|workspace| workspace.spec.approval = Approval::AutoUnlessDestroy), "waits for approval");

    let mut workspace = network(Some(AWAITING));
    let of = |workspace: &TerraformWorkspace| {
        plan_state(workspace, workspace.status.as_ref().unwrap().plan.as_ref().unwrap())
    };
    run(&mut workspace, Action::Plan, "ccc", None);
    assert_eq!(of(&workspace).to_string(), "void: the inputs changed, Job tf-network-1a2b3c4d-3 plans anew");
    run(&mut workspace, Action::Check, "aaa", None);
    assert_eq!(of(&workspace), PlanState::Waits, "a comparison leaves it alone");
    run(&mut workspace, Action::Apply, "bbb", Some("4f2a9c81d0e3"));
    assert_eq!(of(&workspace).to_string(), "approved, Job tf-network-1a2b3c4d-3 applies it");
    workspace.status.as_mut().unwrap().run.as_mut().unwrap().outcome = Some(Outcome::Stale);
    assert_eq!(of(&workspace).to_string(), "spent: the run that was to apply it ended as Stale");

    let older = state_of(&network(Some(AWAITING)), "older", "bbb", 7, Some(7));
    assert_eq!(older.to_string(), "void: plan 4f2a9c81d0e3 came after it");
}

#[test]
fn only_the_plan_that_waits_is_decided_on() {
    let refused = |workspace: &TerraformWorkspace, plan| verbs::waiting(workspace, plan).unwrap_err().to_string();
    let workspace = network(Some(AWAITING));
    assert_eq!(verbs::waiting(&workspace, Some("4f2a9c81d0e3")).unwrap().summary, "+2 ~0 -1");
    assert_eq!(
        refused(&workspace, Some("other")),
        "Plan other of TerraformWorkspace network is not the last one, which is 4f2a9c81d0e3: read it with opctl tf plan \
         show network."
    );
    let applied = network(Some(APPLIED));
    assert!(refused(&applied, None).starts_with("TerraformWorkspace network has no plan that waits: 0123456789ab was"));
    let failed = network(Some(FAILED));
    let words = "TerraformWorkspace network has no plan that waits for approval: The run failed: Missing";
    assert!(refused(&failed, None).starts_with(words), "{}", refused(&failed, None));
}

#[test]
fn where_no_plan_is_kept_it_is_said_what_is_known() {
    assert_eq!(
        nothing_kept(&network(Some(APPLIED))),
        "Of plan 0123456789ab of TerraformWorkspace network only the counts are known (+3 ~0 -0): a plan is kept only while \
         it waits for a person, see spec.approval."
    );
    let words = "TerraformWorkspace network has no plan yet: The operator has not reconciled it yet";
    assert!(nothing_kept(&network(None)).starts_with(words));
}

#[test]
fn sensitive_outputs_are_shown_only_when_asked_for() {
    insta::assert_snapshot!(outputs::rows(&values(), false, &view()).join("\n"));
    assert!(outputs::rows(&values(), true, &view())[1].ends_with("hunter2"));
    let told = serde_json::to_value(outputs::shown(&values(), false)).unwrap();
    assert_eq!(told["password"], json!({ "sensitive": true }));
    assert_eq!(told["ports"], json!({ "sensitive": false, "value": [80, 443] }));
    let told = serde_json::to_value(outputs::shown(&values(), true)).unwrap();
    assert_eq!(told["password"]["value"], "hunter2");
}

#[test]
fn versions_of_a_state_are_listed_the_current_one_first() {
    insta::assert_snapshot!(state::rows(&versions(), &view()).join("\n"));
}

#[test]
fn who_holds_a_lock_is_said_with_how_long_and_what_for() {
    let holder = Holder {
        pod: "b5e0c6f0".to_owned(),
        since: "2026-01-01T12:00:00Z".parse().ok(),
        info: json!({ "ID": "x", "Operation": "OperationTypeApply" }),
    };
    let words = unlock::words(&holder, Some("tf-network-1-abcde"), &view());
    assert_eq!(words, "tf-network-1-abcde (b5e0c6f0) has held the lock of the state for 10m, for OperationTypeApply");
    assert_eq!(
        unlock::words(&Holder { since: None, info: json!(null), ..holder }, None, &view()),
        "b5e0c6f0 has held the lock of the state"
    );
}

#[test]
fn the_page_about_it_shows_what_it_prints() {
    let page_of_docs = include_str!("../../../../docs/opctl.md");
    for shown in [
        page(&network(Some(AWAITING))),
        plan_shown(&network(Some(AWAITING)), Some(7)),
        outputs::rows(&values(), false, &view()).join("\n"),
        state::rows(&versions(), &view()).join("\n"),
    ] {
        let indented: Vec<String> =
            shown.lines().map(|line| if line.is_empty() { String::new() } else { format!("    {line}") }).collect();
        let indented = indented.join("\n");
        assert!(page_of_docs.contains(&indented), "docs/opctl.md does not show:\n{indented}");
    }
}
