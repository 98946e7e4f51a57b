//! Values arrive unchanged, and confidential ones appear nowhere else.

use opcore::digest;
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{Action, Binary, Outcome, Severity};
use terraform_runner_operator::render::{self, Source};
use terraform_runner_operator::run::bundle::Bundle;
use terraform_runner_operator::store::{inputs, plan, report};

use crate::pod::noise;
use crate::{module, simple, workspace, workspace_of};

with_both_engines!(
    whatever_a_value_contains_it_arrives_as_data,
    a_confidential_value_is_in_no_output_report_or_plan_text,
    a_plan_shows_nothing_of_what_it_takes_apart_or_escapes,
);

const ECHO: &str = r#"
variable "text" {
  type = any
}

resource "terraform_data" "echo" {
  input = var.text
}

output "text" {
  value = terraform_data.echo.output
}
"#;

async fn whatever_a_value_contains_it_arrives_as_data(engine: Binary) {
    let workspace = workspace_of(engine, "values").await;
    let texts = json!([
        "\"quotes\" and 'quotes' and \\ and \\\"",
        "${file(\"/etc/passwd\")} %{ if true }x%{ endif } $${kept} {{ .Values }}",
        "two\nlines\r\nand a tab\t",
        "<<EOT\nheredoc\nEOT\n",
        "ünïcödé 日本語 🦀 \u{0001} \u{2028}",
        "",
        { "nested": [1, true, 2.5, "three"], "a \"key\"": "${var.text}" },
        "x".repeat(1_000_000),
    ]);
    let bundle = module(ECHO, [("text".to_owned(), texts.clone())].into());
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied);
    let outputs = workspace.outputs().await;
    for (number, text) in texts.as_array().unwrap().iter().enumerate() {
        assert!(
            outputs["text"].value[number] == *text,
            "{number} is another: {:.100}",
            outputs["text"].value[number].to_string()
        );
    }
    let bundle = simple(&workspace, json!({ "prefix": texts[1], "vars": { "a\"${1}": texts[3] } }));
    let pod = workspace.pod(2);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied);
    assert!(workspace.outputs().await["file_content"].text().starts_with(texts[1].as_str().unwrap()));
}

#[tokio::test]
async fn inputs_of_several_chunks_arrive_whole() {
    let workspace = workspace("chunks").await;
    let text = noise(3_000_000);
    let module_text = "variable \"text\" {}\noutput \"sum\" {\n  value = sha256(var.text)\n}\n";
    let bundle = module(module_text, [("text".to_owned(), text.as_str().into())].into());
    assert!(inputs::chunks(&bundle.bytes().unwrap()).len() > 2);
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied, "{:?}", report.diagnostics);
    assert_eq!(workspace.outputs().await["sum"].text(), digest::of_bytes(text.as_bytes()));
}

#[tokio::test]
async fn an_output_that_no_key_can_be_called_after_is_reported() {
    let workspace = workspace("keys").await;
    let bundle = module("output \"größe\" {\n  value = 1\n}\noutput \"size\" {\n  value = 2\n}\n", [].into());
    let pod = workspace.pod(1);
    let (_, report) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(report.outcome, Outcome::Applied);
    let said: Vec<_> = report.diagnostics.iter().map(|said| (said.severity, said.summary.as_str())).collect();
    let expected = "The output größe is not written to the Secret, because its name is not a valid key";
    assert_eq!(said, [(Severity::Warning, expected)]);
    assert_eq!(workspace.outputs().await["size"].text(), "2");
}

