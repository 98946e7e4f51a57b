//! A stack is deleted: nothing goes that something else still needs, and nothing is lost.

use std::collections::BTreeMap;
use std::pin::pin;

use anyhow::{Context, ensure};
use e2e::identity::{
    NAMESPACE, STACK_PATIENCE, VOLUME, all, api, install, orphans, phase, stack, workload, written_in_backup,
};
use e2e::{PATIENCE, Stage, gone, holds, scenario, until, yaml};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::CSINode;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Resource, ResourceExt};
use lifecycle_operator::api::v1alpha1::{
    Backup, PLUGIN_NAME, SINGLETON, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer,
    ZeroTrustWorkloadIdentityManager,
};
use lifecycle_operator::decide::teardown::DELETION_BLOCKED;
use lifecycle_operator::render::volume::DATA_CLAIM;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

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
        let ends = ends(stage);
        parents.delete(SINGLETON, &DeleteParams::background()).await?;
        it_is_blocked_by_name(stage).await?;

        pods.delete("user", &DeleteParams::default()).await?;
        let (order, backup) = tokio::time::timeout(STACK_PATIENCE, ends).await.context("the stack never ended")?;
        ensure!(order == ["SpireOIDCDiscoveryProvider", "SpiffeCSIDriver", "SpireAgent", "SpireServer"], "{order:?}");
        gone(&parents, SINGLETON, parent.uid().as_deref(), PATIENCE).await?;

        nothing_is_left_but_the_data(stage).await?;
        the_backup_is_what_its_checksums_say(stage, &backup.context("the server went without a backup")?).await
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

/// The order in which the operands end, and the last backup that the server told of.
async fn ends(stage: &Stage) -> (Vec<&'static str>, Option<Backup>) {
    let mut ends = pin!(futures::stream::select_all([
        end_of::<SpireOIDCDiscoveryProvider>(stage, "SpireOIDCDiscoveryProvider").boxed(),
        end_of::<SpiffeCSIDriver>(stage, "SpiffeCSIDriver").boxed(),
        end_of::<SpireAgent>(stage, "SpireAgent").boxed(),
        end_of::<SpireServer>(stage, "SpireServer").boxed(),
    ]));
    let (mut order, mut backup) = (Vec::new(), None);
    while let Some((kind, told)) = ends.next().await {
        order.push(kind);
        backup = backup.or(told);
    }
    (order, backup)
}
