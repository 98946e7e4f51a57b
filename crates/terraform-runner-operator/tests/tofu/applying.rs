//! The requested resources exist, and nothing happens twice.

use std::fs;

use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{Action, Binary, Outcome};
use terraform_runner_operator::run::bundle::{BackendBundle, Bundle};
use terraform_runner_operator::run::order::Order;
use terraform_runner_operator::run::report::Stage;
use terraform_runner_operator::store::state;

use crate::{EXPECTED, called, module, simple, workspace, workspace_of};

with_both_engines!(
    the_built_in_module_is_applied_left_alone_changed_and_destroyed,
    a_module_that_makes_nothing_leaves_nothing,
    drift_is_found_without_a_lock_and_corrected_by_the_next_apply,
    what_the_module_changes_each_time_is_not_called_drift,
    drift_that_no_plan_would_change_is_taken_into_the_state,
    what_vanished_outside_is_no_longer_left_after_a_destroy,
    a_check_block_that_fails_is_reported_by_what_holds_in_the_end,
    what_was_only_read_is_nothing_that_a_destroy_leaves,
    a_backend_of_its_own_is_used_as_configured,
);

async fn the_built_in_module_is_applied_left_alone_changed_and_destroyed(engine: Binary) {
    let workspace = workspace_of(engine, "simple").await;
    let bundle = simple(&workspace, json!({ "prefix": "test-", "vars": { "special": "false", "upper": "true" } }));
    let (printed, report) = {
        let pod = workspace.pod(1);
        pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await
    };
    assert_eq!((report.outcome, report.stage), (Outcome::Applied, Stage::Done));
    assert_eq!(report.run, workspace.names.job(1));
    let plan = report.plan.unwrap();
    assert_eq!((plan.add, plan.change, plan.destroy, plan.serial, plan.id.len()), (2, 0, 0, 0, 12));
    assert_eq!(plan.resources.len(), 2);
    assert!(report.engine.starts_with(called(engine)), "{}", report.engine);
    assert!(printed.contains("random_string.value: Creation complete"), "{printed}");
    assert!(report.milliseconds.keys().copied().eq([
        Stage::Prepare,
        Stage::Init,
        Stage::Plan,
        Stage::Apply,
        Stage::Outputs
    ]));
    let state = report.state.unwrap();
    assert_eq!((state.serial, state.resources), (1, 2));
    let outputs = workspace.outputs().await;
    let value = outputs["random_value"].text();
    assert!(value.len() == 16 && value.chars().all(char::is_alphanumeric), "{value}");
    assert_eq!(outputs["file_content"].text(), format!("test-{value}"));
    assert_eq!(outputs["length"].text(), "16");
    let path = outputs["file_path"].text();
    assert_eq!(path, format!("/tmp/opr8r-{}-sample.txt", workspace.namespace));
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("test-{value}"));

    let pod = workspace.pod(2);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Unchanged);
    assert_eq!(report.state.unwrap().serial, 1, "nothing was written");
    assert_eq!(workspace.outputs().await["random_value"].text(), value);

    let longer = simple(&workspace, json!({ "length": 24, "prefix": "test-", "vars": { "special": "false" } }));
    let pod = workspace.pod(3);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &longer), &longer).await;
    assert_eq!(report.outcome, Outcome::Applied);
    let plan = report.plan.unwrap();
    assert_eq!((plan.add, plan.destroy), (2, 2), "{:?}", plan.resources);
    assert_eq!(workspace.outputs().await["random_value"].text().len(), 24);

    let pod = workspace.pod(4);
    let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &longer), &longer).await;
    assert_eq!((report.outcome, report.empty), (Outcome::Destroyed, true));
    assert_eq!(report.state.unwrap().resources, 0);
    assert!(!fs::exists(&path).unwrap());

    let pod = workspace.pod(5);
    let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &longer), &longer).await;
    assert_eq!((report.outcome, report.empty), (Outcome::Destroyed, true), "once more does no harm");
}

async fn a_module_that_makes_nothing_leaves_nothing(engine: Binary) {
    let workspace = workspace_of(engine, "nothing").await;
    let bundle = module("variable \"unused\" {\n  default = 1\n}\n", [].into());
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.state), (Outcome::Unchanged, None), "and needs no destroy");
}

