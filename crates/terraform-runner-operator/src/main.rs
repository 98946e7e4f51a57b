//! The operator: see the library beside it.

use clap::Args;
use terraform_runner_operator::api::v1alpha1::SimpleResource;
use terraform_runner_operator::controller::Workspaces;
use terraform_runner_operator::render::Settings;
use terraform_runner_operator::slots::Limits;
use terraform_runner_operator::typed::TypedKind;

/// What this operator has beyond the flags of all.
#[derive(Args, Clone, Debug)]
struct RunFlags {
    /// The image with the runner and OpenTofu.
    #[arg(long, env = "OPCORE_RUNNER_IMAGE", default_value = concat!("ghcr.io/opcore-dev/tf-runner:", env!("CARGO_PKG_VERSION")))]
    runner_image: String,

    /// When that image is pulled.
    #[arg(long, env = "OPCORE_RUNNER_PULL_POLICY", default_value = "IfNotPresent", value_parser = ["Always", "IfNotPresent", "Never"])]
    runner_pull_policy: String,

    /// How many runs there may be at a time, in the whole cluster.
    #[arg(long, env = "OPCORE_MAX_RUNS", default_value = "10", value_parser = clap::value_parser!(u16).range(1..))]
    max_runs: u16,

    /// How many of them may be comparisons with reality.
    #[arg(long, env = "OPCORE_MAX_CHECKS", default_value = "2", value_parser = clap::value_parser!(u16).range(1..))]
    max_checks: u16,
}

#[global_allocator]
static ALLOCATOR: opcore::Allocator = opcore::Allocator;

fn main() -> std::process::ExitCode {
    opcore::runtime::run_with(opcore::build_info!(), |context, flags: RunFlags| async move {
        let settings = Settings { image: flags.runner_image, pull_policy: flags.runner_pull_policy };
        let limits = Limits { runs: flags.max_runs.into(), checks: flags.max_checks.into() };
        let workspaces = Workspaces::new(settings, limits).measured(context.metrics());
        let workspaces = context.controller(workspaces);
        let simple = context.controller(TypedKind::<SimpleResource>::default());
        futures::try_join!(workspaces, simple).map(|_| ())
    })
}
