//! `retry`, `skip`, `unskip`, `pause`, `resume` and `force`, with the real operator at work.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use opcore_testing::running::{Running, Settings};
use opcore_testing::wait::eventually;
use sandbox::{Options, Sandbox};
use serde_json::{Value, json};
use wave_orchestrator::api::v1alpha1::{RETRY_ANNOTATION, SKIP_ANNOTATION, WavePhase, WavePlan};
use wave_orchestrator::controller::WavePlans;

use crate::user::{ROLLING_OUT, TIMED_OUT, User};

/// A wave of one ConfigMap that someone else is to make.
fn wave(name: &str, before: &[&str], timeout: &str) -> Value {
    let member = json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": name });
    let before: Vec<Value> = before.iter().map(|before| json!({ "wave": before })).collect();
    json!({ "name": name, "dependsOn": before, "timeout": timeout, "members": [{ "ref": member }] })
}

async fn create(user: &User, name: &str, waves: &[Value]) {
    let plan = json!({
        "apiVersion": "waves.opcore.dev/v1alpha1",
        "kind": "WavePlan",
        "metadata": { "name": name },
        "spec": { "waves": waves },
    });
    user.create(&serde_json::from_value(plan).unwrap()).await;
}

async fn config_map(user: &User, name: &str) {
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(user.client.clone(), "default");
    maps.create(&PostParams::default(), &map).await.unwrap();
}

#[tokio::test]
async fn a_stuck_rollout_is_helped_through_by_hand() {
    let sandbox = Sandbox::start(Options::default()).await.expect("a control plane");
    let user = User::of(&sandbox).await;
    user.install().await;
    let config = sandbox.config().await.unwrap();
    let operator = Running::start("wave-orchestrator", config, &[], Settings::default(), WavePlans::new);
    let waves = [wave("first", &[], "10m"), wave("second", &["first"], "1s"), wave("third", &["second"], "10m")];
    create(&user, "stuck", &waves).await;

    let said = user.run("waves pause stuck").await.good();
    assert_eq!(said, "WavePlan stuck: No further wave starts: it is paused by annotation.\n");
    let refused = user.run("waves force stuck third").await.refusal();
    assert_eq!(refused, "WavePlan stuck is paused: no wave starts before it is resumed, see opctl waves resume.");
    let said = user.run("waves resume stuck").await.good();
    assert_eq!(said, "WavePlan stuck: Wave first is running.\n");

    config_map(&user, "first").await;
    let said = user.run("waves status stuck --watch").await.bad();
    assert!(said.contains("third   Blocked    0/1  blocked by second"), "{said}");
    assert!(said.ends_with("WavePlan stuck: Failed, 1/3 waves\n"), "{said}");

    let said = user.run("waves retry stuck --all").await.good();
    assert!(said.starts_with("Wave second: TimedOut → Running\n"), "{said}");
    let said = user.run("waves force stuck third").await.good();
    assert!(said.starts_with("Wave third: ") && said.contains("→ Running\n"), "{said}");
    let refused = user.run("waves force stuck third").await.refusal();
    assert_eq!(refused, "Wave third has started already, and is Running: there is nothing to force.");

    let said = user.run("waves skip stuck second").await.good();
    assert!(said.contains("→ Skipped\nWavePlan stuck: Wave third is running.\n"), "{said}");
    let refused = user.run("waves retry stuck second").await.refusal();
    assert_eq!(refused, "Wave second is skipped: see opctl waves unskip.");
    config_map(&user, "third").await;
    let said = user.run("waves status stuck --watch").await.good();
    assert!(said.ends_with("WavePlan stuck: Ready, 3/3 waves\n"), "{said}");

    let checked = user.run("waves verify-startup stuck").await.good();
    assert!(checked.contains("~ second was skipped"), "{checked}");
    config_map(&user, "second").await;
    let said = user.run("waves unskip stuck second").await.good();
    assert_eq!(said, "Wave second: Skipped → Ready\nWavePlan stuck: All 3 waves are ready.\n");
    let plan = user.plans().get("stuck").await.unwrap();
    assert!(!plan.annotations().contains_key(SKIP_ANNOTATION), "{:?}", plan.annotations());
    let managers = plan.metadata.managed_fields.unwrap_or_default();
    assert!(managers.iter().any(|entry| entry.manager.as_deref() == Some("opctl")), "{managers:?}");

    let refused = user.run("waves retry stuck --all").await.refusal();
    assert_eq!(refused, "No wave of WavePlan stuck failed or timed out: there is nothing to try again.");
    let said = user.run("waves pause stuck").await.good();
    assert!(said.contains("It is paused: no wave of its next rollout starts before it is resumed."), "{said}");

    // A failure that pauses the whole plan, although another branch could go on.
    let mut fatal = wave("fatal", &[], "1s");
    fatal["onFailure"] = json!("Pause");
    create(&user, "halted", &[fatal, wave("base", &[], "10m"), wave("top", &["base"], "10m")]).await;
    reached(&user, "halted", "fatal", WavePhase::TimedOut).await;
    config_map(&user, "base").await;
    reached(&user, "halted", "top", WavePhase::Suspended).await;
    let refused = user.run("waves force halted top").await.refusal();
    assert_eq!(refused, "WavePlan halted is paused: no wave starts before it is resumed, see opctl waves resume.");
    let said = user.run("waves resume halted").await.good();
    assert!(said.starts_with("WavePlan halted: Wave top is running. Wave fatal was not ready by "), "{said}");
    operator.stop().await;
}

