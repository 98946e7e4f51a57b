//! Restarts and crashes: nothing is done twice, nothing is left undone.

use k8s_openapi::api::batch::v1::Job;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use opcore_testing::crashing::{CUTS, crash_at};
use opcore_testing::running::Running;
use sandbox::{Options, Sandbox, results};

use crate::stage::{PATIENCE, Stage, eventually, gone, map, start};

#[tokio::test]
async fn a_restart_on_a_converged_cluster_writes_nothing() {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    let stage = Stage::on(&sandbox, "restart").await;
    let running = start(stage.config.clone());
    // The API server fills in and rewrites much of this.
    let rewritten = "{manifests: {namespace: NS, inline: '{apiVersion: v1, kind: List, items: [\
        {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}, \
        {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 0, selector: {matchLabels: {app: web}}, \
        template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: none, ports: [{containerPort: 80}], \
        resources: {requests: {cpu: 1000m, memory: 1.5Gi}, limits: {cpu: 2}}, \
        env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]}}}}]}'}}";
    stage
        .plan(&format!(
            "resync: 1s\nwaves: [{{name: first, members: [{}]}}, {{name: last, dependsOn: [{{wave: first}}], members: [{}, {rewritten}]}}]",
            map("a"),
            map("b")
        ))
        .await;
    let before = stage.ready().await;
    running.stop().await;
    let running = start(stage.config.clone());
    // It has compared everything anew at least twice.
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
    // It has nothing to do, is complete at once, and goes a second later.
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
    // Whoever puts this right has seen that the Job is not there.
    let put_right = async || {
        let before = stage.maps().get("a").await.unwrap().uid();
        stage.maps().delete("a", &DeleteParams::default()).await.unwrap();
        eventually(&stage.maps(), "a", "made anew", |map| map.uid() != before).await;
        stage.ready().await;
    };
    put_right().await;
    assert_eq!(made(&running), 1);
    running.stop().await;
    let running = start(stage.config.clone());
    put_right().await;
    assert_eq!(made(&running), 0);
    // In the next rollout it is another.
    stage.plan(&plan("b")).await;
    let next = stage.ready().await.status.unwrap().waves[0].completed.clone();
    assert!(next.len() == 1 && next != done, "{next:?}");
    assert_eq!(made(&running), 1);
    running.stop().await;
}

/// Two waves, and something to prune: what the first round applies and the second does not.
fn plan(stage: &Stage, round: &str) -> String {
    format!(
        "waves: [{{name: first, members: [{}, {}]}}, {{name: last, dependsOn: [{{wave: first}}], members: [{}]}}]",
        map(&format!("a{round}")),
        map("kept"),
        map("z")
    )
    .replace("NS", &stage.namespace)
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_rollout_and_of_a_teardown_ends_in_the_same_state() {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    for cut in CUTS {
        let mut cuts = 0;
        for n in 1.. {
            let stage = Stage::on(&sandbox, "crash").await;
            stage.plan(&plan(&stage, "1")).await;
            let crashed = crash_at(&stage.client, n, cut, start, async { drop(stage.ready().await) }).await;
            let running = start(stage.config.clone());
            stage.ready().await;
            assert_eq!(stage.applied().await, ["a1", "kept", "z"], "{cut:?} {n}");
            running.stop().await;

            // The next rollout brings one object and prunes another.
            stage.plan(&plan(&stage, "2")).await;
            let pruned = async {
                stage.ready().await;
                while stage.applied().await != ["a2", "kept", "z"] {
                    tokio::task::yield_now().await;
                }
            };
            let crashed_again = crash_at(&stage.client, n, cut, start, pruned).await;
            let running = start(stage.config.clone());
            let uid = stage.ready().await.uid().unwrap();
            let settled = async {
                while stage.applied().await != ["a2", "kept", "z"] {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, settled).await.expect("the second rollout ends as it would without a crash");
            running.stop().await;

            stage.plans().delete(&stage.name(), &DeleteParams::default()).await.unwrap();
            let plans = stage.plans();
            let crashed_at_last = crash_at(&stage.client, n, cut, start, gone(&plans, &stage.name(), &uid)).await;
            let running = start(stage.config.clone());
            gone(&plans, &stage.name(), &uid).await;
            assert_eq!(stage.applied().await, [""; 0], "{cut:?} {n}");
            running.stop().await;
            if !(crashed || crashed_again || crashed_at_last) {
                break;
            }
            cuts += usize::from(crashed) + usize::from(crashed_again) + usize::from(crashed_at_last);
        }
        assert!(cuts > 15, "only {cuts} writes were cut");
    }
}
