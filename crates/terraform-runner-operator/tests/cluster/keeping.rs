//! States, plans and reports that are read back as they were, or not at all.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{Action, History, Outcome};
use terraform_runner_operator::run::names::Names;
use terraform_runner_operator::run::report::{PlanReport, Report, StateReport};
use terraform_runner_operator::store::pack::{gzip, pack};
use terraform_runner_operator::store::{Store, StoreError, lockfile, plan, report, state as states};

use crate::{noise, state, workspace};

#[tokio::test]
async fn a_state_is_saved_read_back_and_kept_in_versions() {
    let workspace = workspace("versions").await;
    for run in 1..=5 {
        let serve = workspace.pod(run).serve().await;
        if run == 1 {
            assert_eq!(workspace.ask("GET", "/state", "").await.unwrap().0, 204, "there is no state yet");
            assert_eq!(workspace.ask("GET", "/summary", "").await.unwrap().0, 204);
        }
        assert_eq!(workspace.lock("one").await.0, 200);
        // A run saves more than once; its last save is kept.
        for serial in [run * 10, run * 10 + 1] {
            assert_eq!(workspace.save(&state(serial, "l", 2), "one").await, (204, String::new()));
        }
        assert_eq!(workspace.unlock("one").await, 200);
        let (code, body) = workspace.ask("GET", "/state", "").await.unwrap();
        assert_eq!((code, serde_json::from_slice::<Value>(&body).unwrap()), (200, state(run * 10 + 1, "l", 2)));
        assert_eq!(serve.stopped().await.0, Some(0));
    }
    let observed = states::read_index(&workspace.store()).await.unwrap();
    let serials: Vec<_> = observed.index.versions.iter().map(|version| version.facts.serial).collect();
    assert_eq!(serials, [51, 41, 31], "as many as the history says");
    for version in &observed.index.versions {
        let bytes = states::load(&workspace.store(), version).await.unwrap();
        assert_eq!(states::facts(&bytes).unwrap(), version.facts);
    }
    let secrets = workspace.api::<Secret>().list(&ListParams::default().labels("app=terraform")).await.unwrap();
    assert!(secrets.items.len() <= 1 + 5, "places are used again");
    assert!(secrets.items.iter().all(|secret| secret.metadata.owner_references.is_none()), "nobody owns a state");
}

#[tokio::test]
async fn a_state_of_20_megabytes_survives() {
    let workspace = workspace("large").await;
    let _serve = workspace.pod(1).serve().await;
    let mut large = state(1, "l", 400);
    let text = noise(400 * 50_000);
    for (number, resource) in large["resources"].as_array_mut().unwrap().iter_mut().enumerate() {
        resource["instances"][0]["attributes"]["value"] = text[number * 50_000..][..50_000].into();
    }
    assert!(large.to_string().len() > 20_000_000);
    assert_eq!(workspace.lock("one").await.0, 200);
    assert_eq!(workspace.save(&large, "one").await.0, 204);
    let (code, body) = workspace.ask("GET", "/state", "").await.unwrap();
    assert_eq!(code, 200);
    assert!(serde_json::from_slice::<Value>(&body).unwrap() == large, "it is another one");
    let summary: StateReport = serde_json::from_slice(&workspace.ask("GET", "/summary", "").await.unwrap().1).unwrap();
    assert_eq!((summary.serial, summary.resources), (1, 400));
}

#[tokio::test]
async fn a_damaged_state_is_reported_by_name_and_replaced_by_nothing() {
    let workspace = workspace("damage").await;
    for run in 1..=2 {
        let _serve = workspace.pod(run).serve().await;
        workspace.lock("one").await;
        assert_eq!(workspace.save(&state(run, "l", 1), "one").await.0, 204);
        workspace.unlock("one").await;
    }
    let store = workspace.store();
    let place = states::read_index(&store).await.unwrap().index.versions[0].place;
    let name = workspace.names.state_chunk(place, 0);
    let damage = json!({ "data": { "data": ByteString(b"something else".to_vec()) } });
    let secrets = workspace.api::<Secret>();
    secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&damage)).await.unwrap();

    let _serve = workspace.pod(3).serve().await;
    let (code, body) = workspace.ask("GET", "/state", "").await.unwrap();
    assert_eq!(code, 422, "Terraform must not take it for an empty state");
    assert!(String::from_utf8_lossy(&body).contains(&format!("Secret {name} is damaged")), "{body:?}");
    assert!(matches!(states::current(&store).await, Err(StoreError::Damaged { .. })));
    let (version, _) = states::last_intact(&store).await.unwrap().unwrap();
    assert_eq!(version.facts.serial, 1, "who asks for it gets the version before");

    secrets.delete(&name, &DeleteParams::default()).await.unwrap();
    let (code, body) = workspace.ask("GET", "/state", "").await.unwrap();
    assert_eq!(
        (code, String::from_utf8_lossy(&body).as_ref()),
        (422, format!("Secret {name} does not exist").as_str())
    );
}

