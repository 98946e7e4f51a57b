//! The orders for a runner: in the environment of its containers, without secrets.

use opcore::duration::Span;
use serde::{Deserialize, Serialize};

use crate::api::v1alpha1::{Action, Binary, History};

/// The variable that holds an [`Order`], as JSON.
pub const ORDER_VARIABLE: &str = "TF_RUNNER_ORDER";
/// The variable that holds a [`StoreOrder`], as JSON.
pub const STORE_VARIABLE: &str = "TF_RUNNER_STORE";
/// The variable that holds the UID of the pod.
pub const POD_VARIABLE: &str = "TF_RUNNER_POD_UID";

/// Where the chunks of the [`Bundle`](super::bundle::Bundle) are mounted: files `0`, `1`, … of one gzip stream.
pub const INPUTS_PATH: &str = "/run/inputs";
/// Where the chunks of the previously applied inputs are mounted, if they differ: what was confidential then still is.
pub const PREVIOUS_PATH: &str = "/run/previous";
/// An empty directory in which Terraform works.
pub const WORK_PATH: &str = "/run/work";
/// Where the container `store` listens, on the pod's own loopback.
pub const STORE_ADDRESS: &str = "127.0.0.1:7411";

/// The reason why a workspace cannot set an environment variable, if so: as a clause, with the remedy.
pub fn reserved_env(name: &str) -> Option<&'static str> {
    let begins = |all: &[&str]| all.iter().any(|prefix| name.starts_with(prefix));
    if begins(&["TF_VAR_"]) {
        return Some("the runner sets it from spec.variables; set it there");
    }
    let own = ["PATH", "TF_DATA_DIR", "TF_CLI_CONFIG_FILE", "TF_IN_AUTOMATION", "TF_INPUT", "CHECKPOINT_DISABLE"];
    if begins(&["TF_HTTP_", "TF_CLI_ARGS", "TF_RUNNER_", "LD_"]) || own.contains(&name) {
        return Some("the runner sets it; remove it from spec.env");
    }
    // Terraform rejects a shorter interval, and a longer one adds risk without a benefit.
    (name == "TF_STATE_PERSIST_INTERVAL")
        .then_some("the state is already saved at the shortest interval that Terraform supports; remove it")
}

/// The order for the container in which Terraform runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Order {
    /// The run, by the name of its Job.
    pub run: String,
    /// The action.
    pub action: Action,
    /// The program to use.
    pub binary: Binary,
    /// The hash of the inputs. Other inputs are refused.
    pub inputs: String,
    /// Apply this kept plan instead of making one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Keep a plan that destroys, replaces or forgets something for a person, instead of applying it. Has no meaning
    /// for a destroy.
    #[serde(default)]
    pub stop_if_destroys: bool,
    /// Keep a plan for a person if it recreates what a failed apply left in doubt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop_if_tainted: bool,
    /// Take the newest versions of providers that the module allows, instead of those that are kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub upgrade: bool,
    /// What is known of the state.
    #[serde(default)]
    pub state: StateOrder,
    /// How long fetching and planning may take.
    pub plan_within: Span,
    /// How long applying, or destroying, may take.
    pub apply_within: Span,
    /// How long Terraform may take to stop after it was asked to.
    pub grace: Span,
}

/// What is known of the state before a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StateOrder {
    /// Begin with an existing state from elsewhere.
    pub adopts: bool,
    /// The state is in the same place as before: what the cluster keeps of it belongs there.
    pub same_place: bool,
    /// A state must exist, wherever it is: without it, everything would be created again.
    pub expected: bool,
}

/// The order for the container that has the token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoreOrder {
    /// The namespace.
    pub namespace: String,
    /// The common prefix of all names: see [`Names`](super::names::Names).
    pub stem: String,
    /// The run, by the name of its Job.
    pub run: String,
    /// How many old versions are kept.
    pub history: History,
    /// The Secret with the state to adopt, as long as there is no own state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<String>,
    /// Labels and annotations of everything that is written: our marks.
    pub marks: Marks,
}

/// Marks of what is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Marks {
    /// Labels.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Annotations.
    pub annotations: std::collections::BTreeMap<String, String>,
}
