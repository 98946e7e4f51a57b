//! `list` and `status`: what people see of plans, once and while they change.

use std::process::Stdio;

use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use sandbox::{Component, Options, Sandbox, Signal};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::Command;
use tokio::time::timeout;
use wave_orchestrator::api::v1alpha1::WavePlan;

use crate::user::{DONE, FLEET, PATIENCE, ROLLING_OUT, TIMED_OUT, User};

#[tokio::test]
async fn a_list_tells_where_each_plan_stands() {
    let user = User::shared().await;
    user.plan("list-running", ROLLING_OUT).await;
    user.plan("list-done", DONE).await;
    let table = user.run("waves list").await.good();
    let line = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{table}"));
    assert!(table.starts_with("NAME "), "{table}");
    assert!(
        line("list-running").contains("False   Running   3/7     infrastructure-monitoring, database-work"),
        "{table}"
    );
    assert!(line("list-done").contains("True    Ready     7/7     -"), "{table}");

    let list: Value = serde_json::from_str(&user.run("waves list -o json").await.good()).unwrap();
    let done = list.as_array().unwrap().iter().find(|plan| plan["name"] == "list-done").unwrap();
    assert_eq!((&done["ready"], &done["phase"], &done["progress"]), (&json!(true), &json!("Ready"), &json!("7/7")));
    assert_eq!(done["message"], "All 7 waves are ready.");
    user.remove(&["list-done", "list-running"]).await;
}

#[tokio::test]
async fn a_plan_with_fields_of_a_newer_operator_is_shown_and_paused_all_the_same() {
    let sandbox = Sandbox::start(Options::default()).await.expect("a control plane");
    let user = User::of(&sandbox).await;
    // The kind as it may be one day.
    let mut newer = serde_json::to_value(WavePlan::crd()).unwrap();
    let schema = &mut newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    schema["spec"]["properties"]["budget"] = json!({ "type": "string" });
    schema["spec"]["properties"]["waves"]["items"]["properties"]["canary"] =
        json!({ "type": "object", "properties": { "percent": { "type": "integer" } } });
    schema["status"]["properties"]["weather"] = json!({ "type": "string" });
    schema["status"]["properties"]["phase"] = json!({ "type": "string" });
    opcore_testing::wait::install(&user.client, &serde_json::from_value(newer).unwrap()).await;
    let mut plan: Value = serde_yaml::from_str(FLEET).unwrap();
    plan["spec"]["budget"] = json!("3");
    plan["spec"]["waves"][0]["canary"] = json!({ "percent": 10 });
    let plans: Api<DynamicObject> = Api::all_with(user.client.clone(), &ApiResource::erase::<WavePlan>(&()));
    plans.create(&PostParams::default(), &serde_json::from_value(plan).unwrap()).await.unwrap();
    let status = json!({ "status": { "phase": "Dreaming", "weather": "rain", "progress": "3/7" } });
    plans.patch_status("fleet", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();

    let list = user.run("waves list").await.good();
    assert!(list.lines().any(|line| line.starts_with("fleet ") && line.contains(" 3/7 ")), "{list}");
    assert!(user.run("waves graph fleet").await.good().contains("critical path, 40m in all"));
    let shown = user.run("waves status fleet").await.good();
    assert!(shown.contains("infrastructure-core"), "{shown}");
    user.run("waves pause fleet --wait=false").await.good();
    let paused = plans.get("fleet").await.unwrap();
    assert_eq!(paused.annotations()["waves.opcore.dev/paused"], "true");
    assert_eq!(paused.data["spec"]["budget"], "3", "what is not known is not touched");
}

#[tokio::test]
async fn a_status_is_a_tree_without_colours_in_a_pipe() {
    let user = User::shared().await;
    user.plan("tree", TIMED_OUT).await;
    let text = user.run("waves status tree").await.good();
    assert!(text.starts_with("tree   Failed   4/7 waves"), "{text}");
    assert!(text.contains("│ └─✘ database-workloads ★       TimedOut   4/5"), "{text}");
    assert!(text.contains("TooFewInstances: Cluster db/orders has 1 of 3 instances ready."), "{text}");
    assert!(text.contains("blocked by database-workloads"), "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");

    let status: Value = serde_json::from_str(&user.run("waves status tree -o json").await.good()).unwrap();
    assert_eq!((&status["name"], &status["phase"]), (&json!("tree"), &json!("Failed")));
    assert_eq!(status["waves"][4]["phase"], "TimedOut");
    user.remove(&["tree"]).await;
}

/// The lines up to the one with these words.
async fn until<R: AsyncBufRead + Unpin>(lines: &mut Lines<R>, wanted: &str) -> Vec<String> {
    let mut read = Vec::new();
    loop {
        let line = timeout(PATIENCE, lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("no {wanted:?} in {read:#?}")).unwrap();
        read.push(line.unwrap_or_else(|| panic!("it ended without {wanted:?}: {read:#?}")));
        if read.last().unwrap().contains(wanted) {
            return read;
        }
    }
}

#[tokio::test]
async fn following_a_plan_in_a_log_prints_a_line_per_change_and_ends_when_it_is_ready() {
    let user = User::shared().await;
    user.plan("followed", ROLLING_OUT).await;
    let mut child = user.command("waves status followed --watch").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let read = until(&mut lines, "WavePlan followed: Running, 3/7 waves").await;
    assert_eq!(read.len(), 8, "each wave and the plan: {read:#?}");

    user.publish("followed", &ROLLING_OUT.replace("ready: 2", "ready: 4")).await;
    let read = until(&mut lines, "database-workloads").await;
    assert!(read.len() == 1 && read[0].contains("Running    4/5"), "only what changed: {read:#?}");

    user.publish("followed", DONE).await;
    until(&mut lines, "services                   Ready      4/4  after 1m").await;
    until(&mut lines, "WavePlan followed: Ready, 7/7 waves").await;
    assert_eq!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().code(), Some(0));
    user.remove(&["followed"]).await;
}

