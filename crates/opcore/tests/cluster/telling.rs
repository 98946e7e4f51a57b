//! Events: the same words are counted, other words are told.

use k8s_openapi::api::events::v1::Event;
use kube::api::DeleteParams;
use kube::{Api, Resource, ResourceExt};
use opcore::events::Events;
use opcore::operator::Note;

use crate::stage::{Stage, events};

/// What people read of the Events about an object: words and how often they were told.
async fn told(stage: &Stage, about: &str) -> Vec<(String, i32)> {
    let counted = |event: Event| (event.note.unwrap_or_default(), event.series.map_or(1, |series| series.count));
    let mut told: Vec<_> = events(stage, about).await.into_iter().map(counted).collect();
    told.sort();
    told
}

#[tokio::test]
async fn the_same_words_are_counted_and_a_second_failure_is_told_in_its_own() {
    let stage = Stage::new("telling").await;
    let about = stage.write("diary", &[]).await.object_ref(&());
    let teller = Events::new(stage.client.clone(), "notebook-operator");
    let failed = |words: &str| Note::warning("Failed", words);
    for words in ["no ink", "no paper", "no ink"] {
        teller.tell(&about, &failed(words)).await;
    }
    assert_eq!(told(&stage, "diary").await, [("no ink".to_owned(), 2), ("no paper".to_owned(), 1)]);
}

#[tokio::test]
async fn an_event_that_is_gone_is_told_anew() {
    let stage = Stage::new("telling").await;
    let about = stage.write("diary", &[]).await.object_ref(&());
    let teller = Events::new(stage.client.clone(), "notebook-operator");
    let note = Note::normal("Written", "all pages");
    teller.tell(&about, &note).await;
    let api: Api<Event> = Api::namespaced(stage.client.clone(), &stage.namespace);
    for event in events(&stage, "diary").await {
        api.delete(&event.name_any(), &DeleteParams::default()).await.unwrap();
    }
    teller.tell(&about, &note).await;
    assert_eq!(told(&stage, "diary").await, [("all pages".to_owned(), 1)]);
}
