//! Which kinds the API server has, cached as long as the information is valid.
//!
//! # Guarantees
//!
//! - A kind that is served is asked for once, and again when its definition changes or after [`Discovery::forget`]. The
//!   result that a kind is not served is not cached: its definition may come at any moment.
//! - An API that does not answer affects only its own kinds. What was known of them before still counts, and where
//!   nothing was known the result is [`Served::Unknown`]. The API is asked again in the background, with growing
//!   pauses, and [`News::Changed`] reports when it has answered. A caller waits for it at most a few seconds, and only
//!   once.
//! - A subscriber to definitions receives each change, also after a panic.
//!
//! # Assumptions
//!
//! Definitions are CustomResourceDefinitions, which the process may list and watch. Kinds of aggregated APIs and of an
//! upgraded API server appear and disappear without a definition: a caller that receives a 404 must call
//! [`Discovery::forget`].
//!
//! # Errors
//!
//! None: if the API server could not be asked, the result is [`Served::Unknown`], with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{Stream, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::discovery::{self, ApiCapabilities, ApiGroup, Scope as KindScope};

use super::supervise::supervise;
use super::{Change, Scope};
use crate::controller::Context;
use crate::error::Error;
use crate::lock;
use crate::object::GroupKind;

/// How long after a change of a definition discovery may still return the old state, and how often it is asked in that
/// time.
const LAG: Duration = Duration::from_secs(10);
const LAG_PAUSE: Duration = Duration::from_millis(250);
/// How long an API may take to list its kinds. The caller waits that long.
const PATIENCE: Duration = Duration::from_secs(3);
/// The pauses between attempts to ask an API that does not answer.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// A kind as manifests write it: `apiVersion` and `kind`.
pub type WrittenKind = (String, String);

/// Whether the API server has a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Served {
    /// The API server has it.
    Yes {
        /// How the API server addresses it.
        resource: ApiResource,
        /// Whether its objects are namespaced.
        namespaced: bool,
        /// Whether its objects have a status subresource. If so, an object without a status is one that no controller
        /// has seen.
        has_status: bool,
    },
    /// The API server does not have it now; its definition may come.
    No,
    /// It cannot be known: the API does not answer.
    Unknown {
        /// The error that the API returned instead.
        reason: String,
    },
}

/// What changed about the kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Some kinds may be served differently than before.
    Changed,
    /// Some kinds that are not served may be served by now: an established definition is not discoverable at once.
    MayBeServed,
}

type NewsListener = Box<dyn Fn(News) + Send + Sync>;

/// What is known of the kinds that the API server has.
pub struct Discovery {
    context: Context,
    known: Mutex<BTreeMap<Question, Known>>,
    notify: OnceLock<NewsListener>,
}

/// A question to the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    /// Is a kind served in exactly this version?
    Exactly(WrittenKind),
    /// Is a kind of this group served, in any version?
    Somehow(GroupKind),
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// The last answer.
    served: Option<Served>,
    /// Whether it must be asked again.
    stale: bool,
    /// The failure, if the last question was not answered.
    failure: Option<String>,
}

impl Known {
    /// The answer that counts without asking. None: it must be asked.
    fn answer(&self) -> Option<Served> {
        match (&self.failure, &self.served) {
            (Some(_), Some(served)) => Some(served.clone()),
            (Some(reason), None) => Some(Served::Unknown { reason: reason.clone() }),
            (None, served) => served.clone().filter(|_| !self.stale),
        }
    }
}

impl Discovery {
    /// Creates a discovery with an empty cache.
    pub fn new(context: &Context) -> Arc<Self> {
        Arc::new(Self { context: context.clone(), known: Mutex::default(), notify: OnceLock::new() })
    }

    /// Starts to follow the definitions of kinds, and reports changes of the kinds from now on. Must be called once.
    pub fn follow(self: &Arc<Self>, notify: impl Fn(News) + Send + Sync + 'static) {
        let _ = self.notify.set(Box::new(notify));
        let (discovery, metrics) = (Arc::downgrade(self), self.context.metrics().clone());
        let context = self.context.clone();
        tokio::spawn(async move {
            let mut first = true;
            supervise("CustomResourceDefinition", &metrics, || {
                // Changes that happened while no watch ran are not reported again.
                if let Some(discovery) = discovery.upgrade().filter(|_| !std::mem::take(&mut first)) {
                    discovery.doubt(|_| true);
                }
                follow(discovery.clone(), definitions(&context))
            })
            .await;
        });
    }

