//! Invalid input and timeouts: the messages for the user.

use std::os::unix::fs::PermissionsExt;

use opcore::duration::Span;
use rustix::process::Signal;
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{Action, ApprovalReason, Binary, Diagnostic, Outcome, Severity};
use terraform_runner_operator::run::bundle::Bundle;
use terraform_runner_operator::run::order::Order;
use terraform_runner_operator::run::report::Stage;
use terraform_runner_operator::store::state;

use crate::pod::Workspace;
use crate::{called, module, simple, workspace, workspace_of};

with_both_engines!(
    a_run_that_is_asked_to_stop_saves_reports_and_ends,
    a_bad_module_is_reported_by_file_and_line,
    what_is_wrong_with_a_module_or_its_values_lasts_and_what_is_wrong_outside_may_pass,
    a_variable_that_is_misspelt_is_an_error_that_names_it,
    what_a_failed_provisioner_left_is_kept_for_a_person_when_it_is_repeated,
    an_override_of_the_module_does_not_move_the_state,
    a_lock_that_somebody_holds_is_reported_with_its_holder,
    an_apply_that_takes_too_long_is_stopped_and_what_it_made_is_kept,
    a_destroy_that_takes_too_long_is_stopped_and_what_is_left_is_kept,
);

/// The first diagnostic for a module that cannot be applied.
async fn first(workspace: &Workspace, number: i64, bundle: &Bundle) -> Diagnostic {
    let pod = workspace.pod(number);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, bundle), bundle).await;
    assert_eq!((report.outcome, report.state), (Outcome::Failed, None));
    assert!(report.engine.starts_with(called(workspace.binary)), "{}", report.engine);
    report.diagnostics.into_iter().next().expect("a diagnostic")
}

async fn a_bad_module_is_reported_by_file_and_line(engine: Binary) {
    let workspace = workspace_of(engine, "bad").await;
    let wrong = |text: &str, values: serde_json::Value| {
        let values = values.as_object().unwrap().clone().into_iter().collect();
        Bundle { files: [("net.tf".to_owned(), text.to_owned())].into(), ..module("", values) }
    };
    let syntax = first(&workspace, 1, &wrong("resource \"terraform_data\" \"a\" {\n  input = \n}\n", json!({}))).await;
    assert_eq!((syntax.severity, syntax.at.as_deref()), (Severity::Error, Some("net.tf:2")), "{syntax:?}");

    let unknown = "terraform {\n  required_providers {\n    nimbus = { source = \"example/nimbus\" }\n  }\n}\n";
    let unknown = first(&workspace, 2, &wrong(unknown, json!({}))).await;
    assert!(format!("{unknown:?}").contains("example/nimbus"), "{unknown:?}");

    let text = "\nvariable \"size\" {\n  type = number\n}\n";
    let missing = first(&workspace, 3, &wrong(text, json!({}))).await;
    assert_eq!((missing.summary.as_str(), missing.at.as_deref()), ("No value for required variable", Some("net.tf:2")));

    let kind = first(&workspace, 4, &wrong(text, json!({ "size": "many" }))).await;
    // OpenTofu reports the place of the variable, Terraform has it in its message.
    let place = [kind.at.clone(), kind.detail.clone()].into_iter().flatten().collect::<String>();
    assert!(place.contains("net.tf:2") && !place.contains("zz_opcore"), "{kind:?}");
    assert!(kind.summary.contains("Invalid value for input variable"), "{kind:?}");

    let escape = Bundle { files: [("../../a.tf".to_owned(), String::new())].into(), ..Bundle::default() };
    let pod = workspace.pod(5);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &escape), &escape).await;
    assert_eq!((report.outcome, report.stage), (Outcome::Failed, Stage::Prepare));
    assert!(report.diagnostics[0].detail.as_ref().unwrap().contains("\"../../a.tf\""), "{:?}", report.diagnostics);

    let pod = workspace.pod(6);
    let order = Order { inputs: "others".to_owned(), ..pod.order(Action::Apply, &module("", [].into())) };
    let (_, report) = pod.run_to_end(&order, &module("", [].into())).await;
    assert_eq!(
        (report.outcome, report.diagnostics[0].summary.as_str()),
        (Outcome::Failed, "The inputs cannot be used")
    );
}

