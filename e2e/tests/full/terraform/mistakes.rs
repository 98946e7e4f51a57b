//! Invalid input: each mistake is reported with the file, the line or the field, and with the remedy; nothing else is
//! affected.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use e2e::terraform::{annotate, applied, complains, event, inline, install, names, outputs, ready, workspaces, write};
use e2e::{Stage, scenario};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::UNLOCK_ANNOTATION;

const FINE: &str = "output \"it\" {\n  value = \"fine\"\n}\n";

#[tokio::test]
async fn every_mistake_is_reported_with_its_place_and_its_remedy() -> anyhow::Result<()> {
    scenario("every_mistake_is_reported_with_its_place_and_its_remedy", async |stage| {
        install(stage, json!({})).await?;
        futures::try_join!(
            in_the_module(stage),
            in_the_spec(stage),
            a_map_comes_later(stage),
            a_large_module_is_fine(stage),
            somebody_holds_the_lock(stage),
        )?;
        Ok(())
    })
    .await
}

/// Mistakes that only Terraform can find.
async fn in_the_module(stage: &Stage) -> anyhow::Result<()> {
    let cases = [
        ("syntax", "\noutput \"it\" {\n  value = \n}\n", json!({}), "RunFailed", "main.tf:3"),
        (
            "provider",
            "terraform {\n  required_providers {\n    moon = { source = \"example/moon\" }\n  }\n}\n",
            json!({}),
            "RunFailed",
            "example/moon",
        ),
        ("variable", "variable \"size\" {\n  type = number\n}\n", json!({}), "RunFailed", "\"size\""),
        (
            "type",
            "variable \"size\" {\n  type = number\n}\n",
            json!({ "variables": { "size": "large" } }),
            "RunFailed",
            "a number is required",
        ),
        (
            "misspelt",
            "variable \"length\" {\n  default = 1\n}\n",
            json!({ "variables": { "lenght": 2 } }),
            "RunFailed",
            "spec.variables: the module has no variable lenght",
        ),
        ("reference", "output \"it\" {\n  value = local.nothing\n}\n", json!({}), "RunFailed", "main.tf:2"),
    ];
    for (name, module, more, ..) in &cases {
        write(stage, name, spec(&inline(module), more)).await?;
    }
    // It is not done within a second.
    let slow = json!({ "timeouts": { "plan": "1s" } });
    write(stage, "slow", spec(&inline(SLOW), &slow)).await?;
    for (name, _, _, reason, words) in &cases {
        reported(stage, name, reason, &[words]).await?;
    }
    reported(stage, "slow", "RunTimedOut", &["took longer than 1s", "spec.timeouts"]).await
}

/// Planning this many resources takes a while.
const SLOW: &str = r#"
resource "random_string" "it" {
  count  = 20000
  length = 8
}
"#;

