//! Waves that apply manifests: in order, kept as specified, and updated.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use sandbox::{Options, Sandbox, results};
use serde_json::json;
use wave_orchestrator::api::v1alpha1::{PlanPhase, WavePhase};

use crate::stage::{Stage, eventually, map, start, wave, words};

#[tokio::test]
async fn waves_apply_in_the_order_of_their_dependencies() {
    let stage = Stage::new("order").await;
    stage
        .plan(&format!(
            "waves: [{{name: last, dependsOn: [{{wave: middle}}], members: [{}]}}, \
             {{name: first, members: [{}]}}, \
             {{name: middle, dependsOn: [{{wave: first}}], members: [{}]}}]",
            map("c"),
            map("a"),
            map("b")
        ))
        .await;
    let plan = stage.ready().await;
    let status = plan.status.as_ref().unwrap();
    assert_eq!(status.waves.iter().map(|wave| wave.name.as_str()).collect::<Vec<_>>(), ["first", "middle", "last"]);
    assert_eq!((status.phase, status.progress.as_deref()), (Some(PlanPhase::Ready), Some("3/3")));
    for (before, after) in [("first", "middle"), ("middle", "last")] {
        let (before, after) = (wave(&plan, before).unwrap(), wave(&plan, after).unwrap());
        assert!(before.ready_at <= after.started_at, "{before:?} {after:?}");
    }
    assert!(opcore::conditions::is_true(&status.conditions, "StartedInOrder"));
    // Versions increase: an object that was applied later has a higher one.
    let version =
        async |name: &str| stage.maps().get(name).await.unwrap().resource_version().unwrap().parse::<u64>().unwrap();
    assert!(version("a").await < version("b").await && version("b").await < version("c").await);
}

#[tokio::test]
async fn a_kind_whose_definition_comes_in_an_earlier_wave_is_picked_up_as_it_appears() {
    let stage = Stage::new("kinds").await;
    let group = format!("{}.example.io", stage.namespace);
    stage
        .plan(&format!(
            "waves:
- name: things
  dependsOn: [{{wave: definitions}}]
  members:
  - manifests: {{inline: '{{apiVersion: {group}/v1, kind: Thing, metadata: {{name: one, namespace: NS}}, spec: {{size: 1}}}}'}}
  healthChecks:
  - target: {{apiVersion: {group}/v1, kind: Thing, namespace: NS, name: one}}
    ready: \"status.phase == 'Up'\"
    failed: \"status.phase == 'Down'\"
- name: definitions
  members:
  - manifests:
      inline: |
        apiVersion: apiextensions.k8s.io/v1
        kind: CustomResourceDefinition
        metadata: {{name: things.{group}}}
        spec:
          group: {group}
          scope: Namespaced
          names: {{kind: Thing, plural: things, singular: thing}}
          versions:
          - {{name: v1, served: true, storage: true, subresources: {{status: {{}}}},
             schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}
"
        ))
        .await;
    let things = stage.dynamic(&format!("{group}/v1"), "Thing", "things");
    stage.until_wave("definitions", WavePhase::Ready).await;
    let running = stage.until_wave("things", WavePhase::Running).await;
    assert_eq!(running.total, 2);
    // The test acts as the controller of this kind.
    let say = async |phase: &str| {
        eventually(&things, "one", "applied", |_| true).await;
        let status = json!({ "status": { "phase": phase } });
        things.patch_status("one", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    };
    say("Down").await;
    let failed = stage.until_wave("things", WavePhase::Failed).await;
    let message = &failed.not_ready[0].message;
    assert!(message.ends_with("one failed: status.phase == 'Down' is true."), "{message}");
    say("Up").await;
    stage.ready().await;

    // The kind has no observedGeneration: right after an update, its old status does not count.
    let uid = things.get("one").await.unwrap().uid();
    let spec = stage.plans().get(&stage.name()).await.unwrap();
    let text = serde_json::to_string(&spec.spec).unwrap().replace("size: 1", "size: 2");
    stage.plan(&text).await;
    let running = stage.until_wave("things", WavePhase::Running).await;
    assert!(running.started_at.is_some());
    let reported = stage
        .until("one whose thing is not believed", |plan| {
            wave(plan, "things")
                .is_some_and(|wave| wave.not_ready.iter().any(|entry| entry.reason == "StatusNotRenewed"))
        })
        .await;
    assert_eq!(reported.status.unwrap().phase, Some(PlanPhase::Running));
    say("Busy").await;
    say("Up").await;
    stage.ready().await;
    let thing = things.get("one").await.unwrap();
    assert_eq!((thing.uid(), thing.data["spec"]["size"].as_i64()), (uid, Some(2)));
}

#[tokio::test]
async fn what_is_changed_or_deleted_by_hand_is_corrected_at_once() {
    let stage = Stage::new("drift").await;
    stage.plan(&format!("waves: [{{name: one, members: [{}]}}]", map("kept"))).await;
    stage.ready().await;
    let before = stage.maps().get("kept").await.unwrap();
    let edit = json!({ "data": { "a": "2" } });
    stage
        .maps()
        .patch(
            "kept",
            &PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() },
            &Patch::Merge(&edit),
        )
        .await
        .unwrap();
    let right = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["a"] == "1");
    eventually(&stage.maps(), "kept", "put right", right).await;
    stage.maps().delete("kept", &DeleteParams::default()).await.unwrap();
    eventually(&stage.maps(), "kept", "recreated", |map: &ConfigMap| map.uid() != before.uid()).await;
    stage.ready().await;
}

