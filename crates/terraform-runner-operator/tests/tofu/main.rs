//! Runs of OpenTofu, and some of Terraform, with a real API server: `make e2e`, or `cargo test -p
//! terraform-runner-operator --test tofu`.
//!
//! Not among the tests of `make test`, because a first build of the two takes minutes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]
#![allow(unreachable_pub, reason = "a program has no outside; what its programs share has")]

/// Runs each of these tests with both engines.
macro_rules! with_both_engines {
    ($($test:ident),+ $(,)?) => {
        mod tofu {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::Binary::Tofu).await;
            })+
        }
        mod terraform {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::Binary::Terraform).await;
            })+
        }
    };
}

mod applying;
mod crashing;
mod failing;
mod killing;
mod planning;
#[path = "../support/pod.rs"]
mod pod;
mod providing;
mod values;

use std::collections::BTreeMap;

use pod::{Tools, Workspace};
use sandbox::{Options, Part, Sandbox};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::Binary;
use terraform_runner_operator::run::bundle::Bundle;
use terraform_runner_operator::run::order::StateOrder;
use tokio::sync::OnceCell;

/// The module that is part of the operator.
const SIMPLE: &str = include_str!("../../modules/simple/main.tf.tpl");

/// A state must exist.
const EXPECTED: StateOrder = StateOrder { adopts: false, same_place: true, expected: true };

/// A workspace of OpenTofu.
async fn workspace(prefix: &str) -> Workspace {
    workspace_of(Binary::Tofu, prefix).await
}

/// A workspace of this engine, on a control plane, with both programs available.
async fn workspace_of(binary: Binary, prefix: &str) -> Workspace {
    static SHARED: OnceCell<Sandbox> = OnceCell::const_new();
    let parts = || ["opentofu", "terraform"].map(|part| part.parse::<Part>().expect("there is such a part"));
    let start = || async {
        let options = Options { with: parts().to_vec(), ..Options::default() };
        Sandbox::start(options).await.expect("a control plane with OpenTofu and Terraform")
    };
    let sandbox = SHARED.get_or_init(start).await;
    let mut workspace = Workspace::new(sandbox, prefix).await;
    let program = sandbox.bin(binary.program()).expect("it was built");
    let env: BTreeMap<String, String> = sandbox.facts(parts()[usize::from(binary == Binary::Terraform)]);
    workspace.binary = binary;
    workspace.tools = Tools { path: vec![program.parent().unwrap().to_owned()], env };
    workspace
}

/// The beginning of the version line of an engine.
fn called(binary: Binary) -> &'static str {
    match binary {
        Binary::Tofu => "OpenTofu v1.",
        Binary::Terraform => "Terraform v1.",
    }
}

/// The module `simple` with these values.
fn simple(workspace: &Workspace, values: Value) -> Bundle {
    let own = json!({ "name": "sample", "namespace": workspace.namespace, "length": 16 });
    let values = [own, values].into_iter().filter_map(|values| values.as_object().cloned()).flatten();
    module(SIMPLE, values.collect())
}

/// A module of one file.
fn module(text: &str, variables: BTreeMap<String, Value>) -> Bundle {
    Bundle { files: [("main.tf".to_owned(), text.to_owned())].into(), variables, ..Bundle::default() }
}