/// Mistakes that the operator finds: no pod starts.
async fn in_the_spec(stage: &Stage) -> anyhow::Result<()> {
    let file = |path: &str| json!({ "inline": { "files": { "main.tf": FINE, path: FINE } } });
    let cases = [
        ("escape", file("../up.tf"), json!({}), r#"spec.module.inline.files["../up.tf"]"#),
        ("absolute", file("/etc/passwd"), json!({}), r#"spec.module.inline.files["/etc/passwd"]"#),
        ("hidden", file("a/../../b.tf"), json!({}), r#"spec.module.inline.files["a/../../b.tf"]"#),
        ("builtin", json!({ "builtin": "simpel" }), json!({}), "spec.module.builtin"),
        (
            "reserved",
            inline(FINE),
            json!({ "env": [{ "name": "TF_HTTP_ADDRESS", "value": "x" }] }),
            r#"spec.env["TF_HTTP_ADDRESS"]"#,
        ),
        ("called", inline(FINE), json!({ "variables": { "a b": 1 } }), r#"spec.variables["a b"]"#),
    ];
    for (name, module, more, field) in cases {
        write(stage, name, spec(&module, &more)).await?;
        reported(stage, name, "InvalidSpec", &[field]).await?;
        let runs = workspaces(stage).get(name).await?.status.and_then(|status| status.run);
        ensure!(runs.is_none(), "{name}: {runs:?}");
    }
    // What the schema excludes is rejected before it is stored.
    let both =
        write(stage, "both", json!({ "module": { "builtin": "simple", "inline": { "files": { "main.tf": "" } } } }))
            .await;
    let words = format!("{:#}", both.err().context("it is refused")?);
    ensure!(
        words.contains("spec.module") && words.contains("exactly one of inline, configMapRef and builtin"),
        "{words}"
    );
    Ok(())
}

async fn a_map_comes_later(stage: &Stage) -> anyhow::Result<()> {
    write(stage, "early", spec(&json!({ "configMapRef": { "name": "late" } }), &json!({}))).await?;
    reported(stage, "early", "InputNotFound", &["spec.module.configMapRef", "ConfigMap late does not exist"]).await?;
    map(stage, "late", &BTreeMap::from([("main.tf".to_owned(), FINE.to_owned())])).await?;
    let fine = outputs(stage, &ready(stage, "early").await?).await?;
    ensure!(fine["it"] == "fine", "{fine:?}");
    Ok(())
}

/// More than a megabyte in the files of one spec is too large; a ConfigMap can contain one, and the inputs are
/// compressed.
async fn a_large_module_is_fine(stage: &Stage) -> anyhow::Result<()> {
    let comment = |file: usize| {
        (0..8_000).fold(String::new(), |text, line| text + &format!("# {file} {line} {:x}\n", line * 7919 + file))
    };
    let mut files: BTreeMap<String, String> = (0..7).map(|file| (format!("part-{file}.tf"), comment(file))).collect();
    files.insert("main.tf".to_owned(), FINE.to_owned());
    let size: usize = files.values().map(String::len).sum();
    ensure!(size > 700_000 && size < 1_000_000, "{size}");
    map(stage, "large", &files).await?;
    applied(stage, "large", spec(&json!({ "configMapRef": { "name": "large" } }), &json!({}))).await?;

    // Two ConfigMaps: in addition to the module, a value that makes more than a mebibyte in total.
    let values = BTreeMap::from([("text".to_owned(), "0123456789".repeat(90_000))]);
    map(stage, "values", &values).await?;
    files.insert(
        "main.tf".to_owned(),
        "variable \"text\" {}\noutput \"length\" {\n  value = length(var.text)\n}\n".to_owned(),
    );
    map(stage, "larger", &files).await?;
    let from = json!({ "variablesFrom": [{ "configMapRef": { "name": "values" } }] });
    let larger = applied(stage, "larger", spec(&json!({ "configMapRef": { "name": "larger" } }), &from)).await?;
    ensure!(outputs(stage, &larger).await?["length"] == "900000");
    Ok(())
}

async fn somebody_holds_the_lock(stage: &Stage) -> anyhow::Result<()> {
    let module = "variable \"it\" {\n  default = 1\n}\nresource \"terraform_data\" \"it\" {\n  input = var.it\n}\n";
    let made = applied(stage, "locked", spec(&inline(module), &json!({}))).await?;
    let lock = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": names(&made).lease() },
        "spec": { "holderIdentity": "jane@laptop" },
    });
    let leases: Api<Lease> = stage.api();
    leases.patch(&names(&made).lease(), &PatchParams::apply("jane").force(), &Patch::Apply(&lock)).await?;
    write(stage, "locked", spec(&inline(module), &json!({ "variables": { "it": 2 } }))).await?;
    reported(stage, "locked", "StateLocked", &["jane@laptop holds the lock", "opctl tf unlock locked"]).await?;
    let workspace = workspaces(stage).get("locked").await?;
    let holder = workspace.status.and_then(|status| status.lock).map(|lock| lock.holder);
    ensure!(holder.as_deref() == Some("jane@laptop"), "{holder:?}");
    annotate(stage, "locked", UNLOCK_ANNOTATION, "jane@laptop").await?;
    ready(stage, "locked").await.map(drop)
}

/// Waits until a workspace reports this, once as a condition and once as an Event.
async fn reported(stage: &Stage, name: &str, reason: &str, words: &[&str]) -> anyhow::Result<()> {
    let message = complains(stage, name, reason).await?;
    for words in words {
        ensure!(message.contains(words), "{name}: {words:?} is missing in: {message}");
    }
    let event_message = event(&stage.api(), name, reason).await?;
    for words in words {
        ensure!(event_message.contains(words), "{name}: {words:?} is missing in the Event: {event_message}");
    }
    let events = stage.api::<Event>().list(&ListParams::default()).await?;
    let about =
        |event: &&Event| event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason);
    let reported: Vec<_> = events.iter().filter(about).map(|event| event.message.clone()).collect();
    ensure!(reported.len() == 1, "{name}: emitted {} times: {reported:?}", reported.len());
    Ok(())
}

async fn map(stage: &Stage, name: &str, data: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data });
    stage.write(&map.to_string()).await
}

fn spec(module: &Value, more: &Value) -> Value {
    let mut spec = json!({ "module": module, "drift": { "action": "Off" } });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}
