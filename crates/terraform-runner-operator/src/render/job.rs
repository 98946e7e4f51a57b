//! The Job of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use opcore::Write;
use opcore::duration::Span;
use serde_json::{Value, json};

use super::rights::service_account;
use super::settings::Settings;
use super::{labels, marks, metadata, names};
use crate::api::v1alpha1::{Action, Approval, Run, TerraformWorkspace, TerraformWorkspaceSpec};
use crate::run::order::{
    INPUTS_PATH, ORDER_VARIABLE, Order, POD_VARIABLE, PREVIOUS_PATH, STORE_VARIABLE, StateOrder, StoreOrder, WORK_PATH,
};

/// How long Terraform may take to stop after it was asked to: providers may have to wait for a cloud.
const GRACE: Span = Span::from_secs(120);
/// How long a pod may take in addition to the timeouts of its steps: its image is pulled, its node is slow.
const SLACK: u64 = 600;
/// Where the runner is installed in an image that does not contain it.
const TOOLS_PATH: &str = "/run/tools";
/// Our own volumes. Only the container `store` may use `token`.
const VOLUMES: [&str; 6] = ["inputs", "previous", "work", "tmp", "token", "tools"];
/// How much a pod may write: a few of the largest providers, and their temporary files. Its node is shared.
const WORK_SIZE: &str = "8Gi";
const TMP_SIZE: &str = "2Gi";
/// The runner needs a tenth of it.
const TOOLS_SIZE: &str = "256Mi";
/// An unprivileged user.
const USER: i64 = 65532;

/// How many chunks inputs have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// The chunks of the inputs of the run.
    pub inputs: usize,
    /// The chunks of the inputs that were applied before; none if they are the same, or gone.
    pub previous: usize,
}

/// The Job of a run whose inputs have this many chunks.
pub fn job(workspace: &TerraformWorkspace, run: &Run, chunks: Chunks, settings: &Settings) -> Write {
    let order = order(workspace, run, settings);
    let within: Duration = [order.plan_within, order.apply_within, GRACE, GRACE].map(Span::as_duration).iter().sum();
    let mut metadata = metadata(workspace, run.job.clone(), "run");
    let labels = run_labels(workspace, run.action);
    metadata.labels = Some(labels.clone());
    let spec = json!({
        // The operator retries a run: only it knows whether that is allowed.
        "backoffLimit": 0,
        "completions": 1,
        "parallelism": 1,
        "activeDeadlineSeconds": within.as_secs() + SLACK,
        "podReplacementPolicy": "Failed",
        "template": pod(workspace, run, &order, chunks, &labels, settings),
    });
    let object = DynamicObject { types: None, metadata, data: json!({ "spec": spec }) };
    let resource = ApiResource::erase::<Job>(&());
    let mut object = object;
    object.types = Some(kube::api::TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() });
    Write::apply_dynamic(resource, object)
}

/// The order for the runner.
fn order(workspace: &TerraformWorkspace, run: &Run, settings: &Settings) -> Order {
    // Longer timeouts are refused, but a destroy must proceed.
    let timeouts = settings.longest.clamp(workspace.spec.timeouts);
    Order {
        run: run.job.clone(),
        action: run.action,
        binary: workspace.spec.engine.binary,
        inputs: run.inputs.clone(),
        plan: run.plan.clone(),
        // A destroy needs no approval: deleting the workspace was the approval.
        stop_if_destroys: run.action == Action::Apply
            && run.plan.is_none()
            && workspace.spec.approval != Approval::Auto,
        stop_if_tainted: run.action == Action::Apply && run.plan.is_none() && run.repeats,
        upgrade: run.upgrade,
        state: StateOrder {
            adopts: run.adopts.is_some(),
            // A destroy works from what was applied, wherever the spec now says that the state should be.
            same_place: run.action == Action::Destroy
                || (run.previous_backend.is_some() && run.previous_backend == run.backend),
            expected: run.expects_state && run.action != Action::Destroy,
        },
        plan_within: timeouts.plan,
        apply_within: if run.action == Action::Destroy { timeouts.destroy } else { timeouts.apply },
        grace: GRACE,
    }
}

