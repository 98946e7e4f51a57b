//! The reconcile of one object: observe, decide, act, publish.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ApiResource, Patch, PatchParams};
use kube::core::object::HasStatus;
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use tracing::Instrument;

use super::{Context, Shared, at_least, is_cluster_scoped};
use crate::act::{self, Done, ReconciledObject, Refusal, RefusalReason};
use crate::conditions::{self, Condition, Conditions, Summary};
use crate::error::{Class, Error};
use crate::events;
use crate::finalizer::{self, Phase};
use crate::metrics::ReconcileResult;
use crate::operator::{Admission, Decision, DecisionOf, Next, Note, Operator};
use crate::ownership::Claimant;
use crate::queue::Key;
use crate::watch;
use crate::writes::Write;

/// How a pass over an object ended.
enum Pass {
    /// As decided. If a write was refused, the status says so.
    Done { next: Next, refused: bool },
    /// A write failed. The status says so if it has to.
    Failed(Error),
    /// The object is no longer there.
    Gone,
}

/// After this many failures in a row, about half a minute, a status that does not mention them would mislead.
const REPORTED_AFTER_FAILURES: u32 = 5;

/// How often an object is decided in one pass. An operator that keeps claiming what it was refused has a bug.
const DECIDED_AT_MOST: usize = 8;

/// An API server that has just started, or that does not know a new token yet, briefly forbids what it would allow.
const REPORTED_AFTER_REFUSALS: u32 = 3;

/// Reconciles one object. Returns when to reconcile it again if no event comes before.
pub(super) async fn run<O: Operator>(shared: &Arc<Shared<O>>, key: &Key) -> Option<Instant> {
    let kind = Shared::<O>::kind();
    let started = Instant::now();
    shared.context.metrics().reconcile_started(&kind);
    let span = tracing::info_span!("reconcile", %kind, object = %key);
    // Whatever happens inside, the object must be reconciled again.
    let outcome = AssertUnwindSafe(outcome(shared, key)).catch_unwind().instrument(span).await;
    let (result, next) = outcome.unwrap_or_else(|panic| {
        let delay = shared.backoff().failed(key);
        tracing::error!(%kind, object = %key, ?delay, "a failure could not be reported in the status: {}", panic_message(panic.as_ref()));
        (ReconcileResult::Error, Some(Instant::now() + delay))
    });
    shared.context.metrics().reconcile_ended(&kind, result, started.elapsed());
    next
}

async fn outcome<O: Operator>(shared: &Arc<Shared<O>>, key: &Key) -> (ReconcileResult, Option<Instant>) {
    let deadline = shared.context.limits().reconcile;
    let pass = AssertUnwindSafe(tokio::time::timeout(deadline, pass(shared, key))).catch_unwind().await;
    let pass = match pass {
        Ok(Ok(pass)) => pass,
        Ok(Err(_)) => Err(Error::Deadline(deadline)),
        Err(panic) => Err(Error::Bug(panic_message(panic.as_ref()))),
    };
    match pass {
        Ok(Pass::Done { next, refused: false }) => {
            shared.backoff().succeeded(key);
            (ReconcileResult::Ok, next_reconcile(shared, key, next))
        }
        Ok(Pass::Done { next, refused: true }) => {
            let retry = Instant::now() + shared.backoff().failed(key);
            // The time that was decided on still applies: a deadline does not wait for a backoff.
            let next = next_reconcile(shared, key, next).map_or(retry, |next| next.min(retry));
            (ReconcileResult::Refused, Some(next))
        }
        Ok(Pass::Gone) => {
            shared.backoff().succeeded(key);
            (ReconcileResult::Ok, None)
        }
        Ok(Pass::Failed(error)) => (ReconcileResult::Error, Some(Instant::now() + delay(shared, key, &error))),
        Err(error) => {
            let is_reported = is_reported(shared, key, &error);
            let delay = delay(shared, key, &error);
            if is_reported {
                let reported = tokio::time::timeout(deadline, report_failure(shared, key, &error)).await;
                if reported.is_err() {
                    tracing::debug!("reporting the failure in the status took longer than {deadline:?}");
                }
            }
            (ReconcileResult::Error, Some(Instant::now() + delay))
        }
    }
}

/// Counts and logs a failure, and returns how long the object is left alone after it.
fn delay<O: Operator>(shared: &Shared<O>, key: &Key, error: &Error) -> Duration {
    let class = error.class();
    shared.context.metrics().error(&Shared::<O>::kind(), class);
    let delay = shared.backoff().failed(key).max(error.retry_after());
    match class {
        Class::Conflict => tracing::debug!(%error, ?delay, "the object changed; reconciling again"),
        Class::Bug => tracing::error!(%error, ?delay, "reconciling failed; retrying"),
        _ => tracing::warn!(%error, ?delay, "reconciling failed; retrying"),
    }
    delay
}

