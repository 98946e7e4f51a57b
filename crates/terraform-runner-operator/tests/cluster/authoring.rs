//! What authors of workspaces may use, and who may approve: enforced by the policies of the chart, and by the operator
//! itself.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use opcore_testing::chart::{as_person, enforce};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::TerraformWorkspace;
use terraform_runner_operator::render::{self, OPERATOR};

use crate::stage::{PATIENCE, Stage};

/// A namespace in which the policies of the chart are in force.
async fn guarded(stage: &Stage, values: &[&str]) {
    let watched = format!("watchNamespaces={{{}}}", stage.namespace);
    enforce(&stage.client, OPERATOR, &stage.namespace, &[&[watched.as_str()], values].concat()).await;
    // The API server takes a moment to enforce each policy.
    let outlawed = json!({ "spec": { "engine": { "image": "outlaw" } } });
    let unapproved = json!({ "metadata": { "annotations": { "infra.opr8r/approve": "outlaw" } } });
    let nobody = person(stage, "nobody").await;
    let in_force = async {
        for change in [outlawed, unapproved] {
            let is_refused = async || {
                let answer = write(&nobody, "probe", change.clone(), true).await;
                answer.is_err_and(|error| error.to_string().contains("denied request"))
            };
            while !is_refused().await {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, in_force).await.expect("the policies are in force");
}

/// A user who may only write workspaces.
async fn person(stage: &Stage, name: &str) -> Api<TerraformWorkspace> {
    let verbs = json!(["create", "get", "patch", "update"]);
    let rule = json!({ "apiGroups": ["infra.opr8r"], "resources": ["terraformworkspaces"], "verbs": verbs });
    grant(stage, name, "writes", rule).await;
    let client = Client::try_from(as_person(&stage.config, name)).unwrap();
    let workspaces = Api::namespaced(client, &stage.namespace);
    let known = async {
        while workspaces.get_opt("none").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, known).await.expect("the right is known");
    workspaces
}

/// Grants a user a right.
async fn grant(stage: &Stage, person: &str, what: &str, rule: Value) {
    let metadata = json!({ "name": format!("{person}-{what}") });
    let given: Role = serde_json::from_value(json!({ "metadata": metadata, "rules": [rule] })).unwrap();
    stage.of::<Role>().create(&PostParams::default(), &given).await.unwrap();
    let binding = json!({
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": metadata["name"] },
        "subjects": [{ "kind": "User", "name": person, "apiGroup": "rbac.authorization.k8s.io" }],
    });
    let binding: RoleBinding = serde_json::from_value(binding).unwrap();
    stage.of::<RoleBinding>().create(&PostParams::default(), &binding).await.unwrap();
}

/// Creates or updates a workspace.
async fn write(
    api: &Api<TerraformWorkspace>,
    name: &str,
    change: Value,
    dry: bool,
) -> kube::Result<TerraformWorkspace> {
    let mut workspace = json!({
        "apiVersion": "infra.opr8r/v1alpha1", "kind": "TerraformWorkspace",
        "metadata": { "name": name, "annotations": {} },
        "spec": { "module": { "builtin": "simple" }, "drift": { "action": "Off" } },
    });
    for (part, fields) in change.as_object().unwrap() {
        for (field, value) in fields.as_object().unwrap() {
            workspace[part][field] = value.clone();
        }
    }
    let params = PatchParams { dry_run: dry, ..PatchParams::apply("author").force() };
    api.patch(name, &params, &Patch::Apply(&workspace)).await
}

fn spec(fields: &Value) -> Value {
    json!({ "spec": fields })
}

fn pods(fields: &Value) -> Value {
    spec(&json!({ "runner": { "podTemplate": { "spec": fields } } }))
}

/// A request that a policy refuses. Returns the message.
async fn refused(api: &Api<TerraformWorkspace>, name: &str, change: Value) -> String {
    match write(api, name, change.clone(), true).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 403, "{change}: {}", status.message);
            status.message.split_once("denied request: ").expect("a policy").1.to_owned()
        }
        other => panic!("{change}: {other:?}"),
    }
}

