//! Which kinds the API server has, remembered as long as it stays true.
//!
//! # Guarantees
//!
//! - A kind that is served is asked for once, and anew when its definition changes or [`Discovery::forget`] says so.
//!   That it is not served is not remembered: it may come at any moment.
//! - A kind whose API does not answer concerns nobody else: what was known of it before still counts, and where nothing was,
//!   it is [`Served::Unknown`]. It is asked for again beside whoever wants to know, more and more slowly, and
//!   [`News::Changed`] tells when it has answered. Nobody waits for it longer than a few seconds, and that once.
//! - Whoever follows definitions hears of each change, also after a panic.
//!
//! # Assumptions
//!
//! Definitions are CustomResourceDefinitions, which the process may list and watch. Kinds of aggregated APIs and of a newer
//! API server come and go without any: whoever meets a 404 says so by [`Discovery::forget`].
//!
//! # Errors
//!
//! None: what could not be asked is [`Served::Unknown`], with the reason.

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

/// How long after a change of a definition discovery may still say what was before, and how often that is asked.
const LAG: Duration = Duration::from_secs(10);
const LAG_PAUSE: Duration = Duration::from_millis(250);
/// How long an API may take to say which kinds it has. Whoever asks waits.
const PATIENCE: Duration = Duration::from_secs(3);
/// The pauses between attempts to ask an API that does not answer.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// A kind as manifests write it: `apiVersion` and `kind`.
pub type WrittenKind = (String, String);

/// Whether the API server has a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Served {
    /// It has.
    Yes {
        /// How it is addressed.
        resource: ApiResource,
        /// Whether its objects are in namespaces.
        namespaced: bool,
        /// Whether its objects have a status: one without is one that no controller has seen.
        has_status: bool,
    },
    /// Not now; its definition may come.
    No,
    /// Nobody can tell: its API does not answer.
    Unknown {
        /// What it says instead.
        reason: String,
    },
}

/// What happened to the kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Some may be served otherwise than before.
    Changed,
    /// Some that are not served may be by now: a definition that is established is not yet discoverable.
    MayBeServed,
}

type Tell = Box<dyn Fn(News) + Send + Sync>;

/// What is known of the kinds that the API server has.
pub struct Discovery {
    context: Context,
    known: Mutex<BTreeMap<Question, Known>>,
    tell: OnceLock<Tell>,
}

/// What is asked of the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    /// A kind in exactly this version.
    Exactly(WrittenKind),
    /// A kind of this group, in whichever version it is served.
    Somehow(GroupKind),
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// How it is served, as was answered last.
    served: Option<Served>,
    /// Whether that has to be asked anew.
    stale: bool,
    /// What is answered instead of an answer.
    failure: Option<String>,
}

impl Known {
    /// What counts without asking. None: it is to be asked.
    fn answer(&self) -> Option<Served> {
        match (&self.failure, &self.served) {
            (Some(_), Some(served)) => Some(served.clone()),
            (Some(reason), None) => Some(Served::Unknown { reason: reason.clone() }),
            (None, served) => served.clone().filter(|_| !self.stale),
        }
    }
}

impl Discovery {
    /// Knows nothing yet.
    pub fn new(context: &Context) -> Arc<Self> {
        Arc::new(Self { context: context.clone(), known: Mutex::default(), tell: OnceLock::new() })
    }

    /// Begins to follow the definitions of kinds, and tells from now on what happens to the kinds. To be called once.
    pub fn follow(self: &Arc<Self>, tell: impl Fn(News) + Send + Sync + 'static) {
        let _ = self.tell.set(Box::new(tell));
        let (discovery, metrics) = (Arc::downgrade(self), self.context.metrics().clone());
        let context = self.context.clone();
        tokio::spawn(async move {
            let mut first = true;
            supervise("CustomResourceDefinition", &metrics, || {
                // What happened while nobody listened is not told again.
                if let Some(discovery) = discovery.upgrade().filter(|_| !std::mem::take(&mut first)) {
                    discovery.doubt(|_| true);
                }
                follow(discovery.clone(), definitions(&context))
            })
            .await;
        });
    }

