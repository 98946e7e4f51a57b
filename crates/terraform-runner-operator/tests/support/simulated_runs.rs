//! Simulated runs, for tests without a node: they write what a runner writes, with the same code, without running
//! Terraform.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, Secret};
use kube::{Api, Client};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{Action, Diagnostic, Outcome};
use terraform_runner_operator::run::bundle::Bundle;
use terraform_runner_operator::run::order::{ORDER_VARIABLE, Order, STORE_VARIABLE, StoreOrder};
use terraform_runner_operator::run::report::{DriftReport, OutputValue, OutputValues, PlanReport, Report, Stage};
use terraform_runner_operator::store::{self, Store};

/// The report of a run that is about to end.
pub struct PendingReport {
    store: Store,
    report: Report,
    outputs: Option<OutputValues>,
}

impl PendingReport {
    /// Saves the report, which ends the run.
    pub async fn file(&self) {
        store::report::save(&self.store, &self.report, self.outputs.as_ref()).await.unwrap();
    }
}

/// Does what this pod would do up to the report, as `variables.outcome` of its workspace says. A run with the outcome
/// `Silence` has no report.
pub async fn run(client: &Client, pod: &PodSpec) -> Option<PendingReport> {
    let containers = pod.init_containers.iter().flatten().chain(&pod.containers);
    let env: BTreeMap<String, String> = containers
        .flat_map(|container| container.env.iter().flatten())
        .filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?)))
        .collect();
    let order: Order = serde_json::from_str(&env[ORDER_VARIABLE]).unwrap();
    let kept: StoreOrder = serde_json::from_str(&env[STORE_VARIABLE]).unwrap();
    let store = Store::of(client.clone(), &kept);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &kept.namespace);
    let chunk = secrets.get(&store.names().inputs_chunk(&order.inputs, 0)).await.unwrap();
    let bundle = Bundle::parse(&store::inputs::join(&[chunk.data.unwrap()["chunk"].0.clone()]).unwrap()).unwrap();
    let asked = bundle.variables.get("outcome").and_then(Value::as_str).unwrap_or_default();
    if asked == "Silence" {
        return None;
    }
    let outcome = match (order.action, asked) {
        (Action::Apply | Action::Plan, "Failed") | (Action::Destroy, "Undying") => Outcome::Failed,
        (Action::Plan, _) => Outcome::Planned,
        (Action::Apply, _) => Outcome::Applied,
        (Action::Check, _) => Outcome::Checked,
        (Action::Destroy, _) => Outcome::Destroyed,
    };
    let observed = store::state::read_index(&store).await.unwrap();
    let serial = observed.index.current().map_or(0, |version| version.facts.serial);
    if matches!(outcome, Outcome::Applied | Outcome::Destroyed) {
        let resources = usize::from(outcome == Outcome::Applied) * 2;
        let state = state(serial + 1, "l", resources).to_string();
        let (facts, packed) = (store::state::facts(state.as_bytes()).unwrap(), store::pack::pack(state.as_bytes()));
        let save = store::state::Save { packed: &packed, facts: &facts, run: &order.run, history: &kept.history };
        let aim = store::state::aim(&store, &save).await.unwrap();
        store::state::save(&store, aim, &save).await.unwrap();
    }
    let diagnostic =
        Diagnostic { summary: "It cannot be".to_owned(), at: Some("main.tf:1".to_owned()), ..Diagnostic::default() };
    let report = Report {
        run: order.run.clone(),
        action: order.action,
        inputs: order.inputs.clone(),
        outcome,
        stage: if outcome.is_good() { Stage::Done } else { Stage::Plan },
        lasting: false,
        plan: Some(PlanReport { id: format!("plan-of-{}", order.run), add: 2, serial, ..PlanReport::default() }),
        drift: DriftReport::default(),
        diagnostics: if outcome.is_good() { Vec::new() } else { vec![diagnostic] },
        state: store::state::summary(&store).await.unwrap(),
        empty: outcome == Outcome::Destroyed,
        unrecorded: Vec::new(),
        milliseconds: BTreeMap::new(),
        engine: "simulated".to_owned(),
    };
    let output = |value: Value, sensitive| OutputValue { value, sensitive };
    let size = bundle.variables.get("size").cloned().unwrap_or(json!(1));
    let outputs =
        BTreeMap::from([("size".to_owned(), output(size, false)), ("key".to_owned(), output(json!("hunter2"), true))]);
    Some(PendingReport { store, report, outputs: matches!(outcome, Outcome::Applied).then_some(outputs) })
}

/// A state with this many resources.
pub fn state(serial: i64, lineage: &str, resources: usize) -> Value {
    let resource = |number| json!({ "mode": "managed", "type": "random_pet", "name": format!("r{number}"), "instances": [{ "attributes": {} }] });
    json!({
        "version": 4, "terraform_version": "1.12.6", "serial": serial, "lineage": lineage, "outputs": {},
        "resources": (0..resources).map(resource).collect::<Vec<_>>(),
    })
}