/// The first field that uses the name of one of our volumes, with that name.
pub(super) fn reserved(spec: &TerraformWorkspaceSpec) -> Option<(String, &str)> {
    let added = &spec.runner.pod_template.as_ref()?.spec;
    let fields = [("volumes", &added.volumes), ("volumeMounts", &added.volume_mounts)];
    let all = fields.into_iter().flat_map(|(field, items)| items.iter().enumerate().map(move |item| (field, item)));
    all.filter(|(_, (_, item))| is_ours(item)).find_map(|(field, (number, item))| {
        Some((format!("spec.runner.podTemplate.spec.{field}[{number}].name"), item["name"].as_str()?))
    })
}

/// Whether this is, or mounts, one of our volumes.
fn is_ours(item: &Value) -> bool {
    item["name"].as_str().is_some_and(|name| VOLUMES.contains(&name))
}

/// The labels of a run: our own, and those with which typed kinds find their runs.
fn run_labels(workspace: &TerraformWorkspace, action: Action) -> BTreeMap<String, String> {
    let mut all = labels(workspace, "run");
    let typed = workspace.labels().iter().filter(|(key, _)| key.starts_with("infra.opr8r/"));
    for (key, value) in typed {
        all.entry(key.clone()).or_insert_with(|| value.clone());
    }
    all.insert("app".to_owned(), "terraform".to_owned());
    all.insert("action".to_owned(), action.word().to_owned());
    all
}

fn pod(
    workspace: &TerraformWorkspace,
    run: &Run,
    order: &Order,
    chunks: Chunks,
    labels: &BTreeMap<String, String>,
    settings: &Settings,
) -> Value {
    let template = workspace.spec.runner.pod_template.clone().unwrap_or_default();
    let added = &template.spec;
    let mut all_labels = template.metadata.labels.clone();
    all_labels.extend(labels.clone());
    let own_image = workspace.spec.engine.image.as_ref();

    let mut volumes = vec![
        inputs_volume(workspace, "inputs", &run.inputs, chunks.inputs),
        json!({ "name": "work", "emptyDir": { "sizeLimit": WORK_SIZE } }),
        json!({ "name": "tmp", "emptyDir": { "sizeLimit": TMP_SIZE } }),
        token(),
    ];
    let mut mounts = vec![
        json!({ "name": "inputs", "mountPath": INPUTS_PATH, "readOnly": true }),
        json!({ "name": "work", "mountPath": WORK_PATH }),
        json!({ "name": "tmp", "mountPath": "/tmp" }),
    ];
    if let Some(previous) = run.previous_inputs.as_ref().filter(|_| chunks.previous > 0) {
        let mut before = inputs_volume(workspace, "previous", previous, chunks.previous);
        for source in before["projected"]["sources"].as_array_mut().into_iter().flatten() {
            // It only lists more confidential values, so no run waits for it.
            source["secret"]["optional"] = json!(true);
        }
        volumes.push(before);
        mounts.push(json!({ "name": "previous", "mountPath": PREVIOUS_PATH, "readOnly": true }));
    }
    let mut first = Vec::new();
    let mut program = "/tf-runner".to_owned();
    if own_image.is_some() {
        let tools = json!({ "name": "tools", "mountPath": TOOLS_PATH });
        volumes.push(json!({ "name": "tools", "emptyDir": { "sizeLimit": TOOLS_SIZE } }));
        mounts.push(tools.clone());
        program = format!("{TOOLS_PATH}/tf-runner");
        let install = json!(["/tf-runner", "install", TOOLS_PATH]);
        first.push(container("install", &settings.image, settings, &install, &json!([tools])));
    }
    first.push(store(workspace, run, settings));
    // Refused volumes are left out: a workspace that is being deleted need not be corrected first.
    volumes.extend(added.volumes.iter().filter(|volume| !is_ours(volume)).cloned());
    mounts.extend(added.volume_mounts.iter().filter(|mount| !is_ours(mount)).cloned());

    let image = own_image.unwrap_or(&settings.image);
    let mut terraform = container("terraform", image, settings, &json!([program, "run"]), &json!(mounts));
    if let (Some(_), Some(fields)) = (own_image, terraform.as_object_mut()) {
        // The setting applies to the runner's own image; other images are pulled by the default policy of Kubernetes.
        fields.remove("imagePullPolicy");
    }
    terraform["env"] = json!([{ "name": ORDER_VARIABLE, "value": text(order) }]);
    terraform["terminationMessagePolicy"] = json!("File");
    terraform["resources"] =
        added.resources.clone().unwrap_or_else(|| json!({ "requests": { "cpu": "50m", "memory": "128Mi" } }));

    let mut spec = json!({
        "serviceAccountName": service_account(workspace),
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE.as_duration().as_secs() + 30,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "initContainers": first,
        "containers": [terraform],
        "volumes": volumes,
    });
    let mut set = |field: &str, value: Value, empty: bool| {
        if !empty {
            spec[field] = value;
        }
    };
    set("nodeSelector", json!(added.node_selector), added.node_selector.is_empty());
    set("tolerations", json!(added.tolerations), added.tolerations.is_empty());
    set("affinity", json!(added.affinity), added.affinity.is_none());
    set("imagePullSecrets", json!(added.image_pull_secrets), added.image_pull_secrets.is_empty());
    set("priorityClassName", json!(added.priority_class_name), added.priority_class_name.is_none());
    set("runtimeClassName", json!(added.runtime_class_name), added.runtime_class_name.is_none());
    let mut annotations = template.metadata.annotations.clone();
    // The pod names its owner, so that its problems are noticed.
    annotations.extend(marks(workspace).annotations);
    json!({ "metadata": { "labels": all_labels, "annotations": annotations }, "spec": spec })
}

