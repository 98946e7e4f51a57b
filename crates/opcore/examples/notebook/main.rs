//! A whole operator: a `Notebook` in, one ConfigMap per page out, and a cover that comes last and goes last.
#![allow(unreachable_pub, reason = "a program has no outside; the tests of this crate include the same module")]

mod operator;

fn main() -> std::process::ExitCode {
    let build = opcore::metrics::BuildInfo { name: operator::NAME, ..opcore::build_info!() };
    opcore::runtime::run(build, |context| async move { context.controller(operator::Notebooks).await })
}