async fn pass<O: Operator>(shared: &Shared<O>, key: &Key) -> Result<Pass, Error> {
    let Some(object) = current(shared, key).await? else { return Ok(Pass::Gone) };
    let (operator, context) = (&shared.operator, &shared.context);
    let conditions_before = object.status().map_or(&[][..], Conditions::conditions);
    show(shared, key, conditions_before);
    if finalizer::phase(object.as_ref(), O::FINALIZER) == Phase::Released {
        // Only finalizers of others still hold it. There is nothing left to write and nothing left to publish.
        return Ok(Pass::Done { next: Next::OnEvent, refused: false });
    }
    let mut observed = operator.observe(&object, context).await?;
    let Some(decision) = decided(shared, &object, &mut observed).await? else {
        return Ok(Pass::Done { next: Next::OnEvent, refused: false });
    };
    let Decision { writes, mut status, notes, next, .. } = decision;

    let claimant = Claimant::acting_for(context.operator(), object.as_ref());
    let mut root = ReconciledObject::of(object.as_ref());
    let about = object.object_ref(&());
    let releases = writes.iter().any(|write| matches!(write, Write::RemoveFinalizer(_)));
    if releases {
        // Events about an object that goes are emitted before it is released: after a crash no process could emit them.
        emit(context, &about, &notes).await;
    }
    let done = match context.actor(&claimant) {
        Ok(actor) => act::run(&actor, Some(&mut root), &writes).await,
        Err(_) if writes.is_empty() => Done::default(),
        Err(unknown) => Done { failure: Some(unknown), ..Done::default() },
    };
    if Some(root.resource_version()) != object.resource_version().as_deref() {
        remember(shared, key, root.resource_version());
    }
    if done.gone {
        return Ok(Pass::Gone);
    }
    operator.after_writes(&object, &mut status, &done, context.now());
    let refusal = done.refusal();
    if let Some(refusal) = refusal.filter(|refusal| is_refusal_reported(shared, key, refusal)) {
        let forbidden = refusal.reason == RefusalReason::Forbidden;
        let remedy = forbidden.then(|| operator.remedy(&object, refusal)).flatten();
        summary_of(refusal, remedy.as_deref()).write(&mut status, object.meta().generation, context.now());
    } else if let Some(failure) = done.failure.as_ref().filter(|failure| is_reported(shared, key, failure)) {
        summary_of_failure(failure).write(&mut status, object.meta().generation, context.now());
    } else if refusal.is_some() || done.failure.is_some() {
        // The failure may pass by itself. Until then the conditions stay as they were: the new ones assume that the
        // write succeeded.
        *status.conditions_mut() = conditions_before.to_vec();
        status.set_observed_generation(object.status().and_then(Conditions::observed_generation));
    }
    // A condition that was decided and then reverted by a refusal has changed back and forth; only a difference in the
    // end result is a transition.
    conditions::keep_times(conditions_before, status.conditions_mut());
    // Once released, the object may be gone, so there is nothing left to publish in it. A failed write does not
    // invalidate what was observed: other objects that wait for this status must not wait for that write.
    if !done.released
        && let Err(error) = publish(shared, &object, &status, root.resource_version()).await
    {
        return Err(done.failure.unwrap_or(error));
    }
    operator.published(&object, &status, context.now());
    emit_events(shared, &about, conditions_before, &status, if releases { &[] } else { &notes }).await;
    let refused = done.refusal().is_some();
    Ok(done.failure.map_or(Pass::Done { next, refused }, Pass::Failed))
}

/// Decides, and repeats the decision as long as a claim is not granted.
async fn decided<O: Operator>(
    shared: &Shared<O>,
    object: &O::Object,
    observed: &mut O::Observed,
) -> Result<Option<DecisionOf<O>>, Error> {
    for _ in 0..DECIDED_AT_MOST {
        let now = shared.context.now();
        let operator = &shared.operator;
        let (active, terminating) =
            (|now| operator.decide(object, observed, now), |now| operator.tear_down(object, observed, now));
        let decision = finalizer::decide(object, O::FINALIZER, now, active, terminating);
        let Some(mut decision) = decision else { return Ok(None) };
        let claims = std::mem::take(&mut decision.claims);
        match shared.operator.admit(object, claims, observed, &shared.context, now).await? {
            Admission::Granted => return Ok(Some(decision)),
            Admission::DecideAnew => {}
        }
    }
    Err(Error::Bug(format!("{DECIDED_AT_MOST} consecutive decisions claimed something that was not granted")))
}

