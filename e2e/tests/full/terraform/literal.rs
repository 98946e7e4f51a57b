//! The input of users is data: it arrives as it was written, and expressions in it are not evaluated.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use e2e::terraform::{applied, inline, install, outputs, resources, texts};
use e2e::{PATIENCE, Stage, scenario, until};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{SimpleResource, WorkspacePhase};

const MODULE: &str = r#"
variable "text" {
  type = string
}

variable "anything" {
  type = any
}

variable "from_secret" {
  type = string
}

variable "from_map" {
  type = string
}

resource "terraform_data" "it" {
  input = { text = var.text, anything = var.anything }
}

output "text" {
  value = terraform_data.it.output.text
}

output "anything" {
  value = terraform_data.it.output.anything
}

output "from_secret" {
  value = var.from_secret
}

output "from_map" {
  value = var.from_map
}
"#;

#[tokio::test]
async fn quotes_templates_heredocs_and_half_a_megabyte_arrive_as_they_were_written() -> anyhow::Result<()> {
    scenario("quotes_templates_heredocs_and_half_a_megabyte_arrive_as_they_were_written", async |stage| {
        install(stage, json!({})).await?;
        let all = texts_that_mean_something_elsewhere();
        let whole = all.values().fold(String::new(), |whole, text| whole + text + "\n");
        let large = (0..28_000).fold(String::new(), |large, number| large + &format!("${{line {number:05}}} \"'\\ "));
        ensure!(large.len() > 500_000, "{}", large.len());
        futures::try_join!(
            workspace(stage, "each", &whole, json!(all)),
            workspace(stage, "large", &large, json!({ "nested": [{ "deep": whole }], "number": 1.5, "truth": true })),
            resource(stage, "nasty", &whole),
            resource(stage, "bulky", &large),
        )?;
        Ok(())
    })
    .await
}

fn texts_that_mean_something_elsewhere() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([
        ("quotes", r#"" ' ` \" \\ \n \u0041"#),
        ("function", r#"${file("/etc/passwd")}"#),
        ("escaped function", r#"$${file("/etc/passwd")} $$$${x}"#),
        ("directive", "%{ for line in [1, 2] }${line}%{ endfor } %%{ if true }"),
        ("heredoc", "<<-EOT\n  ${path.module}\nEOT\n"),
        ("end of a block", "\"\n}\nresource \"terraform_data\" \"more\" {\n"),
        ("shell", "$(cat /etc/passwd) `id` ; rm -rf / # && || > x"),
        ("template", "{{ .Values.x }} {{ name }} {{"),
        // Combining accents are not among them: Terraform normalizes them.
        ("unicode", "ä ö ü ß é 漢字 🦀 \u{200b}\u{202e}\u{feff}"),
        ("white space", " \t leading, trailing \r\n \n "),
        ("markup", "<script>alert(1)</script> & &amp;"),
        ("yaml", "- &a [*a, !!str 1, ~]"),
        ("empty", ""),
    ])
}

async fn workspace(stage: &Stage, name: &str, text: &str, anything: Value) -> anyhow::Result<()> {
    // All outputs together must fit into one Secret.
    let part = text.get(..100_000).unwrap_or(text);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { "from_secret": part },
    });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "from_map": part },
    });
    stage.write(&secret.to_string()).await?;
    stage.write(&map.to_string()).await?;
    let spec = json!({
        "module": inline(MODULE),
        "variables": { "text": text, "anything": anything },
        "variablesFrom": [{ "secretRef": { "name": name } }, { "configMapRef": { "name": name } }],
        // It is not used, but must do no harm either.
        "env": [{ "name": "TEXT", "value": text.get(..100).unwrap_or(text) }],
    });
    let outputs = outputs(stage, &applied(stage, name, spec).await?).await?;
    for (key, text) in [("text", text), ("from_secret", part), ("from_map", part)] {
        ensure!(outputs[key] == text, "{name}, {key}: {:?}", outputs[key].get(..500).unwrap_or(&outputs[key]));
    }
    let arrived: Value = serde_json::from_str(&outputs["anything"])?;
    ensure!(arrived == anything, "{name}: {arrived:#}");
    Ok(())
}

async fn resource(stage: &Stage, name: &str, prefix: &str) -> anyhow::Result<()> {
    let resource = json!({
        "apiVersion": "infra.opr8r/v1alpha1",
        "kind": "SimpleResource",
        "metadata": { "name": name },
        "spec": { "length": 8, "prefix": prefix, "vars": { "special": "${true}", "${upper}": prefix.get(..1000).unwrap_or(prefix) } },
    });
    resources(stage).patch(name, &PatchParams::apply("e2e"), &Patch::Apply(&resource)).await?;
    let is_ready = |resource: &SimpleResource| {
        resource.status.as_ref().is_some_and(|status| status.phase == WorkspacePhase::Ready)
    };
    let ready = until(&resources(stage), name, "Ready", PATIENCE, is_ready).await?;
    let outputs = texts(&stage.api(), &format!("{name}-simple-outputs")).await?;
    let value = ready.status.and_then(|status| status.random_value).context("it has a value")?;
    ensure!(value.chars().all(char::is_alphanumeric), "special is not true, and was taken for it: {value}");
    ensure!(outputs["file_content"] == format!("{prefix}{value}"), "{name}: {:?}", outputs["file_content"].get(..500));
    Ok(())
}
