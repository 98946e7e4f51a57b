//! The program that runs in the pod of the Job without the operator: init, plan and apply, as the runner calls them,
//! and nothing else.
//!
//! It is compiled separately, without libraries, because the image has no shell.

use std::process::{Command, ExitCode};

const FOLDER: &str = "/run/work";
const STEPS: [&[&str]; 3] = [
    &["init", "-input=false", "-json"],
    &["plan", "-input=false", "-json", "-out=plan"],
    &["apply", "-input=false", "-json", "plan"],
];

/// The log says when each step starts, and when all are done.
pub fn main() -> ExitCode {
    for (variable, file) in [("MODULE", "main.tf"), ("VARIABLES", "terraform.tfvars.json")] {
        let text = std::env::var(variable).unwrap_or_default();
        if let Err(error) = std::fs::write(format!("{FOLDER}/{file}"), text) {
            println!("{file} cannot be written: {error}");
            return ExitCode::FAILURE;
        }
    }
    for step in STEPS {
        println!("── tofu {}", step[0]);
        let mut tofu = Command::new("tofu");
        tofu.args(step).current_dir(FOLDER);
        tofu.env("TF_DATA_DIR", "/run/work/data").env("HOME", "/run/work/data");
        tofu.env("TF_IN_AUTOMATION", "1").env("TF_INPUT", "0").env("CHECKPOINT_DISABLE", "1");
        if !tofu.status().is_ok_and(|status| status.success()) {
            println!("tofu {} failed", step[0]);
            return ExitCode::FAILURE;
        }
    }
    println!("── done");
    ExitCode::SUCCESS
}