/// Emits Events about an object once its status is published: the change of `Ready`, and the notes of the decision.
async fn emit_events<O: Operator>(
    shared: &Shared<O>,
    about: &ObjectReference,
    before: &[Condition],
    status: &<O::Object as HasStatus>::Status,
    notes: &[Note],
) {
    // When a note about a part has the same reason, the Event about the object itself is left out.
    let is_noted = |transition: &Note| notes.iter().any(|note| note.reason == transition.reason);
    let transition = events::of_transition(before, status.conditions()).filter(|note| !is_noted(note));
    emit(&shared.context, about, transition.as_slice()).await;
    emit(&shared.context, about, notes).await;
}

/// Emits Events, and logs those that someone should look at, because the cluster keeps an Event for an hour only.
async fn emit(context: &Context, about: &ObjectReference, notes: &[Note]) {
    for note in notes {
        if note.warning {
            tracing::warn!(reason = %note.reason, "{}", note.message);
        }
        context.events().emit(about, note).await;
    }
}

/// The object from the cache, or from the API server if this process wrote something that the watch has not yet
/// returned.
async fn current<O: Operator>(shared: &Shared<O>, key: &Key) -> Result<Option<Arc<O::Object>>, Error> {
    let Some(cached) = shared.cache.get(key) else {
        forget(shared, key);
        return Ok(None);
    };
    let behind = {
        let mut written = shared.written();
        let version = cached.resource_version().unwrap_or_default();
        let behind = written.get(key).is_some_and(|written| !at_least(&version, written));
        if !behind {
            written.remove(key);
        }
        behind
    };
    if !behind {
        return Ok(Some(cached));
    }
    // Gone, or no longer readable: either way the watch will report it, and until then nothing is decided on the old
    // object.
    let Some(object) = api(shared, key).get_opt(&key.name).await? else { return Ok(None) };
    Ok(watch::parse(object).ok().map(Arc::new))
}

/// Whether a failure that has just happened is reported in the status: some pass by themselves.
fn is_reported<O: Operator>(shared: &Shared<O>, key: &Key, failure: &Error) -> bool {
    let threshold = match failure.class() {
        Class::Invalid | Class::Bug => 1,
        Class::Forbidden => REPORTED_AFTER_REFUSALS,
        _ => REPORTED_AFTER_FAILURES,
    };
    shared.backoff().failures(key) + 1 >= threshold
}

/// Whether a refused write is reported in the status: a write may be forbidden for a moment only.
fn is_refusal_reported<O: Operator>(shared: &Shared<O>, key: &Key, refusal: &Refusal) -> bool {
    refusal.reason != RefusalReason::Forbidden || shared.backoff().failures(key) + 1 >= REPORTED_AFTER_REFUSALS
}

fn summary_of_failure(failure: &Error) -> Summary {
    match failure.class() {
        Class::Forbidden => Summary::stalled(RefusalReason::Forbidden.as_str(), failure.to_string()),
        Class::Invalid => Summary::stalled(RefusalReason::Invalid.as_str(), failure.to_string()),
        Class::Bug => Summary::stalled("InternalError", failure.to_string()),
        _ => Summary::reconciling("Retrying", failure.to_string()),
    }
}

/// Reports a failure in the status, if that can be written: someone may have to act, and a status that still says
/// `Ready` would keep them from it.
async fn report_failure<O: Operator>(shared: &Shared<O>, key: &Key, error: &Error) {
    let Ok(Some(object)) = current(shared, key).await else { return };
    let mut status = object.status().cloned().unwrap_or_default();
    let before = status.conditions().to_vec();
    summary_of_failure(error).write(&mut status, object.meta().generation, shared.context.now());
    let version = object.resource_version().unwrap_or_default();
    match publish(shared, &object, &status, &version).await {
        Ok(()) => {
            let transition: Vec<_> = events::of_transition(&before, status.conditions()).into_iter().collect();
            emit(&shared.context, &object.object_ref(&()), &transition).await;
        }
        Err(error) => tracing::debug!(%error, "the failure could not be reported in the status"),
    }
}

fn summary_of(refusal: &Refusal, remedy: Option<&str>) -> Summary {
    let reason = refusal.reason.as_str();
    let message = remedy.map_or_else(|| refusal.message.clone(), |remedy| format!("{} {remedy}", refusal.message));
    match refusal.reason {
        RefusalReason::Terminating | RefusalReason::NotServed => Summary::reconciling(reason, message),
        _ => Summary::stalled(reason, message),
    }
}