#[tokio::test]
async fn the_module_of_the_second_typed_kind_is_applied() {
    let workspace = workspace("pets").await;
    let bundle = module(include_str!("../cluster/pet/main.tf"), [("words".to_owned(), json!(3))].into());
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied, "{:?}", report.diagnostics);
    assert_eq!(workspace.outputs().await["size"].text(), "3");
}

#[tokio::test]
async fn there_is_no_shell_and_the_module_sleeps_all_the_same() {
    let workspace = workspace("sleeping").await;
    let bundle = simple(&workspace, json!({ "sleep": "1s" }));
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied);
    assert!(report.milliseconds[&Stage::Apply] >= 1000);
}

async fn drift_is_found_without_a_lock_and_corrected_by_the_next_apply(engine: Binary) {
    let workspace = workspace_of(engine, "drift").await;
    let bundle = simple(&workspace, json!({}));
    let pod = workspace.pod(1);
    pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    let path = workspace.outputs().await["file_path"].text();
    let pod = workspace.pod(2);
    let (_, report) = pod.run_to_end(&pod.order(Action::Check, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.drift.count), (Outcome::Checked, 0));

    fs::write(&path, "changed behind its back").unwrap();
    // Someone else holds the lock, which does not matter here.
    let other = workspace.pod(99).serve().await;
    assert_eq!(workspace.lock("other").await.0, 200);
    other.killed().await;
    let pod = workspace.pod(3);
    let (_, report) = pod.run_to_end(&pod.order(Action::Check, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.drift.count), (Outcome::Checked, 1));
    assert_eq!(report.drift.resources[0].address, "local_file.value");
    assert_eq!(report.state.unwrap().serial, 1, "nothing was written");
    let again = workspace.pod(99).serve().await;
    assert_eq!(workspace.unlock("other").await, 200);
    again.stopped().await;

    let pod = workspace.pod(4);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied);
    assert_ne!(fs::read_to_string(&path).unwrap(), "changed behind its back");
    let pod = workspace.pod(5);
    let (_, report) = pod.run_to_end(&pod.order(Action::Check, &bundle), &bundle).await;
    assert_eq!(report.drift.count, 0);
}

async fn what_the_module_changes_each_time_is_not_called_drift(engine: Binary) {
    let workspace = workspace_of(engine, "restless").await;
    let text = "resource \"terraform_data\" \"now\" {\n  input = timestamp()\n}\n";
    let bundle = module(text, [].into());
    let pod = workspace.pod(1);
    pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    let pod = workspace.pod(2);
    let (_, report) = pod.run_to_end(&pod.order(Action::Check, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.drift.count), (Outcome::Checked, 0), "{:?}", report.drift);
    let said = &report.diagnostics[0];
    assert_eq!(said.summary, "The next apply would change one resource that did not drift");
    assert!(said.detail.as_ref().unwrap().contains("terraform_data.now (update)"), "{said:?}");
}

async fn drift_that_no_plan_would_change_is_taken_into_the_state(engine: Binary) {
    let workspace = workspace_of(engine, "gone").await;
    let file = workspace.dir.path().join("file");
    let text = r#"
variable "file" {}

variable "count_of_files" {}

resource "terraform_data" "kept" {}

resource "local_file" "gone" {
  count    = var.count_of_files
  filename = var.file
  content  = "a"
}
"#;
    let files = |count: i32| {
        let values = [("file".to_owned(), json!(file)), ("count_of_files".to_owned(), json!(count))];
        module(text, values.into())
    };
    let (with, without) = (files(1), files(0));
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &with), &with).await;
    assert_eq!((report.outcome, report.state.unwrap().resources), (Outcome::Applied, 2), "{:?}", report.diagnostics);

    fs::remove_file(&file).unwrap();
    let pod = workspace.pod(2);
    let (_, report) = pod.run_to_end(&pod.order(Action::Check, &with), &with).await;
    let found: Vec<_> =
        report.drift.resources.iter().map(|found| (found.address.as_str(), found.action.as_str())).collect();
    assert_eq!(
        (report.drift.count, found),
        (1, vec![("local_file.gone[0]", "delete")]),
        "it would be made again, and drifted"
    );
    assert_eq!(report.diagnostics, []);

    // The module no longer contains it, and it is gone: there is nothing to change, but the state has to be updated.
    let pod = workspace.pod(3);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &without), &without).await;
    assert_eq!((report.outcome, report.drift.count), (Outcome::Unchanged, 1), "{:?}", report.diagnostics);
    let state = report.state.unwrap();
    assert_eq!((state.resources, state.serial), (1, 2), "the state has what is there");
    let pod = workspace.pod(4);
    let (_, report) = pod.run_to_end(&pod.order(Action::Check, &without), &without).await;
    assert_eq!(report.drift.count, 0, "{:?}", report.drift);
}