#[tokio::test]
async fn a_state_that_would_lose_something_is_refused() {
    let workspace = workspace("refusing").await;
    let first = workspace.pod(1).serve().await;
    workspace.lock("one").await;
    assert_eq!(workspace.save(&state(7, "l", 1), "one").await.0, 204);
    assert_eq!(workspace.save(&state(7, "l", 1), "one").await.0, 204, "the same once more: its answer was lost");
    assert_eq!(workspace.save(&state(8, "l", 1), "other").await.0, 409, "under another lock");
    assert_eq!(workspace.save(&json!({ "no": "state" }), "one").await.0, 409);
    workspace.unlock("one").await;
    assert_eq!(workspace.save(&state(8, "l", 1), "one").await.0, 409, "under no lock");
    assert_eq!(workspace.ask("POST", "/state", state(8, "l", 1).to_string()).await.unwrap().0, 400);
    first.stopped().await;
    let _second = workspace.pod(2).serve().await;
    workspace.lock("two").await;
    for refused in [state(6, "l", 1), state(7, "l", 2), state(9, "another", 1)] {
        let (code, words) = workspace.save(&refused, "two").await;
        assert_eq!(code, 409, "{words}");
    }
    assert_eq!(workspace.save(&state(8, "l", 0), "two").await.0, 204);
    assert_eq!(workspace.save(&state(1, "another", 1), "two").await.0, 204, "nothing is lost with an empty one");
}

#[tokio::test]
async fn of_two_that_save_at_once_one_wins() {
    let workspace = workspace("fences").await;
    let store = workspace.store();
    for serial in [1, 3] {
        // Both read before either wrote: first without a state, and then with one.
        let texts = [state(serial, "l", 1), state(serial + 1, "l", 1)].map(|state| state.to_string().into_bytes());
        let packed = texts.each_ref().map(|bytes| (states::facts(bytes).unwrap(), pack(bytes)));
        let [one, two] = [0, 1].map(|number: usize| {
            let (facts, packed) = &packed[number];
            states::Save { packed, facts, run: ["one", "two"][number], history: &HISTORY }
        });
        let aims = [states::aim(&store, &one).await.unwrap(), states::aim(&store, &two).await.unwrap()];
        let [first, second] = aims;
        states::save(&store, first, &one).await.unwrap();
        let late = states::save(&store, second, &two).await.unwrap_err();
        assert_eq!(late.code(), Some(409));
        // The late writer has not even written to the place of the other.
        let kept: Value = serde_json::from_slice(&states::current(&store).await.unwrap().unwrap()).unwrap();
        assert_eq!(kept["serial"], serial);
    }
}

const HISTORY: History = History { states: 3, failed_jobs: 3 };

#[tokio::test]
async fn a_state_that_is_too_large_is_refused_by_its_size_and_at_once() {
    let workspace = workspace("oversized").await;
    let _serve = workspace.pod(1).serve().await;
    workspace.lock("one").await;
    let mut large = state(1, "l", 1);
    large["outputs"] = json!({ "noise": { "type": "string", "value": noise(45_000_000) } });
    let (code, words) = workspace.save(&large, "one").await;
    assert!(code == 413 && words.starts_with("The state has"), "{code}: {words:.200}");
}

#[tokio::test]
async fn a_rescued_state_takes_and_gives_back_the_lock_by_itself() {
    let workspace = workspace("rescuing").await;
    let _serve = workspace.pod(1).serve().await;
    workspace.lock("one").await;
    assert_eq!(workspace.save(&state(7, "l", 1), "one").await.0, 204);
    workspace.unlock("one").await;
    let rescue = async |state: Value| workspace.ask("POST", "/rescue", state.to_string()).await.unwrap().0;
    assert_eq!(rescue(state(8, "l", 2)).await, 204);
    assert_eq!(rescue(state(5, "l", 2)).await, 409, "it is older");
    assert_eq!(rescue(state(9, "another", 2)).await, 409, "it is another's");
    assert_eq!(workspace.ask("GET", "/lock", "").await.unwrap().0, 204, "nobody holds the lock");
    workspace.lock("killed").await;
    assert_eq!(rescue(state(9, "l", 3)).await, 204, "Terraform was killed while it held the lock");
    assert_eq!(states::summary(&workspace.store()).await.unwrap().unwrap().serial, 9);
    assert_eq!(workspace.ask("GET", "/lock", "").await.unwrap().0, 204);
}

