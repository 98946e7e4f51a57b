//! Events: emitted when something changes, never while it stays the same.
//!
//! Repeated Events with the same message about the same object become one Event with a count. kube's own recorder
//! compares only the reason, so a second failure would show the message of the first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::conditions::{Condition, READY, STALLED, cut, is_true, transitions};
use crate::operator::Note;

/// Kubernetes rejects longer reasons.
const LONGEST_REASON: usize = 128;
const LONGEST_NOTE: usize = 1024;
const LONGEST_NAME: usize = 253;

/// Within this time, a repeated Event is counted instead of emitted again.
const COUNTED_WITHIN: SignedDuration = SignedDuration::from_mins(6);

/// Publishes Events about objects.
#[derive(Clone)]
pub struct Events {
    client: Client,
    operator: String,
    instance: String,
    emitted: Arc<Mutex<HashMap<EventKey, EmittedEvent>>>,
}

/// The content of an Event, and the object that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventKey {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    note: Note,
}

/// An Event that was emitted.
#[derive(Clone, Debug)]
struct EmittedEvent {
    event: String,
    count: i32,
    at: Timestamp,
}

impl Events {
    /// Creates a publisher whose Events name `operator` as their source.
    pub fn new(client: Client, operator: &str) -> Self {
        let instance = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
        let instance = instance.unwrap_or_else(|| operator.to_owned());
        Self { client, operator: operator.to_owned(), instance, emitted: Arc::default() }
    }

    /// Publishes one Event. A failure to publish is logged and otherwise ignored: the status is authoritative, an Event
    /// only points to it.
    pub async fn emit(&self, about: &ObjectReference, note: &Note) {
        if let Err(error) = self.publish(about, note).await {
            tracing::debug!(reason = %note.reason, %error, "an Event was not published");
        }
    }

    async fn publish(&self, about: &ObjectReference, note: &Note) -> Result<(), kube::Error> {
        let now = Timestamp::now();
        let key = EventKey {
            namespace: about.namespace.clone(),
            name: about.name.clone(),
            uid: about.uid.clone(),
            note: note.clone(),
        };
        // Events about objects without a namespace are created in this one.
        let events = Api::namespaced(self.client.clone(), about.namespace.as_deref().unwrap_or("default"));
        let before = {
            let mut emitted = self.emitted();
            emitted.retain(|_, emitted| now.duration_since(emitted.at) < COUNTED_WITHIN);
            emitted.get(&key).cloned()
        };
        let counted = match before {
            Some(emitted) => self.count(&events, emitted, now).await?,
            None => None,
        };
        let emitted = if let Some(emitted) = counted {
            emitted
        } else {
            let event = self.event(about, note, now);
            let made = events.create(&PostParams::default(), &event).await?;
            EmittedEvent { event: made.metadata.name.unwrap_or_default(), count: 1, at: now }
        };
        self.emitted().insert(key, emitted);
        Ok(())
    }

    /// Increases the count of an Event, unless it is gone.
    async fn count(
        &self,
        events: &Api<Event>,
        emitted: EmittedEvent,
        now: Timestamp,
    ) -> Result<Option<EmittedEvent>, kube::Error> {
        let emitted = EmittedEvent { count: emitted.count.saturating_add(1), at: now, ..emitted };
        let series = EventSeries { count: emitted.count, last_observed_time: MicroTime(now) };
        let patch = Patch::Merge(json!({ "series": series }));
        match events.patch(&emitted.event, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(Some(emitted)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn event(&self, about: &ObjectReference, note: &Note, now: Timestamp) -> Event {
        let text = |text: &str, longest: usize| Some(cut(text, longest).to_owned()).filter(|text| !text.is_empty());
        Event {
            metadata: ObjectMeta {
                namespace: about.namespace.clone(),
                name: Some(name(about.name.as_deref().unwrap_or(&self.operator), now)),
                ..ObjectMeta::default()
            },
            action: text(note.part.as_deref().unwrap_or("Reconcile"), LONGEST_REASON),
            event_time: Some(MicroTime(now)),
            note: text(&note.message, LONGEST_NOTE),
            reason: text(&note.reason, LONGEST_REASON),
            regarding: Some(about.clone()),
            reporting_controller: Some(self.operator.clone()),
            reporting_instance: Some(cut(&self.instance, LONGEST_REASON).to_owned()),
            type_: Some(if note.warning { "Warning" } else { "Normal" }.to_owned()),
            ..Event::default()
        }
    }

    fn emitted(&self) -> MutexGuard<'_, HashMap<EventKey, EmittedEvent>> {
        crate::lock(&self.emitted)
    }
}

/// A unique name for an Event: the name of the object, cut to fit, and the time.
fn name(object: &str, now: Timestamp) -> String {
    let time = format!(".{:x}", now.as_nanosecond());
    let object = cut(object, LONGEST_NAME - time.len()).trim_end_matches(['.', '-']);
    format!("{object}{time}")
}

/// The change of `Ready` between two statuses, if there is one, as an Event.
pub fn of_transition(old: &[Condition], new: &[Condition]) -> Option<Note> {
    let ready = transitions(old, new).into_iter().find(|condition| condition.type_ == READY)?;
    let note = Note::normal(ready.reason.clone(), ready.message.clone());
    Some(Note { warning: is_true(new, STALLED), ..note })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::conditions::Summary;

    #[derive(Default, Clone)]
    struct Status {
        conditions: Vec<Condition>,
        observed_generation: Option<i64>,
    }
    crate::impl_conditions!(Status);

    fn conditions(summary: &Summary) -> Vec<Condition> {
        let mut status = Status::default();
        summary.write(&mut status, None, Timestamp::UNIX_EPOCH);
        status.conditions
    }

    #[test]
    fn an_event_is_emitted_when_ready_changes_and_not_while_it_stays() {
        let applying = conditions(&Summary::reconciling("Applying", "1 of 2"));
        assert_eq!(of_transition(&applying, &conditions(&Summary::reconciling("Applying", "2 of 2"))), None);
        let note = of_transition(&applying, &conditions(&Summary::ready("Applied", "done"))).unwrap();
        assert_eq!((note.warning, note.reason.as_str()), (false, "Applied"));
    }

    #[test]
    fn an_event_about_an_object_with_the_longest_name_still_has_a_name() {
        let longest = format!("{}.{}", "x".repeat(235), "y".repeat(17));
        assert_eq!(longest.len(), LONGEST_NAME);
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(name(&longest, now), format!("{}.{:x}", "x".repeat(235), now.as_nanosecond()));
        assert!(name("diary", now).starts_with("diary.1"));
    }

    #[test]
    fn what_needs_someones_help_is_a_warning() {
        let stalled = conditions(&Summary::stalled("InvalidSpec", "spec.length must be positive"));
        assert!(of_transition(&[], &stalled).unwrap().warning);
    }
}