async fn what_vanished_outside_is_no_longer_left_after_a_destroy(engine: Binary) {
    let workspace = workspace_of(engine, "vanished").await;
    let file = workspace.dir.path().join("file");
    let text = "variable \"file\" {}\nresource \"local_file\" \"it\" {\n  filename = var.file\n  content  = \"a\"\n}\n";
    let mut bundle = module(text, [("file".to_owned(), json!(file))].into());
    let elsewhere = BackendBundle {
        kind: "local".to_owned(),
        config: [("path".to_owned(), json!(workspace.dir.path().join("a.tfstate")))].into(),
    };
    for (first, backend) in [(1, None), (5, Some(elsewhere))] {
        bundle.backend = backend;
        let pod = workspace.pod(first);
        let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
        assert_eq!(report.outcome, Outcome::Applied, "{:?}", report.diagnostics);
        fs::remove_file(&file).unwrap();
        let pod = workspace.pod(first + 1);
        let (_, report) = pod.run_to_end(&pod.order(Action::Check, &bundle), &bundle).await;
        assert_eq!(report.drift.count, 1, "{:?}", report.drift);
        let pod = workspace.pod(first + 2);
        let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &bundle), &bundle).await;
        assert_eq!((report.outcome, report.empty), (Outcome::Destroyed, true), "{:?}", report.diagnostics);
        assert_eq!(report.diagnostics, []);
    }
}

async fn a_check_block_that_fails_is_reported_by_what_holds_in_the_end(engine: Binary) {
    let workspace = workspace_of(engine, "checks").await;
    let text = r#"
variable "file" {}

resource "local_file" "it" {
  filename = var.file
  content  = "a"
}

check "it" {
  assert {
    condition     = fileexists(local_file.it.filename)
    error_message = "There is no file."
  }
}

check "wrong" {
  assert {
    condition     = var.file == ""
    error_message = "There is a name."
  }
}
"#;
    let bundle = module(text, [("file".to_owned(), json!(workspace.dir.path().join("file")))].into());
    for (number, action) in [(1, Action::Apply), (2, Action::Check), (3, Action::Apply)] {
        let pod = workspace.pod(number);
        let (_, report) = pod.run_to_end(&pod.order(action, &bundle), &bundle).await;
        assert!(report.outcome.is_good(), "{:?}", report.diagnostics);
        let failed: Vec<_> = report.diagnostics.iter().filter(|said| said.is_failed_check()).collect();
        assert_eq!(failed.len(), 1, "the other holds as soon as the file is there: {:?}", report.diagnostics);
        assert_eq!(failed[0].detail.as_deref(), Some("There is a name."));
    }
}

async fn what_was_only_read_is_nothing_that_a_destroy_leaves(engine: Binary) {
    let workspace = workspace_of(engine, "reading").await;
    let (file, read) = (workspace.dir.path().join("file"), workspace.dir.path().join("read"));
    fs::write(&read, "b").unwrap();
    let text = r#"
variable "file" {}

variable "read" {}

data "local_file" "read" {
  filename = var.read
}

resource "local_file" "it" {
  filename = var.file
  content  = data.local_file.read.content
}
"#;
    let values = [("file".to_owned(), json!(file)), ("read".to_owned(), json!(read))];
    let mut bundle = module(text, values.into());
    bundle.backend = Some(BackendBundle {
        kind: "local".to_owned(),
        config: [("path".to_owned(), json!(workspace.dir.path().join("a.tfstate")))].into(),
    });
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied, "{:?}", report.diagnostics);
    fs::remove_file(&file).unwrap();
    let pod = workspace.pod(2);
    let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.empty), (Outcome::Destroyed, true), "{:?}", report.diagnostics);
}

