//! OpenTofu plans and applies, and parts are added as people add them. It takes minutes to build: `make e2e` runs this.

mod support;

use std::fs;

use anyhow::{Context, ensure};
use serde_json::Value;
use support::{User, http, until};

const CONFIGURATION: &str = r#"
terraform {
  required_providers {
    random = { source = "hashicorp/random" }
    local  = { source = "hashicorp/local" }
  }
}

resource "random_pet" "name" {
  length = 3
}

resource "local_file" "greeting" {
  filename = "${path.module}/greeting"
  content  = "Hello ${random_pet.name.id}"
}

output "name" {
  value = random_pet.name.id
}
"#;

#[test]
fn opentofu_plans_applies_and_destroys_and_parts_are_added_to_a_sandbox_that_runs() -> anyhow::Result<()> {
    let user = User::new()?;
    let said = user.good("up --with opentofu")?;
    ensure!(said.contains("(TF_CLI_CONFIG_FILE)"), "{said}");
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("main.tf"), CONFIGURATION)?;
    let tofu = |line: &str| user.good(&format!("exec -- tofu -chdir={} {line} -no-color", dir.path().display()));
    tofu("init")?;
    let plan = tofu("plan -out=plan")?;
    ensure!(plan.contains("Plan: 2 to add, 0 to change, 0 to destroy."), "{plan}");
    tofu("apply plan")?;
    let outputs: Value = serde_json::from_str(&tofu("output -json")?)?;
    let name = outputs["name"]["value"].as_str().context("it has a name")?;
    ensure!(name.split('-').count() == 3, "{name}");
    ensure!(fs::read_to_string(dir.path().join("greeting"))? == format!("Hello {name}"));
    ensure!(tofu("plan")?.contains("No changes."), "what was applied is planned again");
    let state: Value = serde_json::from_slice(&fs::read(dir.path().join("terraform.tfstate"))?)?;
    ensure!(state["resources"].as_array().is_some_and(|all| all.len() == 2), "{state:#}");
    let gone = tofu("destroy -auto-approve")?;
    ensure!(gone.contains("2 destroyed") && !dir.path().join("greeting").exists(), "{gone}");

    // A registry comes later, once.
    let said = user.good("registry")?;
    let address = said.lines().find_map(|line| line.strip_prefix("OPCORE_REGISTRY=")).context(said.clone())?.to_owned();
    ensure!(http(&address, "GET /v2/", &[], b"")?.0.starts_with("HTTP/1.0 200"));
    ensure!(user.good("registry")?.trim() == format!("OPCORE_REGISTRY={address}"));
    let said = user.good("up --with git,registry")?;
    ensure!(said.contains(&address) && said.contains("(OPCORE_GIT_URL)"), "{said}");
    let status = user.good("status")?;
    for (part, state) in [("opentofu", "ready"), ("registry", "running"), ("git", "running")] {
        ensure!(status.lines().any(|line| line.starts_with(part) && line.contains(state)), "{part}: {status}");
    }
    ensure!(user.good("logs git")?.contains("serving "));

    // What cannot be is said, and changes nothing.
    for (line, refusal) in [
        (
            "up --with registry,regisrty",
            "There is no part \"regisrty\" to add to a sandbox: choose from git, kustomize",
        ),
        ("up --with traefik", "traefik runs in pods, and sandbox default has no node: start one beside it"),
        ("up --name other --with traefik", "traefik runs in pods, and they need a node: add --node."),
        ("logs prometheus", "Sandbox default has no prometheus: add it with `sandbox up --with prometheus`."),
        ("logs opentofu", "opentofu is a program to be called, and keeps no log."),
    ] {
        let refused = user.run(line)?;
        let said = String::from_utf8(refused.stderr)?;
        ensure!(refused.status.code() == Some(1) && said.contains(refusal), "{line}: {said}");
    }
    ensure!(user.good("list")?.lines().count() == 2, "a refused start leaves something");
    ensure!(user.good("status")?.lines().count() == status.lines().count());

    // One that died is noticed, and all end with the sandbox.
    let git = user.component("default", "git").context("it runs")?;
    support::signal(git, "KILL")?;
    until(|| {
        let status = user.run("status")?;
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        let dead = said.lines().any(|line| line.starts_with("git") && line.contains("dead"));
        ensure!(status.status.code() == Some(1) && dead, "{said}");
        Ok(())
    })?;
    ensure!(user.good("list")?.contains("git does not run"));
    ensure!(user.good("down")? == "Sandbox default is gone.\n");
    ensure!(http(&address, "GET /v2/", &[], b"").is_err(), "the registry goes on");
    support::machine::nothing_left_of(user.dir.path())
}
