//! Faults of a network, of an API server under load, and of kube's defaults.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use opcore::client::Shield;
use opcore::controller::Limits;
use opcore::election::Leadership;
use opcore::error::{Class, Error};
use opcore::metrics::Metrics;

use crate::notebook::Notebooks;
use crate::stage::{Settings, Stage, eventually, start};
use opcore_testing::proxy::{Fate, Passed, Proxy};

/// This happens to the first `count` writes.
fn first_writes(count: usize, fate: Fate) -> impl FnMut(&Passed) -> Fate + Send + 'static {
    let mut left = count;
    move |passed| {
        if passed.writes() && !passed.path.contains("/events") && left > 0 {
            left -= 1;
            return fate;
        }
        Fate::Pass
    }
}

#[tokio::test]
async fn an_api_server_that_refuses_for_a_while_is_retried_and_nothing_is_lost() {
    let stage = Stage::new("faults").await;
    for fate in [
        Fate::Answer(409),
        Fate::Answer(429),
        Fate::Answer(500),
        Fate::Answer(503),
        Fate::AnswerAfter(500),
        Fate::AnswerAfter(504),
        Fate::LoseRequest,
        Fate::LoseAnswer,
    ] {
        let proxy = Proxy::start(stage.client.clone()).await.unwrap();
        proxy.rule(first_writes(2, fate));
        let running = stage.run_at(proxy.config());
        let name = format!("{fate:?}").to_lowercase().replace(['(', ')'], "");
        let notebook = stage.write(&name, &[("monday", "rain")]).await;
        stage.ready(&name).await;
        assert_eq!(stage.pages(&name).await, ["cover", "monday"], "after {fate:?}");
        proxy.rule(first_writes(2, fate));
        stage.delete(&name).await;
        stage.gone(&name, &notebook.uid().unwrap()).await;
        assert_eq!(stage.pages(&name).await, [""; 0], "after {fate:?}");
        running.stop().await;
    }
}

#[tokio::test]
async fn a_call_is_sent_once_and_the_objects_own_backoff_does_the_rest() {
    let stage = Stage::new("faults").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let shield = Shield {
        leadership: Leadership::unquestioned(),
        metrics: Metrics::new(opcore::build_info!()).unwrap(),
        deadline: Duration::from_secs(10),
    };
    let client = shield.client(proxy.config()).unwrap();
    for code in [429, 503, 504] {
        proxy.rule(move |_| Fate::Answer(code));
        let asked = kube::Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(client.clone(), &stage.namespace);
        let error = Error::from(asked.get("front").await.unwrap_err());
        assert_eq!(error.class(), Class::Transient);
        assert_eq!(proxy.take().len(), 1, "kube's own default would have tried {code} fifteen times more");
    }
}

#[tokio::test]
async fn an_answer_that_never_comes_costs_a_deadline_and_not_the_object() {
    let stage = Stage::new("faults").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    proxy.rule(first_writes(1, Fate::Hang));
    let settings = Settings { request_deadline: Duration::from_secs(1), ..Settings::default() };
    let running = start(Notebooks, proxy.config(), &stage.namespace, settings);
    stage.write("hangs", &[("monday", "rain")]).await;
    stage.ready("hangs").await;
    running.stop().await;
}

#[tokio::test]
async fn a_reconcile_has_a_deadline_and_others_have_room_meanwhile() {
    let stage = Stage::new("faults").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let hang = Arc::new(AtomicBool::new(true));
    let hangs = hang.clone();
    proxy.rule(move |passed| {
        if passed.path.contains("/stuck") && !passed.watch && hangs.load(Ordering::Relaxed) {
            Fate::Hang
        } else {
            Fate::Pass
        }
    });
    let limits = Limits { concurrency: 2, reconcile: Duration::from_secs(1), ..Limits::default() };
    let settings = Settings { limits, request_deadline: Duration::from_mins(10) };
    let running = start(Notebooks, proxy.config(), &stage.namespace, settings);
    stage.write("stuck", &[("monday", "rain")]).await;
    proxy.rule({
        let hangs = hang.clone();
        move |passed| {
            let stuck = passed.path.contains("/stuck") && !passed.watch && hangs.load(Ordering::Relaxed);
            if stuck { Fate::Hang } else { Fate::Pass }
        }
    });
    for n in 0..4 {
        stage.write(&format!("free-{n}"), &[("monday", "rain")]).await;
        stage.ready(&format!("free-{n}")).await;
    }
    hang.store(false, Ordering::Relaxed);
    stage.ready("stuck").await;
    running.stop().await;
}

