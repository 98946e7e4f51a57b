//! A stack is deleted with all its data, and comes back from its backup.

use anyhow::{Context, ensure};
use e2e::identity::{TRUST_DOMAIN, all, api, bundle, delete, identity, install, ready, stack, write};
use e2e::scenario;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use lifecycle_operator::api::v1alpha1::{BACKUP_CLAIM, SINGLETON, SpireServer};
use lifecycle_operator::render::volume::DATA_CLAIM;
use serde_json::json;

const NAME: &str = "a_stack_that_is_restored_from_its_backup_has_the_authority_that_it_had";

#[tokio::test]
async fn a_stack_that_is_restored_from_its_backup_has_the_authority_that_it_had() -> anyhow::Result<()> {
    scenario(NAME, async |stage| {
        install(stage).await?;
        write::<SpireServer>(
            stage,
            json!({ "trustDomain": TRUST_DOMAIN, "persistence": { "deletionPolicy": "Delete" } }),
        )
        .await?;
        stack(stage).await?;
        let before = identity(stage, "before").await?;
        let bundle_before = bundle(stage).await?;
        before.verify(&bundle_before)?;

        delete(stage).await?;
        let claims = api::<PersistentVolumeClaim>(stage);
        ensure!(claims.get_opt(DATA_CLAIM).await?.is_none(), "deletionPolicy is Delete, and the data is still there");
        claims.get(BACKUP_CLAIM).await.context("the backup outlives the stack")?;

        write::<SpireServer>(stage, json!({ "trustDomain": TRUST_DOMAIN, "restoreFrom": { "name": "latest" } }))
            .await?;
        stack(stage).await?;
        before.verify(&bundle(stage).await?).context("what was issued before the end is not valid any more")?;
        let after = identity(stage, "after").await?;
        after.verify(&bundle_before).context("the restored server signs with another key")?;
        ready::<SpireServer>(stage).await?;
        let server = all::<SpireServer>(stage).get(SINGLETON).await?;
        let restored = server.status.and_then(|status| status.volume).and_then(|volume| volume.restored);
        ensure!(restored.is_some(), "it does not say from which backup it started");
        delete(stage).await
    })
    .await
}