/// Waits until a wave is in a phase.
async fn reached(user: &User, plan: &str, wave: &str, phase: WavePhase) {
    let stands = |plan: &WavePlan| {
        let wave = plan.status.as_ref().and_then(|status| status.wave(wave));
        wave.is_some_and(|wave| wave.phase == phase)
    };
    eventually(&user.plans(), plan, &format!("so far that {wave} is {phase}"), stands).await;
}

#[tokio::test]
async fn what_an_operator_does_not_answer_is_said_and_stays_asked() {
    let user = User::shared().await;
    user.plan("unheard", TIMED_OUT).await;
    let said = user.run("waves retry unheard database-workloads --wait=false").await.good();
    assert_eq!(said, "WavePlan unheard is annotated.\n");
    let plan = user.plans().get("unheard").await.unwrap();
    assert!(plan.annotations()[RETRY_ANNOTATION].starts_with("database-workloads@20"), "{:?}", plan.annotations());

    let refused = user.run("waves skip unheard services --timeout 1s").await.refusal();
    let words = "The operator did not do it within 1s: is wave-orchestrator running? The request stays on WavePlan \
                 unheard, and is carried out as soon as it runs.";
    assert_eq!(refused, words);
    user.run("waves skip unheard database-ui --wait=false").await.good();
    let plan = user.plans().get("unheard").await.unwrap();
    assert_eq!(plan.annotations()[SKIP_ANNOTATION], "database-ui,services", "what was asked before stays");
    user.remove(&["unheard"]).await;
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_nothing_is_written() {
    let user = User::shared().await;
    user.plan("strict", ROLLING_OUT).await;
    let before = user.plans().get("strict").await.unwrap().metadata.resource_version;
    let waves = "infrastructure-core, infrastructure-operators, infrastructure-config, infrastructure-monitoring, \
                 database-workloads, services, database-ui";
    for (line, words) in [
        ("skip strict datebase-ui", format!("WavePlan strict has no wave datebase-ui: it has {waves}.")),
        ("force strict nope", format!("WavePlan strict has no wave nope: it has {waves}.")),
        (
            "retry strict infrastructure-core",
            "Wave infrastructure-core is ready: there is nothing to try again.".into(),
        ),
        ("retry strict services", "Wave services has not started: there is nothing to try again.".into()),
    ] {
        assert_eq!(user.run(&format!("waves {line}")).await.refusal(), words, "{line}");
    }
    assert_eq!(user.plans().get("strict").await.unwrap().metadata.resource_version, before);
    user.remove(&["strict"]).await;
}
