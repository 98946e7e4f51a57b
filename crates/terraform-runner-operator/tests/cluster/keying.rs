//! A status does not reveal its inputs; and the result of a run is published even if a later write fails.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use opcore_testing::proxy::{Fate, Proxy};
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{TerraformWorkspaceStatus, WorkspacePhase};
use terraform_runner_operator::render::{self, Source, Sources};
use terraform_runner_operator::slots::Limits;

use crate::stage::{Stage, eventually};

#[tokio::test]
async fn the_hash_of_inputs_is_keyed_by_workspace_and_a_lost_key_is_found_again() {
    let stage = Stage::new("keys").await;
    let running = stage.start();
    let secret = json!({ "metadata": { "name": "creds" }, "stringData": { "password": "hunter2" } });
    let secrets = stage.of::<Secret>();
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let from = json!({ "variablesFrom": [{ "secretRef": { "name": "creds" } }] });
    let mut hashes = Vec::new();
    for name in ["one", "two"] {
        stage.write(name, from.clone()).await;
        hashes.push(stage.ready(name).await.status.unwrap().last_applied.unwrap().hash);
    }
    assert_ne!(hashes[0], hashes[1], "the same values");

    // The key is lost: the applied inputs are still recognized as unchanged.
    let key = render::names(&stage.workspaces().get("one").await.unwrap()).key();
    let old = secrets.get(&key).await.unwrap();
    secrets.delete(&key, &DeleteParams::default()).await.unwrap();
    let new = eventually(&secrets, &key, "back", |new| new.uid() != old.uid()).await;
    assert!(new.data == old.data, "another key");
    // The Secret with the key is damaged.
    let damaged = json!({ "data": { "key": null } });
    secrets.patch(&key, &PatchParams::default(), &Patch::Merge(&damaged)).await.unwrap();
    eventually(&secrets, &key, "mended", |new| new.data == old.data).await;
    stage.annotate("one", "opcore.dev/requestedAt", "now").await;
    stage.write("three", json!({})).await;
    stage.ready("three").await;
    let status = stage.ready("one").await.status.unwrap();
    assert_eq!((status.last_applied.unwrap().hash, status.run.unwrap().number), (hashes[0].clone(), 1));
    assert_eq!(stage.names::<Job>().await.len(), 3, "none of this took a run");
    running.stop().await;
}

#[tokio::test]
async fn what_was_applied_before_there_were_keys_is_not_applied_again() {
    let stage = Stage::new("unkeyed").await;
    let running = stage.start();
    stage.write("net", json!({})).await;
    let workspace = stage.ready("net").await;
    running.stop().await;
    // As an operator without keys would have left it.
    let names = render::names(&workspace);
    let plain = render::inputs(&workspace.spec, &Sources::new()).unwrap();
    let secrets = stage.of::<Secret>();
    secrets.delete(&names.key(), &DeleteParams::default()).await.unwrap();
    let status = workspace.status.clone().unwrap();
    let kept = names.inputs_chunk(&status.last_applied.as_ref().unwrap().hash, 0);
    let mut chunk = secrets.get(&kept).await.unwrap();
    secrets.delete(&kept, &DeleteParams::default()).await.unwrap();
    chunk.metadata.name = Some(names.inputs_chunk(&plain.hash, 0));
    chunk.metadata.resource_version = None;
    chunk.metadata.managed_fields = None;
    chunk.data = render::input_secrets(&workspace, &plain).remove(0).data;
    secrets.create(&PostParams::default(), &chunk).await.unwrap();
    let old = json!({ "status": {
        "lastApplied": { "hash": plain.hash }, "begunInputs": plain.hash, "run": { "inputs": plain.hash },
        "plan": { "inputs": plain.hash },
    } });
    stage.workspaces().patch_status("net", &PatchParams::default(), &Patch::Merge(&old)).await.unwrap();

    let running = stage.start();
    eventually(&secrets, &names.key(), "made", |_| true).await;
    stage.write("other", json!({})).await;
    stage.ready("other").await;
    let status = stage.ready("net").await.status.unwrap();
    assert_eq!((status.last_applied.unwrap().hash, status.run.unwrap().number), (plain.hash.clone(), 1));
    // With the next change it is keyed.
    stage.write("net", json!({ "variables": { "size": 2 } })).await;
    let changed = stage.ready("net").await;
    let hash = changed.status.unwrap().last_applied.unwrap().hash;
    assert_ne!(hash, render::inputs(&changed.spec, &Sources::new()).unwrap().hash);
    running.stop().await;
}