async fn a_confidential_value_is_in_no_output_report_or_plan_text(engine: Binary) {
    let workspace = workspace_of(engine, "canary").await;
    let canary = "canary-\"4711\"<&>\nsecond-line-0815";
    let text = format!(
        "{ECHO}\nresource \"terraform_data\" \"keys\" {{\n  for_each = toset([substr(var.text, 0, 200)])\n}}\n"
    );
    let mut bundle = module(&text, [("text".to_owned(), canary.into())].into());
    bundle.env.insert("TF_LOG".to_owned(), "trace".to_owned());
    bundle.env.insert("TF_VAR_unused".to_owned(), canary.to_owned());
    bundle.confidential = vec![canary.to_owned()];
    let nowhere = |place: &str, text: &str| {
        for secret in ["4711", "second-line-0815"] {
            assert!(
                !text.contains(secret),
                "{place} has it: …{:.300}",
                &text[text.find(secret).unwrap().saturating_sub(100)..]
            );
        }
    };
    let pod = workspace.pod(1);
    let (printed, planned) = pod.run_to_end(&pod.order(Action::Plan, &bundle), &bundle).await;
    assert_eq!(planned.outcome, Outcome::Planned);
    nowhere("what is printed", &printed);
    nowhere("the report", &json!(planned).to_string());
    let words = plan::text(&workspace.store()).await.unwrap().unwrap();
    assert!(words.contains("terraform_data.echo") && words.contains("(redacted)"), "{words}");
    nowhere("the plan", &words);
    let mut bad = bundle.clone();
    let check = "\nresource \"terraform_data\" \"bad\" {\n  lifecycle {\n    precondition {\n      condition = var.text == 0\n      error_message = \"It is ${var.text}\"\n    }\n  }\n}\n";
    bad.files.insert("bad.tf".to_owned(), check.to_owned());
    let pod = workspace.pod(2);
    let (printed, failed) = pod.run_to_end(&pod.order(Action::Apply, &bad), &bad).await;
    assert_eq!(failed.outcome, Outcome::Failed);
    assert!(failed.diagnostics[0].detail.as_ref().unwrap().contains("It is (redacted)"), "{:?}", failed.diagnostics);
    nowhere("what is printed", &printed);
    nowhere("the report", &json!(failed).to_string());
    let pod = workspace.pod(3);
    let (printed, applied) = pod.run_to_end(&pod.order(Action::Apply, &bundle), &bundle).await;
    assert_eq!(applied.outcome, Outcome::Applied);
    nowhere("what is printed", &printed);
    nowhere("the report", &json!(applied).to_string());
    let outputs = report::outputs(&workspace.store()).await.unwrap().unwrap();
    assert_eq!(outputs["text"].value, Value::from(canary), "where it belongs, it is");
}

async fn a_plan_shows_nothing_of_what_it_takes_apart_or_escapes(engine: Binary) {
    let workspace = workspace_of(engine, "apart").await;
    let innermost = json!({ "password": "canary-inner" }).to_string();
    let inner = json!({ "user": "canary-user", "more": innermost }).to_string();
    // Numbers as they are written: no float can represent the first one.
    let nested = format!(r#"{{"pin": 47110815471108154711081547110815, "rate": 4711.50, "more": {}}}"#, json!(inner));
    let texts = [
        ("nested", nested.as_str()),
        ("bom", "\u{feff}canary-bom"),
        ("space", "canary\u{a0}space"),
        ("zeros", "000815471"),
        ("composed", "canary-a\u{308}-composed"),
    ];
    let found = texts.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into();
    let text = r#"
variable "nested" {}
variable "bom" {}
variable "space" {}
variable "composed" {}
variable "zeros" {
  type = number
}

resource "terraform_data" "all" {
  for_each = { nested = var.nested, bom = var.bom, space = var.space, composed = var.composed }
  input    = each.value
}

resource "terraform_data" "taken_apart" {
  input = [var.zeros, jsondecode(var.nested), jsondecode(jsondecode(var.nested).more)]
}
"#;
    let spec = json!({
        "module": { "inline": { "files": { "main.tf": text } } },
        "variablesFrom": [{ "secretRef": { "name": "creds" } }],
    });
    let sources = [((Source::Secret, "creds".to_owned()), Some(found))].into();
    let inputs = render::inputs(&serde_json::from_value(spec).unwrap(), &sources).unwrap();
    let bundle = Bundle::parse(&inputs::join(&inputs.chunks).unwrap()).unwrap();
    let pod = workspace.pod(1);
    let (printed, planned) = pod.run_to_end(&pod.order(Action::Plan, &bundle), &bundle).await;
    assert_eq!(planned.outcome, Outcome::Planned, "{:?}", planned.diagnostics);
    let words = plan::text(&workspace.store()).await.unwrap().unwrap();
    assert!(words.contains("password") && words.contains("(redacted)"), "{words}");
    for (place, text) in [("the plan", words), ("what is printed", printed), ("the report", json!(planned).to_string())]
    {
        for secret in ["canary", "4711", "815471", "-composed"] {
            assert!(!text.contains(secret), "{place} has {secret}: {text}");
        }
    }
}
