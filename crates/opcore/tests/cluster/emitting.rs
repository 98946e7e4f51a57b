//! Events: an Event with the same message is counted, another message is a new Event.

use k8s_openapi::api::events::v1::Event;
use kube::api::DeleteParams;
use kube::{Api, Resource, ResourceExt};
use opcore::events::Events;
use opcore::operator::Note;

use crate::stage::{Stage, events};

/// The messages of the Events about an object, and how often each was emitted.
async fn emitted(stage: &Stage, about: &str) -> Vec<(String, i32)> {
    let counted = |event: Event| (event.note.unwrap_or_default(), event.series.map_or(1, |series| series.count));
    let mut emitted: Vec<_> = events(stage, about).await.into_iter().map(counted).collect();
    emitted.sort();
    emitted
}

#[tokio::test]
async fn the_same_message_is_counted_and_a_second_failure_gets_an_event_of_its_own() {
    let stage = Stage::new("emitting").await;
    let about = stage.write("diary", &[]).await.object_ref(&());
    let publisher = Events::new(stage.client.clone(), "notebook-operator");
    let failed = |words: &str| Note::warning("Failed", words);
    for words in ["no ink", "no paper", "no ink"] {
        publisher.emit(&about, &failed(words)).await;
    }
    assert_eq!(emitted(&stage, "diary").await, [("no ink".to_owned(), 2), ("no paper".to_owned(), 1)]);
}

#[tokio::test]
async fn an_event_that_is_gone_is_emitted_again() {
    let stage = Stage::new("emitting").await;
    let about = stage.write("diary", &[]).await.object_ref(&());
    let publisher = Events::new(stage.client.clone(), "notebook-operator");
    let note = Note::normal("Written", "all pages");
    publisher.emit(&about, &note).await;
    let api: Api<Event> = Api::namespaced(stage.client.clone(), &stage.namespace);
    for event in events(&stage, "diary").await {
        api.delete(&event.name_any(), &DeleteParams::default()).await.unwrap();
    }
    publisher.emit(&about, &note).await;
    assert_eq!(emitted(&stage, "diary").await, [("all pages".to_owned(), 1)]);
}