    /// Returns whether the API server has these kinds, each in exactly this version.
    pub async fn served(self: &Arc<Self>, kinds: &BTreeSet<WrittenKind>) -> BTreeMap<WrittenKind, Served> {
        let questions = kinds.iter().map(|kind| Question::Exactly(kind.clone()));
        kinds.iter().cloned().zip(self.ask_all(questions.collect()).await).collect()
    }

    /// Returns how to address kinds of which objects may exist: in the version that is asked for or, where that is no
    /// longer served, in another version that returns the same objects.
    pub async fn served_somehow(self: &Arc<Self>, kinds: &BTreeSet<WrittenKind>) -> BTreeMap<WrittenKind, Served> {
        let mut answers = self.served(kinds).await;
        let lacking: Vec<WrittenKind> =
            answers.iter().filter(|(_, served)| **served == Served::No).map(|(kind, _)| kind.clone()).collect();
        let somehow = |(api_version, kind): &WrittenKind| Question::Somehow(GroupKind::written(api_version, kind));
        let found = self.ask_all(lacking.iter().map(somehow).collect()).await;
        answers.extend(lacking.into_iter().zip(found));
        answers
    }

    /// Records that a kind is served in this way.
    pub fn learn(&self, kind: &WrittenKind, served: Served) {
        let known = Known { served: Some(served), ..Known::default() };
        lock(&self.known).insert(Question::Exactly(kind.clone()), known);
    }

    /// Marks this kind to be asked for again.
    pub fn forget(&self, group: &str, plural: &str) {
        self.doubt(|resource| resource.group == group && resource.plural == plural);
    }

    /// Marks the kinds of these resources to be asked for again. Until then, the old answer is better than none.
    fn doubt(&self, which: impl Fn(&ApiResource) -> bool) {
        for known in lock(&self.known).values_mut() {
            if matches!(&known.served, Some(Served::Yes { resource, .. }) if which(resource)) {
                known.stale = true;
            }
        }
    }

    async fn ask_all(self: &Arc<Self>, questions: Vec<Question>) -> Vec<Served> {
        join_all(questions.into_iter().map(|question| self.answer(question))).await
    }

    /// Returns the cached answer, or asks now and caches the answer.
    async fn answer(self: &Arc<Self>, question: Question) -> Served {
        let known = lock(&self.known).get(&question).and_then(Known::answer);
        match known {
            Some(served) => served,
            None => self.ask(&question).await,
        }
    }

    async fn ask(self: &Arc<Self>, question: &Question) -> Served {
        let answer = self.ask_api(question).await;
        let (served, is_retried) = {
            let mut known = lock(&self.known);
            let is_retried = known.values().any(|known| known.failure.is_some());
            (remember(&mut known, question, answer.clone()), is_retried)
        };
        if answer.is_err() && !is_retried {
            let (discovery, metrics) = (Arc::downgrade(self), self.context.metrics().clone());
            tokio::spawn(async move { supervise("discovery", &metrics, || retry(discovery.clone())).await });
        }
        served
    }

    /// Asks the API server. Returns the reason as text if it could not answer.
    async fn ask_api(&self, question: &Question) -> Result<Served, String> {
        let client = self.context.client();
        let asked = async {
            match question {
                Question::Exactly((api_version, kind)) => {
                    let (group, version) = group_and_version(api_version);
                    let kind = GroupVersionKind::gvk(group, version, kind);
                    found(discovery::pinned_kind(client, &kind).await)
                }
                Question::Somehow(GroupKind { group, kind }) => {
                    let group = found(discovery::group(client, group).await)?;
                    let mut resources = group.iter().flat_map(ApiGroup::resources_by_stability);
                    Ok(resources.find(|(resource, _)| resource.kind == *kind))
                }
            }
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(found)) => Ok(found.map_or(Served::No, served)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("it did not respond within {PATIENCE:?}")),
        }
    }

    fn notify(&self, news: News) {
        if let Some(notify) = self.notify.get() {
            notify(news);
        }
    }
}

/// Caches an answer, and returns what counts now.
fn remember(known: &mut BTreeMap<Question, Known>, question: &Question, answer: Result<Served, String>) -> Served {
    match answer {
        Ok(served @ Served::Yes { .. }) => {
            known.insert(question.clone(), Known { served: Some(served.clone()), ..Known::default() });
            served
        }
        Ok(served) => {
            known.remove(question);
            served
        }
        Err(reason) => {
            let known = known.entry(question.clone()).or_default();
            known.failure = Some(reason.clone());
            known.answer().unwrap_or(Served::Unknown { reason })
        }
    }
}

