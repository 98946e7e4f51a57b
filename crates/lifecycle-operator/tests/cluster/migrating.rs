//! Another trust domain, and a server that comes back from a backup.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::PropagationPolicy;
use lifecycle_operator::api::v1alpha1::{
    MigrationPhase, SpireAgent, SpireServer, ZeroTrustWorkloadIdentityManager as Ztwim,
};
use lifecycle_operator::render::volume::DATA_CLAIM;
use serde_json::json;

use crate::running::at;
use crate::stage::{Scene, is_ready};

pub fn is_migrated(parent: &Ztwim) -> bool {
    let migration = parent.status.as_ref().and_then(|status| status.migration.as_ref());
    is_ready(parent) && migration.is_some_and(|it| it.phase == MigrationPhase::Done)
}

/// That everything is of the new trust domain, and that a backup of the old one was made before it was removed.
pub async fn assert_migrated(scene: &Scene) {
    let journal = scene.hands.journal();
    let [backed_up, cleared] = ["BackedUp", "Cleared"].map(|line| at(&journal, line));
    assert!(
        at(&journal, "node-agent ended") < backed_up && at(&journal, "control-plane ended") < backed_up,
        "{journal:#?}"
    );
    assert!(backed_up < cleared, "{journal:#?}");
    let again = journal.iter().rposition(|line| line == "control-plane ready").unwrap();
    assert!(cleared < again, "{journal:#?}");
    for once in ["BackedUp", "Cleared", "control-plane ended"] {
        assert_eq!(journal.iter().filter(|line| *line == once).count(), 1, "{once}: {journal:#?}");
    }
    {
        let world = scene.hands.world.lock().unwrap();
        assert_eq!(world.data.as_deref(), Some("new.org"));
        assert_eq!(world.backups.values().collect::<Vec<_>>(), ["old.org"]);
    }
    let parent = scene.all::<Ztwim>().get("cluster").await.unwrap();
    let status = parent.status.unwrap();
    assert_eq!(status.trust_domain.as_deref(), Some("new.org"));
    let migration = status.migration.unwrap();
    assert_eq!((migration.from.as_str(), migration.to.as_str()), ("old.org", "new.org"));
    assert!(migration.finished_at.is_some());
    let server = scene.all::<SpireServer>().get("cluster").await.unwrap();
    let agent = scene.all::<SpireAgent>().get("cluster").await.unwrap();
    assert_eq!([server.spec.trust_domain, agent.spec.trust_domain].map(Option::unwrap), ["new.org", "new.org"]);
    let claim = scene.of::<PersistentVolumeClaim>().get(DATA_CLAIM).await.unwrap();
    assert_eq!(claim.annotations()["ztwim.io/trust-domain"], "new.org");
}

#[tokio::test]
async fn a_migration_backs_up_and_clears_the_old_trust_domain_before_anything_starts_in_the_new_one() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene.stack("old.org").await;
    // Without the consent it is refused.
    let change = json!({ "spec": { "trustDomain": "new.org" } });
    let words = scene.patch::<Ztwim>(change).await.unwrap_err().to_string();
    assert!(words.contains("allowTrustDomainMigration"), "{words}");
    let change = json!({ "spec": { "trustDomain": "new.org", "allowTrustDomainMigration": true } });
    scene.patch::<Ztwim>(change).await.unwrap();
    scene.until("migrated", is_migrated).await;
    assert_migrated(&scene).await;
    operator.stop().await;
}

#[tokio::test]
async fn with_an_external_database_a_migration_is_refused_with_words_and_nothing_stops() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    let database = json!({ "datastore": { "databaseType": "postgres", "connectionString": "host=db" } });
    scene.stack_with(json!({ "trustDomain": "old.org" }), database).await;
    let change = json!({ "spec": { "trustDomain": "new.org", "allowTrustDomainMigration": true } });
    scene.patch::<Ztwim>(change).await.unwrap();
    let words = scene.says::<Ztwim>("Stalled", "MigrationImpossible").await;
    assert!(words.contains("spec.datastore.databaseType of SpireServer cluster is postgres"), "{words}");
    assert!(!scene.hands.journal().iter().any(|line| line.ends_with("ended")), "{:#?}", scene.hands.journal());
    assert_eq!(scene.all::<SpireServer>().get("cluster").await.unwrap().spec.trust_domain.as_deref(), Some("old.org"));
    // Back is the way out.
    scene.patch::<Ztwim>(json!({ "spec": { "trustDomain": "old.org" } })).await.unwrap();
    scene.ready::<Ztwim>().await;
    operator.stop().await;
}

#[tokio::test]
async fn a_backup_that_is_asked_for_is_made_once_and_a_new_server_starts_from_it() {
    let scene = Scene::new().await;
    let operator = scene.operator();
    scene
        .stack_with(json!({ "trustDomain": "example.org" }), json!({ "persistence": { "deletionPolicy": "Delete" } }))
        .await;
    scene.kubectl(&["annotate", "spireserver", "cluster", "ztwim.io/backup-requested-at=now"]).await;
    let made = |server: &SpireServer| {
        let volume = server.status.as_ref().and_then(|status| status.volume.as_ref());
        is_ready(server) && volume.is_some_and(|it| it.last_backup.is_some() && it.work.is_none())
    };
    let server = scene.until("backed up, and running again", made).await;
    let asked_for = server.status.unwrap().volume.unwrap().last_backup.unwrap();
    assert_eq!(asked_for.trust_domain.as_deref(), Some("example.org"));
    scene.ready::<Ztwim>().await;
    assert_eq!(scene.hands.journal().iter().filter(|line| *line == "BackedUp").count(), 1);

    scene.delete::<Ztwim>(PropagationPolicy::Background).await;
    scene.all_gone().await;
    {
        let mut world = scene.hands.world.lock().unwrap();
        // The volume was deleted, with what was on it.
        world.data = None;
        world.journal.clear();
    }
    let from = json!({ "restoreFrom": { "name": asked_for.name } });
    scene.stack_with(json!({ "trustDomain": "example.org" }), from).await;
    let journal = scene.hands.journal();
    assert!(at(&journal, "Restored") < at(&journal, "control-plane ready"), "{journal:#?}");
    let server = scene.all::<SpireServer>().get("cluster").await.unwrap();
    assert_eq!(server.status.unwrap().volume.unwrap().restored, Some(asked_for.name));
    operator.stop().await;
}
