//! Runs of OpenTofu, with a real API server: `make e2e`, or `cargo test -p terraform-runner-operator --test tofu`.
//!
//! Not among the tests of `make test`: from nothing, building OpenTofu takes minutes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]
#![allow(unreachable_pub, reason = "a program has no outside; what its programs share has")]

mod applying;
mod crashing;
mod failing;
mod planning;
#[path = "../support/pod.rs"]
mod pod;
mod values;

use std::collections::BTreeMap;

use pod::{Tools, Workspace};
use sandbox::{Options, Sandbox};
use serde_json::{Value, json};
use terraform_runner_operator::run::bundle::Bundle;
use tokio::sync::OnceCell;

/// The module that comes with the operator.
const SIMPLE: &str = include_str!("../../modules/simple/main.tf.tpl");

/// A workspace on a control plane with OpenTofu beside it.
async fn workspace(prefix: &str) -> Workspace {
    static SHARED: OnceCell<Sandbox> = OnceCell::const_new();
    let start = || async {
        let part = "opentofu".parse().expect("there is such a part");
        Sandbox::start(Options { with: vec![part], ..Options::default() }).await.expect("a control plane with OpenTofu")
    };
    let sandbox = SHARED.get_or_init(start).await;
    let mut workspace = Workspace::new(sandbox, prefix).await;
    let tofu = sandbox.bin("tofu").expect("OpenTofu");
    let env: BTreeMap<String, String> = sandbox.facts("opentofu".parse().unwrap());
    workspace.tools = Tools { path: vec![tofu.parent().unwrap().to_owned()], env };
    workspace
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