/// Repeats the questions that could not be answered until all of them are.
async fn retry(discovery: Weak<Discovery>) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        let Some(discovery) = discovery.upgrade() else { return };
        let of_failed = |(question, known): (&Question, &Known)| known.failure.as_ref().map(|_| question.clone());
        let failed: Vec<Question> = lock(&discovery.known).iter().filter_map(of_failed).collect();
        let answers = join_all(failed.iter().map(|question| discovery.ask_api(question))).await;
        let (has_answered, is_over) = {
            let mut known = lock(&discovery.known);
            let has_answered = answers.iter().any(Result::is_ok);
            for (question, answer) in failed.iter().zip(answers) {
                remember(&mut known, question, answer);
            }
            (has_answered, known.values().all(|known| known.failure.is_none()))
        };
        if has_answered {
            discovery.notify(News::Changed);
        }
        if is_over {
            return;
        }
    }
}

type Definition = PartialObjectMeta<DynamicObject>;

fn definitions(context: &Context) -> impl Stream<Item = Change<Definition>> + Send + use<> {
    let scope = Scope {
        resource: ApiResource::erase::<CustomResourceDefinition>(&()),
        namespace: None,
        labels: None,
        lives: context.limits().watch,
    };
    super::metadata(context.client(), &scope, context.metrics())
}

/// Follows the definitions of kinds.
async fn follow(discovery: Weak<Discovery>, changes: impl Stream<Item = Change<Definition>> + Send) {
    let mut changes = std::pin::pin!(changes);
    // The definitions that changed recently, and when the last of them did.
    let (mut lately, mut last) = (BTreeSet::new(), None);
    loop {
        let change = match last {
            Some(_) => tokio::time::timeout(LAG_PAUSE, changes.next()).await,
            None => Ok(changes.next().await),
        };
        let Some(discovery) = discovery.upgrade() else { return };
        let definition = match change {
            Ok(Some(Change::Observed(definition))) => definition.name_any(),
            Ok(Some(Change::Gone(key))) => key.name,
            Ok(Some(Change::Synced)) => continue,
            Ok(None) => return,
            // An established definition is not discoverable at once, and there is no event for that.
            Err(_) if last.is_some_and(|at: Instant| at.elapsed() < LAG) => {
                discovery.notify(News::MayBeServed);
                continue;
            }
            // A kind that is no longer served may have been discoverable until now.
            Err(_) => {
                last = None;
                discovery.request_again(&std::mem::take(&mut lately));
                continue;
            }
        };
        last = Some(Instant::now());
        discovery.request_again(&[definition.clone()].into());
        lately.insert(definition);
    }
}

impl Discovery {
    fn request_again(&self, definitions: &BTreeSet<String>) {
        for (plural, group) in definitions.iter().filter_map(|definition| definition.split_once('.')) {
            self.forget(group, plural);
        }
        self.notify(News::Changed);
    }
}

fn group_and_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

fn served((resource, capabilities): (ApiResource, ApiCapabilities)) -> Served {
    let has_status = capabilities.subresources.iter().any(|(sub, _)| sub.plural.ends_with("status"));
    Served::Yes { resource, namespaced: capabilities.scope == KindScope::Namespaced, has_status }
}

/// The API server's answer about a kind or a group; none if it has no such thing.
fn found<T>(answer: kube::Result<T>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(kube::Error::Discovery(_)) => Ok(None),
        // The API server returns this as plain text for a group that it does not have at all.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widgets() -> Served {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.io", "v1", "Widget"));
        Served::Yes { resource, namespaced: true, has_status: true }
    }

    fn question() -> Question {
        Question::Exactly(("example.io/v1".to_owned(), "Widget".to_owned()))
    }

    #[test]
    fn a_kind_whose_api_does_not_answer_is_what_it_was_or_else_unknown_and_never_gone() {
        let mut known = BTreeMap::new();
        let unknown = Served::Unknown { reason: "service unavailable".to_owned() };
        let failure = || Err("service unavailable".to_owned());
        assert_eq!(remember(&mut known, &question(), failure()), unknown);
        assert_eq!(known[&question()].answer(), Some(unknown), "whoever asks does not wait for it");
        assert_eq!(remember(&mut known, &question(), Ok(widgets())), widgets());
        assert_eq!(remember(&mut known, &question(), failure()), widgets(), "what was known is better than nothing");
        assert_eq!(remember(&mut known, &question(), Ok(Served::No)), Served::No);
        assert!(known.is_empty(), "it may come at any moment");
    }

    #[test]
    fn a_kind_whose_definition_changed_is_asked_for_again() {
        let mut known = Known { served: Some(widgets()), ..Known::default() };
        assert_eq!(known.answer(), Some(widgets()));
        known.stale = true;
        assert_eq!(known.answer(), None);
    }
}