/// Writes the status onto the version that was decided on, if it differs.
async fn publish<O: Operator>(
    shared: &Shared<O>,
    object: &O::Object,
    status: &<O::Object as HasStatus>::Status,
    version: &str,
) -> Result<(), Error> {
    let key = Key::of(object);
    let json = |status: Option<&<O::Object as HasStatus>::Status>| {
        serde_json::to_value(status).map_err(|error| Error::Bug(format!("cannot serialize the status: {error}")))
    };
    let (old, new) = (json(object.status())?, json(Some(status))?);
    let difference = difference(&old, &new);
    if difference.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(());
    }
    let patch = json!({
        "metadata": { "uid": object.uid(), "resourceVersion": version },
        "status": difference,
    });
    let params = PatchParams { field_manager: Some(shared.context.operator().to_owned()), ..PatchParams::default() };
    match api(shared, &key).patch_status(&key.name, &params, &Patch::Merge(&patch)).await {
        Ok(object) => {
            remember(shared, &key, &object.resource_version().unwrap_or_default());
            show(shared, &key, status.conditions());
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            Err(Error::Stale(format!("{} {key}", Shared::<O>::kind())))
        }
        Err(error) => Err(error.into()),
    }
}

/// The merge patch that turns the old value into the new one.
fn difference(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let removed = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = new
        .iter()
        .filter(|(key, value)| old.get(*key) != Some(value))
        .map(|(key, value)| (key.clone(), old.get(key).map_or_else(|| value.clone(), |old| difference(old, value))));
    Value::Object(removed.chain(changed).collect())
}

fn remember<O: Operator>(shared: &Shared<O>, key: &Key, version: &str) {
    shared.written().insert(key.clone(), version.to_owned());
}

/// Publishes an object's conditions as metrics.
fn show<O: Operator>(shared: &Shared<O>, key: &Key, conditions: &[Condition]) {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    shared.context.metrics().conditions(&Shared::<O>::kind(), namespace, &key.name, conditions);
}

/// Called when the watch reports that the object is gone.
fn forget<O: Operator>(shared: &Shared<O>, key: &Key) {
    shared.written().remove(key);
    shared.operator.forget(key);
    crate::lock(&shared.overdue).remove(key);
    shared.context.metrics().forget(&Shared::<O>::kind(), key.namespace.as_deref().unwrap_or_default(), &key.name);
}

/// The API for the object itself. Responses are parsed as the watch parses them: an object nested too deeply for kube
/// is not an error.
fn api<O: Operator>(shared: &Shared<O>, key: &Key) -> Api<watch::Object> {
    let (client, resource) = (shared.context.client().clone(), ApiResource::erase::<O::Object>(&()));
    match key.namespace.as_deref().filter(|_| !is_cluster_scoped::<O::Object>()) {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

/// How long an object waits when its decision keeps asking to be reconciled at once.
const OVERDUE_PAUSE: Duration = Duration::from_secs(1);

/// When to reconcile again. A time in the past means now, but only once: a decision that names one again and again
/// would otherwise keep a worker, and the API server, busy without end.
fn next_reconcile<O: Operator>(shared: &Shared<O>, key: &Key, next: Next) -> Option<Instant> {
    let now = shared.context.now();
    let is_past = matches!(next, Next::At(at) if at <= now);
    let mut overdue = crate::lock(&shared.overdue);
    if !is_past {
        overdue.remove(key);
    } else if !overdue.insert(key.clone()) {
        return Some(Instant::now() + OVERDUE_PAUSE);
    }
    until(next, now)
}

/// Converts a calendar time to the clock that timers use. A time in the past becomes now.
fn until(next: Next, now: Timestamp) -> Option<Instant> {
    let Next::At(at) = next else { return None };
    let wait = Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
    Instant::now().checked_add(wait)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_names_what_changed_and_nulls_what_is_no_more() {
        let old = json!({"phase": "Running", "gone": 1, "same": {"a": 1}, "deep": {"x": 1, "y": 2}, "list": [1, 2]});
        let new = json!({"phase": "Ready", "same": {"a": 1}, "deep": {"x": 1, "y": 3}, "list": [1]});
        assert_eq!(difference(&old, &new), json!({"phase": "Ready", "gone": null, "deep": {"y": 3}, "list": [1]}));
        assert_eq!(difference(&new, &new), json!({}));
    }

    #[test]
    fn a_first_status_is_written_whole() {
        assert_eq!(difference(&Value::Null, &json!({"phase": "Ready"})), json!({"phase": "Ready"}));
    }

    #[test]
    fn a_moment_in_the_past_is_now() {
        let now = Timestamp::now();
        let at = until(Next::At(now - jiff::SignedDuration::from_secs(9)), now).unwrap();
        assert!(at <= Instant::now());
    }
}
