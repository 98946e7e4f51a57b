//! Restarts and crashes: nothing is done twice, and nothing is left undone.

use std::collections::BTreeMap;
use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use opcore_testing::crashing::crash_at;
use opcore_testing::proxy::Fate;
use opcore_testing::running::Running;
use sandbox::{Options, Sandbox, results};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::stage::{NAME, PATIENCE, Stage, eventually, gone, is_held, map, reconciled, start};

#[tokio::test]
async fn a_restart_on_a_converged_cluster_writes_nothing() {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "restart").await;
    let running = start(stage.config.clone());
    // The API server sets and rewrites many of these fields.
    let rewritten = "{manifests: {namespace: NS, inline: '{apiVersion: v1, kind: List, items: [\
        {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}, \
        {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 0, selector: {matchLabels: {app: web}}, \
        template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: none, ports: [{containerPort: 80}], \
        resources: {requests: {cpu: 1000m, memory: 1.5Gi}, limits: {cpu: 2}}, \
        env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]}}}}]}'}}";
    stage
        .plan(&format!(
            "resync: 10s\nwaves: [{{name: first, members: [{}]}}, {{name: last, dependsOn: [{{wave: first}}], members: [{}, {rewritten}]}}]",
            map("a"),
            map("b")
        ))
        .await;
    let before = stage.ready().await;
    running.stop().await;
    let running = start(stage.config.clone());
    // The operator has compared everything again at least twice.
    let compared = async {
        let lists = |text: &str| {
            let line = text
                .lines()
                .find(|line| line.contains("resource=\"configmaps\",verb=\"list\""))
                .unwrap_or_default()
                .to_owned();
            line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok()).unwrap_or_default()
        };
        while lists(&running.metrics.text()) < 4.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, compared).await.expect("it compares");
    assert_eq!(running.writes(), [""; 0]);
    running.stop().await;
    let after = stage.plans().get(&stage.name()).await.unwrap();
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version);
}

#[tokio::test]
async fn a_job_that_clears_itself_away_runs_once_in_a_rollout_whoever_restarts() {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "once").await;
    let jobs: Api<Job> = stage.of();
    let made = |running: &Running| {
        results::count(&running.metrics.text(), "opcore_api_requests_total", |line| {
            line.contains("resource=\"jobs.batch\"") && line.contains("verb=\"patch\"")
        })
    };
    // The Job has nothing to do, completes at once, and is deleted a second later.
    let plan = |member: &str| {
        let job = "{apiVersion: batch/v1, kind: Job, metadata: {name: migrate}, spec: {completions: 0, ttlSecondsAfterFinished: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: none}]}}}}";
        let hooks = format!("{{before: {{namespace: NS, inline: '{job}'}}}}");
        format!("waves: [{{name: one, hooks: {hooks}, members: [{}]}}]", map(member))
    };
    let running = start(stage.config.clone());
    stage.plan(&plan("a")).await;
    let done = stage.ready().await.status.unwrap().waves[0].completed.clone();
    assert_eq!(done.len(), 1, "{done:?}");
    let name = done[0].rsplit('/').next().unwrap().to_owned();
    let no_job = async || {
        if let Some(job) = jobs.get_opt(&name).await.unwrap() {
            gone(&jobs, &name, &job.uid().unwrap()).await;
        }
    };
    no_job().await;
    // An operator that corrects this has noticed that the Job is gone.
    let put_right = async || {
        let before = stage.maps().get("a").await.unwrap().uid();
        stage.maps().delete("a", &DeleteParams::default()).await.unwrap();
        eventually(&stage.maps(), "a", "recreated", |map| map.uid() != before).await;
        stage.ready().await;
    };
    put_right().await;
    assert_eq!(made(&running), 1);
    running.stop().await;
    let running = start(stage.config.clone());
    put_right().await;
    assert_eq!(made(&running), 0);
    // In the next rollout it is another Job.
    stage.plan(&plan("b")).await;
    let next = stage.ready().await.status.unwrap().waves[0].completed.clone();
    assert!(next.len() == 1 && next != done, "{next:?}");
    assert_eq!(made(&running), 1);
    running.stop().await;
}