async fn what_is_wrong_with_a_module_or_its_values_lasts_and_what_is_wrong_outside_may_pass(engine: Binary) {
    let workspace = workspace_of(engine, "lasting").await;
    let syntax = module("resource \"terraform_data\" \"a\" {\n  input = \n}\n", [].into());
    let argument = module("resource \"terraform_data\" \"a\" {\n  lenght = 1\n}\n", [].into());
    let missing = module("variable \"size\" {}\n", [].into());
    let kind = module("variable \"size\" {\n  type = number\n}\n", [("size".to_owned(), json!("many"))].into());
    let outside = "data \"local_file\" \"a\" {\n  filename = \"/nowhere\"\n}\n";
    let provider = "terraform {\n  required_providers {\n    nimbus = { source = \"example/nimbus\" }\n  }\n}\n";
    let cases = [
        (syntax, true),
        (argument, true),
        (missing, true),
        (kind, true),
        (module(outside, [].into()), false),
        (module(provider, [].into()), false),
        (module("module \"a\" {\n  source = \"git::file:///nowhere\"\n}\n", [].into()), false),
    ];
    for (number, (bundle, lasting)) in (1..).zip(cases) {
        let pod = workspace.pod(number);
        let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
        assert_eq!((report.outcome, report.lasting), (Outcome::Failed, lasting), "{:?}", report.diagnostics);
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_lasts() {
    let mut workspace = workspace("programless").await;
    workspace.tools.path = Vec::new();
    let bundle = module("", [].into());
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.lasting), (Outcome::Failed, true), "{:?}", report.diagnostics);
}

async fn a_variable_that_is_misspelt_is_an_error_that_names_it(engine: Binary) {
    let workspace = workspace_of(engine, "misspelt").await;
    let text =
        "variable \"length\" {\n  default = 1\n}\nresource \"terraform_data\" \"a\" {\n  input = var.length\n}\n";
    let values = ["lenght", "of_others", "of_others_too", "and_more"].map(|name| (name.to_owned(), json!(2)));
    let mut bundle = module(text, values.into());
    bundle.expected = ["lenght".to_owned()].into();
    let said = first(&workspace, 1, &bundle).await;
    assert_eq!(said.summary, "spec.variables: the module has no variable lenght");
    assert!(said.detail.as_ref().unwrap().contains("It has: length."), "{said:?}");
    // Variables from a ConfigMap may be for other modules.
    bundle.expected = [].into();
    let pod = workspace.pod(2);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied, "{:?}", report.diagnostics);
    // Nor does it prevent a destroy.
    bundle.expected = ["lenght".to_owned()].into();
    let pod = workspace.pod(3);
    let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.empty), (Outcome::Destroyed, true), "{:?}", report.diagnostics);
}

async fn what_a_failed_provisioner_left_is_kept_for_a_person_when_it_is_repeated(engine: Binary) {
    let workspace = workspace_of(engine, "tainted").await;
    let text = "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" {\n    command = \"false\"\n  }\n}\n";
    let bundle = module(text, [].into());
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.lasting), (Outcome::Failed, false), "{:?}", report.diagnostics);
    assert_eq!(report.state.as_ref().unwrap().resources, 1);
    let pod = workspace.pod(2);
    let repeated = Order { stop_if_tainted: true, ..pod.order(Action::Apply, &bundle) };
    let (_, report) = pod.run_to_end(&repeated, &bundle).await;
    let plan = report.plan.unwrap();
    let expected = (Outcome::Planned, Some(ApprovalReason::ReplacesTainted));
    assert_eq!((report.outcome, plan.approval_reason), expected, "{:?}", report.diagnostics);
    let pod = workspace.pod(3);
    let approved = Order { plan: Some(plan.id), ..pod.order(Action::Apply, &bundle) };
    let (printed, report) = pod.run_to_end(&approved, &bundle).await;
    assert_eq!(report.outcome, Outcome::Failed, "it fails again, but a person wanted to see that");
    assert!(printed.contains("terraform_data.a: Destroying"), "{printed}");
}