async fn a_backend_of_its_own_is_used_as_configured(engine: Binary) {
    let workspace = workspace_of(engine, "backend").await;
    let file = workspace.dir.path().join("a ${path}.tfstate");
    let mut bundle = module("output \"a\" {\n  value = \"b\"\n}\nresource \"terraform_data\" \"a\" {}\n", [].into());
    bundle.backend = Some(BackendBundle {
        kind: "local".to_owned(),
        config: [("path".to_owned(), file.display().to_string().into())].into(),
    });
    // It was never applied, or its state is gone: only a person can decide.
    let pod = workspace.pod(9);
    let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &bundle), &bundle).await;
    let said = &report.diagnostics[0];
    assert_eq!(
        (report.outcome, said.summary.as_str()),
        (Outcome::Failed, "It could not be determined whether resources are left")
    );
    let detail = said.detail.as_deref().unwrap();
    assert!(detail.contains("No state file was found") && !detail.contains('\u{1b}'), "{detail:?}");

    // A module without resources is known to have created nothing.
    let nothing = Bundle { files: [("main.tf".to_owned(), String::new())].into(), ..bundle.clone() };
    let pod = workspace.pod(8);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &nothing), &nothing).await;
    assert_eq!((report.outcome, report.empty), (Outcome::Unchanged, true), "{:?}", report.diagnostics);

    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.state), (Outcome::Applied, None), "{:?}", report.diagnostics);
    assert!(fs::exists(&file).unwrap());
    let pod = workspace.pod(7);
    let expecting = Order { state: EXPECTED, ..pod.order(Action::Apply, &bundle) };
    let (_, report) = pod.run_to_end(&expecting, &bundle).await;
    assert_eq!((report.outcome, report.empty), (Outcome::Unchanged, false), "there is something");
    assert_eq!(workspace.outputs().await["a"].text(), "b");
    let pod = workspace.pod(2);
    let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.empty), (Outcome::Destroyed, true));

    // As if someone had emptied the bucket.
    fs::remove_file(&file).unwrap();
    let pod = workspace.pod(3);
    let expecting = Order { state: EXPECTED, ..pod.order(Action::Apply, &bundle) };
    let (_, report) = pod.run_to_end(&expecting, &bundle).await;
    let said = &report.diagnostics[0].summary;
    assert_eq!((report.outcome, said.as_str()), (Outcome::Failed, "The state is missing"));
    assert!(!fs::exists(&file).unwrap(), "nothing was created again");
}

#[tokio::test]
async fn a_state_that_opentofu_encrypts_is_kept_changed_and_destroyed() {
    let workspace = workspace("encrypted").await;
    let encryption = r#"
key_provider "pbkdf2" "it" { passphrase = "as long as it has to be" }
method "aes_gcm" "it" { keys = key_provider.pbkdf2.it }
state { method = method.aes_gcm.it }
plan { method = method.aes_gcm.it }
"#;
    let encrypted = |prefix: &str| {
        let mut bundle = simple(&workspace, json!({ "prefix": prefix }));
        bundle.env.insert("TF_ENCRYPTION".to_owned(), encryption.to_owned());
        bundle
    };
    for (number, prefix) in [(1, "first-canary-"), (2, "second-canary-")] {
        let bundle = encrypted(prefix);
        let pod = workspace.pod(number);
        let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
        assert_eq!(report.outcome, Outcome::Applied, "{:?}", report.diagnostics);
        assert_eq!(report.state.unwrap().resources, -1, "the number is not known");
        assert!(workspace.outputs().await["file_content"].text().starts_with(prefix));
        let state = String::from_utf8(state::current(&workspace.store()).await.unwrap().unwrap()).unwrap();
        assert!(state.contains("encrypted_data") && !state.contains("canary"), "{state:.300}");
    }
    let bundle = encrypted("second-canary-");
    let pod = workspace.pod(3);
    let (_, report) = pod.run_to_end(&pod.order(Action::Check, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.drift.count), (Outcome::Checked, 0), "{:?}", report.diagnostics);
    // Without the key nothing is known, and nothing counts as destroyed.
    let keyless = simple(&workspace, json!({ "prefix": "second-canary-" }));
    let pod = workspace.pod(4);
    let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &keyless), &keyless).await;
    assert_eq!((report.outcome, report.empty), (Outcome::Failed, false));
    let pod = workspace.pod(5);
    let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &bundle), &bundle).await;
    assert_eq!((report.outcome, report.empty), (Outcome::Destroyed, true), "{:?}", report.diagnostics);
    assert_eq!(report.state.unwrap().resources, -1, "it was Terraform that said so");
}
