//! Typed kinds: the existing one, and a second one that consists only of a module and a spec.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use opcore::conditions::Condition;
use opcore_testing::running::{Running, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{
    InlineModule, Module, SimpleResource, TerraformWorkspaceSpec, WorkspacePhase,
};
use terraform_runner_operator::render::OPERATOR;
use terraform_runner_operator::typed::{Shown, Typed, TypedKind};

use crate::stage::{Stage, eventually, gone};

/// A name for a pet, with this number of words.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infra.opr8r",
    version = "v1alpha1",
    kind = "Pet",
    namespaced,
    status = "PetStatus",
    derive = "PartialEq"
)]
pub struct PetSpec {
    words: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PetStatus {
    phase: WorkspacePhase,
    size: Option<String>,
    observed_generation: Option<i64>,
    conditions: Vec<Condition>,
}

opcore::impl_conditions!(PetStatus);

impl Typed for Pet {
    const SUFFIX: &'static str = "pet";
    const LABEL: &'static str = "infra.opr8r/pet";

    fn workspace(&self) -> TerraformWorkspaceSpec {
        let files = BTreeMap::from([("main.tf".to_owned(), include_str!("pet/main.tf").to_owned())]);
        TerraformWorkspaceSpec {
            module: Module { inline: Some(InlineModule { files }), ..Module::default() },
            variables: BTreeMap::from([
                ("words".to_owned(), json!(self.spec.words)),
                ("size".to_owned(), json!(self.spec.words)),
            ]),
            ..TerraformWorkspaceSpec::default()
        }
    }

    fn show(status: &mut PetStatus, shown: &Shown<'_>) {
        status.phase = shown.phase;
        if let Some(outputs) = shown.outputs {
            status.size = outputs.get("size").cloned();
        }
    }
}

fn start<K: Typed>(stage: &Stage) -> Running
where
    K::Status: opcore::conditions::Conditions,
{
    let namespaces = [stage.namespace.as_str()];
    Running::start(OPERATOR, stage.config.clone(), &namespaces, Settings::default(), |_| TypedKind::<K>::default())
}

#[tokio::test]
async fn a_second_kind_is_a_module_and_a_spec() {
    let stage = Stage::new("pets").await;
    opcore_testing::wait::install(&stage.client, &Pet::crd()).await;
    let (engine, running) = (stage.start(), start::<Pet>(&stage));
    let pets = stage.of::<Pet>();
    let pet = |words: i32| json!({ "apiVersion": "infra.opr8r/v1alpha1", "kind": "Pet", "metadata": { "name": "rex" }, "spec": { "words": words } });
    for words in [2, 3] {
        pets.patch("rex", &PatchParams::apply("tests"), &Patch::Apply(&pet(words))).await.unwrap();
        let shows = |pet: &Pet| {
            let status = pet.status.clone().unwrap_or_default();
            status.phase == WorkspacePhase::Ready && status.size == Some(words.to_string())
        };
        eventually(&pets, "rex", "ready", shows).await;
    }
    let jobs =
        stage.of::<Job>().list(&ListParams::default().labels("infra.opr8r/pet=rex,app=terraform")).await.unwrap();
    assert!(!jobs.items.is_empty(), "its Jobs are found by its name");
    let uid = pets.get("rex").await.unwrap().uid().unwrap();
    pets.delete("rex", &DeleteParams::default()).await.unwrap();
    gone(&pets, "rex", &uid).await;
    assert_eq!(stage.names::<Job>().await, [""; 0], "it goes when what it made is destroyed");
    running.stop().await;
    engine.stop().await;
}

#[tokio::test]
async fn a_simple_resource_reports_what_becomes_of_its_workspace() {
    let stage = Stage::new("simple").await;
    let (engine, running) = (stage.start(), start::<SimpleResource>(&stage));
    let resources = stage.of::<SimpleResource>();
    let sample = json!({
        "apiVersion": "infra.opr8r/v1alpha1", "kind": "SimpleResource", "metadata": { "name": "sample" },
        "spec": { "length": 16, "prefix": "test", "vars": { "special": "true", "upper": "true" } },
    });
    resources.patch("sample", &PatchParams::apply("tests"), &Patch::Apply(&sample)).await.unwrap();
    let is_ready =
        |resource: &SimpleResource| resource.status.as_ref().is_some_and(|s| s.phase == WorkspacePhase::Ready);
    let ready = eventually(&resources, "sample", "ready", is_ready).await.status.unwrap();
    let workspace = stage.ready("sample-simple").await.status.unwrap();
    assert_eq!(ready.last_applied_hash, workspace.last_applied.map(|applied| applied.hash));
    assert_eq!(workspace.outputs_secret.as_deref(), Some("sample-simple-outputs"));
    assert_eq!(ready.message, "Applied: 2 resources.");
    // Someone suspends it with a field that the kind does not set: this is shown, and so is that it continues.
    for (suspend, phase) in [(true, WorkspacePhase::Suspended), (false, WorkspacePhase::Ready)] {
        let patch = json!({ "spec": { "suspend": suspend } });
        stage.workspaces().patch("sample-simple", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        let shows = |resource: &SimpleResource| resource.status.as_ref().is_some_and(|status| status.phase == phase);
        eventually(&resources, "sample", "what its workspace says", shows).await;
    }
    running.stop().await;
    engine.stop().await;
}

#[tokio::test]
async fn a_workspace_of_someone_else_is_neither_shown_nor_deleted() {
    let stage = Stage::new("foreign").await;
    let (engine, running) = (stage.start(), start::<SimpleResource>(&stage));
    stage.write("sample-simple", json!({ "variables": { "size": 1 } })).await;
    stage.ready("sample-simple").await;
    let resources = stage.of::<SimpleResource>();
    let sample = json!({
        "apiVersion": "infra.opr8r/v1alpha1", "kind": "SimpleResource", "metadata": { "name": "sample" },
        "spec": { "length": 16 },
    });
    resources.patch("sample", &PatchParams::apply("tests"), &Patch::Apply(&sample)).await.unwrap();
    let refused = |resource: &SimpleResource| {
        let conditions = resource.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.reason == "OwnedByAnother")
    };
    let resource = eventually(&resources, "sample", "refused", refused).await;
    let status = resource.status.as_ref().unwrap();
    assert_eq!(status.phase, WorkspacePhase::Failed);
    assert!(status.message.contains("TerraformWorkspace") && status.message.contains("sample-simple"), "{status:?}");
    resources.delete("sample", &DeleteParams::default()).await.unwrap();
    gone(&resources, "sample", &resource.uid().unwrap()).await;
    stage.ready("sample-simple").await;
    running.stop().await;
    engine.stop().await;
}
