//! Events: told when something changes, never while it stays the same.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube_runtime::events::{Event, EventType, Recorder, Reporter};

use crate::conditions::{Condition, READY, STALLED, cut, is_true, transitions};
use crate::operator::Note;

/// Kubernetes refuses longer ones.
const LONGEST_REASON: usize = 128;
const LONGEST_NOTE: usize = 1024;

/// Publishes Events about objects.
#[derive(Clone)]
pub struct Events(Recorder);

impl Events {
    /// Events in the name of `operator`.
    pub fn new(client: Client, operator: &str) -> Self {
        let reporter = Reporter { controller: operator.to_owned(), instance: std::env::var("HOSTNAME").ok() };
        Self(Recorder::new(client, reporter))
    }

    /// Publishes one Event. That it could not be published is logged and otherwise ignored: the status is the truth, an
    /// Event only points to it.
    pub async fn tell(&self, about: &ObjectReference, note: &Note) {
        let event = Event {
            type_: if note.warning { EventType::Warning } else { EventType::Normal },
            reason: cut(&note.reason, LONGEST_REASON).to_owned(),
            note: Some(cut(&note.message, LONGEST_NOTE).to_owned()).filter(|note| !note.is_empty()),
            action: note.part.as_deref().map_or("Reconcile", |part| cut(part, LONGEST_REASON)).to_owned(),
            secondary: None,
        };
        if let Err(error) = self.0.publish(&event, about).await {
            tracing::debug!(reason = %note.reason, %error, "an Event was not published");
        }
    }
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
    fn an_event_is_told_when_ready_changes_and_not_while_it_stays() {
        let applying = conditions(&Summary::reconciling("Applying", "1 of 2"));
        assert_eq!(of_transition(&applying, &conditions(&Summary::reconciling("Applying", "2 of 2"))), None);
        let note = of_transition(&applying, &conditions(&Summary::ready("Applied", "done"))).unwrap();
        assert_eq!((note.warning, note.reason.as_str()), (false, "Applied"));
    }

    #[test]
    fn what_needs_someones_help_is_a_warning() {
        let stalled = conditions(&Summary::stalled("InvalidSpec", "spec.length must be positive"));
        assert!(of_transition(&[], &stalled).unwrap().warning);
    }
}
