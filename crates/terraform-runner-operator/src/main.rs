//! The operator's program; the library has the code.

use std::time::Duration;

use clap::Args;
use opcore::runtime::duration;
use terraform_runner_operator::api::v1alpha1::SimpleResource;
use terraform_runner_operator::controller::Workspaces;
use terraform_runner_operator::render::{Authors, Longest, Settings};
use terraform_runner_operator::slots::Limits;
use terraform_runner_operator::typed::TypedKind;

/// The flags that only this operator has.
#[derive(Args, Clone, Debug)]
struct RunFlags {
    /// The image with the runner and OpenTofu.
    #[arg(long, env = "OPCORE_RUNNER_IMAGE", default_value = concat!("ghcr.io/opcore-dev/tf-runner:", env!("CARGO_PKG_VERSION")))]
    runner_image: String,

    /// When that image is pulled.
    #[arg(long, env = "OPCORE_RUNNER_PULL_POLICY", default_value = "IfNotPresent", value_parser = ["Always", "IfNotPresent", "Never"])]
    runner_pull_policy: String,

    /// The maximum number of concurrent runs in the whole cluster.
    #[arg(long, env = "OPCORE_MAX_RUNS", default_value = "10", value_parser = clap::value_parser!(u16).range(1..))]
    max_runs: u16,

    /// The maximum number of concurrent runs in one namespace; 0 means half of the maximum.
    #[arg(long, env = "OPCORE_MAX_RUNS_PER_NAMESPACE", default_value = "0")]
    max_runs_per_namespace: u16,

    /// The maximum number of concurrent comparisons of the infrastructure with the state.
    #[arg(long, env = "OPCORE_MAX_CHECKS", default_value = "2", value_parser = clap::value_parser!(u16).range(1..))]
    max_checks: u16,

    /// Whether the other flags about authors are ignored, and everything is allowed.
    #[arg(long, env = "OPCORE_AUTHORS_TRUSTED", default_value_t = false, action = clap::ArgAction::Set)]
    authors_trusted: bool,

    /// Images for Terraform that workspaces may use in addition to the runner's own; a * at the end matches any suffix.
    #[arg(long, env = "OPCORE_AUTHORS_IMAGES", value_delimiter = ',', value_name = "IMAGE,…")]
    authors_images: Vec<String>,

    /// ServiceAccounts that workspaces may use in addition to the one that the operator creates for each.
    #[arg(long, env = "OPCORE_AUTHORS_SERVICE_ACCOUNTS", value_delimiter = ',', value_name = "NAME,…")]
    authors_service_accounts: Vec<String>,

    /// Types of volumes that workspaces may add to their pods.
    #[arg(long, env = "OPCORE_AUTHORS_VOLUME_TYPES", value_delimiter = ',', value_name = "TYPE,…")]
    #[arg(default_values_t = Authors::default().volume_types)]
    authors_volume_types: Vec<String>,

    /// PriorityClasses that workspaces may use.
    #[arg(long, env = "OPCORE_AUTHORS_PRIORITY_CLASSES", value_delimiter = ',', value_name = "NAME,…")]
    authors_priority_classes: Vec<String>,

    /// RuntimeClasses that workspaces may use.
    #[arg(long, env = "OPCORE_AUTHORS_RUNTIME_CLASSES", value_delimiter = ',', value_name = "NAME,…")]
    authors_runtime_classes: Vec<String>,

    /// Whether workspaces may use any module, or only modules that are part of the operator.
    #[arg(long, env = "OPCORE_AUTHORS_MODULES", default_value = "Builtin", value_parser = ["Any", "Builtin"])]
    authors_modules: String,

    /// Whether an admission policy checks the right to approve; without one, everyone who may annotate workspaces may
    /// approve.
    #[arg(long, env = "OPCORE_APPROVALS_GUARDED", default_value_t = false, action = clap::ArgAction::Set)]
    approvals_guarded: bool,

    /// How long the pod of a run may take to start before the run gives up its turn.
    #[arg(long, env = "OPCORE_START_WITHIN", default_value = "10m", value_parser = duration)]
    start_within: Duration,