#[tokio::test]
async fn watches_that_are_cut_or_expire_or_fall_silent_lose_nothing() {
    let stage = Stage::new("faults").await;
    for fate in
        [Fate::CutAfterChunks(1), Fate::Expired, Fate::Answer(500), Fate::Answer(410), Fate::LoseRequest, Fate::Silence]
    {
        let proxy = Proxy::start(stage.client.clone()).await.unwrap();
        // The first watches on each kind.
        let mut left = 4;
        proxy.rule(move |passed| {
            if passed.watch && left > 0 {
                left -= 1;
                return fate;
            }
            Fate::Pass
        });
        let limits = Limits { watch: Duration::from_secs(1), ..Limits::default() };
        let settings = Settings { limits, ..Settings::default() };
        let running = start(Notebooks, proxy.config(), &stage.namespace, settings);
        let name = format!("{fate:?}").to_lowercase().replace(['(', ')'], "");
        stage.write(&name, &[("monday", "rain")]).await;
        stage.ready(&name).await;
        let page = format!("{name}-monday");
        let lost = stage.maps().get(&page).await.unwrap();
        stage.maps().delete(&page, &DeleteParams::default()).await.unwrap();
        eventually(&stage.maps(), &page, "back", |map| map.uid() != lost.uid()).await;
        running.stop().await;
    }
}

#[tokio::test]
async fn what_is_deleted_while_no_watch_is_open_is_noticed_by_the_next_list() {
    let stage = Stage::new("faults").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    // No watch on ConfigMaps survives; their lists succeed once they are allowed.
    let blind = Arc::new(AtomicBool::new(false));
    let (is_blind, refused) = (blind.clone(), Arc::new(AtomicUsize::new(0)));
    let count = refused.clone();
    proxy.rule(move |passed| {
        let of_maps = passed.path.ends_with("/configmaps") && passed.method == "GET";
        match (of_maps, is_blind.load(Ordering::SeqCst)) {
            (true, true) => {
                count.fetch_add(1, Ordering::SeqCst);
                Fate::Answer(500)
            }
            // The version that the operator knows is too old: it must list again, and the list does not mention what is
            // gone.
            (true, false) if passed.watch && count.load(Ordering::SeqCst) > 0 => {
                count.store(0, Ordering::SeqCst);
                Fate::Expired
            }
            _ => Fate::Pass,
        }
    });
    let limits = Limits { watch: Duration::from_secs(1), ..Limits::default() };
    let running = start(Notebooks, proxy.config(), &stage.namespace, Settings { limits, ..Settings::default() });
    stage.write("diary", &[("monday", "rain")]).await;
    stage.ready("diary").await;
    blind.store(true, Ordering::SeqCst);
    proxy.take();
    proxy
        .until("a refused watch", |passed| {
            passed.iter().any(|p| p.watch && p.path.ends_with("/configmaps") && p.code == Some(500))
        })
        .await;
    let lost = stage.maps().get("diary-monday").await.unwrap();
    stage.maps().delete("diary-monday", &DeleteParams::default()).await.unwrap();
    assert!(refused.load(Ordering::SeqCst) > 0);
    blind.store(false, Ordering::SeqCst);
    eventually(&stage.maps(), "diary-monday", "back", |map| map.uid() != lost.uid()).await;
    running.stop().await;
}

#[tokio::test]
async fn a_cache_that_is_behind_its_own_writes_is_not_decided_on() {
    let stage = Stage::new("faults").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    // The operator lists its notebooks and receives no further events about them, not even of its own writes; only
    // ConfigMaps trigger reconciles.
    let silent = |passed: &Passed| passed.watch && passed.path.ends_with("/notebooks");
    proxy.rule(move |passed| if silent(passed) { Fate::Silence } else { Fate::Pass });
    stage.write("diary", &[("monday", "rain")]).await;
    let limits = Limits { watch: Duration::from_mins(10), ..Limits::default() };
    let running = start(Notebooks, proxy.config(), &stage.namespace, Settings { limits, ..Settings::default() });
    stage.ready("diary").await;
    for round in 0..3 {
        let lost = stage.maps().get("diary-monday").await.unwrap();
        stage.maps().delete("diary-monday", &DeleteParams::default()).await.unwrap();
        eventually(&stage.maps(), "diary-monday", &format!("back ({round})"), |map| map.uid() != lost.uid()).await;
    }
    running.stop().await;
    let conflicts = proxy.writes().into_iter().filter(|write| write.code == Some(409)).count();
    assert_eq!(conflicts, 0, "it wrote onto versions that it had itself replaced");
}

