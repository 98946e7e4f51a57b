//! Another trust domain: refused, unless it is asked for by name; then every workload gets its identity in the new one.

use anyhow::{Context, ensure};
use e2e::identity::{
    STACK_PATIENCE, TRUST_DOMAIN, all, bundle, delete, identity, install, phase, ready, stack, workload, write,
};
use e2e::{PATIENCE, Stage, scenario, until};
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, LogParams};
use lifecycle_operator::api::v1alpha1::{MigrationPhase, SINGLETON, ZeroTrustWorkloadIdentityManager as Ztwim};
use serde_json::json;

const NAME: &str = "a_migration_gives_every_workload_an_identity_of_the_new_trust_domain";
const NEW: &str = "new.example.org";

#[tokio::test]
async fn a_migration_gives_every_workload_an_identity_of_the_new_trust_domain() -> anyhow::Result<()> {
    scenario(NAME, async |stage| {
        install(stage).await?;
        stack(stage).await?;
        let old = identity(stage, "before").await?;
        let old_bundle = bundle(stage).await?;
        old.verify(&old_bundle)?;
        // One that lives on meanwhile.
        workload(stage, "lives-on", &["watch"]).await?;
        until(&stage.api::<Pod>(), "lives-on", "running", PATIENCE, |pod| phase(pod) == "Running").await?;
        it_prints(stage, "lives-on", &format!("spiffe://{TRUST_DOMAIN}/ns/")).await?;

        let refused = write::<Ztwim>(stage, json!({ "trustDomain": NEW, "clusterName": "e2e" })).await;
        let words = refused.map(drop).expect_err("it is refused").root_cause().to_string();
        ensure!(words.contains("allowTrustDomainMigration"), "{words}");

        write::<Ztwim>(stage, json!({ "trustDomain": NEW, "clusterName": "e2e", "allowTrustDomainMigration": true }))
            .await?;
        let done = |it: &Ztwim| {
            it.status.as_ref().and_then(|it| it.migration.as_ref()).is_some_and(|it| it.phase == MigrationPhase::Done)
        };
        let parent = until(&all::<Ztwim>(stage), SINGLETON, "migrated", STACK_PATIENCE, done).await?;
        let backup = parent.status.and_then(|status| status.migration).and_then(|migration| migration.backup);
        ensure!(backup.is_some(), "the data of the old trust domain has no backup");
        ready::<Ztwim>(stage).await?;

        let new = identity(stage, "after").await?;
        ensure!(new.id == format!("spiffe://{NEW}/ns/{}/sa/default", stage.namespace), "{new:?}");
        new.verify(&bundle(stage).await?)?;
        ensure!(new.verify(&old_bundle).is_err(), "the new trust domain has the authority of the old one");
        it_prints(stage, "lives-on", &format!("spiffe://{NEW}/ns/")).await?;
        stage.api::<Pod>().delete("lives-on", &DeleteParams::default()).await?;
        delete(stage).await
    })
    .await
}

/// Waits until a pod prints a line with these words.
async fn it_prints(stage: &Stage, pod: &str, words: &str) -> anyhow::Result<()> {
    let follow = LogParams { follow: true, ..LogParams::default() };
    let mut lines = stage.api::<Pod>().log_stream(pod, &follow).await?.lines();
    let found = async {
        while let Some(line) = lines.try_next().await? {
            if line.contains(words) {
                return Ok(true);
            }
        }
        anyhow::Ok(false)
    };
    let found =
        tokio::time::timeout(STACK_PATIENCE, found).await.with_context(|| format!("{pod} never printed {words}"))?;
    ensure!(found?, "{pod} ended without having printed {words}");
    Ok(())
}
