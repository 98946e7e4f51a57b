//! Failures between this process and the API server, sorted by what to do about them.

pub(crate) mod values;

use std::time::Duration;

use kube::core::Status;
use thiserror::Error;

use crate::client::DeadlineExceeded;
use crate::conditions::cut;
use crate::election::LeadershipLost;

/// A failure of a reconcile. Bad input is not one: it is a decision, published in the status.
#[derive(Debug, Error)]
pub enum Error {
    /// The API server refused the request, or could not be reached.
    #[error("{}", in_words(.0))]
    Api(#[from] kube::Error),
    /// The whole reconcile took too long.
    #[error("the reconcile took longer than {0:?}")]
    Deadline(Duration),
    /// An object changed between reading and writing. The next reconcile decides again.
    #[error("{0} changed after it was read")]
    Stale(String),
    /// A bug in this program: it panicked, or broke one of its own rules.
    #[error("internal error: {0}")]
    Bug(String),
    /// It is not known whether a contract is in force, and which one.
    #[error("nothing is written until the ownership contract is known: {0}")]
    Contract(String),
    /// Something outside the API server failed: a registry, a repository, a program.
    #[error("{0}")]
    Outside(String),
}

/// What to do about an [error](enum@Error). Used as a metric label, so the set is small and fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Retry.
    Transient,
    /// Read again.
    Conflict,
    /// Grant the missing permission.
    Forbidden,
    /// Correct the input.
    Invalid,
    /// Nothing in this process: another process leads.
    LeadershipLost,
    /// Fix this program.
    Bug,
}

impl Class {
    /// The class as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Conflict => "conflict",
            Self::Forbidden => "forbidden",
            Self::Invalid => "invalid",
            Self::LeadershipLost => "leadership_lost",
            Self::Bug => "bug",
        }
    }
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Stale(_) => Class::Conflict,
            Self::Bug(_) => Class::Bug,
            Self::Api(kube::Error::Api(status)) => class_of(status),
            Self::Api(kube::Error::Service(source)) if source.is::<LeadershipLost>() => Class::LeadershipLost,
            Self::Api(_) | Self::Deadline(_) | Self::Contract(_) | Self::Outside(_) => Class::Transient,
        }
    }

    /// Whether the API server was reached and has answered, as far as a failed write shows, even if only with an error.
    pub(crate) fn was_answered(&self) -> bool {
        // What fails outside the API server says nothing about it.
        matches!(self, Self::Api(kube::Error::Api(_)) | Self::Stale(_) | Self::Outside(_))
    }

    /// Whether the API server says that the requested object does not exist.
    pub fn is_not_found(&self) -> bool {
        // For a kind that it does not have, the API server answers in plain text, without a reason.
        matches!(self, Self::Api(kube::Error::Api(status)) if status.is_not_found() || status.code == 404)
    }

    /// How long the API server asks the client to wait at least.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Api(kube::Error::Api(status)) => {
                Duration::from_secs(status.details.as_ref().map_or(0, |details| details.retry_after_seconds).into())
            }
            _ => Duration::ZERO,
        }
    }
}

fn class_of(status: &Status) -> Class {
    match status.code {
        409 => Class::Conflict,
        401 | 403 => Class::Forbidden,
        400 | 413 | 415 | 422 => Class::Invalid,
        _ => Class::Transient,
    }
}

/// Long enough for a sentence, short enough for a status.
pub(crate) const LONGEST: usize = 1024;

/// The message of an error. kube prints the whole `Status` twice; users need its message once.
fn in_words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 422 && status.details.is_some() => invalid(status),
        kube::Error::Api(status) if !status.message.is_empty() => message(status),
        kube::Error::Api(status) => format!("the API server responded with {} {}", status.code, status.reason),
        kube::Error::Service(source) if source.is::<LeadershipLost>() => source.to_string(),
        kube::Error::Service(source) => match source.downcast_ref::<DeadlineExceeded>() {
            Some(deadline) => deadline.to_string(),
            None => format!("the API server could not be reached: {}", root_cause(source.as_ref())),
        },
        kube::Error::SerdeError(error) => {
            format!("the response of the API server could not be parsed: {}", values::of_serde(&error.to_string()))
        }
        other => other.to_string(),
    }
}

fn message(status: &Status) -> String {
    cut(&values::of_message(&status.message), LONGEST).to_owned()
}

/// What is invalid, without the values: the server quotes whole pod templates, including secrets in them.
fn invalid(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let words: Vec<_> = causes.map(|cause| format!("{}: {}", cause.field, values::of_cause(&cause.message))).collect();
    if words.is_empty() {
        return message(status);
    }
    cut(&words.join("; "), LONGEST).to_owned()
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // An error that wraps one of serde repeats its quotes.
        if cause.is::<serde_json::Error>() {
            return values::of_serde(&words);
        }
        let cause_words = cause.to_string();
        // Many errors repeat their cause.
        if !words.contains(&cause_words) {
            words = format!("{words}: {cause_words}");
        }
        source = cause.source();
    }
    words
}

fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
