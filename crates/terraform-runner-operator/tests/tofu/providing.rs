//! The versions of providers: they stay the same until newer ones are requested.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{Action, Binary, Outcome};
use terraform_runner_operator::run::bundle::Bundle;
use terraform_runner_operator::run::order::Order;
use terraform_runner_operator::store::lockfile;

use crate::pod::Workspace;
use crate::{module, workspace_of};

with_both_engines!(
    versions_of_providers_stay_until_someone_asks_for_others,
    a_module_that_says_which_versions_it_wants_has_them,
);

/// A mirror, as in an image, with these versions of the provider `random`: all of them are the same program.
struct Mirror {
    dir: PathBuf,
    program: PathBuf,
}

impl Mirror {
    fn of(workspace: &mut Workspace) -> Self {
        let given = fs::read_to_string(&workspace.tools.env["TF_CLI_CONFIG_FILE"]).unwrap();
        let from = PathBuf::from(given.split('"').nth(1).unwrap());
        let versions = from.join("registry.opentofu.org/hashicorp/random");
        let platform = fs::read_dir(versions).unwrap().next().unwrap().unwrap().path();
        let platform = fs::read_dir(platform).unwrap().next().unwrap().unwrap().path();
        let program = fs::read_dir(platform).unwrap().next().unwrap().unwrap().path();
        let dir = workspace.dir.path().join("mirror");
        let text = format!("provider_installation {{\n  filesystem_mirror {{\n    path = {}\n  }}\n}}\n", json!(dir));
        let config = workspace.dir.path().join("mirror.rc");
        fs::write(&config, text).unwrap();
        workspace.tools.env.insert("TF_CLI_CONFIG_FILE".to_owned(), config.display().to_string());
        Self { dir, program }
    }

    fn offers(&self, versions: &[&str]) {
        let _ = fs::remove_dir_all(&self.dir);
        let platform = self.program.parent().unwrap().file_name().unwrap();
        for (host, version) in ["registry.opentofu.org", "registry.terraform.io"]
            .iter()
            .flat_map(|host| versions.iter().map(move |version| (host, version)))
        {
            let package = self.dir.join(host).join("hashicorp/random").join(version).join(platform);
            fs::create_dir_all(&package).unwrap();
            let to = package.join(format!("terraform-provider-random_v{version}"));
            fs::copy(&self.program, &to).unwrap();
            fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

/// The version of the only provider that is stored.
async fn kept(workspace: &Workspace) -> String {
    let kept = String::from_utf8(lockfile::load(&workspace.store()).await.unwrap().unwrap()).unwrap();
    kept.lines().find_map(|line| Some(line.trim().strip_prefix("version")?.split('"').nth(1)?.to_owned())).unwrap()
}

fn random() -> Bundle {
    module("resource \"random_pet\" \"it\" {}\n", [].into())
}

async fn versions_of_providers_stay_until_someone_asks_for_others(engine: Binary) {
    let mut workspace = workspace_of(engine, "versions").await;
    let mirror = Mirror::of(&mut workspace);
    let bundle = random();
    mirror.offers(&["3.1.0"]);
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied, "{:?}", report.diagnostics);
    assert_eq!(kept(&workspace).await, "3.1.0");

    mirror.offers(&["3.1.0", "3.2.0"]);
    for (number, action) in [(2, Action::Apply), (3, Action::Check), (4, Action::Plan)] {
        let pod = workspace.pod(number);
        let (printed, report) = pod.run_to_end(&pod.order(action, &bundle), &bundle).await;
        assert!(report.outcome.is_good(), "{:?}", report.diagnostics);
        assert!(printed.contains("random v3.1.0") && !printed.contains("3.2.0"), "{printed}");
    }

    // A plan that fails changes nothing.
    let wrong = module("resource \"random_pet\" \"it\" {\n  lenght = 1\n}\n", [].into());
    let pod = workspace.pod(5);
    let (_, report) = pod.run_to_end(&Order { upgrade: true, ..pod.order(Action::Apply, &wrong) }, &wrong).await;
    assert_eq!(report.outcome, Outcome::Failed);
    assert_eq!(kept(&workspace).await, "3.1.0");

    let pod = workspace.pod(6);
    let (_, report) = pod.run_to_end(&Order { upgrade: true, ..pod.order(Action::Apply, &bundle) }, &bundle).await;
    assert_eq!((report.outcome, kept(&workspace).await.as_str()), (Outcome::Unchanged, "3.2.0"));

    // Another image, which no longer has the version.
    mirror.offers(&["3.3.0"]);
    let pod = workspace.pod(7);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!((report.outcome, kept(&workspace).await.as_str()), (Outcome::Unchanged, "3.3.0"));
    let said = &report.diagnostics[0];
    assert_eq!(said.summary, "Other versions of providers are used");
    assert!(said.detail.as_ref().unwrap().contains("hashicorp/random 3.3.0 instead of 3.2.0"), "{said:?}");

    // A plan is applied with the versions with which it was made.
    let mut other = random();
    other.files.insert("more.tf".to_owned(), "resource \"random_pet\" \"more\" {}\n".to_owned());
    let pod = workspace.pod(8);
    let (_, report) = pod.run_to_end(&pod.order(Action::Plan, &other), &other).await;
    mirror.offers(&["3.3.0", "3.4.0"]);
    let pod = workspace.pod(9);
    let approved = Order { plan: Some(report.plan.unwrap().id), ..pod.order(Action::Apply, &other) };
    let (_, report) = pod.run_to_end(&approved, &other).await;
    assert_eq!(report.outcome, Outcome::Applied, "{:?}", report.diagnostics);

    mirror.offers(&["3.5.0"]);
    let pod = workspace.pod(10);
    let (_, report) = pod.run_to_end(&pod.order(Action::Destroy, &other), &other).await;
    assert_eq!((report.outcome, report.empty), (Outcome::Destroyed, true), "{:?}", report.diagnostics);
}

async fn a_module_that_says_which_versions_it_wants_has_them(engine: Binary) {
    let mut workspace = workspace_of(engine, "own-versions").await;
    let mirror = Mirror::of(&mut workspace);
    mirror.offers(&["3.1.0", "3.2.0"]);
    let host = if engine == Binary::Tofu { "registry.opentofu.org" } else { "registry.terraform.io" };
    let mut bundle = random();
    let lock = format!("provider \"{host}/hashicorp/random\" {{\n  version = \"3.1.0\"\n}}\n");
    bundle.files.insert(lockfile_name(), lock);
    let pod = workspace.pod(1);
    let order = Order { upgrade: true, ..pod.order(Action::Apply, &bundle) };
    let (printed, report) = pod.run_to_end(&order, &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied, "{:?}", report.diagnostics);
    assert!(printed.contains("random v3.1.0"), "{printed}");
    assert_eq!(lockfile::load(&workspace.store()).await.unwrap(), None, "it is the module's to keep");
    assert_eq!(json!(report.diagnostics), json!([]));
}

fn lockfile_name() -> String {
    terraform_runner_operator::runner::providers::LOCKFILE.to_owned()
}