/// Two waves with everything that a plan can write: in the first a Job as a hook, ConfigMaps, a Deployment, and a
/// member that is nudged; in the last a member that is gated until it starts. The next round adds one ConfigMap,
/// changes the Deployment, and prunes the other ConfigMap and the Job of the previous round.
fn plan(round: u8) -> String {
    let of_flux = |name: &str, mode: &str| {
        format!(
            "{{ref: {{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, namespace: NS, name: {name}}}, mode: {mode}}}"
        )
    };
    let template = "template: {metadata: {labels: {app: web}}, spec: {restartPolicy: POLICY, containers: [{name: c, image: none}]}}";
    // Without a node it is ready as long as it is suspended.
    let job = format!(
        "{{namespace: NS, inline: '{{apiVersion: batch/v1, kind: Job, metadata: {{name: migrate}}, spec: {{suspend: true, backoffLimit: {round}, {}}}}}'}}",
        template.replace("POLICY", "Never")
    );
    let deployment = format!(
        "{{manifests: {{namespace: NS, inline: '{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{replicas: 0, minReadySeconds: {round}, selector: {{matchLabels: {{app: web}}}}, {}}}}}'}}}}",
        template.replace("POLICY", "Always")
    );
    format!(
        "waves: [{{name: first, hooks: {{before: {job}}}, members: [{}, {}, {deployment}, {}]}}, \
         {{name: last, dependsOn: [{{wave: first}}], members: [{}, {}]}}]",
        map(&format!("a{round}")),
        map("kept"),
        of_flux("nudged", "Nudge"),
        map("z"),
        of_flux("gated", "Gate"),
    )
}

/// The objects in the namespace of a test: each as text with the fields that users set, and its UID. The names of the
/// namespace and of the rollout are left out.
async fn state(stage: &Stage) -> BTreeMap<String, String> {
    let ours = ListParams::default().labels(&format!("opcore.dev/operator={NAME}"));
    let mut found = BTreeMap::new();
    let mut add = |kind: &str, name: &str, content: &Value, object: &ObjectMeta| {
        let mut words = format!("{kind} {name} {content}").replace(&stage.namespace, "NS");
        while found.contains_key(&words) {
            words.push_str(", and another");
        }
        found.insert(words, object.uid.clone().unwrap_or_default());
    };
    for map in stage.maps().list(&ours).await.unwrap() {
        add("ConfigMap", &map.name_any(), &json!(map.data), &map.metadata);
    }
    for web in stage.of::<Deployment>().list(&ours).await.unwrap() {
        add("Deployment", &web.name_any(), &json!(web.spec), &web.metadata);
    }
    for job in stage.of::<Job>().list(&ours).await.unwrap() {
        let name = job.name_any();
        let spec = job.spec.as_ref().unwrap();
        add(
            "Job",
            name.rsplit_once('-').unwrap().0,
            &json!([spec.suspend, spec.backoff_limit, spec.template.spec]),
            &job.metadata,
        );
    }
    for kustomization in stage.kustomizations().await.list(&ListParams::default()).await.unwrap() {
        let nudged = kustomization.annotations().contains_key("reconcile.fluxcd.io/requestedAt");
        let content = json!([kustomization.data["spec"], { "nudged": nudged }]);
        add("Kustomization", &kustomization.name_any(), &content, &kustomization.metadata);
    }
    found
}

fn words(state: &BTreeMap<String, String>) -> Vec<&String> {
    state.keys().collect()
}

/// Waits until the namespace of a test contains exactly this.
async fn until_it_is(stage: &Stage, expected: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let settled = async {
        loop {
            let now = state(stage).await;
            if words(&now) == words(expected) {
                return now;
            }
            tokio::task::yield_now().await;
        }
    };
    let settled = tokio::time::timeout(PATIENCE, settled).await;
    if let Ok(now) = settled { now } else { panic!("{:#?} is not {:#?}", state(stage).await, expected) }
}