#[tokio::test]
async fn what_a_destroy_leaves_is_named() {
    let mut workspace = workspace("leaving").await;
    let bundle = module("resource \"terraform_data\" \"a\" {}\nresource \"terraform_data\" \"b\" {}\n", [].into());
    let pod = workspace.pod(1);
    pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    // OpenTofu with another command `apply`.
    let tofu = workspace.tools.path[0].join("tofu");
    let dir = workspace.dir.path().join("bin");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("tofu"), format!("#!/bin/sh\n[ \"$1\" != apply ] || exit 0\nexec {tofu:?} \"$@\"\n"))
        .unwrap();
    std::fs::set_permissions(dir.join("tofu"), std::fs::Permissions::from_mode(0o755)).unwrap();
    workspace.tools.path.insert(0, dir);
    let pod = workspace.pod(2);
    let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &bundle), &bundle).await;
    let said = &report.diagnostics[0];
    assert_eq!((report.outcome, said.summary.as_str()), (Outcome::Failed, "Resources are left after the destroy"));
    assert_eq!(said.detail.as_deref(), Some("The state still contains terraform_data.a, terraform_data.b."));
}

async fn an_override_of_the_module_does_not_move_the_state(engine: Binary) {
    let workspace = workspace_of(engine, "override").await;
    let (hcl, json) =
        ("terraform {\n  backend \"local\" {}\n}\n", r#"{ "terraform": { "backend": { "local": {} } } }"#);
    let text = "variable \"a\" {}\nresource \"terraform_data\" \"a\" {\n  input = var.a\n}\n";
    let mut bundle = module(text, [("a".to_owned(), json!("of the spec"))].into());
    // All of these names sort before the files of the runner.
    let hcl_files = ["override.tf", "z_override.tf", "zzz_override.tofu"].map(|path| (path, hcl));
    let json_files = ["zz_override.tf.json", "zz_opcore_override.tofu.json"].map(|path| (path, json));
    for (path, text) in hcl_files.into_iter().chain(json_files) {
        bundle.files.insert(path.to_owned(), text.to_owned());
    }
    bundle.files.insert("z.auto.tfvars".to_owned(), "a = \"of the module\"\n".to_owned());
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied, "{:?}", report.diagnostics);
    assert_eq!(report.state.unwrap().resources, 1, "it is in our store");
    let kept = String::from_utf8(state::current(&workspace.store()).await.unwrap().unwrap()).unwrap();
    assert!(kept.contains("of the spec") && !kept.contains("of the module"), "{kept}");
    let pod = workspace.pod(2);
    let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.empty), (Outcome::Destroyed, true), "{:?}", report.diagnostics);
}

#[tokio::test]
async fn what_the_runner_sets_cannot_be_set_and_that_is_said() {
    let workspace = workspace("env").await;
    let mut bundle = simple(&workspace, json!({}));
    bundle.env.insert("TF_HTTP_ADDRESS".to_owned(), "http://elsewhere".to_owned());
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied);
    let said = &report.diagnostics[0];
    assert_eq!(
        (said.severity, said.summary.as_str()),
        (Severity::Warning, "The environment variable TF_HTTP_ADDRESS cannot be set")
    );
}

async fn a_lock_that_somebody_holds_is_reported_with_its_holder(engine: Binary) {
    let workspace = workspace_of(engine, "locked").await;
    let other = workspace.pod(99).serve().await;
    assert_eq!(workspace.lock("other").await.0, 200);
    other.killed().await;
    let bundle = simple(&workspace, json!({}));
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Locked);
    let said = &report.diagnostics[0];
    assert!(said.detail.as_ref().unwrap().contains("pod pod-99 holds it"), "{said:?}");
}

