//! What the tests of `opctl tf` share: a namespace with a workspace, and what a runner would have kept for it.

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt, Resource};
use opcore_testing::wait::install;
use sandbox::Sandbox;
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{History, TerraformWorkspace};
use terraform_runner_operator::render::names;
use terraform_runner_operator::run::report::{OutputValues, PlanReport, Report};
use terraform_runner_operator::store::pack::pack;
use terraform_runner_operator::store::{Store, plan, report, state};
use tokio::process::Command;

use crate::user::{Answer, User};

pub const NETWORK: &str = include_str!("../statuses/tf-network.yaml");
pub const AWAITING: &str = include_str!("../statuses/tf-awaiting.yaml");
pub const FAILED: &str = include_str!("../statuses/tf-failed.yaml");
pub const APPLIED: &str = include_str!("../statuses/tf-applied.yaml");
pub const PLAN: &str = include_str!("../statuses/tf-plan.txt");

/// A namespace of its own.
pub struct Infra {
    pub user: User,
    pub namespace: String,
}

impl Infra {
    /// On the control plane that all tests share: no operator runs there, so that statuses stay as they are written.
    pub async fn shared(prefix: &str) -> Self {
        Self::of(Sandbox::shared().await.expect("a control plane"), prefix).await
    }

    pub async fn of(sandbox: &Sandbox, prefix: &str) -> Self {
        let user = User::of(sandbox).await;
        install(&user.client, &TerraformWorkspace::crd()).await;
        Self { user, namespace: sandbox.namespace(prefix).await.unwrap() }
    }

    pub fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.user.client.clone(), &self.namespace)
    }

    pub fn workspaces(&self) -> Api<TerraformWorkspace> {
        self.api()
    }

    /// The workspace `network`, with this status.
    pub async fn network(&self, status: &str) -> TerraformWorkspace {
        let workspace: TerraformWorkspace = serde_yaml::from_str(NETWORK).unwrap();
        self.workspaces().create(&PostParams::default(), &workspace).await.unwrap();
        self.publish(status).await
    }

    /// Gives `network` this status.
    pub async fn publish(&self, status: &str) -> TerraformWorkspace {
        let status: Value = serde_yaml::from_str(status).unwrap();
        // Nothing of an older one stays.
        let patch = Patch::Json::<()>(
            serde_json::from_value(json!([{ "op": "add", "path": "/status", "value": status }])).unwrap(),
        );
        self.workspaces().patch_status("network", &PatchParams::default(), &patch).await.unwrap()
    }

    pub async fn annotation(&self, key: &str) -> Option<String> {
        self.workspaces().get("network").await.unwrap().metadata.annotations.unwrap_or_default().remove(key)
    }

    pub fn command(&self, line: &str) -> Command {
        self.user.command(&self.line(line))
    }

    /// Runs `opctl tf` in the namespace.
    pub async fn run(&self, line: &str) -> Answer {
        self.user.run(&self.line(line)).await
    }

    fn line(&self, line: &str) -> String {
        format!("tf {line} -n {}", self.namespace)
    }

    pub fn store(&self, workspace: &TerraformWorkspace) -> Store {
        Store::new(self.user.client.clone(), &self.namespace, names(workspace))
    }
}

/// Keeps a plan as a runner would.
pub async fn keep_plan(store: &Store, id: &str, inputs: &str, run: &str) {
    plan::save(store, &plan_report(id), inputs, run, b"the plan file", PLAN).await.unwrap();
}

pub fn plan_report(id: &str) -> PlanReport {
    let resources = json!([{ "address": "random_pet.name", "action": "replace" }]);
    let report = json!({ "id": id, "serial": 7, "add": 2, "change": 0, "destroy": 1, "resources": resources });
    serde_json::from_value(report).unwrap()
}

/// Saves a state as a runner would.
pub async fn save_state(store: &Store, serial: i64, run: &str, secret: &str) {
    let resource = |name: &str| {
        let instance = json!({ "attributes": { "id": secret } });
        json!({ "mode": "managed", "type": "random_pet", "name": name, "instances": [instance] })
    };
    let resources: Vec<Value> = (0..serial).map(|number| resource(&format!("r{number}"))).collect();
    let state =
        json!({ "version": 4, "serial": serial, "lineage": "l", "outputs": {}, "resources": resources }).to_string();
    let (packed, facts) = (pack(state.as_bytes()), state::facts(state.as_bytes()).unwrap());
    let save = state::Save { packed: &packed, facts: &facts, run, history: &History::default() };
    let aim = state::aim(store, &save).await.unwrap();
    state::save(store, aim, &save).await.unwrap();
}

/// Writes a report as a runner would.
pub async fn tell(store: &Store, told: Value, outputs: Option<Value>) {
    let told: Report = serde_json::from_value(told).unwrap();
    let outputs: Option<OutputValues> = outputs.map(|outputs| serde_json::from_value(outputs).unwrap());
    report::save(store, &told, outputs.as_ref()).await.unwrap();
}