#[tokio::test]
async fn following_survives_a_restart_of_the_api_server() {
    let sandbox = Sandbox::start(Options::default()).await.expect("a control plane");
    let user = User::of(&sandbox).await;
    user.install().await;
    user.plan("survivor", ROLLING_OUT).await;
    let mut command = user.command("waves status survivor --watch");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut complaints = BufReader::new(child.stderr.take().unwrap()).lines();
    until(&mut lines, "WavePlan survivor: Running").await;

    sandbox.stop(Component::ApiServer, Signal::Kill).await.unwrap();
    let said = until(&mut complaints, "cannot be reached").await;
    assert!(said[0].starts_with("opctl: The watch failed, and is started again: "), "{said:#?}");
    sandbox.restart(Component::ApiServer).await.unwrap();
    user.publish("survivor", DONE).await;
    until(&mut lines, "WavePlan survivor: Ready, 7/7 waves").await;
    assert_eq!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().code(), Some(0));
}

#[tokio::test]
async fn following_ends_with_failure_when_a_plan_fails_takes_too_long_or_is_deleted() {
    let user = User::shared().await;
    user.plan("fails", TIMED_OUT).await;
    assert!(user.run("waves status fails --watch").await.bad().contains("WavePlan fails: Failed, 4/7 waves"));

    user.plan("slow", ROLLING_OUT).await;
    let answer = user.run("waves status slow --watch --timeout 1s").await;
    assert_eq!(answer.refusal(), "WavePlan slow was not ready within 1s: follow it longer with --timeout.");

    let mut child =
        user.command("waves status slow --watch").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    timeout(PATIENCE, out.read_line(&mut String::new())).await.expect("a first line").unwrap();
    user.plans().delete("slow", &DeleteParams::default()).await.unwrap();
    let output = timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "opctl: WavePlan slow was deleted.\n");
    assert_eq!(output.status.code(), Some(1));
    user.remove(&["fails"]).await;
}

#[tokio::test]
async fn following_as_json_prints_one_object_a_line() {
    let user = User::shared().await;
    user.plan("json-lines", DONE).await;
    let text = user.run("waves status json-lines --watch -o json").await.good();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["phase"]), (1, &json!("Ready")));
    user.remove(&["json-lines"]).await;
}

#[tokio::test]
async fn on_a_terminal_the_tree_is_drawn_in_place_with_colours_unless_nobody_wants_them() {
    let user = User::shared().await;
    for (no_color, coloured) in [("", true), ("1", false)] {
        user.plan("drawn", ROLLING_OUT).await;
        // `script` gives its command a real terminal.
        let line = format!("'{}' waves status drawn --watch", env!("CARGO_BIN_EXE_opctl"));
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
        script.env("KUBECONFIG", &user.kubeconfig).env("TERM", "xterm").env("NO_COLOR", no_color);
        let mut child = script.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();

        let mut drawn = Vec::new();
        let turns = |drawn: &[u8]| {
            let text = String::from_utf8_lossy(drawn).into_owned();
            ["◐", "◓", "◑", "◒"].iter().filter(|symbol| text.contains(**symbol)).count() > 1
        };
        while !turns(&drawn) {
            let read = timeout(PATIENCE, out.read_buf(&mut drawn)).await.expect("a second drawing").unwrap();
            assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&drawn));
        }
        user.publish("drawn", DONE).await;
        timeout(PATIENCE, out.read_to_end(&mut drawn)).await.expect("it ends").unwrap();
        let text = String::from_utf8(drawn).unwrap();
        let lines = text.split("\x1b[J").next().unwrap().lines().count();
        assert!(text.contains(&format!("\x1b[{lines}A")), "the next drawing covers the first: {text:?}");
        assert_eq!(text.contains("\x1b[36mRunning\x1b[0m"), coloured, "NO_COLOR={no_color}: {text:?}");
        assert!(text.ends_with("★ critical path, 9m in all\x1b[K\r\n\x1b[J"), "{text:?}");
        assert_eq!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().code(), Some(0));
    }
    user.remove(&["drawn"]).await;
}
