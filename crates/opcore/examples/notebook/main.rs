//! A complete operator: a `Notebook` in, one ConfigMap per page out, and a cover that is written last and deleted last.
#![allow(unreachable_pub, reason = "a program has no outside; the tests of this crate include the same module")]

mod operator;

#[global_allocator]
static ALLOCATOR: opcore::Allocator = opcore::Allocator;

fn main() -> std::process::ExitCode {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        // JSON is YAML: `notebook crd | kubectl apply -f -`.
        println!("{:#}", serde_json::json!(<operator::Notebook as kube::CustomResourceExt>::crd()));
        return std::process::ExitCode::SUCCESS;
    }
    let build = opcore::metrics::BuildInfo { name: operator::NAME, ..opcore::build_info!() };
    opcore::runtime::run(build, |context| async move { context.controller(operator::Notebooks).await })
}