#[tokio::test]
async fn a_change_in_a_source_starts_a_new_rollout() {
    let stage = Stage::new("source").await;
    let manifest = |value: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: from-source, namespace: {}}}\ndata: {{a: \"{value}\"}}\n",
            stage.namespace
        )
    };
    stage
        .plan("waves: [{name: one, members: [{name: base, manifests: {configMapRef: {namespace: NS, name: source}}}]}]")
        .await;
    let missing = stage.until_wave("one", WavePhase::Failed).await;
    assert!(missing.not_ready[0].message.contains("member base: ConfigMap"), "{missing:?}");
    stage.create_map(json!({ "metadata": { "name": "source" }, "data": { "a.yaml": manifest("1") } })).await;
    let first = stage.ready().await.status.unwrap().rollout.unwrap();
    let change = json!({ "data": { "a.yaml": manifest("2") } });
    stage.maps().patch("source", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    let second = stage
        .until("in its next rollout", |plan| {
            let rollout = plan.status.as_ref().and_then(|status| status.rollout.as_ref());
            rollout.is_some_and(|rollout| rollout.number == first.number + 1 && rollout.finished_at.is_some())
        })
        .await;
    assert_eq!(stage.maps().get("from-source").await.unwrap().data.unwrap()["a"], "2");
    assert_ne!(second.status.unwrap().rollout.unwrap().revision, first.revision);
}

#[tokio::test]
async fn members_of_a_sequential_wave_start_one_after_another() {
    let stage = Stage::new("sequence").await;
    let pvc = "{manifests: {namespace: NS, inline: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: slow}, spec: {replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: none}]}}}}'}}";
    stage
        .plan(&format!("waves: [{{name: one, parallelism: Sequential, members: [{}, {pvc}, {}]}}]", map("a"), map("z")))
        .await;
    // Without a node the Deployment is never ready.
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = stage.of();
    eventually(&deployments, "slow", "applied", |_| true).await;
    assert_eq!(stage.applied().await, ["a"]);
    stage
        .plan(&format!(
            "waves: [{{name: one, parallelism: Sequential, members: [{}, {}, {}]}}]",
            map("a"),
            pvc.replace("replicas: 1", "replicas: 0"),
            map("z")
        ))
        .await;
    stage.ready().await;
    assert_eq!(stage.applied().await, ["a", "z"]);
}

#[tokio::test]
async fn what_belongs_to_another_tool_is_left_alone_and_the_other_waves_go_on() {
    let stage = Stage::new("foreign").await;
    let theirs = json!({ "metadata": { "name": "theirs", "labels": { "app.kubernetes.io/managed-by": "Helm" } }, "data": { "a": "theirs" } });
    let before = stage.create_map(theirs).await;
    stage
        .plan(&format!(
            "waves: [{{name: bad, members: [{}]}}, {{name: good, members: [{}]}}]",
            map("theirs"),
            map("ours")
        ))
        .await;
    stage.until_wave("good", WavePhase::Ready).await;
    let reported = stage
        .until("stalled", |plan| {
            wave(plan, "bad").is_some_and(|wave| wave.not_ready.iter().any(|entry| entry.reason == "OwnedByAnother"))
        })
        .await;
    let entry = &wave(&reported, "bad").unwrap().not_ready[0];
    assert!(entry.message.contains("it belongs to Helm"), "{entry:?}");
    assert_eq!(stage.maps().get("theirs").await.unwrap().resource_version(), before.resource_version());
    // The owner releases it, and the plan adopts it.
    stage.maps().delete("theirs", &DeleteParams::default()).await.unwrap();
    stage.annotate("opcore.dev/requestedAt", "1").await;
    stage.ready().await;
}

#[tokio::test]
async fn what_stays_refused_is_retried_with_growing_pauses_and_reported_once() {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "refused").await;
    let theirs = json!({ "metadata": { "name": "theirs", "labels": { "app.kubernetes.io/managed-by": "Helm" } } });
    stage.create_map(theirs).await;
    stage.plan(&format!("waves: [{{name: one, members: [{}]}}]", map("theirs"))).await;
    let running = start(stage.config.clone());
    let tries = |text: &str| results::count(text, "opcore_reconciles_total", |line| line.contains("\"refused\""));
    running.until("it was refused twice", |text| tries(text) >= 2).await;
    stage.until("stalled", |plan| words(plan).0 == "OwnedByAnother").await;
    // The delays are at least half a second, one, two and four seconds.
    let begun = Instant::now();
    let before = tries(&running.metrics.text());
    running.until("it was refused thrice more", |text| tries(text) >= before + 3).await;
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
    let reported = |text: &str| {
        results::count(text, "opcore_api_requests_total", |line| {
            line.contains("resource=\"waveplans.waves.opcore.dev/status\"")
        })
    };
    // The start, the refusal, and the refused object.
    assert!(reported(&running.metrics.text()) <= 4, "{}", running.metrics.text());
    running.stop().await;
}

