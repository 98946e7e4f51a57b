//! `opctl tf list`, `show`, `plan show`, `outputs`, `state list` and `logs`: what people see of workspaces.

use std::process::Stdio;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, CustomResourceExt, ResourceExt};
use opcore_testing::wait::install;
use sandbox::{Options, Sandbox};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::TerraformWorkspace;
use terraform_runner_operator::render::names;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::infra::{APPLIED, AWAITING, FAILED, Infra, NETWORK, PLAN, keep_plan, save_state, tell};
use crate::user::{PATIENCE, User, run};

#[tokio::test]
async fn a_list_tells_where_each_workspace_stands_here_and_everywhere() {
    let infra = Infra::shared("tf-list").await;
    let namespace = &infra.namespace;
    let empty = infra.run("list").await.good();
    assert_eq!(empty, format!("There is no TerraformWorkspace in namespace {namespace}.\n"));

    infra.network(AWAITING).await;
    let table = infra.run("list").await.good();
    let row = "network   False   AwaitingApproval   +2 ~0 -1   12 resources   3 resources   ";
    assert!(table.starts_with("NAME      READY   STATUS             PLAN       DRIFT          STATE "), "{table}");
    assert!(table.lines().nth(1).unwrap().starts_with(row), "{table}");
    let table = infra.user.run("tf list -A").await.good();
    assert!(table.starts_with("NAMESPACE "), "{table}");
    let line = table.lines().find(|line| line.starts_with(namespace.as_str())).unwrap_or_else(|| panic!("{table}"));
    assert!(line.contains("   network   False   AwaitingApproval"), "{table}");

    let list: Value = serde_json::from_str(&infra.run("list -o json").await.good()).unwrap();
    assert_eq!((&list[0]["name"], &list[0]["phase"]), (&json!("network"), &json!("AwaitingApproval")));
    assert_eq!((&list[0]["plan"], &list[0]["resources"]), (&json!("+2 ~0 -1"), &json!(3)));
}

#[tokio::test]
async fn a_workspace_is_found_in_the_namespace_of_the_context_unless_another_is_named() {
    let infra = Infra::shared("tf-context").await;
    infra.network(APPLIED).await;
    let mut config = Kubeconfig::read_from(&infra.user.kubeconfig).unwrap();
    for context in &mut config.contexts {
        context.context.as_mut().unwrap().namespace = Some(infra.namespace.clone());
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), serde_yaml::to_string(&config).unwrap()).unwrap();
    let shown = run(file.path(), "tf show network").await.good();
    assert!(shown.starts_with("network   Ready\nApplied: 3 resources.\n"), "{shown}");

    let refused = run(file.path(), "tf show netwrok").await.refusal();
    let words = format!("There is no TerraformWorkspace netwrok in namespace {}: there is network.", infra.namespace);
    assert_eq!(refused, words);
    let refused = run(file.path(), "tf show network -n kube-public").await.refusal();
    assert_eq!(refused, "There is no TerraformWorkspace network in namespace kube-public: there is none.");
}

