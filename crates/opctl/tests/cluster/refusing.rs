//! What is said when there is nothing to show: one sentence, with the remedy.

use std::path::PathBuf;

use kube::config::{AuthInfo, Kubeconfig};
use sandbox::{Options, Sandbox};
use tempfile::TempDir;

use crate::user::{DONE, ROLLING_OUT, User, run};

/// The kubeconfig of a user, changed.
pub fn changed(user: &User, change: impl FnOnce(&mut Kubeconfig)) -> (TempDir, PathBuf) {
    let mut config = Kubeconfig::read_from(&user.kubeconfig).unwrap();
    change(&mut config);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    std::fs::write(&file, serde_yaml::to_string(&config).unwrap()).unwrap();
    (dir, file)
}

#[tokio::test]
async fn without_the_kind_without_a_plan_and_with_several_it_is_said_what_to_do() {
    let sandbox = Sandbox::start(Options::default()).await.expect("a control plane");
    let user = User::of(&sandbox).await;
    let refused = user.run("waves list").await.refusal();
    assert!(refused.starts_with("The cluster at https://127.0.0.1:"), "{refused}");
    assert!(
        refused.ends_with(
            "does not know this kind: install the chart wave-orchestrator, or choose another cluster with --context."
        ),
        "{refused}"
    );
    assert_eq!(user.run("waves status fleet").await.refusal(), refused);

    user.install().await;
    assert_eq!(user.run("waves list").await.good(), "There is no WavePlan.\n");
    let refused = user.run("waves status").await.refusal();
    assert_eq!(refused, "There is no WavePlan: create one, e.g. with kubectl apply -f.");
    assert_eq!(user.run("waves status fleet").await.refusal(), "There is no WavePlan fleet: there is none.");

    user.plan("fleet", DONE).await;
    assert!(user.run("waves status").await.good().starts_with("fleet   Ready"), "the only one needs no name");
    user.plan("other", ROLLING_OUT).await;
    let refused = user.run("waves verify-startup").await.refusal();
    assert_eq!(refused, "There are several WavePlans: name one of fleet, other.");
    assert_eq!(user.run("waves pause nope").await.refusal(), "There is no WavePlan nope: there is fleet, other.");
}

#[tokio::test]
async fn who_may_not_look_is_told_which_right_is_missing() {
    let user = User::shared().await;
    let (_dir, kubeconfig) = changed(&user, |config| {
        for user in &mut config.auth_infos {
            user.auth_info.get_or_insert_with(AuthInfo::default).impersonate = Some("jane".to_owned());
        }
    });
    let refused = run(&kubeconfig, "waves list").await.refusal();
    let words = "User \"jane\" cannot list resource \"waveplans\" in API group \"waves.opcore.dev\" at the cluster scope: \
                 ask for a role that allows it, or choose another user with --context.";
    assert_eq!(refused, words);
}

#[tokio::test]
async fn a_cluster_that_cannot_be_reached_or_is_not_configured_is_said_with_the_remedy() {
    let user = User::shared().await;
    let (_dir, kubeconfig) = changed(&user, |config| {
        for cluster in &mut config.clusters {
            cluster.cluster.as_mut().unwrap().server = Some("https://127.0.0.1:1".to_owned());
        }
    });
    let refused = run(&kubeconfig, "waves list").await.refusal();
    let words = "The cluster at https://127.0.0.1:1/ cannot be reached (Connection refused (os error 111)): start it, or \
                 choose another one with --context.";
    assert_eq!(refused, words);

    let refused = run("/nonexistent".as_ref(), "waves list").await.refusal();
    let words = "No cluster is selected: /nonexistent cannot be read (No such file or directory (os error 2)); \
                 name a kubeconfig with --kubeconfig or KUBECONFIG.";
    assert_eq!(refused, words);

    let refused = user.run("waves list --context elsewhere").await.refusal();
    assert!(
        refused.starts_with("The kubeconfig has no context elsewhere: choose one with --context; there is "),
        "{refused}"
    );
    let line = format!("--kubeconfig {} waves list", user.kubeconfig.display());
    run("/nonexistent".as_ref(), &line).await.good();
}

#[tokio::test]
async fn completions_and_help_are_there_and_say_how_the_program_was_called() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run("/nonexistent".as_ref(), &format!("completion {shell}")).await.good();
        assert!(script.contains("verify-startup") && script.contains("show-sensitive"), "{shell}: {script}");
    }
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("kubectl-opctl");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_opctl"), &plugin).unwrap();
    let help = tokio::process::Command::new(&plugin).args(["waves", "status", "--help"]).output().await.unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("Usage: kubectl opctl waves status [OPTIONS] [NAME]"), "{help}");
    let help = tokio::process::Command::new(&plugin).args(["tf", "plan", "show", "--help"]).output().await.unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("Usage: kubectl opctl tf plan show [OPTIONS] <NAME>"), "{help}");
}