/// Whether no object that existed before, and exists now, was recreated.
fn is_the_same(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> bool {
    now.iter().all(|(words, uid)| before.get(words).is_none_or(|before| before == uid))
}

/// A simulated Flux: it reconciles what is not suspended, and on request.
struct Flux(JoinHandle<()>);

impl Flux {
    fn start(all: Api<DynamicObject>, client: Client) -> Self {
        Self(tokio::spawn(async move {
            let mut observed = pin!(watcher(all, watcher::Config::default()).default_backoff().applied_objects());
            while let Some(observed) = observed.next().await {
                let Ok(observed) = observed else { continue };
                let (status, asked) =
                    (&observed.data["status"], observed.annotations().get("reconcile.fluxcd.io/requestedAt"));
                let ready = json!({ "type": "Ready", "status": "True", "reason": "ReconciliationSucceeded" });
                let wanted = json!({
                    "observedGeneration": observed.metadata.generation, "lastHandledReconcileAt": asked, "conditions": [ready],
                });
                if is_held(&observed) || *status == wanted {
                    continue;
                }
                let gvk = GroupVersionKind::gvk("kustomize.toolkit.fluxcd.io", "v1", "Kustomization");
                let (namespace, resource) = (observed.namespace().unwrap(), ApiResource::from_gvk(&gvk));
                let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
                // It may already be gone.
                let patch = Patch::Merge(json!({ "status": wanted }));
                let _ = api.patch_status(&observed.name_any(), &PatchParams::default(), &patch).await;
            }
        }))
    }
}

impl Drop for Flux {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A namespace with the objects that others create in it.
async fn prepared(sandbox: &Sandbox) -> Stage {
    let stage = Stage::on(sandbox, "crash").await;
    let kustomizations = stage.kustomizations().await;
    for name in ["nudged", "gated"] {
        reconciled(&kustomizations, name).await;
    }
    stage
}

/// The results of the two rounds, and of the deletion of the plan, without a crash.
async fn expected(sandbox: &Sandbox) -> [BTreeMap<String, String>; 3] {
    let stage = prepared(sandbox).await;
    let running = start(stage.config.clone());
    let mut expected = Vec::new();
    for round in [1, 2] {
        stage.plan(&plan(round)).await;
        stage.ready().await;
        let pruned = async {
            while state(&stage).await.len() != 7 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, pruned).await.expect("four ConfigMaps and others less what is pruned");
        expected.push(state(&stage).await);
    }
    stage.delete().await;
    expected.push(state(&stage).await);
    running.stop().await;
    expected.try_into().unwrap()
}

/// Crashes at each write of two rollouts and of the teardown. Returns how many writes were cut off.
async fn crash_at_each_write(cut: Fate) -> usize {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let (client, stage) = (sandbox.client().await.unwrap(), prepared(&sandbox).await);
    let gvk = GroupVersionKind::gvk("kustomize.toolkit.fluxcd.io", "v1", "Kustomization");
    let _flux = Flux::start(Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk)), client);
    drop(stage);
    let [first, second, nothing] = expected(&sandbox).await;
    let mut cuts = 0;
    for n in 1.. {
        let stage = prepared(&sandbox).await;
        let plans = stage.plans();
        let mut cut_short = Vec::new();
        for (round, expected) in [(1, &first), (2, &second)] {
            stage.plan(&plan(round)).await;
            let before = state(&stage).await;
            let done = async {
                stage.ready().await;
                until_it_is(&stage, expected).await;
            };
            cut_short.push(Box::pin(crash_at(&stage.client, n, cut, start, done)).await);
            let left = state(&stage).await;
            let running = start(stage.config.clone());
            stage.ready().await;
            let now = until_it_is(&stage, expected).await;
            assert!(is_the_same(&before, &now) && is_the_same(&left, &now), "{cut:?} {n}: {left:#?} {now:#?}");
            running.stop().await;
        }
        let uid = plans.get(&stage.name()).await.unwrap().uid().unwrap();
        plans.delete(&stage.name(), &DeleteParams::default()).await.unwrap();
        cut_short.push(crash_at(&stage.client, n, cut, start, gone(&plans, &stage.name(), &uid)).await);
        let running = start(stage.config.clone());
        gone(&plans, &stage.name(), &uid).await;
        assert_eq!(words(&state(&stage).await), words(&nothing), "{cut:?} {n}");
        running.stop().await;
        let crashed = cut_short.iter().filter(|crashed| **crashed).count();
        if crashed == 0 {
            break;
        }
        cuts += crashed;
    }
    cuts
}

#[tokio::test]
async fn a_crash_before_any_write_of_a_rollout_and_of_a_teardown_ends_in_the_same_state() {
    let cuts = Box::pin(crash_at_each_write(Fate::LoseRequest)).await;
    assert!(cuts > 25, "only {cuts} writes were cut");
}

#[tokio::test]
async fn a_crash_after_any_write_of_a_rollout_and_of_a_teardown_ends_in_the_same_state() {
    let cuts = Box::pin(crash_at_each_write(Fate::LoseAnswer)).await;
    assert!(cuts > 25, "only {cuts} writes were cut");
}
