//! `opctl tf approve`, `discard`, `replan`, `unlock`, `suspend` and `resume`.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::AuthInfo;
use opcore_testing::chart::enforce;
use opcore_testing::running::{Running, Settings};
use opcore_testing::wait::eventually;
use sandbox::{Options, Sandbox};
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{
    APPROVE_ANNOTATION, DISCARD_ANNOTATION, REPLAN_ANNOTATION, SUSPEND_ANNOTATION, TerraformWorkspace,
    UNLOCK_ANNOTATION, UPGRADE_ANNOTATION, WorkspacePhase,
};
use terraform_runner_operator::controller::Workspaces;
use terraform_runner_operator::render;
use terraform_runner_operator::run::order::{STORE_VARIABLE, StoreOrder};
use terraform_runner_operator::slots::Limits;
use terraform_runner_operator::store::{Store, lock};

use crate::infra::{APPLIED, AWAITING, Infra, NETWORK, keep_plan, plan_report, tell};
use crate::refusing::changed;
use crate::user::{PATIENCE, run};

#[tokio::test]
async fn only_what_was_shown_is_approved_and_what_makes_no_sense_is_refused() {
    let infra = Infra::shared("tf-approve").await;
    let before = infra.network(AWAITING).await.resource_version();
    let of = "of TerraformWorkspace network";
    let other = infra.run("approve network --plan 000000000000").await.refusal();
    assert_eq!(
        other,
        format!(
            "Plan 000000000000 {of} is not the last one, which is 4f2a9c81d0e3: read it with opctl tf plan show network."
        )
    );
    let refused = infra.run("resume network").await.refusal();
    assert_eq!(refused, "TerraformWorkspace network is not suspended: there is nothing to resume.");
    let now = infra.workspaces().get("network").await.unwrap().resource_version();
    assert_eq!(now, before, "nothing is written");

    let said = infra.run("approve network --plan 4f2a9c81d0e3 --wait=false").await.good();
    assert_eq!(said, "TerraformWorkspace network is annotated.\n");
    assert_eq!(infra.annotation(APPROVE_ANNOTATION).await.as_deref(), Some("4f2a9c81d0e3"));
    let refused = infra.run("approve network --timeout 1s").await.refusal();
    assert!(
        refused.starts_with("The operator did not do it within 1s: is terraform-runner-operator running?"),
        "{refused}"
    );

    infra.run("discard network --wait=false").await.good();
    assert_eq!(infra.annotation(DISCARD_ANNOTATION).await.as_deref(), Some("4f2a9c81d0e3"));
    assert_eq!(infra.annotation(APPROVE_ANNOTATION).await, None, "what was approved before is not any more");
    let discarded = AWAITING.replace("needsApproval: true", "needsApproval: true, discarded: true");
    infra.publish(&discarded).await;
    let refused = infra.run("approve network").await.refusal();
    assert_eq!(
        refused,
        format!("Plan 4f2a9c81d0e3 {of} was discarded: ask for a new one with opctl tf replan network.")
    );

    infra.publish(APPLIED).await;
    let refused = infra.run("approve network").await.refusal();
    assert!(
        refused.starts_with("TerraformWorkspace network has no plan that waits: 0123456789ab was applied"),
        "{refused}"
    );
    infra.run("replan network --wait=false").await.good();
    assert!(infra.annotation(REPLAN_ANNOTATION).await.is_some_and(|token| token.starts_with("20")));
    let said = infra.run("upgrade network --wait=false").await.good();
    assert_eq!(said, "TerraformWorkspace network is annotated.\n");
    assert!(infra.annotation(UPGRADE_ANNOTATION).await.is_some_and(|token| token.starts_with("20")));
}

#[tokio::test]
async fn who_may_not_approve_is_told_which_right_that_takes() {
    let infra = Infra::shared("tf-rights").await;
    infra.network(AWAITING).await;
    let watched = format!("watchNamespaces={{{}}}", infra.namespace);
    enforce(&infra.user.client, render::OPERATOR, &infra.namespace, &[&watched]).await;
    let rule = json!({ "apiGroups": ["infra.opr8r"], "resources": ["terraformworkspaces"], "verbs": ["get", "list", "patch", "watch"] });
    let metadata = json!({ "name": "jane" });
    let given: Role = serde_json::from_value(json!({ "metadata": metadata, "rules": [rule] })).unwrap();
    infra.api::<Role>().create(&PostParams::default(), &given).await.unwrap();
    let binding = json!({
        "metadata": metadata, "subjects": [{ "kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io" }],
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "jane" },
    });
    let binding: RoleBinding = serde_json::from_value(binding).unwrap();
    infra.api::<RoleBinding>().create(&PostParams::default(), &binding).await.unwrap();
    let (_dir, kubeconfig) = changed(&infra.user, |config| {
        for user in &mut config.auth_infos {
            user.auth_info.get_or_insert_with(AuthInfo::default).impersonate = Some("jane".to_owned());
        }
    });
    let line = format!("tf approve network --wait=false -n {}", infra.namespace);
    let words = format!(
        "jane is not allowed to approve plans of TerraformWorkspace network; this requires the verb approve on \
         terraformworkspaces.infra.opr8r in namespace {}: ask for a role that allows it, or choose another user with --context.",
        infra.namespace
    );
    // The API server takes a moment to know the right and the policy.
    let told = async {
        loop {
            let answer = run(&kubeconfig, &line).await;
            if answer.err.contains("the verb approve") {
                return answer.refusal();
            }
            let withdrawn = Patch::Merge(json!({ "metadata": { "annotations": { APPROVE_ANNOTATION: null } } }));
            infra.workspaces().patch("network", &PatchParams::default(), &withdrawn).await.unwrap();
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, told).await.expect("the policy is in force"), words);
    // Whoever administers the cluster may.
    infra.run("approve network --wait=false").await.good();
    infra.run("discard network --wait=false").await.good();
}

