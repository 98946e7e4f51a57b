//! The client's shield and leader election on a real API server: writes end with the lease, and only with it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{AttachParams, ObjectMeta, PostParams};
use opcore::client::Shield;
use opcore::election::{Election, Timing};
use opcore::error::{Class, Error};
use opcore::metrics::Metrics;

use crate::stage::{PATIENCE, Stage};
use opcore_testing::proxy::{Fate, Passed, Proxy};

/// A leader, and ConfigMaps through a proxy that it may write while it leads.
async fn leader(stage: &Stage, proxy: &Proxy, lease: Duration, deadline: Duration) -> (Election, Api<ConfigMap>) {
    let mut election = Election::new(stage.client.clone(), &stage.namespace, "lease", Timing::lasting(lease));
    election.win().await;
    let metrics = Metrics::new(opcore::build_info!()).unwrap();
    let shield = Shield { leadership: election.leadership(), metrics, deadline };
    (election, Api::namespaced(shield.client(proxy.config()).unwrap(), &stage.namespace))
}

fn map() -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some("front".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

/// Waits until the lease has expired.
async fn run_out(election: &Election) {
    let leadership = election.leadership();
    let lost = async {
        while leadership.check().is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, lost).await.expect("a lease that nobody renews runs out");
}

#[tokio::test]
async fn a_write_may_take_longer_than_a_lease_lasts_while_it_is_renewed() {
    let stage = Stage::new("shield").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let lease = Duration::from_secs(6);
    let (mut election, maps) = leader(&stage, &proxy, lease, PATIENCE).await;
    proxy.rule(|passed| if passed.writes() { Fate::Hold } else { Fate::Pass });
    let write = tokio::spawn(async move { maps.create(&PostParams::default(), &map()).await });
    proxy.until_held(1).await;
    let kept = tokio::time::timeout(lease, election.keep()).await;
    assert!(kept.is_err(), "the lease was lost");
    proxy.release(1);
    tokio::select! {
        written = write => { written.unwrap().unwrap(); }
        lost = election.keep() => panic!("{lost}"),
    }
}

#[tokio::test]
async fn a_write_in_progress_when_the_lease_runs_out_is_given_up() {
    let stage = Stage::new("shield").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let (election, maps) = leader(&stage, &proxy, Duration::from_secs(2), PATIENCE).await;
    proxy.rule(|passed| if passed.writes() { Fate::Hang } else { Fate::Pass });
    let error = Error::from(maps.create(&PostParams::default(), &map()).await.unwrap_err());
    assert_eq!(error.class(), Class::LeadershipLost, "{error}");
    assert!(election.leadership().check().is_err(), "it was given up before");
}

#[tokio::test]
async fn a_write_after_the_lease_has_run_out_is_not_sent_and_a_read_is() {
    let stage = Stage::new("shield").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let (election, maps) = leader(&stage, &proxy, Duration::from_secs(2), PATIENCE).await;
    run_out(&election).await;
    let error = Error::from(maps.create(&PostParams::default(), &map()).await.unwrap_err());
    assert_eq!(error.class(), Class::LeadershipLost, "{error}");
    assert!(maps.get_opt("front").await.unwrap().is_none());
    // The request of a command is a GET, but it writes.
    let pods: Api<Pod> = Api::namespaced(maps.into_client(), &stage.namespace);
    let command = pods.exec("front", ["true"], &AttachParams::default()).await;
    let error = Error::from(command.err().expect("it is not run"));
    assert_eq!(error.class(), Class::LeadershipLost, "{error}");
    assert!(!proxy.take().iter().any(Passed::writes), "the write was sent");
}

#[tokio::test]
async fn a_leaders_write_has_the_deadline_of_every_request() {
    let stage = Stage::new("shield").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let (_election, maps) = leader(&stage, &proxy, Duration::from_mins(10), Duration::from_millis(200)).await;
    proxy.rule(|passed| if passed.writes() { Fate::Hang } else { Fate::Pass });
    let error = Error::from(maps.create(&PostParams::default(), &map()).await.unwrap_err());
    assert_eq!(error.to_string(), "the API server did not respond to create configmaps within 200ms");
}