    /// Whether the API server has these kinds, each in exactly this version.
    pub async fn served(self: &Arc<Self>, kinds: &BTreeSet<WrittenKind>) -> BTreeMap<WrittenKind, Served> {
        let questions = kinds.iter().map(|kind| Question::Exactly(kind.clone()));
        kinds.iter().cloned().zip(self.ask_all(questions.collect()).await).collect()
    }

    /// How kinds are addressed of which there may be objects: as they are written or, where that version is served no more,
    /// in another, in which the same objects are found.
    pub async fn served_somehow(self: &Arc<Self>, kinds: &BTreeSet<WrittenKind>) -> BTreeMap<WrittenKind, Served> {
        let mut answers = self.served(kinds).await;
        let lacking: Vec<WrittenKind> =
            answers.iter().filter(|(_, served)| **served == Served::No).map(|(kind, _)| kind.clone()).collect();
        let somehow = |(api_version, kind): &WrittenKind| Question::Somehow(GroupKind::written(api_version, kind));
        let found = self.ask_all(lacking.iter().map(somehow).collect()).await;
        answers.extend(lacking.into_iter().zip(found));
        answers
    }

    /// A kind is served so.
    pub fn learn(&self, kind: &WrittenKind, served: Served) {
        let known = Known { served: Some(served), ..Known::default() };
        lock(&self.known).insert(Question::Exactly(kind.clone()), known);
    }

    /// This kind is to be asked for anew.
    pub fn forget(&self, group: &str, plural: &str) {
        self.doubt(|resource| resource.group == group && resource.plural == plural);
    }

    /// The kinds of these resources are asked for anew. Until that is answered, what is known of them is better than nothing.
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

    /// What is known, or is answered now, and remembered.
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

    /// Asks the API server, and answers in words why it could not tell.
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
            Err(_) => Err(format!("it did not answer within {PATIENCE:?}")),
        }
    }

    fn tell(&self, news: News) {
        if let Some(tell) = self.tell.get() {
            tell(news);
        }
    }
}

/// Keeps an answer, and says what counts now.
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

/// Asks what could not be answered until all of it was.
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
            discovery.tell(News::Changed);
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
    // The definitions that changed lately, and when the last of them did.
    let (mut lately, mut last) = (BTreeSet::new(), None);
    loop {
        let change = match last {
            Some(_) => tokio::time::timeout(LAG_PAUSE, changes.next()).await,
            None => Ok(changes.next().await),
        };
        let Some(discovery) = discovery.upgrade() else { return };
        let definition = match change {
            Ok(Some(Change::Seen(definition))) => definition.name_any(),
            Ok(Some(Change::Gone(key))) => key.name,
            Ok(Some(Change::Synced)) => continue,
            Ok(None) => return,
            // Established is not yet discoverable, and nobody tells when it is.
            Err(_) if last.is_some_and(|at: Instant| at.elapsed() < LAG) => {
                discovery.tell(News::MayBeServed);
                continue;
            }
            // What is served no more may have been discovered until now.
            Err(_) => {
                last = None;
                discovery.ask_anew(&std::mem::take(&mut lately));
                continue;
            }
        };
        last = Some(Instant::now());
        discovery.ask_anew(&[definition.clone()].into());
        lately.insert(definition);
    }
}

impl Discovery {
    fn ask_anew(&self, definitions: &BTreeSet<String>) {
        for (plural, group) in definitions.iter().filter_map(|definition| definition.split_once('.')) {
            self.forget(group, plural);
        }
        self.tell(News::Changed);
    }
}

fn group_and_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

fn served((resource, capabilities): (ApiResource, ApiCapabilities)) -> Served {
    let has_status = capabilities.subresources.iter().any(|(sub, _)| sub.plural.ends_with("status"));
    Served::Yes { resource, namespaced: capabilities.scope == KindScope::Namespaced, has_status }
}

/// What the API server says of a kind, or of a group; none: it has no such thing.
fn found<T>(answer: kube::Result<T>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(kube::Error::Discovery(_)) => Ok(None),
        // Of a group that it does not have at all, in plain text.
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
    fn a_kind_whose_definition_changed_is_asked_for_anew() {
        let mut known = Known { served: Some(widgets()), ..Known::default() };
        assert_eq!(known.answer(), Some(widgets()));
        known.stale = true;
        assert_eq!(known.answer(), None);
    }
}