#[tokio::test]
async fn a_suspension_by_the_spec_is_told_apart_from_one_by_annotation() {
    let infra = Infra::shared("tf-suspend").await;
    infra.network(&APPLIED.replace("phase: Ready", "phase: Suspended")).await;
    let said = infra.run("suspend network").await.good();
    let words = "TerraformWorkspace network is suspended: no further run starts before it is resumed.\n";
    assert!(said.starts_with(words), "{said}");
    assert_eq!(infra.annotation(SUSPEND_ANNOTATION).await.as_deref(), Some("true"));

    let patch = Patch::Merge(json!({ "spec": { "suspend": true } }));
    infra.workspaces().patch("network", &PatchParams::default(), &patch).await.unwrap();
    let said = infra.run("suspend network --wait=false").await.good();
    assert_eq!(said, "TerraformWorkspace network is annotated.\n");
    let refused = infra.run("resume network").await.refusal();
    assert_eq!(refused, "TerraformWorkspace network is suspended by its spec: set spec.suspend to false.");

    let patch = Patch::Merge(json!({ "spec": { "suspend": false } }));
    infra.workspaces().patch("network", &PatchParams::default(), &patch).await.unwrap();
    infra.run("resume network --wait=false").await.good();
    assert_eq!(infra.annotation(SUSPEND_ANNOTATION).await, None);
}

#[tokio::test]
async fn a_lock_is_taken_away_only_when_someone_means_it_and_nobody_works() {
    let infra = Infra::shared("tf-unlock").await;
    let workspace = infra.network(APPLIED).await;
    let refused = infra.run("unlock network --yes").await.refusal();
    assert_eq!(
        refused,
        "Nobody holds the lock of the state of TerraformWorkspace network: there is nothing to unlock."
    );

    let pod = json!({
        "metadata": { "name": "busy", "labels": { "infra.opr8r/part": "run" } },
        "spec": { "containers": [{ "name": "terraform", "image": "nowhere/nothing" }] },
    });
    let pods = infra.api::<Pod>();
    let busy = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let uid = busy.uid().unwrap();
    let store = infra.store(&workspace);
    lock::take(&store, &uid, &json!({ "ID": "one", "Operation": "OperationTypeApply" })).await.unwrap().unwrap();

    let refused = infra.run("unlock network --yes").await.refusal();
    assert!(refused.starts_with(&format!("busy ({uid}) has held the lock of the state for ")), "{refused}");
    let remedy = "Pod busy still runs: wait for it, or release the lock all the same with --force.";
    assert!(refused.ends_with(remedy), "{refused}");
    let answer = infra.run("unlock network --force").await;
    assert!(answer.out.starts_with("busy (") && answer.out.ends_with(", for OperationTypeApply.\n"), "{}", answer.out);
    let words = "Nobody can be asked whether to release the lock of TerraformWorkspace network: say so with --yes.";
    assert_eq!(answer.refusal(), words);
    assert_eq!(infra.annotation(UNLOCK_ANNOTATION).await, None, "nothing is written");

    let over = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
    pods.patch_status("busy", &PatchParams::default(), &over).await.unwrap();
    let said = infra.run("unlock network --yes").await.good();
    assert!(said.contains("The lock is released when the next run starts.\n"), "{said}");
    let request = infra.annotation(UNLOCK_ANNOTATION).await.unwrap();
    assert!(request.starts_with(&format!("{uid} since 2")), "{request}");
}

