//! `opctl identity` with the real operator at work: a deletion that is stuck is seen, given up where it has to be, and
//! ends. There is no node: no pod ever runs.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Config, CustomResourceExt};
use lifecycle_operator::api::v1alpha1::{
    OperandStatus, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer,
    ZeroTrustWorkloadIdentityManager as Ztwim,
};
use lifecycle_operator::controller::{Operands, Shared, Stack};
use lifecycle_operator::decide::keep::Wants;
use lifecycle_operator::decide::teardown::{DELETION_BLOCKED, TakenDown};
use lifecycle_operator::render::{Images, Settings};
use opcore::conditions::is_true;
use opcore::finalizer::StepPhase;
use opcore_testing::running::{self, Running};
use opcore_testing::wait::{eventually, install};
use sandbox::{Options, Sandbox};
use serde_json::json;

use crate::user::User;

/// The namespace of the operands.
const NAMESPACE: &str = "spire";

fn settings() -> Settings {
    let image = |name: &str| format!("example.com/{name}:v1");
    Settings {
        namespace: NAMESPACE.to_owned(),
        images: Images {
            server: image("server"),
            controller_manager: image("controller-manager"),
            agent: image("agent"),
            csi_driver: image("csi-driver"),
            csi_registrar: image("csi-registrar"),
            oidc: image("oidc"),
            volume: image("volume"),
        },
        pull_policy: "IfNotPresent".to_owned(),
        pull_secrets: Vec::new(),
        class_name: "tests".to_owned(),
    }
}

/// The operator of one kind of operand.
fn operands<K: Wants + TakenDown>(config: &Config) -> Running {
    let make = |context: &opcore::Context| Operands::<K>::new(&Shared::new(context, settings()));
    Running::start("lifecycle-operator", config.clone(), &[NAMESPACE], running::Settings::default(), make)
}

fn operators(config: &Config) -> Vec<Running> {
    let stack = |context: &opcore::Context| Stack::new(&Shared::new(context, settings()));
    vec![
        Running::start("lifecycle-operator", config.clone(), &[NAMESPACE], running::Settings::default(), stack),
        operands::<SpireServer>(config),
        operands::<SpireAgent>(config),
        operands::<SpiffeCSIDriver>(config),
        operands::<SpireOIDCDiscoveryProvider>(config),
    ]
}

/// The kind of the controller manager, without its schema.
fn cluster_spiffe_ids() -> CustomResourceDefinition {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "clusterspiffeids.spire.spiffe.io" },
        "spec": {
            "group": "spire.spiffe.io", "scope": "Cluster",
            "names": { "kind": "ClusterSPIFFEID", "plural": "clusterspiffeids", "singular": "clusterspiffeid" },
            "versions": [{ "name": "v1alpha1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema } }],
        },
    }))
    .unwrap()
}

fn runs(status: Option<&OperandStatus>, step: &str) -> bool {
    let step = status.and_then(|status| status.teardown.as_ref()?.step(step));
    step.is_some_and(|step| step.phase == StepPhase::Running)
}

#[tokio::test]
async fn a_deletion_that_is_stuck_is_seen_given_up_and_ends() {
    let sandbox = Sandbox::start(Options::default()).await.expect("a control plane");
    let user = User::of(&sandbox).await;
    for definition in [
        Ztwim::crd(),
        SpireServer::crd(),
        SpireAgent::crd(),
        SpiffeCSIDriver::crd(),
        SpireOIDCDiscoveryProvider::crd(),
        cluster_spiffe_ids(),
    ] {
        install(&user.client, &definition).await;
    }
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } })).unwrap();
    Api::all(user.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let operators = operators(&sandbox.config().await.unwrap());
    let parents: Api<Ztwim> = Api::all(user.client.clone());
    let drivers: Api<SpiffeCSIDriver> = Api::all(user.client.clone());
    let agents: Api<SpireAgent> = Api::all(user.client.clone());
    let parent = json!({
        "apiVersion": "operator.openshift.io/v1alpha1", "kind": "ZeroTrustWorkloadIdentityManager",
        "metadata": { "name": "cluster" }, "spec": { "trustDomain": "example.org" },
    });
    parents.create(&PostParams::default(), &serde_json::from_value(parent).unwrap()).await.unwrap();
    let complete = |parent: &Ztwim| {
        let operands = parent.status.as_ref().map_or(&[][..], |status| &status.operands);
        operands.len() == 4 && operands.iter().all(|operand| !operand.conditions.is_empty())
    };
    eventually(&parents, "cluster", "the parent of four operands with conditions", complete).await;
    let shown = user.run("identity status").await.good();
    assert!(shown.contains("trust domain example.org") && shown.contains("WaitingForAgent"), "{shown}");
    assert!(
        shown.contains("trustDomain       example.org                          Inherited   SpireServer"),
        "{shown}"
    );

    let pod = json!({
        "metadata": { "name": "web" },
        "spec": {
            "containers": [{ "name": "main", "image": "nowhere/nothing" }],
            "volumes": [{ "name": "identity", "csi": { "driver": "csi.spiffe.io", "readOnly": true } }],
        },
    });
    let pods: Api<Pod> = Api::namespaced(user.client.clone(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let planned = user.run("identity teardown plan").await.bad();
    assert!(planned.contains("Blocked by  Pod default/web uses the CSI driver\n"), "{planned}");

    parents.delete("cluster", &DeleteParams::background()).await.unwrap();
    let blocked = |driver: &SpiffeCSIDriver| {
        driver.status.as_ref().is_some_and(|status| is_true(&status.conditions, DELETION_BLOCKED))
    };
    eventually(&drivers, "cluster", "blocked by the pod", blocked).await;
    let shown = user.run("identity status").await.out;
    assert!(shown.contains("Blocked    SpiffeCSIDriver cluster: Still in use by Pod default/web."), "{shown}");
    assert!(shown.contains("blocked by Pod default/web"), "{shown}");
    let said = user.run("identity force csi volumes --yes").await.good();
    let words = "Step volumes of SpiffeCSIDriver cluster: given up by annotation: blocked by Pod default/web\n";
    assert!(said.ends_with(words), "{said}");

    // Without a node there is no server that could evict agents.
    let evicts = |agent: &SpireAgent| runs(agent.status.as_ref(), "evict");
    eventually(&agents, "cluster", "evicting", evicts).await;
    user.run("identity force agent evict --yes").await.good();
    let told = user.run("identity status --watch").await.good();
    assert!(told.ends_with("The stack is gone.\n"), "{told}");
    assert!(parents.get_opt("cluster").await.unwrap().is_none());
    assert!(pods.get_opt("web").await.unwrap().is_some(), "what others made stays");
    for operator in operators {
        operator.stop().await;
    }
}