    /// The maximum of spec.timeouts.plan.
    #[arg(long, env = "OPCORE_MAX_PLAN_TIMEOUT", default_value = "1h", value_parser = duration)]
    max_plan_timeout: Duration,

    /// The maximum of spec.timeouts.apply.
    #[arg(long, env = "OPCORE_MAX_APPLY_TIMEOUT", default_value = "4h", value_parser = duration)]
    max_apply_timeout: Duration,

    /// The maximum of spec.timeouts.destroy.
    #[arg(long, env = "OPCORE_MAX_DESTROY_TIMEOUT", default_value = "4h", value_parser = duration)]
    max_destroy_timeout: Duration,
}

impl RunFlags {
    fn limits(&self) -> Limits {
        let share = match self.max_runs_per_namespace {
            0 => self.max_runs.div_ceil(2),
            share => share,
        };
        Limits { runs: self.max_runs.into(), share: share.into(), checks: self.max_checks.into() }
    }

    fn authors(&self) -> Authors {
        if self.authors_trusted {
            return Authors::trusted();
        }
        // A value of the environment that is empty is a list of nothing.
        let named = |all: &[String]| all.iter().filter(|one| !one.is_empty()).cloned().collect();
        Authors {
            images: named(&self.authors_images),
            service_accounts: named(&self.authors_service_accounts),
            volume_types: named(&self.authors_volume_types),
            priority_classes: named(&self.authors_priority_classes),
            runtime_classes: named(&self.authors_runtime_classes),
            own_modules: self.authors_modules == "Any",
        }
    }

    fn settings(self) -> Settings {
        let longest = Longest {
            plan: self.max_plan_timeout.into(),
            apply: self.max_apply_timeout.into(),
            destroy: self.max_destroy_timeout.into(),
        };
        let authors = self.authors();
        let settings = Settings::new(self.runner_image, self.runner_pull_policy);
        Settings { start_within: self.start_within.into(), longest, authors, ..settings }
    }
}

#[global_allocator]
static ALLOCATOR: opcore::Allocator = opcore::Allocator;

fn main() -> std::process::ExitCode {
    opcore::runtime::run_with(opcore::build_info!(), |context, flags: RunFlags| async move {
        if !flags.approvals_guarded {
            tracing::warn!(
                "no admission policy checks the right to approve, so everyone who may annotate a workspace may approve its plans; to install a policy, set admissionPolicies.enabled of the chart"
            );
        }
        let limits = flags.limits();
        let workspaces = Workspaces::new(flags.settings(), limits).measured(context.metrics());
        let workspaces = context.controller(workspaces);
        let simple = context.controller(TypedKind::<SimpleResource>::default());
        futures::try_join!(workspaces, simple).map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_yaml::Value;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        flags: RunFlags,
    }

    fn authors(more: &[&str]) -> Authors {
        Program::parse_from(["program"].iter().chain(more)).flags.authors()
    }

    #[test]
    fn without_flags_authors_may_ask_for_what_the_chart_allows_by_default() {
        let values = include_str!("../../../charts/terraform-runner-operator/own/values.yaml");
        let values: Value = serde_yaml::from_str(values).unwrap();
        let values = &values["authors"];
        let list = |name: &str| -> Vec<String> { serde_yaml::from_value(values[name].clone()).unwrap() };
        let of_chart = Authors {
            images: list("images"),
            service_accounts: list("serviceAccounts"),
            volume_types: list("volumeTypes"),
            priority_classes: list("priorityClasses"),
            runtime_classes: list("runtimeClasses"),
            own_modules: values["modules"] == "Any",
        };
        assert_eq!(values["trusted"], false);
        assert_eq!(authors(&[]), of_chart);
        assert_eq!(of_chart, Authors::default());
    }

    #[test]
    fn one_flag_allows_trusted_authors_everything_whatever_the_others_say() {
        assert_eq!(authors(&["--authors-trusted=true", "--authors-modules=Builtin"]), Authors::trusted());
    }
}