#[tokio::test]
async fn a_claim_that_waits_for_its_first_consumer_is_ready_where_a_check_says_so() {
    let stage = Stage::new("claim").await;
    stage
        .plan(
            "waves:
- name: storage
  members:
  - manifests:
      namespace: NS
      inline: |
        {apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: NS}, provisioner: example.io/none, volumeBindingMode: WaitForFirstConsumer}
        ---
        apiVersion: v1
        kind: PersistentVolumeClaim
        metadata: {name: data}
        spec: {storageClassName: NS, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  healthChecks:
  - target: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: NS, name: data}
    ready: status.phase in ['Pending', 'Bound']
",
        )
        .await;
    stage.ready().await;
}

#[tokio::test]
async fn what_the_api_server_writes_in_another_form_is_ready_and_applied_once() {
    let stage = Stage::new("forms").await;
    // The API server sets the protocol of a port and the version of a field, and writes a whole CPU as 1.
    stage
        .plan(
            "waves:
- name: one
  members:
  - manifests:
      namespace: NS
      inline: |
        {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {a: b}, ports: [{port: 80}]}}
        ---
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web}
        spec:
          replicas: 0
          selector: {matchLabels: {a: b}}
          template:
            metadata: {labels: {a: b}}
            spec:
              containers:
              - name: c
                image: none
                ports: [{containerPort: 80}]
                resources: {limits: {cpu: 1000m}}
                env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
",
        )
        .await;
    let plan = stage.ready().await;
    assert_eq!(wave(&plan, "one").unwrap().attempts, 0);
    // A status of another controller is no reason to change anything.
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = stage.of();
    let label = json!({ "metadata": { "labels": { "theirs": "yes" } } });
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    stage.ready().await;
    let web = deployments.get("web").await.unwrap();
    assert_eq!((web.metadata.generation, web.labels()["theirs"].as_str()), (Some(1), "yes"));
}

#[tokio::test]
async fn what_a_watch_reported_is_not_undone_by_the_answer_to_a_write_before_it() {
    let stage = Stage::new("answers").await;
    // A CustomResourceDefinition is established while the other writes of its stage are in progress.
    let namespace =
        |n| format!("        ---\n        {{apiVersion: v1, kind: Namespace, metadata: {{name: NS-{n}}}}}\n");
    let namespaces = (0..12).map(namespace).collect::<Vec<_>>().concat();
    stage
        .plan(&format!(
            "waves:
- name: one
  members:
  - manifests:
      inline: |
        apiVersion: apiextensions.k8s.io/v1
        kind: CustomResourceDefinition
        metadata: {{name: things.NS.example.io}}
        spec:
          group: NS.example.io
          scope: Namespaced
          names: {{kind: Thing, plural: things, singular: thing}}
          versions:
          - {{name: v1, served: true, storage: true,
             schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}
{namespaces}"
        ))
        .await;
    stage.ready().await;
}

#[tokio::test]
async fn hooks_are_done_before_the_members_and_after_them() {
    let stage = Stage::new("hooks").await;
    let hook = |name: &str, replicas: u8| {
        format!(
            "{{namespace: NS, inline: '{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: {name}}}, spec: {{replicas: {replicas}, selector: {{matchLabels: {{a: {name}}}}}, template: {{metadata: {{labels: {{a: {name}}}}}, spec: {{containers: [{{name: c, image: none}}]}}}}}}}}'}}"
        )
    };
    let plan = |before: u8| {
        format!(
            "waves: [{{name: one, members: [{}], hooks: {{before: {}, after: {}}}}}]",
            map("member"),
            hook("before", before),
            hook("after", 0)
        )
    };
    // Without a node it is never ready, so nothing else starts.
    stage.plan(&plan(1)).await;
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = stage.of();
    eventually(&deployments, "before", "applied", |_| true).await;
    stage.until_wave("one", WavePhase::Running).await;
    assert_eq!(stage.applied().await, [""; 0]);
    stage.plan(&plan(0)).await;
    stage.ready().await;
    let version = async |meta: kube::core::ObjectMeta| meta.creation_timestamp.map(|time| time.0);
    let member = version(stage.maps().get("member").await.unwrap().metadata).await;
    let after = version(deployments.get("after").await.unwrap().metadata).await;
    assert!(member <= after, "{member:?} {after:?}");
}
