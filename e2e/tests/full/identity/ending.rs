//! A stack is deleted: nothing goes that something else still needs, and nothing is lost.

use std::fmt::Debug;
use std::pin::pin;

use anyhow::{Context, ensure};
use e2e::identity::{STACK_PATIENCE, all, api, checked_backup, install, orphans, phase, stack, workload};
use e2e::{PATIENCE, Stage, gone, holds, scenario, until, yaml};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::CSINode;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use lifecycle_operator::api::v1alpha1::{
    BACKUP_CLAIM, Backup, OperandStatus, PLUGIN_NAME, SINGLETON, SpiffeCSIDriver, SpireAgent,
    SpireOIDCDiscoveryProvider, SpireServer, ZeroTrustWorkloadIdentityManager,
};
use lifecycle_operator::decide::teardown::DELETION_BLOCKED;
use lifecycle_operator::render::volume::DATA_CLAIM;
use serde::de::DeserializeOwned;

const NAME: &str = "a_pod_that_uses_the_driver_blocks_the_end_and_then_all_goes_in_order_with_a_verified_backup";

#[tokio::test]
async fn a_pod_that_uses_the_driver_blocks_the_end_and_then_all_goes_in_order_with_a_verified_backup()
-> anyhow::Result<()> {
    scenario(NAME, async |stage| {
        install(stage).await?;
        let parent = stack(stage).await?;
        let pods = stage.api::<Pod>();
        workload(stage, "user", &["watch"]).await?;
        until(&pods, "user", "running", PATIENCE, |pod| phase(pod) == "Running").await?;

        let parents = all::<ZeroTrustWorkloadIdentityManager>(stage);
        let ((order, backup), ()) = futures::try_join!(ends(stage), async {
            parents.delete(SINGLETON, &DeleteParams::background()).await?;
            it_is_blocked_by_name(stage).await?;
            pods.delete("user", &DeleteParams::default()).await?;
            Ok(())
        })?;
        ensure!(order == ["SpireOIDCDiscoveryProvider", "SpiffeCSIDriver", "SpireAgent", "SpireServer"], "{order:?}");
        gone(&parents, SINGLETON, parent.uid().as_deref(), PATIENCE).await?;

        nothing_is_left_but_the_data(stage).await?;
        let backup = backup.context("the server went without a backup")?;
        ensure!(told(stage, "BackedUp").await?.contains(&backup.name), "no event names the backup");
        let files = checked_backup(stage, &backup).await?;
        for needed in ["datastore.sqlite3", "keys.json"] {
            ensure!(files.iter().any(|file| file == needed), "{needed} is not in the backup: {files:?}");
        }
        Ok(())
    })
    .await
}

/// The driver stays for the pod, and so does all that it needs; both the driver and the parent say why.
async fn it_is_blocked_by_name(stage: &Stage) -> anyhow::Result<()> {
    let user = format!("{}/user", stage.namespace);
    let drivers = all::<SpiffeCSIDriver>(stage);
    let driver = until(&drivers, SINGLETON, "blocked by the pod", PATIENCE, |it| holds(it, DELETION_BLOCKED)).await?;
    ensure!(yaml(&driver).contains(&user), "it does not say by whom:\n{}", yaml(&driver));
    let parents = all::<ZeroTrustWorkloadIdentityManager>(stage);
    let parent = until(&parents, SINGLETON, "blocked, too", PATIENCE, |it| holds(it, DELETION_BLOCKED)).await?;
    ensure!(yaml(&parent).contains(&user), "it does not say by whom:\n{}", yaml(&parent));
    let pods = api::<Pod>(stage).list(&ListParams::default()).await?;
    let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    for needed in ["spire-server-0", "spire-agent-", "spire-spiffe-csi-driver-"] {
        ensure!(names.iter().any(|name| name.starts_with(needed)), "{needed} is gone already: {names:?}");
    }
    Ok(())
}

/// What the events of this reason say: those about objects without a namespace are in this one.
async fn told(stage: &Stage, reason: &str) -> anyhow::Result<String> {
    let events = Api::<Event>::namespaced(stage.client.clone(), "default").list(&ListParams::default()).await?;
    let told = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    Ok(told.filter_map(|event| event.message).collect())
}

/// The order in which the operands end, and the last backup that the server told of.
async fn ends(stage: &Stage) -> anyhow::Result<(Vec<String>, Option<Backup>)> {
    let mut ends = FuturesUnordered::new();
    ends.push(end_of::<SpireOIDCDiscoveryProvider>(stage, |it| it.status.clone()).boxed_local());
    ends.push(end_of::<SpiffeCSIDriver>(stage, |it| it.status.clone()).boxed_local());
    ends.push(end_of::<SpireAgent>(stage, |it| it.status.clone()).boxed_local());
    ends.push(end_of::<SpireServer>(stage, |it| it.status.clone()).boxed_local());
    let (mut order, mut backup) = (Vec::new(), None);
    let all = async {
        while let Some((kind, status)) = ends.next().await {
            order.push(kind);
            backup = backup.take().or(status.and_then(|status| status.volume).and_then(|volume| volume.last_backup));
        }
    };
    tokio::time::timeout(STACK_PATIENCE, all).await.context("the stack does not end")?;
    Ok((order, backup))
}

/// Waits until an operand that is there is gone, and returns the last that it said.
async fn end_of<K>(stage: &Stage, status: impl Fn(&K) -> Option<OperandStatus>) -> (String, Option<OperandStatus>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut changes = pin!(watcher::watch_object(all::<K>(stage), SINGLETON).default_backoff());
    let mut last = None;
    while let Some(change) = changes.next().await {
        match change {
            Ok(Some(operand)) => last = Some(status(&operand)),
            Ok(None) if last.is_some() => break,
            // Not there yet, or a watch that broke and is tried again.
            Ok(None) | Err(_) => {}
        }
    }
    (K::kind(&()).into_owned(), last.flatten())
}

/// The claims stay, and nothing else of the stack: no object, and no driver that a kubelet would still ask.
async fn nothing_is_left_but_the_data(stage: &Stage) -> anyhow::Result<()> {
    let left = orphans(stage).await?;
    ensure!(left.is_empty(), "this is left: {left:?}");
    // Kubernetes removes those of Jobs a moment after their Jobs.
    let pods = api::<Pod>(stage);
    for pod in pods.list(&ListParams::default()).await? {
        gone(&pods, &pod.name_any(), pod.uid().as_deref(), PATIENCE).await.context("a pod outlives the stack")?;
    }
    let claims = api::<PersistentVolumeClaim>(stage).list(&ListParams::default()).await?;
    let bound = claims.iter().filter(|it| it.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Bound"));
    let bound: Vec<_> = bound.map(ResourceExt::name_any).collect();
    ensure!(bound == [BACKUP_CLAIM, DATA_CLAIM], "{bound:?}");
    for node in all::<CSINode>(stage).list(&ListParams::default()).await? {
        let drivers: Vec<_> = node.spec.drivers.iter().map(|driver| driver.name.as_str()).collect();
        ensure!(!drivers.contains(&PLUGIN_NAME), "{} still has the driver", node.name_any());
    }
    Ok(())
}