/// What the runner of the run under way keeps things with: it is told in its pod.
async fn runner(infra: &Infra, number: i64) -> (TerraformWorkspace, Store) {
    let begun = |workspace: &TerraformWorkspace| {
        let run = workspace.status.as_ref().and_then(|status| status.run.as_ref());
        run.is_some_and(|run| run.number == number && run.job_uid.is_some())
    };
    let workspace = eventually(&infra.workspaces(), "network", &format!("in run {number}"), begun).await;
    let name = render::names(&workspace).job(number);
    let job = infra.api::<Job>().get(&name).await.unwrap();
    let pod = job.spec.unwrap().template.spec.unwrap();
    let mut env = pod.init_containers.into_iter().flatten().flat_map(|container| container.env.unwrap_or_default());
    let order = env.find(|variable| variable.name == STORE_VARIABLE).and_then(|variable| variable.value).unwrap();
    let order: StoreOrder = serde_json::from_str(&order).unwrap();
    (workspace, Store::of(infra.user.client.clone(), &order))
}

/// Plays the runner of a run that plans.
async fn plan(infra: &Infra, number: i64, id: &str) {
    let (workspace, store) = runner(infra, number).await;
    let run = workspace.status.unwrap().run.unwrap();
    keep_plan(&store, id, &run.inputs, &run.job).await;
    let told = json!({
        "run": run.job, "action": "Plan", "inputs": run.inputs, "outcome": "Planned", "stage": "done",
        "plan": plan_report(id),
    });
    tell(&store, told, None).await;
    let waits = |workspace: &TerraformWorkspace| {
        workspace.status.as_ref().is_some_and(|status| status.phase == WorkspacePhase::AwaitingApproval)
    };
    eventually(&infra.workspaces(), "network", "waiting for approval", waits).await;
}

#[tokio::test]
async fn a_plan_is_read_discarded_made_anew_and_approved() {
    let sandbox = Sandbox::start(Options::default()).await.expect("a control plane");
    let infra = Infra::of(&sandbox, "tf-operator").await;
    let config = sandbox.config().await.unwrap();
    let authors = render::Authors { own_modules: true, ..render::Authors::default() };
    let settings = render::Settings { authors, ..render::Settings::new("nowhere/tf-runner", "Never") };
    let operator = Running::start(render::OPERATOR, config, &[], Settings::default(), |_| {
        Workspaces::new(settings, Limits::default())
    });
    let network: TerraformWorkspace = serde_yaml::from_str(NETWORK).unwrap();
    infra.workspaces().create(&PostParams::default(), &network).await.unwrap();

    plan(&infra, 1, "111111111111").await;
    assert!(
        infra
            .run("plan show network")
            .await
            .good()
            .starts_with("Plan 111111111111 of TerraformWorkspace network   waits")
    );
    let said = infra.run("discard network --plan 111111111111").await.good();
    let words = "Plan 111111111111 (+2 ~0 -1) of TerraformWorkspace network is discarded.\nTerraformWorkspace network: Plan \
                 111111111111 was discarded.";
    assert!(said.starts_with(words), "{said}");
    let refused = infra.run("approve network --plan 111111111111").await.refusal();
    assert!(refused.contains("was discarded: ask for a new one with opctl tf replan network."), "{refused}");

    let said = infra.run("replan network").await.good();
    assert!(said.starts_with("A new plan of TerraformWorkspace network is asked for.\n"), "{said}");
    plan(&infra, 2, "222222222222").await;
    let said = infra.run("suspend network").await.good();
    assert!(said.ends_with("TerraformWorkspace network: No run starts: it is suspended by annotation.\n"), "{said}");
    let said = infra.run("approve network").await.good();
    assert!(said.starts_with("Plan 222222222222 (+2 ~0 -1) of TerraformWorkspace network is approved.\n"), "{said}");
    assert!(said.contains("No run starts"), "it goes on when it is resumed: {said}");

    // Someone else has taken the lock.
    let (_, store) = runner(&infra, 2).await;
    lock::take(&store, "someone", &json!({ "ID": "one" })).await.unwrap().unwrap();
    infra.run("resume network").await.good();
    let locked = |workspace: &TerraformWorkspace| workspace.status.as_ref().is_some_and(|status| status.lock.is_some());
    eventually(&infra.workspaces(), "network", "locked", locked).await;
    let shown = infra.run("show network").await.good();
    assert!(shown.contains("someone has held the lock of the state for "), "{shown}");
    let said = infra.run("unlock network --yes").await.good();
    assert!(said.contains("The lock is released.\n"), "{said}");

    let (workspace, _) = runner(&infra, 3).await;
    let run = workspace.status.unwrap().run.unwrap();
    assert_eq!(run.plan.as_deref(), Some("222222222222"), "what was approved is what is applied");
    let shown = infra.run("plan show network").await.good();
    assert!(shown.contains(&format!("approved, Job {} applies it", run.job)), "{shown}");
    let refused = infra.run("discard network").await.refusal();
    assert!(refused.contains(&format!("is being applied by Job {}", run.job)), "{refused}");
    operator.stop().await;
}