#[tokio::test]
async fn a_process_that_does_not_lead_reads_and_never_writes() {
    let stage = Stage::new("faults").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    // A candidate that never took part in an election holds no lease.
    let plain: Client = stage.client.clone();
    let election =
        opcore::election::Election::new(plain, &stage.namespace, "lease", opcore::election::Timing::default());
    let shield = Shield {
        leadership: election.leadership(),
        metrics: Metrics::new(opcore::build_info!()).unwrap(),
        deadline: Duration::from_secs(10),
    };
    let api: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(shield.client(proxy.config()).unwrap(), &stage.namespace);
    assert!(api.get_opt("front").await.unwrap().is_none());
    let error = Error::from(api.delete("front", &DeleteParams::default()).await.unwrap_err());
    assert_eq!(error.class(), Class::LeadershipLost, "{error}");
    assert_eq!(proxy.writes(), [], "the write was stopped before it was sent");
}

/// The times at which the first `count` writes, to which this happens, and the write after them were sent.
fn timed_writes(proxy: &Proxy, count: usize, fate: Fate) -> Arc<Mutex<Vec<Instant>>> {
    let times = Arc::new(Mutex::new(Vec::new()));
    let (log, mut fates) = (times.clone(), first_writes(count, fate));
    proxy.rule(move |passed| {
        if passed.writes() && !passed.path.contains("/events") && log.lock().unwrap().len() <= count {
            log.lock().unwrap().push(Instant::now());
        }
        fates(passed)
    });
    times
}

fn pauses(times: &Mutex<Vec<Instant>>) -> Vec<Duration> {
    times.lock().unwrap().windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[tokio::test]
async fn an_object_that_fails_is_left_alone_longer_each_time_and_a_success_starts_over() {
    let stage = Stage::new("faults").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let times = timed_writes(&proxy, 3, Fate::Answer(500));
    let running = stage.run_at(proxy.config());
    stage.write("diary", &[("monday", "rain")]).await;
    stage.ready("diary").await;
    for (pause, least) in pauses(&times).into_iter().zip([500, 1000, 2000]) {
        assert!(pause >= Duration::from_millis(least), "only {pause:?} after a failure, not {least} ms");
    }
    let times = timed_writes(&proxy, 1, Fate::Answer(500));
    let edit = serde_json::json!({"spec": {"pages": {"monday": "sun"}}});
    stage.notebooks().patch("diary", &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    stage.ready("diary").await;
    // A fourth consecutive failure would have cost at least four seconds; a first one costs at most one.
    assert!(pauses(&times)[0] < Duration::from_secs(4), "{:?}", pauses(&times));
    running.stop().await;
}

#[tokio::test]
async fn one_renewal_that_hangs_does_not_cost_the_lead() {
    use opcore::election::{Election, Timing};
    let stage = Stage::new("faults").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    let mut config = proxy.config();
    config.default_retry = false;
    let timing = Timing::lasting(Duration::from_secs(6));
    let mut election = Election::new(Client::try_from(config).unwrap(), &stage.namespace, "lease", timing);
    let leadership = election.leadership();
    election.win().await;
    let mut hang = true;
    proxy.rule(move |passed| if passed.writes() && std::mem::take(&mut hang) { Fate::Hang } else { Fate::Pass });
    proxy.take();
    let renewed = |passed: &[Passed]| passed.iter().filter(|p| p.method == "PUT" && p.code == Some(200)).count() >= 4;
    tokio::select! {
        lost = election.keep() => panic!("{lost}"),
        () = proxy.until("renewals after the one that hangs", renewed) => {}
    }
    assert_eq!(leadership.check(), Ok(()));
}

#[tokio::test]
async fn an_api_server_that_asks_to_be_left_alone_is_left_alone() {
    let stage = Stage::new("faults").await;
    for fate in [Fate::Later(2), Fate::Crowded(2)] {
        let proxy = Proxy::start(stage.client.clone()).await.unwrap();
        let times = timed_writes(&proxy, 1, fate);
        let running = stage.run_at(proxy.config());
        let name = format!("{fate:?}").to_lowercase().replace(['(', ')'], "");
        stage.write(&name, &[("monday", "rain")]).await;
        stage.ready(&name).await;
        assert!(pauses(&times)[0] >= Duration::from_secs(2), "{fate:?}: {:?}", pauses(&times));
        running.stop().await;
    }
}