#[tokio::test]
async fn the_place_of_the_state_is_keyed_by_workspace_and_one_that_was_recorded_without_a_key_is_the_same_place() {
    let stage = Stage::new("places").await;
    let running = stage.start();
    let secrets = stage.of::<Secret>();
    let place = json!({ "metadata": { "name": "place" }, "stringData": { "bucket": "confidential" } });
    secrets.create(&PostParams::default(), &serde_json::from_value(place).unwrap()).await.unwrap();
    let custom = json!({ "custom": { "type": "s3", "configFrom": { "secretRef": { "name": "place" } } } });
    let mut places = Vec::new();
    for name in ["one", "two"] {
        stage.write(name, json!({ "backend": custom })).await;
        places.push(stage.ready(name).await.status.unwrap().begun_backend.unwrap());
    }
    assert_ne!(places[0], places[1], "the same place");
    assert!(places.iter().all(|place| place.starts_with("s3-")), "{places:?}");
    running.stop().await;

    // As an operator that keyed only the hash of inputs would have left it.
    let workspace = stage.workspaces().get("one").await.unwrap();
    let content = BTreeMap::from([("bucket".to_owned(), b"confidential".to_vec())]);
    let sources = Sources::from([((Source::Secret, "place".to_owned()), Some(content))]);
    let unkeyed = render::inputs(&workspace.spec, &sources).unwrap().backend;
    assert!(!places.contains(&unkeyed));
    let old = json!({ "status": {
        "begunBackend": unkeyed, "run": { "backend": unkeyed, "previousBackend": unkeyed },
    } });
    stage.workspaces().patch_status("one", &PatchParams::default(), &Patch::Merge(&old)).await.unwrap();
    let running = stage.start();
    let keyed = |status: &TerraformWorkspaceStatus| status.begun_backend.as_ref() == Some(&places[0]);
    let status = stage.until("one", "keyed", keyed).await.status.unwrap();
    assert!(!serde_json::to_string(&status).unwrap().contains(&unkeyed), "{status:?}");
    assert_eq!((status.phase, status.run.unwrap().number), (WorkspacePhase::Ready, 1));

    // A lost key is recovered, so that the place of the state is still the same.
    secrets.delete(&render::names(&workspace).key(), &DeleteParams::default()).await.unwrap();
    stage.write("one", json!({ "backend": custom, "variables": { "size": 2 } })).await;
    let status = stage.ready("one").await.status.unwrap();
    assert_eq!((status.begun_backend.as_ref(), status.run.unwrap().number), (Some(&places[0]), 2));
    let moved = json!({ "stringData": { "bucket": "another" } });
    secrets.patch("place", &PatchParams::default(), &Patch::Merge(&moved)).await.unwrap();
    stage.says("one", "BackendChanged").await;
    running.stop().await;
}

#[tokio::test]
async fn outputs_that_cannot_be_written_keep_neither_the_result_nor_the_turn() {
    let stage = Stage::new("stubborn").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    proxy.rule(|passed| {
        let fails = passed.method == "PATCH" && passed.path.ends_with("/net-outputs");
        if fails { Fate::Answer(500) } else { Fate::Pass }
    });
    let running = stage.start_on(proxy.config(), Limits { runs: 1, share: 1, checks: 1 });
    stage.write("net", json!({})).await;
    let applied = stage.until("net", "applied", |status| status.last_applied.is_some()).await.status.unwrap();
    assert!(applied.run.unwrap().is_over() && applied.state.is_some());
    assert_eq!(applied.outputs_secret, None, "it is not there");
    // There is one turn, and it is free.
    stage.write("other", json!({})).await;
    stage.ready("other").await;
    proxy.rule(|_| Fate::Pass);
    stage.annotate("net", "opcore.dev/requestedAt", "now").await;
    let ready = stage.ready("net").await.status.unwrap();
    assert_eq!((ready.outputs_secret.as_deref(), ready.run.unwrap().number), (Some("net-outputs"), 1));
    running.stop().await;
}