#[tokio::test]
async fn a_state_that_was_there_before_is_adopted_once_and_left_as_it_is() {
    let mut workspace = workspace("adopting").await;
    let old = state(7, "l", 3).to_string();
    let gone = Names::of("gone", "u-0");
    let store = Store::new(workspace.client.clone(), &workspace.namespace, gone.clone());
    let (facts, packed) = (states::facts(old.as_bytes()).unwrap(), pack(old.as_bytes()));
    let save = states::Save { packed: &packed, facts: &facts, run: "old", history: &HISTORY };
    states::save(&store, states::aim(&store, &save).await.unwrap(), &save).await.unwrap();
    lockfile::save(&store, b"versions").await.unwrap();
    let forms =
        [("tfstate-default-net", "tfstate", gzip(old.as_bytes())), ("by-hand", "terraform.tfstate", old.into())];
    for (name, key, bytes) in forms {
        let secret = json!({ "metadata": { "name": name }, "data": { key: ByteString(bytes) } });
        workspace
            .api::<Secret>()
            .create(&PostParams::default(), &serde_json::from_value(secret).unwrap())
            .await
            .unwrap();
    }
    for (number, name) in (1..).zip([gone.state(), "tfstate-default-net".to_owned(), "by-hand".to_owned()]) {
        workspace.names = Names::of("new", &number.to_string());
        workspace.renamed().await;
        workspace.adopt(&name).await;
        let serve = workspace.pod(number).serve().await;
        for _ in 0..2 {
            assert_eq!(workspace.ask("POST", "/adopt", "").await.unwrap().0, 204, "{name}");
            let kept = states::summary(&workspace.store()).await.unwrap().unwrap();
            assert_eq!((kept.serial, kept.resources), (7, 3), "{name}");
            // A workspace leaves the versions of its providers with its state.
            let versions = lockfile::load(&workspace.store()).await.unwrap();
            assert_eq!(versions.is_some(), name == gone.state(), "{name}");
        }
        assert_eq!(workspace.ask("GET", "/lock", "").await.unwrap().0, 204, "nobody holds the lock");
        serve.stopped().await;
    }
    assert_eq!(states::summary(&store).await.unwrap().unwrap().serial, 7, "where it was it still is");
    workspace.names = Names::of("new", "none");
    workspace.renamed().await;
    workspace.adopt("nowhere").await;
    let _serve = workspace.pod(9).serve().await;
    let (code, words) = workspace.ask("POST", "/adopt", "").await.unwrap();
    let words = String::from_utf8_lossy(&words).into_owned();
    assert_eq!((code, words.as_str()), (422, "Secret nowhere does not exist"));
}

#[tokio::test]
async fn a_kept_plan_comes_back_with_its_words() {
    let workspace = workspace("plans").await;
    let _serve = workspace.pod(1).serve().await;
    assert_eq!(workspace.ask("GET", "/plan", "").await.unwrap().0, 204);
    let file: Vec<u8> = (0..500_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let made = PlanReport { id: "0123456789ab".to_owned(), serial: 3, add: 1, ..PlanReport::default() };
    let filing = json!({ "report": made, "inputs": "inputs", "text": "+ a pet\n", "file": ByteString(file.clone()) });
    assert_eq!(workspace.ask("PUT", "/plan", filing.to_string()).await.unwrap().0, 204);
    let store = workspace.store();
    let (kept, found) = plan::load(&store).await.unwrap().unwrap();
    assert!(found == file && kept.file.chunks.len() > 1);
    assert_eq!((kept.report, kept.inputs.as_str(), kept.run), (made, "inputs", workspace.names.job(1)));
    assert_eq!(plan::text(&store).await.unwrap().unwrap(), "+ a pet\n");
    assert_eq!(workspace.ask("GET", "/plan", "").await.unwrap().0, 200);
    let chunk = workspace.names.plan_chunk(1);
    workspace.api::<Secret>().delete(&chunk, &DeleteParams::default()).await.unwrap();
    let error = plan::load(&store).await.unwrap_err().to_string();
    assert_eq!(error, format!("Secret {chunk} does not exist"));
}

#[tokio::test]
async fn outputs_stay_until_there_are_others_and_too_large_ones_are_a_failure() {
    let workspace = workspace("reports").await;
    let _serve = workspace.pod(1).serve().await;
    let file = async |outcome: Outcome, outputs: Value| {
        let report = json!({
            "run": workspace.names.job(1), "action": Action::Apply, "inputs": "i", "outcome": outcome, "stage": "done",
        });
        let filing = json!({ "report": report, "outputs": outputs });
        assert_eq!(workspace.ask("POST", "/report", filing.to_string()).await.unwrap().0, 204);
        workspace.report().await
    };
    assert_eq!(
        file(Outcome::Applied, json!({ "name": { "value": "ada", "type": "string" } })).await.outcome,
        Outcome::Applied
    );
    assert_eq!(file(Outcome::Failed, Value::Null).await.outcome, Outcome::Failed);
    assert_eq!(workspace.outputs().await["name"].text(), "ada");
    let large = noise(2_000_000);
    let report: Report = file(Outcome::Applied, json!({ "large": { "value": large } })).await;
    assert_eq!(
        (report.outcome, report.diagnostics[0].summary.as_str()),
        (Outcome::Failed, "The outputs are too large")
    );
    assert_eq!(workspace.outputs().await["name"].text(), "ada");
    // It is very small when compressed.
    let report = file(Outcome::Applied, json!({ "large": { "value": "0".repeat(8 << 20) } })).await;
    assert_eq!(report.outcome, Outcome::Failed);
    let detail = report.diagnostics[0].detail.clone().unwrap();
    assert!(detail.contains("bytes as JSON, but may have at most 2097152"), "{detail}");
    assert_eq!(workspace.outputs().await["name"].text(), "ada");
    file(Outcome::Applied, json!({})).await;
    assert!(report::outputs(&workspace.store()).await.unwrap().unwrap().is_empty(), "those that vanished are gone");
}