#[tokio::test]
async fn a_workspace_is_shown_with_all_that_is_known_of_it() {
    let infra = Infra::shared("tf-show").await;
    infra.network(AWAITING).await;
    let shown = infra.run("show network").await.good();
    let approve = format!("approve it   opctl tf approve network --plan 4f2a9c81d0e3 -n {}\n", infra.namespace);
    for expected in [
        "network   AwaitingApproval\nPlan 4f2a9c81d0e3 (+2 ~0 -1) waits for approval: it destroys or replaces resources.",
        "random_pet.name        update\n",
        "password   sensitive\n",
        "3     plan     Planned   +2 ~0 -1 ",
        &approve,
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
    assert!(!shown.contains('\x1b'), "no colours in a pipe");

    infra.publish(FAILED).await;
    let shown = infra.run("show network").await.good();
    assert!(shown.contains("\n✘ main.tf:12, random_pet.name: Missing required argument\n    The argument"), "{shown}");
    let whole: Value = serde_json::from_str(&infra.run("show network -o json").await.good()).unwrap();
    assert_eq!((&whole["phase"], &whole["diagnostics"][0]["at"]), (&json!("Failed"), &json!("main.tf:12")));
}

#[tokio::test]
async fn a_kept_plan_is_shown_and_one_that_is_not_is_told_of() {
    let infra = Infra::shared("tf-plan").await;
    let workspace = infra.network(AWAITING).await;
    let refused = infra.run("plan show network").await.refusal();
    assert!(refused.starts_with("Of plan 4f2a9c81d0e3 of TerraformWorkspace network only the counts are"), "{refused}");

    let store = infra.store(&workspace);
    keep_plan(&store, "4f2a9c81d0e3", "bbb", "tf-network-1a2b3c4d-3").await;
    save_state(&store, 7, "tf-network-1a2b3c4d-1", "x").await;
    let shown = infra.run("plan show network").await.good();
    let (head, text) = shown.split_once("\n\n").unwrap();
    let lines: Vec<&str> = head.lines().collect();
    assert_eq!(lines[0], "Plan 4f2a9c81d0e3 of TerraformWorkspace network   waits for approval");
    assert!(lines[1].ends_with("s ago by Job tf-network-1a2b3c4d-3 from state serial 7"), "{head}");
    let namespace = &infra.namespace;
    assert_eq!(lines[2], format!("Approve it: opctl tf approve network --plan 4f2a9c81d0e3 -n {namespace}"));
    assert_eq!(text, PLAN.trim_start(), "as Terraform wrote it");

    let json: Value = serde_json::from_str(&infra.run("plan show network -o json").await.good()).unwrap();
    assert_eq!((&json["standing"], &json["destroy"], &json["text"]), (&json!("Waits"), &json!(1), &json!(PLAN)));

    // `script` gives its command a real terminal.
    let line = format!("'{}' tf plan show network -n {namespace}", env!("CARGO_BIN_EXE_opctl"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    script.env("KUBECONFIG", &infra.user.kubeconfig).env("TERM", "xterm").env_remove("NO_COLOR");
    let drawn = timeout(PATIENCE, script.output()).await.unwrap().unwrap();
    let drawn = String::from_utf8(drawn.stdout).unwrap();
    assert!(drawn.contains("\x1b[31m-/+ resource \"random_pet\" \"name\" {\x1b[0m"), "{drawn:?}");
    assert!(drawn.contains("\x1b[32m  + resource \"local_file\" \"note\" {\x1b[0m"), "{drawn:?}");

    save_state(&store, 8, "tf-network-1a2b3c4d-4", "x").await;
    let shown = infra.run("plan show network").await.good();
    assert!(shown.contains("network   void: it is stale, the state has serial 8 now\n"), "{shown}");
    keep_plan(&store, "aaaaaaaaaaaa", "bbb", "tf-network-1a2b3c4d-2").await;
    let shown = infra.run("plan show network").await.good();
    assert!(shown.contains("network   void: plan 4f2a9c81d0e3 came after it\n"), "{shown}");
}

#[tokio::test]
async fn sensitive_outputs_are_printed_only_where_they_are_asked_for() {
    let infra = Infra::shared("tf-outputs").await;
    let workspace = infra.network(FAILED).await;
    let refused = infra.run("outputs network").await.refusal();
    assert!(refused.starts_with("TerraformWorkspace network has no outputs yet: The run failed"), "{refused}");

    let report = json!({
        "run": "tf-network-1a2b3c4d-1", "action": "Apply", "inputs": "aaa", "outcome": "Applied", "stage": "done",
    });
    let outputs = json!({
        "password": { "value": "hunter2", "sensitive": true },
        "ports": { "value": [80, 443] },
        "url": { "value": "https://shop.example" },
    });
    tell(&infra.store(&workspace), report, Some(outputs)).await;
    let shown = infra.run("outputs network").await.good();
    let words = "NAME       VALUE\npassword   (sensitive)\nports      [80,443]\nurl        https://shop.example\n";
    assert_eq!(shown, words);
    assert!(infra.run("outputs network --show-sensitive").await.good().contains("password   hunter2\n"));
    assert_eq!(infra.run("outputs network password").await.good(), "hunter2\n");
    assert_eq!(
        infra.run("outputs network ports -o json").await.good().split_whitespace().collect::<String>(),
        "[80,443]"
    );
    let json: Value = serde_json::from_str(&infra.run("outputs network -o json").await.good()).unwrap();
    assert_eq!(json["password"], json!({ "sensitive": true }));
    let refused = infra.run("outputs network pasword").await.refusal();
    assert_eq!(refused, "TerraformWorkspace network has no output pasword: it has password, ports, url.");
}

#[tokio::test]
async fn a_state_is_listed_by_versions_and_by_addresses_without_any_value() {
    let infra = Infra::shared("tf-state").await;
    let workspace = infra.network(APPLIED).await;
    let refused = infra.run("state list network").await.refusal();
    assert_eq!(refused, "TerraformWorkspace network has no state yet: Applied: 3 resources.");

    let store = infra.store(&workspace);
    save_state(&store, 1, "run-1", "canary").await;
    save_state(&store, 3, "run-2", "canary").await;
    let table = infra.run("state list network").await.good();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["SERIAL", "RUN", "SAVED", "RESOURCES", "SIZE"]);
    assert_eq!((rows[1][0], rows[1][1], rows[1].last()), ("3", "run-2", Some(&"current")), "{table}");
    assert_eq!((rows[2][0], rows[2][1], rows[2].len()), ("1", "run-1", 7), "{table}");
    let addresses = infra.run("state list network --resources").await.good();
    assert_eq!(addresses, "random_pet.r0\nrandom_pet.r1\nrandom_pet.r2\n");
    assert!(!table.contains("canary") && !addresses.contains("canary"));

    let names = names(&workspace);
    let chunk = (0..2).map(|place| names.state_chunk(place, 0));
    for name in chunk {
        let damage = Patch::Merge(json!({ "data": { "data": ByteString(b"something else".to_vec()) } }));
        infra.api::<Secret>().patch(&name, &PatchParams::default(), &damage).await.unwrap();
    }
    let refused = infra.run("state list network --resources").await.refusal();
    assert!(refused.starts_with(&format!("Secret {}-state-", names.stem())), "{refused}");
    assert!(refused.contains(" is damaged: ") && refused.ends_with("opctl tf state list network."), "{refused}");
}

/// The pod of a run, as a Job would make it.
async fn pod(infra: &Infra, job: &str) -> Pod {
    let labels = json!({ "batch.kubernetes.io/job-name": job, "infra.opr8r/part": "run" });
    let pod = json!({
        "metadata": { "name": format!("{job}-abcde"), "labels": labels },
        "spec": { "containers": [{ "name": "terraform", "image": "nowhere/nothing" }] },
    });
    infra.api::<Pod>().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
}

#[tokio::test]
async fn where_there_is_no_log_it_is_said_why() {
    let infra = Infra::shared("tf-logs").await;
    infra.network("{ phase: Pending }").await;
    let refused = infra.run("logs network").await.refusal();
    assert!(refused.starts_with("TerraformWorkspace network has had no run yet: "), "{refused}");

    infra.publish(AWAITING).await;
    let gone = "The pod of Job tf-network-1a2b3c4d-3 is gone, and its log with it: opctl tf show network shows how \
                the run ended.";
    assert_eq!(infra.run("logs network").await.refusal(), gone);
    // Following what is over ends at once, and tells how it ended.
    let answer = infra.run("logs network -f").await;
    assert_eq!((answer.status.code(), answer.out.as_str()), (Some(0), ""));
    assert!(
        answer.err.contains(gone) && answer.err.ends_with("Run 3 (plan): Planned, +2 ~0 -1, after 12s\n"),
        "{}",
        answer.err
    );
    infra.publish(FAILED).await;
    let answer = infra.run("logs network -f").await;
    assert_eq!(answer.status.code(), Some(1), "the run failed");
    assert!(answer.err.ends_with("Run 5 (apply): Failed, after 1m\n"), "{}", answer.err);

    pod(&infra, "tf-network-1a2b3c4d-5").await;
    let refused = infra.run("logs network").await.refusal();
    let words =
        "Pod tf-network-1a2b3c4d-5-abcde of Job tf-network-1a2b3c4d-5 has not started yet: wait for it with -f.";
    assert_eq!(refused, words);
}

#[tokio::test]
async fn following_waits_for_a_run_and_goes_on_with_the_next() {
    let infra = Infra::shared("tf-follow").await;
    infra.network("{ phase: Pending }").await;
    let mut child = infra.command("logs network -f").stderr(Stdio::piped()).spawn().unwrap();
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut next = async || timeout(PATIENCE, notes.next_line()).await.expect("a note").unwrap().expect("a note");
    assert!(next().await.starts_with("opctl: Waiting for a run of TerraformWorkspace network: "));

    let run = |number: i64, over: bool| {
        let mut run = json!({
            "number": number, "job": format!("job-{number}"), "action": "Plan", "inputs": "a", "startedAt": "2026-01-01T12:00:00Z",
        });
        if over {
            (run["finishedAt"], run["outcome"]) = (json!("2026-01-01T12:00:09Z"), json!("Planned"));
        }
        run
    };
    let record = |number: i64, outcome: &str| json!({ "number": number, "action": "Plan", "outcome": outcome, "startedAt": "2026-01-01T12:00:00Z", "duration": "9s" });
    let status = |run: Value, history: Value| {
        json!({ "phase": "Planning", "observedGeneration": 1, "run": run, "history": history, "conditions": [] })
            .to_string()
    };
    infra.publish(&status(run(1, false), json!([]))).await;
    assert_eq!(next().await, "opctl: Run 1 (plan), Job job-1");
    // The first fails, and the next one begins in the same moment.
    infra.publish(&status(run(2, false), json!([record(1, "Failed")]))).await;
    assert!(next().await.starts_with("opctl: The pod of Job job-1 is gone"));
    assert_eq!(next().await, "opctl: Run 1 (plan): Failed, after 9s");
    assert_eq!(next().await, "opctl: Run 2 (plan), Job job-2");
    infra.publish(&status(run(2, true), json!([record(2, "Planned"), record(1, "Failed")]))).await;
    assert!(next().await.starts_with("opctl: The pod of Job job-2 is gone"));
    assert_eq!(next().await, "opctl: Run 2 (plan): Planned, after 9s");
    assert_eq!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().code(), Some(0), "as the last one ended");
}

#[tokio::test]
async fn a_workspace_with_fields_of_a_newer_operator_is_shown_and_suspended_all_the_same() {
    let sandbox = Sandbox::start(Options::default()).await.expect("a control plane");
    let user = User::of(&sandbox).await;
    let refused = user.run("tf list").await.refusal();
    assert!(refused.contains("does not know this kind: install the chart terraform-runner-operator, or"), "{refused}");
    // The kind as it may be one day.
    let mut newer = serde_json::to_value(TerraformWorkspace::crd()).unwrap();
    let schema = &mut newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    schema["spec"]["properties"]["budget"] = json!({ "type": "string" });
    schema["status"]["properties"]["weather"] = json!({ "type": "string" });
    install(&user.client, &serde_json::from_value(newer).unwrap()).await;
    let mut workspace: Value = serde_yaml::from_str(NETWORK).unwrap();
    workspace["spec"]["budget"] = json!("3");
    let kind = ApiResource::erase::<TerraformWorkspace>(&());
    let all: Api<DynamicObject> = Api::namespaced_with(user.client.clone(), "default", &kind);
    all.create(&PostParams::default(), &serde_json::from_value(workspace).unwrap()).await.unwrap();
    let mut status: Value = serde_yaml::from_str(APPLIED).unwrap();
    status["weather"] = json!("rain");
    let patch = Patch::Merge(json!({ "status": status }));
    all.patch_status("network", &PatchParams::default(), &patch).await.unwrap();

    assert!(user.run("tf list").await.good().contains("network   True    Ready"));
    assert!(user.run("tf show network").await.good().contains("Applied: 3 resources."));
    user.run("tf suspend network --wait=false").await.good();
    let suspended = all.get("network").await.unwrap();
    assert_eq!(suspended.annotations()["infra.opr8r/suspended"], "true");
    assert_eq!(suspended.data["spec"]["budget"], "3", "what is not known is not touched");
}