#[tokio::test]
async fn authors_may_not_ask_for_what_reaches_beyond_their_pods() {
    let stage = Stage::new("authors").await;
    let author = person(&stage, "author").await;
    let disk = |kind: &str| pods(&json!({ "volumes": [{ "name": "disk", kind: {} }] }));
    // Existing workspaces can be annotated and corrected.
    write(&author, "older", disk("hostPath"), false).await.unwrap();
    guarded(&stage, &["authors.images={registry.example.com/tofu/*}"]).await;
    let annotated = json!({ "metadata": { "annotations": { "a": "b" } } });
    author.patch("older", &PatchParams::default(), &Patch::Merge(&annotated)).await.unwrap();
    let patch = json!({ "spec": { "approval": "Manual" } });
    author.patch("older", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap_err();
    write(&author, "older", json!({}), true).await.unwrap();

    for kind in ["hostPath", "secret", "projected"] {
        let words = refused(&author, "new", disk(kind)).await;
        assert!(
            words.starts_with("spec.runner.podTemplate.spec.volumes: ")
                && words.contains("add it to authors.volumeTypes"),
            "{words}"
        );
    }
    let fields = [
        ("serviceAccountName", "serviceAccounts"),
        ("priorityClassName", "priorityClasses"),
        ("runtimeClassName", "runtimeClasses"),
    ];
    for (field, value) in fields {
        let words = refused(&author, "new", pods(&json!({ field: "mine" }))).await;
        assert!(words.starts_with(&format!("spec.runner.podTemplate.spec.{field}: mine is not allowed")), "{words}");
        assert!(words.contains(&format!("add it to authors.{value}")), "{words}");
    }
    let image = |name: &str| spec(&json!({ "engine": { "image": name } }));
    let words = refused(&author, "new", image("registry.example.com/other:1")).await;
    assert!(words.starts_with("spec.engine.image: registry.example.com/other:1 is not allowed"), "{words}");
    write(&author, "new", image("registry.example.com/tofu/aws:1"), true).await.unwrap();
    let claim = pods(&json!({ "volumes": [{ "name": "disk", "persistentVolumeClaim": { "claimName": "disk" } }] }));
    write(&author, "new", claim, true).await.unwrap();
    let own = spec(&json!({ "module": { "inline": { "files": { "main.tf": "" } } } }));
    let words = refused(&author, "new", own).await;
    assert!(words.starts_with("spec.module: only modules that are part of the operator"), "{words}");
    assert!(words.contains("authors.modules to Any, or authors.trusted to true"), "{words}");

    // What does as much as a module.
    for name in ["TF_ENCRYPTION", "TF_REATTACH_PROVIDERS", "TF_PLUGIN_CACHE_DIR", "HOME", "TERRAFORM_CONFIG"] {
        let env = spec(&json!({ "env": [{ "name": "AWS_REGION" }, { "name": name, "value": "x" }] }));
        let words = refused(&author, "new", env).await;
        assert!(words.starts_with("spec.env: because of one of these Terraform may run other programs"), "{words}");
    }
    let mount = |path: &str| pods(&json!({ "volumeMounts": [{ "name": "disk", "mountPath": path }] }));
    for path in ["/usr/local/bin", "/", "//etc", "/srv/../usr", "usr", "/lib64", "/var/run/tools", "/var/run", "/run"] {
        let words = refused(&author, "new", mount(path)).await;
        assert!(words.starts_with("spec.runner.podTemplate.spec.volumeMounts: "), "{path}: {words}");
    }
    let fine = ["/srv/greeting", "/data", "/var/run/identity", "/var/lib/states", "/var/runs", "/users"];
    for path in fine {
        write(&author, "new", mount(path), true).await.unwrap();
    }
}

#[tokio::test]
async fn who_names_a_secret_must_be_allowed_to_read_it() {
    let stage = Stage::new("readers").await;
    let author = person(&stage, "author").await;
    guarded(&stage, &[]).await;
    write(&author, "new", spec(&json!({ "variables": { "length": 1 } })), true).await.unwrap();
    let named = [
        json!({ "variablesFrom": [{ "secretRef": { "name": "s" } }] }),
        json!({ "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
        json!({ "backend": { "custom": { "type": "s3", "configFrom": { "secretRef": { "name": "s" } } } } }),
        json!({ "backend": { "managed": { "adopt": { "secretRef": { "name": "s" } } } } }),
    ];
    for fields in &named {
        let words = refused(&author, "new", spec(fields)).await;
        assert!(
            words.contains("author is not allowed to get secrets in namespace") && words.contains("authors.secrets"),
            "{words}"
        );
    }
    let rule = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] });
    grant(&stage, "author", "reads", rule).await;
    let reads = async {
        for fields in &named {
            while write(&author, "new", spec(fields), true).await.is_err() {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, reads).await.expect("who may read Secrets may name them");
}

#[tokio::test]
async fn without_a_policy_the_operator_refuses_all_the_same_and_makes_no_job() {
    let stage = Stage::new("unguarded").await;
    let running = stage.start();
    let volumes =
        json!({ "podTemplate": { "spec": { "volumes": [{ "name": "node", "hostPath": { "path": "/" } }] } } });
    stage.write("net", json!({ "runner": volumes })).await;
    let message = stage.says("net", "InvalidSpec").await;
    assert!(message.starts_with("spec.runner.podTemplate.spec.volumes[0]: hostPath is not allowed"), "{message}");
    assert_eq!(stage.names::<Job>().await, [""; 0]);
    // Applied without podTemplate, and then deleted with one: a destroy gets no access to the node either.
    stage.write("net", json!({ "runner": {} })).await;
    let job = stage.ready("net").await.status.unwrap().run.unwrap().job;
    stage.write("net", json!({ "runner": volumes })).await;
    stage.says("net", "InvalidSpec").await;
    stage.workspaces().delete("net", &kube::api::DeleteParams::default()).await.unwrap();
    let message = stage.says("net", "DestroyBlocked").await;
    assert!(message.contains("hostPath is not allowed"), "{message}");
    assert_eq!(stage.names::<Job>().await, [job]);
    stage.write("net", json!({ "runner": {} })).await;
    crate::stage::gone_by_name(&stage, "net").await;
    running.stop().await;
}

#[tokio::test]
async fn without_a_policy_the_operator_applies_only_modules_that_it_includes_unless_authors_are_trusted() {
    let stage = Stage::new("builtin").await;
    let strict = stage.start_for(render::Authors::default());
    stage.write("net", json!({})).await;
    let message = stage.says("net", "InvalidSpec").await;
    assert!(message.starts_with("spec.module: only modules that are part of the operator"), "{message}");
    assert!(message.contains("authors.modules to Any, or authors.trusted to true"), "{message}");
    assert_eq!(stage.names::<Job>().await, [""; 0]);
    stage.write("simple", json!({ "module": { "builtin": "simple" } })).await;
    stage.ready("simple").await;
    strict.stop().await;

    let trusting = stage.start_for(render::Authors::trusted());
    stage.ready("net").await;
    trusting.stop().await;
}

#[tokio::test]
async fn approving_takes_a_right_of_its_own() {
    let stage = Stage::new("approvers").await;
    let (author, owner) = (person(&stage, "author").await, person(&stage, "owner").await);
    guarded(&stage, &[]).await;
    let rule = json!({ "apiGroups": ["infra.opr8r"], "resources": ["terraformworkspaces"], "verbs": ["approve"] });
    grant(&stage, "owner", "approves", rule).await;
    let approves = |id: &str| json!({ "metadata": { "annotations": { "infra.opr8r/approve": id } } });
    write(&author, "net", spec(&json!({ "approval": "Manual" })), false).await.unwrap();

    let annotate = async |api: &Api<TerraformWorkspace>, change: Value| {
        api.patch("net", &PatchParams::default(), &Patch::Merge(&change)).await
    };
    let words = annotate(&author, approves("plan-1")).await.unwrap_err().to_string();
    let right = "author is not allowed to approve plans of TerraformWorkspace net; this requires the verb approve";
    assert!(words.contains(right), "{words}");
    for level in ["Auto", "AutoUnlessDestroy"] {
        let words = annotate(&author, json!({ "spec": { "approval": level } })).await.unwrap_err().to_string();
        assert!(words.contains("spec.approval: author is not allowed to reduce"), "{words}");
    }
    // Nor can a workspace be created with an approval.
    let mut born = spec(&json!({ "approval": "Manual" }));
    born["metadata"] = approves("plan-1")["metadata"].clone();
    refused(&author, "born", born).await;

    let can = async {
        while annotate(&owner, approves("plan-1")).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, can).await.expect("who may approve can");
    // An approval by someone else does not prevent other changes, and can be removed.
    annotate(&author, json!({ "spec": { "suspend": true } })).await.unwrap();
    annotate(&author, json!({ "metadata": { "annotations": { "infra.opr8r/approve": null } } })).await.unwrap();
    annotate(&owner, json!({ "spec": { "approval": "Auto" } })).await.unwrap();
    annotate(&author, json!({ "spec": { "approval": "Manual" } })).await.unwrap();
}