async fn an_apply_that_takes_too_long_is_stopped_and_what_it_made_is_kept(engine: Binary) {
    let workspace = workspace_of(engine, "timeouts").await;
    let bundle = simple(&workspace, json!({ "sleep": "10m" }));
    let pod = workspace.pod(1);
    let order = Order { apply_within: Span::from_secs(2), ..pod.order(Action::Apply, &bundle) };
    let (_, report) = pod.run_to_end(&order, &bundle).await;
    assert_eq!((report.outcome, report.stage), (Outcome::TimedOut, Stage::Apply));
    assert!(
        report.diagnostics.first().is_some_and(|said| said.summary == "Applying took longer than 2s"),
        "{:?}",
        report.diagnostics
    );
    assert!(report.state.unwrap().resources >= 2);
    // The lock is free, and existing resources are kept.
    let quick = simple(&workspace, json!({}));
    let pod = workspace.pod(2);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &quick), &quick).await;
    assert_eq!(report.outcome, Outcome::Applied);
}

async fn a_destroy_that_takes_too_long_is_stopped_and_what_is_left_is_kept(engine: Binary) {
    let workspace = workspace_of(engine, "undying").await;
    let text = r#"
resource "terraform_data" "slow" {
  provisioner "local-exec" {
    when        = destroy
    interpreter = ["tf-runner", "sleep"]
    command     = "10m"
  }
}
"#;
    let bundle = module(text, [].into());
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied);
    let pod = workspace.pod(2);
    let order = Order { apply_within: Span::from_secs(2), ..pod.order(Action::Destroy, &bundle) };
    let (_, report) = pod.run_to_end(&order, &bundle).await;
    assert_eq!((report.outcome, report.stage), (Outcome::TimedOut, Stage::Apply));
    assert!(
        report.diagnostics.first().is_some_and(|said| said.summary == "Destroying took longer than 2s"),
        "{:?}",
        report.diagnostics
    );
    assert_eq!((report.state.unwrap().resources, report.empty), (1, false));
}

async fn a_run_that_is_asked_to_stop_saves_reports_and_ends(engine: Binary) {
    let workspace = workspace_of(engine, "stops").await;
    let bundle = simple(&workspace, json!({ "sleep": "10m" }));
    let pod = workspace.pod(1);
    let serve = pod.serve().await;
    let run = pod.run(&pod.order(Action::Apply, &bundle), &bundle);
    run.until_says("terraform_data.sleep[0]: Creating").await;
    run.signal(Signal::TERM);
    // The second signal is not passed on: Terraform would abort its work.
    run.signal(Signal::TERM);
    let (code, printed) = run.ended().await;
    assert_eq!(code, Some(1), "{printed}");
    assert!(!printed.contains("Two interrupts received"), "{printed}");
    let report = workspace.report().await;
    assert_eq!(report.outcome, Outcome::Interrupted);
    assert!(report.state.unwrap().resources >= 2);
    assert_eq!(workspace.ask("GET", "/lock", "").await.unwrap().0, 204, "the lock was given back");
    serve.stopped().await;
}

#[tokio::test]
async fn without_a_store_the_termination_message_goes_to_the_kubelet() {
    let workspace = workspace("alone").await;
    let bundle = simple(&workspace, json!({ "prefix": "hush-hush" }));
    let pod = workspace.pod(1);
    let serve = pod.serve().await;
    let run = pod.run(&pod.order(Action::Check, &bundle), &bundle);
    run.until_says("── tofu init").await;
    serve.killed().await;
    let (code, printed) = run.ended().await;
    assert_eq!(code, Some(1), "{printed}");
    let words: serde_json::Value = serde_json::from_slice(&std::fs::read(pod.last_words()).unwrap()).unwrap();
    assert_eq!((words["outcome"].as_str(), words["action"].as_str()), (Some("Failed"), Some("Check")));
}