/// The only container with a token. It starts first and stops last.
fn store(workspace: &TerraformWorkspace, run: &Run, settings: &Settings) -> Value {
    let order = StoreOrder {
        namespace: workspace.namespace().unwrap_or_default(),
        stem: names(workspace).stem().to_owned(),
        run: run.job.clone(),
        history: workspace.spec.history,
        adopts: run.adopts.clone(),
        marks: marks(workspace),
    };
    let mounts =
        json!([{ "name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true }]);
    let mut store = container("store", &settings.image, settings, &json!(["/tf-runner", "serve"]), &mounts);
    store["restartPolicy"] = json!("Always");
    store["env"] = json!([
        { "name": STORE_VARIABLE, "value": text(&order) },
        { "name": POD_VARIABLE, "valueFrom": { "fieldRef": { "fieldPath": "metadata.uid" } } },
    ]);
    store["resources"] = json!({ "requests": { "cpu": "10m", "memory": "32Mi" } });
    store
}

fn container(name: &str, image: &str, settings: &Settings, command: &Value, mounts: &Value) -> Value {
    json!({
        "name": name,
        "image": image,
        "imagePullPolicy": settings.pull_policy,
        "command": command,
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
    })
}

/// A volume with kept inputs.
fn inputs_volume(workspace: &TerraformWorkspace, name: &str, hash: &str, chunks: usize) -> Value {
    let names = names(workspace);
    let sources = (0..chunks).map(|number| {
        let items = json!([{ "key": "chunk", "path": number.to_string() }]);
        json!({ "secret": { "name": names.inputs_chunk(hash, number), "items": items } })
    });
    json!({ "name": name, "projected": { "defaultMode": 0o444, "sources": sources.collect::<Vec<_>>() } })
}

/// The token, as Kubernetes itself would mount it, but for one container only.
fn token() -> Value {
    json!({ "name": "token", "projected": { "defaultMode": 0o444, "sources": [
        { "serviceAccountToken": { "path": "token", "expirationSeconds": 3600 } },
        { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
        { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
    ] } })
}

fn text(order: &impl serde::Serialize) -> String {
    serde_json::to_string(order).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(spec: &Value) -> TerraformWorkspace {
        let metadata = json!({ "name": "network", "namespace": "infra", "uid": "u-1" });
        let mut workspace = json!({
            "apiVersion": "infra.opr8r/v1alpha1", "kind": "TerraformWorkspace", "metadata": metadata,
            "spec": { "module": { "builtin": "simple" } },
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            workspace["spec"][field] = value.clone();
        }
        serde_json::from_value(workspace).unwrap()
    }

    /// The spec of the pod of a run.
    fn pod_of(workspace: &TerraformWorkspace, action: Action, inputs: &str, chunks: usize) -> Value {
        let chunks = Chunks { inputs: chunks, previous: 0 };
        let run = json!({
            "number": 1, "job": names(workspace).job(1), "action": action, "inputs": inputs,
            "startedAt": jiff::Timestamp::UNIX_EPOCH,
        });
        let run: Run = serde_json::from_value(run).unwrap();
        let settings = Settings::new("tf-runner", "IfNotPresent");
        let labels = run_labels(workspace, action);
        let order = order(workspace, &run, &settings);
        pod(workspace, &run, &order, chunks, &labels, &settings)["spec"].clone()
    }

    fn order_of(pod: &Value) -> Order {
        serde_json::from_str(pod["containers"][0]["env"][0]["value"].as_str().unwrap()).unwrap()
    }

    #[test]
    fn the_job_of_a_run_with_all_that_a_workspace_may_say_of_it() {
        let mut workspace = workspace(&json!({
            "engine": { "binary": "terraform", "image": "registry.example.com/terraform:1.11" },
            "approval": "Manual",
            "runner": { "podTemplate": {
                "metadata": { "labels": { "team": "network", "app": "mine" }, "annotations": { "note": "b" } },
                "spec": {
                    "nodeSelector": { "kubernetes.io/arch": "amd64" },
                    "tolerations": [{ "key": "infra", "operator": "Exists" }],
                    "affinity": { "nodeAffinity": {} },
                    "resources": { "limits": { "memory": "1Gi" } },
                    "volumes": [{ "name": "identity", "projected": { "sources": [
                        { "serviceAccountToken": { "audience": "sts.example.com", "path": "token" } },
                    ] } }],
                    "volumeMounts": [{ "name": "identity", "mountPath": "/var/run/identity", "readOnly": true }],
                    "imagePullSecrets": [{ "name": "pull" }],
                    "serviceAccountName": "cloud",
                    "priorityClassName": "high",
                    "runtimeClassName": "gvisor",
                },
            } },
        }));
        workspace.metadata.labels = Some([("infra.opr8r/simpleresource".to_owned(), "sample".to_owned())].into());
        let run = json!({
            "number": 7, "job": names(&workspace).job(7), "action": "Apply", "inputs": "1".repeat(64), "plan": "0123456789ab",
            "previousInputs": "2".repeat(64), "expectsState": true, "startedAt": jiff::Timestamp::UNIX_EPOCH,
        });
        let run: Run = serde_json::from_value(run).unwrap();
        let settings = Settings::new("ghcr.io/opcore-dev/tf-runner:1", "Never");
        let Write::Apply(apply) = job(&workspace, &run, Chunks { inputs: 2, previous: 1 }, &settings) else {
            panic!("a Job is applied")
        };
        insta::assert_yaml_snapshot!(apply.object);
    }

    #[test]
    fn only_an_apply_stops_at_a_plan_that_destroys() {
        let guarded = workspace(&json!({ "approval": "AutoUnlessDestroy" }));
        let stops = |action| order_of(&pod_of(&guarded, action, "hash", 1)).stop_if_destroys;
        assert!(stops(Action::Apply));
        for action in [Action::Plan, Action::Check, Action::Destroy] {
            assert!(!stops(action), "{action:?}");
        }
        assert!(!order_of(&pod_of(&workspace(&json!({})), Action::Apply, "hash", 1)).stop_if_destroys);
    }

    #[test]
    fn a_repetition_stops_at_a_plan_that_recreates_what_was_left_incomplete() {
        let stops = |action: &str, plan: Option<&str>, repeats: bool| {
            let run = json!({
                "number": 1, "job": "job", "action": action, "inputs": "hash", "startedAt": jiff::Timestamp::UNIX_EPOCH,
                "plan": plan, "repeats": repeats,
            });
            order(&workspace(&json!({})), &serde_json::from_value(run).unwrap(), &Settings::new("runner", "Never"))
                .stop_if_tainted
        };
        assert!(stops("Apply", None, true));
        assert!(!stops("Apply", None, false) && !stops("Apply", Some("plan"), true) && !stops("Destroy", None, true));
    }

    #[test]
    fn a_state_is_taken_for_that_of_a_backend_only_where_it_was_before() {
        let workspace = workspace(&json!({}));
        let is_same = |action: &str, before: Option<&str>, now: Option<&str>| {
            let run = json!({
                "number": 1, "job": "job", "action": action, "inputs": "hash", "startedAt": jiff::Timestamp::UNIX_EPOCH,
                "previousBackend": before, "backend": now,
            });
            let settings = Settings::new("tf-runner", "IfNotPresent");
            order(&workspace, &serde_json::from_value(run).unwrap(), &settings).state.same_place
        };
        assert!(is_same("Apply", Some("s3-1"), Some("s3-1")) && is_same("Destroy", Some("s3-1"), None));
        assert!(!is_same("Apply", Some("managed"), Some("s3-1")) && !is_same("Apply", None, Some("s3-1")));
    }

    #[test]
    fn each_action_has_the_time_that_the_spec_gives_it() {
        let timed = workspace(&json!({ "timeouts": { "plan": "1m", "apply": "2m", "destroy": "3m" } }));
        let within = |action| {
            let order = order_of(&pod_of(&timed, action, "hash", 1));
            (order.plan_within, order.apply_within)
        };
        assert_eq!(within(Action::Apply), (Span::from_secs(60), Span::from_secs(120)));
        assert_eq!(within(Action::Destroy), (Span::from_secs(60), Span::from_secs(180)));
        let endless = workspace(&json!({ "timeouts": { "destroy": "1000h" } }));
        let order = order_of(&pod_of(&endless, Action::Destroy, "hash", 1));
        assert_eq!(order.apply_within, Settings::new("", "").longest.destroy, "no longer than anything may take");
    }

    #[test]
    fn nobody_but_the_store_is_given_its_token() {
        let greedy = workspace(&json!({ "runner": { "podTemplate": { "spec": {
            "volumes": [{ "name": "work", "hostPath": { "path": "/" } }, { "name": "data", "emptyDir": {} }],
            "volumeMounts": [
                { "name": "token", "mountPath": "/token" }, { "name": "data", "mountPath": "/data" },
            ],
        } } } }));
        let pod = pod_of(&greedy, Action::Destroy, "hash", 1);
        let names = |items: &Value| -> Vec<String> {
            items.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&pod["volumes"]), ["inputs", "work", "tmp", "token", "data"]);
        assert_eq!(names(&pod["containers"][0]["volumeMounts"]), ["inputs", "work", "tmp", "data"]);
    }

    #[test]
    fn a_pod_is_given_every_chunk_of_its_inputs_in_their_order() {
        let mut word = 1_u64;
        let next = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from_digit(u32::try_from((word >> 33) % 36).unwrap(), 36).unwrap()
        };
        let text: String = std::iter::repeat_with(next).take(3_000_000).collect();
        let large = workspace(&json!({ "variables": { "text": text } }));
        let inputs = crate::render::inputs(&large.spec, &BTreeMap::new()).unwrap();
        let kept = crate::render::input_secrets(&large, &inputs);
        assert!(kept.len() > 2, "{}", kept.len());
        let pod = pod_of(&large, Action::Apply, &inputs.hash, kept.len());
        let sources = pod["volumes"][0]["projected"]["sources"].as_array().unwrap();
        // The files in the layout that the kubelet creates.
        let folder = tempfile::tempdir().unwrap();
        for source in sources {
            let secret = kept.iter().find(|secret| source["secret"]["name"] == secret.name_any()).unwrap();
            let item = &source["secret"]["items"][0];
            let bytes = &secret.data.as_ref().unwrap()[item["key"].as_str().unwrap()].0;
            std::fs::write(folder.path().join(item["path"].as_str().unwrap()), bytes).unwrap();
        }
        let bundle = crate::store::inputs::read(folder.path()).unwrap();
        assert_eq!(crate::run::bundle::Bundle::hash(&bundle), inputs.hash);
    }
}
